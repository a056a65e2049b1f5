package run

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/strictjson"
)

// VerifyOptions add checks that need to know the task.
type VerifyOptions struct {
	// Form checks the form of the manifest as a whole, or of a line of one of the
	// other files, named as in the run; nil checks none.
	Form func(file string, text []byte) error
}

// Verify recomputes what a finished run says about itself and returns what differs,
// as an error that joins one sentence a fault: the identity's and the items' hash,
// the number of the samples, the files' hashes, damaged lines, keys that occur twice, prompts
// that are missing or not what their hash says, items of the list without a sample
// and samples of items that are not in it.
func Verify(path string, o VerifyOptions) error {
	m, err := readAnyManifest(path)
	if err != nil {
		return err
	}
	d := &Dir{path: path, manifest: m}
	if m.Status == StatusStarted {
		if owner, held := Holder(path); held {
			return &LockedError{path, owner}
		}
		return fmt.Errorf("%s was killed before its samples were recorded; go on with: ccmed runs resume %s", path, path)
	}
	v := &verification{Dir: d, VerifyOptions: o}
	for _, check := range []func() error{v.identity, v.counts, v.prompts, v.samples, v.failures} {
		if err := check(); err != nil {
			return errors.Join(append(v.faults, err)...)
		}
	}
	v.items()
	return errors.Join(v.faults...)
}

// verification collects the faults of a run. A check returns an error only where
// nothing after it can be checked.
type verification struct {
	*Dir
	VerifyOptions
	faults []error

	known map[string]bool // prompts that are there
	seen  map[string]bool // items with a sample
	tried map[string]bool // items with a failure
}

func (v *verification) file(name string) string { return filepath.Join(v.path, name) }

func (v *verification) fault(format string, a ...any) {
	v.faults = append(v.faults, fmt.Errorf(format, a...))
}

func (v *verification) identity() error {
	m := v.manifest
	if v.Form != nil {
		text, err := v.readEntry(ManifestFile)
		if err != nil {
			return err
		}
		if err := v.Form(ManifestFile, text); err != nil {
			v.fault("%s: %w", v.file(ManifestFile), err)
		}
	}
	id, _, err := m.Identity.canonical()
	if err != nil {
		return err
	}
	if id.ItemsHash != m.Identity.ItemsHash {
		v.fault("%s: identity.items was changed since the run: items_hash is stored as %s and comes to %s", v.file(ManifestFile), orNone(m.Identity.ItemsHash), orNone(id.ItemsHash))
	}
	if err := m.CheckIdentity(); err != nil {
		v.faults = append(v.faults, err)
	}
	for _, c := range m.ModelChanges() {
		v.fault("%s: %s: the samples may be of two models", v.file(ManifestFile), c)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func (v *verification) counts() error {
	n, err := v.Count()
	if err != nil {
		return err
	}
	if n != v.manifest.Samples {
		v.fault("%s holds %d samples and the manifest says %d", v.file(SamplesFile), n, v.manifest.Samples)
	}
	if k := len(v.manifest.Sessions); k > 0 && v.manifest.Sessions[k-1].Summary != nil {
		if sum := v.manifest.Sessions[k-1].Summary; sum.Scored+sum.Unscored != n {
			v.fault("%s: sessions.%d.summary counts %d scored and %d unscored samples, and there are %d", v.file(ManifestFile), k-1, sum.Scored, sum.Unscored, n)
		}
	}
	if v.manifest.SamplesHash == "" {
		v.fault("%s has no samples_sha256; %s", v.file(ManifestFile), remake)
	}
	return nil
}

// each calls f with every complete line of a file whose form is right, and notes
// whether the file is what the run wrote.
func (v *verification) each(name string, f func(file string, l line) error) error {
	file := v.file(name)
	for l, err := range v.lines(name) {
		var changed *ChangedError
		switch {
		case errors.As(err, &changed):
			v.faults = append(v.faults, err)
			continue
		case err != nil:
			return err
		}
		if err := strictjson.Check(l.text); err != nil {
			v.faults = append(v.faults, damaged(file, l.number, err))
			continue
		}
		if v.Form != nil {
			if err := v.Form(name, l.text); err != nil {
				v.fault("%s:%d: %w", file, l.number, err)
				continue
			}
		}
		if err := f(file, l); err != nil {
			v.faults = append(v.faults, err)
		}
	}
	return nil
}

func (v *verification) prompts() error {
	v.known = map[string]bool{}
	return v.each(PromptsFile, func(file string, l line) error {
		p, err := decodeAsked(file, l)
		if err != nil {
			return err
		}
		if !p.genuine() {
			v.fault("%s:%d: the prompt is not the one that its hash %s names", file, l.number, p.Hash)
		}
		v.known[p.Hash] = true
		return nil
	})
}

func (v *verification) samples() error {
	v.seen = map[string]bool{}
	first := map[Key]int{}
	return v.each(SamplesFile, func(file string, l line) error {
		s, err := decodeSample(file, l)
		if err != nil {
			return err
		}
		if at, dup := first[s.Key]; dup {
			v.fault("%s:%d: there is a sample of %s on line %d already", file, l.number, s.Key, at)
		} else {
			first[s.Key] = l.number
		}
		v.seen[s.Item] = true
		for _, h := range s.Prompts {
			if !v.known[h] {
				v.fault("%s:%d: the prompt %s of %s is not in %s", file, l.number, h, s.Key, PromptsFile)
			}
		}
		return nil
	})
}

func (v *verification) failures() error {
	v.tried = map[string]bool{}
	return v.each(ErrorsFile, func(file string, l line) error {
		var f Failure
		if err := decode(file, l, &f); err != nil {
			return err
		}
		v.tried[f.Item] = true
		return nil
	})
}

// items compares the list of the identity with what is there. A shard has only part
// of it, and a run that is not finished may have.
func (v *verification) items() {
	id := v.manifest.Identity
	if len(id.Items) == 0 {
		return
	}
	listed := map[string]bool{}
	var missing, strange []string
	for _, item := range slices.Concat(id.Items, id.Others) {
		listed[item] = true
		if !v.seen[item] && !v.tried[item] {
			missing = append(missing, item)
		}
	}
	for item := range v.seen {
		if !listed[item] {
			strange = append(strange, item)
		}
	}
	slices.Sort(strange)
	if len(missing) > 0 && v.manifest.Status == StatusDone && id.Shard == "" {
		v.fault("%s: %d of %d items have neither a sample nor a failure: %s", v.file(SamplesFile), len(missing), len(listed), some(missing))
	}
	if len(strange) > 0 {
		v.fault("%s: samples of %d items that the manifest does not list: %s", v.file(SamplesFile), len(strange), some(strange))
	}
}

// some names the first few.
func some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
