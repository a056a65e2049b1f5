package construct

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
)

func TestScenariosThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	if s := sound("1"); s.Check() != "" {
		t.Fatalf("a sound scenario is refused: %s", s.Check())
	}
	for why, spoil := range map[string]func(*Scenario){
		"no context":                      func(s *Scenario) { s.Context = "" },
		"no value question":               func(s *Scenario) { s.Question, s.People[0].Value = "", "" },
		"a person without a name":         func(s *Scenario) { s.People[1].Name = "" },
		"both people have one name":       func(s *Scenario) { s.People[1].Name = "aino" },
		"a person is called as":           func(s *Scenario) { s.People[0].Name = "Mediator" },
		"a person without a country":      func(s *Scenario) { s.People[0].Country = "" },
		"an answer is neither yes nor no": func(s *Scenario) { s.People[0].Answer = "perhaps" },
		"a person without an answer":      func(s *Scenario) { s.People[0].Answer, s.People[0].Value = "", "" },
		"the people agree":                func(s *Scenario) { s.People[0].Answer = "yes" },
		"fewer than two goals":            func(s *Scenario) { s.People[0].Goals = s.People[0].Goals[:1] },
		"a person has one goal twice":     func(s *Scenario) { s.People[1].Goals[1] = "agree on the hours." },
		"a stage is named":                func(s *Scenario) { s.Context += " She is in denial." },
	} {
		s := sound("1")
		spoil(&s)
		if got := s.Check(); got == "" || !strings.HasPrefix(got, why) {
			t.Errorf("refused with %q, want %q", got, why)
		}
	}
	// What is held counts where no answer is given.
	s := sound("1")
	for i := range s.People {
		s.People[i].Answer, s.People[i].Value = "", "People from "+s.People[i].Country+" think that a call matters."
	}
	if got := s.Check(); got != "the people agree" {
		t.Errorf("people who hold the same: %q", got)
	}
	s.People[1].Value = "People from Ghana do not think that a call matters."
	if got := s.Check(); got != "" {
		t.Errorf("people who hold opposite views: %q", got)
	}
}

func TestScenarioFilesAreReadLeniently(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const person = `"name": "Aino", "nationality": "Finland", "agrees": false, "goals": {"a": "Agree on the keys", "b": "Say why"}`
	const other = `"Name": "Kofi", "country": "Ghana", "answer": "Yes.", "age": "31", "wants": ["Agree on the hours", "Say why not"]`
	for name, text := range map[string]string{
		"our names":        `{"id": "x", "context": "A  shed.", "question": "neighbours may drop in?", "people": [{` + person + `}, {` + other + `}]}`,
		"others, a list":   `[{"scenario_id": 3, "Scene": "A shed.", "statement": "neighbours may drop in", "agents": {"agent_1": {` + person + `}, "agent_2": {` + other + `}}}]`,
		"an object of one": `{"scenarios": [{"situation": "A shed.", "question": "neighbours may drop in.", "speakers": [{` + person + `}, {` + other + `}]}]}`,
	} {
		path := filepath.Join(t.TempDir(), "s.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		kept, rejected, err := ReadScenarios(t.Context(), w.archive, path, Alike)
		if err != nil || len(kept) != 1 {
			t.Errorf("%s: %d kept, %v, %v", name, len(kept), rejected, err)
			continue
		}
		s := kept[0]
		if s.Context != "A shed." || s.Question != "neighbours may drop in" || s.People[0].Answer != "no" || s.People[1].Answer != "yes" || len(s.People[0].Goals) != 2 ||
			s.People[0].Value != "You do not think that neighbours may drop in." {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for name, text := range map[string]string{
		"is not JSON": `{"context"`, "not an object": `[1]`, "names 1 people": `{"people": [{"name": "A"}]}`, "holds no scenario": `[]`,
	} {
		path := filepath.Join(t.TempDir(), "s.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadScenarios(t.Context(), w.archive, path, Alike); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s gives %v, want %q", text, err, name)
		}
	}
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	a, b, c, d := sound("1"), sound("2"), sound("3"), sound("4")
	b.Context = "Two gardeners who share one shed."
	for i := range c.People {
		c.People[i].Goals = []string{"Find out about the bus", "Agree on the seat"}
	}
	c.Context, c.Question = "On the night train two students look for a window.", "a shop should close on Sunday"
	c.tidy()
	for i := range c.People {
		c.People[i].Value = ""
	}
	c.tidy()
	d.People[0].Answer = "yes"
	kept, rejected, err := Sift([]Scenario{a, b, c, d, a}, Alike)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for _, r := range rejected {
		reasons[r.ID] += r.Why
	}
	want := map[string]string{"1": "its id is that of another scenario", "2": "means the same as 1", "4": "the people agree"}
	if len(kept) != 2 || kept[0].ID != "1" || kept[1].ID != "3" || fmt.Sprint(reasons) != fmt.Sprint(want) {
		t.Errorf("%d are kept; rejected %v, want %v", len(kept), reasons, want)
	}
	if kept, _, err = Sift([]Scenario{a, b}, 1); err != nil || len(kept) != 2 {
		t.Errorf("with --alike 1 %d are kept, %v", len(kept), err)
	}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	dimensions, seen := map[string]int{}, map[string]bool{}
	for _, q := range Questions() {
		dimensions[q.Dimension]++
		if seen[q.Statement] || q.Statement == "" || stageWords.MatchString(q.Statement) {
			t.Errorf("the question %q is empty, a second one, or names a stage", q.Statement)
		}
		seen[q.Statement] = true
	}
	if len(seen) < 40 || len(dimensions) != 9 {
		t.Errorf("%d questions in %d dimensions", len(seen), len(dimensions))
	}
	cues := map[string]dmis.Stage{}
	for s := dmis.Denial; s.Ethnocentric(); s++ {
		for _, cue := range cueWords(s) {
			if other, twice := cues[plain(cue)]; twice {
				t.Errorf("%q is a cue of %s and of %s", cue, other, s)
			}
			cues[plain(cue)] = s
		}
	}
}

// Over 36 scenarios each question's dimension is met alike, and who agrees goes with neither
// turn nor stage.
func TestBriefs(t *testing.T) {
	t.Parallel()
	all := briefs(36, own().Countries, 7)
	cases, err := Design(make36(all), 1, 7, newWorld(t).prompts)
	if err != nil {
		t.Fatal(err)
	}
	dimensions, combined := map[string]int{}, map[string]int{}
	for i, b := range all {
		dimensions[b.Question.Dimension]++
		combined[fmt.Sprint(cases[i].Turn, cases[i].Stage, b.FirstAgrees)]++
		if b.Countries[0] == b.Countries[1] {
			t.Errorf("both people of brief %s come from %s", b.ID, b.Countries[0])
		}
	}
	if len(dimensions) != 9 || dimensions["family"] != 4 || len(combined) != 36 {
		t.Errorf("dimensions %v; %d of the 36 combinations of turn, stage and answer", dimensions, len(combined))
	}
}

func make36(all []brief) []Scenario {
	out := make([]Scenario, len(all))
	for i := range out {
		out[i] = sound(all[i].ID)
	}
	return out
}

// Of the released records' scenarios those are left out in which both people hold the same,
// and those that other records have too.
func TestScenariosOfRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kept, rejected, err := ReadScenarios(t.Context(), w.archive, "sample", Alike)
	if err != nil || len(kept) != 12 || len(rejected) != 0 {
		t.Errorf("of the sample %d are kept, %v, %v", len(kept), rejected, err)
	}
	for _, s := range kept {
		if s.Source != fromOthers {
			t.Errorf("the source of %s is %q", s.ID, s.Source)
		}
	}
	path := filepath.Join("..", "..", "..", "shared", "data", "cc-mediation")
	ds, _, err := dialogue.Read(t.Context(), path, dialogue.ReadOptions{})
	if err != nil {
		t.Skipf("released records: %v", err)
	}
	kept, rejected, err = Sift(fromRecords(ds), Alike)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rejected {
		if r.Reason() != sameAsAnother && r.Reason() != "the people agree" {
			t.Errorf("the scenario of the released record %s: %s", r.ID, r.Why)
		}
	}
	agree := 0
	for _, r := range rejected {
		if r.Why == "the people agree" {
			agree++
		}
	}
	// Counted in the released files by a separate script: the records whose values differ in
	// nothing but the country.
	if agree != 6 || len(kept) < 50 {
		t.Errorf("of %d records %d scenarios are kept, in %d the people agree", len(ds), len(kept), agree)
	}
}
