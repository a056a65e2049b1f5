package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Merge joins the finished shards of one run into a new run directory. All
// shards 1/n to n/n must be given, with identities that are equal apart from the
// shard and keys that do not overlap. The last session of the merged run sums up
// the shards' last sessions.
//
// The directory appears when it is whole: a merge that was killed can be repeated.
// add puts into it, before that, what a task keeps beside the samples; it may be
// nil.
func Merge(out string, dirs []string, add func(path string) error) error {
	shards := make([]*Dir, len(dirs))
	for i, p := range dirs {
		d, err := Open(p)
		if err != nil {
			return err
		}
		shards[i] = d
	}
	if err := mergeable(shards); err != nil {
		return err
	}
	return Whole(out, "merging", func(part string) error { return mergeInto(part, shards, add) })
}

// Whole lets make a run directory that appears at out when it is whole: it works in
// .OUT.doing beside it. One that was killed can be repeated.
func Whole(out, doing string, make func(part string) error) error {
	if _, err := os.Lstat(out); err == nil {
		if err := vacant(out); err != nil {
			return err
		}
	}
	part := filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+"."+doing)
	if err := discard(part); err != nil {
		return err
	}
	if err := make(part); err != nil {
		return errors.Join(err, discard(part))
	}
	if err := emptyOut(out); err != nil {
		return errors.Join(err, discard(part))
	}
	if err := os.Rename(part, out); err != nil {
		return errors.Join(fmt.Errorf("name the finished run: %w", err), discard(part))
	}
	return nil
}

// emptyOut removes the folder when nothing lies in it but what a Create left there
// that was killed.
func emptyOut(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = vacant(out)
	}
	for _, e := range entries {
		if err == nil {
			err = os.Remove(filepath.Join(out, e.Name()))
		}
	}
	if err == nil {
		err = os.Remove(out)
	}
	return err
}

// discard removes what was made and is not whole, unless somebody works in it.
func discard(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if owner, held := Holder(path); held {
		return &LockedError{path, owner}
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove what is not whole: %w", err)
	}
	return nil
}

func mergeInto(path string, shards []*Dir, add func(path string) error) error {
	id := shards[0].manifest.Identity
	id.Shard = ""
	d, err := Create(path, id, nil)
	if err != nil {
		return err
	}
	status := StatusFailed
	sum, sums, err := d.take(shards)
	if err == nil && add != nil {
		err = add(path)
	}
	if err == nil {
		status = StatusDone
	}
	return errors.Join(err, d.close(status, &sum, sums))
}

// mergeable reports why runs cannot be merged.
func mergeable(shards []*Dir) error {
	if len(shards) == 0 {
		return errors.New("merge: no runs given")
	}
	var first Identity
	n := 0
	given := map[int]string{}
	keys := map[Key]string{}
	for i, d := range shards {
		m := d.manifest
		sh, err := parseShard(m.Identity.Shard)
		switch {
		case err != nil:
			return fmt.Errorf("merge %s: %w", d.path, err)
		case sh.n == 0:
			return fmt.Errorf("merge: %s is not a shard; shards are made with --shard i/n", d.path)
		case m.Status != StatusDone:
			return fmt.Errorf("merge: %s is not finished (%s); go on with: ccmed runs resume %s", d.path, m.Status, d.path)
		case given[sh.i] != "":
			return fmt.Errorf("merge: %s and %s are both shard %s", given[sh.i], d.path, m.Identity.Shard)
		}
		id := m.Identity
		id.Shard = ""
		if i == 0 {
			first, n = id, sh.n
		}
		differ, err := differences(first, id)
		if err != nil {
			return err
		}
		if sh.n != n {
			differ = append(differ, fmt.Sprintf("number of shards (%d and %d)", n, sh.n))
		}
		if len(differ) > 0 {
			return fmt.Errorf("merge: %s and %s are not shards of one run; they differ in %s", shards[0].path, d.path, strings.Join(differ, ", "))
		}
		given[sh.i] = d.path
		if err := Verify(d.path, VerifyOptions{}); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		for s, err := range d.All() {
			if err != nil {
				return fmt.Errorf("merge: %w", err)
			}
			if other, dup := keys[s.Key]; dup {
				return fmt.Errorf("merge: %s and %s both hold %s", other, d.path, s.Key)
			}
			keys[s.Key] = d.path
		}
	}
	var missing []string
	for i := 1; i <= n; i++ {
		if given[i] == "" {
			missing = append(missing, fmt.Sprintf("%d/%d", i, n))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("merge: shards missing: %s", strings.Join(missing, ", "))
	}
	return nil
}

// take copies the lines and the history of shards into d.
func (d *Dir) take(shards []*Dir) (sum Summary, sums map[string]lineSum, err error) {
	s, err := d.openStore(func(Sample, span) error { return nil })
	if err != nil {
		return sum, nil, err
	}
	defer func() {
		err = errors.Join(err, s.close())
		sums = s.sums()
	}()
	var sessions []Session
	for _, from := range shards {
		d.manifest.Merged = append(d.manifest.Merged, absolute(from.path))
		sessions = append(sessions, from.manifest.Sessions...)
		if x, ok := from.manifest.LastSummary(); ok {
			sum.Usage = sum.Usage.Add(x.Usage)
			sum.Scored += x.Scored
			sum.Unscored += x.Unscored
			sum.Failed += x.Failed
			sum.Skipped += x.Skipped
			sum.Reused += x.Reused
			sum.Seconds += x.Seconds
		}
		for p, err := range from.Prompts() {
			if err == nil {
				err = s.ask(p)
			}
			if err != nil {
				return sum, nil, err
			}
		}
		for name, to := range map[string]*appender{SamplesFile: s.samples, ErrorsFile: s.errors} {
			for l, err := range from.lines(name) {
				if err == nil {
					_, err = to.append(withNewline(l.text))
				}
				if err != nil {
					return sum, nil, err
				}
			}
		}
	}
	d.manifest.Sessions = append(sessions, d.manifest.Sessions...)
	return sum, nil, nil
}
