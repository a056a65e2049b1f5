package infer

import (
	"math"
	"strings"
	"testing"
)

func TestEditsThatAreRefused(t *testing.T) {
	t.Parallel()
	ok := []float32{1, 2}
	erase := func(u, v int) *Erase {
		e := &Erase{Mean: ok}
		for range u {
			e.U = append(e.U, ok)
		}
		for range v {
			e.V = append(e.V, ok)
		}
		return e
	}
	for _, c := range []struct {
		edit Edit
		want string // "" where it is taken
	}{
		{Edit{Block: 1, Scope: ScopeAll, Add: ok}, ""},
		{Edit{Block: 3, Scope: ScopeGenerated, Erase: erase(2, 2)}, ""},
		{Edit{Block: 3, Scope: ScopePromptEnd, Replace: map[string][]float32{"a": ok}}, ""},
		{Edit{Block: 0, Scope: ScopeAll, Add: ok}, "blocks 1 to 3"},
		{Edit{Block: 4, Scope: ScopeAll, Add: ok}, "blocks 1 to 3"},
		{Edit{Block: 1, Add: ok}, `scope ""`},
		{Edit{Block: 1, Scope: ScopeAll}, "0 of add, replace and erase"},
		{Edit{Block: 1, Scope: ScopeAll, Add: ok, Erase: erase(1, 1)}, "2 of add, replace and erase"},
		{Edit{Block: 1, Scope: ScopeAll, Erase: erase(3, 3)}, "rank"},
		{Edit{Block: 1, Scope: ScopeAll, Erase: erase(1, 2)}, "rank"},
		{Edit{Block: 1, Scope: ScopeAll, Erase: erase(0, 0)}, "rank"},
		{Edit{Block: 1, Scope: ScopeAll, Add: []float32{1}}, "1 values, and the model's states have 2"},
		{Edit{Block: 1, Scope: ScopeAll, Add: []float32{1, float32(math.NaN())}}, "value 1 of an edit after block 1 is NaN"},
		{Edit{Block: 1, Scope: ScopePromptEnd, Replace: map[string][]float32{"a": {float32(math.Inf(1)), 0}}}, "value 0 of an edit after block 1 is +Inf"},
	} {
		err := c.edit.Check(3, 2)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.edit, err, c.want)
		}
	}
}

// TestHashOfEdits: whatever changes what edits do changes their hash.
func TestHashOfEdits(t *testing.T) {
	t.Parallel()
	add := Edit{Block: 1, Scope: ScopeAll, Add: []float32{1, 2}}
	erase := func(u, v, mean float32) Edit {
		return Edit{Block: 1, Scope: ScopeAll, Erase: &Erase{U: [][]float32{{u}}, V: [][]float32{{v}}, Mean: []float32{mean}}}
	}
	replace := func(hash string, x float32) Edit {
		return Edit{Block: 1, Scope: ScopePromptEnd, Replace: map[string][]float32{hash: {x}}}
	}
	seen := map[string]int{}
	for i, edits := range [][]Edit{nil, {add}, {add, add}, {{Block: 2, Scope: ScopeAll, Add: add.Add}}, {{Block: 1, Scope: ScopeGenerated, Add: add.Add}},
		{{Block: 1, Scope: ScopeAll, Add: []float32{2, 1}}}, {add, erase(1, 2, 3)}, {erase(1, 2, 3), add}, {erase(2, 1, 3)}, {erase(1, 2, 4)},
		{replace("a", 1)}, {replace("b", 1)}, {replace("a", 2)}} {
		h := HashEdits(edits)
		if j, twice := seen[h]; twice {
			t.Errorf("edits %d and %d have one hash", i, j)
		}
		seen[h] = i
		if again := HashEdits(edits); again != h || (h == "") != (len(edits) == 0) {
			t.Errorf("edits %d hash to %q, then to %q", i, h, again)
		}
	}
}
