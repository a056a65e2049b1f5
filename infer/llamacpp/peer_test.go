package llamacpp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// BenchmarkStatesTransformers reads the states of one dialogue's crossed cells
// here and in transformers, turn by turn, and reports samples a second of both.
// CCMED_BENCH_PYTHON names a Python with torch and transformers (scripts/test_python.sh
// prints one).
//
// The sequences are those of an extraction: a dialogue of about 420 tokens, two
// prompts of 60 and 140 further tokens, and five lines of 40 after each.
func BenchmarkStatesTransformers(b *testing.B) {
	python := os.Getenv("CCMED_BENCH_PYTHON")
	if python == "" {
		b.Skip("CCMED_BENCH_PYTHON names no Python with torch and transformers")
	}
	e := openThreads(b, 1024, runtime.NumCPU())
	text := func(words, salt int) []int32 {
		var s strings.Builder
		for i := range words {
			fmt.Fprintf(&s, "%s ", []string{"Please", "answer", "in", "writing", "and", "meet", "me", "there"}[(i*salt+i/3)%8])
		}
		tokens, err := e.Tokenize(s.String())
		if err != nil {
			b.Fatal(err)
		}
		return tokens
	}
	type sequence struct {
		Tokens []int32 `json:"tokens"`
		At     []int   `json:"at"`
	}
	var seqs []infer.Sequence
	var file []sequence
	dialogue := text(420, 1)
	for i, extra := range []int{60, 140} {
		prompt := slices.Concat(dialogue, text(extra, 3+i))
		for line := range 5 {
			tokens := slices.Concat(prompt, text(40, 5+line))
			at := []int{len(prompt) - 1, len(tokens) - 1}
			seqs, file = append(seqs, infer.Sequence{Tokens: tokens, At: at}), append(file, sequence{tokens, at})
		}
	}
	path := filepath.Join(b.TempDir(), "sequences.json")
	encoded, err := json.Marshal(file)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, encoded, 0o644); err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), python, "../../scripts/bench_states.py", os.Getenv("CCMED_TEST_MODEL"), path, strconv.Itoa(runtime.NumCPU()))
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TQDM_DISABLE=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	replies := bufio.NewScanner(out)
	reply := func() string {
		if !replies.Scan() {
			b.Fatalf("transformers stopped: %v", replies.Err())
		}
		return replies.Text()
	}
	reply() // it is ready
	ctx := context.Background()
	var ratios []float64
	var here, there time.Duration
	for b.Loop() {
		if err := e.forget(); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := e.States(ctx, seqs, e.Layers(), func(int, int, int, []float32) error { return nil }); err != nil {
			b.Fatal(err)
		}
		own := time.Since(start)
		fmt.Fprintln(in)
		seconds, err := strconv.ParseFloat(reply(), 64)
		if err != nil {
			b.Fatal(err)
		}
		here, there = here+own, there+time.Duration(seconds*float64(time.Second))
		ratios = append(ratios, seconds/own.Seconds())
	}
	slices.Sort(ratios)
	n := float64(len(ratios) * len(seqs))
	b.ReportMetric(ratios[len(ratios)/2], "transformers/here")
	b.ReportMetric(n/here.Seconds(), "samples/s")
	b.ReportMetric(n/there.Seconds(), "transformers-samples/s")
}
