package probe

import (
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/linear"
)

func (f *turnFinder) unscripted(rows []int, results [][]*LayerResult, words *LayerResult) error {
	out := &UnscriptedFindings{PerClass: map[string]int{}, Outside: map[string]int{}}
	first, err := f.part(results[0][0], rows)
	if err != nil {
		return err
	}
	y := linear.At(f.all.Y, first.tested)
	out.N = len(y)
	contexts := map[string]bool{}
	repeated := 0
	for _, i := range first.tested {
		contexts[f.rows[i].Group] = true
		out.PerClass[dmis.Stage(f.rows[i].Label).String()]++
		if f.rows[i].Label == f.rows[i].Script {
			repeated++
		}
	}
	out.Contexts, out.Chance = len(contexts), 1/float64(len(out.PerClass))
	out.RepeatedLabels = float64(repeated) / float64(out.N)
	_, out.Majority = stats.MajorityShare(y)
	var byWords *LayerResult
	if words != nil {
		if byWords, err = f.part(words, rows); err != nil {
			return err
		}
		w := &WordFindings{Accuracy: byWords.Accuracy, Recall: byWords.recalls()}
		if w.Balanced, err = byWords.statistic(balanced, f.r); err != nil {
			return err
		}
		if w.MacroF1, err = byWords.statistic(macroF1, f.r); err != nil {
			return err
		}
		out.Words = w
	}
	var chances, beyond []Outcomes
	for _, r := range results[0] {
		part, err := f.part(r, rows)
		if err != nil {
			return err
		}
		b, err := part.statistic(balanced, f.r)
		if err != nil {
			return err
		}
		m, err := part.statistic(macroF1, f.r)
		if err != nil {
			return err
		}
		repeats, err := shareOf(part.named(func(i int) int { return f.rows[i].Script }), f.r)
		if err != nil {
			return err
		}
		out.Balanced, out.MacroF1, out.Repeats = append(out.Balanced, b), append(out.MacroF1, m), append(out.Repeats, repeats)
		out.Accuracy, out.Recall = append(out.Accuracy, part.Accuracy), append(out.Recall, part.recalls())
		chances = append(chances, part.balancedHits(out.Chance))
		if byWords == nil {
			continue
		}
		d, err := part.balancedHits(0).Minus(byWords.balancedHits(0))
		if err != nil {
			return err
		}
		e, err := d.Test(f.r)
		if err != nil {
			return err
		}
		beyond, out.Beyond = append(beyond, d), append(out.Beyond, e)
	}
	if out.ChanceAdjusted, err = MaxStatistic(chances, f.r); err != nil {
		return err
	}
	if out.BeyondAdjusted, err = MaxStatistic(beyond, f.r); err != nil {
		return err
	}
	out.Shuffled, err = f.meanOver(results[1:], rows, func(r *LayerResult) float64 { return r.balancedHits(0).Mean() })
	f.Unscripted = out
	return err
}
