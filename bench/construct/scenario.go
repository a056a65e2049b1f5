package construct

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/dmis"
)

// Scenario is a scene, two people, and a question that they answer differently.
type Scenario struct {
	ID      string `json:"id"`
	Context string `json:"context"`
	// Question is a statement that one of the people agrees with.
	Question  string `json:"question"`
	Dimension string `json:"dimension,omitempty"`
	// Source says who wrote the scenario, for the data card.
	Source string    `json:"source,omitempty"`
	People [2]Person `json:"people"`
}

// Person is one of the two who talk.
type Person struct {
	Name       string `json:"name"`
	Age        int    `json:"age,omitempty"`
	Gender     string `json:"gender,omitempty"`
	Country    string `json:"country"`
	Occupation string `json:"occupation,omitempty"`
	// Answer is yes or no, to the question; "" of people who come from records, whose Value
	// says what they hold.
	Answer string `json:"answer,omitempty"`
	// Value is what the person holds, a sentence; made of question and answer where it is
	// empty.
	Value string   `json:"value,omitempty"`
	Goals []string `json:"goals"`
}

// aliases are other names of fields, by ours.
var aliases = map[string][]string{
	"id": {"scenario_id", "number"}, "context": {"scene", "scenario", "situation", "scenario_context"},
	"question": {"value_question", "statement"}, "dimension": {"topic", "value_dimension"}, "people": {"persons", "agents", "speakers"},
	"country": {"nationality", "from"}, "occupation": {"job", "profession"}, "answer": {"agrees", "stance"}, "value": {"holds", "position"}, "goals": {"wants", "aims"},
}

var answers = map[string]string{"yes": "yes", "agree": "yes", "agrees": "yes", "true": "yes", "no": "no", "disagree": "no", "disagrees": "no", "false": "no"}

// renamed puts our names in the place of others. Numbers and truth values become texts, and
// an object of people or goals a list.
func renamed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[strings.ReplaceAll(strings.ToLower(strings.TrimSpace(k)), " ", "_")] = renamed(x)
		}
		for ours, others := range aliases {
			for _, other := range others {
				if x, ok := out[other]; ok && out[ours] == nil {
					out[ours] = x
				}
			}
		}
		for _, k := range []string{"people", "goals"} {
			switch x := out[k].(type) {
			case map[string]any:
				out[k] = inOrder(x)
			case string:
				out[k] = []any{x}
			}
		}
		if n, ok := out["age"].(string); ok {
			out["age"] = json.Number(strings.TrimSpace(n))
		}
		return out
	case []any:
		for i := range v {
			v[i] = renamed(v[i])
		}
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return v
}

func inOrder(m map[string]any) []any {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var out []any
	for _, k := range keys {
		if _, text := m[k].(string); !text {
			if _, object := m[k].(map[string]any); !object {
				continue
			}
		}
		out = append(out, m[k])
	}
	return out
}

// parseScenario reads a scenario, whatever the fields are called.
func parseScenario(v any) (Scenario, error) {
	var s Scenario
	m, ok := renamed(v).(map[string]any)
	if !ok {
		return s, errors.New("a scenario is not an object; write one with context, question and people")
	}
	people, _ := m["people"].([]any)
	if len(people) != 2 {
		return s, fmt.Errorf("a scenario names %d people; it needs two", len(people))
	}
	b, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read a scenario: %w; see docs/build.md for its form", err)
	}
	s.tidy()
	return s, nil
}

func (s *Scenario) tidy() {
	line := func(t *string) { *t = strings.Join(strings.Fields(*t), " ") }
	for _, t := range []*string{&s.ID, &s.Context, &s.Question, &s.Dimension, &s.Source} {
		line(t)
	}
	s.Question = strings.TrimRight(s.Question, ".?! ")
	for i := range s.People {
		p := &s.People[i]
		for _, t := range []*string{&p.Name, &p.Gender, &p.Country, &p.Occupation, &p.Answer, &p.Value} {
			line(t)
		}
		if a, ok := answers[strings.ToLower(strings.Trim(p.Answer, ".! "))]; ok {
			p.Answer = a
		}
		for k := range p.Goals {
			line(&p.Goals[k])
		}
		if p.Value == "" && s.Question != "" {
			p.Value = map[string]string{"yes": "You think that " + s.Question + ".", "no": "You do not think that " + s.Question + "."}[p.Answer]
		}
	}
}

// stageWords name stages or the model that they come from.
var stageWords = regexp.MustCompile(`(?i)\b(?:DMIS|ethnocentric\w*|ethnorelativ\w*|intercultural sensitivity|denial|minimi[sz]ation|defense stage|(?:stage of|in) (?:defense|acceptance|adaptation|integration))\b`)

// minGoals is how many goals each person needs.
const minGoals = 2

// Check says why a scenario cannot be used, "" where it can.
func (s Scenario) Check() string {
	a, b := s.People[0], s.People[1]
	switch {
	case s.Context == "":
		return "no context"
	case s.Question == "" && (a.Value == "" || b.Value == ""):
		return "no value question"
	case a.Name == "" || b.Name == "":
		return "a person without a name"
	case strings.EqualFold(a.Name, b.Name):
		return "both people have one name"
	case slices.ContainsFunc([]string{a.Name, b.Name}, func(n string) bool { return strings.EqualFold(n, "mediator") || strings.EqualFold(n, "me") }):
		return "a person is called as prompts call somebody else"
	case a.Country == "" || b.Country == "":
		return "a person without a country"
	case a.Answer != "" && answers[a.Answer] == "" || b.Answer != "" && answers[b.Answer] == "":
		return "an answer is neither yes nor no"
	case a.Value == "" || b.Value == "":
		return "a person without an answer"
	case a.Answer != "" && a.Answer == b.Answer, s.sameValues():
		return "the people agree"
	case len(a.Goals) < minGoals || len(b.Goals) < minGoals || slices.Contains(append(slices.Clone(a.Goals), b.Goals...), ""):
		return "fewer than two goals"
	case repeats(a.Goals) || repeats(b.Goals):
		return "a person has one goal twice"
	case stageWords.MatchString(s.text()):
		return "a stage is named"
	}
	return ""
}

func repeats(goals []string) bool {
	seen := map[string]bool{}
	for _, g := range goals {
		if seen[plain(g)] {
			return true
		}
		seen[plain(g)] = true
	}
	return false
}

// sameValues tells whether both hold the same: the same words without their countries and
// names.
func (s Scenario) sameValues() bool {
	var words [2]string
	for i, p := range s.People {
		v := strings.ToLower(p.Value)
		for _, q := range s.People {
			for _, name := range []string{q.Country, q.Name} {
				v = strings.ReplaceAll(v, strings.ToLower(name), "")
			}
		}
		words[i] = strings.Join(strings.FieldsFunc(v, func(r rune) bool { return !('a' <= r && r <= 'z' || r > 127) }), " ")
	}
	return words[0] == words[1]
}

// text is all that a scenario tells.
func (s Scenario) text() string {
	parts := []string{s.Context, s.Question}
	for _, p := range s.People {
		parts = append(append(parts, p.Value), p.Goals...)
	}
	return strings.Join(parts, " ")
}

// Reject is a scenario that is not used, and why.
type Reject struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// Reason is Why without the other scenario's id.
func (r Reject) Reason() string {
	if strings.HasPrefix(r.Why, sameAs) {
		return sameAsAnother
	}
	return r.Why
}

// Sift separates the scenarios that can be used from the others; of those that mean the
// same the first is kept.
func Sift(all []Scenario, alike float64) (kept []Scenario, rejected []Reject, err error) {
	var sound []Scenario
	seen := map[string]bool{}
	for _, s := range all {
		why := s.Check()
		if why == "" && seen[s.ID] {
			why = "its id is that of another scenario"
		}
		if why != "" {
			rejected = append(rejected, Reject{s.ID, why})
			continue
		}
		seen[s.ID] = true
		sound = append(sound, s)
	}
	twins, err := duplicates(sound, alike)
	if err != nil {
		return nil, nil, err
	}
	for i, s := range sound {
		if twins[i] >= 0 {
			rejected = append(rejected, Reject{s.ID, sameAs + sound[twins[i]].ID})
			continue
		}
		kept = append(kept, s)
	}
	return kept, rejected, nil
}

// readScenarios reads scenarios from a file of JSON (one, or a list) or of JSON lines.
func readScenarios(path string) ([]Scenario, error) {
	b, err := disk.ReadFile(path, disk.MaxText)
	if err != nil {
		return nil, fmt.Errorf("read scenarios: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var out []Scenario
	for n := 1; ; n++ {
		var v any
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read scenarios: %s: entry %d is not JSON: %w", path, n, err)
		}
		list, ok := v.([]any)
		if m, object := v.(map[string]any); !ok && object && m["scenarios"] != nil {
			list, ok = m["scenarios"].([]any)
		}
		if !ok {
			list = []any{v}
		}
		for _, x := range list {
			s, err := parseScenario(x)
			if err != nil {
				return nil, fmt.Errorf("%s: scenario %d: %w", path, len(out)+1, err)
			}
			if s.ID == "" {
				s.ID = strconv.Itoa(len(out) + 1)
			}
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no scenario", path)
	}
	return out, nil
}

// fromOthers is the source of scenarios that are taken from records.
const fromOthers = "records of others"

// fromRecords takes the scenarios of records, each once: several records share one.
func fromRecords(ds []dialogue.Dialogue) []Scenario {
	var out []Scenario
	seen := map[string]bool{}
	for _, d := range ds {
		s := Scenario{ID: "record-" + d.Key(), Source: fromOthers, Context: d.Context, Question: d.Template()}
		for i := range s.People {
			s.People[i] = Person{Name: d.Name(i + 1), Country: d.Country(i + 1), Value: d.Value(i + 1), Goals: d.GoalsOf(i + 1)}
			s.People[i].Age, s.People[i].Gender, s.People[i].Occupation = d.Person(i + 1)
		}
		if k := s.text(); !seen[k] {
			seen[k] = true
			out = append(out, s)
		}
	}
	return out
}

// isFile tells whether a path is a file, and not a folder.
func isFile(path string) bool {
	i, err := os.Stat(filepath.Clean(path))
	return err == nil && i.Mode().IsRegular()
}

// cueWords are phrases by which a stage shows in words.
func cueWords(s dmis.Stage) []string { return own().Cues[s.String()] }
