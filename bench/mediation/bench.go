package mediation

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// TaskName is the task in the manifests of mediation runs.
const TaskName = "mediation"

// Bench is the benchmark of mediation.
type Bench struct{}

// About describes the benchmark.
func (Bench) About() task.About {
	return task.About{
		Task: TaskName, Command: "mediate", AlsoMadeBy: []string{"score"}, Subject: RoleMediator, Item: "dialogue", Cluster: "scenario context",
		Roles:   map[string]string{StepUtterance: RoleMediator, StepSimulate: RoleSimulator, StepLabel: RoleLabeller, StepJudge: RoleJudge},
		Scale:   instrumentSettings,
		Data:    map[string]any{StepUtterance: Utterance{}, StepSimulate: Continuation{}, StepLabel: Labels{}, StepJudge: Judgement{}},
		Metrics: Metrics{}, Row: Row{},
		Short: "How well a model mediates: stages after its line, and a judge",
		Long: `mediate lets the model speak at the conflict turn, simulates how the two speakers
go on, labels the conflict speaker's DMIS stage after every turn and lets a judge
rate the line. Four roles, each its own model if you like; a role is a model name,
or BACKEND:MODEL.

The baselines (unmediated, a generic line, the record's mediation) do not depend
on the mediator: make them once and share them with --baselines RUN.`,
		Example: `  ccmed mediate --model gemma2:9b --data CC-Mediation/data --labeller qwen2.5:14b
  ccmed mediate --model phi3.5 --simulator gemma2:9b --judge gemma2:9b --labeller qwen2.5:14b --data CC-Mediation/data --baselines runs/FIRST
  ccmed mediate --model gemma2:9b --data CC-Mediation/data --turn predicted:runs/TIMING
  ccmed mediate --data CC-Mediation/data --model qwen2.5:14b --utterances lines.json`,
	}
}

// Call is one call of the command, or of the one that scores lines made elsewhere.
type Call struct {
	Records                    task.Records
	Simulator, Labeller, Judge string
	Rubric                     []string
	// Turn is where the mediator speaks: "gold", or "predicted:RUN".
	Turn string
	// Utterances are lines made elsewhere: a run or a file.
	Utterances string
	Baselines  string // a run whose baselines are used
	CardItems  int
	// Labels are one or two files of labels that stand in the place of the recorded ones;
	// how far two agree is their reliability.
	Labels []string
	// Recorded labels the records' own continuations: nothing is simulated.
	Recorded bool
	Options  Options
}

// DefaultCardItems is how many dialogues the labeller card takes: of the public records they
// hold about 300 turns to compare, which a reliable labeller needs to be told from a weak one.
const DefaultCardItems = 190

// Flags registers the benchmark's flags.
func (Bench) Flags(f *pflag.FlagSet) task.Call {
	c := &Call{}
	c.Records.Register(f)
	f.StringVar(&c.Judge, "judge", "", "model that rates the line (default: --model)")
	f.StringSliceVar(&c.Rubric, "rubric", []string{"none", "stage"}, "what the mediator is told: none (condition ND), stage (condition D), or both")
	task.Choose(f, "rubric", "none", "stage")
	f.StringVar(&c.Turn, "turn", "gold", "where it speaks: gold, or predicted:RUN of a timing run")
	task.Suggest(f, "turn", "gold", predicted)
	f.StringVar(&c.Utterances, "utterances", "", `lines made elsewhere instead of the model's: a run, or a JSON file {"per_sid": [{"sid", "predicted_turn", "utterance"}]}`)
	f.StringVar(&c.Baselines, "baselines", "", "a mediation run whose baselines are used; it must have the same simulator, labeller, judge, data and seed")
	f.IntVar(&c.CardItems, "card-items", DefaultCardItems, "dialogues whose recorded continuations are labelled for the labeller card: the run's, and without --limit training records beyond them")
	f.StringSliceVar(&c.Labels, "labels", nil, "files of ccmed label in the place of the recorded labels: one, or two whose agreement is what a labeller can reach")
	task.Reads(f, "judge", "turn", "utterances", "baselines", "labels")
	c.RegisterInstruments(f)
	return c
}

// RegisterInstruments registers the flags of the simulator and the labeller, and of how all
// roles answer.
func (c *Call) RegisterInstruments(f *pflag.FlagSet) {
	f.StringVar(&c.Simulator, "simulator", "", "model that plays the speakers (default: --model)")
	f.StringVar(&c.Labeller, "labeller", "", "model that gives the stages, or probe:STORE for a labeller that probe train fitted (default: --model)")
	o := &c.Options
	f.Float64Var(&o.Temperature, "temperature", 0, "temperature of the mediator; 0 is greedy")
	f.IntVar(&o.MaxTokens, "max-tokens", 160, "cap of the mediator's line")
	f.Float64Var(&o.SimTemp, "sim-temperature", 0.8, "temperature of the simulator")
	f.IntVar(&o.SimMaxTokens, "sim-max-tokens", 120, "cap of one simulated turn")
	f.Float64Var(&o.MinMass, "min-mass", 0.05, "minimum probability mass on the digits; below it the label is unscored")
	f.StringVar(&o.Form, "history", Transcript, "what the labeller reads: transcript, or speaker (the speaker's own view)")
	f.BoolVar(&o.NoLeadIn, "no-lead-in", false, `ask for the stage digit without the lead-in "Stage: "`)
	f.BoolVar(&o.HideMediator, "hide-mediator", false, "label without the mediator's line")
	task.Choose(f, "history", Transcript, Speaker)
	task.Reads(f, "simulator", "labeller")
}

// Check finds values out of range before anything is read or asked.
func (c *Call) Check() error {
	switch o := c.Options; {
	case o.Temperature < 0 || o.SimTemp <= 0:
		return usage.Errorf("--temperature must not be negative and --sim-temperature must be above 0")
	case o.MaxTokens < 1 || o.SimMaxTokens < 1:
		return usage.Errorf("--max-tokens and --sim-max-tokens must be at least 1")
	case o.MinMass < 0 || o.MinMass >= 1:
		return usage.Errorf("--min-mass %g; it must lie in 0..1", o.MinMass)
	case o.Form != Transcript && o.Form != Speaker:
		return usage.Errorf("unknown --history %q; known are transcript and speaker", o.Form)
	case c.CardItems < 0:
		return usage.Errorf("--card-items %d; it must not be negative", c.CardItems)
	}
	for flag, name := range map[string]string{"judge": c.Judge, "simulator": c.Simulator} {
		if strings.HasPrefix(name, infer.ReadoutBackend+":") {
			return usage.Errorf("--%s %s: a classifier of hidden states gives stages only; it can be the --labeller", flag, name)
		}
	}
	if len(c.Labels) > 2 {
		return usage.Errorf("--labels names %d files; give one, or two of two people", len(c.Labels))
	}
	for _, r := range c.Rubric {
		if r != "none" && r != "stage" {
			return usage.Errorf("unknown --rubric %q; known are none and stage", r)
		}
	}
	return nil
}

// Roles names the models of all roles.
func (c *Call) Roles(task.Env) (map[string]string, error) {
	return map[string]string{RoleMediator: "", RoleSimulator: c.Simulator, RoleLabeller: c.Labeller, RoleJudge: c.Judge}, nil
}

// settings are the options of a run's identity.
type settings struct {
	task.RecordSettings
	Rubric       []string `json:"rubric"`
	Turn         string   `json:"turn"`
	Utterances   string   `json:"utterances"`
	Baselines    string   `json:"baselines"`
	CardItems    int      `json:"card_items"`
	Temperature  float64  `json:"temperature"`
	MaxTokens    int      `json:"max_tokens"`
	SimTemp      float64  `json:"sim_temperature"`
	SimMaxTokens int      `json:"sim_max_tokens"`
	MinMass      float64  `json:"min_mass"`
	History      string   `json:"history"`
	NoLeadIn     bool     `json:"no_lead_in"`
	HideMediator bool     `json:"hide_mediator"`
	Recorded     bool     `json:"recorded"`
	// LabelReliability is that of the recorded labels of conflict speakers' own turns in
	// the data, both splits; nil where no turn was labelled twice.
	LabelReliability *dialogue.Agreement `json:"label_reliability,omitempty"`
	// Labels are the files of --labels, and LabelsHash the SHA-256 of what they hold.
	Labels     []string `json:"labels,omitempty"`
	LabelsHash string   `json:"labels_sha256,omitempty"`
	// CardHash identifies the training records in the labeller card; "" without any.
	CardHash string `json:"card_data_sha256,omitempty"`
}

// instrumentSettings must agree between runs that are compared, and between a run and the
// one whose baselines it uses.
var instrumentSettings = []string{"sim_temperature", "sim_max_tokens", "min_mass", "history", "no_lead_in", "hide_mediator", "recorded"}

func (c *Call) settings(l labelSource, card []dialogue.Dialogue) settings {
	o, turn := c.Options, c.Turn
	if p, ok := strings.CutPrefix(turn, predicted); ok {
		turn = predicted + absolute(p)
	}
	hash := ""
	if len(card) > 0 {
		hash = dialogue.Hash(card)
	}
	return settings{c.Records.Settings(), c.Rubric, turn, absolute(c.Utterances), absolute(c.Baselines), c.CardItems, o.Temperature, o.MaxTokens,
		o.SimTemp, o.SimMaxTokens, o.MinMass, o.Form, o.NoLeadIn, o.HideMediator, c.Recorded, l.reliability, l.files, l.hash, hash}
}

// predicted begins the value of --turn that names a run.
const predicted = "predicted:"

func absolute(path string) string {
	if path == "" {
		return ""
	}
	if p, err := filepath.Abs(path); err == nil {
		return p
	}
	return path
}

// Plan says what the call asks.
func (c *Call) Plan(ctx context.Context, env task.Env) (task.Plan, error) {
	if err := c.Check(); err != nil {
		return task.Plan{}, err
	}
	c.Options.Prompts, c.Options.Seed = env.Prompts, env.Seed
	ds, all, err := env.Dialogues(ctx, c.Records)
	if err != nil {
		return task.Plan{}, err
	}
	labels, err := c.labels(ctx, env, all)
	if err != nil {
		return task.Plan{}, err
	}
	labelled := ds
	if labels.hash != "" {
		if labelled, err = dialogue.Relabel(ds, labels.first); err != nil {
			return task.Plan{}, fmt.Errorf("--labels %s: %w", c.Labels[0], err)
		}
	}
	items, err := c.items(env, labelled, all)
	if err != nil {
		return task.Plan{}, err
	}
	card, err := c.trainingCard(ctx, env, ds)
	if err != nil {
		return task.Plan{}, err
	}
	for _, d := range card {
		items = append(items, CardItem(d))
	}
	t, err := Task(items, c.Options)
	if err != nil {
		return task.Plan{}, err
	}
	p := task.Plan{Task: t, Size: len(ds), Items: task.Keys(ds), Others: task.Keys(card), DataHash: dialogue.Hash(ds), Templates: c.Options.Prompts.Hashes(TemplateNames()...),
		Settings: c.settings(labels, card), Longest: map[string][]infer.Prompt{},
		Answer: map[string]int{RoleMediator: c.Options.MaxTokens, RoleSimulator: c.Options.SimMaxTokens, RoleLabeller: 1, RoleJudge: 1}}
	for role := range Roles(items) {
		p.Roles = append(p.Roles, role)
	}
	for _, it := range items {
		l, err := Longest(it, c.Options)
		if err != nil {
			return p, err
		}
		for role, ps := range l {
			p.Longest[role] = append(p.Longest[role], ps...)
		}
	}
	p.Preview = func(context.Context) (task.Preview, error) { return c.preview(items, p.Longest) }
	if c.Baselines != "" {
		base, err := env.Open(c.Baselines)
		if err != nil {
			return p, err
		}
		p.Check = func(id run.Identity) error { return sameBaselines(base.Manifest(), id) }
	}
	return p, nil
}

// Lines are what the mediator of a run said without a rubric.
func (Bench) Lines(r *task.Run) (map[string]task.Line, error) {
	out := map[string]task.Line{}
	for s, err := range r.Samples() {
		if err != nil {
			return nil, err
		}
		if s.Step != StepUtterance || s.Condition != ND && s.Condition != Foreign || s.Unscored != "" && s.Unscored != NotSpoken {
			continue
		}
		u, err := task.Data[Utterance](s)
		if err != nil {
			return nil, err
		}
		out[s.Item] = task.Line{Turn: &u.Turn, Text: u.Text, Written: true}
	}
	return out, nil
}
