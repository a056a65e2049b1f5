package run

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

func TestAModelThatChangesMarksTheRun(t *testing.T) {
	for name, c := range map[string]struct {
		is      infer.Model
		changed bool
	}{
		"the same":         {infer.Model{Digest: "sha256:one", Server: "another version"}, false},
		"other weights":    {infer.Model{Digest: "sha256:two"}, true},
		"another template": {infer.Model{Digest: "sha256:one", TemplateHash: "t"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			id := identity()
			id.Models = map[string]infer.Model{"speaker": {Digest: "sha256:one"}}
			d, err := Create(t.TempDir()+"/r", id, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Execute(t.Context(), d, words(3), Options{Workers: (&echo{}).workers(1),
				Identify: func(context.Context, string) (infer.Model, error) { return c.is, nil }})
			var changed *ModelChangedError
			if errors.As(err, &changed) != c.changed || !c.changed && err != nil {
				t.Fatalf("Execute: %v", err)
			}
			opened, err := Open(d.Path())
			if err != nil {
				t.Fatal(err)
			}
			m := opened.Manifest()
			if n := len(m.ModelChanges()); (n == 1) != c.changed || (m.Status == StatusDone) == c.changed {
				t.Errorf("status %s, changes %+v", m.Status, m.ModelChanges())
			}
			if err := Verify(d.Path(), VerifyOptions{}); (err != nil && strings.Contains(err.Error(), "of the speaker changed before the end of step")) != c.changed {
				t.Errorf("Verify: %v", err)
			}
		})
	}
}
