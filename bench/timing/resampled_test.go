package timing

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/infer"
)

// many returns n samples of ten turns with 20 alternatives each, five to a context, as
// a run over n dialogues writes them.
func many(tb testing.TB, n int) []run.Sample {
	tb.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	var ss []run.Sample
	for i := range n {
		d := Decision{Mode: Stream, Gold: 3 + i%6, Stage: "Denial", Context: fmt.Sprint(i / 5), FirstTurn: 3, LastTurn: 10}
		for turn := 1; turn <= 10; turn++ {
			p := math.Round(100*r.Float64()) / 100 // some are equal
			if turn == d.Gold {
				p = math.Round(50+50*r.Float64()) / 100
			}
			pt := Point{Turn: turn, P: p, No: 1 - p, Share: p, Mass: 1}
			for k := range 20 {
				pt.Top = append(pt.Top, infer.TokenLogprob{Token: fmt.Sprint("token", k), Logprob: -float64(k) - 0.123456789})
			}
			d.Curve, d.Lengths = append(d.Curve, pt), append(d.Lengths, 20+turn)
		}
		d.Predicted, _ = firstYes(d.Curve, 3)
		data, err := json.Marshal(d)
		if err != nil {
			tb.Fatal(err)
		}
		ss = append(ss, run.Sample{Key: run.Key{Step: StepDecide, Item: fmt.Sprint(i), Condition: "stream"}, Data: data})
	}
	return ss
}

// bySorting computes what Score does, every resample put together and sorted anew.
func bySorting(tb testing.TB, ds []Decision, boot stats.Bootstrap) (auroc, ece, brierScore, skill stats.Estimate) {
	tb.Helper()
	var per [][]asked
	var dialogues []string
	var turns []asked
	var contexts []string
	for _, d := range ds {
		var one []asked
		for _, p := range d.Curve {
			if p.Turn <= d.Gold {
				one = append(one, asked{p.Share, p.Turn == d.Gold, d.Context})
			}
		}
		per, dialogues = append(per, one), append(dialogues, d.Context)
		for _, a := range askedTurns(d) {
			turns, contexts = append(turns, a), append(contexts, a.context)
		}
	}
	must := func(e stats.Estimate, err error) stats.Estimate {
		if err != nil {
			tb.Fatal(err)
		}
		return e
	}
	auroc = must(boot.Statistic(func(idx []int) float64 {
		var scores []float64
		var labels []bool
		for _, i := range idx {
			for _, a := range per[i] {
				scores, labels = append(scores, a.p), append(labels, a.gold)
			}
		}
		a, err := stats.AUROC(scores, labels)
		if err != nil {
			return math.NaN()
		}
		return a
	}, dialogues))
	of := func(f func(p, y []float64) float64) stats.Estimate {
		return must(boot.Statistic(func(idx []int) float64 {
			p, y := make([]float64, len(idx)), make([]float64, len(idx))
			for k, i := range idx {
				p[k], y[k] = turns[i].p, indicator(turns[i].gold)
			}
			return f(p, y)
		}, contexts))
	}
	bins := min(calibrationBins, len(turns)/leastInBin)
	ece = of(func(p, y []float64) float64 { return calibrationError(reliability(p, y, bins)) })
	brierScore = of(brier)
	skill = of(func(p, y []float64) float64 { b := baseRate(y); return 1 - brier(p, y)/(b*(1-b)) })
	return auroc, ece, brierScore, skill
}

func TestResamplesWithoutSortingAreTheSame(t *testing.T) {
	for _, n := range []int{20, 33, 150} {
		ss := many(t, n)
		m, err := Score(answers(t, ss), ScoreOptions{Seed: 3, Resamples: 300})
		if err != nil {
			t.Fatal(err)
		}
		ds := scoredDecisions(t, ss)
		auroc, ece, brierScore, skill := bySorting(t, ds, stats.Bootstrap{Seed: 3, Resamples: 300})
		for what, pair := range map[string][2]stats.Estimate{"AUROC": {m.AUROC.Model, auroc}, "ECE": {m.Calibration.ECE, ece}, "Brier": {m.Calibration.Brier, brierScore}, "skill": {m.Calibration.Skill, skill}} {
			got, want := pair[0], pair[1]
			if math.Abs(got.Value-want.Value) > 1e-12 || math.Abs(got.Lo-want.Lo) > 1e-12 || math.Abs(got.Hi-want.Hi) > 1e-12 || got.N != want.N || got.Groups != want.Groups {
				t.Errorf("%s of %d dialogues: %+v, sorted anew %+v", what, n, got, want)
			}
		}
	}
}

// The mean error of right probabilities is that of bins made anew in every draw.
func TestErrorIfCalibratedKeepsItsBins(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	p := make([]float64, 300)
	for i := range p {
		p[i] = math.Round(20*r.Float64()) / 20
	}
	draw := rand.New(rand.NewPCG(5, 0))
	sum := 0.0
	for range 200 {
		y := make([]float64, len(p))
		for i := range y {
			y[i] = indicator(draw.Float64() < p[i])
		}
		sum += calibrationError(reliability(p, y, 10))
	}
	if got := errorIfCalibrated(p, 10, 5); math.Abs(got-sum/200) > 1e-12 {
		t.Errorf("%v, want %v", got, sum/200)
	}
}

// go test -run xxx -bench 'Score|BySorting' -benchtime 1x -benchmem ./bench/timing
func BenchmarkScore(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		ss := answers(b, many(b, n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if _, err := Score(ss, ScoreOptions{Seed: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBySorting is what the measures of BenchmarkScore took when every resample was
// sorted.
func BenchmarkBySorting(b *testing.B) {
	ds := scoredDecisions(b, many(b, 1000))
	for b.Loop() {
		bySorting(b, ds, stats.Bootstrap{Seed: 1, Resamples: 10_000})
	}
}

func calibrationError(bins []Bin) float64 {
	sum, n := 0.0, 0
	for _, b := range bins {
		sum += float64(b.N) * max(b.Mean-b.Share, b.Share-b.Mean)
		n += b.N
	}
	return sum / float64(n)
}

// brier adds squares as they are, so that rounding leaves it within 0..1: a sum of n
// numbers that are at most 1 is at most n.
func brier(p, y []float64) float64 {
	sum := 0.0
	for i := range p {
		d := p[i] - y[i]
		sum += d * d
	}
	return sum / float64(len(p))
}
