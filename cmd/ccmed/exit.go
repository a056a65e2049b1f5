package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/sft"
)

// Exit codes, the same for every command. `ccmed help exit-codes` prints them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitErrors      = 3
	exitMissing     = 4
	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes:

  0    done
  1    failed: the error says what and how to mend it. Standard output or --out
       that cannot be written to is a failure of every command
  2    usage: an unknown flag, a missing argument, a value out of range, a setting
       that ccmed.yaml must not make
  3    errors beyond --max-failures (default 0), bad input lines of metrics, or,
       with --strict, unscored samples; what was done is kept
  4    a needed service, model or library is missing
  130  interrupted; the command that resumes the run is printed. Every command ends
       within a second of Ctrl-C or SIGTERM, except for sft train, which saves a
       checkpoint first (--grace) and ends at once at the second one

Without --strict an unscored sample is a result, not an error: it is counted and
printed with its reason.`

// usageError is a mistake in how a command was called.
type usageError = usage.Error

func usagef(format string, a ...any) error { return usage.Errorf(format, a...) }

// partialError ends a command that did its work but met bad items on the way.
type partialError struct{ err error }

func (e *partialError) Error() string { return e.err.Error() }
func (e *partialError) Unwrap() error { return e.err }

// outputError is a failed write to standard output.
type outputError struct{ err error }

func (e *outputError) Error() string {
	return fmt.Sprintf("standard output cannot be written to, and what was asked for is not all there: %v", e.err)
}
func (e *outputError) Unwrap() error { return e.err }

// exitCode is the only place where an error becomes an exit code.
func exitCode(err error) int {
	var usage *usageError
	var missing *infer.MissingError
	var failures *run.FailuresError
	var interrupted *run.InterruptedError
	var training *sft.InterruptedError
	var partial *partialError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &interrupted), errors.As(err, &training), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &missing):
		return exitMissing
	case errors.As(err, &failures), errors.As(err, &partial):
		return exitErrors
	}
	return exitFailed
}
