//go:build linux && !race

package torture

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A victim is a command that is killed and called again until it is done.
type victim struct {
	name  string
	kills int
	// begin are the arguments that start the work in folder out, again those that go on
	// with what a killed call has left there; nil where begin is said once more.
	begin, again []string
	env          []string
	srv          *server // whose answers the kills are timed by; nil where they are timed by the clock
	done         func(out string) bool
	outcome      func(t *testing.T, out string) map[string]string
}

// TestKills kills every kind of long work at random moments, goes on with it each time,
// and demands what an unbroken run has, to the byte.
func TestKills(t *testing.T) {
	total, wrong, names := 0, 0, []string{"timing", "mediation", "merge", "training", "extraction"}
	for i, make := range []func(*testing.T, string) *victim{timingVictim, mediationVictim, mergeVictim, trainingVictim, extractionVictim} {
		t.Run(names[i], func(t *testing.T) {
			dir := t.TempDir()
			v := make(t, dir)
			r := chance("kills " + v.name)
			began := time.Now()
			if r := start(t, dir, v.env, slices.Concat(v.begin, []string{"--out", "whole"})...).end(2 * time.Minute); r.code != 0 {
				t.Fatalf("unbroken: %s", r.brief())
			}
			unbroken := time.Since(began)
			answers := 0
			if v.srv != nil {
				answers = v.srv.answers
			}
			want := v.outcome(t, filepath.Join(dir, "whole"))
			killed, runs, stuck, lost, double, differ := 0, 0, 0, 0, 0, 0
			for ; killed < v.kills; runs++ {
				out := fmt.Sprintf("run%d", runs)
				n, err := v.torment(t, dir, out, r, unbroken, answers, min(8, v.kills-killed))
				if killed += max(1, n); err != nil {
					stuck++
					t.Error(err)
					continue
				}
				got := v.outcome(t, filepath.Join(dir, out))
				for _, name := range slices.Sorted(maps.Keys(want)) {
					switch is, there := got[name]; {
					case name == "twice":
						if is != want[name] {
							double++
							t.Errorf("%s: %s samples came twice", out, is)
						}
					case !there:
						lost++
						t.Errorf("%s: %s is lost", out, name)
					case is != want[name]:
						differ++
						t.Errorf("%s: %s is\n%.600s\nunbroken\n%.600s", out, name, is, want[name])
					}
				}
				for name := range got {
					if _, there := want[name]; !there {
						differ++
						t.Errorf("%s: %s is not in the unbroken run", out, name)
					}
				}
				if os.RemoveAll(filepath.Join(dir, out)) != nil || t.Failed() && runs > 3 {
					break
				}
			}
			total, wrong = total+killed, wrong+stuck+lost+double+differ
			fmt.Printf("torture: %s: %d kills in %d runs, %d runs that could not go on, %d things lost, %d double, %d wrong\n",
				v.name, killed, runs, stuck, lost, double, differ)
		})
	}
	fmt.Printf("torture: kills: %d in all, %d faults\n", total, wrong)
}

// torment starts the work, kills it up to n times, and then lets it end.
func (v *victim) torment(t *testing.T, dir, out string, r *rand.Rand, unbroken time.Duration, answers, n int) (kills int, err error) {
	t.Helper()
	at := filepath.Join(dir, out)
	for {
		args := slices.Concat(v.begin, []string{"--out", out})
		if _, err := os.Stat(filepath.Join(at, "manifest.json")); err == nil && v.again != nil {
			args = slices.Concat(v.again, []string{out})
		} else if _, err := os.Stat(filepath.Join(at, "train.json")); err == nil {
			args = slices.Concat(v.again, []string{"--out", out})
		}
		if kills >= n {
			res := start(t, dir, v.env, args...).end(3 * time.Minute)
			if res.code != 0 && !v.done(at) {
				return kills, fmt.Errorf("after %d kills, ccmed %s: %s", kills, res.commandLine, res.brief())
			}
			return kills, nil
		}
		var fire <-chan time.Time
		reached := make(chan struct{}, 1)
		if v.srv != nil && r.IntN(4) > 0 {
			target := 1 + r.IntN(1+answers/6)
			v.srv.mu.Lock()
			from := v.srv.answers
			v.srv.each = func(k int) {
				if k == from+target {
					reached <- struct{}{}
				}
			}
			v.srv.mu.Unlock()
		} else {
			fire = time.After(time.Duration(r.Int64N(int64(unbroken)/2 + 1)))
		}
		p := start(t, dir, v.env, args...)
		ended := make(chan result, 1)
		go func() { ended <- p.end(2 * time.Minute) }()
		select {
		case <-fire:
			_ = p.Process.Kill()
		case <-reached:
			time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
			_ = p.Process.Kill()
		case res := <-ended:
			ended <- res
		}
		res := <-ended
		switch {
		case res.code == -1 && !res.hung:
			kills++
		case res.code == 0 || v.done(at):
			return kills, nil
		default:
			return kills, fmt.Errorf("after %d kills, ccmed %s: %s", kills, res.commandLine, res.brief())
		}
	}
}

// runOutcome is what a run folder holds, without times: each sample, each prompt, the
// metrics, and every other file that numbers rest on by its hash.
func runOutcome(t *testing.T, out string) map[string]string {
	t.Helper()
	o := map[string]string{}
	samples, twice, err := samplesOf(out)
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range samples {
		o["sample "+k] = encode(timeless(s))
	}
	o["twice"] = fmt.Sprint(twice)
	prompts, err := jsonLines(filepath.Join(out, "prompts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prompts {
		if k := "prompt " + fmt.Sprint(p["hash"]); o[k] == "" {
			o[k] = encode(p)
		} else {
			o["twice"] += ", prompt " + fmt.Sprint(p["hash"])
		}
	}
	if failures, err := jsonLines(filepath.Join(out, "errors.jsonl")); err != nil || len(failures) > 0 {
		t.Errorf("%s: %d errors are noted, %v", out, len(failures), err)
	}
	var metrics, manifest lineOf
	readJSON(t, filepath.Join(out, "metrics.json"), &metrics)
	readJSON(t, filepath.Join(out, "manifest.json"), &manifest)
	o["metrics"] = encode(timeless(metrics))
	o["status"] = fmt.Sprint(manifest["status"], manifest["samples"])
	o["identity"] = encode(manifest["identity"])
	states, _ := filepath.Glob(filepath.Join(out, "*.safetensors"))
	for _, f := range states {
		o["file "+filepath.Base(f)] = fileHash(t, f)
	}
	return o
}

func fileHash(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x, %d bytes", sha256.Sum256(b), len(b))
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// finished reports whether a run folder says that it is done and has its metrics.
func finished(out string) bool {
	b, err := os.ReadFile(filepath.Join(out, "manifest.json"))
	var m struct{ Status string }
	if err != nil || json.Unmarshal(b, &m) != nil {
		return false
	}
	_, err = os.Stat(filepath.Join(out, "metrics.json"))
	return m.Status == "done" && err == nil
}

func timingVictim(t *testing.T, _ string) *victim {
	s := newServer(t)
	s.delay = time.Millisecond
	return &victim{name: "timing", kills: scale(4, 70), srv: s, done: finished, outcome: runOutcome, again: []string{"runs", "resume"},
		begin: []string{"timing", "--model", model, "--host", s.URL, "--data", "sample", "--cache", "off"}}
}

func mediationVictim(t *testing.T, _ string) *victim {
	s := newServer(t)
	s.delay = time.Millisecond
	return &victim{name: "mediation", kills: scale(4, 60), srv: s, done: finished, outcome: runOutcome, again: []string{"runs", "resume"},
		begin: []string{"mediate", "--model", model, "--host", s.URL, "--data", "sample", "--limit", "3", "--card-items", "2", "--cache", "off"}}
}

func mergeVictim(t *testing.T, dir string) *victim {
	s := newServer(t)
	data := records(t, dir, 8)
	for _, shard := range []string{"1", "2"} {
		must(t, dir, "timing", "--model", model, "--host", s.URL, "--data", data, "--cache", "off", "--shard", shard+"/2", "--out", "shard"+shard)
	}
	return &victim{name: "merge", kills: scale(2, 30), done: finished, outcome: runOutcome, begin: []string{"runs", "merge", "shard1", "shard2"},
		again: []string{"runs", "resume"}}
}

func extractionVictim(t *testing.T, _ string) *victim {
	gguf := os.Getenv("CCMED_TEST_MODEL")
	if gguf == "" {
		missing(t, "no test model: CCMED_TEST_MODEL names no GGUF file")
	}
	return &victim{name: "extraction", kills: scale(1, 20), done: finished, outcome: runOutcome, again: []string{"runs", "resume"}, env: engine(t),
		begin: []string{"probe", "extract", "--model", gguf, "--threads", "1", "--data", "sample", "--limit", fmt.Sprint(scale(1, 2)), "--max-tokens", "2", "--cells", "D:own-D,ND:placebo",
			"--cache", "off"}}
}

// engine is the setting that finds the libraries of the engine, where they are installed.
func engine(t *testing.T) []string {
	t.Helper()
	at := os.Getenv("CCMED_CACHE")
	if at == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		at = filepath.Join(user, "ccmed")
	}
	return []string{"CCMED_CACHE=" + at, "YZMA_LIB=" + os.Getenv("YZMA_LIB")}
}

// A trainer that takes twelve steps, saves every third, and goes on from what it saved.
const trainer = `#!/bin/sh
case "$1" in
*environment.py)
	shift
	printf '{"python":"python","version":"3.11.7","packages":{'
	comma=
	for p in "$@"; do
		v='"2.15.0"'
		[ "$p" = bitsandbytes ] && v=null
		printf '%s"%s":%s' "$comma" "$p" "$v"
		comma=,
	done
	printf '},"gpus":[]}\n'
	exit 0
	;;
esac
out=$(dirname "$3")
i=0
if grep -q '"resume": *true' "$3"; then
	for c in "$out"/checkpoints/step-*; do n=${c##*-}; [ "$n" -gt "$i" ] && i=$n; done
fi
printf '{"event":"start","steps":12,"examples":9,"trainable":1000,"device":"cpu","memory_bytes":5}\n'
while [ $i -lt 12 ]; do
	i=$((i + 1))
	sleep 0.02
	printf '{"event":"step","step":%d,"loss":%d.5,"lm":1,"bce":0.5,"lr":0.001,"tokens":100,"tokens_per_second":50,"memory_bytes":1000}\n' $i $((20 - i))
	if [ $((i % 3)) = 0 ]; then
		mkdir -p "$out/checkpoints/step-$i"
		printf '{"event":"checkpoint","step":%d,"path":"c"}\n' $i
	fi
done
printf '{"event":"eval","step":12,"n":20,"turn_acc":0.75,"lm":1.5,"bce":0.25,"threshold":0.4,"threshold_turn_acc":0.8}\n'
mkdir -p "$out/final"
echo trained >"$out/final/model"
printf '{"event":"done","path":"%s/final","steps":12,"seconds":1.5}\n' "$out"
`

func trainingVictim(t *testing.T, dir string) *victim {
	header := `{"w":{"dtype":"F32","shape":[100,10],"data_offsets":[0,0]}}`
	for name, text := range map[string]string{
		"model.safetensors": string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header,
		"config.json":       `{"model_type":"llama","hidden_size":10,"num_hidden_layers":2,"vocab_size":100,"max_position_embeddings":2048}`,
		"tokenizer.json":    `{}`, "chat_template.jinja": "{{ messages }}",
	} {
		write(t, filepath.Join(dir, "base", name), text)
	}
	write(t, filepath.Join(dir, "python"), trainer)
	if err := os.Chmod(filepath.Join(dir, "python"), 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, dir, "sft", "export", "--data", "sample", "--out", "data", "--fraction", "0.25")
	python := filepath.Join(dir, "python")
	status := func(out string) (m lineOf) {
		b, err := os.ReadFile(filepath.Join(out, "train.json"))
		if err != nil || json.Unmarshal(b, &m) != nil {
			return lineOf{}
		}
		return m
	}
	return &victim{name: "training", kills: scale(2, 20),
		done:  func(out string) bool { return status(out)["status"] == "done" },
		begin: []string{"sft", "train", "--python", python, "--base", "base", "--data", "data"},
		again: []string{"sft", "train", "--python", python, "--resume"},
		outcome: func(t *testing.T, out string) map[string]string {
			m := status(out)
			curve, err := os.ReadFile(filepath.Join(out, "loss.csv"))
			if err != nil {
				t.Error(err)
			}
			config := m["config"].(lineOf)
			delete(config, "resume")
			delete(config, "out")
			result, _ := m["result"].(lineOf)
			delete(result, "final")
			return map[string]string{"status": fmt.Sprint(m["status"]), "result": encode(timeless(result)), "config": encode(config), "curve": string(curve),
				"file model": fileHash(t, filepath.Join(out, "final", "model")), "export": fmt.Sprint(m["export_digest"])}
		}}
}

// write makes a file and the folders above it.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
