package socrates

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

// scored is the result of talks whose final agreement is given: unmediated, mediated, and
// from another seed, of a topic each scenario.
func scored(t *testing.T, card *Card, finals [][3]int) *result {
	t.Helper()
	var es []evaluated
	var ps []pair
	for i, f := range finals {
		read := func(k int) Evaluation { return readings(6, fmt.Sprintf("2:%d", f[k])) }
		e := evaluatedOf(fmt.Sprint("s", i), read(0), read(1), 3)
		e.read[StepNull] = read(2)
		es, ps = append(es, e), append(ps, e.pair)
	}
	m, err := measure(ps, nil, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := consensus(es, RoleEvaluator, FormChoose, 1)
	if err != nil {
		t.Fatal(err)
	}
	c.Card = card
	m.Consensus = []Consensus{c}
	d, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: "socrates", Items: []string{"s0"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(run.StatusDone) })
	return &result{in: task.Input{Run: &task.Run{Dir: d}}, Metric: m, pairs: func() ([]pair, error) { return ps, nil }}
}

func TestHeadlineSaysWhatIsShown(t *testing.T) {
	t.Parallel()
	good := &Card{Talks: 40, Qualified: true}
	repeat := func(f ...[3]int) (out [][3]int) {
		for i := range 24 {
			out = append(out, f[i%len(f)])
		}
		return out
	}
	for _, c := range []struct {
		name, want string
		card       *Card
		finals     [][3]int
	}{
		{"moves", "rises:", good, repeat([3]int{2, 4, 2}, [3]int{3, 5, 3}, [3]int{1, 2, 1})},
		{"harms", "falls:", good, repeat([3]int{4, 2, 4}, [3]int{3, 1, 3}, [3]int{4, 3, 4})},
		{"changes nothing", "is not shown to change:", good, repeat([3]int{2, 3, 2}, [3]int{3, 2, 3}, [3]int{3, 3, 3})},
		{"as another seed", "Another seed alone changes it by", good, repeat([3]int{2, 3, 4}, [3]int{1, 2, 3})},
		{"no card", "a pipeline check: there is no evaluator card", nil, repeat([3]int{2, 4, 2})},
		{"bad card", "a pipeline check: the evaluator card: it guesses", &Card{Talks: 40, Why: []string{"it guesses"}}, repeat([3]int{2, 4, 2})},
	} {
		r := scored(t, c.card, c.finals)
		h, err := r.Headline(t.Context())
		if err != nil || !strings.Contains(h.Sentence, c.want) || !strings.Contains(h.Sentence, "mediated 24 talks") {
			t.Errorf("%s: %q, %v; want %q", c.name, h.Sentence, err, c.want)
		}
		if warned := h.Rows[0].Warned; warned != (c.card != good) {
			t.Errorf("%s: the first row is %+v", c.name, h.Rows[0])
		}
	}
	if h, err := (&result{in: scored(t, nil, nil).in}).Headline(t.Context()); err != nil || !strings.Contains(h.Sentence, "did not mediate") {
		t.Errorf("without talks: %q, %v", h.Sentence, err)
	}
}

func TestMediatorsOfSeveralRunsByCondition(t *testing.T) {
	t.Parallel()
	a, b := scored(t, nil, [][3]int{{2, 4, 2}, {1, 3, 1}}), scored(t, nil, [][3]int{{2, 2, 2}, {3, 2, 3}})
	all := []task.Neighbour{{Name: "a", Result: a}, {Name: "b", Result: b}}
	sections, _, err := a.Beside(all[0], all, 1)
	if err != nil || len(sections) != 1 {
		t.Fatal(sections, err)
	}
	heat := sections[0].Figures[0].Heat
	if len(heat.Rows) != 2 || len(heat.Columns) != 1 || math.Abs(heat.Values[0][0]-0.5) > 1e-9 || math.Abs(heat.Values[1][0]+0.125) > 1e-9 {
		t.Errorf("the heat map is %+v", heat)
	}
	if again, _, err := b.Beside(all[1], all, 1); err != nil || len(again) != 0 {
		t.Errorf("the second run tells it again: %v, %v", again, err)
	}
	if alone, _, err := a.Beside(all[0], all[:1], 1); err != nil || len(alone) != 0 {
		t.Errorf("one run is compared with itself: %v, %v", alone, err)
	}
}
