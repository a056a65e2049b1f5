//go:build !linux

package sft

import "syscall"

// dieWithParent does nothing where the system has no such signal.
func dieWithParent(*syscall.SysProcAttr) {}
