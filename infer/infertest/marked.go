package infertest

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unused are tokens of the test model that no text of ours has, ids 3 and up.
var unused = []string{"<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<gh_stars>", "<issue_start>"}

// MarkedModel returns a copy of the test model's file, in a folder of the test,
// whose tokens 3, 4, … have other names, printed and matched as user-defined
// tokens are. Their bytes must be fewer than those of the tokens that they
// replace, at least one of which stays as filler, so that nothing else moves.
func MarkedModel(tb testing.TB, markers ...string) string {
	tb.Helper()
	b, err := os.ReadFile(ModelPath(tb))
	if err != nil {
		tb.Fatal(err)
	}
	if len(markers) >= len(unused) {
		tb.Fatalf("infertest: %d markers; at most %d can be placed", len(markers), len(unused)-1)
	}
	old := unused[:len(markers)+1]
	filler := len(strings.Join(old, "")) - len(strings.Join(markers, ""))
	key := []byte("tokenizer.ggml.token_type")
	at, types := bytes.Index(b, tokenStrings(old)), bytes.Index(b, key)
	if filler < 1 || at < 0 || types < 0 {
		tb.Fatalf("infertest: %q do not fit into the test model's vocabulary", markers)
	}
	copy(b[at:], tokenStrings(append(markers[:len(markers):len(markers)], "<"+strings.Repeat("z", filler-1))))
	const userDefined, first = 4, 3 // llama_token_type; the id of unused[0]
	types += len(key) + 4 + 4 + 8   // type, element type and count of the array
	for i := range markers {
		binary.LittleEndian.PutUint32(b[types+4*(first+i):], userDefined)
	}
	path := filepath.Join(tb.TempDir(), "marked.gguf")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// BareModel returns a copy of the test model's file, in a folder of the test,
// without its chat template.
func BareModel(tb testing.TB) string {
	tb.Helper()
	b, err := os.ReadFile(ModelPath(tb))
	if err != nil {
		tb.Fatal(err)
	}
	key := []byte("tokenizer.chat_template")
	if bytes.Count(b, key) != 1 {
		tb.Fatal("infertest: the test model has no chat template")
	}
	copy(b[bytes.Index(b, key):], "tokenizer.text_template")
	path := filepath.Join(tb.TempDir(), "bare.gguf")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// tokenStrings is how a GGUF file holds strings in an array: each after its
// length.
func tokenStrings(ss []string) []byte {
	var out []byte
	for _, s := range ss {
		out = append(binary.LittleEndian.AppendUint64(out, uint64(len(s))), s...)
	}
	return out
}
