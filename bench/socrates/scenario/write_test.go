package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// dispute is an embedded scenario that has no third party and no history.
func dispute(t *testing.T) Scenario {
	t.Helper()
	all, err := Read(Sample, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.ID == "van" {
			return s
		}
	}
	t.Fatal("there is no van")
	return Scenario{}
}

// author writes usable parts, but for the fields that change puts in their place. It says
// the last option, and finds the second topic most important.
func author(change func(call int, fields map[string]string)) *infertest.Scripted {
	calls := 0
	return &infertest.Scripted{
		Say: func(p infer.Prompt, o infer.Params) infer.Reply {
			fields := map[string]string{}
			for _, x := range o.Schema.Texts {
				fields[x.Name] = "Some words."
			}
			if _, ok := fields["name"]; ok {
				fields["name"] = "Pat Lund"
			} else {
				fields["date"] = fmt.Sprintf("20%02d-05-01", 10+len(p.Messages)/2)
			}
			if change != nil {
				change(calls, fields)
			}
			calls++
			b, _ := json.Marshal(fields)
			return infer.Reply{Text: string(b)}
		},
		Answer: func(p infer.Prompt, as []infer.Answer) infer.Choice {
			ps := make([]float64, len(as))
			likely := len(as) - 1
			if as[0].Label == "1" && !strings.Contains(p.Messages[len(p.Messages)-1].Content, "Gearbox repair") {
				likely = 2
			}
			ps[likely] = 0.9
			return infertest.Choice(as, ps)
		},
	}
}

func TestAWriterCompletesAScenario(t *testing.T) {
	t.Parallel()
	s := dispute(t)
	full, left, err := Writer{Backend: author(nil), Model: "m", Seed: 1}.Complete(context.Background(), s, true, true)
	if err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	if faults := full.Validate(); len(faults) > 0 {
		t.Fatal(faults)
	}
	weights := map[string]int{}
	for i, topic := range s.Topics { // ranks: the second topic, then the others in their order
		weights[topic.ID] = map[int][]int{2: {33, 67}, 3: {33, 51, 16}, 4: {30, 40, 20, 10}}[len(s.Topics)][i]
	}
	x := full.Third
	if x.ID != "third" || x.Name != "Pat Lund" || !reflect.DeepEqual(x.Weights, weights) || x.Stances["repair"] != "D" {
		t.Errorf("the third party is %+v", x)
	}
	if len(full.History) != 4 || full.History[3].Date != "2014-05-01" || full.Source != s.Source+"; third party and history written by m" && full.Source != "third party and history written by m" {
		t.Errorf("history %+v, source %q", full.History, full.Source)
	}
	if again, left, err := (Writer{Backend: author(nil)}).Complete(context.Background(), full, true, true); err != nil || len(left) > 0 || !reflect.DeepEqual(again, full) {
		t.Errorf("what is there is written again: %+v, %v, %v", again, left, err)
	}
}

func TestPartsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	s := dispute(t)
	for want, change := range map[string]func(call int, fields map[string]string){
		"is the name of": func(_ int, f map[string]string) {
			if f["name"] != "" {
				f["name"] = strings.ToUpper(s.Parties[1].Name)
			}
		},
		"[IMPASSE]": func(_ int, f map[string]string) {
			if _, third := f["wish_a"]; third {
				f["wish_a"] = "Ends with [impasse]"
			}
		},
		"no date": func(_ int, f map[string]string) {
			if f["date"] != "" {
				f["date"] = "May 2010"
			}
		},
		"does not come after": func(_ int, f map[string]string) {
			if f["date"] != "" {
				f["date"] = "2010-01-01"
			}
		},
	} {
		full, left, err := Writer{Backend: author(change), Model: "m"}.Complete(context.Background(), s, true, true)
		if err != nil || len(left) != 1 || !strings.Contains(left[0].Error(), want) || (full.Third == nil) == (full.History == nil) {
			t.Errorf("%s: left out %v, %v", want, left, err)
		}
		if faults := full.Validate(); len(faults) > 0 {
			t.Errorf("%s: %v", want, faults)
		}
	}
	// The third answer to a question is usable.
	full, left, err := Writer{Backend: author(func(call int, f map[string]string) {
		if call < 2 {
			f["name"] = ""
		}
	})}.Complete(context.Background(), s, true, false)
	if err != nil || len(left) > 0 || full.Third == nil || full.History != nil {
		t.Errorf("after two answers that cannot be used: %+v, %v, %v", full.Third, left, err)
	}
	broken := author(nil)
	broken.Fail = infertest.FailAt(2, errors.New("gone"))
	if _, _, err := (Writer{Backend: broken}).Complete(context.Background(), s, true, true); err == nil || !strings.Contains(err.Error(), "write the third party of van: gone") {
		t.Errorf("a server that is gone: %v", err)
	}
}

// What is planned for is not exceeded.
func TestLongestWriting(t *testing.T) {
	t.Parallel()
	s := dispute(t)
	b := author(nil)
	if _, _, err := (Writer{Backend: b}).Complete(context.Background(), s, true, true); err != nil {
		t.Fatal(err)
	}
	size := func(p infer.Prompt) (n int) {
		for _, m := range p.Messages {
			n += len(m.Content)
		}
		return n
	}
	ps, answer := LongestWriting(s)
	for _, c := range b.Calls() {
		if size(c.Prompt) > max(size(ps[0]), size(ps[1])) || c.Params.MaxTokens > answer {
			t.Errorf("a prompt of %d bytes and %d tokens of answer; planned for are %d, %d and %d", size(c.Prompt), c.Params.MaxTokens, size(ps[0]), size(ps[1]), answer)
		}
	}
}
