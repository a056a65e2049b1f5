//go:build linux && !race

package torture

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A saboteur decides which answers of a server are spoiled, and how.
type saboteur struct {
	mu       sync.Mutex
	part     string         // of the seed
	share    uint64         // of a hundred requests that are spoiled
	only     *fault         // spoils every answer of the kind
	onlyKind string         //
	allowed  []fault        //
	dear     int            // dear faults that are left
	count    map[string]int // by fault
	combined int
}

func (s *saboteur) spoil(w http.ResponseWriter, r *http.Request, a *answer) bool {
	chosen := s.choose(a)
	if chosen == nil {
		return false
	}
	send := coded(http.StatusOK)
	for _, f := range chosen {
		if f.edit != nil {
			f.edit(a)
		}
		if f.send != nil {
			send = f.send
		}
	}
	b := a.bytes()
	for _, f := range chosen {
		if f.raw != nil {
			b = f.raw(b)
		}
	}
	send(w, r, b)
	return true
}

// choose draws the faults of an answer by what it answers and how often that was asked,
// so that the order of requests does not matter: none, one, or several that go together,
// since each is of another part.
func (s *saboteur) choose(a *answer) (chosen []fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := rand.New(rand.NewPCG(hash(s.part, fmt.Sprint(a.again), a.asks), seed))
	switch {
	case s.only != nil:
		if a.kind == s.onlyKind {
			chosen = append(chosen, *s.only)
		}
	case r.Uint64N(100) < s.share:
		var edit, raw, send bool
		for n := 1 + r.IntN(4)/3 + r.IntN(8)/7; n > 0; n-- {
			f := s.allowed[r.IntN(len(s.allowed))]
			if f.kinds != "" && !slices.Contains(strings.Fields(f.kinds), a.kind) || f.dear && s.dear <= 0 {
				n++
				continue
			}
			if edit && f.edit != nil || raw && f.raw != nil || send && f.send != nil {
				continue
			}
			if f.dear {
				s.dear--
			}
			edit, raw, send = edit || f.edit != nil, raw || f.raw != nil, send || f.send != nil
			chosen = append(chosen, f)
		}
	}
	if len(chosen) > 1 {
		s.combined++
	}
	for _, f := range chosen {
		s.count[f.name]++
	}
	return chosen
}

// elsewhere redirects to another server, which would answer as if it were this one.
func elsewhere(to string, code int) fault {
	return fault{name: fmt.Sprint(code, " to another address"), send: func(w http.ResponseWriter, r *http.Request, _ []byte) {
		http.Redirect(w, r, to+r.URL.Path, code)
	}}
}

// A backend is one API of the server, and the calls that torment it.
type backend struct {
	name  string
	flags []string
}

func backends(s *server) []backend {
	return []backend{
		{"ollama", []string{"--host", s.URL}},
		{"openai", []string{"--backend", "openai", "--host", s.URL + "/v1", "--cache", "force"}},
	}
}

// quick makes waits short, where the program has the flags for it.
func quick(t *testing.T, dir, patience string) []string {
	help := must(t, dir, "timing", "--help").out
	var flags []string
	for _, f := range [][2]string{{"--request-timeout", "2s"}, {"--patience", patience}} {
		if strings.Contains(help, f[0]+" ") {
			flags = append(flags, f[0], f[1])
		} else {
			t.Errorf("timing has no flag %s", f[0])
		}
	}
	return flags
}

// impatient makes the first waits between two tries short.
var impatient = []string{"CCMED_RETRY_WAIT=1ms"}

// TestRequests asks a server of which every fifth answer is spoiled, on both APIs, and
// holds every sample against the truth.
func TestRequests(t *testing.T) {
	for i := range 2 {
		t.Run([]string{"ollama", "openai"}[i], func(t *testing.T) { requests(t, i, scale(400, 10_000)) })
	}
}

// TestAlways spoils every answer of one kind in one way: nothing of it is an answer, and
// the program gives up within its patience.
func TestAlways(t *testing.T) {
	dir := t.TempDir()
	wait := quick(t, dir, "1s")
	truth, lies, spoiled := newServer(t), newServer(t), newServer(t)
	lies.spoil = func(_ http.ResponseWriter, _ *http.Request, a *answer) bool { lie(a); return false }
	commands := [][]string{{"timing", "--data", "sample", "--limit", "1", "--model", model}, {"mediate", "--data", "sample", "--limit", "1", "--card-items", "1", "--model", model}}
	type always struct {
		api  int
		kind string
		fault
	}
	var all []always
	for api := range 2 {
		for i, c := range commands {
			must(t, dir, slices.Concat(c, backends(truth)[api].flags, []string{"--cache", "off", "--out", fmt.Sprint("true", api, i)})...)
		}
		for _, f := range append(slices.Clone(faults), elsewhere(lies.URL, 307)) {
			for _, kind := range []string{"render", "choose", "stream", "chat"} {
				if (f.kinds == "" || slices.Contains(strings.Fields(f.kinds), kind)) && (api == 0 || kind == "choose" || kind == "chat") {
					all = append(all, always{api, kind, f})
				}
			}
		}
	}
	r := chance("always")
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var sum verdicts
	peak, slowest := 0, time.Duration(0)
	all = all[:scale(6, len(all))]
	for n, x := range all {
		sab := &saboteur{only: &x.fault, onlyKind: x.kind, count: map[string]int{}}
		spoiled.spoil = sab.spoil
		i := map[string]int{"chat": 1}[x.kind]
		out := fmt.Sprint("run", n)
		res := start(t, dir, impatient, slices.Concat(commands[i], backends(spoiled)[x.api].flags, wait, []string{"--max-failures", "1000", "--cache", "off", "--out", out})...).end(2 * time.Minute)
		if err := res.lawful(megabytes); err != nil {
			t.Errorf("%s in every %s: %v", x.name, x.kind, err)
		}
		peak, slowest = max(peak, res.peak), max(slowest, res.took)
		before := sum.wrong
		sum.hold(t, filepath.Join(dir, out), filepath.Join(dir, fmt.Sprint("true", x.api, i)))
		if sum.wrong > before {
			t.Errorf("%s in every %s: %d wrong", x.name, x.kind, sum.wrong-before)
		}
		_ = os.RemoveAll(filepath.Join(dir, out))
	}
	fmt.Printf("torture: always: %d times every answer of a kind spoiled in one way: %d samples, %d wrong, %d unscored, %d not done; %d prompts never rendered, "+
		"%d requests elsewhere, %d MB and %s at most\n", len(all), sum.samples, sum.wrong, sum.unscored, sum.lost, spoiled.strange, lies.requests, peak, slowest.Round(time.Second))
	if spoiled.strange > 0 || lies.requests > 0 {
		t.Error("prompts were asked that no rendering gave, or asked elsewhere")
	}
}

func requests(t *testing.T, api, atLeast int) {
	dir := t.TempDir()
	data := records(t, dir, scale(1, 4))
	wait := quick(t, dir, "5m")
	truth, lies, spoiled := newServer(t), newServer(t), newServer(t)
	b, honest := backends(spoiled)[api], backends(truth)[api]
	sab := &saboteur{share: 20, part: b.name, count: map[string]int{}, dear: scale(3, 60)}
	sab.allowed = append(slices.Clone(faults), elsewhere(lies.URL, 307), elsewhere(lies.URL, 302))
	lies.spoil = func(_ http.ResponseWriter, _ *http.Request, a *answer) bool { lie(a); return false }
	spoiled.spoil = sab.spoil

	sum, hangs, peak, began := verdicts{}, 0, 0, time.Now()
	for round := 1; spoiled.requests < atLeast && round < 40; round++ {
		commands := [][]string{
			{"timing", "--data", data},
			{"mediate", "--data", data, "--limit", fmt.Sprint(scale(2, 24)), "--card-items", "2"},
		}
		for i, c := range commands {
			c = append(c, "--model", model, "--seed", fmt.Sprint(round))
			name := fmt.Sprintf("%s%d-%d", b.name, round, i)
			must(t, dir, slices.Concat(c, honest.flags, []string{"--cache", "off", "--out", name + "-true"})...)
			judgeTruth(t, truth, filepath.Join(dir, name+"-true"))

			args := slices.Concat(c, b.flags, wait, []string{"--max-failures", "1000000", "--out", name})
			for try := 0; ; try++ {
				p := start(t, dir, impatient, args...)
				r := p.end(10 * time.Minute)
				peak = max(peak, r.peak)
				if r.hung {
					hangs++
				}
				if err := r.lawful(megabytes); err != nil {
					t.Errorf("%s: %v", r.commandLine, err)
				}
				if r.code == 0 && complete(filepath.Join(dir, name), filepath.Join(dir, name+"-true")) {
					break
				}
				if try == scale(20, 60) {
					t.Errorf("%s is not done after %d calls; the last: %s", name, try, r.brief())
					break
				}
				if _, err := os.Stat(filepath.Join(dir, name, "manifest.json")); err == nil {
					args = append([]string{"runs", "resume", name}, wait...)
					args = args[:3]
				}
				sum.resumes++
			}
			sum.judge(t, filepath.Join(dir, name), filepath.Join(dir, name+"-true"))

			// What was kept in the cache is true as well.
			spoiled.spoil = nil
			if r := start(t, dir, impatient, slices.Concat(c, b.flags, []string{"--out", name + "-cached"})...).end(5 * time.Minute); r.code != 0 {
				t.Errorf("%s: %s", r.commandLine, r.brief())
			}
			spoiled.spoil = sab.spoil
			sum.judge(t, filepath.Join(dir, name+"-cached"), filepath.Join(dir, name+"-true"))
		}
	}
	faulty := 0
	for _, n := range sab.count {
		faulty += n
	}
	fmt.Printf("torture: %s: %d requests (%d of them again), %d spoiled in %d of %d ways, %d by several; %d samples: %d wrong, %d not done, %d unscored; "+
		"%d hangs, %d MB at most, %d calls again, %d prompts never rendered, %d requests elsewhere, %s\n",
		b.name, spoiled.requests, spoiled.requests-len(spoiled.tried), faulty, len(sab.count), len(sab.allowed), sab.combined,
		sum.samples, sum.wrong, sum.lost, sum.unscored, hangs, peak, sum.resumes, spoiled.strange, lies.requests, time.Since(began).Round(time.Second))
	if spoiled.strange > 0 {
		t.Errorf("%d prompts were asked that no rendering gave", spoiled.strange)
	}
	if lies.requests > 0 {
		t.Errorf("another address received %d requests", lies.requests)
	}
	for _, f := range sab.allowed {
		if full && sab.count[f.name] == 0 && (f.kinds != "render" || b.name == "ollama") {
			t.Errorf("%s was never tried", f.name)
		}
	}
}

// complete reports whether a run holds every sample that an honest one has.
func complete(run, honest string) bool {
	got, _, err := samplesOf(run)
	want, _, _ := samplesOf(honest)
	return err == nil && finished(run) && len(got) == len(want)
}

// verdicts are what a judge found in the samples of runs.
type verdicts struct{ samples, wrong, lost, unscored, resumes int }

// judge demands that a run is whole, and holds it against an honest one.
func (v *verdicts) judge(t *testing.T, run, honest string) {
	t.Helper()
	if absent := v.hold(t, run, honest); absent > 0 {
		t.Errorf("%s: %d samples are not there", filepath.Base(run), absent)
	}
}

// hold holds a run's samples against those of an honest one: each is equal, or says why
// it has no score.
func (v *verdicts) hold(t *testing.T, run, honest string) (absent int) {
	t.Helper()
	got, twice, err := samplesOf(run)
	if err != nil || twice > 0 {
		t.Errorf("%s: %d samples twice, %v", run, twice, err)
	}
	want, _, err := samplesOf(honest)
	if err != nil {
		t.Fatal(err)
	}
	v.samples += len(got)
	shown := 0
	for _, k := range slices.Sorted(maps.Keys(want)) {
		s, there := got[k]
		if !there {
			absent++
			continue
		}
		for _, m := range []lineOf{s, want[k]} {
			delete(m, "usage")
			delete(m, "seconds")
		}
		open, at := differs("", s, want[k])
		if open {
			v.unscored++
		}
		if at != "" {
			v.wrong++
			if shown++; shown <= 5 {
				t.Errorf("%s: sample %s: %s", filepath.Base(run), k, at)
			}
		}
	}
	v.lost += absent
	return absent
}

// differs says where a value differs from what is true, and whether it, or a part of
// it, has no score and says why. What follows from an unscored part may be absent.
func differs(path string, got, want any) (open bool, at string) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return false, fmt.Sprintf("%s is %.100s, true is %.100s", path, encode(got), encode(want))
		}
		if reason, _ := g["unscored"].(string); reason != "" {
			return true, ""
		}
		keys := map[string]bool{}
		for k := range w {
			keys[k] = true
		}
		for k := range g {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			o, a := differs(path+"."+k, g[k], w[k])
			open = open || o
			if a != "" && at == "" {
				at = a
			}
		}
		return open, at
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return false, fmt.Sprintf("%s is %.100s, true is %.100s", path, encode(got), encode(want))
		}
		for i := range w {
			o, a := differs(fmt.Sprint(path, "[", i, "]"), g[i], w[i])
			open = open || o
			if a != "" && at == "" {
				at = a
			}
		}
		return open, at
	}
	if encode(got) != encode(want) {
		return false, fmt.Sprintf("%s is %.100s, true is %.100s", path, encode(got), encode(want))
	}
	return false, ""
}

// judgeTruth holds the honest run itself against the server's own answers, by the
// prompts that it kept.
func judgeTruth(t *testing.T, s *server, run string) {
	t.Helper()
	samples, _, err := samplesOf(run)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := jsonLines(filepath.Join(run, "prompts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text := map[any]string{}
	for _, l := range lines {
		if r, ok := l["rendered"].(string); ok {
			text[l["hash"]] = r
			continue
		}
		var q asked
		for _, m := range l["prompt"].(lineOf)["messages"].([]any) {
			m := m.(lineOf)
			q.Messages = append(q.Messages, struct{ Role, Content string }{m["role"].(string), m["content"].(string)})
		}
		text[l["hash"]] = render(q)
	}
	held := 0
	for k, sample := range samples {
		data := sample["data"].(lineOf)
		var prompts []string
		for _, h := range list(sample["prompts"]) {
			prompts = append(prompts, text[h])
		}
		var said, probabilities []any // as many as prompts
		switch sample["step"] {
		case "decide":
			for _, c := range list(data["curve"]) {
				probabilities = append(probabilities, c.(lineOf)["p"])
			}
		case "judge":
			if len(prompts) > 0 {
				probabilities = list(data["p"])[:1]
			}
		case "utterance":
			if len(prompts) > 0 {
				said = []any{data["text"]}
			}
		case "simulate":
			for _, turn := range list(data["turns"])[:len(prompts)] {
				said = append(said, turn.(lineOf)["text"])
			}
		}
		for i, p := range probabilities {
			tokens := generated(prompts[i])
			last, want := tokens[len(tokens)-1], 0.0
			for j, w := range last.words {
				if w == " yes" || w == "1" {
					want = last.p[j]
				}
			}
			if g, ok := p.(float64); !ok || math.Abs(g-want) > 1e-9 {
				t.Fatalf("%s: sample %s: answer %d is %v, the server said %v", run, k, i, p, want)
			}
			held++
		}
		for i, text := range said {
			if !s.said[fmt.Sprint(prompts[i], "\n", text)] {
				t.Fatalf("%s: sample %s: the server never said %v", run, k, text)
			}
			held++
		}
	}
	if held == 0 {
		t.Fatalf("%s: nothing could be held against the server", run)
	}
}

func list(v any) []any { l, _ := v.([]any); return l }
