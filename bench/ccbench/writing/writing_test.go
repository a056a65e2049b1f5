package writing

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

func planOf(t *testing.T, note func(string, ...any), args ...string) (task.Plan, error) {
	t.Helper()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	c := Bench{}.Flags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c.Plan(t.Context(), task.Env{Archive: &task.Archive{Note: note}, Seed: 1})
}

// make makes a run as the command does, its files beside the samples included.
func makeRun(t *testing.T, path string, writer, checker infer.Backend, args ...string) error {
	t.Helper()
	p, err := planOf(t, t.Logf, args...)
	if err != nil {
		t.Fatal(err)
	}
	id := run.Identity{Task: "ccbench-build", Seed: 1, Items: p.Items, DataHash: p.DataHash, Prompts: p.Templates,
		Models: map[string]infer.Model{RoleWriter: {Name: "w"}, RoleChecker: {Name: "c"}}}
	b, err := json.Marshal(p.Settings)
	if err == nil {
		err = json.Unmarshal(b, &id.Options)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := run.Create(path, id, nil)
	if err != nil {
		if d, _, err = run.Resume(path, id, nil); err != nil {
			t.Fatal(err)
		}
	}
	done, err := p.Open(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Task.Execute(t.Context(), d, run.Options{Together: func(_ context.Context, roles []string) ([]map[string]infer.Backend, error) {
		return []map[string]infer.Backend{{RoleWriter: writer, RoleChecker: checker}}, nil
	}})
	if finished := done(); finished != nil {
		return finished
	}
	return err
}

// told reads from a writer's prompt what the talk has to show: id and word.
func told(p infer.Prompt) (shown [][2]string, starter string) {
	user := p.Messages[1].Content
	_, rest, _ := strings.Cut(user, "This talk has to show\n")
	list, rest, _ := strings.Cut(rest, "\n\n")
	for _, line := range strings.Split(list, "\n") {
		if id, word, ok := strings.Cut(line, ": "); ok {
			shown = append(shown, [2]string{id, word})
		}
	}
	_, starter, _ = strings.Cut(rest, "The person begins: ")
	return shown, starter
}

// habit is a norm's id without its culture, which no talk may name.
func habit(id string) string {
	_, number, _ := strings.Cut(id, "-")
	return "habit " + number
}

// scripted writes talks in which the person says of each norm that has to be shown "habit 3
// yes" or "habit 3 no". spoil changes a talk; calls counts them.
func scripted(spoil func(call int, person string, shown [][2]string) (string, [][2]string)) *infertest.Scripted {
	calls := 0
	return &infertest.Scripted{Say: func(p infer.Prompt, _ infer.Params) infer.Reply {
		calls++
		shown, starter := told(p)
		var person []string
		for _, s := range shown {
			person = append(person, habit(s[0])+map[string]string{"follow": " yes.", "avoid": " no."}[s[1]])
		}
		text, repeats := strings.Join(person, " "), shown
		if spoil != nil {
			text, repeats = spoil(calls, text, shown)
		}
		var end []string
		for _, s := range repeats {
			end = append(end, s[0]+": "+s[1])
		}
		return infer.Reply{Text: "Person: " + starter + "\nAssistant: Gladly.\nPerson: " + text + "\nAssistant: I see.\n\n" + stances + "\n" + strings.Join(end, "\n")}
	}}
}

// reader checks talks of scripted: it finds "habit 3 yes" and "habit 3 no" by the norm's statement.
func reader(t *testing.T, cultures ...string) *infertest.Scripted {
	t.Helper()
	ids := map[string]string{}
	for _, name := range cultures {
		c, err := norm.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Norms {
			ids[n.Statement] = habit(n.ID)
		}
	}
	return &infertest.Scripted{Answer: func(p infer.Prompt, as []infer.Answer) infer.Choice {
		content := p.Messages[1].Content
		_, statement, _ := strings.Cut(content, "way of behaving: \"")
		statement, _, _ = strings.Cut(statement, "\"")
		id := ids[statement]
		say := "no"
		switch {
		case strings.Contains(content, "Can one tell"):
			if strings.Contains(content, id+" yes") || strings.Contains(content, id+" no") {
				say = "yes"
			}
		case strings.Contains(content, "behave so?"):
			if strings.Contains(content, id+" yes") {
				say = "yes"
			}
		case strings.Contains(content, "say outright"):
			if strings.Contains(content, "people of the hills") {
				say = "yes"
			}
		case strings.Contains(content, "Somebody asks"):
			if !strings.Contains(content, "diabetes") {
				say = "yes"
			}
		default:
			say = "yes" // text can show anything
		}
		return infertest.Always(say, .9)(p, as)
	}}
}

var small = []string{"--culture", "nepali,burmese", "--personas", "2", "--everyday", "3", "--health", "1", "--tries", "3"}

// TestBuilds: a writer that does as it is told gives a build that can be read, with the
// stances and the relevance that the checker sees.
func TestBuilds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "run")
	if err := makeRun(t, path, scripted(nil), reader(t, "nepali", "burmese"), small...); err != nil {
		t.Fatal(err)
	}
	b, err := build.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Cultures) != 2 || b.Writer != "w" || b.Checker != "c" || len(b.Queries) != 11 || b.Queries[0].ID != "q02" {
		t.Errorf("%d cultures, writer %s, checker %s, %d queries", len(b.Cultures), b.Writer, b.Checker, len(b.Queries))
	}
	for _, c := range b.Cultures {
		for _, p := range c.Personas {
			if len(p.Sessions) != 4 || p.Sessions[3].Kind != build.Health {
				t.Errorf("%s: %d sessions", p.ID, len(p.Sessions))
			}
			for _, s := range p.Sessions {
				for _, turn := range s.Turns {
					if strings.Contains(turn.Text, stances) {
						t.Error("the repeated stances are not cut off")
					}
				}
			}
		}
	}
	again, err := os.ReadFile(filepath.Join(path, build.File))
	if err != nil {
		t.Fatal(err)
	}
	if err := makeRun(t, path, scripted(nil), reader(t, "nepali", "burmese"), small...); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(filepath.Join(path, build.File)); err != nil || string(after) != string(again) {
		t.Errorf("going on with a whole build changes it (%v)", err)
	}
}

// TestCaught: a writer that does one thing wrong is caught each time, by the filter that is
// for it, and a writer that never passes is named with filter and number.
func TestCaught(t *testing.T) {
	t.Parallel()
	flip := strings.NewReplacer(" yes.", " no.", " no.", " yes.")
	for filter, spoil := range map[string]func(int, string, [][2]string) (string, [][2]string){
		FilterOrigin: func(_ int, s string, r [][2]string) (string, [][2]string) { return s + " Here in Nepal we do so.", r },
		FilterCulture: func(_ int, s string, r [][2]string) (string, [][2]string) {
			return s + " We are people of the hills.", r
		},
		FilterContradicts: func(_ int, s string, r [][2]string) (string, [][2]string) { return flip.Replace(s), r },
		FilterHidden:      func(_ int, _ string, r [][2]string) (string, [][2]string) { return "Thank you.", r },
		FilterRepeated:    func(_ int, s string, r [][2]string) (string, [][2]string) { return s, r[:len(r)-1] },
		FilterForm:        func(_ int, s string, r [][2]string) (string, [][2]string) { return s + "\nPerson: And more.", r },
	} {
		path := filepath.Join(t.TempDir(), "run")
		args := []string{"--culture", "nepali", "--personas", "1", "--everyday", "2", "--health", "0", "--tries", "3"}
		err := makeRun(t, path, scripted(spoil), reader(t, "nepali"), args...)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("2 of 2 sessions never passed (%s 6)", filter)) {
			t.Errorf("%s: %v", filter, err)
		}
		if _, err := os.Stat(filepath.Join(path, build.File)); err == nil {
			t.Errorf("%s: there is a build", filter)
		}
		// Every second talk is spoilt: the next one passes, and the rejection is kept.
		path = filepath.Join(t.TempDir(), "run")
		now := func(call int, s string, r [][2]string) (string, [][2]string) {
			if call%2 == 1 {
				return spoil(call, s, r)
			}
			return s, r
		}
		if err := makeRun(t, path, scripted(now), reader(t, "nepali"), args...); err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		m := scored(t, path).Metric
		if m.Passed != 2 || m.Talks != 4 || m.Rejected[filter] != 2 || m.Never != 0 || m.Rate.Value != .5 {
			t.Errorf("%s: %+v", filter, m)
		}
	}
	// A contradiction of a norm that the talk does not have to show is one, too.
	var persona []norm.Persona
	c, err := norm.Named("nepali")
	if err == nil {
		persona, err = c.Personas(1, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := build.Culture{Culture: c}.Stances(persona[0])
	path := filepath.Join(t.TempDir(), "run")
	err = makeRun(t, path, scripted(func(_ int, s string, r [][2]string) (string, [][2]string) {
		for _, x := range all {
			if !strings.Contains(s, habit(x.Norm.ID)+" ") {
				return s + " " + habit(x.Norm.ID) + map[norm.State]string{norm.Follow: " no.", norm.Avoid: " yes."}[x.State], r
			}
		}
		return s, r
	}), reader(t, "nepali"), "--culture", "nepali", "--personas", "1", "--everyday", "2", "--health", "0", "--tries", "1")
	if err == nil || !strings.Contains(err.Error(), "(contradicts 2)") {
		t.Errorf("another norm: %v", err)
	}
}

func scored(t *testing.T, path string) *result {
	t.Helper()
	archive := &task.Archive{Benches: task.Registry{Bench{}}, Version: "1", Note: t.Logf}
	r, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.Result(t.Context(), task.ScoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return res.(*result)
}

// TestGoesOn: a build whose server went away has no file, and going on with it gives the
// one that is made in one go.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	args := []string{"--culture", "nepali", "--personas", "2", "--everyday", "2", "--health", "0"}
	dir := t.TempDir()
	if err := makeRun(t, filepath.Join(dir, "whole"), scripted(nil), reader(t, "nepali"), args...); err != nil {
		t.Fatal(err)
	}
	broken := scripted(nil)
	broken.Fail = func(n int, _ infertest.Call) error {
		if n > 2 {
			return fmt.Errorf("the server is gone")
		}
		return nil
	}
	path := filepath.Join(dir, "broken")
	if err := makeRun(t, path, broken, reader(t, "nepali"), args...); err == nil {
		t.Fatal("the server was not gone")
	}
	if _, err := os.Stat(filepath.Join(path, build.File)); err == nil {
		t.Fatal("there is a build")
	}
	if err := makeRun(t, path, scripted(nil), reader(t, "nepali"), args...); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, name := range []string{"whole", "broken"} {
		b, err := os.ReadFile(filepath.Join(dir, name, build.File))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	if texts[0] != texts[1] {
		t.Error("the build that went on is another one")
	}
}

// TestStatesOrigin: statements of origin are caught; greetings, food and practice are not,
// and nothing in the embedded build is one.
func TestStatesOrigin(t *testing.T) {
	t.Parallel()
	c, err := norm.Named("vietnamese")
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[string]bool{"I am from Hue.": true, "We came here from Hanoi": true, "in Viet Nam it is so": true, "Vietnamese coffee": true, "My family moved here from Dalat": true,
		"in my culture one waits": true, "where we come from": true, "As a Buddhist I": true, "my parents were born in Hue": true,
		"Xin chào! I light incense on the first day.": false, "I am from the clinic.": false, "I come from work.": false, "I eat no meat on the full moon.": false, "As a mother I": false} {
		if got := statesOrigin(c, []build.Turn{{By: build.Person, Text: said}}); (got != "") != want {
			t.Errorf("%q: %q", said, got)
		}
	}
	sample, err := build.Read(build.Sample)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range sample.Cultures {
		for _, p := range c.Personas {
			for i, s := range p.Sessions {
				if words := statesOrigin(c.Culture, s.Turns); words != "" {
					t.Errorf("%s, session %d: %q", p.ID, i+1, words)
				}
			}
		}
	}
}

func TestReadTalk(t *testing.T) {
	t.Parallel()
	good := "**Person:** Plan my week, please. Now.\nAssistant: Gladly.\nAnything fixed?\n\nPerson: No.\nAssistant: Then so.\nSTANCES\n- nepali-1: Follow.\n"
	turns, repeated, why := readTalk(good, "Plan my week, please.")
	if why != "" || len(turns) != 4 || turns[1].Text != "Gladly.\nAnything fixed?" || repeated["nepali-1"] != "follow" {
		t.Errorf("%v, %v, %q", turns, repeated, why)
	}
	for want, x := range map[string][2]string{
		"no line with STANCES":          {"STANCES", "END"},
		"does not begin with the words": {"Plan my week", "Plan my day"},
		"does not begin with a turn":    {"**Person:** Plan", "Here it is\nPerson: Plan"},
		"it has 2 turns":                {"Person: No.\nAssistant: Then so.\n", ""},
		"turn 3 is not one of the per":  {"Person: No.", "Assistant: No."},
		"turn 2 is not one of the ass":  {"Assistant: Gladly.\nAnything fixed?", "Assistant:"},
	} {
		if _, _, why := readTalk(strings.Replace(good, x[0], x[1], 1), "Plan my week, please."); !strings.Contains(why, want) {
			t.Errorf("%q: %q", want, why)
		}
	}
}

func TestDeal(t *testing.T) {
	t.Parallel()
	s := make([]build.Stance, 7)
	for i := range s {
		s[i].Norm.ID = string(rune('a' + i))
	}
	for n, want := range map[int]string{3: "adg be cf", 7: "a b c d e f g", 9: "a b c d e f g a b"} {
		var got []string
		for _, part := range deal(s, n) {
			word := ""
			for _, x := range part {
				word += x.Norm.ID
			}
			got = append(got, word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d sessions: %v", n, got)
		}
	}
}

const forum = `[{"question": "short", "tags": ["sleep"]},
 {"question": "why do i wake up at night again and again, what helps", "tags": ["sleep hygiene"]},
 {"question": "how do i stop smoking after so many years of it", "tags": ["health", "Smoking"], "question_text": "\r\n\t How do I stop   smoking\nafter so many years of it? "},
 {"question": "how do i stop drinking after so many years of it", "tags": ["alcohol"]},
 {"question": "something of which the tags say nothing at all, sorry", "tags": ["misc"]},
 {"question": "how do i stop drinking after so many years of it", "tags": ["alcohol"]}]`

func TestReadQueries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.json"), []byte(forum), 0o600); err != nil {
		t.Fatal(err)
	}
	qs, err := readQueries(dir, 10, 1)
	if err != nil || len(qs) != 3 {
		t.Fatal(qs, err)
	}
	if qs[0].Topic != "addiction" || qs[1].Topic != "sleep" || qs[2].Topic != "addiction" || qs[2].ID != "q03" {
		t.Errorf("%+v", qs)
	}
	if !slices.ContainsFunc(qs, func(q build.Query) bool { return q.Text == "How do I stop smoking after so many years of it?" }) {
		t.Errorf("the text is not cleaned: %+v", qs)
	}
	if two, err := readQueries(dir, 2, 1); err != nil || len(two) != 2 || two[0].Text != qs[0].Text {
		t.Errorf("%+v, %v", two, err)
	}
	if _, err := readQueries(filepath.Join(dir, "none"), 2, 1); err == nil {
		t.Error("a file that is not there is read")
	}
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte(`[{"question": "x", "tags": "sleep"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readQueries(bad, 2, 1); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("tags that are no list: %v", err)
	}
}

// TestForum reads the released forum questions, where they are beside the project.
func TestForum(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "..", "..", "shared", "data", "medqa")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the forum questions are not beside the project")
	}
	qs, err := readQueries(dir, 52, 1)
	if err != nil || len(qs) != 52 {
		t.Fatal(len(qs), err)
	}
	topics := map[string]int{}
	for _, q := range qs {
		topics[q.Topic]++
	}
	for _, topic := range build.Topics() {
		if n := topics[topic]; n < 4 || n > 5 {
			t.Errorf("%s has %d of 52 queries", topic, n)
		}
	}
}

func TestFlagsOutOfRange(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--personas 0": {"--personas", "0"}, "--tries 0": {"--tries", "0"}, "--max-tokens 0": {"--max-tokens", "0"}, "--everyday -1": {"--everyday", "-1"},
		"leave no session": {"--everyday", "0", "--health", "0"}, "--min-mass 2": {"--min-mass", "2"}, "--query-count 0": {"--query-count", "0"},
		`no culture "x"`: {"--culture", "x"}, "names nepali twice": {"--culture", "nepali,nepali"}, "read a culture": {"--own-culture", "nowhere"},
		"its 8 values allow 244": {"--culture", "chinese", "--personas", "245"}, "read questions": {"--queries", "nowhere"},
	} {
		if _, err := planOf(t, t.Logf, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func TestConforms(t *testing.T) {
	args := []string{"--culture", "nepali", "--personas", "2", "--everyday", "2", "--health", "0", "--tries", "2"}
	path := filepath.Join(t.TempDir(), "run")
	err := makeRun(t, path, scripted(func(call int, s string, r [][2]string) (string, [][2]string) {
		if call == 1 || call > 3 {
			return "Thank you.", r
		}
		return s, r
	}), reader(t, "nepali"), args...)
	if err == nil || !strings.Contains(err.Error(), "never passed (hidden 4)") {
		t.Fatal(err)
	}
	r := scored(t, path)
	samples, err := task.Collect(r.in.Samples())
	if err != nil {
		t.Fatal(err)
	}
	if cautions, err := r.Cautions(t.Context()); err != nil || !slices.ContainsFunc(cautions, func(c string) bool {
		return strings.Contains(c, "50.0 % (2/4) of sessions never passed; talks were rejected by hidden 5")
	}) {
		t.Errorf("%v, %v", cautions, err)
	}
	tasktest.Conform(t, tasktest.Case{Bench: Bench{}, Identity: r.in.Identity(), Samples: samples, Flags: args})
}
