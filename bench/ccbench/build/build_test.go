package build

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/checksum"
)

func sampled(t *testing.T) *Build {
	t.Helper()
	b, err := Read(Sample)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSample: two cultures of two personas by seed, four sessions each and twelve queries
// of as many topics; for every stance there is one to swap with or the other persona has none.
func TestSample(t *testing.T) {
	t.Parallel()
	b := sampled(t)
	if len(b.Cultures) != 2 || len(b.Queries) != 12 || !strings.HasPrefix(b.Hash, "sha256:") {
		t.Fatalf("%d cultures, %d queries, hash %q", len(b.Cultures), len(b.Queries), b.Hash)
	}
	var topics []string
	for _, q := range b.Queries {
		topics = append(topics, q.Topic)
	}
	if !slices.Equal(topics, Topics()) {
		t.Errorf("topics are %v", topics)
	}
	for _, c := range b.Cultures {
		embedded, err := norm.Named(c.Culture.ID)
		if err != nil || !reflect.DeepEqual(embedded, c.Culture) {
			t.Errorf("the culture %s of the sample is not the embedded one (%v)", c.Culture.ID, err)
		}
		drawn, err := embedded.Personas(2, c.Seed)
		if err != nil || len(c.Personas) != 2 {
			t.Fatal(len(c.Personas), err)
		}
		swaps := 0
		for i, p := range c.Personas {
			if !reflect.DeepEqual(p.Persona, drawn[i]) || len(p.Sessions) != 4 {
				t.Errorf("%s is not the persona of the seed, or has %d sessions", p.ID, len(p.Sessions))
			}
			for _, s := range c.Stances(p.Persona) {
				if other := c.Personas[1-i].Persona; s.Norm.AppliesTo(other) && other.State(s.Norm) == -s.State {
					swaps++
				}
			}
			for _, q := range b.Queries {
				if n := len(c.Items(p.Persona, q)); n < 2 {
					t.Errorf("%s, %s: %d items", p.ID, q.ID, n)
				}
			}
		}
		if swaps < 14 {
			t.Errorf("%s: %d stances have an opposite", c.Culture.ID, swaps)
		}
	}
}

// TestEditedByHand: a build whose text is not as it was sealed is refused, and so is one
// without a checksum.
func TestEditedByHand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), File)
	for _, x := range []struct{ old, new string }{
		{"\"stoicism\": 1", "\"stoicism\": -1"}, {"motorbike", "bicycle"}, {`"signals": [`, `"signals": [ "nepali-5",`}, {`  "content_sha256"`, `  "content_sha255"`},
	} {
		text := strings.Replace(string(sample), x.old, x.new, 1)
		if text == string(sample) {
			t.Fatalf("%q is not there", x.old)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), "is not as ccmed ccbench build wrote it") || !strings.HasPrefix(err.Error(), file) {
			t.Errorf("%s → %s: %v", x.old, x.new, err)
		}
	}
	if err := os.WriteFile(file, sample, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := Read(filepath.Dir(file)); err != nil || len(b.Cultures) != 2 {
		t.Errorf("the folder of a whole one: %v", err)
	}
}

// TestFaults changes one place of the sample, seals it again and wants the fault's place.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		want string
		do   func(*Build)
	}{
		{"field schema: it is 2", func(b *Build) { b.Schema = 2 }},
		{"field cultures: there is none", func(b *Build) { b.Cultures = nil }},
		{"field queries: there is none", func(b *Build) { b.Queries = nil }},
		{"field cultures[0].culture.norms[1].values: the norm has no values", func(b *Build) { b.Cultures[0].Culture.Norms[1].Values = nil }},
		{`field cultures[1].culture.id: "nepali" stands there twice`, func(b *Build) { b.Cultures[1].Culture.ID = "nepali" }},
		{`field cultures[0].personas[1].id: "nepali-p01" stands there twice`, func(b *Build) { b.Cultures[0].Personas[1].ID = "nepali-p01" }},
		{"field cultures[0].personas[1].values: they are those of nepali-p01", func(b *Build) { b.Cultures[0].Personas[1].Values = b.Cultures[0].Personas[0].Values }},
		{"field cultures[0].personas[0].values.family: it is 2", func(b *Build) { b.Cultures[0].Personas[0].Values["family"] = 2 }},
		{`field cultures[0].personas[0].sex: ""`, func(b *Build) { b.Cultures[0].Personas[0].Sex = "" }},
		{"field cultures[0].personas[0].sessions: none of them shows that the persona is to follow nepali-2", func(b *Build) { b.Cultures[0].Personas[0].Sessions[0].Signals = nil }},
		{"field cultures[0].personas[0].sessions[0].turns: there are 5", func(b *Build) {
			s := &b.Cultures[0].Personas[0].Sessions[0]
			s.Turns = s.Turns[:5]
		}},
		{`field cultures[0].personas[0].sessions[0].turns[1].by: "person"`, func(b *Build) { b.Cultures[0].Personas[0].Sessions[0].Turns[1].By = Person }},
		{"field cultures[0].personas[0].sessions[0].turns[0].text: there is no text", func(b *Build) { b.Cultures[0].Personas[0].Sessions[0].Turns[0].Text = " " }},
		{`field cultures[0].personas[0].sessions[0].kind: "x"`, func(b *Build) { b.Cultures[0].Personas[0].Sessions[0].Kind = "x" }},
		{`field cultures[0].personas[0].sessions[0].signals[0]: the persona has no stance towards "nepali-11"`, func(b *Build) { b.Cultures[0].Personas[0].Sessions[0].Signals[0] = "nepali-11" }},
		{`field queries[0].topic: "x"`, func(b *Build) { b.Queries[0].Topic = "x" }},
		{"field queries[0].norms: no norm is relevant", func(b *Build) { b.Queries[0].Norms = nil }},
		{`field queries[0].norms[0]: "maori-1" is no norm`, func(b *Build) { b.Queries[0].Norms[0] = "maori-1" }},
		{"field queries[0].norms[0]: text cannot show nepali-11", func(b *Build) { b.Queries[0].Norms[0] = "nepali-11" }},
		{"field queries[0].text: there is no text", func(b *Build) { b.Queries[0].Text = "" }},
		{`field queries[1].id: "q01" stands there twice`, func(b *Build) { b.Queries[1].ID = "q01" }},
	} {
		b := sampled(t)
		x.do(b)
		text, err := checksum.Seal(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = parse("my.json", text); err == nil || !slices.ContainsFunc(strings.Split(err.Error(), "\n"), func(s string) bool { return strings.HasPrefix(s, "my.json: "+x.want) }) {
			t.Errorf("%s: %v", x.want, err)
		}
		if _, err := b.Seal(); err == nil {
			t.Errorf("%s: it can be sealed", x.want)
		}
	}
	var o map[string]any
	if err := json.Unmarshal(sample, &o); err != nil {
		t.Fatal(err)
	}
	delete(o, checksum.Key)
	o["note"] = "x"
	text, err := checksum.Seal(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse("my.json", text); err == nil || !strings.Contains(err.Error(), `unknown field "note"`) {
		t.Errorf("an unknown field: %v", err)
	}
}

func TestSealKeeps(t *testing.T) {
	t.Parallel()
	text, err := sampled(t).Seal()
	if err != nil || !bytes.Equal(text, sample) {
		t.Errorf("the sample sealed again is another text (%v)", err)
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	session := func(words int, signals ...string) Session {
		return Session{Turns: []Turn{{Text: strings.Repeat("w ", words)}}, Signals: signals}
	}
	p := Persona{Sessions: []Session{session(5, "a", "b"), session(3, "b", "c"), session(2, "b")}}
	for words, want := range map[int]int{0: 0, 10: 0, 9: 1, 5: 1, 4: 2, 2: 2, 1: 3} {
		kept, dropped := p.Within(words)
		if dropped != want || len(kept) != 3-want {
			t.Errorf("%d words: %d dropped, %d kept", words, dropped, len(kept))
		}
	}
	for dropped, want := range map[int]string{0: "", 1: "a", 2: "a c", 3: "a b c"} {
		if got := strings.Join(p.Lost(dropped), " "); got != want {
			t.Errorf("%d dropped: %q is lost, not %q", dropped, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Fuzz(func(t *testing.T, text []byte) {
		if b, err := parse("x", text); err == nil && len(b.Validate()) > 0 {
			t.Error("a build with faults is read")
		}
	})
}
