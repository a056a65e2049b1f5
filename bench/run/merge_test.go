package run

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runShard(t *testing.T, path, shard string) {
	t.Helper()
	id := identity()
	id.Shard = shard
	d, err := Create(path, id, []string{"words"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Execute(t.Context(), d, words(30), Options{Workers: (&echo{}).workers(2), Shard: shard}); err != nil {
		t.Fatal(err)
	}
}

// The shards hold every sample once, whole groups each, and together they are
// the run made in one piece.
func TestShardsMergeToTheWhole(t *testing.T) {
	dir := t.TempDir()
	at := func(s string) string { return filepath.Join(dir, s) }
	runShard(t, at("whole"), "")
	want := content(t, at("whole"))
	var parts []string
	groups := map[string]string{}
	for i := 1; i <= 3; i++ {
		part := at(fmt.Sprint("part", i))
		runShard(t, part, fmt.Sprintf("%d/3", i))
		parts = append(parts, part)
		d, err := Open(part)
		if err != nil {
			t.Fatal(err)
		}
		for s, err := range d.All() {
			if err != nil {
				t.Fatal(err)
			}
			if p, ok := groups[s.Group]; ok && p != part {
				t.Errorf("%s is split over %s and %s", s.Group, p, part)
			}
			groups[s.Group] = part
		}
	}
	if len(groups) != 10 {
		t.Errorf("%d groups, want 10", len(groups))
	}
	if err := Merge(at("merged"), parts...); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(content(t, at("merged")), want) {
		t.Error("the merged run is not the whole one")
	}
	if err := Verify(at("merged"), VerifyOptions{}); err != nil {
		t.Error(err)
	}
	d, err := Open(at("merged"))
	if err != nil {
		t.Fatal(err)
	}
	m := d.Manifest()
	sum, _ := m.LastSummary()
	if m.Status != StatusDone || m.Identity.Shard != "" || len(m.Merged) != 3 || len(m.Sessions) != 4 || sum.Scored != 60 || sum.Usage.Prompt != 90 {
		t.Errorf("manifest %+v, summary %+v", m, sum)
	}

	runShard(t, at("half"), "1/2")
	other := identity()
	other.Shard, other.Seed = "2/3", 2
	stranger, err := Create(at("stranger"), other, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Close(StatusDone); err != nil {
		t.Fatal(err)
	}
	other = identity()
	other.Shard = "2/3"
	unfinished, err := Create(at("unfinished"), other, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := unfinished.Close(StatusInterrupted); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		dirs []string
		want string
	}{
		{"no runs", nil, "no runs"},
		{"a shard missing", parts[:2], "3/3"},
		{"a shard twice", []string{parts[0], parts[0]}, "both shard 1/3"},
		{"a run that is no shard", []string{at("whole"), parts[0]}, "not a shard"},
		{"another cut", []string{parts[1], at("half")}, "number of shards"},
		{"another seed", []string{parts[0], at("stranger")}, "seed"},
		{"an unfinished shard", []string{parts[0], at("unfinished")}, "runs resume"},
	} {
		out := at("out")
		if err := Merge(out, c.dirs...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: a refused merge left a folder", c.name)
		}
	}
}

func TestParseShard(t *testing.T) {
	for _, s := range []string{"0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/2/3"} {
		if _, err := parseShard(s); err == nil {
			t.Errorf("shard %q was accepted", s)
		}
	}
	if s, err := parseShard("2/4"); err != nil || s != (shard{2, 4}) {
		t.Errorf("2/4 is %v, %v", s, err)
	}
}

// FuzzShard: every group is in exactly one of n shards.
func FuzzShard(f *testing.F) {
	f.Add("a group", uint8(3))
	f.Fuzz(func(t *testing.T, group string, n uint8) {
		if n == 0 {
			return
		}
		in := 0
		for i := 1; i <= int(n); i++ {
			if (shard{i, int(n)}).holds(group) {
				in++
			}
		}
		if in != 1 {
			t.Errorf("%q is in %d of %d shards", group, in, n)
		}
	})
}
