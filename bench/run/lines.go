package run

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
)

// line is one complete line of a file, without its newline. text is valid until
// the next one is read.
type line struct {
	number int // from 1
	offset int64
	text   []byte
}

// readLines iterates over the complete lines of a file; what follows the last
// newline was torn by a kill and is left out. A file that is not there has none.
func readLines(file string) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		f, err := os.Open(file)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(line{}, fmt.Errorf("read lines: %w", err))
			return
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			yield(line{}, fmt.Errorf("read lines: %w", err))
			return
		}
		// Only what is there now: the run may be growing.
		r := bufio.NewReaderSize(io.LimitReader(f, st.Size()), 1<<16)
		l := line{}
		var long []byte
		for {
			part, err := r.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) {
				long = append(long, part...)
				continue
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(line{}, fmt.Errorf("read %s: %w", file, err))
				return
			}
			text := part
			if len(long) > 0 {
				long = append(long, part...)
				text = long
			}
			l.number++
			l.text = text[:len(text)-1]
			if !yield(l, nil) {
				return
			}
			l.offset += int64(len(text))
			long = long[:0]
		}
	}
}

func damaged(file string, number int, err error) error {
	return fmt.Errorf("%s:%d is damaged: %w; delete that line, and the run does it again when resumed", file, number, err)
}

func decodeSample(file string, l line) (Sample, error) {
	var s Sample
	if err := json.Unmarshal(l.text, &s); err != nil {
		return s, damaged(file, l.number, err)
	}
	if s.Schema > SampleSchema {
		return s, &NewerError{File: fmt.Sprintf("%s:%d", file, l.number), Schema: s.Schema, Reads: SampleSchema}
	}
	return s, nil
}

// countSamples counts the lines of samples.jsonl and hashes the file.
func (d *Dir) countSamples() (n int, hash string, err error) {
	f, err := os.Open(filepath.Join(d.path, SamplesFile))
	h := sha256.New()
	if err == nil {
		defer f.Close()
		c := &newlines{}
		st, err := f.Stat()
		if err == nil { // only what is there now: the run may be growing
			_, err = io.Copy(io.MultiWriter(h, c), io.LimitReader(f, st.Size()))
		}
		if err != nil {
			return 0, "", fmt.Errorf("hash the samples: %w", err)
		}
		n = c.n
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, "", fmt.Errorf("hash the samples: %w", err)
	}
	return n, "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

type newlines struct{ n int }

func (c *newlines) Write(p []byte) (int, error) {
	c.n += bytes.Count(p, []byte{'\n'})
	return len(p), nil
}
