package ask

import (
	"context"
	"fmt"
	"math"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Scored is what scoring finds.
type Scored struct {
	N        int            `json:"n"` // dialogues
	Lines    int            `json:"lines"`
	Unscored map[string]int `json:"unscored,omitempty"` // answers, by reason
	// Gold is P(gold stage) of the answers, Right the share in which it is the most probable,
	// and Letter the share of the most frequent letter: near 1, the answers say nothing.
	Gold   *stats.Estimate `json:"gold,omitempty"`
	Right  *stats.Estimate `json:"right,omitempty"`
	Letter float64         `json:"letter"`
	// Name is the probability that the line begins with the gold stage's name, Names with any
	// of the three.
	Name  *stats.Estimate `json:"name,omitempty"`
	Names *stats.Estimate `json:"names,omitempty"`
	// Nats a token of the lines under the plain model, the share of words that a line repeats,
	// and the mean divergence on neutral paragraphs in nats a token.
	Nats     *stats.Estimate `json:"nats,omitempty"`
	Repeated *stats.Estimate `json:"repeated,omitempty"`
	KL       *float64        `json:"kl,omitempty"`
	Cut      int             `json:"cut,omitempty"` // lines at their cap of tokens
}

// Case is one dialogue of a run.
type Case struct {
	Key       run.Key
	Utterance Utterance
	Silent    string // why there is no line; "" where there is one
	Answer    Answer
	Unscored  string // why there is no answer
	Cost      *Cost  // nil where it was not measured
	Steps     []run.Sample
}

// Read reads the dialogues of a run, and the mean divergence on neutral paragraphs; NaN
// where it was not measured.
func Read(units []task.Unit) (out []Case, kl float64, err error) {
	var sum, n float64
	for _, u := range units {
		c, silent, err := task.StepData[Cost](u, StepCost)
		if err != nil {
			return nil, 0, err
		}
		s := Case{Key: u.Key, Steps: u.Costs()}
		if silent == "" {
			s.Cost = &c
		}
		if s.Utterance, s.Silent, err = task.StepData[Utterance](u, StepUtterance); err != nil {
			return nil, 0, err
		}
		if s.Answer, s.Unscored, err = task.StepData[Answer](u, StepAsk); err != nil {
			return nil, 0, err
		}
		switch {
		case u.Key.Condition != ConditionNeutral:
			out = append(out, s)
		case s.Cost != nil:
			sum, n = sum+c.KL, n+1
		}
	}
	return out, sum / n, nil
}

// result is a run's result.
type result struct {
	Scored
	in    task.Input
	cases func() ([]Case, float64, error)
}

// Score scores a run, or takes its stored metrics.
func (Bench) Score(_ context.Context, in task.Input) (task.Result, error) {
	units := in.UnitsOnce()
	r := &result{in: in, cases: func() ([]Case, float64, error) {
		us, err := units()
		if err != nil {
			return nil, 0, err
		}
		return Read(us)
	}}
	stored, ok, err := task.Decode[Scored](in)
	if r.Scored = stored; err != nil || ok {
		return r, err
	}
	cases, kl, err := r.cases()
	if err != nil {
		return nil, err
	}
	if !math.IsNaN(kl) {
		r.KL = &kl
	}
	return r, r.score(cases)
}

func (r *result) score(cases []Case) (err error) {
	var gold, right, nats, repeated, name, names []float64
	var answered, spoken, named []string
	letters := map[int]int{}
	r.Unscored = map[string]int{}
	for _, s := range cases {
		r.N++
		if s.Silent == "" {
			r.Lines++
		}
		if s.Utterance.Stop == infer.StopLength {
			r.Cut++
		}
		if s.Unscored != "" {
			r.Unscored[s.Unscored]++
		} else {
			letter := s.Answer.letter()
			letters[letter]++
			hit := 0.0
			if s.Answer.Order[letter] == s.Utterance.Stage {
				hit = 1
			}
			gold, right, answered = append(gold, s.Answer.Gold), append(right, hit), append(answered, s.Utterance.Context)
		}
		if gold, all, ok := s.Utterance.NameMass(); ok {
			name, names, named = append(name, gold), append(names, all), append(named, s.Utterance.Context)
		}
		if s.Cost != nil {
			nats, repeated, spoken = append(nats, s.Cost.Nats/float64(max(1, s.Cost.Tokens))), append(repeated, s.Cost.Repeated), append(spoken, s.Utterance.Context)
		}
	}
	for _, n := range letters {
		r.Letter = max(r.Letter, float64(n)/float64(len(gold)))
	}
	b := stats.Bootstrap{Resamples: 10_000, Seed: r.in.Seed}
	for _, x := range []struct {
		values []float64
		groups []string
		share  bool
		to     **stats.Estimate
	}{{gold, answered, false, &r.Gold}, {right, answered, true, &r.Right}, {nats, spoken, false, &r.Nats}, {repeated, spoken, false, &r.Repeated}, {name, named, false, &r.Name}, {names, named, false, &r.Names}} {
		if len(x.values) == 0 {
			continue
		}
		e, err := b.Mean(x.values, x.groups)
		if x.share {
			e, err = b.Share(x.values, x.groups)
		}
		if err != nil {
			return err
		}
		*x.to = &e
	}
	return err
}

// NameMass are the probabilities that the line begins with the gold stage's name, and with any
// stage's; not ok where they were not measured.
func (u Utterance) NameMass() (gold, all float64, ok bool) {
	stage, err := dmis.ParseStage(u.Stage)
	if u.Names == nil || err != nil || int(stage) >= stages {
		return 0, 0, false
	}
	for _, p := range u.Names {
		all += p
	}
	return u.Names[stage], all, true
}

// letter is the number of the most probable letter.
func (a Answer) letter() int {
	at := 0
	for i, p := range a.P {
		if p > a.P[at] {
			at = i
		}
	}
	return at
}

// Metrics is the content of metrics.json.
func (r *result) Metrics() any { return r.Scored }

// Sections are the tables.
func (r *result) Sections(context.Context) ([]report.Section, error) {
	t := report.Table{Columns: report.Columns("measure", "value>", "baseline>")}
	row := func(name string, e *stats.Estimate, baseline string) {
		value := "unscored"
		if e != nil {
			value = report.Estimate(*e, 3)
		}
		t.Add(name, value, baseline)
	}
	chance := fmt.Sprintf("%.3f, chance", 1/float64(stages))
	row("P(gold stage) of the answer", r.Gold, chance)
	row("answers that name it", r.Right, chance)
	row("P(the line begins with the gold stage's name)", r.Name, "")
	row("P(the line begins with a stage's name)", r.Names, "")
	row("nats a token of the line, plain model", r.Nats, "")
	row("words that the line repeats", r.Repeated, "")
	kl := "unscored"
	if r.KL != nil {
		kl = fmt.Sprintf("%.4f", *r.KL)
	}
	t.Add("KL on neutral paragraphs, nats a token", kl, "0, the plain model")
	unscored := 0
	for _, n := range r.Unscored {
		unscored += n
	}
	return []report.Section{{Title: "Asked for the stage: " + r.in.Identity().ModelNames(), Tables: []report.Table{t},
		Notes: []string{fmt.Sprintf("%d dialogues, %d with a line, %d answers unscored; the most frequent letter is %s of answers", r.N, r.Lines, unscored, report.Pct(int(math.Round(r.Letter*float64(r.N-unscored))), r.N-unscored))}}}, nil
}

// mostLetter is the share of one letter from which the answers say nothing.
const mostLetter = 0.9

// Cautions are what a reader must know before a number is cited.
func (r *result) Cautions(context.Context) ([]string, error) {
	out := task.UnscoredCautions(r.Unscored, "answers")
	if r.Letter >= mostLetter {
		out = append(out, "degenerate: one letter is the answer in nearly all dialogues, whatever stands behind it")
	}
	if s, err := task.Settings[Settings](r.in.Identity()); err == nil && s.Condition != "ND" {
		out = append(out, "under D the prompt names the stage that is asked for")
	}
	return append(out, task.CutCaution(task.Cut{What: "lines", K: r.Cut, N: r.N})...), nil
}

// Measures are what the run says of each dialogue.
func (r *result) Measures(context.Context) ([]stats.Measure, []string, error) {
	cases, _, err := r.cases()
	gold, nats := stats.Measure{Name: "P(gold stage)"}, stats.Measure{Name: "nats a token"}
	for _, s := range cases {
		o := stats.Observation{Item: s.Key.Item, Group: s.Utterance.Context, Unscored: s.Unscored, Value: s.Answer.Gold}
		gold.Observations = append(gold.Observations, o)
		o.Value, o.Unscored = 0, "the line was not measured"
		if s.Cost != nil {
			o.Value, o.Unscored = s.Cost.Nats/float64(max(1, s.Cost.Tokens)), ""
		}
		nats.Observations = append(nats.Observations, o)
	}
	return []stats.Measure{gold, nats}, nil, err
}

// Row is one dialogue of a run.
type Row struct {
	Run      string   `json:"run" parquet:"run" doc:"name of the run folder"`
	Item     string   `json:"item" parquet:"item" doc:"key of the dialogue"`
	Stage    string   `json:"conflict_stage" parquet:"conflict_stage" doc:"DMIS stage of the conflict"`
	Context  string   `json:"context" parquet:"context" doc:"hash of the scenario context, the cluster for intervals"`
	Text     string   `json:"utterance" parquet:"utterance" doc:"the mediator's line"`
	Gold     *float64 `json:"p_gold" parquet:"p_gold" doc:"share of the letter of the conflict's stage; null where there is no usable answer"`
	Answer   *string  `json:"answer" parquet:"answer" doc:"the stage behind the most probable letter"`
	Nats     *float64 `json:"nats" parquet:"nats" doc:"negative log-probability of the line a token, under the plain model"`
	Repeated *float64 `json:"repeated" parquet:"repeated" doc:"share of the line's words that it has had within the sixteen before"`
}

// Table holds a row for every dialogue.
func (r *result) Table(context.Context) (task.Table, error) {
	cases, _, err := r.cases()
	t := task.Table{}
	for _, s := range cases {
		v := &Row{Run: r.in.Name(), Item: s.Key.Item, Stage: s.Utterance.Stage, Context: s.Utterance.Context, Text: s.Utterance.Text}
		score := task.Score{Metric: "p_gold", Unscored: s.Unscored, Value: s.Answer.Gold}
		answer := ""
		if s.Unscored == "" {
			answer = s.Answer.Order[s.Answer.letter()]
			v.Gold, v.Answer = &s.Answer.Gold, &answer
		}
		if s.Cost != nil {
			nats := s.Cost.Nats / float64(max(1, s.Cost.Tokens))
			v.Nats, v.Repeated = &nats, &s.Cost.Repeated
		}
		t.Rows = append(t.Rows, task.Row{Key: s.Key, Value: v, Cluster: s.Utterance.Context, Input: task.LastPrompt(s.Steps, StepAsk), Target: s.Utterance.Stage, Output: answer,
			Stop: infer.StopEnd, Scores: []task.Score{score}, Steps: s.Steps})
	}
	return t, err
}

// Browser holds every dialogue with its line and its answer.
func (r *result) Browser(ctx context.Context) (report.Browser, []string, error) {
	b := task.NewDialogues(ctx, r.in.Run, []string{"ND", "D"}, []string{"P(gold stage)"}, nil)
	cases, _, err := r.cases()
	if err != nil {
		return report.Browser{}, nil, err
	}
	for _, s := range cases {
		it := report.Item{Title: s.Key.Item}
		measures, outcome := map[string]float64{}, []string{task.Unscored}
		if d, ok := b.Records[s.Key.Item]; ok {
			it.Blocks = []report.Block{task.Scene(d), {Title: "Dialogue", Turns: task.Turns(d, d.ConflictTurn, d.ConflictTurn)}}
		}
		line := report.Block{Title: "Line", Text: s.Utterance.Text}
		if s.Utterance.Stop == infer.StopLength {
			line.Notes = []string{task.CutMark}
		}
		answer := report.Block{Title: "Answer", Text: "unscored: " + s.Unscored}
		if s.Unscored == "" {
			measures["P(gold stage)"], outcome = task.Rounded(s.Answer.Gold), []string{task.Wrong}
			name := s.Answer.Order[s.Answer.letter()]
			if name == s.Utterance.Stage {
				outcome = []string{task.Right}
			}
			answer.Text = fmt.Sprintf("%s (%c)", name, 'A'+s.Answer.letter())
		}
		it.Blocks = append(it.Blocks, line, answer)
		stage := s.Utterance.Stage
		if _, err := dmis.ParseStage(stage); err != nil {
			stage = ""
		}
		b.Add(it, stage, []string{s.Key.Condition}, outcome, measures)
	}
	return b.Browser, b.Notes, b.Complete()
}
