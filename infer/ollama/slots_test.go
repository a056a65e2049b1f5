package ollama_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/ollama"
)

// share gives every dialogue to one of the workers, as the executor does, and
// returns how long all of them took.
func share(t *testing.T, workers, dialogues int, ask func(dialogue int) error) time.Duration {
	t.Helper()
	start, next := time.Now(), make(chan int, dialogues)
	for i := range dialogues {
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range next {
				if err := ask(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// The delay is the server's, so that the least times do not depend on the machine;
// one that is busy is measured more often.
func TestFourInFlightAreFaster(t *testing.T) {
	const delay, dialogues, turns = 50 * time.Millisecond, 8, 6
	for _, way := range []string{"choose", "chat"} {
		t.Run(way, func(t *testing.T) {
			took := func(workers int) time.Duration {
				s, b := scripted(t, ollama.Options{Parallel: workers})
				answer := generated(9, "4", token("4", "4", 0.9))
				answer.Delay = delay
				s.On("/api/generate", answer)
				d := share(t, workers, dialogues, func(i int) error {
					ps := make([]infer.Prompt, turns)
					for j := range ps {
						ps[j].Raw = "System. Dialogue " + strings.Repeat(string(rune('a'+i)), 5) + strings.Repeat(" turn", j+1)
					}
					if way == "choose" {
						_, err := b.Choose(context.Background(), ps, infer.Digits(1, 6), infer.Params{})
						return err
					}
					for _, p := range ps { // two speakers, each with a prompt of its own
						p.Raw += " speaker " + fmt.Sprint(strings.Count(p.Raw, "turn")%2)
						if _, err := b.Chat(context.Background(), p, infer.Params{MaxTokens: 5}); err != nil {
							return err
						}
					}
					return nil
				})
				if n := s.MostInFlight(); n != workers {
					t.Errorf("%d requests in flight at most, want %d", n, workers)
				}
				return d
			}
			one, four, ratio := time.Hour, time.Hour, 0.0
			for range 8 {
				one, four = min(one, took(1)), min(four, took(4))
				if ratio = one.Seconds() / four.Seconds(); ratio >= 3.5 {
					break
				}
			}
			t.Logf("%s alone, %s with four: %.2f times as fast", one, four, ratio)
			if ratio < 3.5 {
				t.Errorf("four workers are %.2f times as fast as one, want at least 3.5", ratio)
			}
		})
	}
}

// With one token a request, the server of four slots evaluates 1.7 times the
// unique tokens of dialogues that are asked about side by side.
func TestServerKeepsADialogueOnItsSlot(t *testing.T) {
	host := infertest.StartOllama(t)
	b, err := ollama.New(host, infertest.TestModel, ollama.Options{NumCtx: numCtx, Parallel: infertest.OllamaSlots})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := b.Unload(ctx, ""); err != nil { // another test's prompts are in its caches
		t.Fatal(err)
	}
	from := len(infertest.OllamaLog(t))
	var mu sync.Mutex
	var used infer.Usage
	got := make([][]infer.Choice, 8)
	share(t, infertest.OllamaSlots, 8, func(i int) error {
		cs, err := b.Choose(ctx, prefixes(fmt.Sprintf("Dialogue %d, about a contract.", i), 6), infer.Words("yes", "no"), infer.Params{NumCtx: numCtx})
		mu.Lock()
		defer mu.Unlock()
		used = used.Add(total(cs))
		got[i] = cs
		return err
	})
	n, _, evaluated := logged(t, from)
	t.Logf("%d requests; the log says evaluated %d; usage %+v", n, evaluated, used)
	if r := float64(evaluated) / float64(used.Unique); r > 1.10 {
		t.Errorf("evaluated / unique = %d / %d = %.3f, want at most 1.10:\n%s", evaluated, used.Unique, r,
			strings.Join(loading.FindAllString(infertest.OllamaLog(t)[from:], -1), "\n"))
	}
	if off := float64(used.Evaluated-evaluated) / float64(evaluated); off > 0.05 || off < -0.05 {
		t.Errorf("evaluated tokens: estimated %d, the log says %d", used.Evaluated, evaluated)
	}
	alone, err := served(t).Choose(ctx, prefixes("Dialogue 3, about a contract.", 6), infer.Words("yes", "no"), infer.Params{NumCtx: numCtx})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range alone {
		for j, p := range c.P { // sums over a batch are rounded otherwise
			if d := p - got[3][i].P[j]; d > 0.02 || d < -0.02 {
				t.Errorf("prompt %d: P %v with others and %v alone", i, got[3][i].P, c.P)
			}
		}
	}
}
