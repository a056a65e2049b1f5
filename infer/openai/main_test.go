package openai_test

import (
	"os"
	"testing"

	"github.com/ccmed/ccmed/infer/infertest"
)

func TestMain(m *testing.M) { os.Exit(infertest.Run(m)) }
