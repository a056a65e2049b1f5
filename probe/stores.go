package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe/activation"
)

// MergeStores joins the finished shards of one extraction into a new store: the
// samples as run.Merge does, and of each cell the rows that belong to a sample.
// In every shard they have the places that they have in the whole, so that they
// are copied as they are, one layer in memory at a time. All other rows stay
// missing.
//
// Nothing is written unless the shards hold the same cells, of the same model,
// layers, rows and type; what differs is an *activation.MismatchError.
func MergeStores(ctx context.Context, out string, dirs []string) (err error) {
	shards := make([]*shard, 0, len(dirs))
	defer func() {
		for _, s := range shards {
			err = errors.Join(err, s.close())
		}
	}()
	for _, path := range dirs {
		s, err := openShard(path)
		shards = append(shards, s)
		if err != nil {
			return err
		}
		if err := s.matches(shards[0]); err != nil {
			return fmt.Errorf("merge: %s and %s are not shards of one store: %w", shards[0].path, path, err)
		}
	}
	return run.Merge(out, dirs, func(path string) error {
		for i := range shards[0].cells {
			if err := mergeCell(ctx, path, shards, i); err != nil {
				return fmt.Errorf("merge: %w", err)
			}
		}
		return nil
	})
}

// shard is an opened part of a store.
type shard struct {
	path  string
	cells []cellPart // by file name
}

// cellPart is a shard's file of a cell.
type cellPart struct {
	file *activation.File
	raw  *os.File // the same file
	at   int64    // where its states start
	rows []int    // that belong to a sample of the shard
}

func openShard(path string) (*shard, error) {
	s := &shard{path: path}
	dir, err := run.Open(path)
	if err != nil {
		return s, err
	}
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	files, err := activation.List(path)
	if err != nil {
		return s, err
	}
	if len(files) == 0 {
		return s, fmt.Errorf("%s holds no hidden states; it is not a store", path)
	}
	for _, p := range files {
		c := cellPart{}
		if c.file, err = activation.Open(p); err != nil {
			return s, err
		}
		s.cells = append(s.cells, c)
		last := &s.cells[len(s.cells)-1]
		entries, err := index.For(c.file)
		if err != nil {
			return s, err
		}
		for _, e := range entries {
			if _, err := c.file.Holds(e.Place); err != nil {
				return s, err
			}
			last.rows = append(last.rows, e.Row)
		}
		if last.raw, err = disk.OpenEntry(p); err != nil {
			return s, fmt.Errorf("read hidden states: %w", err)
		}
		if last.at, err = statesAt(last.raw); err != nil {
			return s, err
		}
	}
	return s, nil
}

// statesAt returns where the one tensor of a file of hidden states starts: after
// the header, whose length in bytes is the first thing in a safetensors file.
func statesAt(f *os.File) (int64, error) {
	var n [8]byte
	if _, err := f.ReadAt(n[:], 0); err != nil {
		return 0, fmt.Errorf("read the header of %s: %w", f.Name(), err)
	}
	return int64(len(n)) + int64(binary.LittleEndian.Uint64(n[:])), nil
}

func (s *shard) close() error {
	var errs []error
	for _, c := range s.cells {
		errs = append(errs, c.file.Close())
		if c.raw != nil {
			errs = append(errs, c.raw.Close())
		}
	}
	return errors.Join(errs...)
}

func (s *shard) names() []string {
	var out []string
	for _, c := range s.cells {
		out = append(out, filepath.Base(c.file.Path()))
	}
	return out
}

// matches tells what differs from another shard.
func (s *shard) matches(other *shard) error {
	if a, b := other.names(), s.names(); !slices.Equal(a, b) {
		return fmt.Errorf("they hold the cells %v and %v", a, b)
	}
	for i, c := range s.cells {
		if err := c.file.Check(other.cells[i].file.Spec()); err != nil {
			return err
		}
	}
	return nil
}

// mergeCell makes the i-th cell's file in out and copies the shards' rows.
func mergeCell(ctx context.Context, out string, shards []*shard, i int) (err error) {
	spec := shards[0].cells[i].file.Spec()
	made, err := activation.Create(ctx, out, spec)
	if err != nil {
		return err
	}
	if err := made.Close(); err != nil {
		return err
	}
	to, err := disk.OpenFile(filepath.Join(out, spec.Cell.File()), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("write hidden states: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	at, err := statesAt(to)
	if err != nil {
		return err
	}
	row := int64(spec.Width) * 4
	if spec.DType == activation.F16 {
		row /= 2
	}
	size := row * int64(spec.Samples)
	whole, part := make([]byte, size), make([]byte, size)
	for layer := range spec.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		offset := int64(layer) * size
		if _, err := to.ReadAt(whole, at+offset); err != nil {
			return fmt.Errorf("read back %s: %w", to.Name(), err)
		}
		for _, s := range shards {
			c := s.cells[i]
			if _, err := c.raw.ReadAt(part, c.at+offset); err != nil {
				return fmt.Errorf("read %s of %s: %w", spec.Layers[layer], c.raw.Name(), err)
			}
			for _, r := range c.rows {
				copy(whole[int64(r)*row:][:row], part[int64(r)*row:])
			}
		}
		if _, err := to.WriteAt(whole, at+offset); err != nil {
			return fmt.Errorf("write %s into %s: %w", spec.Layers[layer], to.Name(), err)
		}
	}
	if err := to.Sync(); err != nil {
		return fmt.Errorf("write %s to disk: %w", to.Name(), err)
	}
	return nil
}
