package ccbench

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// fewPersonas are so few that intervals over them are too narrow.
const fewPersonas = 20

// most of the items asked twice to which a judge may say yes both times.
const mostBothYes = 0.2

// result is a run's result.
type result struct {
	in     task.Input
	Metric Metrics
	units  func() ([]judgedUnit, error)
}

func (r *result) Metrics() any { return r.Metric }

// main is the setting that the headline is about; nil without any.
func (r *result) main() *Score {
	for _, name := range []string{History, CultureCoT, Norms, None} {
		if i := slices.IndexFunc(r.Metric.Settings, func(s Score) bool { return s.Name == name }); i >= 0 {
			return &r.Metric.Settings[i]
		}
	}
	return nil
}

// baseline is the best CCS of answers that know nothing of the person.
func (r *result) baseline() (name string, ccs float64) {
	for _, s := range append(slices.Clone(r.Metric.Baselines), r.Metric.Settings...) {
		if s.CCS != nil && s.blind() && (name == "" || s.CCS.Value > ccs) {
			name, ccs = baselineName(s.Name), s.CCS.Value
		}
	}
	return name, ccs
}

func baselineName(name string) string {
	switch name {
	case Empty:
		return "no answer"
	case Generic:
		return "a generic answer"
	case None:
		return "none, without the talks"
	}
	return name
}

// swapped is the share of items that hold of answers to people of the opposite stance.
func (r Rates) swapped() float64 { return (float64(r.OwnYes) - r.Gain) / float64(r.Swaps) }

// Headline is the result in a minute.
func (r *result) Headline(context.Context) (task.Headline, error) { return r.headline(), nil }

var shown = map[string]string{
	History: "Shown the past talks of invented people", CultureCoT: "Shown the past talks of invented people and asked to name the cues in them first",
	Norms: "Told which norms invented people follow and avoid", None: "Shown nothing of the people who ask",
}

func (r *result) headline() task.Headline {
	s := r.main()
	if s == nil {
		return task.Headline{Asked: "Asked questions on health", Sentence: "gave no answer: nothing is known."}
	}
	h := task.Headline{Asked: shown[s.Name] + ", and asked their questions on health"}
	if s.Adaptation == nil {
		h.Sentence = fmt.Sprintf("gave %d answers that could be judged, none of them beside an answer to somebody of the opposite stance: whether it heeds the person is not known.", s.Answers)
		return h
	}
	e := *s.Adaptation
	lo, hi := e.Bounds()
	h.Sentence = fmt.Sprintf("fulfils %s of the items that fit a person's norms, and %.1f %% of the same items in answers to people of the opposite stance",
		report.Pct(s.OwnYes, s.Swaps), 100*s.swapped())
	warned := true
	switch {
	case s.Name == None:
		h.Sentence += ": it was shown nothing that could make a difference."
	case math.IsNaN(lo):
		h.Sentence += fmt.Sprintf(". There is no interval (%s), so that this may be chance.", e.NoInterval)
	case lo > 0:
		h.Sentence += ": its answers change with the person, in the person's direction."
		warned = false
	case hi < 0:
		h.Sentence += ": its answers change with the person, away from what fits."
	default:
		h.Sentence += ". The interval of the difference holds 0: it is not shown to heed the person."
	}
	h.Sentence += " The people are invented; this is no measure of real people, and no answer is medical advice."
	h.Rows = append(h.Rows, task.HeadlineRow{Measure: "adaptation, own − swapped", Value: report.Estimate(e, 2), Baseline: "0, an answer that ignores the person", Warned: warned})
	if s.CCS != nil {
		row := task.HeadlineRow{Measure: "CCS", Value: report.Estimate(*s.CCS, 2)}
		if name, best := r.baseline(); name != "" {
			row.Baseline, row.Warned = fmt.Sprintf("%.2f, %s", best, name), best >= s.CCS.Value
		}
		h.Rows = append(h.Rows, row)
	}
	return h
}

// Cautions are what a reader must know.
func (r *result) Cautions(context.Context) ([]string, error) {
	m := r.Metric
	var out []string
	id := r.in.Identity()
	a, j := id.Models[RoleAdviser], id.Models[RoleJudge]
	if a.Name != "" && a.Name == j.Name && a.Digest == j.Digest {
		out = append(out, "the judge is the model that it judges")
	}
	set, err := task.Settings[settings](id)
	if err != nil {
		return nil, err
	}
	for role, model := range map[string]string{RoleAdviser: a.Name, RoleJudge: j.Name} {
		if set.Writer != "" && set.Writer == model {
			out = append(out, "the "+role+" is the model that wrote the past talks: it may know its own ways")
		}
	}
	slices.Sort(out)
	if m.Personas > 0 && m.Personas < fewPersonas {
		out = append(out, fmt.Sprintf("%d personas: intervals over so few are too narrow", m.Personas))
	}
	if m.Dropped > 0 {
		out = append(out, fmt.Sprintf("%d of the oldest sessions were dropped from the talks of %d personas (--history-budget %d words)", m.Dropped, m.ShortHistories, set.Budget))
	}
	out = append(out, m.judgeCautions()...)
	cuts := task.Cut{What: "the named cues"}
	for _, s := range m.Settings {
		cuts.K += s.CuesCut
		if s.Name == CultureCoT {
			cuts.N = s.Answers
			for _, n := range s.Unscored {
				cuts.N += n
			}
		}
		out = append(out, task.UnscoredCautions(s.Unscored, "answers under "+s.Name)...)
		if s.ItemsUnscored > 0 {
			out = append(out, fmt.Sprintf("unscored items under %s: %d, of which the judge could not tell", s.Name, s.ItemsUnscored))
		}
		if s.Name == Norms && s.Adaptation != nil && !(s.Adaptation.Lo > 0) {
			out = append(out, "even told the norms, the model is not shown to heed them: model, items or judge cannot tell stances apart, and so neither can the other settings")
		}
	}
	out = append(out, task.CutCaution(cuts)...)
	if s := r.main(); s != nil && s.CCS != nil && s.Name != None {
		if name, best := r.baseline(); name != "" && best >= s.CCS.Value {
			out = append(out, fmt.Sprintf("CCS is no higher than that of %s", name))
		}
	}
	return out, nil
}

// judgeCautions say how far the judge can be relied on.
func (m Metrics) judgeCautions() (out []string) {
	switch c := m.Card; {
	case c == nil || c.Agreement == nil:
		out = append(out, "the judge's agreement with people is unknown (--labels)")
	case c.Kappa == nil:
		out = append(out, fmt.Sprintf("the judge agrees with people in %s of labels; beyond chance is not known, for one of both always says the same", report.Pct(c.Agree, c.N-c.Unscored)))
	case !(c.Kappa.Lo > 0) || c.Kappa.NoInterval != "":
		out = append(out, fmt.Sprintf("the judge is not shown to agree with people beyond chance: κ %s", report.Estimate(*c.Kappa, 2)))
	}
	if a := m.Acquiescence; float64(a.BothYes) > mostBothYes*float64(a.N) {
		out = append(out, fmt.Sprintf("the judge says yes to an item and to its opposite in %s", report.Pct(a.BothYes, a.N)))
	}
	return out
}

// Measures are, of every query of every persona, the share of fulfilled items and own −
// swapped.
func (r *result) Measures(context.Context) ([]stats.Measure, []string, error) {
	all, err := r.units()
	if err != nil {
		return nil, nil, err
	}
	var out []stats.Measure
	for _, name := range settingNames {
		share, adaptation := stats.Measure{Name: "fulfilled items", Condition: name}, stats.Measure{Name: "adaptation", Condition: name}
		by := map[[2]string]Rates{}
		var order [][2]string
		for _, c := range cellsOf(all, name) {
			k := [2]string{c.persona, c.query}
			if _, ok := by[k]; !ok {
				order = append(order, k)
			}
			if !c.lost {
				by[k] = by[k].plus(c.rates(), 1)
			} else {
				by[k] = by[k].plus(Rates{}, 1)
			}
		}
		for _, k := range order {
			x := by[k]
			o := stats.Observation{Item: k[0] + " " + k[1], Group: k[0]}
			if n := x.Follow + x.Avoid; n > 0 {
				o.Value = float64(x.FollowYes+x.AvoidYes) / float64(n)
			} else {
				o.Unscored = "all its signals were dropped"
			}
			share.Observations = append(share.Observations, o)
			if o.Value = 0; x.Swaps > 0 {
				o.Value = x.adaptation()
			} else if o.Unscored == "" {
				o.Unscored = "there is no answer to somebody of the opposite stance"
			}
			adaptation.Observations = append(adaptation.Observations, o)
		}
		for _, u := range all {
			if u.key.Condition == name && u.Persona != "" && u.unscored != "" {
				o := stats.Observation{Item: u.Persona + " " + u.Query, Group: u.Persona, Unscored: u.unscored}
				share.Observations, adaptation.Observations = append(share.Observations, o), append(adaptation.Observations, o)
			}
		}
		if len(share.Observations) > 0 {
			out = append(out, share, adaptation)
		}
	}
	return out, nil, nil
}

// Row is a row of the exported tables.
type Row struct {
	Run           string  `json:"run" parquet:"run" doc:"name of the run folder"`
	Setting       string  `json:"setting" parquet:"setting" doc:"what the model was given: none, history, culture-cot or norms; empty and generic are baselines, card is a label of a person"`
	Culture       *string `json:"culture" parquet:"culture" doc:"culture whose norms are asked about"`
	Persona       *string `json:"persona" parquet:"persona" doc:"invented person who asks; null where the answer knows of none"`
	Query         *string `json:"query" parquet:"query" doc:"id of the query"`
	Topic         *string `json:"topic" parquet:"topic" doc:"topic of the query"`
	Items         *int    `json:"items" parquet:"items" doc:"scored items of the persona, or of all personas of the culture; null where the answer could not be judged"`
	Fulfilled     *int    `json:"fulfilled" parquet:"fulfilled" doc:"items that the judge calls true of the answer"`
	Opposite      *int    `json:"opposite" parquet:"opposite" doc:"scored items of the opposite stances, by which the answer is a swapped one"`
	OppositeTrue  *int    `json:"opposite_fulfilled" parquet:"opposite_fulfilled" doc:"of these, those that the judge calls true of the answer"`
	UnscoredItems *int    `json:"unscored_items" parquet:"unscored_items" doc:"items of which the judge could not tell"`
	Dropped       int     `json:"dropped_sessions" parquet:"dropped_sessions" doc:"oldest sessions that the prompt does not hold"`
	Answer        *string `json:"answer" parquet:"answer" doc:"the answer"`
}

// Table gives the rows of exports.
func (r *result) Table(context.Context) (task.Table, error) {
	t := task.Table{Temperature: temperature}
	if s, err := task.Settings[settings](r.in.Identity()); err == nil {
		t.MaxTokens = s.MaxTokens
	}
	all, err := r.units()
	for _, u := range all {
		row := &Row{Run: r.in.Name(), Setting: u.key.Condition, Culture: task.Known(u.answer.Culture), Persona: task.Known(u.answer.Persona), Query: task.Known(u.answer.Query),
			Topic: task.Known(u.answer.Topic), Dropped: u.answer.Dropped, Answer: task.Known(u.answer.Text)}
		score := task.Score{Metric: "fulfilled items", Unscored: u.unscored}
		if u.unscored == "" {
			var n [5]int // own, fulfilled, opposite, fulfilled, unscored
			for _, it := range u.Items {
				switch {
				case it.Unscored != "":
					n[4]++
				case len(it.Of) > 0 || it.Label != "":
					n[0], n[1] = n[0]+1, n[1]+count(it.yes())
				default:
					n[2], n[3] = n[2]+1, n[3]+count(it.yes())
				}
			}
			row.Items, row.Fulfilled, row.Opposite, row.OppositeTrue, row.UnscoredItems = &n[0], &n[1], &n[2], &n[3], &n[4]
			if score.Value = float64(n[1]) / float64(max(1, n[0])); n[0] == 0 {
				score.Unscored = "no item of the answer is scored"
			}
		}
		stop := infer.StopEnd
		if u.unscored == answerCut {
			stop = infer.StopLength
		}
		cluster := u.answer.Persona
		if cluster == "" {
			cluster = u.key.Item
		}
		t.Rows = append(t.Rows, task.Row{Key: u.key, Value: row, Cluster: cluster, Input: task.LastPrompt(u.unit.Steps, StepAnswer), Output: u.answer.Text, Stop: stop,
			Scores: []task.Score{score}, Steps: u.unit.Costs()})
	}
	return t, err
}
