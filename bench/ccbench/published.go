package ccbench

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/report"
)

// publishedRates are what the paper prints of a model: Follow rate, Avoid rate and CCS by
// setting, in the order of settingNames (tables of section 4).
type publishedRates struct {
	model              string
	follow, avoid, ccs [4]float64
}

var published = []publishedRates{
	{"GPT-5.2", [4]float64{.035, .065, .103, .222}, [4]float64{.473, .517, .525, .509}, [4]float64{.036, .115, .172, .309}},
	{"Gemini-2.5-pro", [4]float64{.021, .049, .105, .267}, [4]float64{.382, .453, .469, .394}, [4]float64{.023, .088, .172, .318}},
	{"DeepSeek-R1", [4]float64{.023, .044, .051, .237}, [4]float64{.382, .460, .464, .277}, [4]float64{.031, .080, .092, .255}},
	{"LLaMA-90B", [4]float64{.018, .026, .038, .145}, [4]float64{.397, .379, .390, .255}, [4]float64{.025, .049, .069, .185}},
	{"Qwen-3.5-397B", [4]float64{.014, .062, .064, .009}, [4]float64{.286, .437, .136, .009}, [4]float64{.019, .109, .087, .009}},
}

// publishedSection shows the paper's numbers, which ours are not to be held against.
func publishedSection() report.Section {
	t := report.Table{Columns: report.Columns("model", "none>", "history>", "culture-cot>", "norms>", "Follow, history>", "Avoid, history>")}
	for _, p := range published {
		t.Add(p.model, report.Num(p.ccs[0], 3), report.Num(p.ccs[1], 3), report.Num(p.ccs[2], 3), report.Num(p.ccs[3], 3),
			report.Num(p.follow[1], 3), report.Num(p.avoid[1], 3))
	}
	return report.Section{Title: "Published CCS, not comparable", Sub: true, Tables: []report.Table{t}, Notes: []string{
		"arXiv 2607.05405; its personas, talks, queries and items are not public, and another judge gave the verdicts",
		fmt.Sprintf("there the judge agrees with people on %d to %d %% of answers, and people with each other on %d %%", 62, 64, 74),
		"the harmonic mean of the printed rates is the printed CCS under history, culture-cot and norms, and in no row under none; half of the outputs of Qwen-3.5-397B are missing there"}}
}
