package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/bench/run"
)

// reading opens a run whose samples, and other files that are named, will be read.
// What of them no checksum vouches for is told once.
func (a *app) reading(path string, more ...string) (*run.Dir, error) {
	d, err := run.Open(path)
	if err != nil {
		return nil, err
	}
	for _, n := range d.Unchecked(append([]string{run.SamplesFile}, more...)...) {
		if !slices.Contains(a.unchecked, n) {
			a.unchecked = append(a.unchecked, n)
			a.note("note: %s", n)
		}
	}
	return d, nil
}

// scoreLeft scores a run that has all its samples and was killed before its metrics
// were written. Where they are those of its samples nothing is left to do.
func (a *app) scoreLeft(ctx context.Context, d *run.Dir) error {
	stored, err := d.Metrics()
	var newer *run.NewerError
	if errors.As(err, &newer) {
		return err
	}
	if err == nil {
		hash, err := d.SamplesHash()
		if err != nil {
			return err
		}
		if hash == stored.SamplesHash {
			return fmt.Errorf("%s is done; nothing is left to resume", d.Path())
		}
	}
	a.note("all samples of %s are there; its metrics are computed", d.Path())
	return a.scoreRun(ctx, d.Path(), scoreFlags{}, a.print)
}
