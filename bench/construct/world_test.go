package construct

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// world makes runs with scripted models, in a folder of its own.
type world struct {
	t       *testing.T
	dir     string
	archive *task.Archive
	prompts *prompt.Set
	runs    int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, dir: t.TempDir(), prompts: set,
		archive: &task.Archive{Benches: task.Registry{Scenarios{}, Dialogues{}, Label{}, Pairs{}}, Version: "1", Note: func(string, ...any) {}}}
}

func (w *world) plan(b task.Bench, flags ...string) (task.Plan, error) {
	w.t.Helper()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	call := b.Flags(f)
	if err := f.Parse(flags); err != nil {
		w.t.Fatal(err)
	}
	return call.Plan(w.t.Context(), task.Env{Archive: w.archive, Seed: 1, Prompts: w.prompts, Model: "scripted"})
}

// run makes a run in which one model has all roles, and returns its folder.
func (w *world) run(b task.Bench, model *infertest.Scripted, flags ...string) string {
	w.t.Helper()
	plan, err := w.plan(b, flags...)
	if err != nil {
		w.t.Fatal(err)
	}
	id := run.Identity{Task: b.About().Task, Seed: 1, Items: plan.Items, DataHash: plan.DataHash, Prompts: plan.Templates, Parent: plan.Parent, Models: map[string]infer.Model{}}
	for _, role := range b.About().Roles {
		id.Models[role] = infer.Model{Name: "scripted", Digest: "sha256:1"}
	}
	settings, err := json.Marshal(plan.Settings)
	if err == nil {
		err = json.Unmarshal(settings, &id.Options)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.runs++
	path := filepath.Join(w.dir, fmt.Sprintf("run-%d", w.runs))
	d, err := run.Create(path, id, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	workers := func(context.Context, string) ([]infer.Backend, error) { return []infer.Backend{model}, nil }
	if _, err := plan.Task.Execute(w.t.Context(), d, run.Options{Workers: workers}); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) metrics(path string) Metrics {
	w.t.Helper()
	m, _ := w.score(path)
	return m
}

func (w *world) score(path string) (Metrics, []string) {
	w.t.Helper()
	r, err := w.archive.Open(path)
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := r.Result(w.t.Context(), task.ScoreOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	cautions, err := res.Cautions(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return res.Metrics().(Metrics), cautions
}

// cases writes n cases of scenarios that have nothing in common.
func (w *world) cases(n int) string {
	w.t.Helper()
	var all []Scenario
	for i := range n {
		s := sound(strconv.Itoa(i + 1))
		s.Context = fmt.Sprintf("The gardeners of scene %d.", i)
		all = append(all, s)
	}
	cases, err := Design(all, 1, 1, w.prompts)
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(w.dir, "cases.jsonl")
	if err := WriteCases(path, cases); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// sound is a scenario that nothing is wrong with.
func sound(id string) Scenario {
	s := Scenario{ID: id, Context: "Two gardeners share a shed.", Question: "neighbours may drop in without a call", Dimension: "community", People: [2]Person{
		{Name: "Aino", Country: "Finland", Answer: "no", Goals: []string{"Agree on the keys", "Say why a call matters"}},
		{Name: "Kofi", Country: "Ghana", Answer: "yes", Goals: []string{"Agree on the hours", "Say why a door is open"}}}}
	s.tidy()
	return s
}

// players speak and label by a rule. A line carries the stage that it is spoken from, as
// "level 2"; a labeller reads it there.
type players struct {
	// level is the stage (1 to 6) of the line in turn t, as the prompt asks for it.
	level func(scripted, t int, helped bool) int
	// read is the stage that a labeller sees in a line of a level, a scripted one apart; nil
	// sees the level.
	read func(level int, reversed bool, prompt infer.Prompt) int
}

var (
	askedTurn  = regexp.MustCompile(`Write turn (\d+), the words of (\w+)`)
	markedTurn = regexp.MustCompile(`(?s)now stands at this turn:\n(.*?)\nAt which stage does (\w+) speak`)
	scene      = regexp.MustCompile(` of scene \d+`)
	spokenAs   = regexp.MustCompile(`level (\d)`)
	listed     = regexp.MustCompile(`(?m)^(\d) ([A-Z]\w+):`)
)

// stageNumbers are in the order of the model; patterns begin as the scripts of the first
// three do.
var (
	stageNumbers = map[string]int{"Denial": 1, "Defense": 2, "Minimization": 3, "Acceptance": 4, "Adaptation": 5, "Integration": 6}
	patterns     = map[string]int{"does not perceive that culture": 1, "us against them": 2, "covers difference with sameness": 3}
)

const helpful = "What does each of you take for granted here?"

func (p players) model() *infertest.Scripted {
	return &infertest.Scripted{Forget: true, Say: p.say, Answer: p.answer}
}

func text(p infer.Prompt) string {
	var b strings.Builder
	for _, m := range p.Messages {
		b.WriteString(m.Content + "\n")
	}
	return b.String()
}

func (p players) say(q infer.Prompt, _ infer.Params) infer.Reply {
	prompt := text(q)
	asked := askedTurn.FindStringSubmatch(prompt)
	if asked == nil { // the mediator
		if strings.Contains(prompt, "What helps:") {
			return infer.Reply{Text: helpful}
		}
		return infer.Reply{Text: "Hm."}
	}
	turn, _ := strconv.Atoi(asked[1])
	scripted := 0
	for pattern, n := range patterns {
		if strings.Contains(prompt, pattern) {
			scripted = n
		}
	}
	how := "speaks from"
	if scripted > 0 {
		how = "holds"
	}
	return infer.Reply{Text: fmt.Sprintf("It is level %d that %s %s in turn %d%s.", p.level(scripted, turn, strings.Contains(prompt, helpful)), asked[2], how, turn, scene.FindString(prompt))}
}

func (p players) answer(q infer.Prompt, as []infer.Answer) infer.Choice {
	prompt := text(q)
	if len(as) == 2 {
		return infertest.Always("yes", 0.7)(q, as)
	}
	marked := markedTurn.FindStringSubmatch(prompt)
	level, scripted := 1, false
	if marked != nil {
		if spoken := spokenAs.FindStringSubmatch(marked[1]); spoken != nil {
			level, _ = strconv.Atoi(spoken[1])
		}
		scripted = strings.Contains(marked[1], "holds")
	}
	stages := listed.FindAllStringSubmatch(prompt, -1)
	reversed := stages[0][2] == "Integration"
	if p.read != nil && !scripted {
		level = p.read(level, reversed, q)
	}
	for _, s := range stages {
		if stageNumbers[s[2]] == level {
			return infertest.Always(s[1], 0.9)(q, as)
		}
	}
	return infertest.Always("1", 0.9)(q, as)
}

// well plays the stage that is asked for. Helped, a speaker reaches Acceptance, and
// otherwise stays below.
func well(scripted, _ int, helped bool) int {
	switch {
	case scripted > 0:
		return scripted
	case helped:
		return 4
	}
	return 2
}

// varied plays the stage that is asked for, and several others where none is.
func varied(scripted, turn int, _ bool) int {
	if scripted == 0 {
		return 1 + turn%4
	}
	return scripted
}

// labelled makes n dialogues and labels them.
func (w *world) labelled(p players, n int) string {
	w.t.Helper()
	dialogues := w.run(Dialogues{}, p.model(), "--cases", w.cases(n))
	return w.run(Label{}, p.model(), "--dialogues", dialogues)
}
