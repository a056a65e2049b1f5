package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// Statuses of a run and of its sessions. A run that was killed stays started.
const (
	StatusStarted     = "started"
	StatusDone        = "done"
	StatusInterrupted = "interrupted"
	StatusFailed      = "failed"
)

// Manifest says what a run is and how it went.
type Manifest struct {
	Schema   int      `json:"schema"`
	Path     string   `json:"-"` // absolute, of the directory that it was read from
	Status   string   `json:"status" jsonschema:"enum=started,enum=done,enum=interrupted,enum=failed"`
	Identity Identity `json:"identity"`
	// IdentityHash is that of the identity as JSON, "sha256:…", so that a change by
	// hand shows.
	IdentityHash string `json:"identity_sha256" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	// Samples and SamplesHash describe samples.jsonl as the last session left it.
	Samples     int    `json:"samples" jsonschema:"minimum=0"`
	SamplesHash string `json:"samples_sha256,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	// Files are the checksums of prompts.jsonl and errors.jsonl, by name. Older
	// manifests have none.
	Files    map[string]FileSum `json:"files,omitempty"`
	Merged   []string           `json:"merged,omitempty"` // the shards that the run was merged from
	Sessions []Session          `json:"sessions"`
}

// LastSummary returns the summary of the last session that has one.
func (m Manifest) LastSummary() (Summary, bool) {
	for _, s := range slices.Backward(m.Sessions) {
		if s.Summary != nil {
			return *s.Summary, true
		}
	}
	return Summary{}, false
}

// Identity is everything that could change a number of a run. A run can only be
// resumed with an equal one.
type Identity struct {
	Task    string `json:"task"`
	Version string `json:"version"` // of the tool, with its commit
	// Models are by role. The server's version is part of a session, not of the
	// identity, and is moved there.
	Models  map[string]infer.Model `json:"models,omitempty"`
	NumCtx  map[string]int         `json:"num_ctx,omitempty"` // tokens of context, by role
	Options map[string]any         `json:"options,omitempty"` // every effective option
	Seed    int64                  `json:"seed"`
	Prompts map[string]string      `json:"prompts,omitempty"` // hashes of the prompt templates, by name
	// DataHash identifies the data, Items are the keys of the items used.
	DataHash string   `json:"data_hash,omitempty"`
	Items    []string `json:"items,omitempty"`
	// Others are items of other records that have samples too, such as those of a card.
	Others []string `json:"other_items,omitempty"`
	// ItemsHash is the SHA-256 of the item list; it is computed, not given.
	ItemsHash string `json:"items_hash,omitempty"`
	Parent    string `json:"parent,omitempty"` // the run that this one is made from
	Shard     string `json:"shard,omitempty"`  // "i/n"
}

// ModelNames are the names of the models, each once, in the order of their roles.
func (id Identity) ModelNames() string {
	var names []string
	for _, r := range slices.Sorted(maps.Keys(id.Models)) {
		if n := id.Models[r].Name; !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

// Session is one start of a run.
type Session struct {
	Start   time.Time `json:"start"`
	End     time.Time `json:"end,omitzero"`
	Status  string    `json:"status" jsonschema:"enum=started,enum=done,enum=interrupted,enum=failed"`
	Command []string  `json:"command,omitempty"` // arguments of the tool
	Dir     string    `json:"dir,omitempty"`     // working directory
	// Seal tells the user who started the session, and nobody else, that Command and
	// Dir are as they were written.
	Seal        string      `json:"seal,omitempty"`
	Environment Environment `json:"environment"`
	// ModelChanged are the models that were replaced while the session ran.
	ModelChanged []ModelChange `json:"model_changed,omitempty"`
	Summary      *Summary      `json:"summary,omitempty"`
}

// Environment is where a session ran. A change of it is worth a warning.
type Environment struct {
	Host    string            `json:"host"`
	OS      string            `json:"os"` // as "linux/amd64"
	Go      string            `json:"go"`
	CPUs    int               `json:"cpus"`
	GPUs    []string          `json:"gpus,omitempty"`    // names and memory, from nvidia-smi
	Driver  string            `json:"driver,omitempty"`  // of the GPUs
	Servers map[string]string `json:"servers,omitempty"` // server or library version, by role
}

// canonical returns the identity as it reads back from disk, and the server
// versions that were in it.
func (id Identity) canonical() (Identity, map[string]string, error) {
	servers := map[string]string{}
	models := make(map[string]infer.Model, len(id.Models))
	for role, m := range id.Models {
		if m.Server != "" {
			servers[role] = m.Server
		}
		m.Server = ""
		models[role] = m
	}
	id.Models, id.ItemsHash = models, ""
	if len(id.Items) > 0 {
		sum := sha256.Sum256([]byte(strings.Join(id.Items, "\n")))
		id.ItemsHash = "sha256:" + hex.EncodeToString(sum[:])
	}
	b, err := json.Marshal(id)
	if err != nil {
		return id, nil, fmt.Errorf("encode the run's identity: %w", err)
	}
	var out Identity
	if err := json.Unmarshal(b, &out); err != nil {
		return id, nil, fmt.Errorf("encode the run's identity: %w", err)
	}
	return out, servers, nil
}

// hash identifies a canonical identity by its JSON without spaces.
func (id Identity) hash() (string, error) {
	b, err := encodeLine(id)
	if err != nil {
		return "", fmt.Errorf("encode the run's identity: %w", err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(b, []byte("\n")))
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// FieldDifference is a field in which two identities differ, with both values as
// JSON, cut to what fits a sentence; a value that is not there is "absent".
type FieldDifference struct{ Field, A, B string }

// Differences lists the fields in which the identity differs from another, by their
// dotted paths, such as "options.first_turn".
func (id Identity) Differences(other Identity) ([]FieldDifference, error) {
	a, err := flatten(id)
	if err != nil {
		return nil, err
	}
	b, err := flatten(other)
	if err != nil {
		return nil, err
	}
	fields := map[string]bool{}
	for f := range a {
		fields[f] = true
	}
	for f := range b {
		fields[f] = true
	}
	var out []FieldDifference
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		if a[f] == b[f] || f == "items_hash" {
			continue
		}
		x, y := a[f], b[f]
		if f == "items" {
			x, y = fmt.Sprintf("%d items", len(id.Items)), fmt.Sprintf("%d items", len(other.Items))
			if x == y {
				y = "other ones"
			}
		}
		out = append(out, FieldDifference{f, brief(x), brief(y)})
	}
	return out, nil
}

// differences names the fields in which two canonical identities differ, with
// both values.
func differences(there, now Identity) ([]string, error) {
	ds, err := there.Differences(now)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range ds {
		out = append(out, fmt.Sprintf("%s (was %s, is %s)", d.Field, d.A, d.B))
	}
	return out, nil
}

func brief(s string) string {
	if s == "" {
		return "absent"
	}
	if r := []rune(s); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return s
}

// flatten gives every leaf of v's JSON form by its dotted path; a list is a leaf.
func flatten(v any) (map[string]string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the run's identity: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // large seeds must not pass through float64
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("encode the run's identity: %w", err)
	}
	out := map[string]string{}
	var walk func(path string, v any) error
	walk = func(path string, v any) error {
		if m, ok := v.(map[string]any); ok {
			for k, x := range m {
				p := k
				if path != "" {
					p = path + "." + k
				}
				if err := walk(p, x); err != nil {
					return err
				}
			}
			return nil
		}
		leaf, err := json.Marshal(v)
		if err != nil {
			return err
		}
		out[path] = string(leaf)
		return nil
	}
	return out, walk("", tree)
}

// environment describes this machine.
func environment(servers map[string]string) Environment {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	e := Environment{Host: host, OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), CPUs: runtime.NumCPU(), Servers: servers}
	e.GPUs, e.Driver = gpus()
	return e
}

// gpus asks nvidia-smi, where there is one, and waits at most three seconds for
// it: a wedged driver must not hold up a run.
func gpus() (names []string, driver string) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=driver_version,name,memory.total", "--format=csv,noheader")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, ""
	}
	for line := range strings.Lines(string(out)) {
		if d, name, ok := strings.Cut(strings.TrimSpace(line), ", "); ok {
			driver, names = d, append(names, name)
		}
	}
	return names, driver
}

// changes says in what this environment differs from the one before.
func (e Environment) changes(before Environment) []string {
	var out []string
	add := func(what, was, is string) {
		if was != is {
			out = append(out, fmt.Sprintf("%s changed since the last session: was %s, is %s", what, brief(was), brief(is)))
		}
	}
	add("host", before.Host, e.Host)
	add("system", before.OS, e.OS)
	add("Go version", before.Go, e.Go)
	add("number of CPUs", strconv.Itoa(before.CPUs), strconv.Itoa(e.CPUs))
	add("GPU", strings.Join(before.GPUs, "; "), strings.Join(e.GPUs, "; "))
	add("GPU driver", before.Driver, e.Driver)
	var roles []string
	for r := range before.Servers {
		roles = append(roles, r)
	}
	for r := range e.Servers {
		if _, ok := before.Servers[r]; !ok {
			roles = append(roles, r)
		}
	}
	slices.Sort(roles)
	for _, r := range roles {
		add("server version of the "+r, before.Servers[r], e.Servers[r])
	}
	return out
}
