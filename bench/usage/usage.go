// Package usage holds the error of a command that was called wrongly, which packages
// below the commands return too: they bring flags of their own.
//
//	return usage.Errorf("--first-turn %d; it must be at least 1", n)
package usage

import "fmt"

// Error is a mistake in how a command was called: an unknown value, a missing argument.
// The program ends with exit code 2 and says how to go on.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the mistake itself.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error as fmt.Errorf makes an error.
func Errorf(format string, a ...any) error { return &Error{fmt.Errorf(format, a...)} }
