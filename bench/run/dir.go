package run

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// Names of the files in a run directory.
const (
	ManifestFile = "manifest.json"
	SamplesFile  = "samples.jsonl"
	PromptsFile  = "prompts.jsonl"
	ErrorsFile   = "errors.jsonl"
	MetricsFile  = "metrics.json"
	LogFile      = "log.txt"
	lockFile     = "lock"
)

// Dir is a run directory: from Create and Resume for writing, locked; from Open
// for reading.
type Dir struct {
	path string
	lock *lock // nil when opened for reading, and after Close
	// before is the status that a resumed run had, "" for a new one.
	before string
	log    *logFile
	wrap   func(name string, f file) file // lets a test fill the disk; nil but there

	mu       sync.Mutex
	manifest Manifest
}

// NewerError reports a file whose form this version does not know.
type NewerError struct {
	File          string
	Schema, Reads int
	Version       string // of the ccmed that wrote it; empty where the file does not tell
}

func (e *NewerError) Error() string {
	need := "use a newer ccmed"
	if e.Version != "" {
		need = "use ccmed " + e.Version + ", which wrote it, or a newer one"
	}
	return fmt.Sprintf("%s has schema %d and this version reads up to %d; %s", e.File, e.Schema, e.Reads, need)
}

// IdentityError reports a run that cannot be resumed because something that
// could change a number is not as it was.
type IdentityError struct {
	Path   string
	Fields []string // each with the value then and now
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("%s was started with other settings and cannot be resumed with these; they differ in %s; give the settings of then, or start a new run",
		e.Path, strings.Join(e.Fields, ", "))
}

// NewName returns a name for a new run that sorts by time:
// 20261130T0412-timing-smollm2-3f9a.
func NewName(task, model string, now time.Time) string {
	var b [2]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return fmt.Sprintf("%s-%s-%s-%s", now.UTC().Format("20060102T1504"), slug(task), slug(model), hex.EncodeToString(b[:]))
}

// slug keeps what is safe in a file name on every system.
func slug(s string) string {
	s = s[strings.LastIndexAny(s, `/\`)+1:]
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s)
	for strings.Contains(s, "--") {
		s = strings.ReplaceAll(s, "--", "-")
	}
	s = strings.Trim(s[:min(len(s), 40)], "-.")
	if s == "" {
		return "x"
	}
	return s
}

// Create makes a new run directory at path, which must not exist or be empty,
// and locks it. command are the arguments that the tool was started with, for
// resuming; seal makes the session's Seal of them and the working directory, in the
// very manifest that is written first. The caller hands the Dir to Execute or calls
// Close.
func Create(path string, id Identity, command []string, seal ...Sealer) (*Dir, error) {
	id, servers, err := id.canonical()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("make the run folder: %w; choose another with --out", err)
	}
	if err := vacant(path); err != nil {
		return nil, err
	}
	d := &Dir{path: path}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	// Another process may have made a run here before the lock was ours.
	if err := vacant(path); err != nil {
		return nil, errors.Join(err, d.release())
	}
	hash, err := id.hash()
	if err != nil {
		return nil, errors.Join(err, d.release())
	}
	d.manifest = Manifest{Schema: Schema, Path: absolute(path), Status: StatusStarted, Identity: id, IdentityHash: hash,
		Sessions: []Session{newSession(command, environment(servers), seal)}}
	if err := d.writeManifest(); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// vacant returns an error when the directory holds anything but what a Create
// that was killed leaves behind.
func vacant(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("look into the run folder: %w", err)
	}
	other := ""
	for _, e := range entries {
		switch {
		case e.Name() == ManifestFile:
			if owner, held := Holder(path); held {
				return &LockedError{path, owner}
			}
			return fmt.Errorf("%s holds a run already; go on with it (ccmed runs resume %s), or choose another folder with --out", path, path)
		case e.Name() != lockFile && !strings.HasPrefix(e.Name(), "."+ManifestFile):
			other = e.Name()
		}
	}
	if other != "" {
		return fmt.Errorf("%s is not empty and not a run (it holds %s); choose another folder with --out", path, other)
	}
	return nil
}

// Resume opens the run at path to go on with it, and locks it. The identity
// must be the run's, else the error is an *IdentityError that names the fields.
// A changed environment is returned as warnings.
func Resume(path string, id Identity, command []string, seal ...Sealer) (d *Dir, warnings []string, err error) {
	id, servers, err := id.canonical()
	if err != nil {
		return nil, nil, err
	}
	if _, err := readManifest(path); err != nil {
		return nil, nil, err
	}
	d = &Dir{path: path}
	if err := d.acquire(); err != nil {
		return nil, nil, err
	}
	fail := func(err error) (*Dir, []string, error) { return nil, nil, errors.Join(err, d.release()) }
	m, err := readManifest(path)
	if err != nil {
		return fail(err)
	}
	differ, err := differences(m.Identity, id)
	if err != nil {
		return fail(err)
	}
	if len(differ) > 0 {
		return fail(&IdentityError{path, differ})
	}
	env := environment(servers)
	if n := len(m.Sessions); n > 0 {
		warnings = env.changes(m.Sessions[n-1].Environment)
		if last := &m.Sessions[n-1]; last.Status == StatusStarted {
			last.Status = StatusInterrupted // it was killed: nobody holds the lock
		}
	}
	// Before anything is written: a resumed run records new checksums at its end.
	d.manifest = m
	if err := d.Check(); err != nil {
		return fail(err)
	}
	d.before = m.Status
	m.Sessions = append(m.Sessions, newSession(command, env, seal))
	m.Status = StatusStarted
	// The identity was found equal to what is run now, whatever the manifest's form.
	if m.IdentityHash, err = id.hash(); err != nil {
		return fail(err)
	}
	d.manifest = m
	if err := d.writeManifest(); err != nil {
		return fail(err)
	}
	return d, warnings, nil
}

// Open opens a run for reading, whether or not it is finished or in use. An
// identity that was edited is a *ChangedError. What is read of the files is checked
// as it is read.
func Open(path string) (*Dir, error) {
	m, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	return &Dir{path: path, manifest: m}, nil
}

// A Sealer makes a Session.Seal.
type Sealer func(command []string, dir string) string

func newSession(command []string, env Environment, seals []Sealer) Session {
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	s := Session{Start: time.Now().UTC().Truncate(time.Millisecond), Status: StatusStarted, Command: slices.Clone(command), Dir: dir, Environment: env}
	for _, seal := range seals {
		s.Seal = seal(s.Command, dir)
	}
	return s
}

func absolute(path string) string {
	if p, err := filepath.Abs(path); err == nil {
		return p
	}
	return path
}

// maxManifest is the most bytes of a manifest: one of 100,000 items has 2 MB.
const maxManifest = 8 << 20

// readManifest reads the manifest and checks the identity's hash.
func readManifest(path string) (Manifest, error) {
	m, err := readAnyManifest(path)
	if err == nil {
		err = m.CheckIdentity()
	}
	return m, err
}

func readAnyManifest(path string) (Manifest, error) {
	file := filepath.Join(path, ManifestFile)
	b, err := disk.ReadEntry(file, maxManifest)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return Manifest{}, fmt.Errorf("%s is not a run: it has no %s (ccmed runs ls lists runs): %w", path, ManifestFile, fs.ErrNotExist)
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("read the manifest: %w", err)
	}
	var m Manifest
	if err := strictjson.Unmarshal(b, &m); err != nil {
		return Manifest{}, damagedManifest(file, plain(err))
	}
	if m.Schema > Schema {
		return Manifest{}, &NewerError{File: file, Schema: m.Schema, Reads: Schema, Version: m.Identity.Version}
	}
	if m.Identity.Task == "" {
		return Manifest{}, damagedManifest(file, errors.New("it names no task"))
	}
	if m.Schema < Schema {
		return Manifest{}, fmt.Errorf("%s has schema %d, which no released version wrote; make the run again in another folder", file, m.Schema)
	}
	m.Path = absolute(path)
	return m, nil
}

func damagedManifest(file string, err error) error {
	return fmt.Errorf("%s is damaged: %w; put back a copy of it, or make the run again in another folder", file, err)
}

func (d *Dir) writeManifest() error {
	d.mu.Lock()
	m := d.manifest
	d.mu.Unlock()
	return d.writeJSON(ManifestFile, m)
}

func (d *Dir) writeJSON(name string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return d.WriteFile(name, b.Bytes())
}

// Path returns the directory as it was given.
func (d *Dir) Path() string { return d.path }

// Manifest returns a copy of the manifest.
func (d *Dir) Manifest() Manifest {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.manifest
	m.Sessions = slices.Clone(m.Sessions)
	return m
}

// WriteFile writes a file of the run by atomic replace.
func (d *Dir) WriteFile(name string, data []byte) error {
	if err := d.owned(); err != nil {
		return err
	}
	file := filepath.Join(d.path, name)
	if err := disk.WriteEntry(file, data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// WriteMetrics writes metrics.json with the checksum of its content by atomic
// replace. NaN and infinities are an error, since JSON has none.
func (d *Dir) WriteMetrics(v any) error { return d.WriteSealed(MetricsFile, v) }

// WriteSealed writes a JSON object with the checksum of its content by atomic replace.
func (d *Dir) WriteSealed(name string, v any) error {
	b, err := checksum.Seal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return d.WriteFile(name, b)
}

// Close ends the session with a status, records what the files hold and gives the
// lock back. A session that resumed a run and did not execute it leaves the run as
// it was. Execute calls Close; a second call does nothing.
func (d *Dir) Close(status string) error { return d.close(status, nil, nil) }

// close takes the checksums of what was written.
func (d *Dir) close(status string, sum *Summary, sums map[string]lineSum) (err error) {
	if d.lock == nil {
		return nil
	}
	d.logf("session ends: %s", status)
	// A folder that is no longer this run's is left alone.
	if err = d.owned(); err == nil {
		err = d.end(status, sum, sums)
	}
	d.mu.Lock()
	if d.log != nil {
		err = errors.Join(err, d.log.close())
		d.log = nil
	}
	d.mu.Unlock()
	return errors.Join(err, d.release())
}

// end writes the end of the session into the manifest.
func (d *Dir) end(status string, sum *Summary, sums map[string]lineSum) error {
	kept := sums == nil && d.before != ""
	if sums == nil && !kept {
		var err error
		if sums, err = d.sums(); err != nil {
			return err
		}
	}
	d.mu.Lock()
	m := &d.manifest
	m.Status = status
	if kept {
		m.Status = d.before
	} else {
		m.record(sums)
	}
	if k := len(m.Sessions); k > 0 {
		s := &m.Sessions[k-1]
		s.Status, s.End, s.Summary = status, time.Now().UTC().Truncate(time.Millisecond), sum
	}
	d.mu.Unlock()
	return d.writeManifest()
}

// All iterates over the samples in the order of writing, without holding them
// in memory. A torn last line is left out. The iteration ends after an error; one
// that comes last is a *ChangedError about the samples before it.
func (d *Dir) All() iter.Seq2[Sample, error] {
	return readAhead(func(yield func(Sample, error) bool) {
		file := filepath.Join(d.path, SamplesFile)
		for l, err := range d.lines(SamplesFile) {
			if err != nil {
				yield(Sample{}, err)
				return
			}
			s, err := decodeSample(file, l)
			if !yield(s, err) || err != nil {
				return
			}
		}
	})
}

// Each iterates over samples that are at hand, as All does over those of a run.
func Each(samples []Sample) iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		for _, s := range samples {
			if !yield(s, nil) {
				return
			}
		}
	}
}

// Samples returns all samples in the order of writing. It refuses two of one key,
// as an edit by hand leaves them: every number would count both.
func (d *Dir) Samples() ([]Sample, error) {
	var out []Sample
	lines := map[Key]int{}
	for s, err := range d.All() {
		if err != nil {
			return nil, err
		}
		out = append(out, s)
		if first, twice := lines[s.Key]; twice {
			return nil, TwiceError(d.path, len(out), first, s.Key)
		}
		lines[s.Key] = len(out)
	}
	return out, nil
}

// TwiceError is the error of two samples of one key in the run at path.
func TwiceError(path string, line, first int, k Key) error {
	return fmt.Errorf("%s:%d: there is a sample of %s on line %d already; %s", filepath.Join(path, SamplesFile), line, k, first, remake)
}

// Failures returns the failed attempts in the order of writing.
func (d *Dir) Failures() ([]Failure, error) {
	file := filepath.Join(d.path, ErrorsFile)
	var out []Failure
	for l, err := range d.lines(ErrorsFile) {
		if err != nil {
			return nil, err
		}
		var f Failure
		if err := decode(file, l, &f); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// Prompts iterates over the prompts in the order of asking. One that is not what its
// hash names is an error; errors end the iteration, as in All.
func (d *Dir) Prompts() iter.Seq2[Asked, error] {
	return func(yield func(Asked, error) bool) {
		file := filepath.Join(d.path, PromptsFile)
		for l, err := range d.lines(PromptsFile) {
			if err != nil {
				yield(Asked{}, err)
				return
			}
			p, err := decodeAsked(file, l)
			if err == nil && !p.genuine() {
				err = damaged(file, l.number, fmt.Errorf("the prompt is not the one that its hash %s names", p.Hash))
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// Count returns how many samples there are now, written ones of a running session
// included.
func (d *Dir) Count() (int, error) {
	s, err := d.sum(SamplesFile)
	return s.lines, err
}

// SamplesHash returns the SHA-256 of samples.jsonl, up to its last newline, as
// "sha256:…".
func (d *Dir) SamplesHash() (string, error) {
	s, err := d.sum(SamplesFile)
	return s.String(), err
}
