package sft

import "syscall"

// dieWithParent asks the system to end the child when this process is killed
// without a chance to do so. SIGTERM lets a trainer save a checkpoint.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }
