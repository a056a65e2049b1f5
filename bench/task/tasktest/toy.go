// Package tasktest holds the test that every benchmark passes, and a whole benchmark in
// one file: the toy.
//
//	tasktest.Conform(t, tasktest.Case{Bench: tasktest.Toy{}, Samples: samples, Identity: id})
package tasktest

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// Toy is a benchmark as small as one can be: a speaker says whether a sentence is polite,
// and a checker says whether the speaker is right.
type Toy struct{}

// sentences are the items, two a place.
var sentences = []struct {
	place, text string
	polite      bool
}{
	{"kitchen", "Could you pass the salt, please?", true}, {"kitchen", "Salt. Now.", false},
	{"office", "Would you mind closing the window?", true}, {"office", "Shut that window at once.", false},
	{"station", "Excuse me, is this the train to Basel?", true}, {"station", "Move, I am in a hurry.", false},
}

// Verdict is the data of the step "answer", Check that of the step "check".
type (
	Verdict struct {
		Place  string  `json:"place"`
		Polite bool    `json:"polite"` // what is right
		Said   bool    `json:"said"`   // what the speaker says
		P      float64 `json:"p"`      // of yes, of yes and no together
	}
	Check struct {
		Agrees bool `json:"agrees"`
	}
)

// Found is what scoring finds: how often the speaker is right, and how often "always yes"
// is.
type Found struct {
	N, Unscored, Right, Agreed, AlwaysYes int
	Accuracy                              *stats.Estimate `json:"accuracy"`
}

// Line is a row of the exported tables.
type Line struct {
	Run   string `json:"run" parquet:"run" doc:"name of the run folder"`
	Item  string `json:"item" parquet:"item" doc:"number of the sentence"`
	Right *bool  `json:"right" parquet:"right" doc:"the speaker is right; null where it gave no usable answer"`
}

// About describes the benchmark.
func (Toy) About() task.About {
	return task.About{Task: "toy", Command: "toy", Subject: "speaker", Item: "sentence", Cluster: "place", Scale: []string{"question"},
		Roles: map[string]string{"answer": "speaker", "check": "checker"},
		Data:  map[string]any{"answer": Verdict{}, "check": Check{}}, Metrics: Found{}, Row: Line{},
		Short: "Is a sentence polite", Long: "toy asks a model whether a sentence is polite, and another one whether the first is right.",
		Example: "  ccmed toy --model gemma2:9b --checker phi3.5"}
}

type toyCall struct {
	checker, question string
	sentences         int
}

// Flags registers the flags.
func (Toy) Flags(f *pflag.FlagSet) task.Call {
	c := &toyCall{}
	f.StringVar(&c.checker, "checker", "", "model that checks the answers (default: --model)")
	f.StringVar(&c.question, "question", "Is this polite?", "what the speaker is asked")
	f.IntVar(&c.sentences, "sentences", len(sentences), "how many sentences are asked about")
	return c
}

func (c *toyCall) Roles(task.Env) (map[string]string, error) {
	return map[string]string{"speaker": "", "checker": c.checker}, nil
}

// Plan says what is asked.
func (c *toyCall) Plan(_ context.Context, env task.Env) (task.Plan, error) {
	if c.sentences < 1 || c.sentences > len(sentences) {
		return task.Plan{}, usage.Errorf("--sentences %d; it must be 1 to %d", c.sentences, len(sentences))
	}
	ask := func(system, text string) infer.Prompt {
		return infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: system}, {Role: infer.User, Content: text + "\nyes or no"}}}
	}
	answer := func(ctx context.Context, b infer.Backend, p infer.Prompt) (infer.Choice, string, error) {
		cs, err := b.Choose(ctx, []infer.Prompt{p}, infer.Words("yes", "no"), infer.Params{Seed: env.Seed, TopP: 1})
		if err != nil {
			return infer.Choice{}, "", err
		}
		return cs[0], cs[0].Unscored, nil
	}
	t := run.Task[int]{Name: "toy", Steps: []run.Step[int]{
		{Name: "answer", Role: "speaker", Do: func(ctx context.Context, b infer.Backend, u run.Unit[int], _ run.Lookup) (run.Sample, error) {
			s := sentences[u.Value]
			choice, unscored, err := answer(ctx, b, ask(c.question, s.text))
			if err != nil || unscored != "" {
				return task.Sample(Verdict{Place: s.place, Polite: s.polite}, unscored, err)
			}
			return task.Sample(Verdict{s.place, s.polite, choice.P[0] > choice.P[1], choice.P[0] / choice.Mass}, "", nil)
		}},
		{Name: "check", Role: "checker", Do: func(ctx context.Context, b infer.Backend, u run.Unit[int], look run.Lookup) (run.Sample, error) {
			v, unscored, err := task.Earlier[Verdict](look, "answer")
			if err != nil || unscored != "" {
				return task.Sample(Check{}, unscored, err)
			}
			choice, unscored, err := answer(ctx, b, ask("Is the answer right?", fmt.Sprintf("%s Polite: %t", sentences[u.Value].text, v.Said)))
			return task.Sample(Check{Agrees: unscored == "" && err == nil && choice.P[0] > choice.P[1]}, unscored, err)
		}}}}
	p := task.Plan{Size: c.sentences, Templates: map[string]string{}, DataHash: "sentences-1", Longest: map[string][]infer.Prompt{}, Answer: map[string]int{"speaker": 1, "checker": 1},
		Settings: map[string]any{"question": c.question, "sentences": c.sentences}}
	for i, s := range sentences[:c.sentences] {
		item := strconv.Itoa(i + 1)
		t.Units, p.Items = append(t.Units, run.Unit[int]{Item: item, Group: s.place, Value: i}), append(p.Items, item)
		for role := range p.Answer {
			p.Longest[role] = append(p.Longest[role], ask(c.question, s.text+" Polite: false"))
		}
	}
	p.Task = t
	p.Preview = func(context.Context) (task.Preview, error) { return task.PreviewOf(p.Longest), nil }
	return p, nil
}

// toyResult is a run's result.
type toyResult struct {
	Found
	in    task.Input
	units func() ([]task.Unit, error)
}

// Score scores a run, or takes its stored metrics.
func (Toy) Score(_ context.Context, in task.Input) (task.Result, error) {
	r := &toyResult{in: in, units: in.UnitsOnce()}
	stored, ok, err := task.Decode[Found](in)
	if r.Found = stored; err != nil || ok {
		return r, err
	}
	units, err := r.units()
	if err != nil {
		return nil, err
	}
	var right []float64
	var places []string
	for _, u := range units {
		v, unscored, err := task.StepData[Verdict](u, "answer")
		if err != nil {
			return nil, err
		}
		r.N++
		if unscored != "" {
			r.Unscored++
			continue
		}
		hit := 0.0
		if v.Said == v.Polite {
			hit, r.Right = 1, r.Right+1
		}
		if v.Polite {
			r.AlwaysYes++
		}
		if c, unscored, err := task.StepData[Check](u, "check"); err != nil {
			return nil, err
		} else if unscored == "" && c.Agrees {
			r.Agreed++
		}
		right, places = append(right, hit), append(places, v.Place)
	}
	if len(right) == 0 {
		return r, nil
	}
	e, err := stats.Bootstrap{Resamples: 1000, Seed: in.Seed}.Share(right, places)
	r.Accuracy = &e
	return r, err
}

func (r *toyResult) Metrics() any { return r.Found }

func (r *toyResult) Sections(context.Context) ([]report.Section, error) {
	t := report.Table{Columns: report.Columns("who", "right>", "95 % interval>")}
	scored := r.N - r.Unscored
	interval := ""
	if r.Accuracy != nil {
		interval = report.Estimate(*r.Accuracy, 3)
	}
	t.Rows = [][]report.Cell{{report.Text(r.in.Identity().ModelNames()), report.Text(report.Pct(r.Right, scored)), report.Text(interval)},
		{report.Text("baseline: always yes"), report.Text(report.Pct(r.AlwaysYes, scored))}}
	return []report.Section{{Title: "Toy: polite sentences", Tables: []report.Table{t}, Notes: []string{fmt.Sprintf("%d unscored; the checker agrees with %s", r.Unscored, report.Pct(r.Agreed, scored))}}}, nil
}

func (r *toyResult) Cautions(context.Context) ([]string, error) {
	if r.Right <= r.AlwaysYes {
		return []string{"answering yes to everything is right as often"}, nil
	}
	return nil, nil
}

func (r *toyResult) Measures(context.Context) ([]stats.Measure, []string, error) {
	m := stats.Measure{Name: "right", Binary: true}
	units, err := r.units()
	for _, u := range units {
		v, unscored, err := task.StepData[Verdict](u, "answer")
		if err != nil {
			return nil, nil, err
		}
		o := stats.Observation{Item: u.Key.Item, Group: v.Place, Unscored: unscored}
		if v.Said == v.Polite {
			o.Value = 1
		}
		m.Observations = append(m.Observations, o)
	}
	return []stats.Measure{m}, nil, err
}

func (r *toyResult) Table(ctx context.Context) (task.Table, error) {
	var t task.Table
	units, err := r.units()
	for _, u := range units {
		v, unscored, err := task.StepData[Verdict](u, "answer")
		if err != nil {
			return t, err
		}
		line, s := &Line{Run: r.in.Name(), Item: u.Key.Item}, task.Score{Metric: "right", Unscored: unscored, Binary: true}
		if unscored == "" {
			right := v.Said == v.Polite
			if line.Right = &right; right {
				s.Value = 1
			}
		}
		t.Rows = append(t.Rows, task.Row{Key: u.Key, Value: line, Cluster: v.Place, Input: task.LastPrompt(u.Steps, "answer"), Target: strconv.FormatBool(v.Polite),
			Output: strconv.FormatBool(v.Said), Stop: infer.StopEnd, Scores: []task.Score{s}, Steps: u.Costs()})
	}
	return t, err
}

func (r *toyResult) Browser(context.Context) (report.Browser, []string, error) {
	b := report.Browser{Name: "sentences", Title: "number", Facets: []report.Facet{{Name: "place"}}, Measures: []string{"P(polite)"}}
	units, err := r.units()
	for _, u := range units {
		v, unscored, err := task.StepData[Verdict](u, "answer")
		if err != nil {
			return b, nil, err
		}
		n, err := strconv.Atoi(u.Key.Item)
		if err != nil || n < 1 || n > len(sentences) {
			return b, nil, fmt.Errorf("there is no sentence %q", u.Key.Item)
		}
		b.Items = append(b.Items, report.Item{Title: u.Key.Item, Note: strings.TrimPrefix("unscored: "+unscored, "unscored: "), Facets: [][]string{{v.Place}}, Measures: report.Values{v.P},
			Blocks: []report.Block{{Title: "Sentence", Text: sentences[n-1].text}}})
	}
	return b, nil, err
}
