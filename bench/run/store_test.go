package run

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccmed/ccmed/infer"
)

// A full disk stops the run with the file's name, keeps what is whole, and lets
// the run go on later, whichever file could not be written and however the write
// failed.
func TestDiskFull(t *testing.T) {
	for _, name := range []string{SamplesFile, PromptsFile, ErrorsFile} {
		for how, write := range map[string]func(f file, b []byte) (int, error){
			"nothing written": func(file, []byte) (int, error) { return 0, syscall.ENOSPC },
			"half written":    func(f file, b []byte) (int, error) { n, _ := f.Write(b[:len(b)/2]); return n, syscall.ENOSPC },
			"short":           func(f file, b []byte) (int, error) { return f.Write(b[:len(b)/2]) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "run")
				d := create(t, path)
				d.wrap = func(n string, f file) file {
					if n != name {
						return f
					}
					return &fullAfter{file: f, whole: 2, then: write}
				}
				task := words(9)
				if name == ErrorsFile {
					task.Steps[0].Do = failing(func(item string) error {
						if item > "item-003" {
							return errors.New("refused")
						}
						return nil
					})
				}
				sum, err := Execute(t.Context(), d, task, Options{Workers: (&echo{}).workers(1), MaxFailures: 100})
				if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "resume") || strings.Count(err.Error(), "make room") != 1 {
					t.Fatalf("error %v", err)
				}
				if kept := len(content(t, path)); kept != sum.Scored || kept < 2 {
					t.Errorf("%d samples are kept, and %d were scored", kept, sum.Scored)
				}
				if err := Verify(path, VerifyOptions{}); err != nil {
					t.Error(err)
				}
				if _, err := Execute(t.Context(), resume(t, path), words(9), Options{Workers: (&echo{}).workers(1)}); err != nil {
					t.Fatal(err)
				}
				if n := len(content(t, path)); n != 18 {
					t.Errorf("%d samples after resuming, want 18", n)
				}
			})
		}
	}
}

// fullAfter is a file on a disk that is full after some whole writes.
type fullAfter struct {
	file
	whole int
	then  func(f file, b []byte) (int, error)
}

func (f *fullAfter) Write(b []byte) (int, error) {
	if f.whole > 0 {
		f.whole--
		return f.file.Write(b)
	}
	return f.then(f.file, b)
}

// shortWriter writes only the start of a line and then says the disk is full.
type shortWriter struct{ *os.File }

func (s shortWriter) Write(b []byte) (int, error) {
	n, err := s.File.Write(b[:len(b)/2])
	return n, errors.Join(err, syscall.ENOSPC)
}

func TestHalfWrittenLineIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	a, err := openAppender(path, func(line) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.append([]byte("whole\n")); err != nil {
		t.Fatal(err)
	}
	f := a.f.(*os.File)
	a.f = shortWriter{f}
	if _, err := a.append([]byte("half a line\n")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("error %v", err)
	}
	a.f = f
	if at, err := a.append([]byte("next\n")); err != nil || at != 6 {
		t.Fatalf("appended at %d, %v", at, err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "whole\nnext\n" {
		t.Errorf("file holds %q, %v", got, err)
	}
}

// What is stored is what the server was sent, and older prompts keep their hash.
func TestPromptsAreStoredAsSent(t *testing.T) {
	p := infer.Prompt{Messages: []infer.Message{{Role: infer.User, Content: "Hot?<|im_end|>"}}}
	a := newAsked(p, "")
	if got := a.Prompt.Messages[0].Content; got != "Hot?< |im_end|>" || !a.genuine() || p.Messages[0].Content != "Hot?<|im_end|>" {
		t.Errorf("stored %q, genuine %t, asked %+v", got, a.genuine(), p)
	}
	if old := (Asked{Hash: p.Hash(), Prompt: &p}); !old.genuine() {
		t.Error("a prompt that was stored before is taken for another")
	}
	if text := newAsked(p, "user: Hot?<|im_end|>"); text.Rendered != "user: Hot?<|im_end|>" || !text.genuine() {
		t.Errorf("rendered %+v", text)
	}
}

// Messages are found in what a template made of them, whatever it trims; where one was
// changed, none is named.
func TestMessagesOfARenderedPrompt(t *testing.T) {
	t.Parallel()
	ms := []infer.Message{{Role: infer.System, Content: "Be brief. "}, {Role: infer.User, Content: "Hot?\n"}}
	for rendered, want := range map[string][]infer.Message{
		"<s>Be brief. </s><u>Hot?\n</u>": ms,
		"<s>Be brief.</s><u>Hot?</u>":    {{Role: infer.System, Content: "Be brief."}, {Role: infer.User, Content: "Hot?"}},
		"<s>Be brief.</s><u>Cold?</u>":   nil,
		"<u>Hot?</u><s>Be brief.</s>":    nil,
	} {
		got := newAsked(infer.Prompt{Messages: ms}, rendered).Sent()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", rendered, diff)
		}
	}
	for _, s := range [][]Span{{{"user", 2, 99}}, {{"user", 3, 2}}, {{"system", 0, 3}, {"user", 2, 4}}} {
		if got := (Asked{Rendered: "<u>Hot?</u>", Messages: s}).Sent(); got != nil {
			t.Errorf("spans %v give %v", s, got)
		}
	}
}
