package run

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
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
	if err := Merge(at("merged"), parts, nil); err != nil {
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
		if err := Merge(out, c.dirs, nil); err == nil || !strings.Contains(err.Error(), c.want) {
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

const killedMerge = "CCMED_TEST_KILLED_MERGE"

// A merge that is killed leaves nothing in its place, and is repeated by the same
// call; one whose folder another process works in is refused.
func TestKilledMergeIsRepeated(t *testing.T) {
	if dir := os.Getenv(killedMerge); dir != "" {
		_ = Merge(filepath.Join(dir, "merged"), []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}, func(string) error {
			fmt.Println("merging")
			select {} // until it is killed
		})
		return
	}
	dir := t.TempDir()
	runShard(t, filepath.Join(dir, "a"), "1/2")
	runShard(t, filepath.Join(dir, "b"), "2/2")
	out, shards := filepath.Join(dir, "merged"), []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledMergeIsRepeated$")
	cmd.Env = append(os.Environ(), killedMerge+"="+dir)
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := said.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if err := Merge(out, shards, nil); !errors.As(err, &locked) {
		t.Errorf("two merges into one folder at a time: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed: the error is the point
	if _, err := os.Stat(out); err == nil {
		t.Error("a killed merge left its folder")
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".merging")); err != nil {
		t.Errorf("the merge was not killed at work: %v", err)
	}
	try(t, os.Mkdir(out, 0o755)) // an empty folder is no hindrance
	if err := Merge(out, shards, nil); err != nil {
		t.Fatal(err)
	}
	if err := Verify(out, VerifyOptions{}); err != nil {
		t.Error(err)
	}
	if n := len(content(t, out)); n != 60 {
		t.Errorf("%d samples, want 60", n)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".merging")); err == nil {
		t.Error("the unfinished merge was left")
	}
}

// What cannot be added, and shards that were edited, leave nothing.
func TestFailedMergeLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	a, b, out := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "merged")
	runShard(t, a, "1/2")
	runShard(t, b, "2/2")
	full := errors.New("no space left")
	if err := Merge(out, []string{a, b}, func(string) error { return full }); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	change(t, b, SamplesFile, replace(`"seconds":0`, `"seconds":1`))
	var ce *ChangedError
	if err := Merge(out, []string{a, b}, nil); !errors.As(err, &ce) {
		t.Errorf("an edited shard was merged: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v is left, %v", entries, err)
	}
}
