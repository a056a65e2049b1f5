package folder

import (
	"github.com/ccmed/ccmed/bench/compare"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/schema"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/arrays"
	"github.com/ccmed/ccmed/sft"
)

// Forms are the forms of every file that the program writes as JSON, by the names of their
// schemas. With comments they describe their fields.
func Forms(benches task.Registry, c schema.Comments) map[string]*schema.Form {
	all := []*schema.Form{
		schema.Of("manifest", "The manifest of a run", run.Manifest{}, c).Constant("schema", run.Schema),
		schema.Of("prompt", "A prompt of a run", run.Asked{}, c),
		schema.Of("failure", "A failed attempt of a run", run.Failure{}, c),
		schema.Of("comparison", "A comparison of runs", compare.Comparison{}, c).Constant("schema", compare.Schema),
		schema.Of("findings", "What probes find in a store of lines", probe.Findings{}, c).Constant("schema", probe.FindingsSchema),
		schema.Of("turns", "What probes find in a store of turns", probe.TurnFindings{}, c).Constant("schema", probe.TurnFindingsSchema),
		schema.Of("labeller", "What a labeller fitted to a store of questions reaches", probe.LabellerFindings{}, c).Constant("schema", probe.LabellerFindingsSchema),
		schema.Of("states-card", "The card of hidden states that are imported", arrays.Card{}, c),
		schema.Of("train", "A training", sft.Manifest{}, c),
		schema.Of("export", "An export of training data", sft.Export{}, c),
		schema.Of("card", "The card of a package", sft.Card{}, c).Constant("schema", sft.CardSchema),
	}
	out := map[string]*schema.Form{}
	for _, b := range benches {
		about := b.About()
		sample := schema.Line(about.Task+"-sample", "A sample of a "+about.Task+" run", run.Sample{}, "step", "data", "unscored", about.Data, c).
			Constant("schema", run.SampleSchema)
		metrics := schema.Of(about.Task+"-metrics", "The metrics of a "+about.Task+" run", run.StoredMetrics{}, c).
			Constant("schema", run.MetricsSchema).Constant("task", about.Task).With("metrics", about.Metrics, c)
		all = append(all, sample, metrics)
	}
	for _, f := range all {
		out[f.Name] = f // of benchmarks that share a task the last one has the most
	}
	return out
}
