// Package writing builds personas' past talks for CCBench: a writer model talks as a persona
// whose norms it is told, and a checker model and rules reject talks that hide a norm,
// contradict one or say where the persona comes from. What passes becomes a build.
package writing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// StepMake is the one step: a session is written and checked, a query or norm is checked.
const StepMake = "make"

// Roles of models.
const (
	RoleWriter  = "writer"
	RoleChecker = "checker"
)

// Conditions of the units.
const (
	Session = "session"
	Query   = "query"
	Norm    = "norm"
)

const temperature = 0.7 // of the writer

// Bench is the benchmark.
type Bench struct{}

// About describes the benchmark.
func (Bench) About() task.About {
	return task.About{Task: "ccbench-build", Command: "ccbench build", Subject: RoleWriter, Item: "session", Cluster: "persona",
		Scale: []string{"max_tokens", "tries"},
		Roles: map[string]string{StepMake: RoleWriter},
		Data:  map[string]any{StepMake: Made{}}, Metrics: Metrics{}, Row: Row{},
		Short: "Write past talks of invented people, for ccbench run",
		Long: `ccbench build draws personas of cultures, has a writer model write their past talks with an
assistant, and keeps the talks that pass. The writer is told the persona's norms and
which of them this talk has to show, and repeats the stances at the end; these lines are
checked and cut off. A talk is rejected by rules first: its form, the repeated stances,
words that say where the person comes from. Then a checker model is asked of each norm
whether the stance can be inferred and whether the norm is followed, and of the talk
whether it states the culture. A rejected talk is written again, at most --tries times;
every rejection is kept with its reason. Greetings and religious practice may stay.

The checker also says which norms are relevant to which query. --queries reads questions
of health forums (JSON lists with question, question_text and tags, as in the repository
LasseRegin/medical-question-answer-data) and takes --query-count of them, spread over
twelve topics by their tags; without it the embedded queries are taken.

The folder holds build.json once every session has passed. An interrupted build goes on
with ccmed runs resume. Writer and checker are asked in turn: a server must hold both.`,
		Example: `  ccmed ccbench build --writer gemma2:9b --checker qwen2.5:14b --out my-build
  ccmed ccbench build --model gemma2:9b --culture nepali,maori --personas 4 --out two`}
}

type call struct {
	writer, checker, queries, own string
	cultures                      []string
	personas, everyday, health    int
	queryCount                    int
	o                             Options
}

// Options steer the writing.
type Options struct {
	Seed      int64
	Tries     int // talks that are written for a session until one passes
	MaxTokens int // of a talk
	// MinMass is the least probability that yes and no must get together.
	MinMass float64
}

// Flags registers the flags.
func (Bench) Flags(f *pflag.FlagSet) task.Call {
	c := &call{}
	f.StringVar(&c.writer, "writer", "", "model that writes the talks (default: --model)")
	f.StringVar(&c.checker, "checker", "", "model that checks them (default: --model)")
	f.StringSliceVar(&c.cultures, "culture", nil, "cultures of the personas, separated by commas (default: all six)")
	f.StringVar(&c.own, "own-culture", "", "file of a culture of your own, in place of --culture")
	f.IntVar(&c.personas, "personas", 10, "personas of each culture")
	f.IntVar(&c.everyday, "everyday", 15, "everyday sessions of a persona")
	f.IntVar(&c.health, "health", 3, "sessions on health of a persona")
	f.StringVar(&c.queries, "queries", "", "file or folder of forum questions, in place of the embedded queries")
	f.IntVar(&c.queryCount, "query-count", 52, "queries that are taken of --queries")
	f.IntVar(&c.o.Tries, "tries", 5, "talks that are written for a session until one passes")
	f.IntVar(&c.o.MaxTokens, "max-tokens", 900, "most tokens of a talk")
	f.Float64Var(&c.o.MinMass, "min-mass", 0.05, "minimum probability mass on yes and no; below it a check is not passed")
	task.Reads(f, "queries", "own-culture")
	task.Choose(f, "culture", norm.Names()...)
	return c
}

// Roles names the models.
func (c *call) Roles(task.Env) (map[string]string, error) {
	return map[string]string{RoleWriter: c.writer, RoleChecker: c.checker}, nil
}

func (c *call) check() error {
	for _, x := range []struct {
		name     string
		n, least int
	}{{"personas", c.personas, 1}, {"everyday", c.everyday, 0}, {"health", c.health, 0}, {"query-count", c.queryCount, 1}, {"tries", c.o.Tries, 1}, {"max-tokens", c.o.MaxTokens, 1}} {
		if x.n < x.least {
			return usage.Errorf("--%s %d; it must be at least %d", x.name, x.n, x.least)
		}
	}
	switch {
	case c.everyday+c.health < 1:
		return usage.Errorf("--everyday 0 and --health 0 leave no session")
	case !(c.o.MinMass >= 0 && c.o.MinMass < 1):
		return usage.Errorf("--min-mass %g; it must lie in 0..1", c.o.MinMass)
	}
	return nil
}

// settings are the options of a run's identity.
type settings struct {
	Cultures   []string `json:"culture"`
	Own        string   `json:"own_culture,omitempty"`
	Personas   int      `json:"personas"`
	Everyday   int      `json:"everyday"`
	Health     int      `json:"health"`
	Queries    string   `json:"queries,omitempty"`
	QueryCount int      `json:"query_count"`
	Tries      int      `json:"tries"`
	MaxTokens  int      `json:"max_tokens"`
	MinMass    float64  `json:"min_mass"`
}

// unit is a session that is to be written, or a query or norm that is to be checked.
type unit struct {
	culture build.Culture // without personas
	// Of a session.
	persona norm.Persona
	kind    string
	starter string
	// assigned are the stances that the session has to show.
	assigned []build.Stance
	query    build.Query
	norms    []norm.Norm // that a query is checked against, or the one norm
}

// draw draws the personas and reads the queries.
func (c *call) draw(seed int64) (cultures []build.Culture, queries []build.Query, err error) {
	var all []norm.Culture
	if c.own != "" {
		own, faults, err := norm.Survey(c.own)
		for i, f := range faults {
			faults[i] = fmt.Errorf("%s: %w", c.own, f)
		}
		if err = errors.Join(append(faults, err)...); err != nil {
			return nil, nil, err
		}
		all = []norm.Culture{own}
	} else {
		if len(c.cultures) == 0 {
			c.cultures = norm.Names()
		}
		for _, name := range c.cultures {
			named, err := norm.Named(name)
			if err != nil {
				return nil, nil, usage.Errorf("--culture: %v", err)
			}
			if slices.ContainsFunc(all, func(o norm.Culture) bool { return o.ID == named.ID }) {
				return nil, nil, usage.Errorf("--culture names %s twice", named.ID)
			}
			all = append(all, named)
		}
	}
	for _, of := range all {
		personas, err := of.Personas(c.personas, seed)
		if err != nil {
			return nil, nil, usage.Errorf("--personas: %v", err)
		}
		culture := build.Culture{Seed: seed, Culture: of}
		for _, p := range personas {
			culture.Personas = append(culture.Personas, build.Persona{Persona: p})
		}
		cultures = append(cultures, culture)
	}
	if c.queries == "" {
		sample, err := build.Read(build.Sample)
		if err != nil {
			return nil, nil, err
		}
		return cultures, sample.Queries, nil
	}
	queries, err = readQueries(c.queries, c.queryCount, seed)
	return cultures, queries, err
}

// Plan says what is asked.
func (c *call) Plan(_ context.Context, env task.Env) (task.Plan, error) {
	if err := c.check(); err != nil {
		return task.Plan{}, err
	}
	c.o.Seed = env.Seed
	cultures, queries, err := c.draw(env.Seed)
	if err != nil {
		return task.Plan{}, err
	}
	data, err := json.Marshal(map[string]any{"cultures": cultures, "queries": queries})
	if err != nil {
		return task.Plan{}, fmt.Errorf("encode personas and queries: %w", err)
	}
	hash := sha256.Sum256(data)
	o := c.o
	units := c.units(cultures, queries)
	p := task.Plan{Task: Task(units, o), DataHash: hex.EncodeToString(hash[:]), Templates: templates(),
		Settings: settings{c.cultures, c.own, c.personas, c.everyday, c.health, c.queries, c.queryCount, o.Tries, o.MaxTokens, o.MinMass},
		Longest:  map[string][]infer.Prompt{}, Answer: map[string]int{RoleWriter: o.MaxTokens, RoleChecker: 1}}
	talk := strings.TrimSpace(strings.Repeat("word ", o.MaxTokens))
	for _, u := range units {
		p.Items = append(p.Items, u.Item)
		switch v := u.Value; u.Condition {
		case Session:
			p.Longest[RoleWriter] = append(p.Longest[RoleWriter], writerPrompt(v))
			for _, s := range v.culture.Stances(v.persona) {
				p.Longest[RoleChecker] = append(p.Longest[RoleChecker], inferPrompt(talk, s.Norm), followPrompt(talk, s.Norm))
			}
		default:
			for _, n := range v.norms {
				p.Longest[RoleChecker] = append(p.Longest[RoleChecker], v.plainPrompt(u.Condition, n))
			}
		}
	}
	p.Size = len(p.Items)
	p.Preview = func(context.Context) (task.Preview, error) { return task.PreviewOf(p.Longest), nil }
	p.Open = func(ctx context.Context, d *run.Dir) (func() error, error) {
		models := d.Manifest().Identity.Models
		whole := build.Build{Schema: build.Schema, Source: "ccmed ccbench build", Writer: models[RoleWriter].Name, Checker: models[RoleChecker].Name, Cultures: cultures, Queries: queries}
		if c.queries != "" {
			whole.Source += "; queries of " + c.queries
		}
		return func() error { return finish(d.Path(), whole, units, env.Note) }, nil
	}
	return p, nil
}

// units are the sessions of every persona, the queries and the norms. The stances of a
// persona are dealt over its sessions, so that each has to be shown by one at least.
func (c *call) units(cultures []build.Culture, queries []build.Query) (out []run.Unit[unit]) {
	for _, of := range cultures {
		bare := of
		bare.Personas = nil
		for k, p := range of.Personas {
			kinds := append(slices.Repeat([]string{build.Everyday}, c.everyday), slices.Repeat([]string{build.Health}, c.health)...)
			dealt := deal(of.Stances(p.Persona), len(kinds))
			for i, kind := range kinds {
				out = append(out, run.Unit[unit]{Item: sessionItem(p.ID, i), Condition: Session, Group: p.ID,
					Value: unit{culture: bare, persona: p.Persona, kind: kind, starter: starter(kind, k*len(kinds)+i), assigned: dealt[i]}})
			}
		}
		for _, q := range queries {
			u := unit{culture: bare, query: q}
			for _, n := range of.Culture.Norms {
				if n.Textual {
					u.norms = append(u.norms, n)
				}
			}
			out = append(out, run.Unit[unit]{Item: of.Culture.ID + " " + q.ID, Condition: Query, Group: of.Culture.ID, Value: u})
		}
		for _, n := range of.Culture.Norms {
			out = append(out, run.Unit[unit]{Item: n.ID, Condition: Norm, Group: of.Culture.ID, Value: unit{culture: bare, norms: []norm.Norm{n}}})
		}
	}
	return out
}

func sessionItem(persona string, i int) string { return fmt.Sprintf("%s s%02d", persona, i+1) }

// deal hands stances out to n sessions in turn. With more sessions than stances the round
// goes on, so that every session has one to show.
func deal(stances []build.Stance, n int) [][]build.Stance {
	out := make([][]build.Stance, n)
	for i := range max(n, len(stances)) {
		out[i%n] = append(out[i%n], stances[i%len(stances)])
	}
	return out
}

// Task makes every unit.
func Task(units []run.Unit[unit], o Options) run.Task[unit] {
	return run.Task[unit]{Name: "ccbench-build", Units: units, Steps: []run.Step[unit]{{Name: StepMake, Roles: []string{RoleWriter, RoleChecker},
		DoAll: func(ctx context.Context, bs map[string]infer.Backend, u run.Unit[unit], _ run.Lookup) (run.Sample, error) {
			if u.Condition == Session {
				return task.Sample(write(ctx, bs[RoleWriter], bs[RoleChecker], u, o))
			}
			return task.Sample(checkNorms(ctx, bs[RoleChecker], u, o))
		}}}}
}
