package socrates

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// TestDealsOfCaSiNo: the points that the files give each person follow from the deal that is
// read, and talks without one, or with a refused one, are left out.
func TestDealsOfCaSiNo(t *testing.T) {
	t.Parallel()
	const file = "testdata/casino.json"
	talks, left, _, err := readCasino(file, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var people []struct {
		ID    int `json:"dialogue_id"`
		Lines []struct {
			By string `json:"id"`
		} `json:"chat_logs"`
		People map[string]struct {
			Worth    map[string]string `json:"value2issue"`
			Outcomes struct {
				Points int `json:"points_scored"`
			} `json:"outcomes"`
		} `json:"participant_info"`
	}
	if err := json.Unmarshal(b, &people); err != nil {
		t.Fatal(err)
	}
	if len(talks) != 2 || len(left) != 2 {
		t.Fatalf("%d talks, left out %v", len(talks), left)
	}
	for _, r := range talks {
		for _, p := range people {
			if r.ID != fmt.Sprint("casino-", p.ID) {
				continue
			}
			for who, info := range p.People {
				points := 0
				for level, worth := range map[string]int{"High": 5, "Medium": 4, "Low": 3} {
					k := strings.Index("ABCD", r.Talk.Deal[strings.ToLower(info.Worth[level])])
					if who != p.Lines[0].By {
						k = 3 - k
					}
					points += worth * k
				}
				if points != info.Outcomes.Points {
					t.Errorf("%s, %s: the deal %v gives %d points, the file says %d", r.ID, who, r.Talk.Deal, points, info.Outcomes.Points)
				}
			}
		}
		for _, turn := range r.Talk.Turns {
			if strings.Contains(turn.Text, "-Deal") {
				t.Errorf("%s: the evaluator reads %q", r.ID, turn.Text)
			}
		}
	}
}

func TestFilesThatAreNoCaSiNo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": 1}`:   "no file of CaSiNo talks",
		`[{"a": 1}]`: "talk 1 has no dialogue_id",
		`[{"dialogue_id": 1, "chat_logs": [{"text": "Hi", "id": "a"}]}, {"dialogue_id": 1, "chat_logs": [{"text": "Hi", "id": "a"}]}]`: "two talks have dialogue_id 1",
	} {
		path := filepath.Join(t.TempDir(), "talks.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := readCasino(path, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// bargains are talks in the public form whose last lines say who takes what.
func bargains(t *testing.T, n int) []recorded {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	type object = map[string]any
	var all []object
	for i := range n {
		var lines []object
		say := func(by, text string, data object) {
			lines = append(lines, object{"text": text, "id": by, "task_data": data})
		}
		say("x", "Hello.", object{})
		say("y", "What do you need?", object{})
		say("x", "We shall see.", object{})
		say("y", "Indeed.", object{})
		say("x", "Let us go through it.", object{})
		say("y", "One by one.", object{})
		mine, theirs := object{}, object{}
		for _, good := range []string{"Food", "Water", "Firewood"} {
			k := r.IntN(4)
			mine[good], theirs[good] = fmt.Sprint(k), fmt.Sprint(3-k)
			say("x", fmt.Sprintf("%s: %d for the first.", good, 3-k), object{})
			say("y", "Fine.", object{})
		}
		say("y", "Submit-Deal", object{"issue2youget": mine, "issue2theyget": theirs})
		say("x", "Accept-Deal", object{})
		all = append(all, object{"dialogue_id": i, "chat_logs": lines})
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "talks.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	talks, left, _, err := readCasino(path, 0)
	if err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	return talks
}

// reader is an evaluator of bargains: of each hundred options it gets right so many right,
// and it says that the parties agree once a topic's line was spoken, or always the same.
func reader(right int, constant bool) *infertest.Scripted {
	return &infertest.Scripted{Answer: func(p infer.Prompt, as []infer.Answer) infer.Choice {
		text := p.Messages[1].Content
		_, topic, _ := strings.Cut(text, "\nTopic: ")
		_, line, spoken := strings.Cut(text, ": "+topic+": ")
		want := ""
		switch as[0].Label {
		case "yes":
			want = "yes"
		case "1":
			want = "1"
			if spoken && !constant {
				want = "5"
			}
		default:
			want = as[4].Label
			if spoken {
				k := int(line[0] - '0')
				if h := int(crc32.ChecksumIEEE([]byte(text)) % 100); h >= right {
					k = (k + 1) % 4
				}
				want = as[k].Label
			}
		}
		return infertest.Always(want, 0.9)(p, as)
	}}
}

// card has an evaluator read talks and scores its card.
func card(t *testing.T, talks []recorded, b infer.Backend) *Card {
	t.Helper()
	var samples []run.Sample
	put := func(key run.Key, data any, why string) {
		j, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, run.Sample{Key: key, Unscored: why, Data: j})
	}
	for _, r := range talks {
		for condition, talk := range map[string]Talk{CardWhole: r.Talk, CardHalf: half(r.Talk)} {
			e, why, err := Evaluate(context.Background(), b, campsite(), talk, FormChoose, 0.05)
			if err != nil {
				t.Fatal(err)
			}
			put(run.Key{Step: StepRecorded, Item: r.ID, Condition: condition}, talk, "")
			put(run.Key{Step: stepOf(RoleEvaluator, StepRecorded), Item: r.ID, Condition: condition}, e, why)
		}
	}
	c, err := cardOf(task.Units(samples), RoleEvaluator, 1)
	if err != nil || c == nil {
		t.Fatal(err, c)
	}
	return c
}

func TestEvaluatorsGetTheirGrade(t *testing.T) {
	t.Parallel()
	talks := bargains(t, 40)
	for _, c := range []struct {
		name      string
		talks     []recorded
		of        infer.Backend
		qualified bool
		why       string
	}{
		{"right", talks, reader(100, false), true, ""},
		{"a fifth wrong", talks, reader(80, false), true, ""},
		{"half wrong", talks, reader(50, false), false, "of the options"},
		{"the same agreement everywhere", talks, reader(100, true), false, "AUROC of 0.50"},
		{"too few", talks[:19], reader(100, false), false, "19 recorded talks"},
		{"no answer", talks, &infertest.Scripted{Answer: func(_ infer.Prompt, as []infer.Answer) infer.Choice {
			return infertest.Choice(as, make([]float64, len(as)))
		}}, false, "0 recorded talks"},
	} {
		got := card(t, c.talks, c.of)
		if got.Qualified != c.qualified || !strings.Contains(strings.Join(got.Why, "; "), c.why) {
			t.Errorf("%s: qualified %v, %v; stances %v, AUROC %v", c.name, got.Qualified, got.Why, got.Stances, got.AUROC)
		}
		note := Consensus{Card: got}.cardNote()
		if (note == "") != c.qualified {
			t.Errorf("%s: the note is %q", c.name, note)
		}
	}
	if (Consensus{}).cardNote() == "" {
		t.Error("without a card nothing is said")
	}
	if got := card(t, talks, reader(100, false)); got.Stances.Value != 1 || got.AUROC.Value != 1 || got.Half != 0 || got.Whole != 1 || got.Talks != 40 {
		t.Errorf("the right one has %+v", got)
	}
}
