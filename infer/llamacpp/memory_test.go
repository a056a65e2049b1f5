package llamacpp

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

func TestFreeMemoryIsRead(t *testing.T) {
	t.Parallel()
	if n, ok := free("MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:    2048 kB\n"); !ok || n != 2048*1024 {
		t.Errorf("%d, %v", n, ok)
	}
	for _, text := range []string{"", "MemTotal: 5 kB\n", "MemAvailable: many kB\n"} {
		if n, ok := free(text); ok {
			t.Errorf("%q: %d", text, n)
		}
	}
}

// TestPathsOfSpeakers: four speakers whose prompts grow in turn find their paths again where
// there are as many, and their answers are the same with fewer.
func TestPathsOfSpeakers(t *testing.T) {
	path := need(t)
	evaluated, answers := map[int]int{}, map[int]string{}
	for _, paths := range []int{2, 4} {
		e, err := Open(t.Context(), Options{ModelPath: path, Paths: paths, NumCtx: 512, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.FitsMemory(512); err != nil {
			t.Error(err)
		}
		if err := e.FitsMemory(1 << 34); err == nil || !strings.Contains(err.Error(), "lower --num-ctx") {
			t.Errorf("a context of 2^34 tokens: %v", err)
		}
		talk := ""
		for turn := range 12 {
			r, err := e.Chat(context.Background(), infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: strings.Repeat(fmt.Sprintf("You are speaker %d. ", turn%4), 8)},
				{Role: infer.User, Content: "The talk:" + talk}}}, infer.Params{MaxTokens: 2, TopP: 1})
			if err != nil {
				t.Fatal(err)
			}
			talk += fmt.Sprintf(" Speaker %d says a word or two about the weather.", turn%4)
			answers[paths] += "|" + r.Text
			evaluated[paths] += r.Usage.Evaluated
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if answers[2] != answers[4] {
		t.Errorf("two paths answer %q, four %q", answers[2], answers[4])
	}
	if 3*evaluated[4] > 2*evaluated[2] {
		t.Errorf("four paths evaluate %d tokens, two %d", evaluated[4], evaluated[2])
	}
}
