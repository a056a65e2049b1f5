package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/reasoning"
)

// scripted answers with what its prompts say and records what it was asked.
type scripted struct {
	infer.Backend // nil: only what is defined below may be called

	mu       sync.Mutex
	asked    [][]string // the raw prompts of each Choose
	chats    int
	unscored string
	stop     *string // of Chat's replies; nil means "stop"
	err      error
	closed   bool
}

func (s *scripted) Chat(_ context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chats++
	stop := "stop"
	if s.stop != nil {
		stop = *s.stop
	}
	return infer.Reply{Text: fmt.Sprintf("%s %d", p.Raw, s.chats), Thinking: "hm", Stop: stop, Rendered: "<" + p.Raw + ">",
		Usage: infer.Usage{Prompt: 7, Evaluated: 7, Generated: 3}}, s.err
}

func (s *scripted) Choose(_ context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	var raws []string
	var cs []infer.Choice
	for _, p := range ps {
		raws = append(raws, p.Raw)
		cs = append(cs, answerTo(p.Raw, s.unscored))
	}
	s.asked = append(s.asked, raws)
	return cs, nil
}

func (s *scripted) Close() error { s.closed = true; return nil }

// answerTo depends on the prompt, and holds what JSON would lose.
func answerTo(raw, unscored string) infer.Choice {
	p := float64(len(raw)) / 100
	return infer.Choice{P: []float64{p, 1.0 / 3}, Bound: []float64{p, 0.5}, Mass: p + 1.0/3, Unscored: unscored,
		Top: []infer.TokenLogprob{{Token: "a", Logprob: -0.1}, {Token: "\xff", Logprob: math.Inf(-1)}}, Rendered: "<" + raw + ">",
		Usage: infer.Usage{Prompt: len(raw), Unique: 1, Evaluated: 2, Cached: 3, Generated: 1, Estimated: true}}
}

type counter struct{ *scripted }

func (counter) CountTokens(_ context.Context, s string) (int, error) { return len(s), nil }

var model = infer.Model{Backend: "embedded", Name: "small", Digest: "sha256:1", TemplateHash: "t", Quantization: "Q8_0"}

func raw(texts ...string) []infer.Prompt {
	var ps []infer.Prompt
	for _, s := range texts {
		ps = append(ps, infer.Prompt{Raw: s})
	}
	return ps
}

func open(t *testing.T, path string) *DB {
	t.Helper()
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func wrap(t *testing.T, b infer.Backend, db *DB, m infer.Model) infer.Backend {
	t.Helper()
	w, err := Wrap(b, db, m, false)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func choose(t *testing.T, ctx context.Context, b infer.Backend, ps []infer.Prompt, o infer.Params) []infer.Choice {
	t.Helper()
	cs, err := b.Choose(ctx, ps, infer.Digits(1, 2), o)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func TestChooseForwardsOnlyMisses(t *testing.T) {
	s := &scripted{}
	db := open(t, filepath.Join(t.TempDir(), "a file?with#odd%41 signs.db"))
	b := wrap(t, s, db, model)
	ctx := t.Context()
	choose(t, ctx, b, raw("two", "four"), infer.Params{})
	got := choose(t, ctx, b, raw("first", "two", "third one", "four", "fifth"), infer.Params{})

	if want := [][]string{{"two", "four"}, {"first", "third one", "fifth"}}; !cmp.Equal(s.asked, want) {
		t.Errorf("the backend was asked %q, want %q", s.asked, want)
	}
	for i, text := range []string{"first", "two", "third one", "four", "fifth"} {
		want := answerTo(text, "")
		if text == "two" || text == "four" {
			want.Usage = infer.Usage{Replayed: len(text)}
		}
		if d := cmp.Diff(want, got[i]); d != "" {
			t.Errorf("choice %d, %q (-want +got):\n%s", i, text, d)
		}
	}
	if hits, misses := db.Stats(); hits != 2 || misses != 5 {
		t.Errorf("Stats = %d hits, %d misses; want 2, 5", hits, misses)
	}
	if cs := choose(t, ctx, b, nil, infer.Params{}); len(cs) != 0 || len(s.asked) != 2 {
		t.Errorf("no prompts gave %d choices and %d calls", len(cs), len(s.asked))
	}
}

func TestChatIsKept(t *testing.T) {
	s := &scripted{}
	path := filepath.Join(t.TempDir(), "c.db")
	ask := func(b infer.Backend, o infer.Params) infer.Reply {
		r, err := b.Chat(t.Context(), infer.Prompt{Raw: "hello"}, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := ask(wrap(t, s, open(t, path), model), infer.Params{})
	again := ask(wrap(t, s, open(t, path), model), infer.Params{}) // as the next process would
	want := first
	want.Usage = infer.Usage{Replayed: 7}
	if d := cmp.Diff(want, again); d != "" {
		t.Errorf("replayed reply (-want +got):\n%s", d)
	}
	if first.Usage.Evaluated != 7 {
		t.Errorf("the fresh reply's usage is %+v, want the backend's", first.Usage)
	}
	if other := ask(wrap(t, s, open(t, path), model), infer.Params{Repeat: 1}); other.Text != "hello 2" {
		t.Errorf("the second repetition is %q, want a fresh answer", other.Text)
	}
}

func TestChatAndChooseDoNotShareAKey(t *testing.T) {
	c := &cached{}
	a, _ := c.key("chat", infer.Prompt{Raw: "x"}, infer.Params{}, nil)
	b, _ := c.key("choose", infer.Prompt{Raw: "x"}, infer.Params{}, nil)
	if slices.Equal(a, b) {
		t.Error("the kind of call does not change the key")
	}
}

func TestSchemasHaveKeysOfTheirOwn(t *testing.T) {
	key := func(max int) string {
		k, _ := (&cached{}).key("chat", infer.Prompt{Raw: "x"}, infer.Params{Schema: &infer.Schema{Texts: []infer.SchemaText{{Name: "a", Max: max}}}}, nil)
		return string(k)
	}
	if one, again := key(1), key(1); one == key(2) || one != again {
		t.Error("the key does not follow the form of the answer")
	}
}

// TestKeyTellsEveryFieldApart walks the fields by reflection, so that a field
// added later cannot be left out of the key unnoticed.
func TestKeyTellsEveryFieldApart(t *testing.T) {
	type input struct {
		Model   identity
		Prompt  infer.Prompt
		Message infer.Message
		Params  infer.Params
		Answer  infer.Answer
	}
	key := func(in input) string {
		p := in.Prompt
		p.Messages = append([]infer.Message{in.Message}, p.Messages...)
		k, err := (&cached{model: in.Model}).key("choose", p, in.Params, []infer.Answer{in.Answer})
		if err != nil {
			t.Fatal(err)
		}
		return string(k)
	}
	seen := map[string]string{key(input{}): "nothing set"}
	tried := 0
	for i := range reflect.TypeFor[input]().NumField() {
		part := reflect.TypeFor[input]().Field(i)
		for j := range part.Type.NumField() {
			var in input
			f := reflect.ValueOf(&in).Elem().Field(i).Field(j)
			name := part.Name + "." + part.Type.Field(j).Name
			switch f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Int, reflect.Int64:
				f.SetInt(9)
			case reflect.Float64:
				f.SetFloat(0.5)
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Slice:
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			case reflect.Pointer:
				f.Set(reflect.New(f.Type().Elem()))
			default:
				t.Fatalf("%s is a %s: teach this test to set it", name, f.Kind())
			}
			k := key(in)
			if other, ok := seen[k]; ok {
				t.Errorf("%s has the key of: %s", name, other)
			}
			seen[k] = name
			tried++
		}
	}
	if least := reflect.TypeFor[infer.Params]().NumField() + 12; tried < least {
		t.Errorf("%d fields tried, want at least %d", tried, least)
	}
}

func TestModelsAreKeptApart(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "c.db"))
	s := &scripted{}
	changes := map[string]func(*infer.Model){
		"as it was": func(*infer.Model) {}, "backend": func(m *infer.Model) { m.Backend = "x" }, "name": func(m *infer.Model) { m.Name = "x" },
		"digest": func(m *infer.Model) { m.Digest = "x" }, "template": func(m *infer.Model) { m.TemplateHash = "x" },
		"quantisation": func(m *infer.Model) { m.Quantization = "x" },
		"edits":        func(m *infer.Model) { m.Edits = "x" },
	}
	for name, change := range changes {
		m := model
		change(&m)
		before := len(s.asked)
		choose(t, t.Context(), wrap(t, s, db, m), raw("q"), infer.Params{})
		if len(s.asked) == before {
			t.Errorf("%s: the answer of another model was replayed", name)
		}
	}
	m := model
	m.Server, m.Path = "later version", "elsewhere"
	before := len(s.asked)
	if choose(t, t.Context(), wrap(t, s, db, m), raw("q"), infer.Params{}); len(s.asked) != before {
		t.Error("the server's version or the path of the weights made the answer be asked for again")
	}
}

func TestWhatIsNotKept(t *testing.T) {
	for unscored, kept := range map[string]bool{
		"":                                   true,
		infer.NoAnswerSeen:                   true,
		reasoning.NoAnswer:                   true,
		"NaN in the logits":                  false,
		"no log-probabilities were returned": false,
	} {
		s := &scripted{unscored: unscored}
		b := wrap(t, s, open(t, filepath.Join(t.TempDir(), "c.db")), model)
		choose(t, t.Context(), b, raw("q"), infer.Params{})
		choose(t, t.Context(), b, raw("q"), infer.Params{})
		if got := len(s.asked) == 1; got != kept {
			t.Errorf("unscored %q: kept is %v, want %v", unscored, got, kept)
		}
	}

	s := &scripted{err: errors.New("no route")}
	b := wrap(t, s, open(t, filepath.Join(t.TempDir(), "c.db")), model)
	if _, err := b.Choose(t.Context(), raw("q"), infer.Digits(1, 2), infer.Params{}); !errors.Is(err, s.err) {
		t.Errorf("Choose: error %v, want the backend's", err)
	}
	if _, err := b.Chat(t.Context(), raw("q")[0], infer.Params{}); !errors.Is(err, s.err) {
		t.Errorf("Chat: error %v, want the backend's", err)
	}
	s.err = nil
	choose(t, t.Context(), b, raw("q"), infer.Params{})
	if _, err := b.Chat(t.Context(), raw("q")[0], infer.Params{}); err != nil || len(s.asked) != 1 || s.chats != 2 {
		t.Errorf("after the errors: %v, %d Choose and %d Chat reached the backend; want 1 and 2", err, len(s.asked), s.chats)
	}
}

func TestBypass(t *testing.T) {
	s := &scripted{}
	db := open(t, filepath.Join(t.TempDir(), "c.db"))
	b := wrap(t, s, db, model)
	for range 2 {
		choose(t, Bypass(t.Context()), b, raw("q"), infer.Params{})
		if _, err := b.Chat(Bypass(t.Context()), raw("q")[0], infer.Params{}); err != nil {
			t.Fatal(err)
		}
	}
	choose(t, t.Context(), b, raw("q"), infer.Params{})
	if len(s.asked) != 3 || s.chats != 2 {
		t.Errorf("%d Choose and %d Chat reached the backend, want 3 and 2: nothing may be kept under Bypass", len(s.asked), s.chats)
	}
	if hits, misses := db.Stats(); hits != 0 || misses != 1 {
		t.Errorf("Stats = %d, %d; want 0 hits, 1 miss", hits, misses)
	}
}

func TestWrap(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "c.db"))
	anonymous := infer.Model{Backend: "openai", Name: "served"}
	_, err := Wrap(&scripted{}, db, anonymous, false)
	if err == nil || !strings.Contains(err.Error(), "--cache force") || !strings.Contains(err.Error(), "served") {
		t.Errorf("without a digest: error %v, want one that names the model and the remedy", err)
	}
	s := &scripted{}
	b, err := Wrap(s, db, anonymous, true)
	if err != nil {
		t.Fatalf("forced: %v", err)
	}
	if _, ok := b.(infer.TokenCounter); ok {
		t.Error("a backend that cannot count tokens can after Wrap")
	}
	if err := b.Close(); err != nil || !s.closed {
		t.Errorf("Close: %v, the backend is closed: %v", err, s.closed)
	}
	c, ok := wrap(t, counter{&scripted{}}, db, model).(infer.TokenCounter)
	if !ok {
		t.Fatal("a backend that counts tokens does not after Wrap")
	}
	if n, err := c.CountTokens(t.Context(), "four"); n != 4 || err != nil {
		t.Errorf("CountTokens = %d, %v; want 4", n, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	content := strings.Repeat("these are notes, not answers\n", 200)
	if err := os.WriteFile(text, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "foreign.db")
	other := open(t, foreign)
	if _, err := other.sql.Exec("DROP TABLE answers; CREATE TABLE songs (name TEXT); PRAGMA application_id = 0"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, want string }{
		"text file":                {text, "not a response cache"},
		"another program's tables": {foreign, "another program"},
		"missing folder":           {filepath.Join(dir, "none", "c.db"), "none"},
		"folder":                   {dir, "response cache"},
	} {
		db, err := Open(c.path)
		if err == nil {
			db.Close()
			t.Errorf("%s: opened", name)
			continue
		}
		if !strings.Contains(err.Error(), c.path) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), ";") {
			t.Errorf("%s: %q does not name the file, %q and a remedy", name, err, c.want)
		}
	}
	if b, err := os.ReadFile(text); err != nil || string(b) != content {
		t.Errorf("the text file was changed (%v)", err)
	}
	empty := filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, empty)
}

func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	s := &scripted{}
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	choose(t, t.Context(), wrap(t, s, db, model), raw("q"), infer.Params{})

	// A damaged row is asked for again and healed.
	if _, err := db.sql.Exec("UPDATE answers SET answer = substr(answer, 1, length(answer) - 6)"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		choose(t, t.Context(), wrap(t, s, db, model), raw("q"), infer.Params{})
	}
	if len(s.asked) != 2 {
		t.Errorf("the backend was asked %d times, want 2: once fresh, once for the damaged row", len(s.asked))
	}

	// A damaged file is an error that says what to do.
	var many []infer.Prompt
	for i := range 200 {
		many = append(many, infer.Prompt{Raw: fmt.Sprint("prompt ", i)})
	}
	choose(t, t.Context(), wrap(t, s, db, model), many, infer.Params{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(b); i++ {
		b[i] = 0xa5
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = wrap(t, s, open(t, path), model).Choose(t.Context(), many, infer.Digits(1, 2), infer.Params{})
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("damaged file: error %v, want one that names the file and the remedy", err)
	}
}

func TestCancelled(t *testing.T) {
	b := wrap(t, &scripted{}, open(t, filepath.Join(t.TempDir(), "c.db")), model)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Choose(ctx, raw("q"), infer.Digits(1, 2), infer.Params{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

// TestConcurrency opens one new file from several handles at once, as parallel
// runs do, and asks overlapping questions through all of them.
func TestConcurrency(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	s := &scripted{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			db, err := Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close()
			b, err := Wrap(s, db, model, false)
			if err != nil {
				t.Error(err)
				return
			}
			var workers sync.WaitGroup
			for w := range 3 {
				workers.Go(func() {
					for i := range 10 {
						text := strings.Repeat("x", 1+(i+w)%10)
						cs, err := b.Choose(t.Context(), raw(text, "shared"), infer.Digits(1, 2), infer.Params{})
						if err != nil {
							t.Error(err)
							return
						}
						if want := answerTo(text, "").P; !cmp.Equal(cs[0].P, want) || cs[1].P[0] != 0.06 {
							t.Errorf("%q: P %v and %v, want %v and 0.06", text, cs[0].P, cs[1].P, want)
						}
					}
				})
			}
			workers.Wait()
		})
	}
	wg.Wait()
	before := len(s.asked)
	db := open(t, path)
	for n := range 10 {
		choose(t, t.Context(), wrap(t, s, db, model), raw(strings.Repeat("x", n+1)), infer.Params{})
	}
	if len(s.asked) != before {
		t.Errorf("%d answers were lost", len(s.asked)-before)
	}
}

// What was answered stays answered where the disk is full, and it is said once.
func TestFullDisk(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "c.db"))
	var told []error
	db.OnFailure = func(err error) { told = append(told, err) }
	db.sql.SetMaxOpenConns(1)
	if _, err := db.sql.Exec("PRAGMA max_page_count = 3"); err != nil {
		t.Fatal(err)
	}
	s := &scripted{}
	b := wrap(t, s, db, model)
	for i := range 30 {
		p := infer.Prompt{Raw: fmt.Sprint(i, strings.Repeat(fmt.Sprint(i*i), 900))}
		if cs, err := b.Choose(t.Context(), []infer.Prompt{p}, infer.Digits(1, 2), infer.Params{}); err != nil || len(cs) != 1 {
			t.Fatalf("prompt %d: %v", i, err)
		}
		if _, err := b.Chat(t.Context(), p, infer.Params{}); err != nil {
			t.Fatalf("prompt %d: %v", i, err)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0].Error(), "full") || !strings.Contains(told[0].Error(), "--cache off") {
		t.Errorf("told %v, want once that the disk is full", told)
	}
}

func TestOnlyTheOwnerReadsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.db")
	modes := func() {
		t.Helper()
		db := open(t, path)
		choose(t, t.Context(), wrap(t, &scripted{}, db, model), raw("q"), infer.Params{})
		for _, name := range []string{path, path + "-wal", path + "-shm"} {
			if s, err := os.Stat(name); err != nil || s.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v; want 0600", filepath.Base(name), s.Mode(), err)
			}
		}
	}
	modes()
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Chmod(name, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	modes()
	if _, err := Open(filepath.Join(os.DevNull)); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a device was opened: %v", err)
	}
}

// Answers that were kept before they were checked are not used.
func TestOlderAnswersAreAskedAgain(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "c.db"))
	s := &scripted{}
	b := wrap(t, s, db, model)
	choose(t, t.Context(), b, raw("q"), infer.Params{})
	var key, answer []byte
	if err := db.sql.QueryRow("SELECT key, answer FROM answers").Scan(&key, &answer); err != nil {
		t.Fatal(err)
	}
	keyOf := func(format int) []byte {
		b, err := json.Marshal(request{format, identity{model.Backend, model.Name, model.Digest, model.TemplateHash, model.Quantization, ""},
			"choose", raw("q")[0], infer.Params{}, infer.Digits(1, 2)})
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		return sum[:]
	}
	if !bytes.Equal(key, keyOf(2)) {
		t.Fatal("the test makes other keys than the cache")
	}
	if _, err := db.sql.Exec("UPDATE answers SET key = ?", keyOf(1)); err != nil {
		t.Fatal(err)
	}
	choose(t, t.Context(), b, raw("q"), infer.Params{})
	if len(s.asked) != 2 {
		t.Errorf("the backend was asked %d times, want twice", len(s.asked))
	}
}

func TestAReplyThatDoesNotSayItIsWholeIsNotKept(t *testing.T) {
	for stop, asked := range map[string]int{"stop": 1, "length": 1, "": 2} {
		s := &scripted{stop: &stop}
		b := wrap(t, s, open(t, filepath.Join(t.TempDir(), "c.db")), model)
		for range 2 {
			if _, err := b.Chat(t.Context(), raw("q")[0], infer.Params{}); err != nil {
				t.Fatal(err)
			}
		}
		if s.chats != asked {
			t.Errorf("ended by %q: %d chats, want %d", stop, s.chats, asked)
		}
	}
}
