package fleet

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// TestEditOfARole: --edit changes the model that is measured and no other role's, and is
// refused where nothing could be edited.
func TestEditOfARole(t *testing.T) {
	t.Parallel()
	known := func(path, class string, dose float64) (*Edits, error) {
		switch {
		case path != "a,b.edit":
			return nil, errors.New("no such file")
		case class != "Denial":
			return nil, errors.New("no such class")
		case math.IsNaN(dose):
			return nil, errors.New("a dose of NaN")
		}
		return &Edits{Weights: "sha256:1", Edits: []infer.Edit{{Block: 1, Scope: infer.ScopeAll, Add: []float32{float32(dose)}}}}, nil
	}
	for _, c := range []struct {
		edit, backend, subject, want string
	}{
		{"a,b.edit,Denial,2", "embedded", "mediator", ""},
		{"a,b.edit,Denial,-0.5", "", "mediator", ""}, // a GGUF file
		{"a,b.edit,Denial,2", "ollama", "mediator", "give --backend embedded"},
		{"a,b.edit,Denial,2", "embedded", "", "asks no model that could be edited"},
		{"a,b.edit,Denial,2", "embedded", "speaker", "asks no model that could be edited"},
		{"a,b.edit,Denial", "embedded", "mediator", "is no number"},
		{"Denial,2", "embedded", "mediator", "FILE,CLASS,DOSE"},
		{"a,b.edit,,2", "embedded", "mediator", "FILE,CLASS,DOSE"},
		{"a,b.edit,Denial,much", "embedded", "mediator", `"much" is no number`},
		{"a,b.edit,Denial,NaN", "embedded", "mediator", "a dose of NaN"},
		{"a,b.edit,Acceptance,1", "embedded", "mediator", "no such class"},
		{"other.edit,Denial,1", "embedded", "mediator", "no such file"},
	} {
		env := Env{Note: t.Logf, Getenv: func(string) string { return "" }, Subject: c.subject, Edits: known}
		flags := &Flags{Model: "m.gguf", Backend: c.backend, Edits: []string{c.edit}, Cache: "off", Concurrency: 1, RequestTimeout: time.Second}
		f, err := New(env, flags, map[string]string{"mediator": "", "judge": "", "simulator": "other"})
		var bad *usage.Error
		if c.want != "" {
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("--edit %s with %q: %v, want %q", c.edit, c.backend, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("--edit %s: %v", c.edit, err)
			continue
		}
		if m, j := f.roles["mediator"], f.roles["judge"]; m == j || m.plain() != j || j.edits != "" || f.roles["simulator"].edits != "" {
			t.Errorf("--edit %s: the mediator is %+v, the judge %+v", c.edit, m, j)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEditOfAnotherModel: an edit that was learnt from other weights opens no engine.
func TestEditOfAnotherModel(t *testing.T) {
	t.Parallel()
	model := os.Getenv("CCMED_TEST_MODEL")
	if model == "" {
		if os.Getenv("CCMED_REQUIRE") != "" {
			t.Fatal("CCMED_TEST_MODEL names no GGUF file")
		}
		t.Skip("CCMED_TEST_MODEL names no GGUF file")
	}
	weights := ""
	env := Env{Note: t.Logf, Getenv: os.Getenv, Subject: "mediator", Edits: func(string, string, float64) (*Edits, error) {
		return &Edits{Model: "another", Weights: weights, Edits: []infer.Edit{{Block: 1, Scope: infer.ScopeAll, Add: make([]float32, 576)}}}, nil
	}}
	open := func() (infer.Model, error) {
		flags := &Flags{Model: model, Backend: "embedded", Edits: []string{"s.edit,Denial,2"}, Cache: "off", Concurrency: 1, RequestTimeout: time.Second, NumCtx: 64}
		f, err := New(env, flags, map[string]string{"mediator": ""})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.Model(t.Context(), "mediator")
	}
	weights = "sha256:" + strings.Repeat("0", 64)
	var bad *usage.Error
	if _, err := open(); !errors.As(err, &bad) || !strings.Contains(err.Error(), "was learnt from the states of another") {
		t.Errorf("an edit of another model: %v", err)
	}
	m, err := llamacpp.Open(t.Context(), llamacpp.Options{ModelPath: model, NumCtx: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	own, err := m.Model(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	weights = own.Digest
	if edited, err := open(); err != nil || edited.Digest != own.Digest || edited.Edits == "" {
		t.Errorf("an edit of the model itself: %+v, %v", edited, err)
	}
}
