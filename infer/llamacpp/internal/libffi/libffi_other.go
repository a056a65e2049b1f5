//go:build !(linux || darwin || freebsd)

// Package libffi does nothing here.
package libffi

// Missing returns nil.
func Missing() error { return nil }
