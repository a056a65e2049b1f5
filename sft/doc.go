// Package sft teaches a model when to step in and what to say, and brings the
// result back to where it can be asked: training sequences out of dialogues, the
// environment and the supervision of the external trainer, packages that a server
// serves, and dual-head prediction with the tuned model.
//
//	export, err := sft.WriteExport(ctx, "sft-data", dialogues, sft.ExportOptions{Fraction: 0.1})
//	run, err := sft.CreateTraining(sft.Manifest{Config: config, Base: *base, Export: export, ExportDigest: export.Digest()})
//	result, err := run.Execute(ctx, sft.Supervision{Environment: *env, Stall: time.Hour, Grace: time.Minute, Progress: sft.QuietProgress()})
//
// A sequence is plain text, without the model's chat template, so that the tuned
// model can still be asked through its template:
//
//	INTRO
//	Turn 1 (Name): text<TURN_END>
//	…
//	Turn g (Name): text<TURN_END>[SPEAK] utterance [/SPEAK]
//
// A linear head reads the final-norm state at every <TURN_END> and decides
// whether to step in there (1 at the conflict turn g, 0 before); the language
// model head learns what stands between [SPEAK] and [/SPEAK]. Training makes such
// a sequence of a dialogue, Sequence the same format at inference.
package sft
