package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/infer"
)

// Input is what a result is computed from.
type Input struct {
	*Run
	// Seed is that of resampling.
	Seed uint64
	// Rule names another rule by which raw answers become labels; "" is the run's own.
	Rule string
	// At is where the run's records are now; the zero value is where the run read them.
	At Records
	// Stored are the metrics of an earlier scoring that are still true: they are taken
	// instead of being computed. nil where there are none.
	Stored json.RawMessage
}

// Result is what a run comes to: computed once, and used by whatever shows, compares or
// exports it. What only some consumers need is made when it is asked for; the samples are
// read at most once all the same.
type Result interface {
	// Metrics is the content of metrics.json under "metrics", of the type that About names.
	Metrics() any
	// Sections are the tables and figures.
	Sections(context.Context) ([]report.Section, error)
	// Cautions are what a reader must know before a number is cited.
	Cautions(context.Context) ([]string, error)
	// Measures are what the run says of each item, for comparison, and notes on what is
	// left out.
	Measures(context.Context) ([]stats.Measure, []string, error)
	// Table holds a row for every unit, for exports.
	Table(context.Context) (Table, error)
	// Browser holds every item, for the report.
	Browser(context.Context) (report.Browser, []string, error)
}

// ErrNoMeasures is wrapped by the error of Measures of results that cannot be compared.
var ErrNoMeasures = errors.New("runs are not compared")

// ErrNoRows is wrapped by the error of Table of results that have no rows.
var ErrNoRows = errors.New("runs have no rows to export")

// Line is what a run predicted or said of a dialogue.
type Line struct {
	Turn *int // 0: the mediator never speaks; nil where it is not known
	Text string
	// Written says that the run writes lines and that this is one: an empty text then says
	// that nothing was said.
	Written bool
}

// Speaker is implemented by benchmarks whose runs predict turns or hold lines that other
// runs can take up, by item.
type Speaker interface {
	Lines(*Run) (map[string]Line, error)
}

// Neighbour is a run that is reported beside others.
type Neighbour struct {
	Name   string
	Run    *Run
	Result Result
}

// Beside is implemented by results that say more where other runs are reported beside
// them: sections on pairs of runs, and cautions.
type Beside interface {
	Beside(self Neighbour, all []Neighbour, seed int64) ([]report.Section, []string, error)
}

// Headline is a result in a minute.
type Headline struct {
	// Asked says what was asked, Sentence in plain words what came out, how sure it is, and
	// what it may not be cited for. The sentence's subject is the model, and stands before it.
	Asked, Sentence string
	Rows            []HeadlineRow
}

// HeadlineRow is a measure of a headline.
type HeadlineRow struct {
	Measure string
	Value   string // with its interval
	// Baseline is the best one, with its value; "" without any.
	Baseline string
	// Warned says that a caution of the result is about this number.
	Warned bool
}

// Headlined is implemented by results that can be said in a minute.
type Headlined interface {
	Headline(context.Context) (Headline, error)
}

// Lacking is implemented by results that can lack metrics for want of the run's records:
// the fields and why each could not be computed.
type Lacking interface{ Lacks() map[string]string }

// Table is a run's samples as rows.
type Table struct {
	Rows []Row
	// Cautions are what a reader of the rows must know.
	Cautions []string
	// Constant says that an answer is the same everywhere: its mean has no standard error.
	Constant bool
	// MaxTokens and Temperature say how outputs were written; 0 tokens is a choice.
	MaxTokens   int
	Temperature float64
	// Rest are samples of units that have no row, for what they cost.
	Rest []run.Sample
}

// Row is one unit of a run: an item under a condition, in one repeat.
type Row struct {
	Key run.Key // without a step
	// Value points to a struct of the type that About.Row names: its fields are the
	// columns, named by json and parquet, described by doc; a nil pointer is null.
	Value any
	// Prompt points to the column that holds the text of Input.
	Prompt **string
	// Cluster is what the unit is drawn with for intervals.
	Cluster string
	// Input is the hash of the prompt that was answered, Target the right answer, Output
	// the answer, Stop why the output ended (infer.StopEnd, infer.StopLength), "" where it
	// could not be cut.
	Input, Target, Output, Stop string
	// Said is what the model wrote after Input; "" where it was asked for probabilities, or
	// its answer was given.
	Said string
	// Asked are the questions of the unit, in their order.
	Asked  []Asked
	Scores []Score
	// Steps are what each step cost, without their data.
	Steps []run.Sample
}

// Asked is one question that a unit asked of a model.
type Asked struct {
	Role, About string // of the model; what was asked about, such as "turn 4"
	Prompt      string // its hash; "" where none is recorded
	Said, Stop  string // what the model wrote, as in Row
	// P are the probabilities of the answers over the whole vocabulary; nil where it wrote.
	P        map[string]float64
	Mass     float64              // of all answers together
	Top      []infer.TokenLogprob // raw alternatives, where they were kept
	Unscored string               // why there is no usable answer
}

// PromptsOf are the hashes of the prompts of a step that asked n questions; of a step that
// recorded another number nothing is known.
func PromptsOf(steps []run.Sample, name string, n int) []string {
	for _, s := range steps {
		if s.Step == name && len(s.Prompts) == n {
			return s.Prompts
		}
	}
	return make([]string, n)
}

// Score is one metric of a unit.
type Score struct {
	Metric      string
	Value       float64
	Unscored    string // why there is no value
	Explanation string
	Binary      bool // 0 or 1: its mean is an accuracy
	// LowerIsBetter says that a smaller value is the better one.
	LowerIsBetter bool
}

// Decode reads stored metrics into the type that a benchmark keeps them in.
func Decode[T any](in Input) (m T, ok bool, err error) {
	if in.Stored == nil {
		return m, false, nil
	}
	if err := json.Unmarshal(in.Stored, &m); err != nil {
		return m, false, fmt.Errorf("%s: read the metrics: %w", in.Path(), err)
	}
	return m, true, nil
}

// Data decodes the data of a sample.
func Data[T any](s run.Sample) (v T, err error) {
	if len(s.Data) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(s.Data, &v); err != nil {
		return v, fmt.Errorf("sample %s: its data cannot be read: %w", s.Key, err)
	}
	return v, nil
}

// Settings decodes the settings of a run, which Plan.Settings gave.
func Settings[T any](id run.Identity) (v T, err error) {
	b, err := json.Marshal(id.Options)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		return v, fmt.Errorf("read the options of a %s run: %w", id.Task, err)
	}
	return v, nil
}

// Collect reads samples into a slice.
func Collect(samples iter.Seq2[run.Sample, error]) ([]run.Sample, error) {
	var out []run.Sample
	for s, err := range samples {
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// LastPrompt is the hash of the last prompt of the first of the named steps that has one:
// of questions that grow, it holds all that was read.
func LastPrompt(steps []run.Sample, names ...string) string {
	for _, name := range names {
		for _, s := range steps {
			if n := len(s.Prompts); s.Step == name && n > 0 {
				return s.Prompts[n-1]
			}
		}
	}
	return ""
}

// Cost adds up what steps cost.
func Cost(steps []run.Sample) (usage infer.Usage, seconds float64) {
	for _, s := range steps {
		usage = usage.Add(s.Usage)
		seconds += s.Seconds
	}
	return usage, seconds
}

// Known is nil for an empty text, which a table shows as missing.
func Known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Reasons writes each reason once, after the metrics that it keeps from being computed,
// as "metric, metric: reason; ...".
func Reasons(unscored map[string]string, names []string) string {
	var order []string
	metrics := map[string][]string{}
	for _, name := range names {
		why, ok := unscored[name]
		if !ok {
			continue
		}
		if metrics[why] == nil {
			order = append(order, why)
		}
		metrics[why] = append(metrics[why], name)
	}
	parts := make([]string, len(order))
	for i, why := range order {
		parts[i] = strings.Join(metrics[why], ", ") + ": " + why
	}
	return strings.Join(parts, "; ")
}
