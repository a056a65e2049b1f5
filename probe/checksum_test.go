package probe_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// A bit that flips in a file of states, in its header or in a row, is found by every
// reader of the store: merging, training and the audit.
func TestFlippedBitsOfStatesAreFound(t *testing.T) {
	ds, tmp := dialogue.Sample(), t.TempDir()
	var shards []string
	for i, name := range []string{"1/2", "2/2"} {
		path := filepath.Join(tmp, string(rune('a'+i)))
		if _, err := extractTurns(t, turnExtraction(t, &reader{}), path, name, ds); err != nil {
			t.Fatal(err)
		}
		shards = append(shards, path)
	}
	whole := filepath.Join(tmp, "whole")
	if err := probe.MergeStores(t.Context(), whole, shards); err != nil {
		t.Fatal(err)
	}
	dir, err := run.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	file := must(t, activation.List, whole)[0]
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	audit := func() error {
		f, err := activation.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		index, err := activation.ReadIndex(dir.All())
		if err != nil {
			return err
		}
		a, err := f.Audit(t.Context())
		if err != nil {
			return err
		}
		entries, err := index.For(f)
		if err != nil {
			return err
		}
		if len(entries) == 0 || entries[0].SHA256 == "" {
			t.Fatalf("the rows have no checksums: %+v", entries)
		}
		return a.Check(entries)
	}
	train := func() error {
		_, err := probe.FindTurns(t.Context(), dir, probe.FindOptions{})
		return err
	}
	if err := audit(); err != nil {
		t.Fatal(err)
	}
	var changed *run.ChangedError
	if err := train(); errors.As(err, &changed) {
		t.Fatal(err)
	}
	header := 8 + int(binary.LittleEndian.Uint64(good))
	f := must(t, activation.Open, file)
	goodSpec := f.Spec()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	found := 0
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		bad := append([]byte(nil), good...)
		at := rng.IntN(len(bad))
		bad[at] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(file, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		// Parts of the header that nobody reads, as the padding, change nothing.
		harmless := false
		if f, err := activation.Open(file); err == nil {
			spec := f.Spec()
			harmless = at < header && spec.Model.Digest == goodSpec.Model.Digest && slices.Equal(spec.Layers, goodSpec.Layers)
			_ = f.Close()
		}
		if !harmless {
			found++
		}
		for name, read := range map[string]func() error{"audit": audit, "training": train} {
			if err := read(); !errors.As(err, &changed) && !errors.Is(err, activation.ErrDamaged) && !harmless {
				t.Errorf("byte %d of %d flipped: the %s says %v", at, len(bad), name, err)
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d of 300 flips matter", found)
	}
	if err := os.WriteFile(file, good, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := audit(); err != nil {
		t.Error(err)
	}
	shard := must(t, activation.List, shards[0])[0]
	if good, err = os.ReadFile(shard); err != nil {
		t.Fatal(err)
	}
	index := must(t, func(p string) (*activation.Index, error) { return activation.ReadIndex(must(t, run.Open, p).All()) }, shards[0])
	f = must(t, activation.Open, shard)
	spec := f.Spec()
	row := index.Entries(spec.Cell)[0].Row
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	size := spec.Width * 4
	if spec.DType == activation.F16 {
		size /= 2
	}
	good[len(good)-(spec.Samples-row)*size] ^= 1
	if err := os.WriteFile(shard, good, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := probe.MergeStores(t.Context(), filepath.Join(tmp, "again"), shards); !errors.As(err, &changed) {
		t.Errorf("a shard with a flipped bit was merged: %v", err)
	}
}
