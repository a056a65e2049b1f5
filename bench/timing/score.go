package timing

import (
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/stats"
)

// ScoreOptions set the resampling of Score.
type ScoreOptions struct {
	Seed       uint64
	Resamples  int // of bootstrap and permutation; 0 means 10,000
	Confidence float64
	// Dimensions names each item's value dimension, for accuracy by dimension; nil
	// where the records are not at hand.
	Dimensions map[string]string
}

// Degenerate is what a constant answer is called: no interval and no V is
// computed from it.
const Degenerate = "same answer"

// Metrics is what a timing run measured. A pointer that is nil was not
// computed: Notes say why.
type Metrics struct {
	Mode     Mode           `json:"mode"`
	N        int            `json:"n"` // dialogues
	Scored   int            `json:"scored"`
	Unscored map[string]int `json:"unscored,omitempty"` // reasons
	// Cut counts, by step, the generated texts that end at their cap of tokens, of all
	// whose end is known: reasoning, and lines of a tuned model.
	Cut map[string]Rate `json:"cut,omitempty"`
	// Correct of Scored predictions are the conflict turn; none counts as wrong.
	Correct int             `json:"correct"`
	TurnAcc *stats.Estimate `json:"turn_acc,omitempty"`
	// Bounds are TurnAcc of all N dialogues with the unscored ones counted as wrong and
	// as right, where there are any.
	Bounds       *stats.Range `json:"turn_acc_bounds,omitempty"`
	WithinOne    int          `json:"within_one"`
	NoPrediction int          `json:"no_prediction"`
	// SignedError is the mean of predicted minus gold over predictions made.
	SignedError *stats.Estimate `json:"signed_error,omitempty"`
	Predicted   map[int]int     `json:"predicted"` // turn (0: none) to count
	PerTurn     map[int]Rate    `json:"per_turn"`
	PerStage    map[string]Rate `json:"per_stage"`
	// PerDimension is by value dimension, where ScoreOptions name it.
	PerDimension map[string]Rate     `json:"per_dimension,omitempty"`
	Confusion    map[int]map[int]int `json:"confusion"` // gold, predicted
	// V is Cramér's V of predicted against gold turn.
	V *Association `json:"v,omitempty"`
	// AUROC compares, within a dialogue, the conflict turn with the turns before.
	AUROC *Separation `json:"auroc,omitempty"`
	// Aligned is the mean curve around the conflict turn.
	Aligned []Aligned `json:"aligned,omitempty"`
	// Calibration holds the probabilities against how often they are right.
	Calibration *Calibration `json:"calibration,omitempty"`
	// DegenerateAnswer names the answer that more than 90 % share, if any.
	DegenerateAnswer string   `json:"degenerate,omitempty"`
	Contexts         int      `json:"contexts"`
	Notes            []string `json:"notes,omitempty"`
	items            map[string]bool
}

// ScoredItems names the dialogues that were scored.
func (m Metrics) ScoredItems() map[string]bool { return m.items }

// Rate is k of n right predictions.
type Rate struct {
	K int `json:"k"`
	N int `json:"n"`
	// Acc is K/N with its interval over scenario contexts. It is nil for a constant
	// answer, and with fewer than five contexts, of which a drawn interval would be far
	// too narrow; an exact one is not.
	Acc *stats.Estimate `json:"acc,omitempty"`
}

// Association is Cramér's V, raw and with Bergsma's correction, and its
// permutation p.
type Association struct {
	Raw       float64 `json:"raw"`
	Corrected float64 `json:"corrected"`
	P         float64 `json:"p"`
}

// Separation is how well the model's probability tells the conflict turn from
// the turns before it, over all turns up to the conflict turn, without any
// threshold. Position and Length are what the turn's number and its length
// alone reach on the same turns.
type Separation struct {
	Model    stats.Estimate `json:"model"`  // pooled over dialogues
	Within   stats.Estimate `json:"within"` // mean of the dialogues' own AUROC
	Position float64        `json:"position"`
	Length   float64        `json:"length"`
	Turns    int            `json:"turns"`
}

// Score computes the metrics of a timing run from its answers.
func Score(a Answers, o ScoreOptions) (Metrics, error) {
	if o.Resamples == 0 {
		o.Resamples = 10_000
	}
	m := Metrics{N: len(a.Decided), Cut: a.Cut, Unscored: map[string]int{}, Predicted: map[int]int{}, Confusion: map[int]map[int]int{}, items: map[string]bool{}}
	var ds []Decision
	var dimensions []string
	contexts := map[string]bool{}
	for _, d := range a.Decided {
		m.Mode = d.Mode
		if d.Unscored != "" {
			m.Unscored[d.Unscored]++
			continue
		}
		ds = append(ds, d.Decision)
		m.items[d.Key.Item] = true
		dimensions = append(dimensions, o.Dimensions[d.Key.Item])
		contexts[d.Context] = true
	}
	m.Scored, m.Contexts = len(ds), len(contexts)
	if m.Scored == 0 {
		m.Notes = append(m.Notes, "no dialogue was scored: nothing is computed")
		return m, nil
	}
	var hits, errs []float64
	var hitGroups, errGroups []string
	var gold, pred []int
	for _, d := range ds {
		hit := d.Predicted == d.Gold
		m.Predicted[d.Predicted]++
		if m.Confusion[d.Gold] == nil {
			m.Confusion[d.Gold] = map[int]int{}
		}
		m.Confusion[d.Gold][d.Predicted]++
		v := 0.0
		if hit {
			v, m.Correct = 1, m.Correct+1
		}
		hits, hitGroups = append(hits, v), append(hitGroups, d.Context)
		gold, pred = append(gold, d.Gold), append(pred, d.Predicted)
		if d.Predicted == 0 {
			m.NoPrediction++
			continue
		}
		errs, errGroups = append(errs, float64(d.Predicted-d.Gold)), append(errGroups, d.Context)
		if e := d.Predicted - d.Gold; e >= -1 && e <= 1 {
			m.WithinOne++
		}
	}
	m.Bounds = m.bounds(m.Correct)
	boot := stats.Bootstrap{Resamples: o.Resamples, Seed: o.Seed}
	m.DegenerateAnswer = Constant(pred)
	var groupBoot *stats.Bootstrap // of a constant answer there is no interval
	if m.DegenerateAnswer == "" {
		groupBoot = &boot
	}
	var err error
	if m.PerTurn, err = rates(ds, func(i int) int { return ds[i].Gold }, groupBoot); err != nil {
		return m, err
	}
	if m.PerStage, err = rates(ds, func(i int) string { return ds[i].Stage }, groupBoot); err != nil {
		return m, err
	}
	if m.PerDimension, err = rates(ds, func(i int) string { return dimensions[i] }, groupBoot); err != nil {
		return m, err
	}
	if groupBoot == nil {
		m.Notes = append(m.Notes, Degenerate+" "+m.DegenerateAnswer+": no interval, V, curve or AUROC is computed from it")
		return m, nil
	}
	acc, err := boot.Share(hits, hitGroups)
	if err != nil {
		return m, fmt.Errorf("interval of TurnAcc: %w", err)
	}
	m.TurnAcc = &acc
	if len(errs) > 0 {
		e, err := boot.Mean(errs, errGroups)
		if err != nil {
			return m, fmt.Errorf("interval of the signed error: %w", err)
		}
		m.SignedError = &e
	}
	if v, ok := stats.CramersV(gold, pred); ok {
		p, err := stats.CramersVPermutation(gold, pred, o.Resamples, o.Seed)
		if err != nil {
			return m, fmt.Errorf("permutation test of V: %w", err)
		}
		m.V = &Association{v.Raw, v.Corrected, p}
	} else {
		m.Notes = append(m.Notes, "V is undefined: predictions or gold turns are constant")
	}
	if m.Aligned, err = aligned(ds, boot); err != nil {
		return m, err
	}
	if m.AUROC, err = separation(ds, boot); err != nil {
		return m, err
	}
	m.Calibration, err = calibration(ds, boot)
	return m, err
}

// Constant says for how many dialogues more than 90 % of predicted turns (0: none) are the
// same, and which: "for all 12 dialogues (never steps in)". It is "" where they differ. Of a constant one no table and no export says more than how
// often it is right.
func Constant(predicted []int) string {
	turn, most := stats.MajorityShare(predicted)
	if most <= stats.DegenerateShare {
		return ""
	}
	answer := fmt.Sprintf("steps in after turn %d", turn)
	if turn == 0 {
		answer = "never steps in"
	}
	many := fmt.Sprintf("all %d", len(predicted))
	if most < 1 {
		many = fmt.Sprintf("%.0f of %d", most*float64(len(predicted)), len(predicted))
	}
	return fmt.Sprintf("for %s dialogues (%s)", many, answer)
}

// bounds are those of a share of all dialogues of which k are counted: nil without
// unscored ones.
func (m Metrics) bounds(k int) *stats.Range {
	if m.N == m.Scored {
		return nil
	}
	return &stats.Range{Lo: float64(k) / float64(m.N), Hi: float64(k+m.N-m.Scored) / float64(m.N), N: m.N}
}

// leastContexts is how many scenario contexts a group's interval needs.
const leastContexts = 5

// rates groups predictions by a key; those with the zero key are left out. Without
// a bootstrap there are no intervals.
func rates[K comparable](ds []Decision, key func(i int) K, boot *stats.Bootstrap) (map[K]Rate, error) {
	hits, groups := map[K][]float64{}, map[K][]string{}
	out := map[K]Rate{}
	var none K
	for i, d := range ds {
		k := key(i)
		if k == none {
			continue
		}
		r := out[k]
		r.N++
		hit := 0.0
		if d.Predicted == d.Gold {
			hit, r.K = 1, r.K+1
		}
		out[k], hits[k], groups[k] = r, append(hits[k], hit), append(groups[k], d.Context)
	}
	for k, r := range out {
		if boot == nil {
			continue
		}
		e, err := boot.Share(hits[k], groups[k])
		if err != nil {
			return nil, fmt.Errorf("interval of TurnAcc of %v: %w", k, err)
		}
		if e.Exact || e.Groups >= leastContexts {
			r.Acc = &e
			out[k] = r
		}
	}
	return out, nil
}

// separation compares turns up to the conflict turn: what comes later is
// conflict too. Dialogues with an unusable answer among them, or a turn of unknown
// length, are left out.
func separation(ds []Decision, boot stats.Bootstrap) (*Separation, error) {
	type turns struct {
		scores, pos, lens []float64
		labels            []bool
	}
	var per []turns
	var groups []string
	var all turns
	for _, d := range ds {
		var t turns
		usable := true
		for _, p := range d.Curve {
			if p.Turn > d.Gold {
				break
			}
			if usable = usable && p.Unscored == "" && p.Turn <= len(d.Lengths); !usable {
				break
			}
			t.scores, t.pos = append(t.scores, p.Share), append(t.pos, float64(p.Turn))
			t.lens, t.labels = append(t.lens, float64(d.Lengths[p.Turn-1])), append(t.labels, p.Turn == d.Gold)
		}
		if !usable || len(t.labels) < 2 {
			continue
		}
		per, groups = append(per, t), append(groups, d.Context)
		all.scores, all.pos = append(all.scores, t.scores...), append(all.pos, t.pos...)
		all.lens, all.labels = append(all.lens, t.lens...), append(all.labels, t.labels...)
	}
	if len(per) == 0 {
		return nil, nil
	}
	out := &Separation{Turns: len(all.labels)}
	var within []float64
	for _, t := range per {
		a, err := stats.AUROC(t.scores, t.labels)
		if err != nil {
			return nil, fmt.Errorf("AUROC within a dialogue: %w", err)
		}
		within = append(within, a)
	}
	w, err := boot.Share(within, groups)
	if err != nil {
		return nil, fmt.Errorf("interval of the AUROC within dialogues: %w", err)
	}
	out.Within = w
	dialogue := stats.GroupNumbers(groups)
	of := make([]int, 0, len(all.labels)) // each turn's context
	for i, t := range per {
		of = append(of, slices.Repeat([]int{dialogue[i]}, len(t.labels))...)
	}
	ranked, err := stats.NewRanked(all.scores, all.labels, of)
	if err != nil {
		return nil, fmt.Errorf("AUROC: %w", err)
	}
	if out.Model, err = boot.Counted(ranked.AUROC, groups); err != nil {
		return nil, fmt.Errorf("interval of the AUROC: %w", err)
	}
	if out.Position, err = stats.AUROC(all.pos, all.labels); err != nil {
		return nil, fmt.Errorf("AUROC of position: %w", err)
	}
	if out.Length, err = stats.AUROC(all.lens, all.labels); err != nil {
		return nil, fmt.Errorf("AUROC of length: %w", err)
	}
	return out, nil
}

// stagesInOrder lists the stages that a map of rates has, in DMIS order.
func stagesInOrder(m map[string]Rate) []string {
	var out []string
	for s := dmis.Denial; s <= dmis.Integration; s++ {
		if _, ok := m[s.String()]; ok {
			out = append(out, s.String())
		}
	}
	return out
}
