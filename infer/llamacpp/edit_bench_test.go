package llamacpp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// BenchmarkEdits generates 64 tokens after a prompt without edits, with an addition by
// control vector, and with an erasure of rank 2 by the callback, in turns, and reports the
// medians of plain time over edited time: 1 is no cost. Run it with -benchtime 20x or more.
func BenchmarkEdits(b *testing.B) {
	ctx := context.Background()
	engines := make([]*Engine, 3)
	for i := range engines {
		engines[i] = openThreads(b, 512, 0)
	}
	row := rowOf(engines[0], 1, .1)
	engines[1] = edited(b, engines[1], infer.Edit{Block: 15, Scope: infer.ScopeGenerated, Add: row})
	engines[2] = edited(b, engines[2], infer.Edit{Block: 15, Scope: infer.ScopeGenerated, Erase: &infer.Erase{U: [][]float32{row, row}, V: [][]float32{row, row}, Mean: row}})
	ids, err := engines[0].Tokenize(strings.Repeat("Anna: Please answer in writing. Kenji: I prefer to meet in person. ", 10))
	if err != nil {
		b.Fatal(err)
	}
	tokens := toTokens(ids[:160])
	generate := func(e *Engine) time.Duration {
		path := e.plan("").path(tokens, 96)
		keep, err := e.resume(path[:96], 96)
		start := time.Now()
		err = errors.Join(err, e.pushFinite(ctx, path[keep:96]))
		for i := 96; i < len(path) && err == nil; i++ {
			err = e.pushFinite(ctx, path[i:i+1])
		}
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	for _, e := range engines {
		if err := e.ready(ctx, infer.Params{}, false); err != nil {
			b.Fatal(err)
		}
		generate(e)
	}
	if (engines[1].tap != nil) || engines[2].tap == nil {
		b.Fatal("the vector needs no callback, the erasure does")
	}
	var ratios [3][]float64
	var plain time.Duration
	for b.Loop() {
		var times [3]time.Duration
		for i := range engines { // each is the first of a round in turn
			k := (i + len(ratios[1])) % len(engines)
			times[k] = generate(engines[k])
		}
		for k := range ratios {
			ratios[k] = append(ratios[k], times[0].Seconds()/times[k].Seconds())
		}
		plain += times[0]
	}
	for k, name := range []string{"", "plain/vector", "plain/callback"} {
		slices.Sort(ratios[k])
		if name != "" {
			b.ReportMetric(ratios[k][len(ratios[k])/2], name)
		}
	}
	b.ReportMetric(float64(64*len(ratios[0]))/plain.Seconds(), "tokens/s")
}
