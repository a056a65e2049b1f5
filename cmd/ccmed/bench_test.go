package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// BenchmarkCommands times what reads a run: CCMED_BENCH_DIALOGUES dialogues, 1,500 unless
// it says otherwise. docs/benchmarks.md has the figures.
func BenchmarkCommands(b *testing.B) {
	n := 1500
	if text := os.Getenv("CCMED_BENCH_DIALOGUES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	data, ds := scriptedRecords(b, n)
	runs := []string{filepath.Join(b.TempDir(), "a"), filepath.Join(b.TempDir(), "b")}
	for _, r := range runs {
		scriptedTiming(b, r, data, ds)
	}
	out := b.TempDir()
	command := func(b *testing.B, args ...string) {
		b.Helper()
		if code, _, errs := exits(map[string]string{}, args...); code != 0 {
			b.Fatalf("%q ends with %d: %s", args, code, errs)
		}
	}
	command(b, "score", runs[1])
	for _, c := range [][]string{
		{"--help"},
		{"score", runs[0]},
		{"runs", "show", runs[0]},
		{"compare", runs[0], runs[1]},
		{"report", runs[0], "--force", "--out", filepath.Join(out, "report.html")},
		{"runs", "export", runs[0], "--force", "--format", "csv", "--out", filepath.Join(out, "samples.csv")},
		{"runs", "export", runs[0], "--force", "--format", "parquet", "--out", filepath.Join(out, "samples.parquet")},
		{"runs", "export", runs[0], "--force", "--format", "inspect", "--out", filepath.Join(out, "samples.eval")},
		{"runs", "verify", runs[0]},
	} {
		name := c[0]
		if name == "runs" {
			name = c[1]
		}
		if name == "export" {
			name += "-" + c[5]
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				command(b, c...)
			}
		})
	}
}
