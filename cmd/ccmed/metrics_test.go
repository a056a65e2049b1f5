package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
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
