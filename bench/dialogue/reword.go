package dialogue

import "slices"

// Reword returns the dialogue with every unmediated message replaced by what f
// makes of it; nothing else changes, and d stays as it is.
func (d Dialogue) Reword(f func(message string) string) Dialogue {
	d.prefix, d.original = slices.Clone(d.prefix), slices.Clone(d.original)
	for _, turns := range [][]Turn{d.prefix, d.original} {
		for i := range turns {
			turns[i].Message = f(turns[i].Message)
		}
	}
	return d
}
