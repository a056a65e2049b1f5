package fleet

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// Edits are changes of a model's residual stream, learnt from its hidden states.
type Edits struct {
	Model   string // whose states they were learnt from
	Weights string // digest of that model's weights
	Edits   []infer.Edit
}

// useEdits reads --edit, which changes the model that is measured: every other role's stays
// as it is, also where it is the same.
func (f *Fleet) useEdits() error {
	if len(f.flags.Edits) == 0 {
		return nil
	}
	s, ok := f.roles[f.env.Subject]
	switch {
	case !ok || f.env.Edits == nil:
		return usage.Errorf("--edit: this command asks no model that could be edited")
	case s.backend != "embedded":
		return usage.Errorf("--edit changes a model in the embedded engine, and %s is none; give --backend embedded", s)
	}
	for _, given := range f.flags.Edits {
		edits, err := f.env.readEdits(given)
		if err != nil {
			return err
		}
		f.edits = append(f.edits, *edits)
	}
	s.edits = strings.Join(f.flags.Edits, "\n")
	f.roles[f.env.Subject] = s
	return nil
}

// ParseEdit reads a value of --edit: FILE,CLASS,DOSE, where the name of the file may hold
// commas.
func ParseEdit(given string) (path, class string, dose float64, err error) {
	parts := strings.Split(given, ",")
	n := len(parts)
	if n < 3 || parts[n-2] == "" {
		return "", "", 0, usage.Errorf("--edit %q; it must be FILE,CLASS,DOSE, for example stage.edit,Denial,2", given)
	}
	if dose, err = strconv.ParseFloat(parts[n-1], 64); err != nil {
		return "", "", 0, usage.Errorf("--edit %q: the dose %q is no number", given, parts[n-1])
	}
	return strings.Join(parts[:n-2], ","), parts[n-2], dose, nil
}

// readEdits reads what a value of --edit names.
func (e Env) readEdits(given string) (*Edits, error) {
	path, class, dose, err := ParseEdit(given)
	if err != nil {
		return nil, err
	}
	edits, err := e.Edits(path, class, dose)
	if err != nil {
		return nil, usage.Errorf("--edit %q: %w", given, err)
	}
	return edits, nil
}

// openEdited opens the model of a role with its edits. Where the same weights are open
// already, they are shared.
func (f *Fleet) openEdited(ctx context.Context, s spec) (infer.Backend, error) {
	plain, shared := f.shared(s)
	if !shared {
		b, err := f.openEmbedded(ctx, s)
		if err != nil || s.edits == "" {
			return b, err
		}
		plain = b.(*llamacpp.Engine)
	}
	var edits []infer.Edit
	if s.edits != "" {
		m, err := plain.Model(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w%s", err, closing(plain, shared))
		}
		for i, x := range f.edits {
			if x.Weights != m.Digest {
				return nil, usage.Errorf("--edit %q was learnt from the states of %s (%s), and %s is %s; learn it from this model's%s", f.flags.Edits[i],
					x.Model, infer.ShortDigest(x.Weights), m.Name, infer.ShortDigest(m.Digest), closing(plain, shared))
			}
			edits = append(edits, x.Edits...)
		}
	}
	e, err := plain.Edited(edits)
	if err != nil {
		return nil, fmt.Errorf("edit %s: %w%s", s, err, closing(plain, shared))
	}
	if problem := closing(plain, shared); problem != "" {
		f.env.Note("%s%s", s, problem)
	}
	return e, nil
}

// shared returns an open engine that holds the weights of a model.
func (f *Fleet) shared(s spec) (*llamacpp.Engine, bool) {
	for _, t := range f.sameWeights(s) {
		if e, ok := f.open[t].bare[0].(*llamacpp.Engine); ok {
			return e, true
		}
	}
	return nil, false
}

// sameWeights are the open models that differ from one in their edits alone.
func (f *Fleet) sameWeights(s spec) (out []spec) {
	for t := range f.open {
		if t.plain() == s.plain() && s.backend == "embedded" {
			out = append(out, t)
		}
	}
	return out
}
