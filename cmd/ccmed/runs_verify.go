package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/folder"
	"github.com/ccmed/ccmed/bench/visible"
)

func (a *app) runsVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "verify RUN...",
		Short: "Recompute what folders say about themselves, and tell what differs",
		Long: `verify recomputes hashes and metrics, and checks the form of every line against the
JSON Schemas. It names each fault: the file, the place, what is stored and what it
comes to.

  run       the identity's hash, items and samples against each other, keys that occur
            twice, prompts and their hashes, metrics from the samples
  store     the same, its files, findings of other samples, saved probes
  training  its form, the export that it trained on, its curve and its result
  package   the weights' digest, the head's, the proofs
  export    its files' hashes
  suite     every folder in it

Exit code 0: all folders agree with themselves. 1: one has a fault, or cannot be read.`,
		Example: `  ccmed runs verify runs/NAME
  ccmed runs verify runs/* --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []folder.Verdict
			faulty := 0
			for _, path := range args {
				vs, err := folder.Verify(cmd.Context(), a.opened(), path)
				if err != nil {
					return err
				}
				for _, v := range vs {
					if len(v.Faults) > 0 {
						faulty++
					}
				}
				all = append(all, vs...)
			}
			if a.json {
				if err := a.encode(all); err != nil {
					return err
				}
			} else {
				for _, v := range all {
					v.Print(visible.Writer(a.stdout))
				}
			}
			if faulty > 0 {
				return fmt.Errorf("%d of %d folders do not agree with what they say about themselves", faulty, len(all))
			}
			return nil
		},
	}
}
