package probe

import (
	"math"

	"github.com/ccmed/ccmed/probe/linear"
)

// LayerResult is what probes of one layer found, over all splits.
type LayerResult struct {
	Layer        string                `json:"layer"`
	linear.Score                       // mean over rounds
	Reliability  []Bin                 `json:"reliability"` // over rounds together
	C            []float64             `json:"c"`           // chosen, one a split
	Inner        []linear.Score        `json:"inner"`       // on the inner part at that C, one a split
	Rounds       []*linear.Predictions `json:"-"`           // held-out predictions of every sample; NaN where it never was
	// TopShare is, of a Transfer, the mean over splits of the share of the most frequent
	// prediction: near 1, the accuracy says nothing of the direction.
	TopShare float64 `json:"-"`
	samples  Samples
	tested   []int
	width    float64 // see Outcomes
}

// Tested returns the rows that were held out in every round, in order.
func (r *LayerResult) Tested() []int { return r.tested }

// Hits returns how often each tested row was predicted right, as a share of
// rounds, 0..1: what paired differences are made of.
func (r *LayerResult) Hits() []float64 {
	return r.perRow(func(p *linear.Predictions, i int) float64 {
		if p.Argmax(i) == r.samples.Y[i] {
			return 1
		}
		return 0
	})
}

// LogLosses returns the mean log-loss of each tested row in nats.
func (r *LayerResult) LogLosses() []float64 {
	return r.perRow(func(p *linear.Predictions, i int) float64 { return logLoss(p.Row(i)[r.samples.Y[i]]) })
}

// TestedGroups returns the group of each tested row.
func (r *LayerResult) TestedGroups() []string { return linear.At(r.samples.Groups, r.tested) }

func logLoss(p float64) float64 { return -math.Log(math.Max(p, 0x1p-52)) }

func (r *LayerResult) perRow(value func(p *linear.Predictions, i int) float64) []float64 {
	out := make([]float64, len(r.tested))
	for k, i := range r.tested {
		for _, p := range r.Rounds {
			out[k] += value(p, i)
		}
		out[k] /= float64(len(r.Rounds)) // a sum of parts could exceed 1 by rounding
	}
	return out
}

// Bin is one bin of a reliability diagram, by the probability of the predicted class.
type Bin struct {
	N          int     `json:"n"`
	Confidence float64 `json:"confidence"` // mean; 0 in an empty bin
	Accuracy   float64 `json:"accuracy"`
}

// reliabilityBins divide 0..1 evenly.
const reliabilityBins = 10

// CalibrationError is the mean distance of confidence and accuracy, weighted by
// the bins' numbers (Naeini, Cooper and Hauskrecht 2015).
func CalibrationError(bins []Bin) float64 {
	sum, n := 0.0, 0
	for _, b := range bins {
		sum += float64(b.N) * math.Abs(b.Confidence-b.Accuracy)
		n += b.N
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

func newLayerResult(s Samples, splits []Split) *LayerResult {
	r := &LayerResult{samples: s}
	held := make([]int, len(s.Y))
	rounds := 0
	for _, split := range splits {
		rounds = max(rounds, split.Round+1)
		for _, i := range split.Test {
			held[i]++
		}
	}
	r.width = refitWidth(splits, rounds)
	for i, times := range held {
		if times == rounds {
			r.tested = append(r.tested, i)
		}
	}
	for range rounds {
		p := make([]float64, len(s.Y)*s.Classes)
		for i := range p {
			p[i] = math.NaN()
		}
		r.Rounds = append(r.Rounds, &linear.Predictions{Classes: s.Classes, P: p})
	}
	return r
}

// keep puts the predictions of a split's held-out rows in their places.
func (r *LayerResult) keep(split Split, held *linear.Predictions) {
	for k, i := range split.Test {
		copy(r.Rounds[split.Round].Row(i), held.Row(k))
	}
}

// score computes the figures from the predictions.
func (r *LayerResult) score() error {
	y := linear.At(r.samples.Y, r.tested)
	r.Reliability = make([]Bin, reliabilityBins)
	r.Score = linear.Score{N: len(y)}
	for _, p := range r.Rounds {
		held := &linear.Predictions{Classes: p.Classes}
		for _, i := range r.tested {
			held.P = append(held.P, p.Row(i)...)
		}
		score, err := held.Score(y)
		if err != nil {
			return err
		}
		r.Accuracy += score.Accuracy
		r.MacroF1 += score.MacroF1
		r.LogLoss += score.LogLoss
		r.Brier += score.Brier
		for k, label := range y {
			guess := held.Argmax(k)
			confidence := held.Row(k)[guess]
			bin := &r.Reliability[min(int(confidence*reliabilityBins), reliabilityBins-1)]
			bin.N++
			bin.Confidence += confidence
			if guess == label {
				bin.Accuracy++
			}
		}
	}
	for _, sum := range []*float64{&r.Accuracy, &r.MacroF1, &r.LogLoss, &r.Brier} {
		*sum /= float64(len(r.Rounds))
	}
	for k := range r.Reliability {
		if bin := &r.Reliability[k]; bin.N > 0 {
			bin.Confidence /= float64(bin.N)
			bin.Accuracy /= float64(bin.N)
		}
	}
	return nil
}
