package ccbench

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// planOf parses flags and plans.
func planOf(t *testing.T, args ...string) (task.Plan, error) {
	t.Helper()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	c := Bench{}.Flags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c.Plan(t.Context(), task.Env{Archive: &task.Archive{Note: t.Logf}, Seed: 1})
}

// resultOf makes a run with scripted models and scores it.
func resultOf(t *testing.T, adviser, judge infer.Backend, args ...string) *result {
	t.Helper()
	p, err := planOf(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	id := run.Identity{Task: "ccbench", Seed: 1, Items: p.Items, Others: p.Others, DataHash: p.DataHash, Prompts: p.Templates,
		Models: map[string]infer.Model{RoleAdviser: {Name: "a"}, RoleJudge: {Name: "j"}}}
	b, err := json.Marshal(p.Settings)
	if err == nil {
		err = json.Unmarshal(b, &id.Options)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run")
	d, err := run.Create(path, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = p.Task.Execute(t.Context(), d, run.Options{Workers: func(_ context.Context, role string) ([]infer.Backend, error) {
		return []infer.Backend{map[string]infer.Backend{RoleAdviser: adviser, RoleJudge: judge}[role]}, nil
	}}); err != nil {
		t.Fatal(err)
	}
	archive := &task.Archive{Benches: task.Registry{Bench{}}, Version: "1", Note: t.Logf}
	opened, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	res, err := opened.Result(t.Context(), task.ScoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return res.(*result)
}

// text is a prompt's messages as one text.
func text(p infer.Prompt) string {
	var b strings.Builder
	for _, m := range p.Messages {
		b.WriteString(m.Content + "\n")
	}
	return b.String()
}

// knowing answers with the name of the persona whose first session or norms the prompt
// shows, and fitting says yes to an item where the named persona has that stance.
func knowing(b *build.Build) *infertest.Scripted {
	return &infertest.Scripted{Forget: true, Say: func(p infer.Prompt, _ infer.Params) infer.Reply {
		shown := text(p)
		for _, c := range b.Cultures {
			for _, person := range c.Personas {
				told := true
				for _, s := range c.Stances(person.Persona) {
					told = told && strings.Contains(shown, s.Norm.Statement+" "+map[norm.State]string{norm.Follow: isSo, norm.Avoid: isNotSo}[s.State])
				}
				if told || strings.Contains(shown, person.Sessions[len(person.Sessions)-1].Turns[0].Text) {
					return infer.Reply{Text: "This is for " + person.ID + "."}
				}
			}
		}
		return infer.Reply{Text: "This is for anybody."}
	}}
}

// erring judges as another judge does, but for one item in sixteen.
func erring(judge *infertest.Scripted) *infertest.Scripted {
	return &infertest.Scripted{Forget: true, Answer: func(p infer.Prompt, as []infer.Answer) infer.Choice {
		c := judge.Answer(p, as)
		if p.Hash()[0] == '0' {
			slices.Reverse(c.P)
		}
		return c
	}}
}

func fitting(b *build.Build) *infertest.Scripted {
	return &infertest.Scripted{Forget: true, Answer: func(p infer.Prompt, as []infer.Answer) infer.Choice {
		shown := text(p)
		say := "no"
		for _, c := range b.Cultures {
			for _, person := range c.Personas {
				for _, s := range c.Stances(person.Persona) {
					fits := map[norm.State]string{norm.Follow: s.Norm.Follow, norm.Avoid: s.Norm.Avoid}[s.State]
					if strings.Contains(shown, "for "+person.ID+".") && strings.Contains(shown, "\n"+fits+"\n") {
						say = "yes"
					}
				}
			}
		}
		return infertest.Always(say, .9)(p, as)
	}}
}

func embedded(t *testing.T) *build.Build {
	t.Helper()
	b, err := build.Read(build.Sample)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestOracleAndBlind: answers that fit each person have adaptation 1, and answers that
// ignore the history have exactly 0, whatever the judge says of them.
func TestOracleAndBlind(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	r := resultOf(t, knowing(b), fitting(b))
	for _, s := range r.Metric.Settings {
		want := 1.0
		if s.Name == None {
			want = 0
		}
		if s.Adaptation == nil || s.Adaptation.Value != want {
			t.Errorf("%s: adaptation %+v, want %v", s.Name, s.Adaptation, want)
		}
		if s.Name != None && (s.CCS.Value != 1 || s.MeanCCS.Value != 1) {
			t.Errorf("%s: CCS %v", s.Name, s.CCS)
		}
	}
	if f, ok := r.Metric.swapFigure(); !ok || len(f.Points.Groups) != 3 || slices.ContainsFunc(f.Points.Series[0].Y, func(y float64) bool { return y != 1 }) {
		t.Errorf("the figure of the oracle is %+v", f.Points)
	}
	r = resultOf(t, knowing(b), erring(fitting(b)))
	if h := r.headline(); !strings.Contains(h.Sentence, "in the person's direction") || h.Rows[0].Warned || h.Rows[1].Warned {
		t.Errorf("an oracle before a judge that errs: %+v", h)
	}
	hashed := &infertest.Scripted{Forget: true} // verdicts by the prompt's hash
	blind := &infertest.Scripted{Forget: true, Say: func(p infer.Prompt, o infer.Params) infer.Reply {
		return infer.Reply{Text: "To: " + p.Messages[len(p.Messages)-1].Content[max(0, len(p.Messages[len(p.Messages)-1].Content)-20):]}
	}}
	r = resultOf(t, blind, hashed)
	if len(r.Metric.Settings) != 4 || len(r.Metric.Baselines) != 2 {
		t.Fatalf("%d settings, %d baselines", len(r.Metric.Settings), len(r.Metric.Baselines))
	}
	for _, s := range r.Metric.Settings {
		if s.Adaptation == nil || s.Adaptation.Value != 0 || s.AvoidYes == 0 || s.FollowYes == 0 {
			t.Errorf("%s: adaptation %+v, %d + %d fulfilled", s.Name, s.Adaptation, s.FollowYes, s.AvoidYes)
		}
	}
	if h := r.headline(); !strings.Contains(h.Sentence, "not shown to heed") || !h.Rows[0].Warned {
		t.Errorf("the blind one: %s", h.Sentence)
	}
}

// TestWhatIsAsked: the prompts of the settings hold what they should and nothing else, and
// answers of one query share a seed.
func TestWhatIsAsked(t *testing.T) {
	t.Parallel()
	adviser, judge := &infertest.Scripted{}, &infertest.Scripted{}
	resultOf(t, adviser, judge, "--limit", "1", "--personas", "1")
	b := embedded(t)
	p, q := b.Cultures[0].Personas[0], b.Queries[0].Text
	first := p.Sessions[0].Turns[0].Text
	stance := b.Cultures[0].Stances(p.Persona)[0].Norm.Statement
	var kinds []string
	seeds := map[int64]bool{}
	for _, c := range adviser.Calls() {
		all, last := text(c.Prompt), c.Prompt.Messages[len(c.Prompt.Messages)-1].Content
		if c.Params.Temperature != .7 {
			t.Errorf("temperature %v", c.Params.Temperature)
		}
		var kind []string
		for name, has := range map[string]bool{"history": strings.Contains(all, first), "norms": strings.Contains(all, stance), "cues": strings.HasPrefix(last, cuesAsked), "after": strings.HasPrefix(last, answerAsked)} {
			if has {
				kind = append(kind, name)
			}
		}
		if !strings.HasSuffix(last, q) {
			t.Errorf("the prompt ends with %q", last)
		}
		if slices.Sort(kind); len(kind) == 0 || kind[0] != "cues" {
			seeds[c.Params.Seed] = true
		}
		kinds = append(kinds, strings.Join(kind, "+"))
	}
	// Two cultures without a persona; norms, history and two calls with cues of the first
	// persona; of the second culture's persona no text is looked for.
	if got := strings.Join(kinds, " "); got != " norms history cues+history after+history    cues after" || len(seeds) != 1 {
		t.Errorf("asked %q, with %d seeds", got, len(seeds))
	}
	items := 0
	for _, c := range judge.Calls() {
		content := c.Prompt.Messages[1].Content
		question, answer, item := strings.Index(content, q), strings.Index(content, "Reply "), strings.Index(content, "The answer")
		if strings.Contains(content, "# Statement\n\n"+negation) {
			item = strings.Index(content, negation)
		}
		if !(question >= 0 && question < item && answer < item) || strings.Contains(content, first) {
			t.Errorf("the judge reads %q", content)
		}
		items++
	}
	if items < 60 {
		t.Errorf("%d items are judged", items)
	}
}

// TestNoUsableAnswer: an empty answer, one that is cut and one without cues are unscored,
// and no judge is asked.
func TestNoUsableAnswer(t *testing.T) {
	t.Parallel()
	for want, reply := range map[string]infer.Reply{"the answer is empty": {Text: " \n"}, answerCut: {Text: "To be", Stop: infer.StopLength}} {
		r := resultOf(t, &infertest.Scripted{Say: func(infer.Prompt, infer.Params) infer.Reply { return reply }}, &infertest.Scripted{}, "--limit", "1", "--setting", "history")
		s := r.Metric.Settings[0]
		if s.Unscored[want] != 4 || s.Answers != 0 || s.Follow+s.Avoid != 0 || s.CCS != nil {
			t.Errorf("%s: %+v", want, s)
		}
		if cautions, err := r.Cautions(t.Context()); err != nil || !slices.ContainsFunc(cautions, func(c string) bool { return strings.Contains(c, "unscored answers under history: 4 ("+want) }) {
			t.Errorf("%v, %v", cautions, err)
		}
	}
	low := &infertest.Scripted{Answer: func(_ infer.Prompt, as []infer.Answer) infer.Choice { return infertest.Choice(as, []float64{.02, .01}) }}
	r := resultOf(t, &infertest.Scripted{}, low, "--limit", "1", "--setting", "history")
	if s := r.Metric.Settings[0]; s.ItemsUnscored == 0 || s.Follow+s.Avoid != 0 || s.Answers != 4 {
		t.Errorf("below --min-mass: %+v", s)
	}
}

// TestHistoryBudget drops the oldest sessions, says so, and counts norms without a signal
// apart.
func TestHistoryBudget(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	adviser := knowing(b)
	r := resultOf(t, adviser, fitting(b), "--history-budget", "300", "--setting", "history,norms")
	m := r.Metric
	dropped, lost := 0, 0
	for _, c := range b.Cultures {
		for _, p := range c.Personas {
			_, n := p.Within(300)
			dropped += n
			for _, id := range p.Lost(n) {
				for _, q := range b.Queries {
					if slices.ContainsFunc(c.Items(p.Persona, q), func(s build.Stance) bool { return s.Norm.ID == id }) {
						lost++
					}
				}
			}
		}
	}
	h, n := m.Settings[0], m.Settings[1]
	if dropped == 0 || lost == 0 || m.Dropped != dropped || m.ShortHistories != 4 || h.Lost.Follow+h.Lost.Avoid != lost || n.Lost != (Rates{}) || h.Follow+h.Avoid+lost != n.Follow+n.Avoid {
		t.Errorf("dropped %d of %d, lost %d of %+v", m.Dropped, dropped, lost, h.Lost)
	}
	cautions, err := r.Cautions(t.Context())
	if err != nil || !slices.ContainsFunc(cautions, func(c string) bool { return strings.Contains(c, "--history-budget 300 words") }) {
		t.Errorf("%v, %v", cautions, err)
	}
}

// TestCautions: each stands where it is true and nowhere else.
func TestCautions(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	labels := filepath.Join(t.TempDir(), "labels.jsonl")
	var lines []string
	for _, c := range b.Cultures {
		for _, p := range c.Personas {
			for _, s := range c.Stances(p.Persona) {
				item, other := s.Norm.Follow, s.Norm.Avoid
				if s.State == norm.Avoid {
					item, other = other, item
				}
				for label, text := range map[string]string{"yes": item, "no": other} {
					line, err := json.Marshal(Label{Item: text, Answer: "This is for " + p.ID + ".", Label: label})
					if err != nil {
						t.Fatal(err)
					}
					lines = append(lines, string(line))
				}
			}
		}
	}
	if err := os.WriteFile(labels, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	has := func(r *result, word string) bool {
		cautions, err := r.Cautions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(cautions, func(c string) bool { return strings.Contains(c, word) })
	}
	good := resultOf(t, knowing(b), erring(fitting(b)), "--labels", labels)
	bad := resultOf(t, &infertest.Scripted{Forget: true, Say: func(infer.Prompt, infer.Params) infer.Reply { return infer.Reply{Text: "Rest."} }},
		&infertest.Scripted{Forget: true, Answer: infertest.Always("yes", .9)}, "--setting", "none,history,norms")
	for _, word := range []string{"agreement with people is unknown", "yes to an item and to its opposite", "CCS is no higher than", "even told the norms"} {
		if has(good, word) || !has(bad, word) {
			t.Errorf("%q: the oracle's is %v, the blind one's %v", word, has(good, word), has(bad, word))
		}
	}
	if !has(bad, "4 personas: intervals") || has(bad, "wrote the past talks") || has(bad, "the judge is the model") {
		t.Error("few personas, writer or judge")
	}
	if c := good.Metric.Card; c == nil || c.Agree == c.N || c.Kappa.Value < .8 || c.N != len(lines) {
		t.Errorf("card %+v", c)
	}
	opposite := resultOf(t, knowing(b), &infertest.Scripted{Forget: true}, "--setting", "history", "--limit", "1", "--labels", labels)
	if !has(opposite, "is not shown to agree with people beyond chance") {
		t.Error("a judge by chance is trusted")
	}
}

// TestHeadline: each sentence stands where its numbers are so.
func TestHeadline(t *testing.T) {
	t.Parallel()
	at := func(value, lo, hi float64) *stats.Estimate {
		return &stats.Estimate{Value: value, Lo: lo, Hi: hi, N: 10, Groups: 20}
	}
	for want, s := range map[string]Score{
		"in the person's direction":   {Name: History, Adaptation: at(.2, .1, .3)},
		"away from what fits":         {Name: History, Adaptation: at(-.2, -.3, -.1)},
		"it is not shown to heed":     {Name: CultureCoT, Adaptation: at(.2, 0, .3)},
		"There is no interval (one c": {Name: Norms, Adaptation: &stats.Estimate{Value: 1, Lo: 1, Hi: 1, NoInterval: stats.OneGroup}},
		"nothing that could make a d": {Name: None, Adaptation: at(0, 0, 0)},
		"is not known":                {Name: History, Answers: 3},
	} {
		s.Rates = Rates{Swaps: 10, OwnYes: 6, Gain: 2}
		r := &result{Metric: Metrics{Settings: []Score{s}}}
		h := r.headline()
		if !strings.Contains(h.Sentence, want) || h.Asked == "" {
			t.Errorf("%q: %s", want, h.Sentence)
		}
		if s.Adaptation != nil && (!strings.HasPrefix(h.Sentence, "fulfils 60.0 % (6/10) of the items that fit a person's norms, and 40.0 %") || h.Rows[0].Warned != (want != "in the person's direction")) {
			t.Errorf("%+v", h)
		}
	}
	if h := (&result{}).headline(); !strings.Contains(h.Sentence, "nothing is known") {
		t.Error(h)
	}
}

func TestFlagsOutOfRange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for want, args := range map[string][]string{
		"--max-tokens 0": {"--max-tokens", "0"}, "--cue-tokens 0": {"--cue-tokens", "0"}, "--history-budget -1": {"--history-budget", "-1"},
		"--min-mass 1": {"--min-mass", "1"}, "--limit -1": {"--limit", "-1"}, "--personas -1": {"--personas", "-1"}, `--setting "cot"`: {"--setting", "cot"},
		"names none twice": {"--setting", "none,none"}, "names none of none, history": {"--setting", ""}, "read a build of CCBench": {"--build", "nowhere"},
		"read the labels": {"--labels", "nowhere"}, "holds no label": {"--labels", write("a", "\n")},
		`b:2: field label: "maybe"`: {"--labels", write("b", `{"item":"i","answer":"a","label":"yes"}`+"\n"+`{"item":"i","answer":"a","label":"maybe"}`)},
		"c:1: field item":           {"--labels", write("c", `{"answer":"a","label":"yes"}`)},
	} {
		if _, err := planOf(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func TestConforms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "labels")
	if err := os.WriteFile(path, []byte(`{"item":"The answer is short.","answer":"Rest.","label":"yes"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--limit", "2", "--labels", path}
	p, err := planOf(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	adviser := &infertest.Scripted{Say: func(infer.Prompt, infer.Params) infer.Reply {
		if n++; n%7 == 0 {
			return infer.Reply{Text: "To", Stop: infer.StopLength}
		}
		return infer.Reply{Text: "Rest."}
	}}
	r := resultOf(t, adviser, &infertest.Scripted{}, args...)
	samples, err := task.Collect(r.in.Samples())
	if err != nil {
		t.Fatal(err)
	}
	id := r.in.Identity()
	id.Items = p.Items
	tasktest.Conform(t, tasktest.Case{Bench: Bench{}, Identity: id, Samples: samples, Flags: args[:2]})
}
