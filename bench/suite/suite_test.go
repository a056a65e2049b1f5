package suite_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ccmed/ccmed/bench/suite"
)

const night = `about: two models, asked when to step in
vars:
  models: [Gemma2:9b, org/phi3.5]
  labeller: qwen
  judge: ${labeller}
  data:
  common: []
steps:
  - name: compare
    command: [compare, "${step:timing}"]
  - name: timing
    matrix: {model: "${models}"}
    command: [timing, --model, "${model}", --data, "${data}", "${common}"]
  - name: mediate
    matrix: {model: "${models}", rubric: [none, stage]}
    needs: timing
    command: [mediate, "--turn=predicted:${step:timing}", --rubric, "${rubric}", --judge, "${judge}", --prompts, "${out}/prompts"]
`

func plan(t *testing.T, source string, set map[string]string) []suite.Step {
	t.Helper()
	s, err := suite.Parse("night.yaml", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	steps, err := s.Plan("runs/night", set)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func TestPlan(t *testing.T) {
	want := []suite.Step{
		{Name: "timing-gemma2-9b", Where: "night.yaml:11", Command: []string{"timing", "--model", "Gemma2:9b", "--data", "d, e", "--limit", "5"}},
		{Name: "compare", Where: "night.yaml:9", Command: []string{"compare", "runs/night/timing-gemma2-9b", "runs/night/timing-org-phi3.5"},
			Needs: []string{"timing-gemma2-9b", "timing-org-phi3.5"}, Uses: []string{"timing-gemma2-9b", "timing-org-phi3.5"}},
		{Name: "timing-org-phi3.5", Where: "night.yaml:11", Command: []string{"timing", "--model", "org/phi3.5", "--data", "d, e", "--limit", "5"}},
	}
	want[1], want[2] = want[2], want[1]
	for _, m := range []string{"gemma2-9b", "org-phi3.5"} {
		for _, r := range []string{"none", "stage"} {
			want = append(want, suite.Step{Name: "mediate-" + m + "-" + r, Where: "night.yaml:14", Needs: []string{"timing-" + m}, Uses: []string{"timing-" + m},
				Command: []string{"mediate", "--turn=predicted:runs/night/timing-" + m, "--rubric", r, "--judge", "qwen", "--prompts", "runs/night/prompts"}})
		}
	}
	got := plan(t, night, map[string]string{"data": "d, e", "common": "--limit,5"})
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(suite.Step{}, "Folder")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got[0].Folder != "runs/night/timing-gemma2-9b" {
		t.Errorf("folder %q", got[0].Folder)
	}
}

func TestValuesAreNotExpanded(t *testing.T) {
	got := plan(t, "vars: {v: x}\nsteps:\n  - {name: a, command: [c, '${v}', 'a-${v}-${v}', '$v', '${v}$']}\n", map[string]string{"v": "${out}, 'q'"})
	if d := cmp.Diff([]string{"c", "${out}, 'q'", "a-${out}, 'q'-${out}, 'q'", "$v", "${out}, 'q'$"}, got[0].Command); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestEmptyListLeavesNoArgument(t *testing.T) {
	got := plan(t, "vars: {more: [--a, b]}\nsteps:\n  - {name: a, command: [c, '${more}', d]}\n", map[string]string{"more": ""})
	if d := cmp.Diff([]string{"c", "d"}, got[0].Command); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Values are the text that was written, also where YAML knows a number, a time or
// nothing in it, and a colon or a dash within a word is part of the word.
func TestValuesAreText(t *testing.T) {
	values := []string{"gemma2:9b", "http://localhost:11434/v1", "--turn=predicted:a", "a:1", "a#b", "1.10", "0x1F", "017", "1_000", "1e3",
		"True", "off", "~", "null", "2001-01-01", "--", "-5", ".inf", "<<"}
	for _, form := range []string{
		"steps: [{name: a, command: [" + strings.Join(values, ", ") + "]}]",
		"steps:\n  - name: a\n    command:\n      - " + strings.Join(values, "\n      - ") + "\n",
		"vars: {v: [" + strings.Join(values, ", ") + "]}\nsteps: [{name: a, command: ['${v}']}]",
		"vars: {v: &v [" + strings.Join(values, ", ") + "], w: *v}\nsteps: [{name: a, command: ['${w}']}]",
	} {
		if d := cmp.Diff(values, plan(t, form, nil)[0].Command); d != "" {
			t.Errorf("%s (-want +got):\n%s", form, d)
		}
	}
}

// TestMistakes: one sentence each, with the line of the mistake, and its column where
// one value is wrong.
func TestMistakes(t *testing.T) {
	const step = "steps:\n  - {name: a, command: [x]}\n"
	for name, c := range map[string]struct{ source, want string }{
		"a byte order mark":     {"\xEF\xBB\xBFsteps: []", "f.yaml:1: the text begins with a byte order mark; save the file as UTF-8 without a byte order mark"},
		"Latin-1":               {"about: x\n# \xE9\n", "f.yaml:2: byte E9 is no UTF-8; save the file as UTF-8"},
		"not yaml":              {"steps:\n\t- x", "f.yaml:2: found character that cannot start any token"},
		"no comma":              {"vars: {a: x b: y}\n" + step, "f.yaml:1: did not find expected ',' or '}'"},
		"a tab in a key":        {"steps:\n  - n\tame: a\n    command: [x]\n", `f.yaml:2:5: a step has no key "n\tame"; known are command, matrix, name, needs`},
		"a brace for a bracket": {"steps:\n  - {name: a, command: [x, y}]}\n", "f.yaml:1: did not find expected ',' or ']'"},
		"a merged mapping":      {"vars: &v {a: x}\nsteps:\n  - {<<: *v, name: a, command: [x]}\n", `f.yaml:3:6: a step has no key "<<"; known are command, matrix, name, needs`},
		"an alias of itself":    {"vars: &v {a: *v}\n" + step, "f.yaml:1:7: the variable a must be a value or a list of values"},
		"empty":                 {"# nothing\n", "f.yaml:1: the file is empty; a suite has steps"},
		"a list":                {"- a\n", "f.yaml:1:1: a suite must be keys with values"},
		"unknown key":           {step + "stpes: []\n", `f.yaml:3:1: a suite has no key "stpes"; known are about, steps, vars`},
		"twice":                 {step + "about: a\nabout: b\n", `f.yaml:4:1: a suite has the key "about" twice`},
		"no steps":              {"about: x\n", "f.yaml:1:1: the suite has no steps"},
		"steps no list":         {"steps: x\n", "f.yaml:1:8: steps must be a list"},
		"unknown step key":      {"steps:\n  - name: a\n    comand: [x]\n", `f.yaml:3:5: a step has no key "comand"; known are command, matrix, name, needs`},
		"no name":               {"steps:\n  - command: [x]\n", `f.yaml:2:5: a step needs a name of small letters, digits, _, . and -, and this one has ""`},
		"a path for name":       {"steps:\n  - {name: ../a, command: [x]}\n", `f.yaml:2:5: a step needs a name of small letters, digits, _, . and -, and this one has "../a"`},
		"same name":             {step + "  - {name: a, command: [x]}\n", `f.yaml:3:5: two steps have the name "a"`},
		"no command":            {"steps:\n  - name: a\n", `f.yaml:2:5: step "a" has no command`},
		"command a line":        {"steps:\n  - name: a\n    command: timing --model x\n", "f.yaml:3:14: command must be a list of arguments, as in [timing, --model, gemma2:9b]"},
		"nested list":           {"steps:\n  - name: a\n    command: [x,\n      [y]]\n", "f.yaml:4:7: command must be a list of plain values"},
		"bad variable":          {"vars: {A b: x}\n" + step, `f.yaml:1:8: "A b" cannot name a variable; small letters, digits, _ and - can, a letter first`},
		"reserved":              {"vars: {out: x}\n" + step, `f.yaml:1:8: no variable can be named "out": that is the suite's folder`},
		"shadowed":              {"steps:\n  - {name: a, command: [x], matrix: {m: [1]}}\nvars: {m: 2}\n", `f.yaml:2:5: step "a": the matrix variable "m" is a variable of the suite already`},
		"unknown variable":      {"vars: {b: x}\nsteps:\n  - name: a\n    command: [x,\n      '${bb}']\n", `f.yaml:5:7: "${bb}": there is no variable "bb" here; known are b, out`},
		"later variable":        {"vars:\n  a: ${b}\n  b: x\n" + step, `f.yaml:2:3: "${b}": there is no variable "b" here; known are a, out`},
		"open brace":            {"steps:\n  - {name: a, command: ['${out']}\n", `f.yaml:2:25: "${out" has no closing brace`},
		"list inside":           {"vars: {l: [a, b]}\nsteps:\n  - {name: a, command: ['x${l}']}\n", `f.yaml:3:25: "x${l}": ${l} stands for 2 values and there is room for one`},
		"step in a var":         {"vars: {l: '${step:a}'}\n" + step, `f.yaml:1:8: "${step:a}": only commands can name steps`},
		"unknown step":          {"steps:\n  - {name: a, command: ['${step:b}']}\n", `f.yaml:2:25: step "a" names the step "b", which the suite does not have`},
		"unknown need":          {"steps:\n  - {name: a, command: [x], needs: b}\n", `f.yaml:2:36: step "a" names the step "b", which the suite does not have`},
		"itself":                {"steps:\n  - {name: a, command: ['${step:a}']}\n", `f.yaml:2:25: step "a" needs itself`},
		"cycle":                 {step + "  - {name: b, command: [x], needs: c}\n  - {name: c, command: ['${step:b}']}\n  - {name: d, command: [x], needs: c}\n", `f.yaml:3: the steps b, c wait for each other`},
		"no values":             {"vars: {l: []}\nsteps:\n  - {name: a, command: [x], matrix: {m: '${l}'}}\n", `f.yaml:3:5: step "a": the matrix variable "m" has no values`},
		"same folder":           {"steps:\n  - {name: a, command: [x], matrix: {m: [p/q, 'p:q']}}\n", `f.yaml:2:5: the steps "a" and "a" would share the name "a-p-q"`},
		"several folders":       {"steps:\n  - {name: a, command: [x], matrix: {m: [1, 2]}}\n  - {name: b, command: ['in:${step:a}']}\n", `f.yaml:3:25: "in:${step:a}": ${step:a} stands for 2 values and there is room for one`},
		"other values":          {"steps:\n  - {name: a, command: [x], matrix: {m: [1]}}\n  - {name: b, command: ['${step:a}'], matrix: {m: [2]}}\n", `f.yaml:3:25: step "b-2": no step "a" has the same values of the matrix`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := suite.Parse("f.yaml", []byte(c.source))
			if err == nil {
				_, err = s.Plan("out", nil)
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestSet(t *testing.T) {
	s, err := suite.Parse("f.yaml", []byte("vars: {a: , b: , c: 1}\nsteps:\n  - {name: a, command: [x]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Plan("out", map[string]string{"a": "1"})
	var missing *suite.MissingError
	if !errors.As(err, &missing) || !cmp.Equal(missing.Names, []string{"b"}) || !strings.Contains(err.Error(), "a value for b") {
		t.Errorf("got %v", err)
	}
	_, err = s.Plan("out", map[string]string{"a": "1", "b": "2", "d": "3"})
	var unknown *suite.UnknownError
	if !errors.As(err, &unknown) || err.Error() != "the suite has no variable d; it has a, b, c" {
		t.Errorf("got %v", err)
	}
	if d := cmp.Diff([]suite.Var{{Name: "a", Required: true}, {Name: "b", Required: true}, {Name: "c", Values: []string{"1"}}}, s.Vars, cmpopts.IgnoreUnexported(suite.Var{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// FuzzPlan: whatever the file, a plan is one that can be walked from top to bottom.
func FuzzPlan(f *testing.F) {
	f.Add(night)
	f.Add("steps:\n  - {name: a, command: [x], needs: b}\n  - {name: b, command: ['${step:a}']}\n")
	f.Add("vars: &v {a: *v}\nsteps: [*v]\n")
	f.Add("steps: [{? [a] : b}]")
	f.Fuzz(func(t *testing.T, source string) {
		s, err := suite.Parse("f.yaml", []byte(source))
		if err != nil {
			return
		}
		set := map[string]string{}
		for _, v := range s.Vars {
			if v.Required {
				set[v.Name] = "x"
			}
		}
		steps, err := s.Plan("out", set)
		if err != nil {
			return
		}
		done := map[string]bool{}
		for _, st := range steps {
			for _, n := range st.Needs {
				if !done[n] {
					t.Fatalf("%s comes before %s, which it needs", st.Name, n)
				}
			}
			if done[st.Name] || len(st.Command) == 0 || strings.ContainsAny(st.Name, "/\\:") {
				t.Fatalf("step %+v", st)
			}
			done[st.Name] = true
		}
	})
}
