//go:build linux && !race

package torture

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// A kind is one kind of file that the program reads, with the commands that read it.
type kind struct {
	name  string
	files []string // patterns within the bed, of what is damaged
	takes []string // what a command needs of the bed
	calls [][]string
	// sealed content is under a checksum: no change of it may pass unsaid.
	sealed bool
	// plain content has no form of its own: only its bytes can be wrong.
	plain  bool
	stdin  bool // the file is given on standard input
	loads  bool // the program loads a model
	fails  bool // a command refuses it undamaged: it was not trained or packaged in earnest, or is too little
	weight int  // how often the kind is drawn; 0 means 1
}

var kinds = []kind{
	{name: "records, a folder", files: []string{"records/*.json"}, takes: []string{"records"}, weight: 3,
		calls: [][]string{{"data", "validate", "records"}, {"data", "stats", "records"}, {"score", "records"}, {"sft", "export", "--data", "records", "--out", "made", "--fraction", "0.25"}}},
	{name: "records, JSON lines", files: []string{"records.jsonl"}, takes: []string{"records.jsonl"}, weight: 3,
		calls: [][]string{{"data", "validate", "records.jsonl"}, {"data", "stats", "records.jsonl"}, {"score", "records.jsonl"}}},
	{name: "predictions", files: []string{"predictions.json"}, takes: []string{"predictions.json"}, weight: 2,
		calls: [][]string{{"score", "predictions.json", "--data", "sample"}}},
	{name: "metrics on standard input", files: []string{"asked.jsonl"}, stdin: true, weight: 2, calls: [][]string{{"metrics"}}},
	{name: "samples", files: []string{"timing/samples.jsonl", "mediation/samples.jsonl"}, takes: []string{"timing", "mediation", "timing2"}, weight: 4, sealed: true, calls: readers},
	{name: "prompts", files: []string{"timing/prompts.jsonl", "mediation/prompts.jsonl"}, takes: []string{"timing", "mediation", "timing2"}, weight: 2, sealed: true,
		calls: [][]string{{"runs", "verify", "timing", "mediation"}, {"runs", "show", "timing", "--item", "9001"}, {"report", "timing", "mediation", "--format", "json", "--out", "-"}}},
	{name: "manifest", files: []string{"timing/manifest.json", "mediation/manifest.json"}, takes: []string{"timing", "mediation", "timing2"}, weight: 3, calls: readers},
	{name: "metrics", files: []string{"timing/metrics.json", "mediation/metrics.json"}, takes: []string{"timing", "mediation", "timing2"}, weight: 2, sealed: true, calls: readers},
	{name: "errors", files: []string{"failed/errors.jsonl"}, takes: []string{"failed"}, calls: [][]string{{"runs", "show", "failed"}, {"runs", "verify", "failed"}, {"report", "failed", "--format", "json", "--out", "-"}}},
	{name: "state stores", files: []string{"store/*.safetensors"}, takes: []string{"store"}, sealed: true, weight: 3,
		calls: [][]string{{"runs", "verify", "store"}, {"runs", "show", "store"}, {"probe", "train", "store", "--layers", "block.1", "--folds", "2", "--seeds", "1", "--controls", "0", "--resamples", "100"}}, fails: true},
	{name: "probes", files: []string{"store/probe.json", "store/probes/*"}, takes: []string{"store"}, sealed: true, weight: 2,
		calls: [][]string{{"runs", "verify", "store"}, {"probe", "report", "store"}, {"probe", "train", "store", "--apply", "store/probes"}}, fails: true},
	{name: "training data", files: []string{"export/export.json", "export/train.jsonl", "export/valid.jsonl"}, takes: []string{"export"}, sealed: true, weight: 2,
		calls: [][]string{{"runs", "verify", "export"}}},
	{name: "training", files: []string{"training/train.json", "training/loss.csv", "training/events.jsonl", "training/config.json"}, takes: []string{"training", "export"}, weight: 2,
		calls: [][]string{{"report", "training", "--format", "json", "--out", "-"}, {"runs", "verify", "training"}}, fails: true},
	{name: "package", files: []string{"package/card.json"}, takes: []string{"package"}, calls: [][]string{{"runs", "verify", "package"}, {"sft", "predict", "--model", "package", "--data", "sample", "--limit", "1", "--out", "made"}}, fails: true},
	{name: "settings", files: []string{"ccmed.yaml"}, takes: []string{"ccmed.yaml", "records.jsonl"}, weight: 2, calls: [][]string{{"data", "stats", "sample"}, {"data", "validate", "records.jsonl"}}},
	{name: "suite", files: []string{"night.yaml"}, takes: []string{"night.yaml"}, weight: 2, calls: [][]string{{"suite", "show", "night.yaml"}, {"suite", "run", "night.yaml", "--dry-run", "--out", "made", "--set", "data=sample"}}},
	{name: "templates", files: []string{"templates/*"}, takes: []string{"templates"}, plain: true, weight: 2,
		calls: [][]string{{"timing", "--model", model, "--host", "HOST", "--data", "sample", "--limit", "1", "--prompts", "templates", "--dry-run"}}},
	{name: "chat template", files: []string{"chat.jinja"}, takes: []string{"chat.jinja", "model.gguf"}, plain: true, loads: true,
		calls: [][]string{{"timing", "--model", "model.gguf", "--data", "sample", "--limit", "1", "--chat-template", "chat.jinja", "--dry-run"}}},
	{name: "GGUF header", files: []string{"model.gguf"}, takes: []string{"model.gguf"}, plain: true, loads: true,
		calls: [][]string{{"timing", "--model", "model.gguf", "--data", "sample", "--limit", "1", "--dry-run"}, {"sft", "export", "--data", "sample", "--gguf", "model.gguf", "--out", "made", "--fraction", "0.25"}}},
}

var readers = [][]string{
	{"runs", "verify", "timing", "mediation"}, {"runs", "show", "timing"}, {"runs", "show", "mediation"}, {"score", "timing"}, {"score", "mediation"},
	{"compare", "timing", "timing2"}, {"runs", "export", "timing", "--format", "csv", "--out", "-"}, {"runs", "export", "mediation", "--format", "jsonl", "--out", "-"},
	{"report", "timing", "mediation", "--format", "json", "--out", "-"},
}

// A mutation damages bytes.
type mutation struct {
	name   string
	damage func(b []byte, r *rand.Rand) []byte
}

var (
	member = regexp.MustCompile(`"([A-Za-z_]+)": ?("[^"\\]*"|[0-9.]+|true|false|null)`)
	number = regexp.MustCompile(`[:\[,] ?-?[0-9]+(\.[0-9]+)?`)
)

var mutations = []mutation{
	{"bit", func(b []byte, r *rand.Rand) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b }},
	{"byte", func(b []byte, r *rand.Rand) []byte { b[r.IntN(len(b))] = byte(r.IntN(256)); return b }},
	{"digit", func(b []byte, r *rand.Rand) []byte {
		return replaced(b, regexp.MustCompile(`[0-9]`), r, func([]byte) []byte { return []byte{byte('0' + r.IntN(10))} })
	}},
	{"cut", func(b []byte, r *rand.Rand) []byte { return b[:r.IntN(len(b))] }},
	{"cut in front", func(b []byte, r *rand.Rand) []byte { return b[1+r.IntN(len(b)-1):] }},
	{"hole", func(b []byte, r *rand.Rand) []byte {
		i := r.IntN(len(b))
		return append(b[:i], b[min(len(b), i+1+r.IntN(64)):]...)
	}},
	{"zeros", func(b []byte, r *rand.Rand) []byte {
		i := r.IntN(len(b))
		clear(b[i:min(len(b), i+512)])
		return b
	}},
	{"byte order mark", func(b []byte, _ *rand.Rand) []byte { return append([]byte("\xef\xbb\xbf"), b...) }},
	{"UTF-16", func(b []byte, _ *rand.Rand) []byte {
		out := []byte{0xff, 0xfe}
		for _, c := range b {
			out = append(out, c, 0)
		}
		return out
	}},
	{"NUL", inserted("\x00")},
	{"FF", inserted("\xff")},
	{"escape", inserted("\x1b]0;x\x07\u202e")},
	{"lone surrogate", func(b []byte, r *rand.Rand) []byte {
		return replaced(b, regexp.MustCompile(`: ?"[^"\\]`), r, func(m []byte) []byte { return append(m, `\ud83d`...) })
	}},
	{"key twice", func(b []byte, r *rand.Rand) []byte {
		return replaced(b, member, r, func(m []byte) []byte { return append(append(m, ','), member.ReplaceAll(m, []byte(`"$1":7`))...) })
	}},
	{"key in another case", func(b []byte, r *rand.Rand) []byte {
		return replaced(b, member, r, func(m []byte) []byte {
			return append(append(m, ','), bytes.ToUpper(member.ReplaceAll(m, []byte(`"$1":7`)))...)
		})
	}},
	{"huge number", func(b []byte, r *rand.Rand) []byte {
		return replaced(b, number, r, func(m []byte) []byte {
			return append(m[:1:1], []string{"1e999", "99999999999999999999999", "-1e308", "2147483648", "-1", "0.5"}[r.IntN(6)]...)
		})
	}},
	{"null", func(b []byte, r *rand.Rand) []byte {
		return replaced(b, number, r, func(m []byte) []byte { return append(m[:1:1], "null"...) })
	}},
	{"deep", func(b []byte, r *rand.Rand) []byte {
		n := []int{200, 20_000, 2_000_000}[r.IntN(3)]
		return replaced(b, number, r, func(m []byte) []byte {
			return append(append(m[:1:1], bytes.Repeat([]byte("["), n)...), bytes.Repeat([]byte("]"), n)...)
		})
	}},
	{"long", func(b []byte, r *rand.Rand) []byte {
		return replaced(b, regexp.MustCompile(`: ?"`), r, func(m []byte) []byte { return append(m, bytes.Repeat([]byte("long "), 2<<20)...) })
	}},
	{"lines swapped", func(b []byte, r *rand.Rand) []byte {
		l := bytes.SplitAfter(b, []byte("\n"))
		i, j := r.IntN(len(l)), r.IntN(len(l))
		l[i], l[j] = l[j], l[i]
		return bytes.Join(l, nil)
	}},
	{"line twice", func(b []byte, r *rand.Rand) []byte {
		l := bytes.SplitAfter(b, []byte("\n"))
		i := r.IntN(len(l))
		return bytes.Join(slices.Insert(l, i, l[i]), nil)
	}},
	{"line lost", func(b []byte, r *rand.Rand) []byte {
		l := bytes.SplitAfter(b, []byte("\n"))
		i := r.IntN(len(l))
		return bytes.Join(slices.Delete(l, i, i+1), nil)
	}},
	{"CRLF", func(b []byte, _ *rand.Rand) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) }},
	{"twice", func(b []byte, _ *rand.Rand) []byte { return append(b, b...) }},
	{"empty", func([]byte, *rand.Rand) []byte { return nil }},
	{"blank", func([]byte, *rand.Rand) []byte { return []byte(" \n\n") }},
	{"an array", func([]byte, *rand.Rand) []byte { return []byte("[]\n") }},
	{"an object", func([]byte, *rand.Rand) []byte { return []byte("{}\n") }},
}

func inserted(s string) func([]byte, *rand.Rand) []byte {
	return func(b []byte, r *rand.Rand) []byte {
		i := r.IntN(len(b) + 1)
		return append(b[:i:i], append([]byte(s), b[i:]...)...)
	}
}

// replaced changes one match of what a pattern finds.
func replaced(b []byte, re *regexp.Regexp, r *rand.Rand, by func([]byte) []byte) []byte {
	all := re.FindAllIndex(b, -1)
	if len(all) == 0 {
		return b
	}
	at := all[r.IntN(len(all))]
	return slices.Concat(b[:at[0]], by(slices.Clone(b[at[0]:at[1]])), b[at[1]:])
}

// A try is one damaged file and the command that reads it.
type try struct {
	*kind
	file string
	mutation
	call []string
	r    *rand.Rand
}

// A tester lets the program read damaged files of the bed, and counts what comes of it.
type tester struct {
	bed, host string
	fresh     map[string]string // what a command prints of undamaged files

	mu      sync.Mutex
	counts  map[string]int
	shown   map[string]int
	peak    int
	slowest time.Duration
}

// TestFiles damages every kind of file that the program reads, one call a damage: it
// ends, within its time and memory, without a panic; and where it succeeds, it prints
// what it prints of the file as it was, or names the file.
func TestFiles(t *testing.T) {
	f := &tester{bed: t.TempDir(), fresh: map[string]string{}, counts: map[string]int{}, shown: map[string]int{}}
	f.host = plant(t, f.bed)
	var drawn []*kind
	for i := range kinds {
		k := kinds[i]
		k.files = nil
		for _, pattern := range kinds[i].files {
			found, _ := filepath.Glob(filepath.Join(f.bed, pattern))
			for _, p := range found {
				k.files = append(k.files, strings.TrimPrefix(p, f.bed+"/"))
			}
		}
		if len(k.files) == 0 {
			if fmt.Printf("torture: there is no %s to damage\n", k.name); full && require {
				t.Errorf("there is no %s to damage", k.name)
			}
			continue
		}
		for _, c := range k.calls {
			r, _, _ := f.read(t, try{kind: &k, file: k.files[0], mutation: mutation{damage: func(b []byte, _ *rand.Rand) []byte { return b }}, call: c})
			if r.code != 0 && !k.fails {
				t.Errorf("undamaged, ccmed %s: %s", strings.Join(c, " "), r.brief())
			}
			f.fresh[strings.Join(c, " ")] = tidy(r.out)
		}
		for range max(1, k.weight) {
			drawn = append(drawn, &k)
		}
	}
	began, r, tries := time.Now(), chance("files"), make(chan try)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for x := range tries {
				f.judge(t, x)
			}
		})
	}
	for i := range scale(200, 5000) {
		k := drawn[r.IntN(len(drawn))]
		for k.loads && i%8 != 0 {
			k = drawn[r.IntN(len(drawn))]
		}
		file := k.files[r.IntN(len(k.files))]
		call := k.calls[r.IntN(len(k.calls))]
		for folder, _, ok := strings.Cut(file, "/"); ok && !slices.Contains(call, folder) && len(k.takes) > 1; {
			call = k.calls[r.IntN(len(k.calls))]
		}
		tries <- try{k, file, mutations[r.IntN(len(mutations))], call, rand.New(rand.NewPCG(r.Uint64(), seed))}
	}
	close(tries)
	wg.Wait()
	fmt.Printf("torture: files: %d damaged: %d refused, %d as before, %d named, %d another valid file, %d faults; %d MB and %s at most, %s in all\n",
		scale(200, 5000), f.counts["refused"], f.counts["as before"], f.counts["named"], f.counts["another valid file"], f.counts["fault"],
		f.peak, f.slowest.Round(time.Millisecond), time.Since(began).Round(time.Second))
}

// read damages one file in a new folder and calls the program there.
func (f *tester) read(t *testing.T, x try) (r result, after []byte, same bool) {
	dir, err := os.MkdirTemp(f.bed, "work")
	if err != nil {
		t.Error(err)
		return
	}
	defer os.RemoveAll(dir)
	for _, name := range x.takes {
		if err := copyTo(filepath.Join(f.bed, name), filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	before, err := os.ReadFile(filepath.Join(f.bed, x.file))
	if err != nil {
		t.Error(err)
	}
	head := before[:min(len(before), 4<<20)] // of a model its header, and the rest as it is
	after = x.damage(bytes.Clone(head), x.r)
	at := filepath.Join(dir, x.file)
	if err := os.WriteFile(at, slices.Concat(after, before[len(head):]), 0o600); err != nil && !x.stdin {
		t.Error(err)
	}
	args, env := slices.Clone(x.call), []string(nil)
	for i := range args {
		args[i] = strings.Replace(args[i], "HOST", f.host, 1)
	}
	if x.loads {
		env = engine(t)
	}
	p := prepare(dir, env, args...)
	if x.stdin {
		p.Stdin = bytes.NewReader(after)
	}
	p.start(t)
	return p.end(time.Minute), after, bytes.Equal(after, head)
}

func (f *tester) judge(t *testing.T, x try) {
	r, after, same := f.read(t, x)
	memory := megabytes
	if x.loads {
		memory = 1500
	}
	want, out, name := f.fresh[strings.Join(x.call, " ")], tidy(r.out), filepath.Base(x.file)
	verdict, why := "", ""
	switch err := r.lawful(memory); {
	case err != nil:
		verdict, why = "fault", err.Error()
	case r.code != 0:
		verdict = "refused"
	case same || out == want || x.stdin && len(bytes.TrimSpace(after)) == 0 && out == "":
		verdict = "as before"
	case strings.Contains(r.errs, name), strings.Contains(out, name) && !strings.Contains(want, name):
		verdict = "named"
	case !x.sealed && (x.plain && utf8.Valid(after) && !bytes.ContainsRune(after, 0) || !x.plain && wellFormed(after)):
		verdict = "another valid file"
	default:
		verdict, why = "fault", "succeeds with another result:\n"+firstDifference(out, want)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[verdict]++
	f.peak, f.slowest = max(f.peak, r.peak), max(f.slowest, r.took)
	if f.shown[x.kind.name] += strings.Count(verdict, "fault"); verdict == "fault" && f.shown[x.kind.name] <= scale(3, 12) {
		t.Errorf("%s, %s in %s: ccmed %s: %s%s", x.kind.name, x.mutation.name, x.file, r.commandLine, why, keep(x.file, after))
	}
}

// keep puts a damaged file where it can be looked at, in the folder TORTURE_KEEP.
func keep(name string, b []byte) string {
	at := os.Getenv("TORTURE_KEEP")
	if at == "" {
		return ""
	}
	path := filepath.Join(at, fmt.Sprintf("%x-%s", hash(string(b))%0xffffff, strings.ReplaceAll(name, "/", "-")))
	_ = os.WriteFile(path, b, 0o600)
	return " [" + path + "]"
}

var durations = regexp.MustCompile(`\d+(\.\d+)?(ms|µs|s)\b|work\d+`)

func tidy(s string) string { return durations.ReplaceAllString(s, "T") }

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			was := "nothing"
			if i < len(w) {
				was = w[i]
			}
			return fmt.Sprintf("  %.300s\n  was %.300s", g[i], was)
		}
	}
	return fmt.Sprintf("  %d lines instead of %d", len(g), len(w))
}

// wellFormed reports whether text is what a careful reader takes: UTF-8 without marks and
// NULs, each line or all of it one JSON value without a key twice. YAML has forms of its
// own, of which the bytes alone are looked at.
func wellFormed(b []byte) bool {
	if !utf8.Valid(b) || bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) || bytes.ContainsRune(b, 0) || len(bytes.TrimSpace(b)) == 0 {
		return false
	}
	if first := bytes.TrimSpace(b)[0]; first != '{' && first != '[' {
		return true
	}
	if strict(b) {
		return true
	}
	for line := range bytes.Lines(b) {
		if len(bytes.TrimSpace(line)) > 0 && !strict(line) {
			return false
		}
	}
	return true
}

var surrogate = regexp.MustCompile(`(?i)\\ud[89a-f]`)

func strict(b []byte) bool {
	if !json.Valid(b) || surrogate.Match(b) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(b))
	var value func() bool
	value = func() bool {
		t, err := d.Token()
		if err != nil {
			return false
		}
		open, ok := t.(json.Delim)
		keys := map[string]bool{}
		for ok && d.More() {
			if open == '{' {
				k, err := d.Token()
				name := strings.ToLower(fmt.Sprint(k))
				if err != nil || keys[name] {
					return false
				}
				keys[name] = true
			}
			if !value() {
				return false
			}
		}
		if ok {
			_, err = d.Token()
		}
		return err == nil
	}
	if !value() {
		return false
	}
	_, err := d.Token()
	return err == io.EOF
}

// copyTo copies a file or a folder.
func copyTo(from, to string) error {
	if st, err := os.Stat(from); err != nil {
		return err
	} else if st.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}
