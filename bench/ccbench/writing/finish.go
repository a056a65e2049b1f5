package writing

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

// finish writes build.json where every unit has its sample and every session passed. A
// session that never passed is an error that says which filter rejected it and how often.
func finish(path string, b build.Build, units []run.Unit[unit], note func(string, ...any)) error {
	d, err := run.Open(path)
	if err != nil {
		return err
	}
	samples, err := d.Samples()
	if err != nil {
		return err
	}
	at := map[run.Key]run.Sample{}
	for _, s := range samples {
		k := s.Key
		k.Step = ""
		at[k] = s
	}
	for _, u := range units {
		if _, ok := at[run.Key{Item: u.Item, Condition: u.Condition}]; !ok {
			return nil // the build is not at its end
		}
	}
	file := filepath.Join(path, build.File)
	if target, err := disk.Look(file); err != nil || target == disk.File {
		return err // it was written before
	}
	if err := assemble(&b, at); err != nil {
		return fmt.Errorf("%s gets no %s: %w", path, build.File, err)
	}
	sealed, err := b.Seal()
	if err != nil {
		return fmt.Errorf("%s gets no %s: %w", path, build.File, err)
	}
	if err := disk.WriteFile(file, sealed, 0o644); err != nil {
		return err
	}
	note("wrote %s: %d queries; ask a model with: ccmed ccbench run --build %s", file, len(b.Queries), path)
	return nil
}

// assemble puts what was made into the build.
func assemble(b *build.Build, at map[run.Key]run.Sample) error {
	rejected := map[string]int{}
	failed, sessions := 0, 0
	for i := range b.Cultures {
		c := &b.Cultures[i]
		for k := range c.Personas {
			p := &c.Personas[k]
			for n := 0; ; n++ {
				s, ok := at[run.Key{Item: sessionItem(p.ID, n), Condition: Session}]
				if !ok {
					break
				}
				made, err := task.Data[Made](s)
				if err != nil {
					return err
				}
				sessions++
				if s.Unscored != "" {
					failed++
					for _, r := range made.Rejected {
						rejected[r.Filter]++
					}
					continue
				}
				p.Sessions = append(p.Sessions, build.Session{Kind: made.Kind, Turns: made.Turns, Signals: made.Signals})
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d sessions never passed (%s); name another writer or checker, or raise --tries", failed, sessions, countsOf(rejected))
	}
	queries := slices.Clone(b.Queries)
	b.Queries = nil
	for _, q := range queries {
		q.Norms = nil
		for _, c := range b.Cultures {
			made, err := task.Data[Made](at[run.Key{Item: c.Culture.ID + " " + q.ID, Condition: Query}])
			if err != nil {
				return err
			}
			for _, x := range made.Checked {
				if x.Unscored == "" && x.P >= 0.5 {
					q.Norms = append(q.Norms, x.Norm)
				}
			}
		}
		if len(q.Norms) > 0 {
			b.Queries = append(b.Queries, q)
		}
	}
	if len(b.Queries) == 0 {
		return fmt.Errorf("the checker calls no norm relevant to any of %d queries; name another checker", len(queries))
	}
	return nil
}

// countsOf writes counts by filter, the most first.
func countsOf(n map[string]int) string {
	names := slices.SortedFunc(maps.Keys(n), func(x, y string) int {
		if n[x] != n[y] {
			return n[y] - n[x]
		}
		return strings.Compare(x, y)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, n[name])
	}
	return strings.Join(names, ", ")
}
