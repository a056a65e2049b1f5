package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/sft"
)

func (a *app) sftBenchCmd() *cobra.Command {
	var base, tuned, pkg, data, labeller, simulator, judge, out string
	var layers []string
	var limit, mediationLimit int
	var dry bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Ask the base and the tuned model again, in pairs: did it help?",
		Long: `bench takes a base model and its tuned version through timing, mediation (at the
gold turn and where each steps in by itself) and probes, and compares them in pairs.
Beside every timing table stands the bag-of-words classifier that was trained on the
same records: a tuned model that is not better has learned to spot marker phrases.
The tuned model is also asked with these phrases masked.

It is the embedded suite sft (ccmed suite show sft): the same command goes on where
it stopped.`,
		Example: "  ccmed sft bench --base gemma2:9b --package tuned --data CC-Mediation/data --labeller qwen2.5:14b --out runs/bench",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, f := range []struct{ flag, v string }{{"base", base}, {"package", pkg}, {"data", data}, {"out", out}} {
				if f.v == "" {
					return usagef("no --%s given; bench needs --base, --package, --data and --out", f.flag)
				}
			}
			if limit < 0 || mediationLimit < 0 {
				return usagef("--limit %d and --mediation-limit %d; they must not be negative", limit, mediationLimit)
			}
			card, err := sft.ReadCard(pkg)
			if err != nil {
				return err
			}
			if tuned == "" {
				tuned = card.Name
			}
			if tuned == "" {
				return errors.New("the package has no name in Ollama; name the tuned model with --tuned")
			}
			vars := map[string]string{"base": base, "tuned": tuned, "package": pkg, "data": data}
			for name, v := range map[string]string{"labeller": labeller, "simulator": simulator, "judge": judge} {
				if v != "" {
					vars[name] = v
				}
			}
			if limit > 0 {
				vars["common"] = "--limit," + strconv.Itoa(limit)
			}
			if mediationLimit > 0 {
				vars["mediation"] = "--limit," + strconv.Itoa(mediationLimit)
				vars["states"] = vars["mediation"]
			}
			for i, l := range layers {
				layers[i] = "--layers," + l
			}
			if len(layers) > 0 {
				vars["layers"] = strings.Join(layers, ",")
			}
			if dry {
				return a.planSuite(cmd.Context(), "sft", vars, out, "")
			}
			return a.runSuite(cmd.Context(), "sft", vars, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&base, "base", "", "the model before, as Ollama serves it")
	f.StringVar(&tuned, "tuned", "", "the model after, as Ollama serves it (default: the package's name)")
	f.StringVar(&pkg, "package", "", "folder that ccmed sft package wrote")
	f.StringVar(&data, "data", "", "folder or JSONL file of CC-Mediation records")
	f.StringVar(&labeller, "labeller", "", "model that gives the stages; better a qualified one (default: the base)")
	f.StringVar(&simulator, "simulator", "", "model that plays the speakers (default: the base)")
	f.StringVar(&judge, "judge", "", "model that judges (default: the labeller)")
	f.StringSliceVar(&layers, "layers", nil, "layers to probe (default: all)")
	f.IntVar(&limit, "limit", 0, "take the first N dialogues, spread over stages; 0 takes all")
	f.IntVar(&mediationLimit, "mediation-limit", 0, "dialogues of mediation and probes, which take far longer than timing; 0 takes as many as timing")
	f.StringVar(&out, "out", "", "folder of the bench; the same one to go on")
	f.BoolVar(&dry, "dry-run", false, "print the commands and run none")
	return cmd
}
