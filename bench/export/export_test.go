package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
)

// sample encodes data into a sample of a step.
func sample(t *testing.T, step, item, condition string, repeat int, unscored string, data any) run.Sample {
	t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return run.Sample{Key: run.Key{Step: step, Item: item, Condition: condition, Repeat: repeat}, Schema: run.SampleSchema, Unscored: unscored, Data: b,
		Prompts: []string{"d6c7ce48a02502e628729f054f1d5a58"}, Usage: infer.Usage{Prompt: 100, Evaluated: 70, Cached: 30, Generated: 2}, Seconds: 0.5}
}

// folder makes a finished run folder of these samples, all of which were asked
// with one prompt.
func folder(t *testing.T, id run.Identity, samples []run.Sample) *run.Dir {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a-run")
	d, err := run.Create(path, id, []string{id.Task})
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for _, s := range samples {
		if err := json.NewEncoder(&lines).Encode(s); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(path, run.SamplesFile), lines.String())
	write(t, filepath.Join(path, run.PromptsFile), `{"hash":"d6c7ce48a02502e628729f054f1d5a58","rendered":"<s>Step in? <&> 이제"}`+"\n"+`{"hash":"torn`)
	if err := d.Close(run.StatusDone); err != nil {
		t.Fatal(err)
	}
	d, err = run.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func identity(task string) run.Identity {
	m := infer.Model{Backend: "ollama", Name: "org/gemma2:9b", Digest: "sha256:aa"}
	return run.Identity{Task: task, Version: "1.2.3", Seed: 7, DataHash: "dd", Options: map[string]any{"data": "data/sample", "label_reliability": map[string]any{"turns": 285, "agree": 179, "kappa": map[string]any{"value": 0.48}}, "temperature": 0.5, "max_tokens": 60},
		Models: map[string]infer.Model{"mediator": m, "simulator": m, "labeller": m, "judge": m}, NumCtx: map[string]int{"mediator": 1024}}
}

// decisions are a right turn, a wrong one, no turn and an unscored dialogue. One
// text of a model looks like what stands in for NaN.
func decisions(t *testing.T) []run.Sample {
	d := func(predicted int) timing.Decision {
		return timing.Decision{Mode: timing.Stream, Gold: 4, Stage: "Denial", Context: "c1", FirstTurn: 3, LastTurn: 6, Predicted: predicted,
			Curve: []timing.Point{{Turn: 3, P: 0.1, Share: 0.2, Mass: 0.5}, {Turn: 4, Unscored: "no digit"}, {Turn: 5, P: 0.25, Share: 0.5, Mass: 0.5}}}
	}
	right, wrong, none, lost := d(4), d(5), d(0), d(0)
	wrong.Context, wrong.Reasoning = "c2", `He said: {"value":"`+"\x00"+`"}, which <b>hurts</b>`
	return []run.Sample{
		sample(t, timing.StepDecide, "2", "stream", 0, "", right), sample(t, timing.StepDecide, "10", "stream", 0, "", wrong),
		sample(t, timing.StepDecide, "3", "stream", 0, "", none), sample(t, timing.StepDecide, "4", "stream", 0, "mass 0.01 is below 0.05", lost),
		sample(t, timing.StepReason, "10", "stream", 0, "", map[string]string{"text": "hm"}),
	}
}

func read(t *testing.T, id run.Identity, samples []run.Sample) *Run {
	t.Helper()
	x, err := readFolder(t, folder(t, id, samples))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// readFolder reads a run as the program does.
func readFolder(t *testing.T, d *run.Dir) (*Run, error) {
	a := &task.Archive{Benches: task.Registry{timing.Bench{}, mediation.Bench{}}, Note: func(string, ...any) {}}
	r, err := a.Open(d.Path())
	if err != nil {
		return nil, err
	}
	res, err := r.Result(t.Context(), task.ScoreOptions{})
	if err != nil {
		return nil, err
	}
	table, err := res.Table(t.Context())
	if err != nil {
		return nil, err
	}
	return Read(r, table)
}

// rows are the rows of an export.
func rows[T any](x *Run) []T {
	var out []T
	for _, r := range x.table.Rows {
		out = append(out, *r.Value.(*T))
	}
	return out
}

func text(t *testing.T, x *Run, f Format) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := x.Write(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTimingTables(t *testing.T) {
	x := read(t, identity("timing"), decisions(t))
	records, err := csv.NewReader(bytes.NewReader(text(t, x, CSV))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) (out []string) {
		i := slices.Index(records[0], name)
		if i < 0 {
			t.Fatalf("no column %s in %v", name, records[0])
		}
		for _, r := range records[1:] {
			out = append(out, r[i])
		}
		return out
	}
	for _, c := range []struct {
		name string
		want []string
	}{
		{"item", []string{"2", "3", "4", "10"}},
		{"model", []string{"org/gemma2:9b", "org/gemma2:9b", "org/gemma2:9b", "org/gemma2:9b"}},
		{"scored", []string{"true", "true", "false", "true"}},
		{"unscored", []string{"", "", "mass 0.01 is below 0.05", ""}},
		{"predicted_turn", []string{"4", "", "", "5"}},
		{"correct", []string{"true", "false", "", "false"}},
		{"signed_error", []string{"0", "", "", "1"}},
		{"threshold", []string{"", "", "", ""}},
		{"curve_turn", []string{"[3,5]", "[3,5]", "[3,5]", "[3,5]"}},
		{"curve_share", []string{"[0.2,0.5]", "[0.2,0.5]", "[0.2,0.5]", "[0.2,0.5]"}},
		{"prompt_tokens", []string{"100", "100", "100", "200"}}, // the last one reasoned too
		{"seconds", []string{"0.5", "0.5", "0.5", "1"}},
		{"prompt", slices.Repeat([]string{"<s>Step in? <&> 이제"}, 4)},
	} {
		if diff := cmp.Diff(c.want, column(c.name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	// The three tables hold the same rows.
	var fromJSON []timing.Row
	dec := json.NewDecoder(bytes.NewReader(text(t, x, JSONL)))
	for dec.More() {
		var r timing.Row
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		fromJSON = append(fromJSON, r)
	}
	b := text(t, x, Parquet)
	fromParquet, err := parquet.Read[timing.Row](bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fromJSON, fromParquet); diff != "" {
		t.Errorf("JSON Lines and Parquet differ:\n%s", diff)
	}
	if len(fromJSON) != len(records)-1 {
		t.Errorf("%d rows in JSON Lines and %d in CSV", len(fromJSON), len(records)-1)
	}
}

// A decision head's line and threshold are in the row of its decision.
func TestDualHead(t *testing.T) {
	d := timing.Decision{Mode: timing.DualHead, Gold: 4, Stage: "Denial", Context: "c1", FirstTurn: 3, LastTurn: 6, Predicted: 4, Threshold: 0.4}
	samples := []run.Sample{sample(t, timing.StepDecide, "1", "dual-head", 0, "", d), sample(t, timing.StepUtterance, "1", "dual-head", 0, "", map[string]any{"text": "Let us hear both.", "turn": 4})}
	samples[0].Prompts = nil // it reads states, not answers
	x := read(t, identity("timing"), samples)
	r := rows[timing.Row](x)[0]
	if r.Utterance == nil || *r.Utterance != "Let us hear both." || r.Threshold == nil || *r.Threshold != 0.4 || r.Prompt == nil {
		t.Errorf("row %+v", r)
	}
}

// after makes a label that puts its probability on one stage (0..5).
func after(turn, stage int) mediation.TurnLabel {
	l := mediation.TurnLabel{Turn: turn, Own: true, Mass: 1}
	for i := range l.P {
		l.P[i] = 0.02
	}
	l.P[stage] = 0.9
	return l
}

// mediated are lines under two conditions, labelled as reliably as the records.
func mediated(t *testing.T) []run.Sample { return mediatedBy(t, 3) }

// mediatedBy has a card of 39 recorded labels, 13 each of the stages 0, 1 and 2; where
// i modulo 13 is below wrong the labeller says Denial.
func mediatedBy(t *testing.T, wrong int) []run.Sample {
	var out []run.Sample
	for i := range 39 {
		recorded := dmis.Stage(i % 3)
		given := after(4, int(recorded))
		if i%13 < wrong {
			given = after(4, 0)
		}
		given.Recorded = recorded.String()
		item := fmt.Sprint(100 + i)
		u := mediation.Utterance{Gold: 3, Turn: 3, LastTurn: 5, Stage: "Denial", Context: fmt.Sprint("c", 3+i/3), Source: "none"}
		out = append(out, sample(t, mediation.StepUtterance, item, mediation.Card, 0, "", u),
			sample(t, mediation.StepLabel, item, mediation.Card, 0, "", mediation.Labels{Pre: after(3, 0), After: []mediation.TurnLabel{given}}))
	}
	for _, c := range []struct {
		item, condition, context string
		repeat, end              int
		unscored, line           string
	}{
		{"1", "ND", "c1", 0, 4, "", "What matters to you?"}, {"1", "ND", "c1", 1, 2, "", "And to you?"}, {"2", "ND", "c2", 0, 3, "mass 0.01", "Please go on."},
		{"1", "unmediated", "c1", 0, 1, "", ""}, {"1", "unmediated", "c1", 1, 0, "", ""}, {"2", "unmediated", "c2", 0, 1, "", ""},
	} {
		u := mediation.Utterance{Gold: 3, Turn: 3, LastTurn: 5, Stage: "Denial", Context: c.context, Text: c.line, Source: "model"}
		last := after(5, c.end)
		last.Unscored = c.unscored
		labels := mediation.Labels{Pre: after(3, 0), After: []mediation.TurnLabel{after(4, 1), last}}
		judgement := mediation.Judgement{P: [5]float64{0, 0, 0, 1, 0}, Mass: 1, Score: 4, Expected: 4}
		if c.repeat == 1 {
			judgement = mediation.Judgement{P: [5]float64{0, 1, 0, 0, 0}, Mass: 1, Score: 2, Expected: 2}
		}
		if c.line == "" {
			judgement = mediation.Judgement{NotApplicable: "no mediator's line"}
		}
		out = append(out, sample(t, mediation.StepUtterance, c.item, c.condition, c.repeat, "", u),
			sample(t, mediation.StepSimulate, c.item, c.condition, c.repeat, "", mediation.Continuation{Turns: []mediation.SimTurn{{T: 4, Agent: 2, Text: "Well."}, {T: 5, Agent: 1, Text: "Fine."}}}),
			sample(t, mediation.StepLabel, c.item, c.condition, c.repeat, "", labels),
			sample(t, mediation.StepJudge, c.item, c.condition, c.repeat, "", judgement))
	}
	return out
}

func TestMediationRows(t *testing.T) {
	samples := mediated(t)
	x := read(t, identity("mediation"), samples)
	if x.Rows() != 6 {
		t.Fatalf("%d rows, want 6: the card has none", x.Rows())
	}
	// Values are those that scoring finds, repeat by repeat.
	for repeat := range 2 {
		var own []run.Sample
		for _, s := range samples {
			if s.Repeat == repeat {
				own = append(own, s)
			}
		}
		outcomes, err := mediation.Outcomes(own)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range outcomes {
			i := slices.IndexFunc(x.table.Rows, func(u task.Row) bool { return u.Key == run.Key{Item: o.Item, Condition: o.Condition, Repeat: repeat} })
			r := rows[mediation.Row](x)[i]
			for name, column := range r.Metrics() {
				want, ok := o.Values[name]
				if got := *column; (got != nil) != ok || ok && *got != want {
					t.Errorf("%s of %s %s %d: %v, want %v (%t)", name, o.Item, o.Condition, repeat, got, want, ok)
				}
			}
		}
	}
	r := rows[mediation.Row](x)[0]
	if r.Repeat != 0 || *r.PreStage != 0 || *r.PostStage != 4 || !slices.Equal(r.TrajectoryStage, []int32{1, 4}) || !slices.Equal(r.Continuation, []string{"Well.", "Fine."}) {
		t.Errorf("first row %+v", r)
	}
	lost := rows[mediation.Row](x)[2]
	if lost.Scored || lost.Unscored == nil || !strings.HasPrefix(*lost.Unscored, "delta_auc, delta_auc_own, auc_paige") || !strings.Contains(*lost.Unscored, "mass 0.01") || lost.AUC != nil || lost.JudgeScore == nil {
		t.Errorf("row without a label: %+v, reason %v", lost, lost.Unscored)
	}
	if r := rows[mediation.Row](x)[3]; r.JudgeScore != nil || !r.Scored || r.Utterance != nil {
		t.Errorf("unmediated: nothing was said, so nothing is missing: %+v", r)
	}
	b := text(t, x, Parquet)
	if back, err := parquet.Read[mediation.Row](bytes.NewReader(b), int64(len(b))); err != nil || cmp.Diff(rows[mediation.Row](x), back) != "" {
		t.Errorf("Parquet: %v\n%s", err, cmp.Diff(rows[mediation.Row](x), back))
	}
}

// A file does not depend on the order in which workers finished.
func TestOrder(t *testing.T) {
	for task, samples := range map[string][]run.Sample{"timing": decisions(t), "mediation": mediated(t)} {
		x := read(t, identity(task), samples)
		shuffled := slices.Clone(samples)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		y := read(t, identity(task), shuffled)
		for _, f := range []Format{JSONL, CSV, Parquet} {
			if !bytes.Equal(text(t, x, f), text(t, y, f)) {
				t.Errorf("%s as %s differs with the order of the samples", task, f)
			}
		}
	}
}

func TestInspect(t *testing.T) {
	x := read(t, identity("timing"), decisions(t))
	b := text(t, x, Inspect)
	if n := bytes.Count(b, nan); n != 1 {
		t.Errorf("%d values are NaN, want that of the unscored sample", n)
	}
	var log struct {
		Status  string
		Results evalResults
		Samples []struct {
			ID     string
			Scores map[string]struct {
				Value               any
				Explanation, Reason string
			}
			Metadata struct{ Reasoning *string }
		}
		Stats evalStats
	}
	if err := json.Unmarshal(bytes.ReplaceAll(b, nan, []byte(`"value":null`)), &log); err != nil {
		t.Fatal(err)
	}
	if log.Status != "success" || len(log.Samples) != 4 {
		t.Fatalf("status %q, %d samples", log.Status, len(log.Samples))
	}
	var values []any
	for _, s := range log.Samples {
		values = append(values, s.Scores["turn_acc"].Value)
	}
	if diff := cmp.Diff([]any{"C", "I", nil, "I"}, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if s := log.Samples[2].Scores["turn_acc"]; s.Reason != "mass 0.01 is below 0.05" || s.Explanation != s.Reason {
		t.Errorf("unscored: %+v", s)
	}
	if r := log.Samples[3].Metadata.Reasoning; r == nil || !strings.Contains(*r, `{"value":"`+"\x00"+`"}`) {
		t.Errorf("the model's words changed: %v", r)
	}
	s := log.Results.Scores[0]
	if s.Scored != 3 || s.Unscored != 1 || math.Abs(s.Metrics["accuracy"].Value-1.0/3) > 1e-12 {
		t.Errorf("results %+v", s)
	}
	if want := (modelUsage{350, 10, 510, 150}); log.Stats.Usage["ollama/org/gemma2:9b"] != want {
		t.Errorf("usage %+v, want %+v", log.Stats.Usage, want)
	}
}

// Lines that were made elsewhere have no model.
func TestWithoutMediator(t *testing.T) {
	id := identity("mediation")
	delete(id.Models, "mediator")
	x := read(t, id, mediated(t))
	if b := text(t, x, Inspect); !bytes.Contains(b, []byte(`"model":"none/none"`)) {
		t.Error("the log names a model that wrote nothing")
	}
	if dir, err := x.WriteHarness(t.TempDir(), false); err != nil || filepath.Base(dir) != "none" {
		t.Errorf("folder %s, %v", dir, err)
	}
}

// Conditions are never averaged together.
func TestInspectByCondition(t *testing.T) {
	x := read(t, identity("mediation"), mediated(t))
	for _, s := range x.evalScores() {
		if s.Name != mediation.AUC {
			continue
		}
		if s.Scored != 5 || s.Unscored != 1 {
			t.Errorf("%d scored, %d unscored", s.Scored, s.Unscored)
		}
		// The scored lines of ND are of one context: their mean has no standard error.
		for _, name := range []string{"ND", "unmediated", "unmediated_stderr"} {
			if _, ok := s.Metrics[name]; !ok {
				t.Errorf("no metric %s in %v", name, s.Metrics)
			}
		}
		if len(s.Metrics) != 3 {
			t.Errorf("metrics %v", s.Metrics)
		}
	}
}

func TestClusteredMean(t *testing.T) {
	for _, c := range []struct {
		values       []float64
		clusters     []string
		mean, stderr float64
	}{
		{[]float64{1, 2, 6}, []string{"a", "b", "c"}, 3, math.Sqrt(7.0 / 3)},       // sd/sqrt(n): variance 7
		{[]float64{1, 0, 1, 0}, []string{"a", "a", "b", "b"}, 0.5, math.NaN()},     // clusters are alike: none tells of others
		{[]float64{1, 1, 0, 0}, []string{"a", "a", "b", "b"}, 0.5, 0.5},            // sqrt((1+1)*2)/4
		{[]float64{3, 5}, []string{"a", "a"}, 4, math.NaN()},                       // one cluster tells nothing
		{[]float64{2, 4, 9}, []string{"a", "b", "a"}, 5, math.Sqrt((1+1)*2.0) / 3}, // a: -3+4, b: -1
		{[]float64{1, 1, 1}, []string{"a", "b", "c"}, 1, math.NaN()},
		{nil, nil, 0, math.NaN()},
	} {
		mean, stderr := clusteredMean(c.values, c.clusters)
		if math.Abs(mean-c.mean) > 1e-12 || (stderr == nil) != math.IsNaN(c.stderr) || stderr != nil && math.Abs(*stderr-c.stderr) > 1e-12 {
			t.Errorf("%v by %v: %g and %v, want %g and %g", c.values, c.clusters, mean, stderr, c.mean, c.stderr)
		}
	}
}

func TestHarness(t *testing.T) {
	x := read(t, identity("mediation"), mediated(t))
	out := t.TempDir()
	dir, err := x.WriteHarness(out, false)
	if err != nil {
		t.Fatal(err)
	}
	if dir != filepath.Join(out, "org__gemma2__9b") {
		t.Errorf("folder %s", dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, "samples_ccmed_mediation_*.jsonl"))
	if err != nil || len(files) != 2 {
		t.Fatalf("samples files %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	var lost struct {
		DocID    int `json:"doc_id"`
		Metrics  []string
		Unscored string
		AUC      *float64 `json:"auc_paige"`
		Judge    *float64
	}
	if err := json.Unmarshal([]byte(lines[2]), &lost); err != nil {
		t.Fatal(err)
	}
	if lost.DocID != 2 || lost.AUC != nil || lost.Judge == nil || *lost.Judge != 4 || slices.Contains(lost.Metrics, "auc_paige") || !strings.Contains(lost.Unscored, "mass 0.01") {
		t.Errorf("unscored sample: %s", lines[2])
	}
	if _, err := x.WriteHarness(out, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("files that exist: %v", err)
	}
	if _, err := x.WriteHarness(out, true); err != nil {
		t.Error(err)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct {
		name, task, prompts, want string
		samples                   []run.Sample
	}{
		{"another task", "extract", "", "this version knows no such task", nil},
		{"an empty run", "timing", "", "ccmed runs resume", nil},
		{"a damaged prompt", "timing", "{\n", "prompts.jsonl:1 is damaged", decisions(t)},
		{"data of another kind", "timing", "", "timing sample of item 1: json: cannot unmarshal string", []run.Sample{sample(t, timing.StepDecide, "1", "stream", 0, "", "text")}},
	} {
		d := folder(t, identity(c.task), c.samples)
		if c.prompts != "" {
			write(t, filepath.Join(d.Path(), run.PromptsFile), c.prompts)
		}
		if _, err := readFolder(t, d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestColumns(t *testing.T) {
	for _, row := range []any{timing.Row{}, mediation.Row{}} {
		seen := map[string]bool{}
		for _, c := range Columns(row) {
			if c.Name == "" || c.Doc == "" || seen[c.Name] {
				t.Errorf("%T: column %+v", row, c)
			}
			seen[c.Name] = true
		}
	}
	if c := Columns(timing.Row{})[14]; c != (Column{"correct", "bool", true, c.Doc}) {
		t.Errorf("column %+v", c)
	}
	if Columns(nil) != nil {
		t.Error("no row has columns")
	}
}
