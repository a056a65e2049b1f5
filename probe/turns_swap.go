package probe

func (f *turnFinder) swap(rows []int, layers []*LayerResult, words *LayerResult) error {
	out := &SwapFindings{}
	unedited := map[string]int{} // row by item
	for _, i := range f.at[KindScripted] {
		unedited[f.rows[i].Item] = i
	}
	shares := func(r *LayerResult) (*SwapShares, error) {
		part, err := f.part(r, rows)
		if err != nil {
			return nil, err
		}
		var s SwapShares
		if s.Follow, err = shareOf(part.named(func(i int) int { return f.rows[i].To }), f.r); err != nil {
			return nil, err
		}
		if s.Stay, err = shareOf(part.named(func(i int) int { return f.rows[i].Label }), f.r); err != nil {
			return nil, err
		}
		// Three stages: what is neither a nor b is the third.
		s.Third, err = shareOf(part.named(func(i int) int { return turnClasses - f.rows[i].Label - f.rows[i].To }), f.r)
		return &s, err
	}
	var moved []Outcomes
	for _, r := range layers {
		s, err := shares(r)
		if err != nil {
			return err
		}
		d, err := f.moved(r, rows, unedited)
		if err != nil {
			return err
		}
		e, err := d.Test(f.r)
		if err != nil {
			return err
		}
		moved, out.Moved = append(moved, d), append(out.Moved, e)
		out.N = s.Follow.N
		out.Follow, out.Stay, out.Third = append(out.Follow, s.Follow), append(out.Stay, s.Stay), append(out.Third, s.Third)
	}
	if words != nil {
		s, err := shares(words)
		if err != nil {
			return err
		}
		out.Words = s
	}
	var err error
	out.MovedAdjusted, err = MaxStatistic(moved, f.r)
	f.Swap = out
	return err
}

// moved returns, for each swapped turn, whether it is predicted as stage b minus
// whether it was before.
func (f *turnFinder) moved(r *LayerResult, swapped []int, unedited map[string]int) (Outcomes, error) {
	tested, to := map[int]bool{}, map[int]int{}
	for _, i := range r.tested {
		tested[i] = true
	}
	var after, before []int
	for _, i := range swapped {
		j, ok := unedited[f.rows[i].Item]
		if !ok || !tested[i] || !tested[j] {
			continue
		}
		after, before = append(after, i), append(before, j)
		to[i], to[j] = f.rows[i].To, f.rows[i].To
	}
	a, err := f.on(r, after)
	if err != nil {
		return Outcomes{}, err
	}
	b, err := f.on(r, before)
	if err != nil {
		return Outcomes{}, err
	}
	follows := func(i int) int { return to[i] }
	return a.named(follows).Minus(b.named(follows))
}
