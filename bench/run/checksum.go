package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"iter"
	"os"
	"path/filepath"

	"github.com/ccmed/ccmed/bench/disk"
)

// remake is what can be done about a file of a run that is not what it was: the
// identity and the checksums leave no room for an edit.
const remake = "put back the file as it was, or make the run again in another folder, where what the response cache holds is not asked again"

// ChangedError reports a file that is not what the run wrote.
type ChangedError struct{ File, What string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s was changed since the run: %s; %s", e.File, e.What, remake)
}

// FileSum is the checksum of a file that grows by lines, up to its last newline.
type FileSum struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"` // "sha256:…"
}

// lineSum adds up the lines of a file.
type lineSum struct {
	hash  hash.Hash
	lines int
	bytes int64
}

func newLineSum() lineSum { return lineSum{hash: sha256.New()} }

// line takes a line without its newline.
func (s *lineSum) line(text []byte) {
	s.hash.Write(text)
	s.hash.Write(newline)
	s.lines++
	s.bytes += int64(len(text)) + 1
}

// add takes whole lines with their newlines.
func (s *lineSum) add(b []byte) {
	s.hash.Write(b)
	s.lines += bytes.Count(b, newline)
	s.bytes += int64(len(b))
}

var newline = []byte{'\n'}

func (s *lineSum) String() string { return "sha256:" + hex.EncodeToString(s.hash.Sum(nil)) }

func (s *lineSum) fileSum() FileSum { return FileSum{s.bytes, s.String()} }

// checker compares a file, line by line as it is read, with what the manifest
// records of it.
type checker struct {
	lineSum
	file   string
	want   string // recorded hash; "" where there is none
	at     func(*lineSum) bool
	grows  bool // more lines may follow
	ended  bool // what is recorded was read
	differ error
}

// checker returns the check of a file of lines. A session that was killed leaves
// more lines than the last one that ended by itself recorded.
func (d *Dir) checker(name string) *checker {
	m := d.Manifest()
	c := &checker{lineSum: newLineSum(), file: filepath.Join(d.path, name), grows: m.Status == StatusStarted}
	if name == SamplesFile {
		c.want, c.at = m.SamplesHash, func(s *lineSum) bool { return s.lines == m.Samples }
	} else if f, ok := m.Files[name]; ok {
		c.want, c.at = f.SHA256, func(s *lineSum) bool { return s.bytes >= f.Bytes }
	}
	c.compare()
	return c
}

func (c *checker) line(text []byte) {
	if c.ended && !c.grows && c.want != "" && c.differ == nil {
		c.differ = &ChangedError{c.file, fmt.Sprintf("it holds more than the %d lines that are recorded", c.lines)}
	}
	c.lineSum.line(text)
	c.compare()
}

func (c *checker) compare() {
	if c.want == "" || c.ended || !c.at(&c.lineSum) {
		return
	}
	c.ended = true
	if got := c.String(); got != c.want {
		c.differ = &ChangedError{c.file, fmt.Sprintf("its first %d lines come to %.19s… and %.19s… is recorded", c.lines, got, c.want)}
	}
}

// end returns a *ChangedError unless all lines are those that were recorded.
func (c *checker) end() error {
	if c.differ == nil && c.want != "" && !c.ended {
		return &ChangedError{c.file, fmt.Sprintf("it holds %d lines, and more are recorded", c.lines)}
	}
	return c.differ
}

// lines iterates over the complete lines of a file of the run and checks them:
// the last error is a *ChangedError where they are not what the run wrote.
func (d *Dir) lines(name string) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		c := d.checker(name)
		for l, err := range readLines(filepath.Join(d.path, name)) {
			if err == nil {
				c.line(l.text)
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
		if err := c.end(); err != nil {
			yield(line{}, err)
		}
	}
}

// Check reads the files of lines that are named, or all of them, and returns a
// *ChangedError for one that is not what the run wrote.
func (d *Dir) Check(names ...string) error {
	if len(names) == 0 {
		names = lineFiles
	}
	for _, name := range names {
		for _, err := range d.lines(name) {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// lineFiles are the files of a run that grow by lines.
var lineFiles = []string{SamplesFile, PromptsFile, ErrorsFile}

// sum adds up a file of lines as it is now.
func (d *Dir) sum(name string) (lineSum, error) {
	s := newLineSum()
	for l, err := range readLines(filepath.Join(d.path, name)) {
		if err != nil {
			return s, err
		}
		s.line(l.text)
	}
	return s, nil
}

// record takes the checksums of the files of lines into the manifest.
func (m *Manifest) record(sums map[string]lineSum) {
	m.Files = map[string]FileSum{}
	for name, s := range sums {
		if name == SamplesFile {
			m.Samples, m.SamplesHash = s.lines, s.String()
		} else {
			m.Files[name] = s.fileSum()
		}
	}
}

// sums adds up all files of lines as they are now.
func (d *Dir) sums() (map[string]lineSum, error) {
	out := map[string]lineSum{}
	for _, name := range lineFiles {
		s, err := d.sum(name)
		if err != nil {
			return nil, err
		}
		out[name] = s
	}
	return out, nil
}

// Unchecked says in a sentence each what no checksum vouches for in the files that
// are named: after a kill what came last, in older runs what was not recorded.
func (d *Dir) Unchecked(names ...string) []string {
	m := d.Manifest()
	if m.Status == StatusStarted {
		return []string{fmt.Sprintf("%s was killed or is going on: the %d samples of its last finished session have a checksum, and what came later has none before the run is resumed", d.path, m.Samples)}
	}
	var out []string
	for _, name := range names {
		_, recorded := m.Files[name]
		if name == SamplesFile {
			recorded = m.SamplesHash != ""
		}
		if _, err := os.Lstat(filepath.Join(d.path, name)); !recorded && err == nil {
			out = append(out, fmt.Sprintf("%s was made by an older ccmed: its %s has no checksum", d.path, name))
		}
	}
	return out
}

// CheckIdentity returns a *ChangedError for an identity that was edited.
func (m Manifest) CheckIdentity() error {
	hash, err := m.Identity.hash()
	if err == nil && hash != m.IdentityHash {
		err = &ChangedError{filepath.Join(m.Path, ManifestFile) + ": identity", fmt.Sprintf("identity_sha256 is stored as %.19s… and comes to %.19s…", m.IdentityHash, hash)}
	}
	return err
}

// readEntry reads a small file of the run.
func (d *Dir) readEntry(name string) ([]byte, error) {
	b, err := disk.ReadEntry(filepath.Join(d.path, name), disk.MaxText)
	if err != nil {
		return nil, fmt.Errorf("read a file of the run: %w", err)
	}
	return b, nil
}

// isLost reports whether err says that the folder is no longer the run's own.
func isLost(err error) bool {
	var lost *LostError
	return errors.As(err, &lost)
}
