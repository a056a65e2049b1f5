package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The figures are those of the public code; see bench/dmis.
func TestMetricsEqualTheReference(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "bench", "dmis", "testdata", "metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ref struct {
		Pairs  []obj `json:"distribution_pairs"`
		Curves []obj `json:"trajectories"`
		Labels []obj `json:"digit_logprobs"`
	}
	if err := json.Unmarshal(b, &ref); err != nil {
		t.Fatal(err)
	}
	for _, c := range ref.Curves {
		c["pre_stage"] = c["pre_stage_index"]
	}
	for _, kind := range []struct {
		name  string
		lines []obj
		same  map[string]string // our name of each figure
	}{
		{"pairs", ref.Pairs, map[string]string{"signed_w1_paige": "signed_wasserstein_1", "w1_paige": "wasserstein_1", "js": "js_divergence", "tv": "total_variation",
			"dominance": "stochastic_dominance", "expected_pre": "expected_position_pre", "expected_post": "expected_position_post"}},
		{"trajectories", ref.Curves, map[string]string{"auc_paige": "auc_paige", "auc_index": "auc_index"}},
		{"labels", ref.Labels, map[string]string{"distribution": "distribution"}},
	} {
		if len(kind.lines) == 0 {
			t.Fatalf("no %s in the reference", kind.name)
		}
		var in, out bytes.Buffer
		for _, l := range kind.lines {
			if err := json.NewEncoder(&in).Encode(l); err != nil {
				t.Fatal(err)
			}
		}
		a := &app{stdin: &in, stdout: &out, stderr: os.Stderr, getenv: func(string) string { return "" }}
		if code := a.main([]string{"metrics", "--labeller-rule", "reference"}); code != exitDone {
			t.Fatalf("%s: exit code %d", kind.name, code)
		}
		dec := json.NewDecoder(&out)
		for i, l := range kind.lines {
			var got obj
			if err := dec.Decode(&got); err != nil {
				t.Fatalf("%s, line %d: %v", kind.name, i+1, err)
			}
			for ours, theirs := range kind.same {
				if _, ok := got[ours]; !ok {
					t.Errorf("%s, line %d: no %s", kind.name, i+1, ours)
				}
				if !near(got[ours], l[theirs]) {
					t.Errorf("%s, line %d: %s is %v, want %v", kind.name, i+1, ours, got[ours], l[theirs])
				}
			}
			if pre, ok := l["expected_stage_index_pre"].(float64); ok {
				// The sign of the index scale's shift is that of its expectation.
				shift := l["expected_stage_index_post"].(float64) - pre
				if w := got["signed_w1_index"].(float64); math.Abs(shift) > 1e-9 && math.Signbit(w) != math.Signbit(shift) {
					t.Errorf("%s, line %d: signed_w1_index is %v and the expected index moves by %v", kind.name, i+1, w, shift)
				}
			}
		}
	}
}

func near(got, want any) bool {
	x, ok := got.([]any)
	y, both := want.([]any)
	if !ok || !both || len(x) != len(y) {
		return equal(got, want)
	}
	for i := range x {
		if !equal(x[i], y[i]) {
			return false
		}
	}
	return true
}

// What is no log-probability labels nothing; an alternative listed twice counts once.
func TestMetricsOfAbsentLogprobs(t *testing.T) {
	for _, c := range []struct{ top, ours, reference string }{
		{`{"token":"4","logprob":-0.2}`, "4", "4"},
		{`{"token":"4","logprob":null},{"token":"2","logprob":-0.2}`, `the log-probability of \"4\" is missing`, `the log-probability of \"4\" is missing`},
		{`{"token":"4"},{"token":"2"}`, "is missing", "is missing"},
		{`{"token":"4","logprob":14.2},{"token":"2","logprob":13.9}`, "above 0", "4"}, // the public code takes a softmax over the digits
		{`{"token":"4","logprob":-0.1},{"token":"2","logprob":-0.05}`, "add up to 1.856", "2"},
		{`{"token":"4","logprob":-0.92},{"token":"4","logprob":-0.92},{"token":"2","logprob":-0.69}`, "2", "2"},
	} {
		for reference, want := range map[bool]string{false: c.ours, true: c.reference} {
			var out bytes.Buffer
			if err := metricsLines(strings.NewReader(`{"top_logprobs":[`+c.top+"]}\n"), &out, reference, 0.05); err != nil {
				t.Fatalf("%s: %v", c.top, err)
			}
			var got struct {
				Distribution []float64
				Scored       bool
			}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if len(want) > 1 {
				if got.Scored || got.Distribution != nil || !strings.Contains(out.String(), want) {
					t.Errorf("%s, reference %v: %s; want it unscored: %s", c.top, reference, out.String(), want)
				}
			} else if at := int(want[0] - '1'); !got.Scored || slices.Max(got.Distribution) != got.Distribution[at] {
				t.Errorf("%s, reference %v: %s; want %s", c.top, reference, out.String(), want)
			}
		}
	}
}
