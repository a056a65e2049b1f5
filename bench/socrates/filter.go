package socrates

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// FilterTask is the task of runs that choose scenarios.
const FilterTask = "socrates-filter"

// FilterBench replays scenarios without a mediator and keeps those on which the parties never
// agree.
type FilterBench struct{}

// About describes the benchmark.
func (FilterBench) About() task.About {
	return task.About{Task: FilterTask, Command: "socrates filter", Subject: RoleParty, Item: "scenario", Cluster: "scenario",
		Scale: []string{"max_turns", "max_tokens", "max_history", "replays"},
		Roles: map[string]string{StepUnmediated: RoleParty}, Data: map[string]any{StepUnmediated: Talk{}}, Metrics: FilterMetrics{}, Row: FilterRow{},
		Short: "Choose scenarios on which the parties do not agree by themselves",
		Long: `socrates filter has the parties of each scenario talk several times without a mediator,
each time from other seeds, and keeps the scenarios of which no talk ends in an
agreement, as the source does with three talks. ` + "`socrates run --kept RUN`" + ` then takes
these alone.

The talks are not those of socrates run: its talks without a mediator come from
seeds of their own. A scenario that was kept for three talks without an agreement
agrees more often in the next one by chance alone, and a baseline out of the three
would hide that.`,
		Example: `  ccmed socrates filter --model qwen2.5:14b --scenarios my-disputes --max-turns 10 --out runs/CHOSEN`}
}

type filterCall struct {
	scenarios string
	lenient   bool
	limit     int
	replays   int
	o         Options
}

// Flags registers the flags.
func (FilterBench) Flags(f *pflag.FlagSet) task.Call {
	c := &filterCall{}
	f.StringVar(&c.scenarios, "scenarios", scenario.Sample, `file or folder of scenarios; "sample" is the embedded eight`)
	f.IntVar(&c.limit, "limit", 0, "take the first N scenarios; 0 takes all")
	f.IntVar(&c.replays, "replays", 3, "talks of each scenario")
	f.BoolVar(&c.lenient, "lenient", false, "understand other names of fields in scenarios, and pass over those that are not known")
	f.IntVar(&c.o.MaxTurns, "max-turns", 100, "party turns after which a talk ends without an agreement")
	f.IntVar(&c.o.MaxTokens, "max-tokens", 200, "most tokens of a party's turn, its thought included")
	f.IntVar(&c.o.MaxHistory, "max-history", 0, "latest turns that a prompt holds; 0 is all")
	task.Reads(f, "scenarios")
	task.Suggest(f, "scenarios", scenario.Sample)
	return c
}

// Roles names the model of the parties.
func (c *filterCall) Roles(task.Env) (map[string]string, error) {
	return map[string]string{RoleParty: ""}, nil
}

type filterSettings struct {
	Scenarios  string `json:"scenarios"`
	Limit      int    `json:"limit"`
	Replays    int    `json:"replays"`
	MaxTurns   int    `json:"max_turns"`
	MaxTokens  int    `json:"max_tokens"`
	MaxHistory int    `json:"max_history"`
}

// Plan says what is asked.
func (c *filterCall) Plan(_ context.Context, env task.Env) (task.Plan, error) {
	if c.replays < 1 {
		return task.Plan{}, usage.Errorf("--replays %d; it must be at least 1", c.replays)
	}
	of := &call{scenarios: c.scenarios, lenient: c.lenient, limit: c.limit, o: c.o, arm: "none", form: FormChoose, conditions: []string{"general"}}
	of.o.MediatorTokens = 1 // of a mediator that is not there
	if err := of.check(); err != nil {
		return task.Plan{}, err
	}
	of.o.Seed = env.Seed
	cases, items, err := of.cases(env)
	if err != nil {
		return task.Plan{}, err
	}
	hash, err := hashOf(cases)
	if err != nil {
		return task.Plan{}, err
	}
	o := of.o
	p := task.Plan{Task: replays(cases, o, c.replays), Size: len(cases), Items: items, DataHash: hash, Templates: map[string]string{"socrates_party": templates()["socrates_party"]},
		Settings: filterSettings{c.scenarios, c.limit, c.replays, o.MaxTurns, o.MaxTokens, o.MaxHistory},
		Longest:  map[string][]infer.Prompt{}, Answer: map[string]int{RoleParty: partyAnswer(o)}, Paths: paths(cases, o)}
	for _, x := range cases {
		party, _ := longestPrompts(x, o)
		p.Longest[RoleParty] = append(p.Longest[RoleParty], party)
	}
	p.Preview = func(context.Context) (task.Preview, error) { return task.PreviewOf(p.Longest), nil }
	return p, nil
}

// replays plays each case several times.
func replays(cases []scenario.Case, o Options, n int) run.Task[scenario.Case] {
	t := run.Task[scenario.Case]{Name: FilterTask, Steps: []run.Step[scenario.Case]{{Name: StepUnmediated, Role: RoleParty,
		Do: func(ctx context.Context, b infer.Backend, u run.Unit[scenario.Case], _ run.Lookup) (run.Sample, error) {
			o := o
			o.Arm = Arm{ArmReplay, u.Repeat + 1}
			return task.Sample(Simulate(ctx, b, nil, u.Value, o))
		}}}}
	for _, of := range cases {
		for k := range n {
			t.Units = append(t.Units, run.Unit[scenario.Case]{Item: of.Scenario.ID, Condition: of.Condition, Group: of.Scenario.ID, Repeat: k, Value: of})
		}
	}
	return t
}

// FilterMetrics are which scenarios are kept.
type FilterMetrics struct {
	Replays   int                `json:"replays"`
	Scenarios []FilteredScenario `json:"scenarios"`
	Kept      int                `json:"kept"`
	Unscored  map[string]int     `json:"unscored,omitempty"` // talks, by reason
}

// FilteredScenario is how the talks of a scenario end.
type FilteredScenario struct {
	ID       string `json:"id"`
	Domain   string `json:"domain"`
	Agreed   int    `json:"agreed"`
	Impasse  int    `json:"impasse"`
	NoEnd    int    `json:"no_end"` // at the most turns
	Unscored int    `json:"unscored"`
	// Kept says that all talks are there, can be counted, and none is an agreement.
	Kept bool `json:"kept"`
}

// FilterRow is a talk in the exported tables.
type FilterRow struct {
	Run      string  `json:"run" parquet:"run" doc:"name of the run folder"`
	Scenario string  `json:"scenario" parquet:"scenario" doc:"id of the scenario"`
	Replay   int     `json:"replay" parquet:"replay" doc:"number of the talk, from 1"`
	Domain   string  `json:"domain" parquet:"domain" doc:"domain of the scenario"`
	End      *string `json:"end" parquet:"end" doc:"how the talk ended: agreement, impasse or turns; null where it cannot be counted"`
	Turns    *int    `json:"turns" parquet:"turns" doc:"turns of the parties"`
	Kept     bool    `json:"kept" parquet:"kept" doc:"the scenario is kept"`
}

type filterResult struct {
	in     task.Input
	Metric FilterMetrics
	pairs  func() ([]pair, error)
}

// Score scores a run, or takes its stored metrics.
func (FilterBench) Score(_ context.Context, in task.Input) (task.Result, error) {
	units := in.UnitsOnce()
	r := &filterResult{in: in, pairs: func() ([]pair, error) {
		us, err := units()
		if err != nil {
			return nil, err
		}
		return pairs(us)
	}}
	stored, ok, err := task.Decode[FilterMetrics](in)
	if r.Metric = stored; err != nil || ok {
		return r, err
	}
	ps, err := r.pairs()
	if err != nil {
		return nil, err
	}
	s, err := task.Settings[filterSettings](in.Identity())
	if err != nil {
		return nil, err
	}
	r.Metric = filtered(ps, s.Replays)
	return r, nil
}

// filtered counts the ends of talks by scenario.
func filtered(ps []pair, replays int) FilterMetrics {
	m := FilterMetrics{Replays: replays, Scenarios: []FilteredScenario{}}
	for _, p := range ps {
		k := len(m.Scenarios) - 1
		if k < 0 || m.Scenarios[k].ID != p.key.Key.Item {
			m.Scenarios, k = append(m.Scenarios, FilteredScenario{ID: p.key.Key.Item}), k+1
		}
		s := &m.Scenarios[k]
		if d := p.any().Domain; d != "" {
			s.Domain = d
		}
		t, ok := p.scored(StepUnmediated)
		switch {
		case !ok:
			s.Unscored++
			if m.Unscored == nil {
				m.Unscored = map[string]int{}
			}
			m.Unscored[p.missing(StepUnmediated)]++
		case t.End == EndAgreement:
			s.Agreed++
		case t.End == EndImpasse:
			s.Impasse++
		default:
			s.NoEnd++
		}
	}
	for i := range m.Scenarios {
		s := &m.Scenarios[i]
		s.Kept = replays > 0 && s.Impasse+s.NoEnd >= replays && s.Agreed == 0 && s.Unscored == 0
		m.Kept += count(s.Kept)
	}
	return m
}

func (r *filterResult) Metrics() any { return r.Metric }

// Sections are the tables.
func (r *filterResult) Sections(context.Context) ([]report.Section, error) {
	m := r.Metric
	t := report.Table{Columns: report.Columns("scenario", "domain", "agreement>", "impasse>", "no end>", "unscored>", "kept")}
	for _, s := range m.Scenarios {
		kept := "no"
		if s.Kept {
			kept = "yes"
		}
		t.Add(s.ID, s.Domain, s.Agreed, s.Impasse, s.NoEnd, s.Unscored, kept)
	}
	return []report.Section{{Title: "Scenarios on which the parties do not agree by themselves", Tables: []report.Table{t}, Notes: []string{
		fmt.Sprintf("kept: %d of %d scenarios, of whose %d talks without a mediator none ends in an agreement; a talk that cannot be counted keeps its scenario out", m.Kept, len(m.Scenarios), m.Replays)}}}, nil
}

// Cautions are what a reader must know.
func (r *filterResult) Cautions(context.Context) ([]string, error) {
	return task.UnscoredCautions(r.Metric.Unscored, "talks"), nil
}

// Headline is the result in a minute.
func (r *filterResult) Headline(context.Context) (task.Headline, error) {
	m := r.Metric
	return task.Headline{Asked: "Asked to play the parties of disputes without a mediator",
		Sentence: fmt.Sprintf("keeps %d of %d scenarios: in none of their %d talks do the parties agree.", m.Kept, len(m.Scenarios), m.Replays),
		Rows:     []task.HeadlineRow{{Measure: "scenarios kept", Value: fmt.Sprintf("%d of %d", m.Kept, len(m.Scenarios))}}}, nil
}

// Measures are the agreement of each talk.
func (r *filterResult) Measures(context.Context) ([]stats.Measure, []string, error) {
	ps, err := r.pairs()
	m := stats.Measure{Name: "agreement", Binary: true}
	for _, p := range ps {
		t, _ := p.scored(StepUnmediated)
		m.Observations = append(m.Observations, stats.Observation{Item: p.key.Key.Item + " " + strconv.Itoa(p.key.Key.Repeat+1), Group: p.key.Key.Item,
			Value: agreed(t), Unscored: p.missing(StepUnmediated)})
	}
	return []stats.Measure{m}, nil, err
}

// Table gives the rows of exports.
func (r *filterResult) Table(context.Context) (task.Table, error) {
	t := task.Table{Temperature: temperature}
	if s, err := task.Settings[filterSettings](r.in.Identity()); err == nil {
		t.MaxTokens = s.MaxTokens
	}
	ps, err := r.pairs()
	for _, p := range ps {
		key := p.key.Key
		row := &FilterRow{Run: r.in.Name(), Scenario: key.Item, Replay: key.Repeat + 1, Domain: p.any().Domain, Kept: slices.Contains(r.Metric.kept(), key.Item)}
		score := task.Score{Metric: "agreement", Binary: true, Unscored: p.missing(StepUnmediated)}
		output := ""
		if talk, ok := p.scored(StepUnmediated); ok {
			n := talk.PartyTurns()
			row.End, row.Turns, score.Value, output = &talk.End, &n, agreed(talk), talk.End
		}
		t.Rows = append(t.Rows, task.Row{Key: key, Value: row, Cluster: key.Item, Input: task.LastPrompt(p.key.Steps, StepUnmediated), Target: EndAgreement,
			Output: output, Stop: infer.StopEnd, Scores: []task.Score{score}, Steps: p.key.Costs()})
	}
	return t, err
}

// kept are the ids of the scenarios that are kept.
func (m FilterMetrics) kept() (ids []string) {
	for _, s := range m.Scenarios {
		if s.Kept {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// Browser lists the talks.
func (r *filterResult) Browser(context.Context) (report.Browser, []string, error) {
	ends := []string{EndAgreement, EndImpasse, EndTurns, task.Unscored}
	b := report.Browser{Name: "talks", Title: "scenario and talk", Facets: []report.Facet{{Name: "scenario"}, {Name: "domain", Order: scenario.Domains()}, {Name: "end", Order: ends}},
		Measures: []string{"party turns"}}
	ps, err := r.pairs()
	for _, p := range ps {
		t, ok := p.talks[StepUnmediated]
		if !ok {
			continue
		}
		it := report.Item{Title: fmt.Sprintf("%s, talk %d", p.key.Key.Item, p.key.Key.Repeat+1), Measures: report.Values{float64(t.PartyTurns())},
			Facets: [][]string{{p.key.Key.Item}, nil, p.ends(StepUnmediated)}}
		if t.Domain != "" {
			it.Facets[1] = []string{t.Domain}
		}
		it.Blocks = append(it.Blocks, evaluated{pair: p}.block(StepUnmediated, t, "without a mediator"))
		b.Items = append(b.Items, it)
	}
	return b, nil, err
}

// keptBy reads which scenarios a filter run keeps.
func keptBy(ctx context.Context, env task.Env, path string) (ids []string, err error) {
	r, err := env.Open(path)
	if err != nil {
		return nil, err
	}
	m := r.Manifest()
	switch {
	case m.Identity.Task != FilterTask:
		return nil, usage.Errorf("--kept %s is no run of ccmed socrates filter", path)
	case m.Status != run.StatusDone:
		return nil, usage.Errorf("--kept %s is not finished; go on with: ccmed runs resume %s", path, path)
	}
	res, err := FilterBench{}.Score(ctx, task.Input{Run: r})
	if err != nil {
		return nil, fmt.Errorf("read which scenarios %s keeps: %w", path, err)
	}
	ids = res.(*filterResult).Metric.kept()
	if len(ids) == 0 {
		return nil, usage.Errorf("--kept %s keeps no scenario: in each one the parties agree in some talk, or a talk could not be counted", path)
	}
	return ids, nil
}
