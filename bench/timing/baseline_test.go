package timing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/linear"
)

// madeUp returns n dialogues of six turns in which the gold turn, 3..5 in turn,
// quarrels and the others talk about the weather.
func madeUp(n int) []BaselineDialogue {
	var ds []BaselineDialogue
	for i := range n {
		d := BaselineDialogue{ID: fmt.Sprint(i), Group: fmt.Sprint("place ", i/2), Gold: 3 + i%3}
		for t := 1; t <= 6; t++ {
			turn := fmt.Sprintf("Sunny weather again on day %d, said place %d.", t, i/2)
			if t == d.Gold {
				turn = fmt.Sprintf("That is RUBBISH, our way is right and place %d is wrong.", i/2)
			}
			d.Turns = append(d.Turns, turn)
		}
		ds = append(ds, d)
	}
	return ds
}

func baselineNamed(t *testing.T, rs []BaselineResult, prefix string) BaselineResult {
	t.Helper()
	for _, r := range rs {
		if strings.HasPrefix(r.Name, prefix) {
			return r
		}
	}
	t.Fatalf("no baseline %q in %+v", prefix, rs)
	return BaselineResult{}
}

func TestBaselineRules(t *testing.T) {
	eval := []BaselineDialogue{
		{ID: "a", Gold: 3, Turns: []string{"a very very long opening", "ab", "abcd", "abc"}},
		{ID: "b", Gold: 4, Turns: []string{"a", "b", "éé", "ééé", "abc"}}, // characters, not bytes; the first of equals
		{ID: "c", Gold: 4, Turns: []string{"a", "b", "c", "Deep down we are all the same"}},
		{ID: "d", Gold: 2, Turns: []string{"a", "b"}}, // ends before a prediction may start
	}
	train := []BaselineDialogue{
		{ID: "x", Gold: 4, Turns: []string{"calm words", "calm words", "calm words", "angry words"}},
		{ID: "y", Gold: 4, Turns: []string{"calm words", "calm words", "calm words", "angry words"}},
		{ID: "z", Gold: 3, Turns: []string{"calm words", "calm words", "angry words"}},
	}
	rs, err := BaselineInput{Eval: eval, Train: train, Offered: true}.Results(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		predicted []int
		accuracy  float64
	}{
		{"uniform over 3..8", nil, 3.0 / 4 / 6}, // gold turn 2 is never drawn
		{"uniform over the offered turns", nil, (1.0/2 + 1.0/3 + 1.0/2) / 4},
		{"constant, best on training (turn 4)", []int{4, 4, 4, 0}, 0.5},
		{"constant, best on evaluation itself (turn 4)", []int{4, 4, 4, 0}, 0.5},
		{"first turn", []int{3, 3, 3, 0}, 0.25},
		{"longest turn", []int{3, 4, 4, 0}, 0.75},
		{"marker phrases", []int{0, 0, 4, 0}, 0.25},
	} {
		r := baselineNamed(t, rs, tt.name)
		if !slices.Equal(r.Predicted, tt.predicted) || math.Abs(r.Accuracy-tt.accuracy) > 1e-12 || r.N != 4 {
			t.Errorf("%s: predicted %v with accuracy %v of %d, want %v with %v of 4", tt.name, r.Predicted, r.Accuracy, r.N, tt.predicted, tt.accuracy)
		}
		if r.Fitted == "" {
			t.Errorf("%s does not say on what it was fitted", tt.name)
		}
	}
	if got, want := baselineNamed(t, rs, "longest").Share(), "75.0 % (3/4)"; got != want {
		t.Errorf("share %q, want %q", got, want)
	}
	if got, want := baselineNamed(t, rs, "uniform").Share(), "12.5 % expected"; got != want {
		t.Errorf("share %q, want %q", got, want)
	}
}

func TestMarkerScore(t *testing.T) {
	for turn, want := range map[string]int{
		"I understand your view.":            0,
		"THAT is how we do it in OUR way":    3, // two shouted words, one cue
		"I am an OK guy from NATO":           1, // two letters are no shout
		"STOP THIS NOW PLEASE":               2, // shouting alone gives no more than the threshold
		"日本語 だけ":                             0, // a script without upper case
		"Whatever, it doesn’t matter":        2, // a typographic apostrophe
		"sameness, everyonesomething":        0, // whole words only
		"Everyone is naive, deep down":       3,
		"We don't really see any difference": 1,
	} {
		if got := markerScore(turn); got != want {
			t.Errorf("%q scores %d, want %d", turn, got, want)
		}
	}
}

func TestBagOfWordsBaselines(t *testing.T) {
	ds := madeUp(24)
	t.Run("trained", func(t *testing.T) {
		// Contexts are pairs of dialogues: three training dialogues share theirs with the evaluation.
		rs, err := BaselineInput{Eval: ds[:6], Train: ds[3:]}.Results(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, fitted := range map[string]string{
			"bag of words, first":                  "21 training dialogues",
			"bag of words, argmax":                 "21 training dialogues",
			"bag of words, unseen contexts, first": "18 training dialogues",
		} {
			r := baselineNamed(t, rs, name)
			if r.Accuracy != 1 || !strings.HasPrefix(r.Fitted, fitted) {
				t.Errorf("%s: accuracy %v, fitted on %s; want 1, %s", name, r.Accuracy, r.Fitted, fitted)
			}
		}
	})
	t.Run("cross-validated", func(t *testing.T) {
		rs, err := BaselineInput{Eval: ds}.Results(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r := baselineNamed(t, rs, "bag of words, cross-validated, argmax"); r.Accuracy != 1 || len(r.Predicted) != 24 {
			t.Errorf("accuracy %v of %d predictions, want 1 of 24", r.Accuracy, len(r.Predicted))
		}
		for _, r := range rs {
			if strings.Contains(r.Name, "training") {
				t.Errorf("%s without training data", r.Name)
			}
		}
		again, err := BaselineInput{Eval: ds}.Results(t.Context())
		if err != nil || !reflect.DeepEqual(again, rs) {
			t.Error("a second computation differs")
		}
	})
	t.Run("held out", func(t *testing.T) {
		// Every word belongs to one context. In the sample they tell the gold turns; held out with their whole
		// context they are unknown, all turns are equal, and argmax takes the first one allowed.
		own := madeUp(12)
		for i, d := range own {
			for t := range d.Turns {
				own[i].Turns[t] = fmt.Sprintf("calm%d", i/2)
			}
			own[i].Turns[d.Gold-1] = fmt.Sprintf("angry%d", i/2)
		}
		const rule = "bag of words, cross-validated, argmax"
		rs, err := BaselineInput{Eval: own}.Results(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r := baselineNamed(t, rs, rule); slices.ContainsFunc(r.Predicted, func(p int) bool { return p != 3 }) {
			t.Errorf("words of held-out contexts were used: %v", r.Predicted)
		}
		for i := range own {
			own[i].Group = "" // now the other dialogue of a context may train
		}
		if rs, err = (BaselineInput{Eval: own}).Results(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := baselineNamed(t, rs, rule); r.Accuracy < 0.7 {
			t.Errorf("accuracy %v without groups, want most of the 12 dialogues", r.Accuracy)
		}
	})
	t.Run("one context", func(t *testing.T) {
		rs, err := BaselineInput{Eval: ds[:2]}.Results(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rs {
			if strings.HasPrefix(r.Name, "bag") {
				t.Errorf("%s was cross-validated over one context", r.Name)
			}
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := (BaselineInput{Eval: ds}).Results(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
	})
}

func TestBaselinesRefuse(t *testing.T) {
	ok := madeUp(2)
	for name, in := range map[string]BaselineInput{
		"no dialogues":          {},
		"gold after the end":    {Eval: []BaselineDialogue{{ID: "a", Gold: 2, Turns: []string{"x"}}}},
		"gold 0 in training":    {Eval: ok, Train: []BaselineDialogue{{ID: "a", Turns: []string{"x"}}}},
		"first turn below 1":    {Eval: ok, First: -1},
		"dialogue without text": {Eval: []BaselineDialogue{{ID: "a", Gold: 1}}},
	} {
		if _, err := in.Results(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := TrainBagOfWords(t.Context(), nil); !errors.Is(err, linear.ErrNoTerms) {
		t.Errorf("error %v of an empty training set, want linear.ErrNoTerms", err)
	}
}

// publicBaselineDialogues reads a split of the public records, which never enter
// the repository, from beside the repository.
func publicBaselineDialogues(t *testing.T, split string) []BaselineDialogue {
	t.Helper()
	root, err := os.Getwd()
	for err == nil {
		if _, e := os.Stat(filepath.Join(root, "go.mod")); e == nil {
			break
		}
		if filepath.Dir(root) == root {
			t.Skip("the public records are not at hand: no go.mod above the test")
		}
		root = filepath.Dir(root)
	}
	dir := filepath.Join(root, "..", "shared", "data", "cc-mediation", split)
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("the public records are not at hand: nothing in ../shared/data/cc-mediation/%s beside the repository", split)
	}
	var ds []BaselineDialogue
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		type turns []struct {
			Message string `json:"message"`
		}
		var r struct {
			ID       int `json:"scenario_id"`
			Metadata struct {
				Turn    int    `json:"conflict_turn"`
				Context string `json:"scenario_context"`
			} `json:"metadata"`
			Prefix        turns `json:"shared_prefix"`
			Continuations struct {
				Original struct {
					Turns turns `json:"turns"`
				} `json:"original"`
			} `json:"continuations"`
		}
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		d := BaselineDialogue{ID: fmt.Sprint(r.ID), Group: r.Metadata.Context, Gold: r.Metadata.Turn}
		for _, turn := range slices.Concat(r.Prefix, r.Continuations.Original.Turns) {
			d.Turns = append(d.Turns, turn.Message)
		}
		ds = append(ds, d)
	}
	return ds
}

// What the baselines reach on the public records, where a trial in another
// program found: constant 15.7 and 17.6 %, longest turn 78 %, bag of words 99.4 %
// and 96.9 % with unseen contexts, AUROC 0.83 and 0.95.
func TestBaselinesOnPublicRecords(t *testing.T) {
	in := BaselineInput{Eval: publicBaselineDialogues(t, "evaluate"), Train: publicBaselineDialogues(t, "training")}
	if len(in.Eval) != 159 || len(in.Train) != 1503 {
		t.Fatalf("%d evaluation and %d training dialogues, want 159 and 1,503", len(in.Eval), len(in.Train))
	}
	rs, err := in.Results(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		t.Logf("%-45s %s (fitted on %s)", r.Name, r.Share(), r.Fitted)
	}
	for _, tt := range []struct {
		name   string
		lo, hi float64
	}{
		{"uniform", 1.0 / 6, 1.0 / 6},
		{"constant, best on training (turn 3)", 25.0 / 159, 25.0 / 159},
		{"constant, best on evaluation itself (turn 4)", 28.0 / 159, 28.0 / 159},
		{"first turn", 25.0 / 159, 25.0 / 159},
		{"longest turn", 0.77, 0.79},
		{"marker phrases", 0.86, 0.99},
		{"bag of words, first", 0.985, 1},
		{"bag of words, argmax", 0.985, 1},
		{"bag of words, unseen contexts, first", 0.95, 0.985},
		{"bag of words, unseen contexts, argmax", 0.95, 1},
	} {
		if r := baselineNamed(t, rs, tt.name); r.Accuracy < tt.lo-1e-12 || r.Accuracy > tt.hi+1e-12 {
			t.Errorf("%s has %s, want %.1f to %.1f %%", tt.name, r.Share(), 100*tt.lo, 100*tt.hi)
		}
	}
	if r := baselineNamed(t, rs, "bag of words, unseen"); !strings.HasPrefix(r.Fitted, "160 ") {
		t.Errorf("fitted on %s, want 160 dialogues with unseen contexts", r.Fitted)
	}
	alone, err := BaselineInput{Eval: in.Eval}.Results(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"first", "argmax"} {
		r := baselineNamed(t, alone, "bag of words, cross-validated, "+rule)
		t.Logf("%-45s %s (fitted on %s)", r.Name, r.Share(), r.Fitted)
		if r.Accuracy < 0.9 {
			t.Errorf("%s has %s, want at least 90 %%", r.Name, r.Share())
		}
	}
}

// A baseline's interval is that of its hits over scenario contexts.
func TestBaselineIntervals(t *testing.T) {
	var ds []BaselineDialogue
	for i := range 24 {
		turns := []string{"a", "b", "c", "d", "e"}
		gold := 3 + i%3 // the longest turn is right in two of three
		turns[min(gold, 4)-1] = "a turn that is longer than the others"
		ds = append(ds, BaselineDialogue{ID: fmt.Sprint(i), Group: fmt.Sprint("context ", i/2), Gold: gold, Turns: turns})
	}
	rs, err := BaselineInput{Eval: ds, Seed: 3}.Results(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := baselineNamed(t, rs, "longest turn")
	hits, groups := make([]float64, 24), make([]string, 24)
	for i, d := range ds {
		groups[i] = d.Group
		if d.Gold < 5 {
			hits[i] = 1
		}
	}
	want, err := stats.Bootstrap{Resamples: 10_000, Seed: 3}.Mean(hits, groups)
	if err != nil {
		t.Fatal(err)
	}
	if r.Interval == nil || *r.Interval != want || r.interval() != report.Interval(100*want.Value, 100*want.Lo, 100*want.Hi, 1)+" %" {
		t.Errorf("interval %+v (%s), want %+v", r.Interval, r.interval(), want)
	}
	if u := rs[0]; u.Predicted != nil || u.Interval != nil || u.interval() != "" {
		t.Errorf("the expectation %+v has an interval: %q", u, u.interval())
	}
	for i := range ds {
		ds[i].Group = fmt.Sprint("context ", i*i%7) // four of unequal size and share
	}
	if rs, err = (BaselineInput{Eval: ds}).Results(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := baselineNamed(t, rs, "longest turn"); r.Interval != nil || r.interval() != "few contexts" {
		t.Errorf("four contexts: %+v, %q", r.Interval, r.interval())
	}
	// None right in four contexts: at most 1 − 0.025^(1/4) of the contexts are others.
	if r := baselineNamed(t, rs, MarkerBaseline); r.Accuracy != 0 || r.interval() != "0.0 [0.0, 60.2] %" {
		t.Errorf("none right: %g, %q", r.Accuracy, r.interval())
	}
}
