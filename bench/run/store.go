package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// Failure is a failed attempt at a sample, one line of errors.jsonl.
type Failure struct {
	Key
	Error    string    `json:"error"`
	RawReply string    `json:"raw_reply,omitempty"` // what the model said, where the error carries it
	Time     time.Time `json:"time"`
	Attempt  int       `json:"attempt"` // from 1, over all sessions
}

// file is what an appender needs of *os.File, so that a test can fill the disk.
type file interface {
	Write([]byte) (int, error)
	ReadAt([]byte, int64) (int, error)
	Truncate(int64) error
	Sync() error
	Close() error
}

// appender writes whole lines at the end of a file.
type appender struct {
	path  string
	f     file
	size  int64
	dirty bool
}

// openAppender opens a file for appending at its last newline: a torn last line
// is cut. Every complete line is shown to each.
func openAppender(path string, each func(line) error) (*appender, error) {
	a := &appender{path: path}
	for l, err := range readLines(path) {
		if err != nil {
			return nil, err
		}
		if err := each(l); err != nil {
			return nil, err
		}
		a.size = l.offset + int64(len(l.text)) + 1
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open for writing: %w", err)
	}
	st, err := f.Stat()
	if err == nil && st.Size() > a.size {
		err = f.Truncate(a.size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cut the torn last line: %w", err), f.Close())
	}
	a.f = f
	return a, nil
}

// append writes lines with one write(2) and returns where they start. What a
// failed write left behind is cut again.
func (a *appender) append(b []byte) (int64, error) {
	at := a.size
	n, err := a.f.Write(b)
	if err != nil {
		err = fmt.Errorf("write %s: %w; what was done is kept: make room there and resume the run", a.path, err)
		if n > 0 {
			err = errors.Join(err, a.f.Truncate(at))
		}
		return 0, err
	}
	a.size += int64(n)
	a.dirty = true
	return at, nil
}

// span is where a sample lies in samples.jsonl; n is 0 when there is none.
type span struct {
	at int64
	n  int32
}

// store writes a run's lines. It keeps where each sample lies, not the samples.
type store struct {
	mu       sync.Mutex
	samples  *appender
	prompts  *appender
	errors   *appender
	known    map[[16]byte]struct{} // prompts that are on disk
	attempts map[Key]int           // of samples that have failed
}

// openStore opens a run's files and shows every sample to each.
func openStore(dir string, each func(Sample, span) error) (s *store, err error) {
	s = &store{known: map[[16]byte]struct{}{}, attempts: map[Key]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	path := filepath.Join(dir, SamplesFile)
	if s.samples, err = openAppender(path, func(l line) error {
		x, err := decodeSample(path, l)
		if err != nil {
			return err
		}
		return each(x, span{l.offset, int32(len(l.text))})
	}); err != nil {
		return s, err
	}
	promptsPath := filepath.Join(dir, PromptsFile)
	if s.prompts, err = openAppender(promptsPath, func(l line) error {
		var p asked
		if err := json.Unmarshal(l.text, &p); err != nil {
			return damaged(promptsPath, l.number, err)
		}
		key, err := p.key()
		if err != nil {
			return damaged(promptsPath, l.number, err)
		}
		s.known[key] = struct{}{}
		return nil
	}); err != nil {
		return s, err
	}
	errorsPath := filepath.Join(dir, ErrorsFile)
	s.errors, err = openAppender(errorsPath, func(l line) error {
		var f Failure
		if err := json.Unmarshal(l.text, &f); err != nil {
			return damaged(errorsPath, l.number, err)
		}
		s.attempts[f.Key]++
		return nil
	})
	return s, err
}

// put writes the prompts that are new, then the sample.
func (s *store) put(x Sample, prompts []asked) (span, error) {
	text, err := encodeLine(x)
	if err != nil {
		return span{}, fmt.Errorf("encode the sample of %s: %w", x.Key, errUnencodable{err})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh []byte
	var keys [][16]byte
	for _, p := range prompts {
		key, err := p.key()
		if err != nil {
			return span{}, err
		}
		if _, ok := s.known[key]; ok {
			continue
		}
		b, err := encodeLine(p)
		if err != nil {
			return span{}, fmt.Errorf("encode a prompt of %s: %w", x.Key, err)
		}
		s.known[key] = struct{}{}
		keys, fresh = append(keys, key), append(fresh, b...)
	}
	if len(fresh) > 0 {
		if _, err := s.prompts.append(fresh); err != nil {
			for _, k := range keys {
				delete(s.known, k)
			}
			return span{}, err
		}
	}
	at, err := s.samples.append(text)
	return span{at, int32(len(text) - 1)}, err
}

// errUnencodable marks a sample that the step filled with what JSON cannot hold:
// the step's failure, not the disk's.
type errUnencodable struct{ error }

func (e errUnencodable) Unwrap() error { return e.error }

// get reads a sample back.
func (s *store) get(at span) (Sample, error) {
	b := make([]byte, at.n)
	if _, err := s.samples.f.ReadAt(b, at.at); err != nil {
		return Sample{}, fmt.Errorf("read a sample back from %s: %w", s.samples.path, err)
	}
	var x Sample
	if err := json.Unmarshal(b, &x); err != nil {
		return Sample{}, fmt.Errorf("read a sample back from %s at byte %d: %w", s.samples.path, at.at, err)
	}
	return x, nil
}

// fail writes down a failed attempt.
func (s *store) fail(k Key, cause error) error {
	f := Failure{Key: k, Error: cause.Error(), Time: time.Now().UTC().Truncate(time.Millisecond)}
	var raw RawReplier
	if errors.As(cause, &raw) {
		f.RawReply = raw.RawReply()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[k]++
	f.Attempt = s.attempts[k]
	b, err := encodeLine(f)
	if err != nil {
		return fmt.Errorf("encode the failure of %s: %w", k, err)
	}
	_, err = s.errors.append(b)
	return err
}

// sync makes everything written so far outlive a power cut. It does not hold up
// writers while the disk works.
func (s *store) sync() error {
	var todo []*appender
	s.mu.Lock()
	for _, a := range []*appender{s.prompts, s.samples, s.errors} {
		if a != nil && a.dirty {
			a.dirty = false
			todo = append(todo, a)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, a := range todo {
		if err := a.f.Sync(); err != nil {
			errs = append(errs, fmt.Errorf("write %s to disk: %w", a.path, err))
		}
	}
	return errors.Join(errs...)
}

func (s *store) close() error {
	errs := []error{s.sync()}
	for _, a := range []*appender{s.prompts, s.samples, s.errors} {
		if a != nil && a.f != nil {
			errs = append(errs, a.f.Close())
		}
	}
	return errors.Join(errs...)
}

// asked is a prompt as it was asked, one line of prompts.jsonl: as the model
// read it, or, where the backend does not tell, as it was sent.
type asked struct {
	Hash     string        `json:"hash"`
	Rendered string        `json:"rendered,omitempty"`
	Prompt   *infer.Prompt `json:"prompt,omitempty"`
}

func newAsked(p infer.Prompt, rendered string) asked {
	if rendered == "" {
		return asked{Hash: p.Hash(), Prompt: &p}
	}
	sum := sha256.Sum256([]byte(rendered))
	return asked{Hash: hex.EncodeToString(sum[:16]), Rendered: rendered}
}

func (p asked) key() (k [16]byte, err error) {
	b, err := hex.DecodeString(p.Hash)
	if err != nil || len(b) != len(k) {
		return k, fmt.Errorf("%q is not a prompt hash", p.Hash)
	}
	return [16]byte(b), nil
}
