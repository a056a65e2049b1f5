package construct

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// Scenarios is the benchmark of scenarios that a model writes.
type Scenarios struct{}

// About describes the benchmark.
func (Scenarios) About() task.About {
	return task.About{Task: taskScenarios, Command: "build scenarios", Subject: RoleWriter, Item: "scenario", Cluster: "dimension", Scale: []string{"temperature", "max_tokens", "alike"},
		Roles: map[string]string{StepWrite: RoleWriter}, Data: map[string]any{StepWrite: Written{}}, Metrics: Metrics{}, Row: Row{},
		Short: "Let a model write scenes in which two people disagree",
		Long: `build scenarios has a model write scenes about value questions of ours (45 in nine
dimensions) and two countries each. A scene is rejected where it is not the form
asked for, where the people agree, lack a name or two goals, or where a stage is
named; of scenes that mean the same (cosine of TF-IDF of at least --alike) the first
is kept. Every reject is counted.

Scenarios of your own need no model: build prompts reads them.`,
		Example: `  ccmed build scenarios --n 100 --model gemma2:9b
  ccmed build scenarios --n 40 --countries Japan,Peru,Norway --writer qwen2.5:14b`}
}

type writeCall struct {
	writer      string
	n           int
	countries   []string
	temperature float64
	maxTokens   int
	alike       float64
}

// Flags registers the flags.
func (Scenarios) Flags(f *pflag.FlagSet) task.Call {
	c := &writeCall{}
	f.StringVar(&c.writer, "writer", "", "model that writes (default: --model)")
	f.IntVar(&c.n, "n", 100, "how many scenarios are asked for")
	f.StringSliceVar(&c.countries, "countries", nil, "countries of the people, at least two (default: 31 of all continents)")
	f.Float64Var(&c.temperature, "temperature", 0.8, "temperature of the writer")
	f.IntVar(&c.maxTokens, "max-tokens", 400, "cap of a scenario")
	f.Float64Var(&c.alike, "alike", Alike, "cosine of TF-IDF from which two scenarios mean the same")
	task.Reads(f, "writer")
	return c
}

func (c *writeCall) Roles(task.Env) (map[string]string, error) {
	return map[string]string{RoleWriter: c.writer}, nil
}

// brief is what a scenario is asked to be.
type brief struct {
	ID          string    `json:"id"`
	Question    Question  `json:"question"`
	Countries   [2]string `json:"countries"`
	FirstAgrees bool      `json:"first_agrees"`
}

// Written is the data of the step.
type Written struct {
	Brief    brief     `json:"brief"`
	Scenario *Scenario `json:"scenario,omitempty"`
	Raw      string    `json:"raw,omitempty"` // the answer where it could not be read
}

type writeSettings struct {
	N           int      `json:"n"`
	Countries   []string `json:"countries"`
	Temperature float64  `json:"temperature"`
	MaxTokens   int      `json:"max_tokens"`
	Alike       float64  `json:"alike"`
}

// briefs take the questions in turn, of all dimensions alike, with countries drawn from the
// seed. Who agrees is balanced against the turns and the stages that Design gives: over 36
// in a row each of them meets both.
func briefs(n int, countries []string, seed int64) []brief {
	r := rand.New(rand.NewPCG(uint64(seed), 45))
	var byDimension [][]Question
	at := map[string]int{}
	for _, q := range Questions() {
		i, ok := at[q.Dimension]
		if !ok {
			i = len(byDimension)
			at[q.Dimension], byDimension = i, append(byDimension, nil)
		}
		byDimension[i] = append(byDimension[i], q)
	}
	var out []brief
	for i := range n {
		of := byDimension[i%len(byDimension)]
		pair := r.Perm(len(countries))
		out = append(out, brief{strconv.Itoa(i + 1), of[i/len(byDimension)%len(of)], [2]string{countries[pair[0]], countries[pair[1]]}, (i+i/6)%2 == 0})
	}
	return out
}

// fields are the texts that the writer is asked for, with their most characters.
var fields = []infer.SchemaText{{Name: "context", Max: 400}, {Name: "name_1", Max: 20}, {Name: "occupation_1", Max: 40}, {Name: "answer_1", Max: 3}, {Name: "practical_1", Max: 120},
	{Name: "argue_1", Max: 120}, {Name: "name_2", Max: 20}, {Name: "occupation_2", Max: 40}, {Name: "answer_2", Max: 3}, {Name: "practical_2", Max: 120}, {Name: "argue_2", Max: 120}}

// Plan says what is asked.
func (c *writeCall) Plan(_ context.Context, env task.Env) (task.Plan, error) {
	switch {
	case c.n < 1:
		return task.Plan{}, usage.Errorf("--n %d; it must be at least 1", c.n)
	case c.temperature < 0:
		return task.Plan{}, usage.Errorf("--temperature must not be negative")
	case c.maxTokens < 1:
		return task.Plan{}, usage.Errorf("--max-tokens must be at least 1")
	case c.alike <= 0 || c.alike > 1:
		return task.Plan{}, usage.Errorf("--alike %g; it must lie above 0 and not above 1", c.alike)
	}
	countries := c.countries
	if len(countries) == 0 {
		countries = own().Countries
	}
	if len(slices.Compact(slices.Sorted(slices.Values(countries)))) != len(countries) || len(countries) < 2 {
		return task.Plan{}, usage.Errorf("--countries %s; name at least two, each once", strings.Join(countries, ","))
	}
	t := run.Task[brief]{Name: taskScenarios, Steps: []run.Step[brief]{{Name: StepWrite, Role: RoleWriter, Do: func(ctx context.Context, b infer.Backend, u run.Unit[brief], _ run.Lookup) (run.Sample, error) {
		return c.write(ctx, b, env, u.Value)
	}}}}
	p := task.Plan{Size: c.n, Templates: env.Prompts.Hashes("scenario"), Longest: map[string][]infer.Prompt{}, Answer: map[string]int{RoleWriter: c.maxTokens},
		Settings: writeSettings{c.n, countries, c.temperature, c.maxTokens, c.alike}}
	all := briefs(c.n, countries, env.Seed)
	for _, of := range all {
		t.Units, p.Items = append(t.Units, run.Unit[brief]{Item: of.ID, Group: of.ID, Value: of}), append(p.Items, of.ID)
		x, err := of.prompt(env)
		if err != nil {
			return p, err
		}
		p.Longest[RoleWriter] = append(p.Longest[RoleWriter], x)
	}
	p.Task, p.Preview = t, func(context.Context) (task.Preview, error) { return task.PreviewOf(p.Longest), nil }
	var err error
	p.DataHash, err = hashOf(all)
	return p, err
}

func (of brief) prompt(env task.Env) (infer.Prompt, error) {
	return env.Prompts.Build("scenario", map[string]any{"Statement": of.Question.Statement, "First": of.Countries[0], "Second": of.Countries[1], "FirstAgrees": of.FirstAgrees})
}

func (c *writeCall) write(ctx context.Context, b infer.Backend, env task.Env, of brief) (run.Sample, error) {
	p, err := of.prompt(env)
	if err != nil {
		return run.Sample{}, err
	}
	n, err := strconv.Atoi(of.ID)
	if err != nil {
		return run.Sample{}, err
	}
	r, err := b.Chat(ctx, p, infer.Params{MaxTokens: c.maxTokens, Temperature: c.temperature, TopP: 1, Seed: mediation.TurnSeed(env.Seed, "scenario", n), Schema: &infer.Schema{Texts: fields}})
	if err != nil {
		return run.Sample{}, fmt.Errorf("ask the writer: %w", err)
	}
	s, ok := of.read(r.Text)
	if !ok {
		return task.Sample(Written{Brief: of, Raw: r.Text}, unreadable, nil)
	}
	return task.Sample(Written{Brief: of, Scenario: &s}, s.Check(), nil)
}

// read takes the first JSON object of an answer for a scenario.
func (of brief) read(text string) (s Scenario, ok bool) {
	var m map[string]string
	at := strings.IndexByte(text, '{')
	if at < 0 || json.NewDecoder(strings.NewReader(text[at:])).Decode(&m) != nil {
		return s, false
	}
	s = Scenario{ID: "written-" + of.ID, Context: m["context"], Question: of.Question.Statement, Dimension: of.Question.Dimension}
	for i := range s.People {
		n := strconv.Itoa(i + 1)
		s.People[i] = Person{Name: m["name_"+n], Country: of.Countries[i], Occupation: m["occupation_"+n], Answer: m["answer_"+n], Goals: []string{m["practical_"+n], m["argue_"+n]}}
	}
	s.tidy()
	return s, true
}

// writtenOf are the scenarios of a run that are not rejected, the first of those that mean
// the same, and the rejects.
func writtenOf(units []task.Unit, alike float64) (kept []Scenario, rejected []Reject, err error) {
	var all []Scenario
	for _, u := range units {
		w, why, err := task.StepData[Written](u, StepWrite)
		switch {
		case err != nil:
			return nil, nil, err
		case why != "" || w.Scenario == nil:
			rejected = append(rejected, Reject{u.Key.Item, why})
		default:
			all = append(all, *w.Scenario)
		}
	}
	kept, more, err := Sift(all, alike)
	return kept, append(rejected, more...), err
}

// ReadScenarios reads scenarios from a run of build scenarios, a file in the form of
// docs/build.md, a folder of records, or the embedded sample of records.
func ReadScenarios(ctx context.Context, a *task.Archive, path string, alike float64) (kept []Scenario, rejected []Reject, err error) {
	switch {
	case path != task.EmbeddedSample && isFile(path):
		all, err := readScenarios(path)
		if err != nil {
			return nil, nil, err
		}
		return Sift(all, alike)
	case path != task.EmbeddedSample && isFile(path+"/"+run.ManifestFile):
		r, units, err := earlierRun(task.Env{Archive: a}, "scenarios", path, taskScenarios, "build scenarios")
		if err != nil {
			return nil, nil, err
		}
		kept, rejected, err := writtenOf(units, alike)
		by := r.Identity().Models[RoleWriter]
		for i := range kept {
			kept[i].Source = fmt.Sprintf("the model %s (%s)", by.Name, by.Digest)
		}
		return kept, rejected, err
	}
	if path != task.EmbeddedSample {
		if _, err := os.Stat(path); err != nil {
			return nil, nil, fmt.Errorf("read scenarios: %w; name a run of ccmed build scenarios, a file, a folder of records, or sample", err)
		}
	}
	ds, err := a.All(ctx, task.Records{Path: path, Lenient: true})
	if err != nil {
		return nil, nil, err
	}
	return Sift(fromRecords(ds), alike)
}
