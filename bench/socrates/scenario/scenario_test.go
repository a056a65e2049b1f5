package scenario

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestSampleHasEveryDomainOnceAndTwoWithThirdPartyAndHistory(t *testing.T) {
	t.Parallel()
	all, err := Read(Sample, false)
	if err != nil {
		t.Fatal(err)
	}
	domains := map[string]int{}
	whole := 0
	for _, s := range all {
		domains[s.Domain]++
		if (s.Third != nil) != (s.History != nil) {
			t.Errorf("%s has a third party or a history and not both", s.ID)
		}
		if s.Third == nil {
			continue
		}
		whole++
		n := 0
		for _, e := range s.History {
			n += len(e.Text)
		}
		if r := float64(n) / float64(len(s.Background)); r < 4.5 || r > 5.5 {
			t.Errorf("the history of %s is %.1f times its background", s.ID, r)
		}
	}
	for _, d := range Domains() {
		if domains[d] != 1 {
			t.Errorf("%d scenarios of the domain %s", domains[d], d)
		}
	}
	if len(all) != 8 || whole != 2 {
		t.Errorf("%d scenarios, %d with a third party", len(all), whole)
	}
}

const plain = `{"title":"T","domain":"legal","background":"B",
"topics":[{"id":"a","name":"A","description":"","options":[{"letter":"A","text":"x"},{"letter":"B","text":"y"}]},
 {"id":"b","name":"B","description":"","options":[{"letter":"A","text":"x"},{"letter":"B","text":"y"}]}],
"parties":[{"id":"p","name":"P","role":{"objective":"o"},"preferences":{"a":"x","b":"y"},"weights":{"a":60,"b":40},"stances":{"a":"A"}},
 {"id":"q","name":"Q","role":{"objective":"o"},"preferences":{"a":"x","b":"y"},"weights":{"a":30,"b":70}}]}`

func TestFaultsAreNamedWithTheirField(t *testing.T) {
	t.Parallel()
	if _, faults, _ := Parse([]byte(plain), "s", false); len(faults) > 0 {
		t.Fatalf("the plain scenario has faults: %v", faults)
	}
	entry := func(date string) string { return `{"date":"` + date + `","text":"x"}` }
	history := func(dates ...string) string {
		var out []string
		for _, d := range dates {
			out = append(out, entry(d))
		}
		return `"history":[` + strings.Join(out, ",") + `],"title"`
	}
	for _, c := range []struct{ old, new, fault string }{
		{`"b":40`, `"b":41`, "parties[0].weights: their sum is 101 and must be 100"},
		{`"a":60,"b":40`, `"a":50,"b":50`, "parties[0].weights: all are 50"},
		{`"a":60,"b":40`, `"a":100,"b":0`, "parties[0].weights.b: it is 0"},
		{`"a":60,"b":40`, `"a":100`, "parties[0].weights: the topic b is missing"},
		{`"a":60,"b":40`, `"a":60,"c":40`, "parties[0].weights.c: there is no topic"},
		{`"a":60,"b":40`, `"a":60.5,"b":39.5`, "parties[0].weights.a"},
		{`,"weights":{"a":30,"b":70}`, ``, "parties[1].weights: some parties have weights"},
		{`"letter":"B"`, `"letter":"C"`, `topics[0].options[1].letter: it is "C" and must be "B"`},
		{`{"letter":"A","text":"x"},{"letter":"B","text":"y"}`, `{"letter":"A","text":"x"}`, "topics[0].options: there are 1"},
		{`"stances":{"a":"A"}`, `"stances":{"a":"C"}`, `parties[0].stances.a: "C" is no option of the topic, which has A to B`},
		{`"stances":{"a":"A"}`, `"stances":{"z":"A"}`, "parties[0].stances.z: there is no topic"},
		{`"name":"Q"`, `"name":"p "`, `parties[1].name: "p" is the name of parties[0] too`},
		{`"name":"Q"`, `"name":"Mediator"`, "parties[1].name: the name is the mediator's"},
		{`"name":"Q"`, `"name":"Q:"`, "parties[1].name"},
		{`"id":"q"`, `"id":"p"`, "parties[1].id"},
		{`"id":"b","name":"B"`, `"id":"a","name":"B"`, `topics[1].id: "a" is the id of an earlier topic`},
		{`"background":"B"`, `"background":" "`, "background: there is no text"},
		{`"background":"B"`, `"background":"say [Final Agreement]"`, "background: the text holds [FINAL AGREEMENT]"},
		{`"domain":"legal"`, `"domain":"family"`, `domain: "family" is no domain`},
		{`"title":"T"`, `"title":"T","titel":"T"`, "titel: there is no such field"},
		{`"title":"T"`, `"title":"T","title":"U"`, "title"},
		{`{"objective":"o"}`, `{}`, "parties[0].role.objective: there is no text"},
		{`"title"`, history("2020-01-01"), "history: there are 1 entries"},
		{`"title"`, history("2020-01-01", "2020-01-02", "2020-01-02", "2020-01-04"), "history[2].date: 2020-01-02 does not come after"},
		{`"title"`, history("2020-01-01", "2020-01-02", "2020-01-03", "May 2020"), `history[3].date: "May 2020" is no date`},
	} {
		text := strings.Replace(plain, c.old, c.new, 1)
		_, faults, _ := Parse([]byte(text), "s", false)
		if !strings.Contains(errors.Join(faults...).Error(), c.fault) {
			t.Errorf("%s for %s: the faults are %v and lack %q", c.new, c.old, faults, c.fault)
		}
	}
	for _, text := range []string{"", "[]", "null", "{}", "{", plain + "x", "\xff"} {
		if _, faults, _ := Parse([]byte(text), "s", false); len(faults) == 0 {
			t.Errorf("%q has no fault", text)
		}
	}
}

func TestLenientReadingUnderstandsOtherForms(t *testing.T) {
	t.Parallel()
	text := `{"scenario_id":"S 1","name":"T","domain":"B2B","context":"B","extra":1,
"issues":[{"topic_id":1,"title":"A","description":"","options":{"b":"y","a":"x"}},{"topic_id":2,"name":"B","description":"","options":["x","y"]}],
"agents":[{"party_id":"P","name":"P","role":"wins","preferences":{"1":["A","B"],"2":"y"},"weights":{"1":60,"2":40}},
 {"name":"Q","role":{"goal":"o","batna":"f"},"preferences":{"1":"x","2":"y"},"weights":{"1":30,"2":70}}]}`
	s, faults, notes := Parse([]byte(text), "file", true)
	if len(faults) != 1 || !strings.Contains(faults[0].Error(), `field id: "S 1"`) {
		t.Fatalf("the faults are %v", faults)
	}
	if len(notes) != 1 || !strings.Contains(notes[0].Error(), "extra") {
		t.Errorf("the notes are %v", notes)
	}
	if s.Domain != "business-to-business" || s.Topics[0].Options[0] != (Option{"A", "x"}) || s.Topics[1].Options[1] != (Option{"B", "y"}) ||
		s.Parties[0].Role.Objective != "wins" || s.Parties[1].Role != (Role{Objective: "o", Fallback: "f"}) || s.Parties[1].ID != "2" {
		t.Errorf("read as %+v", s)
	}
	if _, faults, _ := Parse([]byte(text), "file", false); len(faults) == 0 {
		t.Error("strict reading takes it")
	}
}

func TestTwoFilesOfOneIdAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.json", "b.json"} {
		text := strings.Replace(plain, `"title"`, `"id":"same","title"`, 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Read(dir, false); err == nil || !strings.Contains(err.Error(), "b.json: field id") {
		t.Errorf("the error is %v", err)
	}
}

func TestFifteenConditionsOfSixAxes(t *testing.T) {
	t.Parallel()
	n := map[string]int{}
	for _, c := range Conditions() {
		n[c.Axis]++
	}
	want := map[string]int{"general": 1, "strategy": 3, "parties": 1, "history": 1, "emotion": 3, "culture": 6}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("conditions by axis are %v", n)
	}
	some, err := Choose([]string{"culture:US-KR", "emotion"})
	if err != nil || len(some) != 4 || some[3].Name != "culture:US-KR" {
		t.Errorf("chosen are %v, %v", some, err)
	}
	if _, err := Choose([]string{"mood"}); err == nil {
		t.Error("an unknown condition is taken")
	}
}

func TestEachConditionChangesItsAxisAlone(t *testing.T) {
	t.Parallel()
	all, err := Read(Sample, false)
	if err != nil {
		t.Fatal(err)
	}
	first, sides := map[string]bool{}, 0
	for _, s := range all {
		cases, left := Expand(s, Conditions())
		if want := 15; s.Third == nil && len(left) != 2 || len(cases)+len(left) != want {
			t.Errorf("%s has %d cases, and %v are left", s.ID, len(cases), left)
		}
		again, _ := Expand(s, Conditions())
		if !reflect.DeepEqual(cases, again) {
			t.Errorf("%s is expanded otherwise the second time", s.ID)
		}
		for _, c := range cases {
			if (c.Posture != "") != (c.Axis == "strategy") || (c.Traits != nil) != (c.Axis == "emotion" || c.Axis == "culture") ||
				(len(c.Scenario.Parties) > len(s.Parties)) != (c.Axis == "parties") || (len(c.Scenario.History) > 0) != (c.Axis == "history") || c.Scenario.Third != nil {
				t.Errorf("%s under %s is %+v", s.ID, c.Condition, c)
			}
			if c.Condition == "culture:US-CN" {
				kinds := []string{c.Kinds[s.Parties[0].ID], c.Kinds[s.Parties[1].ID]}
				first[kinds[0]] = true
				if slices.Sort(kinds); !slices.Equal(kinds, []string{"CN", "US"}) {
					t.Errorf("%s deals %v", s.ID, kinds)
				}
				sides++
			}
		}
	}
	if sides != 8 || len(first) != 2 {
		t.Errorf("of %d scenarios the first party is always dealt %v", sides, first)
	}
}

func TestCultureNamesTheScoresOfItsCountry(t *testing.T) {
	t.Parallel()
	for code, scores := range map[string]string{
		"US": "power distance 40, individualism 91, masculinity 62, uncertainty avoidance 46, long-term orientation 26 and indulgence 68",
		"CN": "power distance 80, individualism 20, masculinity 66, uncertainty avoidance 30, long-term orientation 87 and indulgence 24",
		"KR": "power distance 60, individualism 18, masculinity 39, uncertainty avoidance 85, long-term orientation 100 and indulgence 29",
	} {
		if !strings.Contains(culture(code), scores) {
			t.Errorf("%s is told %q", code, culture(code))
		}
	}
}

func TestImportOfACaseOfProMediate(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(map[string]any{
		"instruction": "## Scenario\nA firm\nis late.\n\n## Key Issues to Negotiate:\n{issues}",
		"issues":      "1. Price: How much? \n2. Term – How long (in years,\n3 at most)?\n",
		"options":     "1. Price (was 9)\nTwo ways:\n(a) 7\n(b) 8, or 9. \n2. Term\n(a) Open; (b) Two years (c) Five\nyears\n",
		"names":       map[string]string{"Lee": "You want (a).", "Alex": "You want b.", "Mediator": "You mediate."},
		"config":      map[string]any{"Lee": 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "Firm.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ImportProMediate(path, ""); err == nil || !strings.Contains(err.Error(), "--domain") {
		t.Errorf("without a domain: %v", err)
	}
	s, err := ImportProMediate(path, "legal")
	if err != nil {
		t.Fatal(err)
	}
	want := Scenario{ID: "firm", Title: "firm", Domain: "legal", Source: "ProMediate (MIT licence)", Background: "A firm is late.",
		Topics: []Topic{{ID: "1", Name: "Price", Description: "How much?\nTwo ways:", Options: []Option{{"A", "7"}, {"B", "8, or 9."}}},
			{ID: "2", Name: "Term", Description: "How long (in years, 3 at most)?", Options: []Option{{"A", "Open"}, {"B", "Two years"}, {"C", "Five years"}}}},
		Parties: []Party{{ID: "alex", Name: "Alex", Profile: "You want b."}, {ID: "lee", Name: "Lee", Profile: "You want (a)."}}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("imported as %+v", s)
	}
	if b, err = Encode(s); err != nil {
		t.Fatal(err)
	}
	if again, faults, notes := Parse(b, "", false); len(faults)+len(notes) > 0 || !reflect.DeepEqual(again, want) {
		t.Errorf("read again: %v, %v, %+v", faults, notes, again)
	}
}

// The released cases are at hand where somebody has them beside the project.
func TestReleasedCasesOfProMediate(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "shared", "data", "promediate", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("the released cases are not here")
	}
	parties := map[string][]int{"flagship": {6, 5, 3, 4, 4}, "francis": {5, 4, 3, 4, 4}, "hmo": {3, 2, 3, 5, 3, 2}, "ias": {4, 3, 4, 3, 3}, "river": {6, 4, 4, 3}, "williams": {5, 4, 3, 3}}
	for _, f := range files {
		s, err := ImportProMediate(f, "")
		if err != nil {
			t.Error(err)
			continue
		}
		counts := []int{len(s.Parties)}
		for _, topic := range s.Topics {
			counts = append(counts, len(topic.Options))
		}
		if !slices.Equal(counts, parties[s.ID]) {
			t.Errorf("%s has parties and options %v", s.ID, counts)
		}
	}
}
