package tasktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/export"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/schema"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// Case is a benchmark with a run of its.
type Case struct {
	Bench    task.Bench
	Identity run.Identity
	// Samples are those of a whole run with at least two items, some unscored.
	Samples []run.Sample
	// Flags are the arguments of a call whose plan is run; nil where plans need an engine.
	Flags []string
	// Files, unless nil, makes the files that the run has beside its samples.
	Files func(t *testing.T, dir string)
	// Fixed says that results hold what lies in the run's files, so that samples of other
	// orders, damaged ones and fewer cannot be scored.
	Fixed bool
	// NoScores says that no row of the exported table has a score.
	NoScores bool
}

// Conform fails the test where the benchmark does not keep the promises of task.Bench: what
// is shown, compared and exported does not depend on the order of samples, nor on whether
// metrics were stored; samples are read once; forms and columns are those of the types that
// About names; damaged samples are errors with their place, and empty and unscored runs are
// results; an interrupted run that goes on, and shards that are joined, are the whole run.
func Conform(t *testing.T, c Case) {
	t.Helper()
	about := c.Bench.About()
	if about.Task == "" || about.Command == "" || about.Short == "" || about.Subject == "" || about.Item == "" || about.Cluster == "" || about.Metrics == nil {
		t.Errorf("About is not complete: %+v", about)
	}
	whole := c.output(t, c.Samples, nil)
	t.Run("stored metrics give the same", func(t *testing.T) {
		if d := cmp.Diff(whole, c.output(t, c.Samples, whole["metrics"])); d != "" {
			t.Error(d)
		}
	})
	t.Run("forms", func(t *testing.T) { c.forms(t, whole["metrics"]) })
	t.Run("columns", func(t *testing.T) { c.columns(t) })
	if !c.Fixed {
		t.Run("order", func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			for range 3 {
				mixed := slices.Clone(c.Samples)
				r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
				if d := cmp.Diff(whole, c.output(t, mixed, nil)); d != "" {
					t.Fatal(d)
				}
			}
		})
		t.Run("damaged, empty and unscored", func(t *testing.T) { c.damaged(t) })
	}
	if c.Flags != nil {
		t.Run("resume and shards", func(t *testing.T) { c.runs(t) })
	}
}

// open makes a run folder of samples and opens it as a command does.
func (c Case) open(t *testing.T, samples []run.Sample) *task.Run {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run")
	d, err := run.Create(path, c.Identity, strings.Fields(c.Bench.About().Command))
	if err != nil {
		t.Fatal(err)
	}
	if c.Files != nil {
		c.Files(t, path)
	}
	var lines strings.Builder
	for _, s := range samples {
		s.Schema = run.SampleSchema
		if err := json.NewEncoder(&lines).Encode(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(d.WriteFile(run.SamplesFile, []byte(lines.String())), d.Close(run.StatusDone)); err != nil {
		t.Fatal(err)
	}
	return reopened(t, c.Bench, path)
}

func reopened(t *testing.T, b task.Bench, path string) *task.Run {
	t.Helper()
	archive := &task.Archive{Benches: task.Registry{b}, Version: "1", Note: func(string, ...any) {}}
	r, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if r.Bench == nil {
		t.Fatalf("the registry does not find %T for its run", b)
	}
	return r
}

// output is everything that a result gives, as JSON by name. The samples must have been
// read once at most.
func (c Case) output(t *testing.T, samples []run.Sample, stored []byte) map[string][]byte {
	t.Helper()
	r := c.open(t, samples)
	if stored != nil {
		m := run.StoredMetrics{Schema: run.MetricsSchema, Version: "1", Task: r.Identity().Task, SamplesHash: r.Manifest().SamplesHash, Metrics: stored}
		inputs, err := r.Inputs()
		if err != nil {
			t.Fatal(err)
		}
		m.Inputs, m.Seed = inputs, r.Identity().Seed
		if err := r.WriteMetrics(m); err != nil {
			t.Fatal(err)
		}
	}
	res, err := r.Result(t.Context(), task.ScoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if stored != nil && r.Passes() > 0 {
		t.Error("samples were read for metrics that are stored")
	}
	out := everything(t, res)
	if n := r.Passes(); n > 1 {
		t.Errorf("the samples were read %d times", n)
	}
	return out
}

// everything calls every method of a result.
func everything(t *testing.T, res task.Result) map[string][]byte {
	t.Helper()
	ctx := t.Context()
	sections, err1 := res.Sections(ctx)
	cautions, err2 := res.Cautions(ctx)
	measures, notes, err3 := res.Measures(ctx)
	if errors.Is(err3, task.ErrNoMeasures) {
		err3 = nil
	}
	table, err4 := res.Table(ctx)
	if errors.Is(err4, task.ErrNoRows) {
		err4 = nil
	}
	browser, browserNotes, err5 := res.Browser(ctx)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	// What a report cannot show is found here.
	for _, f := range []report.Format{report.HTML, report.JSON, report.Markdown, report.Terminal} {
		page := append(slices.Clone(sections), report.Section{Title: "items", Browser: &browser})
		if err := report.Write(io.Discard, f, page, report.Options{}); err != nil {
			t.Errorf("as %s: %v", f, err)
		}
	}
	rows := make([]any, len(table.Rows))
	for i, row := range table.Rows {
		rows[i] = row.Value
	}
	out := map[string][]byte{}
	for name, v := range map[string]any{"metrics": res.Metrics(), "sections": sections, "cautions": cautions, "measures": measures, "notes": notes, "rows": rows, "row cautions": table.Cautions,
		"browser": browser, "browser notes": browserNotes} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = b
	}
	return out
}

// forms holds samples and metrics against the types that About names.
func (c Case) forms(t *testing.T, metrics []byte) {
	about := c.Bench.About()
	sample := schema.Line("sample", "a sample", run.Sample{}, "step", "data", "unscored", about.Data, nil)
	for _, s := range c.Samples {
		s.Schema = run.SampleSchema
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := sample.Validate(b); err != nil {
			t.Errorf("%s: %v", s.Key, err)
		}
		if _, known := about.Data[s.Step]; !known {
			t.Errorf("About.Data has no step %q", s.Step)
		}
	}
	if err := schema.Of("metrics", "metrics", about.Metrics, nil).Validate(metrics); err != nil {
		t.Errorf("metrics: %v", err)
	}
	if err := schema.Of("metrics", "metrics", about.Metrics, nil).Validate([]byte(`{"strange": 1}`)); err == nil {
		t.Error("the form of the metrics takes anything")
	}
}

// columns wants a name and a description for every column, and rows of the type that About
// names.
func (c Case) columns(t *testing.T) {
	about := c.Bench.About()
	seen := map[string]bool{}
	for _, col := range export.Columns(about.Row) {
		if col.Name == "" || col.Doc == "" || seen[col.Name] {
			t.Errorf("column %+v", col)
		}
		seen[col.Name] = true
	}
	r := c.open(t, c.Samples)
	res, err := r.Result(t.Context(), task.ScoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	table, err := res.Table(t.Context())
	if about.Row == nil {
		if !errors.Is(err, task.ErrNoRows) {
			t.Errorf("a benchmark without rows gives %v", err)
		}
		return
	}
	if err != nil || len(table.Rows) == 0 {
		t.Fatalf("%d rows, %v", len(table.Rows), err)
	}
	for _, row := range table.Rows {
		if got := reflect.TypeOf(row.Value); got != reflect.PointerTo(reflect.TypeOf(about.Row)) {
			t.Fatalf("a row is a %s; About names %T", got, about.Row)
		}
		if row.Key.Item == "" || row.Key.Step != "" || row.Cluster == "" || (len(row.Scores) == 0) != c.NoScores || len(row.Steps) == 0 {
			t.Errorf("row %+v lacks its item, cluster, scores or steps", row)
		}
	}
	if _, err := export.Read(r, table); err != nil {
		t.Error(err)
	}
}

// damaged scores runs that no benchmark makes, and that folders hold all the same.
func (c Case) damaged(t *testing.T) {
	for step := range c.Bench.About().Data {
		i := slices.IndexFunc(c.Samples, func(s run.Sample) bool { return s.Step == step && len(s.Data) > 0 })
		if i < 0 {
			continue
		}
		bad := slices.Clone(c.Samples)
		bad[i].Data = json.RawMessage(`[1,2]`)
		r := c.open(t, bad)
		_, err := r.Result(t.Context(), task.ScoreOptions{})
		if err == nil || !strings.Contains(err.Error(), bad[i].Item) {
			t.Errorf("a list as data of %s: %v, want an error that names item %s", step, err, bad[i].Item)
		}
		twice := append(slices.Clone(c.Samples), c.Samples[i])
		if _, err := c.open(t, twice).Result(t.Context(), task.ScoreOptions{}); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("two samples of %s: %v", c.Samples[i].Key, err)
		}
	}
	none := slices.Clone(c.Samples)
	for i := range none {
		none[i].Unscored = "nothing could be asked"
	}
	for what, samples := range map[string][]run.Sample{"no sample": nil, "one sample": c.Samples[:1], "all unscored": none} {
		res, err := c.open(t, samples).Result(t.Context(), task.ScoreOptions{})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		everything(t, res)
	}
}

// runs makes runs of the case's call with scripted models: in one go, stopped and gone on
// with, and in two shards.
func (c Case) runs(t *testing.T) {
	make := func(path, shard string, failAfter int) error {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		call := c.Bench.Flags(f)
		if err := f.Parse(c.Flags); err != nil {
			t.Fatal(err)
		}
		set, err := prompt.Load("")
		if err != nil {
			t.Fatal(err)
		}
		archive := &task.Archive{Benches: task.Registry{c.Bench}, Note: func(string, ...any) {}}
		plan, err := call.Plan(t.Context(), task.Env{Archive: archive, Seed: 1, Prompts: set, Model: "scripted"})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(plan.Settings)
		if err != nil {
			t.Fatal(err)
		}
		id := run.Identity{Task: c.Bench.About().Task, Seed: 1, Items: plan.Items, Others: plan.Others, DataHash: plan.DataHash, Prompts: plan.Templates, Shard: shard}
		if err := json.Unmarshal(b, &id.Options); err != nil {
			t.Fatal(err)
		}
		d, err := run.Create(path, id, nil)
		if err != nil {
			if d, _, err = run.Resume(path, id, nil); err != nil {
				t.Fatal(err)
			}
		}
		backend := &infertest.Scripted{}
		if failAfter > 0 {
			backend.Fail = func(n int, _ infertest.Call) error {
				if n > failAfter {
					return errors.New("the server is gone")
				}
				return nil
			}
		}
		_, err = plan.Task.Execute(t.Context(), d, run.Options{Shard: shard, Workers: func(context.Context, string) ([]infer.Backend, error) { return []infer.Backend{backend}, nil },
			Together: func(_ context.Context, roles []string) ([]map[string]infer.Backend, error) {
				worker := map[string]infer.Backend{}
				for _, role := range roles {
					worker[role] = backend
				}
				return []map[string]infer.Backend{worker}, nil
			}})
		return err
	}
	metrics := func(path string) string {
		res, err := reopened(t, c.Bench, path).Result(t.Context(), task.ScoreOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(everything(t, res)["metrics"])
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := make(at("whole"), "", 0); err != nil {
		t.Fatal(err)
	}
	want := metrics(at("whole"))
	if err := make(at("broken"), "", 3); err == nil {
		t.Fatal("the server was not gone")
	}
	if err := make(at("broken"), "", 0); err != nil {
		t.Fatal(err)
	}
	if got := metrics(at("broken")); got != want {
		t.Errorf("gone on with:\n%s\nin one go:\n%s", got, want)
	}
	var shards []string
	for i := 1; i <= 2; i++ {
		shards = append(shards, at(fmt.Sprint("shard", i)))
		if err := make(shards[i-1], fmt.Sprintf("%d/2", i), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := run.Merge(at("merged"), shards, nil); err != nil {
		t.Fatal(err)
	}
	if got := metrics(at("merged")); got != want {
		t.Errorf("of shards:\n%s\nin one go:\n%s", got, want)
	}
}
