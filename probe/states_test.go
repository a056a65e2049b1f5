package probe_test

import (
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/probe"
)

var _ probe.StateReader = (*llamacpp.Engine)(nil)
