package run

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/infer"
)

// ModelChange says that another model answered a role at the end of a step than
// the run's identity names: samples before and after it are of two models.
type ModelChange struct {
	Role  string `json:"role"`
	Step  string `json:"step"`
	Field string `json:"field"` // "digest", "template_hash" or "quantization"
	Was   string `json:"was"`
	Is    string `json:"is"`
}

func (c ModelChange) String() string {
	return fmt.Sprintf("the %s of the %s changed before the end of step %s: it was %s and is %s", c.Field, c.Role, c.Step, brief(c.Was), brief(c.Is))
}

// ModelChangedError reports a run whose model was replaced while it ran. Its
// manifest says so from then on.
type ModelChangedError struct{ Changes []ModelChange }

func (e *ModelChangedError) Error() string {
	var all []string
	for _, c := range e.Changes {
		all = append(all, c.String())
	}
	return strings.Join(all, "; ") + "; the samples may be of two models, so start a new run"
}

// unchanged asks anew which models answer a step's roles, and marks the session when one
// is not that of the identity.
func (x *execution[I]) unchanged(ctx context.Context, s Step[I]) error {
	if x.options.Identify == nil || len(s.roles()) == 0 || !slices.Equal(x.openRoles, s.roles()) || ctx.Err() != nil {
		return nil
	}
	var changes []ModelChange
	for _, role := range s.roles() {
		was, known := x.dir.manifest.Identity.Models[role]
		if !known {
			continue
		}
		is, err := x.options.Identify(ctx, role)
		if err != nil {
			return fmt.Errorf("ask at the end of step %s which model answered it: %w", s.Name, err)
		}
		for _, f := range []struct {
			name string
			of   func(infer.Model) string
		}{
			{"digest", func(m infer.Model) string { return m.Digest }},
			{"template_hash", func(m infer.Model) string { return m.TemplateHash }},
			{"quantization", func(m infer.Model) string { return m.Quantization }},
		} {
			if a, b := f.of(was), f.of(is); a != b {
				changes = append(changes, ModelChange{role, s.Name, f.name, a, b})
			}
		}
	}
	if len(changes) == 0 {
		return nil
	}
	x.dir.mu.Lock()
	session := &x.dir.manifest.Sessions[len(x.dir.manifest.Sessions)-1]
	session.ModelChanged = append(session.ModelChanged, changes...)
	x.dir.mu.Unlock()
	return &ModelChangedError{changes}
}

// ModelChanges returns the changes of models in all sessions.
func (m Manifest) ModelChanges() []ModelChange {
	var out []ModelChange
	for _, s := range m.Sessions {
		out = append(out, s.ModelChanged...)
	}
	return out
}
