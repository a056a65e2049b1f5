package dialogue_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
)

func Example() {
	d := dialogue.Sample()[6]
	turns := d.Unmediated()
	fmt.Print(dialogue.Transcript(turns[:1]))
	fmt.Println(d.Name(d.ConflictAgent), "at turn", d.ConflictTurn, "of", d.LastTurn(), "in", d.Stage)
	fmt.Println(d.Who(1))
	// Output:
	// Turn 1 (Gabriele): The oven's mine until six, then it's all yours. Which pot do you need for the stew, the blue one?
	// Gabriele at turn 3 of 9 in Defense
	// a 52-year-old male school cook from Italy
}

func TestSample(t *testing.T) {
	ds := dialogue.Sample()
	s := dialogue.Stats(ds)
	for _, c := range []struct {
		fact      string
		got, want any
	}{
		{"dialogues", s.N, 12},
		{"stages", s.Stages, map[string]int{"Denial": 4, "Defense": 4, "Minimization": 4}},
		{"stage names", s.StageNames(), []string{"Denial", "Defense", "Minimization"}},
		{"conflict turns", s.ConflictTurns, map[int]int{3: 2, 4: 2, 5: 2, 6: 2, 7: 2, 8: 2}},
		{"usable mediations", s.UsableMediations, 12},
		{"contexts", s.Contexts, 12},
		{"templates", s.Templates, 12},
		{"stored AUCs", s.StoredPositive.N, 0},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.fact, c.got, c.want)
		}
	}
	for i, d := range ds {
		if d.ID != 9001+i || d.Subset != "sample" || len(d.Countries()) != 2 {
			t.Errorf("dialogue %d: id %d, subset %q, countries %q", i, d.ID, d.Subset, d.Countries())
		}
		if d.LastTurn() != 9 && d.LastTurn() != 10 {
			t.Errorf("dialogue %d ends at turn %d", d.ID, d.LastTurn())
		}
		for _, turn := range d.Unmediated() {
			if turn.Agent != 2-turn.T%2 || turn.Speaker != d.Name(turn.Agent) {
				t.Errorf("dialogue %d: turn %d is spoken by %s, agent %d", d.ID, turn.T, turn.Speaker, turn.Agent)
			}
		}
		if d.ConflictAgent != 2-d.ConflictTurn%2 {
			t.Errorf("dialogue %d: agent %d has the conflict turn %d", d.ID, d.ConflictAgent, d.ConflictTurn)
		}
		after, mediated := d.Unmediated()[d.ConflictTurn:], d.Mediated()
		if len(after) != len(mediated) {
			t.Errorf("dialogue %d: %d turns with and %d without mediation", d.ID, len(mediated), len(after))
		}
		for _, turn := range slices.Concat(after, mediated) {
			if _, err := dmis.ParseStage(turn.Label); err != nil || turn.Agent == dialogue.Mediator {
				t.Errorf("dialogue %d: turn %d of agent %d: %v", d.ID, turn.T, turn.Agent, err)
			}
		}
		for agent := 1; agent <= 2; agent++ {
			if len(d.GoalsOf(agent)) != 2 || d.Value(agent) == "" || d.Who(agent) == "" {
				t.Errorf("dialogue %d: agent %d is %q, values %q, wants %q", d.ID, agent, d.Who(agent), d.Value(agent), d.GoalsOf(agent))
			}
		}
		if _, _, ok := d.Negative(); ok {
			t.Errorf("dialogue %d has a rejected mediation", d.ID)
		}
	}
}

// The sample must not lead anybody to share a changed slice.
func TestTurnsAreCopies(t *testing.T) {
	d := dialogue.Sample()[0]
	d.Unmediated()[0].Message, d.Mediated()[0].Message, d.GoalsOf(1)[0] = "changed", "changed", "changed"
	if d.Unmediated()[0].Message == "changed" || d.Mediated()[0].Message == "changed" || d.GoalsOf(1)[0] == "changed" {
		t.Error("a change of what a method returned changes the dialogue")
	}
}

// variant reads record 9001 after a change.
func variant(t *testing.T, change func(r map[string]any)) dialogue.Dialogue {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1.json"), edit(t, sampleRecord(t), change))
	return read(t, dir, dialogue.ReadOptions{})[0]
}

func TestWho(t *testing.T) {
	for _, c := range []struct {
		agent map[string]any
		want  string
	}{
		{map[string]any{"age": 29, "occupation": "accountant", "nationality": "Egypt"}, "a 29-year-old accountant from Egypt"},
		{map[string]any{"age": 18, "gender": "Female", "occupation": "nurse"}, "an 18-year-old female nurse"},
		{map[string]any{"age": 80, "nationality": "Peru"}, "an 80-year-old person from Peru"},
		{map[string]any{"gender": "woman", "nationality": "Kenya"}, "a woman from Kenya"},
		{map[string]any{"occupation": "engineer"}, "an engineer"},
		{map[string]any{"occupation": "university teacher"}, "a university teacher"},
		{map[string]any{"nationality": "Chile"}, "a person from Chile"},
		{map[string]any{"age": nil}, ""},
	} {
		c.agent["name"] = "Ana"
		d := variant(t, func(r map[string]any) { meta(r)["agents"].(map[string]any)["agent_1"] = c.agent })
		if got := d.Who(1); got != c.want {
			t.Errorf("who is %v: %q, want %q", c.agent, got, c.want)
		}
	}
	d := dialogue.Sample()[0]
	for agent, want := range map[int]string{1: "Maarten", 2: "Haruka", dialogue.Mediator: "Mediator", 0: "", 9: ""} {
		if got := d.Name(agent); got != want {
			t.Errorf("agent %d is named %q, want %q", agent, got, want)
		}
	}
	if d.Who(0)+d.Value(7)+strings.Join(d.GoalsOf(-1), "") != "" {
		t.Error("there is something about an agent who does not exist")
	}
}

func TestValues(t *testing.T) {
	for _, c := range []struct {
		one, two  string
		template  string
		countries []string
	}{
		{"People from New Zealand strongly agree that bread is a meal.", "People from Peru disagree that bread is a meal.", "that bread is a meal.", []string{"New Zealand", "Peru"}},
		{"People from Peru place trust in bread.", "People from Chile place trust in bread.", "place trust in bread.", []string{"Chile", "Peru"}},
		{"People from Peru would like bread.", "People from Peru would not like bread.", "like bread.", []string{"Peru"}},
		{"People from Peru who work as bakers agree that rye is best.", "People from Chile disagree that rye is best.", "that rye is best.", []string{"Chile", "Peru"}},
		{"Bread is a meal.", "Rice is needed!", "", []string{"Japan", "Netherlands"}},
	} {
		d := variant(t, func(r map[string]any) {
			meta(r)["cultural_axis"] = map[string]any{"agent_1_value": c.one, "agent_2_value": c.two}
		})
		if d.Template() != c.template || !slices.Equal(d.Countries(), c.countries) {
			t.Errorf("%s / %s: template %q, countries %q; want %q, %q", c.one, c.two, d.Template(), d.Countries(), c.template, c.countries)
		}
	}
}

func TestContextKey(t *testing.T) {
	key := func(context string) string {
		return variant(t, func(r map[string]any) { meta(r)["scenario_context"] = context }).ContextKey()
	}
	a := key("Two friends meet.")
	if len(a) != 16 || strings.Trim(a, "0123456789abcdef") != "" {
		t.Errorf("key %q, want 16 hexadecimal digits", a)
	}
	if key(" two  friends\nMEET. ") != a {
		t.Error("case and spacing change the key")
	}
	if key("Two friends part.") == a {
		t.Error("another context has the same key")
	}
}

func TestNegative(t *testing.T) {
	d := func(intervention int) dialogue.Dialogue {
		return variant(t, func(r map[string]any) {
			c := map[string]any{"intervention_turn": intervention, "mediator_utterance": "Well?", "turns": cont(r, "positive")["turns"],
				"metrics": map[string]any{"trajectory_auc": -0.5}}
			r["continuations"].(map[string]any)["negative"] = c
		})
	}
	for _, c := range []struct{ intervention, turn, first int }{{1, 3, 4}, {3, 3, 4}, {5, 5, 6}} {
		after, turn, ok := d(c.intervention).Negative()
		if !ok || turn != c.turn || after[0].T != c.first || after[len(after)-1].T != 9 {
			t.Errorf("intervention at %d: turn %d, after %v, %v", c.intervention, turn, after, ok)
		}
	}
	if after, _, ok := d(9).Negative(); ok {
		t.Errorf("%v follows an intervention at the last turn", after)
	}
	if v, ok := d(5).StoredAUC(dialogue.Negative); !ok || v != -0.5 {
		t.Errorf("stored AUC %v, %v; want -0.5", v, ok)
	}
}

// A mediation at another turn than the conflict's cannot stand for one there.
func TestMediationElsewhere(t *testing.T) {
	d := variant(t, func(r map[string]any) { cont(r, "positive")["intervention_turn"] = 5 })
	if text, ok := d.Mediation(); ok || text == "" {
		t.Errorf("mediation %q is usable: %v", text, ok)
	}
}

func TestTranscript(t *testing.T) {
	got := dialogue.Transcript([]dialogue.Turn{
		{T: 4, Speaker: "Mina", Agent: 2, Message: "One.\nTwo."},
		{T: 4, Speaker: "Mediator", Agent: dialogue.Mediator, Message: "Three."},
	})
	if want := "Turn 4 (Mina): One. Two.\nMediator: Three.\n"; got != want {
		t.Errorf("transcript %q, want %q", got, want)
	}
}

// Nothing of the released records may stand in the sample: no run of eight words
// of a sample message occurs in a released one.
func TestSampleIsOurOwn(t *testing.T) {
	path := released(t)
	runs := map[string]string{}
	grams := func(d dialogue.Dialogue, use func(gram string)) {
		text, _ := d.Mediation()
		messages := []string{text, d.Context}
		for _, turn := range slices.Concat(d.Unmediated(), d.Mediated()) {
			messages = append(messages, turn.Message)
		}
		for _, m := range messages {
			words := strings.FieldsFunc(strings.ToLower(m), func(r rune) bool { return !('a' <= r && r <= 'z') })
			for i := 0; i+8 <= len(words); i++ {
				use(strings.Join(words[i:i+8], " "))
			}
		}
	}
	for _, d := range dialogue.Sample() {
		grams(d, func(g string) { runs[g] = d.Key() })
	}
	if len(runs) < 1000 {
		t.Fatalf("the sample has %d runs of eight words; too few to compare", len(runs))
	}
	for _, split := range []string{dialogue.Evaluate, dialogue.Training} {
		for _, d := range read(t, path, dialogue.ReadOptions{Split: split}) {
			grams(d, func(g string) {
				if key, ok := runs[g]; ok {
					t.Errorf("dialogue %s shares %q with the released dialogue %d", key, g, d.ID)
				}
			})
		}
	}
}
