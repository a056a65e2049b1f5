package run

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ccmed/ccmed/bench/disk"
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
	sum   lineSum // of what is in the file
	dirty bool
	// failed is why nothing more can be written: what a failed write left behind
	// could not be cut.
	failed error
}

// openAppender opens a file for appending at its last newline: a torn last line
// is cut. Every complete line is shown to each.
func openAppender(path string, each func(line) error) (*appender, error) {
	a := &appender{path: path, sum: newLineSum()}
	for l, err := range readLines(path) {
		if err != nil {
			return nil, err
		}
		if err := each(l); err != nil {
			return nil, err
		}
		a.sum.line(l.text)
	}
	f, err := disk.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open for writing: %w", err)
	}
	st, err := f.Stat()
	if err == nil && st.Size() > a.sum.bytes {
		err = f.Truncate(a.sum.bytes)
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
	if a.failed != nil {
		return 0, a.failed
	}
	at := a.sum.bytes
	n, err := a.f.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		err = fmt.Errorf("write %s: %w; what was done is kept: make room there and resume the run", a.path, err)
		if n > 0 {
			if cut := a.f.Truncate(at); cut != nil {
				err = errors.Join(err, cut)
				a.failed = err
			}
		}
		return 0, err
	}
	a.sum.add(b)
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
	owned    func() error          // says whether the folder is still the run's
}

// openStore opens the run's files and shows every sample to each.
func (d *Dir) openStore(each func(Sample, span) error) (s *store, err error) {
	s = &store{known: map[[16]byte]struct{}{}, attempts: map[Key]int{}, owned: d.owned}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	open := func(to **appender, name string, each func(path string, l line) error) {
		if err != nil {
			return
		}
		path := filepath.Join(d.path, name)
		if *to, err = openAppender(path, func(l line) error { return each(path, l) }); err == nil && d.wrap != nil {
			(*to).f = d.wrap(name, (*to).f)
		}
	}
	open(&s.samples, SamplesFile, func(path string, l line) error {
		x, err := decodeSample(path, l)
		if err != nil {
			return err
		}
		return each(x, span{l.offset, int32(len(l.text))})
	})
	open(&s.prompts, PromptsFile, func(path string, l line) error {
		p, err := decodeAsked(path, l)
		if err != nil {
			return err
		}
		key, err := p.key()
		s.known[key] = struct{}{}
		return err
	})
	open(&s.errors, ErrorsFile, func(path string, l line) error {
		var f Failure
		if err := decode(path, l, &f); err != nil {
			return err
		}
		s.attempts[f.Key]++
		return nil
	})
	return s, err
}

// sums returns the checksums of what was written.
func (s *store) sums() map[string]lineSum {
	return map[string]lineSum{SamplesFile: s.samples.sum, PromptsFile: s.prompts.sum, ErrorsFile: s.errors.sum}
}

// put writes the prompts that are new, then the sample.
func (s *store) put(x Sample, prompts []Asked) (span, error) {
	text, err := encodeLine(x)
	if err != nil {
		return span{}, fmt.Errorf("encode the sample of %s: %w", x.Key, errUnencodable{err})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.owned(); err != nil {
		return span{}, err
	}
	if err := s.ask(prompts...); err != nil {
		return span{}, fmt.Errorf("keep the prompts of %s: %w", x.Key, err)
	}
	at, err := s.samples.append(text)
	return span{at, int32(len(text) - 1)}, err
}

// ask writes the prompts that are new.
func (s *store) ask(prompts ...Asked) error {
	var fresh []byte
	var keys [][16]byte
	for _, p := range prompts {
		key, err := p.key()
		if err != nil {
			return err
		}
		if _, ok := s.known[key]; ok {
			continue
		}
		b, err := encodeLine(p)
		if err != nil {
			return errUnencodable{err}
		}
		s.known[key] = struct{}{}
		keys, fresh = append(keys, key), append(fresh, b...)
	}
	if len(fresh) == 0 {
		return nil
	}
	if _, err := s.prompts.append(fresh); err != nil {
		for _, k := range keys {
			delete(s.known, k)
		}
		return err
	}
	return nil
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
	if err := s.owned(); err != nil {
		return err
	}
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
	if err := s.owned(); err != nil {
		return err
	}
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

// Asked is a prompt as it was asked, one line of prompts.jsonl: as the model
// read it, or, where the backend does not tell, as it was sent.
type Asked struct {
	Hash     string        `json:"hash" jsonschema:"pattern=^[0-9a-f]{32}$"`
	Rendered string        `json:"rendered,omitempty"`
	Prompt   *infer.Prompt `json:"prompt,omitempty"`
	// Messages are where those that were sent lie in Rendered. Older files have none, and a
	// template that changes a text hides them all.
	Messages []Span `json:"messages,omitempty"`
}

// Span is where a message lies in a rendered prompt, in bytes.
type Span struct {
	Role string `json:"role"`
	From int    `json:"from" jsonschema:"minimum=0"`
	To   int    `json:"to" jsonschema:"minimum=0"`
}

// spans finds messages in a rendered prompt, in their order; nil where one is not there.
func spans(ms []infer.Message, rendered string) []Span {
	var families *infer.Controls
	var out []Span
	at := 0
	for _, m := range ms {
		found := false
		for _, text := range []string{m.Content, strings.TrimSpace(m.Content), strings.TrimSpace(families.Break(m.Content))} {
			if i := strings.Index(rendered[at:], text); i >= 0 {
				out = append(out, Span{m.Role, at + i, at + i + len(text)})
				at, found = at+i+len(text), true
				break
			}
		}
		if !found {
			return nil
		}
	}
	return out
}

// Sent are the messages that were sent; nil where they are not known apart.
func (p Asked) Sent() (out []infer.Message) {
	if p.Prompt != nil {
		return p.Prompt.Messages
	}
	at := 0
	for _, s := range p.Messages {
		if s.From < at || s.To < s.From || s.To > len(p.Rendered) {
			return nil
		}
		out, at = append(out, infer.Message{Role: s.Role, Content: p.Rendered[s.From:s.To]}), s.To
	}
	return out
}

func newAsked(p infer.Prompt, rendered string) Asked {
	if rendered == "" {
		var families *infer.Controls // a server that does not tell is sent messages without them
		p.Messages = families.BreakAll(p.Messages)
		return Asked{Hash: p.Hash(), Prompt: &p}
	}
	sum := sha256.Sum256([]byte(rendered))
	return Asked{Hash: hex.EncodeToString(sum[:16]), Rendered: rendered, Messages: spans(p.Messages, rendered)}
}

func (p Asked) key() (k [16]byte, err error) {
	b, err := hex.DecodeString(p.Hash)
	if err != nil || len(b) != len(k) {
		return k, fmt.Errorf("%q is not a prompt hash", p.Hash)
	}
	return [16]byte(b), nil
}

// genuine reports whether the hash is that of the content.
func (p Asked) genuine() bool {
	if p.Prompt != nil {
		return p.Prompt.Hash() == p.Hash
	}
	return newAsked(infer.Prompt{}, p.Rendered).Hash == p.Hash
}

func decodeAsked(file string, l line) (p Asked, err error) {
	if err := decode(file, l, &p); err != nil {
		return p, err
	}
	if _, err := p.key(); err != nil {
		return p, damaged(file, l.number, err)
	}
	return p, nil
}
