package cli

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Reach is what the value of a flag can touch. What may set a flag depends on it:
// a settings file that was merely found, or a run folder that came from elsewhere,
// must start no program, write to no place of its choice and speak to no server
// that the user did not name.
type Reach int

const (
	Plain    Reach = iota + 1 // a number, a word, the name of a model
	Reads                     // a file or folder that is read
	Writes                    // a place to write, or leave to replace what is there
	Contacts                  // a server
	Starts                    // a program
)

// Reaches classifies every flag of every command by its name.
var Reaches = reachOf(map[Reach]string{
	Starts:   "python interpreter",
	Contacts: "host",
	Writes:   "out cache venv force figures choose",
	Reads:    "apply base baselines check claims config data embedder chat-template edit gguf judge labeller lines model package prompts prove-on runs simulator train tuned writer",
	Plain: "alike allow-reload alpha backend base-model base-of batch by card-items cells concurrency condition conditions contexts continue-final controls cosine-margin culture dropout " +
		"domain dry-run dtype edits epochs eval-steps evaluate exclude-seen-contexts first-turn folds format fraction gpu-layers grace grad-accum " +
		"gradient-checkpointing groups help hide-mediator history holdout item json kind labeller-rule lambda later-turns layers lenient licence limit load-in-4bit " +
		"lr-adapter lr-head margin mask-markers max-failures max-length max-steps max-tokens mediation-limit method min-mass mode name no-color " +
		"no-lead-in no-ollama nproc num-ctx patience per-scenario personas pos-weight preset prove-n prove-tokens quantize quiet rank reason-tokens request-timeout resamples resume reuse-tokens " +
		"reverse rubric samples save-seconds save-steps scope section seed seeds set shard shuffles sim-max-tokens sim-temperature since slots sort speed split " +
		"stall-timeout status step strict targets task temperature texts threads threshold threshold-from title turns unpaired unscored variant " +
		"version warmup-steps",
})

func reachOf(names map[Reach]string) map[string]Reach {
	out := map[string]Reach{}
	for r, list := range names {
		for _, n := range strings.Fields(list) {
			out[n] = r
		}
	}
	return out
}

// ReachOf classifies a flag: one of a benchmark's own reads what the benchmark says.
func ReachOf(f *pflag.Flag) Reach {
	if r, ok := Reaches[f.Name]; ok {
		return r
	}
	if _, ok := f.Annotations[task.AnnotationReads]; ok {
		return Reads
	}
	if _, ok := f.Annotations[AnnotationBench]; ok {
		return Plain
	}
	return 0
}

// AnnotationBench marks the flags that a benchmark registers.
const AnnotationBench = "bench"

// Places reports whether a value names a place to write. The cache may be given by a
// word, and leave may be taken back.
func Places(flag, value string) bool {
	switch flag {
	case "cache":
		return value != "off" && value != "force" && value != ""
	case "force":
		return value != "false"
	}
	return true
}

// loopback reports whether a server's address, as --host takes it, is this machine.
func loopback(address string) bool {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// foundMaySet says why a settings file that was merely found in the working folder
// must not set a flag to a value; nil where it may.
func foundMaySet(flag, value string) error {
	why := ""
	switch {
	case Reaches[flag] == Writes && Places(flag, value):
		why = "says where to write"
	case Reaches[flag] == Contacts && !loopback(value):
		why = fmt.Sprintf("names a server outside this machine (%s)", infer.Redact(value))
	default:
		return nil
	}
	return fmt.Errorf("it %s, which a file that is merely found in the working folder must not; give --%s on the command line, or name the file with --config",
		why, flag)
}
