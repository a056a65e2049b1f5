//go:build !unix

package infertest

import "os/exec"

func ownGroup(*exec.Cmd) {}

func interrupt(c *exec.Cmd) { _ = c.Process.Kill() }

func kill(c *exec.Cmd) { _ = c.Process.Kill() }
