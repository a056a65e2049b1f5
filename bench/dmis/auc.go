package dmis

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNoTurn reports a trajectory without a labelled turn after the
// intervention: its AUC is unscored.
var ErrNoTurn = errors.New("dmis: no labelled turn after the intervention")

// Point is the position of the conflict speaker after a turn, of the most
// probable stage or expected over the stage distribution.
type Point struct {
	Turn     int
	Position float64
}

// StageAt is the stage of the conflict speaker after a turn.
type StageAt struct {
	Turn  int
	Stage Stage
}

// AUC returns the area under the change of position after an intervention, as
// the CC-Mediation study defines it (arXiv 2609.04855): with τ = (t−tInt)/(last−tInt)
// and δ = position − pre, the trapezoid rule over τ in 0..1, the first δ carried
// back to τ = 0 and the last one on to τ = 1. One point gives its own δ.
//
// pre is the position at the conflict turn before any mediation, tInt the turn
// that the mediator speaks after, last the dialogue's last turn. Points may come
// in any order; their turns must lie in tInt+1..last and differ. To measure the
// speaker's own turns only, give only those. Without any point, or when tInt ≥
// last, the error is ErrNoTurn.
func AUC(pre float64, tInt, last int, points []Point) (float64, error) {
	if tInt >= last {
		return 0, fmt.Errorf("%w: the mediator speaks after turn %d of %d", ErrNoTurn, tInt, last)
	}
	if len(points) == 0 {
		return 0, ErrNoTurn
	}
	ps := slices.Clone(points)
	slices.SortFunc(ps, func(a, b Point) int { return cmp.Compare(a.Turn, b.Turn) })
	for i, p := range ps {
		switch {
		case p.Turn <= tInt || p.Turn > last:
			return 0, fmt.Errorf("dmis: a trajectory point lies at turn %d, outside of %d..%d", p.Turn, tInt+1, last)
		case i > 0 && ps[i-1].Turn == p.Turn:
			return 0, fmt.Errorf("dmis: two trajectory points lie at turn %d", p.Turn)
		case math.IsNaN(p.Position) || math.IsInf(p.Position, 0):
			return 0, fmt.Errorf("dmis: the position at turn %d is %v", p.Turn, p.Position)
		}
	}
	if math.IsNaN(pre) || math.IsInf(pre, 0) {
		return 0, fmt.Errorf("dmis: the position before the mediation is %v", pre)
	}
	span := float64(last - tInt)
	tau := func(turn int) float64 { return float64(turn-tInt) / span }
	first, end := ps[0], ps[len(ps)-1]
	area := tau(first.Turn)*(first.Position-pre) + (1-tau(end.Turn))*(end.Position-pre)
	for i := 1; i < len(ps); i++ {
		a, b := ps[i-1], ps[i]
		area += (tau(b.Turn) - tau(a.Turn)) * ((a.Position - pre) + (b.Position - pre)) / 2
	}
	return area, nil
}

// StageAUC is AUC over stages on a scale.
func StageAUC(pre Stage, tInt, last int, points []StageAt, c Scale) (float64, error) {
	if !pre.Valid() {
		return 0, fmt.Errorf("dmis: the stage before the mediation is %v; stages are 0..5", pre)
	}
	ps := make([]Point, len(points))
	for i, p := range points {
		if !p.Stage.Valid() {
			return 0, fmt.Errorf("dmis: the stage at turn %d is %v; stages are 0..5", p.Turn, p.Stage)
		}
		ps[i] = Point{p.Turn, c.Position(p.Stage)}
	}
	return AUC(c.Position(pre), tInt, last, ps)
}
