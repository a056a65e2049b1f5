package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/infer"
)

// answer is the body of a response while it is read.
type answer struct {
	ctx    context.Context
	raw    io.ReadCloser
	wait   *silence
	limit  int   // bytes
	length int64 // as announced; below 0 where it was not
	read   int   // bytes so far
	fail   func(error)
}

func (a *answer) Close() error {
	err := a.raw.Close()
	a.wait.stop()
	return err
}

// all reads the body to its end, or to one byte more than the limit.
func (a *answer) all() ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(a.raw, int64(a.limit)+1))
	a.read = len(b)
	if err != nil {
		return b, a.broken(err)
	}
	if len(b) > a.limit {
		return b[:a.limit], tooLong(a.limit)
	}
	return b, nil
}

func tooLong(limit int) error {
	return &infer.BrokenError{What: fmt.Sprintf("the server's answer is longer than %d bytes, more than what was asked for can need", limit)}
}

// broken says why reading the body ended early.
func (a *answer) broken(err error) error {
	switch {
	case context.Cause(a.ctx) == errSilent:
		return &infer.BrokenError{What: fmt.Sprintf("the server was silent for %s in the middle of its answer", a.wait.longest)}
	case a.ctx.Err() != nil:
		return err
	case a.length > 0:
		return &infer.BrokenError{What: fmt.Sprintf("the server's answer ends after %d of %d bytes", a.read, a.length), Err: err}
	}
	return &infer.BrokenError{What: fmt.Sprintf("the server's answer breaks off after %d bytes: %s", a.read, clean(err.Error())), Err: err}
}

// lines is the body of a stream of JSON values, one a line. A line is handed on
// when it has come whole and is no error.
type lines struct {
	*answer
	from  *bufio.Reader
	ready []byte
	err   error
	some  bool
}

func newLines(a *answer) *lines { return &lines{answer: a, from: bufio.NewReaderSize(a.raw, 64<<10)} }

func (l *lines) Read(p []byte) (int, error) {
	for len(l.ready) == 0 {
		if l.err == nil {
			l.ready, l.err = l.line()
			if l.err != nil && l.err != io.EOF {
				l.fail(l.err) // vendors' clients drop what reading a stream returns
			}
		}
		if l.err != nil {
			return 0, l.err
		}
	}
	n := copy(p, l.ready)
	l.ready = l.ready[n:]
	return n, nil
}

// line returns the next line that is not empty.
func (l *lines) line() ([]byte, error) {
	for {
		var line []byte
		for {
			part, err := l.from.ReadSlice('\n')
			line = append(line, part...)
			l.read += len(part)
			if l.read > l.limit {
				return nil, tooLong(l.limit)
			}
			if len(line) > MaxLine {
				return nil, &infer.BrokenError{What: fmt.Sprintf("a line of the server's answer is longer than %d bytes", MaxLine)}
			}
			if err == nil {
				break
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if err != io.EOF {
				return nil, l.broken(err)
			}
			if len(bytes.TrimSpace(line)) > 0 {
				break // the last line; what it lacks, check finds
			}
			if !l.some {
				return nil, check(nil)
			}
			return nil, io.EOF
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		l.wait.touch()
		l.some = true
		return line, check(line)
	}
}

// check returns an error for a body that is not one JSON object or more, and for
// an object that reports an error.
func check(body []byte) error {
	text := bytes.TrimSpace(body)
	switch {
	case len(text) == 0:
		return &infer.BrokenError{What: "the server's answer is empty"}
	case text[0] == '<':
		return &infer.BrokenError{What: "the server answered with " + page(text) + " and not with JSON; is the address that of its API?"}
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var raw json.RawMessage
		err := d.Decode(&raw)
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return &infer.BrokenError{What: fmt.Sprintf("the server's answer breaks off after %d bytes", len(body)), Err: err}
		case err != nil, raw[0] != '{':
			return &infer.BrokenError{What: "the server's answer is no JSON object: " + clean(string(text[:min(len(text), 80)])), Err: err}
		}
		// What encoding/json takes in silence changes an answer: bytes that are
		// no UTF-8 become others, of a key that stands twice the last one counts.
		var unsound *strictjson.Error
		if errors.As(strictjson.Check(raw), &unsound) {
			what := strings.TrimSpace(unsound.Field + " " + unsound.What)
			return &infer.BrokenError{What: "the server's answer is not sound JSON: " + clean(what), Err: unsound}
		}
		if err := reported(raw); err != nil {
			return err
		}
	}
}

// reported returns the error that an object sent with a good status holds.
func reported(object []byte) error {
	var o struct {
		Error  json.RawMessage `json:"error"`
		Object string          `json:"object"`
		Code   json.RawMessage `json:"code"`
	}
	if json.Unmarshal(object, &o) != nil {
		return nil // its form is the vendor's affair
	}
	if e := string(o.Error); (e == "" || e == "null" || e == `""` || e == "false") && o.Object != "error" {
		return nil
	}
	code := statusIn(o.Code)
	var inner struct {
		Code json.RawMessage `json:"code"`
	}
	if json.Unmarshal(o.Error, &inner) == nil && code == 0 {
		code = statusIn(inner.Code)
	}
	if code == 0 {
		code = http.StatusInternalServerError
	}
	return &infer.StatusError{Code: code, Message: message(object)}
}

// statusIn reads an HTTP error status out of a JSON number or string.
func statusIn(raw json.RawMessage) int {
	n, err := strconv.Atoi(strings.Trim(string(raw), `"`))
	if err != nil || n < 400 || n > 599 {
		return 0
	}
	return n
}

// words are what a server says in a response with an error status.
func words(resp *http.Response, body []byte) string {
	text := bytes.TrimSpace(body)
	switch {
	case len(text) == 0:
		return strings.ToLower(http.StatusText(resp.StatusCode))
	case text[0] == '<':
		return page(text)
	case text[0] == '{':
		if m := message(text); m != "" {
			return m
		}
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return clean(first)
}

// message finds the words of an error in the forms that servers use: {"error":
// "…"}, {"error": {"message": "…"}}, {"message": "…"}, {"detail": …}.
func message(object []byte) string {
	var o map[string]json.RawMessage
	if json.Unmarshal(object, &o) != nil {
		return ""
	}
	for _, k := range []string{"error", "message", "detail", "msg"} {
		var text string
		switch raw := o[k]; {
		case len(raw) == 0 || string(raw) == "null":
		case json.Unmarshal(raw, &text) == nil && text != "":
			return clean(text)
		case raw[0] == '{':
			if m := message(raw); m != "" {
				return m
			}
			return clean(string(raw))
		case raw[0] == '[':
			return clean(string(raw))
		}
	}
	return clean(string(object))
}

var title = regexp.MustCompile(`(?is)<(?:title|h1)[^>]*>\s*([^<]*?)\s*</`)

func page(text []byte) string {
	if m := title.FindSubmatch(text); m != nil && len(m[1]) > 0 {
		return "an HTML page (" + clean(string(m[1])) + ")"
	}
	return "an HTML page"
}

// clean makes a server's words one short line that a terminal shows as it is,
// without secrets.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, " "))
	s = infer.Redact(strings.Join(strings.Fields(s), " "))
	const longest = 300
	if runes := []rune(s); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return s
}
