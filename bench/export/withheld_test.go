package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
)

// What no table may say, no export says. By hand: 39 recorded labels, 13 each of the
// stages 0, 1, 2. With 3 of every 13 said to be Denial the quadratic kappa is
//
//	sklearn.metrics.cohen_kappa_score(recorded, given, weights="quadratic") = 0.7272727272727273
//
// (scikit-learn 1.9) and the labels are reliable; with 9 of 13 it is 0.2622950819672132 and
// they are weak: their numbers are said with a caution. With all of them the answer is
// constant, and nothing is said.
func TestWithheld(t *testing.T) {
	for _, c := range []struct {
		wrong     int
		grade     string
		kappa     float64
		said      bool
		cautioned string // "" of findings
	}{
		{3, mediation.Reliable, 0.7272727272727273, true, ""},
		{9, mediation.Weak, 0.2622950819672132, true, mediation.WeakLabels},
		{13, mediation.DegenerateLabels, 0, false, "same stage"},
	} {
		finding := c.cautioned == ""
		x := read(t, identity("mediation"), mediatedBy(t, c.wrong))
		if all := strings.Join(x.Cautions(), "\n"); (all == "") != finding || !strings.Contains(all, c.cautioned) {
			t.Errorf("%s: cautions %q", c.grade, all)
		}
		for i, r := range rows[mediation.Row](x) {
			if r.LabellerGrade != c.grade || r.LabellerKappa == nil || fmt.Sprintf("%.4f", *r.LabellerKappa) != fmt.Sprintf("%.4f", c.kappa) {
				t.Fatalf("grade %q, kappa %v; want %q, %v", r.LabellerGrade, *r.LabellerKappa, c.grade, c.kappa)
			}
			if c.said {
				continue
			}
			for name, column := range r.Metrics() {
				if *column != nil {
					t.Errorf("row %d says %s of a constant labeller", i, name)
				}
			}
			if r.Scored || r.Unscored == nil || !strings.Contains(*r.Unscored, "withheld: labeller: same stage") || r.PreStage != nil || r.PostStage != nil || len(r.TrajectoryStage) > 0 {
				t.Errorf("row %d: %+v, reason %v", i, r, r.Unscored)
			}
		}
		var log struct {
			Eval    struct{ Metadata struct{ Cautions []string } }
			Results evalResults
		}
		if err := json.Unmarshal(bytes.ReplaceAll(text(t, x, Inspect), nan, []byte(`"value":null`)), &log); err != nil {
			t.Fatal(err)
		}
		said := 0
		for _, s := range log.Results.Scores {
			said += s.Scored
		}
		if (said > 0) != c.said || (len(log.Eval.Metadata.Cautions) == 0) != finding {
			t.Errorf("%s: inspect has %d values and the cautions %q", c.grade, said, log.Eval.Metadata.Cautions)
		}
		dir, err := x.WriteHarness(t.TempDir(), false)
		if err != nil {
			t.Fatal(err)
		}
		results := one(t, dir, "results_*.json")
		if strings.Contains(results, `"delta_auc,none"`) != c.said || strings.Contains(results, "auc_paige_stderr") && !c.said {
			t.Errorf("%s: lm-eval has\n%s", c.grade, results)
		}
		if files, _ := filepath.Glob(filepath.Join(dir, "cautions_*.txt")); (len(files) == 0) != finding {
			t.Errorf("%s: caution files %v", c.grade, files)
		}
	}
}

func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A constant answer has an accuracy and no standard error, in no form. Of 20 dialogues
// 18 with the same turn are not yet constant, 19 are.
func TestConstantAnswerHasNoStandardError(t *testing.T) {
	for same := 18; same <= 19; same++ {
		var samples []run.Sample
		for i := range 20 {
			d := timing.Decision{Mode: timing.Stream, Gold: 3 + i%6, Stage: "Denial", Context: fmt.Sprint("c", i/2), FirstTurn: 3, LastTurn: 9, Predicted: 3}
			if i >= same {
				d.Predicted = 5
			}
			samples = append(samples, sample(t, timing.StepDecide, fmt.Sprint(i), "stream", 0, "", d))
		}
		x := read(t, identity("timing"), samples)
		dir, err := x.WriteHarness(t.TempDir(), false)
		if err != nil {
			t.Fatal(err)
		}
		constant := same > 18
		results, log := one(t, dir, "results_*.json"), string(text(t, x, Inspect))
		if !strings.Contains(results, `"turn_acc,none"`) || strings.Contains(results, `"turn_acc_stderr,none"`) == constant {
			t.Errorf("%d of 20: lm-eval has\n%s", same, results)
		}
		if strings.Contains(log, `"stderr":{"name":"stderr"`) == constant || strings.Contains(log, "same answer for 19 of 20 dialogues (steps in after turn 3)") != constant {
			t.Errorf("%d of 20: inspect has a standard error, or no caution", same)
		}
		if (len(x.Cautions()) == 1) != constant {
			t.Errorf("%d of 20: cautions %q", same, x.Cautions())
		}
	}
}

// The judge is constant in more than 90 % of its scores: 10 of 11, not 10 of 12.
func TestConstantJudgeIsWithheld(t *testing.T) {
	for others := 1; others <= 2; others++ {
		samples := mediated(t)
		for i := range 10 + others {
			score := 4
			if i >= 10 {
				score = 1
			}
			item := fmt.Sprint(50 + i)
			samples = append(samples,
				sample(t, mediation.StepUtterance, item, "D", 0, "", mediation.Utterance{Gold: 3, Turn: 3, LastTurn: 5, Stage: "Denial", Context: "c", Text: item, Source: "model"}),
				sample(t, mediation.StepJudge, item, "D", 0, "", mediation.Judgement{Mass: 1, Score: score, Expected: float64(score)}))
		}
		// The two lines of mediated are judged too: 4 and 4, or they would add to the others.
		samples = judged(t, samples, 4)
		gate, err := mediation.NewGate(samples, &dialogue.Agreement{Kappa: stats.Estimate{Value: 0.48}})
		if err != nil {
			t.Fatal(err)
		}
		n := 10 + others + 2
		constant := float64(12)/float64(n) > 0.9
		if gate.Allows(mediation.Judge) == constant || !gate.Allows(mediation.AUC) || gate.PipelineCheck() {
			t.Errorf("12 of %d scores alike: the judge is said %v, the AUC %v", n, gate.Allows(mediation.Judge), gate.Allows(mediation.AUC))
		}
	}
}

// judged gives ND lines one score.
func judged(t *testing.T, samples []run.Sample, score int) []run.Sample {
	t.Helper()
	for i, s := range samples {
		if s.Step == mediation.StepJudge && s.Condition == "ND" {
			samples[i] = sample(t, s.Step, s.Item, s.Condition, s.Repeat, "", mediation.Judgement{Mass: 1, Score: score, Expected: float64(score)})
		}
	}
	return samples
}

// Inspect has its own words for why a text ended.
func TestStopReasons(t *testing.T) {
	var samples []run.Sample
	for item, stop := range map[string]string{"1": "stop", "2": "length", "3": "", "4": "unload"} {
		samples = append(samples, sample(t, mediation.StepUtterance, item, "ND", 0, "", mediation.Utterance{Gold: 3, Turn: 3, LastTurn: 5, Stage: "Denial", Context: "c", Text: "Go on.", Source: "model", Stop: stop}))
	}
	x := read(t, identity("mediation"), samples)
	var log struct {
		Samples []struct {
			Output struct {
				Choices []struct {
					Stop string `json:"stop_reason"`
				}
			}
		}
	}
	if err := json.Unmarshal(bytes.ReplaceAll(text(t, x, Inspect), nan, []byte(`"value":null`)), &log); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"stop", "max_tokens", "unknown", "unknown"} {
		if got := log.Samples[i].Output.Choices[0].Stop; got != want {
			t.Errorf("sample %d: %q, want %q", i+1, got, want)
		}
	}
	x = read(t, identity("timing"), decisions(t))
	if b := text(t, x, Inspect); bytes.Contains(b, []byte(`"stop_reason":"stop"`)) || bytes.Count(b, []byte(`"choices":[],"completion":"","model":"ollama/org/gemma2:9b","time"`)) != 4 {
		t.Error("a model was asked for probabilities, and has said something")
	}
}
