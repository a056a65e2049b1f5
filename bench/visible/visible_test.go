package visible

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

const hostile = "a\x1b[31m\x1b]0;t\a\x00\r\x7f\u009b2J\u202eabc\u2066\xff\tz\u2028한국어 😀\r\nend"

func harmful(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && (r < 0x20 || obeyed(r)) })
}

func TestText(t *testing.T) {
	if got, want := Text(hostile), "a␛[31m␛]0;t␇␀␍␡�2J�abc��"+" z 한국어 😀\nend"; got != want || harmful(got) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Line(" a\nb\x1b "); got != "a b␛" {
		t.Errorf("%q", got)
	}
	if !harmful(hostile) {
		t.Error("the test's own text is harmless")
	}
}

// Whatever the pieces are, what is written is the text of the whole.
func TestWriter(t *testing.T) {
	const text = "a\x1b[2J\u009b 한국어 😀\u202e\nend"
	for size := 1; size <= len(text); size++ {
		var b bytes.Buffer
		w := Writer(&b)
		for rest := []byte(text); len(rest) > 0; {
			n := min(size, len(rest))
			if m, err := w.Write(rest[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		if b.String() != Text(text) {
			t.Errorf("in pieces of %d: %q", size, b.String())
		}
	}
	var b bytes.Buffer
	if w := Writer(&b); Writer(w) != w || Under(w) != &b || Under(&b) != &b {
		t.Error("a writer of a writer, or what is under it, is another")
	}
}

func FuzzVisible(f *testing.F) {
	f.Add(hostile)
	f.Fuzz(func(t *testing.T, s string) {
		if got := Text(s); harmful(got) {
			t.Errorf("%q becomes %q", s, got)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		shown := JSON(string(b))
		if err := json.Unmarshal([]byte(shown), &after); err != nil || harmful(shown) {
			t.Errorf("%q becomes %q: %v", s, shown, err)
		}
		if _ = json.Unmarshal(b, &before); before != after {
			t.Errorf("%q was read as %q and is now %q", s, before, after)
		}
	})
}
