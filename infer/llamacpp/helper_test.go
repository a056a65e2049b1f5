package llamacpp

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

// need returns the path of the test model (SmolLM2-135M-Instruct, Q4_1), and
// skips the test where the model or the engine is absent; with CCMED_REQUIRE=1
// it fails instead.
func need(t testing.TB) string {
	t.Helper()
	absent := t.Skipf
	if os.Getenv("CCMED_REQUIRE") == "1" {
		absent = t.Fatalf
	}
	path := os.Getenv("CCMED_TEST_MODEL")
	if path == "" {
		absent("CCMED_TEST_MODEL does not name SmolLM2-135M-Instruct.Q4_1.gguf: tests with a model do not run")
	}
	if _, err := Locate(); err != nil {
		var missing *infer.MissingError
		if errors.As(err, &missing) {
			absent("%v", err)
		}
		t.Fatal(err)
	}
	return path
}

// open opens the test model with a context of numCtx tokens on the CPU, and with
// one thread: llama.cpp's threads wait for each other by spinning, which takes
// ten times as long when the tests of other packages keep the cores busy.
func open(t testing.TB, numCtx int) *Engine { return openThreads(t, numCtx, 1) }

func openThreads(t testing.TB, numCtx, threads int) *Engine {
	t.Helper()
	e, err := Open(context.Background(), Options{ModelPath: need(t), NumCtx: numCtx, Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}
