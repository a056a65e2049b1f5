package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/sft"
)

type mediateFlags struct {
	models                     modelFlags
	data                       dataFlags
	run                        runFlags
	simulator, labeller, judge string
	rubric                     []string
	turn, utterances           string
	baselines                  string
	cardItems                  int
	// recorded labels the records' own continuations: nothing is simulated.
	recorded bool
	// reference scores by the public code's labeller rule.
	reference bool
	opt       mediation.Options
}

func (a *app) mediateCmd() *cobra.Command {
	m := mediateFlags{}
	cmd := &cobra.Command{
		Use:   "mediate",
		Short: "How well does a model mediate: its line, the simulated continuation, the stages, a judge",
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.mediate(cmd.Context(), &m, a.tables) },
	}
	m.models.register(cmd)
	m.data.register(cmd)
	m.run.register(cmd)
	f := cmd.Flags()
	f.StringVar(&m.simulator, "simulator", "", "model that plays the speakers (default: --model)")
	f.StringVar(&m.labeller, "labeller", "", "model that gives the stages (default: --model)")
	f.StringVar(&m.judge, "judge", "", "model that rates the line (default: --model)")
	f.StringSliceVar(&m.rubric, "rubric", []string{"none", "stage"}, "what the mediator is told: none (condition ND), stage (condition D), or both")
	f.StringVar(&m.turn, "turn", "gold", "where it speaks: gold, or predicted:RUN of a timing run")
	f.StringVar(&m.utterances, "utterances", "", `lines made elsewhere instead of the model's: a run, or a JSON file {"per_sid":[{"sid","predicted_turn","utterance"}]}`)
	f.StringVar(&m.baselines, "baselines", "", "a mediation run whose baselines are used; it must have the same simulator, labeller, judge, data and seed")
	f.IntVar(&m.cardItems, "card-items", 40, "dialogues whose recorded continuations are labelled for the labeller card")
	m.registerOptions(cmd)
	return cmd
}

func (m *mediateFlags) registerOptions(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Float64Var(&m.opt.Temperature, "temperature", 0, "temperature of the mediator; 0 is greedy")
	f.IntVar(&m.opt.MaxTokens, "max-tokens", 160, "cap of the mediator's line")
	f.Float64Var(&m.opt.SimTemp, "sim-temperature", 0.8, "temperature of the simulator")
	f.IntVar(&m.opt.SimMaxTokens, "sim-max-tokens", 120, "cap of one simulated turn")
	f.Float64Var(&m.opt.MinMass, "min-mass", 0.05, "least probability on the digits for a scored label")
	f.StringVar(&m.opt.Form, "history", mediation.Transcript, "what the labeller reads: transcript, or speaker (the speaker's own view)")
	f.BoolVar(&m.opt.NoLeadIn, "no-lead-in", false, `ask for the stage digit without the lead-in "Stage: "`)
	f.BoolVar(&m.opt.HideMediator, "hide-mediator", false, "label without the mediator's line")
}

// checkOptions finds values out of range before anything is read or asked.
func (m *mediateFlags) checkOptions() error {
	if err := m.run.check(); err != nil {
		return err
	}
	switch {
	case m.opt.Temperature < 0 || m.opt.SimTemp <= 0:
		return usagef("--temperature must not be negative and --sim-temperature must be above 0")
	case m.opt.MaxTokens < 1 || m.opt.SimMaxTokens < 1:
		return usagef("--max-tokens and --sim-max-tokens must be at least 1")
	case m.opt.MinMass < 0 || m.opt.MinMass >= 1:
		return usagef("--min-mass %g; it must lie in 0..1", m.opt.MinMass)
	case m.opt.Form != mediation.Transcript && m.opt.Form != mediation.Speaker:
		return usagef("unknown --history %q; known are transcript and speaker", m.opt.Form)
	case m.cardItems < 0:
		return usagef("--card-items %d; it must not be negative", m.cardItems)
	}
	for _, r := range m.rubric {
		if r != "none" && r != "stage" {
			return usagef("unknown --rubric %q; known are none and stage", r)
		}
	}
	return nil
}

// linesOfRun reads the lines that a run's model said: a mediation run's without
// rubric, or those of a tuned model that chose its turns itself. A turn of 0 says
// that it never spoke, and of the latter an empty text that it said nothing.
func linesOfRun(path string) (map[string]line, error) {
	out := map[string]line{}
	dir, err := run.Open(path)
	if err != nil {
		return nil, err
	}
	chosen := dir.Manifest().Identity.Task == "timing"
	samples, err := dir.Samples()
	if err != nil {
		return nil, err
	}
	for _, s := range samples {
		if s.Step != mediation.StepUtterance {
			continue
		}
		var u mediation.Utterance // sft.Utterance has these fields too
		if err := json.Unmarshal(s.Data, &u); err != nil {
			return nil, fmt.Errorf("%s: utterance of item %s: %w", path, s.Item, err)
		}
		wanted := (s.Unscored == "" || s.Unscored == mediation.NotSpoken) && (s.Condition == mediation.ND || s.Condition == mediation.Foreign)
		if chosen {
			// Without a decision the turn is unknown, which is not the same as none.
			wanted = u.Turn > 0 || s.Unscored == sft.NotSpoken
		}
		if !wanted {
			continue
		}
		turn := u.Turn
		out[s.Item] = line{Turn: &turn, Utterance: u.Text}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no utterances; name a mediation run that has the condition ND, a run of `ccmed sft predict`, or a prediction file", path)
	}
	return out, nil
}

// predictedTurns reads the turns of a timing run, by item. An unscored item is
// not in the map: its turn is unknown, which is not the same as none.
func predictedTurns(path string) (map[string]int, error) {
	dir, err := run.Open(path)
	if err != nil {
		return nil, err
	}
	if t := dir.Manifest().Identity.Task; t != "timing" {
		return nil, fmt.Errorf("--turn predicted:%s: that is a %s run; name a timing run", path, t)
	}
	samples, err := dir.Samples()
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, s := range samples {
		if s.Step != timing.StepDecide || s.Unscored != "" {
			continue
		}
		var d timing.Decision
		if err := json.Unmarshal(s.Data, &d); err != nil {
			return nil, fmt.Errorf("%s: decision of item %s: %w", path, s.Item, err)
		}
		out[s.Item] = d.Predicted
	}
	return out, nil
}

// items builds the units of a mediation run over ds, which are some of all
// dialogues of the data.
func (m *mediateFlags) items(a *app, ds, all []dialogue.Dialogue) ([]mediation.Item, error) {
	var turns map[string]int
	var lines map[string]line
	var err error
	if path, ok := strings.CutPrefix(m.turn, "predicted:"); ok {
		if turns, err = predictedTurns(path); err != nil {
			return nil, err
		}
	} else if m.turn != "gold" {
		return nil, usagef("--turn %q; it is gold or predicted:RUN", m.turn)
	}
	if m.utterances != "" {
		if turns != nil {
			return nil, usagef("--utterances brings its own turns; leave --turn out")
		}
		if lines, err = a.lines(m.utterances, all, m.data.lenient); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf(`--utterances: %w; name a run, or a JSON file {"per_sid":[{"sid","predicted_turn","utterance"}]}`, err)
		}
		if err != nil {
			return nil, err
		}
	}
	var items []mediation.Item
	unknown, gold := 0, 0
	card := cardDialogues(ds, m.cardItems)
	for _, d := range ds {
		if lines != nil {
			l, ok := lines[d.Key()]
			if !ok {
				unknown++
				continue
			}
			turn := d.ConflictTurn
			if l.Turn != nil {
				turn = *l.Turn
			} else {
				gold++
			}
			items = append(items, mediation.Item{Dialogue: d, Condition: mediation.Foreign, Turn: turn, Given: strings.TrimSpace(l.Utterance)})
		} else {
			turn := d.ConflictTurn
			if turns != nil {
				t, ok := turns[d.Key()]
				if !ok {
					unknown++
					continue
				}
				turn = t
			}
			for _, r := range m.rubric {
				cond := map[string]string{"none": mediation.ND, "stage": mediation.D}[r]
				items = append(items, mediation.Item{Dialogue: d, Condition: cond, Turn: turn})
			}
		}
		if m.baselines == "" {
			items = append(items, mediation.BaselineItems(d)...)
			if card[d.Key()] {
				items = append(items, mediation.CardItem(d))
			}
		}
	}
	if gold > 0 {
		a.note("%d lines come without a predicted_turn: they are said at the conflict turn", gold)
	}
	if unknown > 0 {
		a.note("%d dialogues are left out: the given turns or lines do not have them", unknown)
	}
	if len(items) == 0 {
		return nil, errors.New("no dialogue is left to mediate")
	}
	return items, nil
}

func (a *app) mediate(ctx context.Context, m *mediateFlags, show showRun) error {
	if err := m.checkOptions(); err != nil {
		return err
	}
	set, err := prompt.Load(m.run.prompts)
	if err != nil {
		return err
	}
	m.opt.Prompts, m.opt.Seed = set, m.run.seed
	ds, all, err := m.data.loadOf(ctx, a)
	if err != nil {
		return err
	}
	items, err := m.items(a, ds, all)
	if err != nil {
		return err
	}
	return a.mediateItems(ctx, m, ds, items, show)
}

// mediateItems runs the mediation task over items, scores the run and shows it.
// Only the roles that the items need are opened.
func (a *app) mediateItems(ctx context.Context, m *mediateFlags, ds []dialogue.Dialogue, items []mediation.Item, show showRun) error {
	task, err := mediation.Task(items, m.opt)
	if err != nil {
		return err
	}
	named := map[string]string{mediation.RoleMediator: "", mediation.RoleSimulator: m.simulator, mediation.RoleLabeller: m.labeller, mediation.RoleJudge: m.judge}
	roles := map[string]string{}
	for role := range mediation.Roles(items) {
		roles[role] = named[role]
	}
	f, err := a.newFleet(&m.models, roles)
	if err != nil {
		return err
	}
	defer f.Close()
	longest := map[string][]infer.Prompt{}
	for _, it := range items {
		l, err := mediation.Longest(it, m.opt)
		if err != nil {
			return err
		}
		for role, ps := range l {
			longest[role] = append(longest[role], ps...)
		}
	}
	answers := map[string]int{mediation.RoleMediator: m.opt.MaxTokens, mediation.RoleSimulator: m.opt.SimMaxTokens, mediation.RoleLabeller: 1, mediation.RoleJudge: 1}
	for _, role := range f.order() {
		if err := f.fit(ctx, role, longest[role], answers[role]); err != nil {
			return err
		}
	}
	f.shareContext()
	if m.run.dryRun {
		calls, first := map[string][]infer.Prompt{}, map[string]infer.Prompt{}
		for _, it := range items {
			ps, err := mediation.Planned(it, m.opt)
			if err != nil {
				return err
			}
			for role := range ps {
				calls[role] = append(calls[role], ps[role]...)
			}
		}
		for role := range calls {
			first[role] = longest[role][0]
		}
		return a.dryRun(ctx, f, len(ds), calls, first)
	}
	id, err := a.identity(ctx, f, "mediation", ds, &m.run, m.opt.Prompts.Hashes(mediation.TemplateNames()...), m.options())
	if err != nil {
		return err
	}
	if m.baselines != "" {
		base, err := run.Open(m.baselines)
		if err != nil {
			return err
		}
		if err := sameBaselines(base, id); err != nil {
			return err
		}
	}
	dir, sum, err := execute(ctx, a, f, &m.run, id, task)
	if err != nil {
		return err
	}
	return a.finish(ctx, dir, sum, &m.run, scoreFlags{data: m.data, seed: m.run.seed, reference: m.reference}, show)
}

// cardDialogues chooses the dialogues of the labeller card, spread over stages.
func cardDialogues(ds []dialogue.Dialogue, n int) map[string]bool {
	out := map[string]bool{}
	if n > 0 { // Limit takes 0 for all
		for _, d := range dialogue.Limit(ds, n) {
			out[d.Key()] = true
		}
	}
	return out
}

// options are the effective options, every one explicit.
func (m *mediateFlags) options() map[string]any {
	abs := func(p string) string {
		if p == "" {
			return ""
		}
		if q, err := filepath.Abs(p); err == nil {
			return q
		}
		return p
	}
	turn := m.turn
	if p, ok := strings.CutPrefix(turn, "predicted:"); ok {
		turn = "predicted:" + abs(p)
	}
	return map[string]any{"data": m.data.path(), "split": m.data.split, "limit": m.data.limit, "rubric": m.rubric, "turn": turn, "utterances": abs(m.utterances),
		"baselines": abs(m.baselines), "card_items": m.cardItems, "temperature": m.opt.Temperature, "max_tokens": m.opt.MaxTokens,
		"sim_temperature": m.opt.SimTemp, "sim_max_tokens": m.opt.SimMaxTokens, "min_mass": m.opt.MinMass, "history": m.opt.Form,
		"no_lead_in": m.opt.NoLeadIn, "hide_mediator": m.opt.HideMediator, "recorded": m.recorded}
}

// baselineOptions must agree between a run and the run whose baselines it uses.
var baselineOptions = []string{"sim_temperature", "sim_max_tokens", "min_mass", "history", "no_lead_in", "hide_mediator", "recorded"}

// sameBaselines reports why the baselines of a run cannot stand beside a run
// with identity id.
func sameBaselines(base *run.Dir, id run.Identity) error {
	b := base.Manifest().Identity
	var differ []string
	add := func(what string, same bool) {
		if !same {
			differ = append(differ, what)
		}
	}
	add("task", b.Task == id.Task)
	add("seed", b.Seed == id.Seed)
	for _, role := range []string{mediation.RoleSimulator, mediation.RoleLabeller, mediation.RoleJudge} {
		x, y := b.Models[role], id.Models[role]
		add(role, x.Name == y.Name && x.Digest == y.Digest && x.TemplateHash == y.TemplateHash)
	}
	for _, t := range []string{"simulate", "label", "judge"} {
		add("prompt template "+t, b.Prompts[t] == id.Prompts[t])
	}
	for _, o := range baselineOptions {
		add(o, fmt.Sprint(b.Options[o]) == fmt.Sprint(id.Options[o]))
	}
	have := map[string]bool{}
	for _, k := range b.Items {
		have[k] = true
	}
	missing := 0
	for _, k := range id.Items {
		if !have[k] {
			missing++
		}
	}
	if missing > 0 {
		differ = append(differ, fmt.Sprintf("items (%d of %d are not in it)", missing, len(id.Items)))
	}
	if len(differ) > 0 {
		return fmt.Errorf("the baselines of %s cannot be used here; they differ in: %s", base.Path(), strings.Join(differ, ", "))
	}
	if base.Manifest().Status != run.StatusDone {
		return fmt.Errorf("the run %s, whose baselines are asked for, is not finished; go on with: ccmed runs resume %s", base.Path(), base.Path())
	}
	return nil
}

// samplesOf returns a mediation run's samples, with the baselines and the card of
// the run that it borrows them from.
func samplesOf(dir *run.Dir) ([]run.Sample, error) {
	samples, err := dir.Samples()
	if err != nil {
		return nil, err
	}
	id := dir.Manifest().Identity
	path, _ := id.Options["baselines"].(string)
	if path == "" {
		return samples, nil
	}
	base, err := run.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the run with the baselines: %w", err)
	}
	if err := sameBaselines(base, id); err != nil {
		return nil, err
	}
	more, err := base.Samples()
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, k := range id.Items {
		wanted[k] = true
	}
	for _, x := range more {
		if x.Condition == mediation.Card || wanted[x.Item] && slices.Contains(mediation.Baselines, x.Condition) {
			samples = append(samples, x)
		}
	}
	return samples, nil
}

// scoreMediation computes the metrics of a mediation run and its sections.
func (a *app) scoreMediation(_ context.Context, dir *run.Dir, s scoreFlags) (any, []report.Section, error) {
	samples, err := samplesOf(dir)
	if err != nil {
		return nil, nil, err
	}
	id := dir.Manifest().Identity
	m, err := mediation.Score(samples, mediation.ScoreOptions{Seed: uint64(s.seed), ReferenceRule: s.reference})
	if err != nil {
		return nil, nil, err
	}
	med, lab := id.Models[mediation.RoleMediator], id.Models[mediation.RoleLabeller]
	m.Notes = append(m.Notes, fmt.Sprintf("labelled by %s; levels are not comparable with published ones", lab.Name))
	if med.Digest != "" && med.Digest == lab.Digest {
		m.Notes = append(m.Notes, "mediator and labeller are the same model: it rates its own kind")
	}
	sections := mediation.Sections(m)
	beside, ok := mediation.PublishedSection(m, published.Options{Models: []string{med.Name}, Labeller: lab.Name, Judge: id.Models[mediation.RoleJudge].Name})
	if ok {
		sections = append(sections, beside)
	}
	return m, sections, nil
}
