package sft

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
)

//go:embed corpus.txt
var written string

var unescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r", `\s`, " ", `\u0301`, "\u0301")

// Corpus returns the texts on which two tokenizers are compared: lines written
// for what tokenizers are known to differ in (digits, white space, contractions,
// scripts, combining marks, emoji, code, what a dialogue looks like) and random
// texts of such pieces. It is the same every time.
func Corpus() []string {
	var out []string
	for line := range strings.Lines(written) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "## ") {
			continue
		}
		out = append(out, unescape.Replace(line))
	}
	rng := rand.New(rand.NewPCG(20261130, 5))
	for n := range 200 {
		var b strings.Builder
		for range 1 + n%24 {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		out = append(out, b.String())
	}
	// Digits one by one and by threes, at every length and after every kind of
	// character.
	for n := 1; n <= 24; n++ {
		digits := strings.Repeat("1234567890", 3)[:n]
		out = append(out, digits, " "+digits, fmt.Sprintf("a%sb, %s.%s", digits, digits, digits))
	}
	for n := 1; n <= 12; n++ {
		out = append(out, strings.Repeat(" ", n)+"x", "x"+strings.Repeat(" ", n), "x"+strings.Repeat("\n", n)+"y", strings.Repeat("\t", n)+"x", strings.Repeat(" \n", n)+"x")
	}
	return out
}

var pieces = []string{
	" ", "  ", "\n", "\n\n", "\t", " \n", "\r\n", "\u3000", "the", " The", " THE", "don't", "I'LL", "it's", "’s", "'", "\"", "“", "”", "(", ")", "[", "]", "{", "}", "<", ">",
	"0", "1", "42", "2026", "3.14", "1,000", "٣", "५", "½", "²", ".", "...", "…", "?!", ":", ";", "-", "–", "—", "_", "__", "/", "\\", "|", "@", "#", "$", "€", "%", "^", "&", "*", "+", "=", "~", "`",
	"\u00e9", "e\u0301", "ñ", "ß", "ø", "İ", "ı", "ﬁ", "Ελλάδα", "Привет", "שלום", "مرحبا", "नमस्ते", "สวัสดี", "你好", "こんにちは", "안녕", "ქართული", "አማርኛ", "Ω", "→", "∑", "🙂", "👩‍👩‍👧", "🇫🇷", "👍🏽", "\u200b", "\u00a0", "\u202e", "\ufeff",
	"Turn 3 (", "Mina): ", "func main() {", "    return x;", "</p>", "x_1", "camelCase", "SNAKE_CASE", "http://a.b/c?d=e&f=g",
}
