package run

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// maxLine is the limit in bytes of a line, and so of what one line takes in memory.
const maxLine = 64 << 20

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
		f, err := disk.OpenEntry(file)
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
			if len(long)+len(part) > maxLine {
				yield(line{}, fmt.Errorf("%s:%d is longer than the %d bytes that a line may have; %s", file, l.number+1, maxLine, remake))
				return
			}
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

// Bounds of what readAhead holds at once: samples and bytes of their data.
const (
	batchSamples = 64
	batchBytes   = 1 << 20
)

// readAhead iterates over samples that are decoded on another core while the ones
// before them are used.
func readAhead(samples iter.Seq2[Sample, error]) iter.Seq2[Sample, error] {
	type read struct {
		Sample
		err error
	}
	return func(yield func(Sample, error) bool) {
		batches, stop := make(chan []read, 1), make(chan struct{})
		go func() {
			defer close(batches)
			var batch []read
			size := 0
			for s, err := range samples {
				batch, size = append(batch, read{s, err}), size+len(s.Data)
				if len(batch) < batchSamples && size < batchBytes {
					continue
				}
				select {
				case batches <- batch:
					batch, size = nil, 0
				case <-stop:
					return
				}
			}
			select {
			case batches <- batch:
			case <-stop:
			}
		}()
		defer func() { // the file is closed when the iteration is over
			close(stop)
			for range batches {
			}
		}()
		for batch := range batches {
			for _, r := range batch {
				if !yield(r.Sample, r.err) {
					return
				}
			}
		}
	}
}

func withNewline(text []byte) []byte { return append(slices.Clip(text), '\n') }

// decode reads a line as JSON; what it cannot take is told with file and line.
func decode(file string, l line, v any, opts ...strictjson.Option) error {
	if err := strictjson.Unmarshal(l.text, v, opts...); err != nil {
		return damaged(file, l.number, err)
	}
	return nil
}

func damaged(file string, number int, err error) error {
	return fmt.Errorf("%s:%d is damaged: %w; %s", file, number, plain(err), remake)
}

// plain leaves out strictjson's remedy, which is for texts that people write.
func plain(err error) error {
	var e *strictjson.Error
	switch {
	case !errors.As(err, &e):
		return err
	case e.Field != "":
		return fmt.Errorf("field %s: %s", e.Field, e.What)
	}
	return fmt.Errorf("byte %d: %s", e.Offset, e.What)
}

func decodeSample(file string, l line) (Sample, error) {
	var s Sample
	if err := decode(file, l, &s, strictjson.RefuseNullEntries); err != nil { // a probability of null would be 0
		return s, err
	}
	if s.Schema > SampleSchema {
		return s, &NewerError{File: fmt.Sprintf("%s:%d", file, l.number), Schema: s.Schema, Reads: SampleSchema}
	}
	return s, nil
}
