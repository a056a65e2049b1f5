// Package visible shows texts of unknown origin without letting a terminal obey
// them:
//
//	fmt.Println(visible.Text("a\x1b[2Jb"))     // a␛[2Jb
//	stderr := visible.Writer(os.Stderr)        // for everything that is told
//	out = visible.JSON(encoded)                // JSON of the same value
//
// A name, a line or a server's message may hold escape sequences that move the
// cursor, set the window's title or fill the clipboard, and marks that turn the
// direction of what follows.
package visible

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// Text replaces what a terminal would obey: control characters become their
// pictures (ESC is ␛), C1 controls, bytes that are not UTF-8 and the marks that
// turn the direction of later text become �. Line breaks stay, tabs become
// spaces.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t', r == '\u2028', r == '\u2029':
			return ' '
		case r < 0x20:
			return '\u2400' + r
		case r == 0x7f:
			return '\u2421'
		case obeyed(r):
			return utf8.RuneError
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// obeyed reports C1 controls and DEL, and the marks that turn the direction of later
// text.
func obeyed(r rune) bool {
	return r >= 0x7f && r <= 0x9f || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// Line is Text on one line.
func Line(s string) string { return strings.Join(strings.Fields(Text(s)), " ") }

// JSON escapes in a JSON text what encoding/json leaves as it is and a terminal may
// obey. Its value stays the same.
func JSON(text string) string {
	var out strings.Builder
	out.Grow(len(text))
	for _, r := range text {
		if obeyed(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

type writer struct {
	w io.Writer

	mu   sync.Mutex
	part []byte // of a character whose end is still to come
}

// Writer returns a writer of Text to w, which several goroutines may use.
func Writer(w io.Writer) io.Writer {
	if _, ok := w.(*writer); ok {
		return w
	}
	return &writer{w: w}
}

// Under returns what a Writer writes to, and any other writer itself.
func Under(w io.Writer) io.Writer {
	if v, ok := w.(*writer); ok {
		return v.w
	}
	return w
}

func (v *writer) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := append(v.part, p...)
	end := len(text)
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if start := len(text) - i; utf8.RuneStart(text[start]) {
			if !utf8.FullRune(text[start:]) {
				end = start
			}
			break
		}
	}
	v.part = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(v.w, Text(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}
