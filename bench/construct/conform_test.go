package construct

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

var (
	askedCountries = regexp.MustCompile(`first person comes from (.*?) and (agrees|does not agree)`)
	askedQuestion  = regexp.MustCompile(`The question: (.*?)\.\n`)
)

// writer writes the scenario that it is asked for, and spoils every so many, in turn.
func writer(spoils ...func(map[string]string) string) *infertest.Scripted {
	n := 0
	return &infertest.Scripted{Say: func(p infer.Prompt, _ infer.Params) infer.Reply {
		asked, question := askedCountries.FindStringSubmatch(text(p)), askedQuestion.FindStringSubmatch(text(p))
		m := map[string]string{"context": "They wait for the bus and speak of " + question[1] + ".", "name_1": "Ada", "occupation_1": "nurse", "name_2": "Bo", "occupation_2": "cook",
			"practical_1": "Find a seat", "practical_2": "Find the stop", "argue_1": "Say what counts", "argue_2": "Say what matters", "answer_1": "yes", "answer_2": "no"}
		if asked[2] != "agrees" {
			m["answer_1"], m["answer_2"] = "no", "yes"
		}
		n++
		if len(spoils) > 0 && n%2 == 0 {
			if reply := spoils[n/2%len(spoils)](m); reply != "" {
				return infer.Reply{Text: reply}
			}
		}
		b, _ := json.Marshal(m) // of texts: cannot fail
		return infer.Reply{Text: "Here it is: " + string(b)}
	}}
}

func TestScenariosThatAModelWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := w.run(Scenarios{}, writer(func(m map[string]string) string { m["answer_1"] = m["answer_2"]; return "" },
		func(map[string]string) string { return "I would rather not." },
		func(m map[string]string) string { m["name_2"] = m["name_1"]; return "" },
		func(m map[string]string) string { m["argue_1"] = ""; return "" }), "--n", "16")
	m := w.metrics(path)
	want := map[string]int{"the people agree": 2, unreadable: 2, "both people have one name": 2, "fewer than two goals": 2}
	if m.Items != 16 || m.Kept != 8 || fmt.Sprint(m.Rejected) != fmt.Sprint(want) {
		t.Errorf("%d of %d kept, rejected %v, want 8 of 16 and %v", m.Kept, m.Items, m.Rejected, want)
	}
	kept, rejected, err := ReadScenarios(t.Context(), w.archive, path, Alike)
	if err != nil || len(kept) != 8 || len(rejected) != 8 || !strings.Contains(kept[0].Source, "scripted (sha256:1)") {
		t.Errorf("%d kept, %d rejected, by %q, %v", len(kept), len(rejected), kept[0].Source, err)
	}
	// More are asked for than there are questions: those that only repeat are left out.
	m = w.metrics(w.run(Scenarios{}, &infertest.Scripted{Say: func(p infer.Prompt, o infer.Params) infer.Reply { return writer().Say(p, o) }}, "--n", "60", "--countries", "Peru,Norway"))
	if m.Rejected[sameAsAnother] != 15 || m.Kept != 45 {
		t.Errorf("of 60 scenarios on 45 questions %d are kept, rejected %v", m.Kept, m.Rejected)
	}
}

func TestConforms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := players{level: func(scripted, turn int, helped bool) int {
		if scripted == 2 && turn%2 == 0 {
			return 5
		}
		return varied(scripted, turn, helped)
	}}
	scenarios := w.run(Scenarios{}, writer(func(map[string]string) string { return "No." }), "--n", "8")
	dialogues := w.run(Dialogues{}, p.model(), "--cases", w.cases(18))
	labels := w.run(Label{}, p.model(), "--dialogues", dialogues)
	pairs := w.run(Pairs{}, p.model(), "--labelled", labels)
	for _, c := range []struct {
		bench task.Bench
		path  string
		flags []string
	}{
		{Scenarios{}, scenarios, []string{"--n", "6"}},
		{Dialogues{}, dialogues, []string{"--cases", w.dir + "/cases.jsonl", "--limit", "6"}},
		{Label{}, labels, []string{"--dialogues", dialogues, "--limit", "4"}},
		{Pairs{}, pairs, []string{"--labelled", labels, "--limit", "4"}},
	} {
		t.Run(c.bench.About().Command, func(t *testing.T) {
			r, err := w.archive.Open(c.path)
			if err != nil {
				t.Fatal(err)
			}
			samples, err := task.Collect(r.Samples())
			if err != nil {
				t.Fatal(err)
			}
			one := -1
			for i, s := range samples {
				samples[i].Prompts, samples[i].Seconds, samples[i].Schema = []string{"d6c7ce48a02502e628729f054f1d5a58"}, 1, run.SampleSchema
				if s.Unscored == "" && (s.Step == StepLabel || s.Step == StepStages) {
					one = i
				}
			}
			if one >= 0 {
				samples[one].Unscored = "too little mass"
			}
			tasktest.Conform(t, tasktest.Case{Bench: c.bench, Identity: r.Identity(), Samples: samples, Flags: c.flags})
		})
	}
}
