package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/infer"
)

// Merge joins the finished shards of one run into a new run directory. All
// shards 1/n to n/n must be given, with identities that are equal apart from the
// shard and keys that do not overlap. The last session of the merged run sums up
// the shards' last sessions.
func Merge(out string, dirs ...string) error {
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
	id := shards[0].manifest.Identity
	id.Shard = ""
	d, err := Create(out, id, nil)
	if err != nil {
		return err
	}
	status := StatusFailed
	sum, err := d.take(shards)
	if err == nil {
		status = StatusDone
	}
	return errors.Join(err, d.close(status, &sum))
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
func (d *Dir) take(shards []*Dir) (sum Summary, err error) {
	s, err := openStore(d.path, func(Sample, span) error { return nil })
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
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
		prompts := filepath.Join(from.path, PromptsFile)
		for l, err := range readLines(prompts) {
			if err != nil {
				return sum, err
			}
			var p asked
			if err := json.Unmarshal(l.text, &p); err != nil {
				return sum, damaged(prompts, l.number, err)
			}
			key, err := p.key()
			if err != nil {
				return sum, damaged(prompts, l.number, err)
			}
			if _, ok := s.known[key]; ok {
				continue
			}
			s.known[key] = struct{}{}
			if _, err := s.prompts.append(withNewline(l.text)); err != nil {
				return sum, err
			}
		}
		for name, to := range map[string]*appender{SamplesFile: s.samples, ErrorsFile: s.errors} {
			for l, err := range readLines(filepath.Join(from.path, name)) {
				if err != nil {
					return sum, err
				}
				if _, err := to.append(withNewline(l.text)); err != nil {
					return sum, err
				}
			}
		}
	}
	d.manifest.Sessions = append(sessions, d.manifest.Sessions...)
	return sum, nil
}

func withNewline(text []byte) []byte { return append(slices.Clip(text), '\n') }

// genuine reports whether the hash is that of the content.
func (p asked) genuine() bool {
	if p.Prompt != nil {
		return newAsked(*p.Prompt, "").Hash == p.Hash
	}
	return newAsked(infer.Prompt{}, p.Rendered).Hash == p.Hash
}
