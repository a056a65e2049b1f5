package dialogue

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
)

// Names of the splits, as the published folders have them.
const (
	Evaluate = "evaluate"
	Training = "training"
)

// ReadOptions says what is read, and how strictly.
type ReadOptions struct {
	// Lenient leaves records with problems out and reports them, instead of
	// failing.
	Lenient bool
	// Split is Evaluate or Training. Where a folder holds both, "" means
	// Evaluate; records that do not lie in such folders are chosen by their subset,
	// and "" takes them all.
	Split string
}

// Report tells what was read.
type Report struct {
	Read     int // records that can be used
	Problems []Problem
}

// Problem is why a record cannot be used.
type Problem struct {
	File   string // with ":line" in a JSONL file
	Field  string // path in the record, "" for the whole of it
	Value  string // as it is written there, shortened
	What   string
	Remedy string
}

// Error says file, field, value, what is wrong and what to do.
func (p Problem) Error() string {
	s := p.File
	if p.Field != "" {
		s += ": field " + p.Field
	}
	if p.Value != "" {
		s += ": value " + p.Value
	}
	return s + ": " + p.What + "; " + p.Remedy
}

// maxJoined caps the problems that a strict Read puts into its error.
const maxJoined = 10

// Read reads the records at path, sorted by id. The path is a folder of .json
// files of one record each, a folder that holds such folders named evaluate and
// training (or has them in its subfolder data), or a .jsonl file. A record that
// cannot be used is an error, whose message lists the first ten; with
// ReadOptions.Lenient it is left out and reported.
func Read(ctx context.Context, path string, o ReadOptions) ([]Dialogue, Report, error) {
	var rep Report
	if o.Split != "" && o.Split != Evaluate && o.Split != Training {
		return nil, rep, fmt.Errorf("unknown split %q; known are %s and %s", o.Split, Evaluate, Training)
	}
	var ds []Dialogue
	seen := map[int]string{}
	var subset string
	add := func(file string, raw []byte) {
		d, ps := parse(file, raw)
		if subset != "" && len(ps) == 0 && d.Subset != subset {
			return
		}
		if first, ok := seen[d.ID]; ok && len(ps) == 0 {
			ps = append(ps, Problem{file, "scenario_id", d.Key(), "the id is that of " + first + " too", "give every record its own id"})
		}
		if len(ps) > 0 {
			// One a record: the first fault often causes the others.
			rep.Problems = append(rep.Problems, ps[0])
			return
		}
		seen[d.ID] = file
		ds = append(ds, d)
	}
	dir, foldered, err := place(path, o.Split)
	if err != nil {
		return nil, rep, fmt.Errorf("read dialogues: %w", err)
	}
	if !foldered {
		subset = o.Split
	}
	if err := each(ctx, dir, add); err != nil {
		return nil, rep, fmt.Errorf("read dialogues: %w", err)
	}
	if len(ds)+len(rep.Problems) == 0 {
		return nil, rep, fmt.Errorf("read dialogues: %s holds no record of the subset %s", path, subset)
	}
	slices.SortFunc(ds, func(a, b Dialogue) int { return cmp.Compare(a.ID, b.ID) })
	rep.Read = len(ds)
	if !o.Lenient && len(rep.Problems) > 0 {
		var errs []error
		for _, p := range rep.Problems[:min(maxJoined, len(rep.Problems))] {
			errs = append(errs, p)
		}
		if n := len(rep.Problems) - maxJoined; n > 0 {
			errs = append(errs, fmt.Errorf("and %d more", n))
		}
		return nil, rep, errors.Join(errs...)
	}
	return ds, rep, nil
}

// each calls add with every record of a folder or file, in the order of names or
// lines.
func each(ctx context.Context, path string, add func(file string, raw []byte)) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return lines(ctx, path, add)
	}
	files, err := records(path)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s holds no record: expected .json files, a folder %s or %s with such files, or a .jsonl file", path, Evaluate, Training)
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		raw, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		add(f, raw)
	}
	return nil
}

func lines(ctx context.Context, path string, add func(file string, raw []byte)) error {
	if filepath.Ext(path) != ".jsonl" {
		return fmt.Errorf("%s is neither a folder nor a .jsonl file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	n := 0
	for line := 1; ; line++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		raw, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(bytes.TrimSpace(raw)) > 0 {
			n++
			add(fmt.Sprintf("%s:%d", path, line), bytes.TrimSpace(raw))
		}
		if err != nil {
			break
		}
	}
	if n == 0 {
		return fmt.Errorf("%s holds no record", path)
	}
	return nil
}

// records lists a folder's .json files by name.
func records(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) == ".json" && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// Splits returns which of Evaluate and Training the folder holds, in this order;
// none for a folder of records and for a file.
func Splits(path string) ([]string, error) {
	root, err := splitRoot(path)
	if err != nil {
		return nil, fmt.Errorf("look for splits: %w", err)
	}
	return splitsIn(root), nil
}

func splitsIn(root string) []string {
	var found []string
	for _, s := range []string{Evaluate, Training} {
		if info, err := os.Stat(filepath.Join(root, s)); err == nil && info.IsDir() {
			found = append(found, s)
		}
	}
	return found
}

// splitRoot returns the folder that holds the splits: path, or its subfolder
// data, which is where the published repository keeps them.
func splitRoot(path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	if data := filepath.Join(path, "data"); len(splitsIn(path)) == 0 && len(splitsIn(data)) > 0 {
		return data, nil
	}
	return path, nil
}

// place returns where the records of a split lie, and whether a folder of their
// own sets them apart from other splits.
func place(path, split string) (dir string, foldered bool, err error) {
	root, err := splitRoot(path)
	if err != nil {
		return "", false, err
	}
	found := splitsIn(root)
	switch {
	case len(found) == 0:
		return path, false, nil
	case split == "":
		split = found[0]
	case !slices.Contains(found, split):
		return "", false, fmt.Errorf("%s has no folder %s, only %s", root, split, found[0])
	}
	return filepath.Join(root, split), true, nil
}

// The record as it is written. A turn's t is a number or, for mediators, a text.
type record struct {
	ID       *int   `json:"scenario_id"`
	Subset   string `json:"subset"`
	Metadata struct {
		Stage   string `json:"conflict_stage"`
		Turn    int    `json:"conflict_turn"`
		Agent   string `json:"conflict_agent"`
		Context string `json:"scenario_context"`
		Agents  map[string]struct {
			Name        string `json:"name"`
			Age         int    `json:"age"`
			Gender      string `json:"gender"`
			Nationality string `json:"nationality"`
			Occupation  string `json:"occupation"`
		} `json:"agents"`
		Values struct {
			One string `json:"agent_1_value"`
			Two string `json:"agent_2_value"`
		} `json:"cultural_axis"`
		Goals map[string]map[string]string `json:"goals"`
	} `json:"metadata"`
	Prefix        []turnRecord                  `json:"shared_prefix"`
	Continuations map[string]continuationRecord `json:"continuations"`
}

type turnRecord struct {
	T       json.RawMessage `json:"t"`
	Speaker string          `json:"speaker"`
	Agent   string          `json:"agent"`
	Message string          `json:"message"`
	Phase   string          `json:"phase"`
	Label   string          `json:"label"`
}

type continuationRecord struct {
	Turn      int          `json:"intervention_turn"`
	Utterance string       `json:"mediator_utterance"`
	Judge     *int         `json:"judge_score"`
	Turns     []turnRecord `json:"turns"`
	Metrics   struct {
		AUC *float64 `json:"trajectory_auc"`
	} `json:"metrics"`
}

var agentNumber = map[string]int{"agent_1": 1, "agent_2": 2, "mediator": Mediator}

// checker collects what is wrong with one record.
type checker struct {
	file     string
	problems []Problem
}

func (c *checker) add(field string, value any, what, remedy string) {
	v := ""
	if value != nil {
		b, err := json.Marshal(value)
		if err != nil {
			b = fmt.Append(nil, value)
		}
		if v = string(b); len(v) > 60 {
			v = strings.ToValidUTF8(v[:60], "") + "…"
		}
	}
	c.problems = append(c.problems, Problem{c.file, field, v, what, remedy})
}

// parse reads and checks one record.
func parse(file string, raw []byte) (Dialogue, []Problem) {
	c := &checker{file: file}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		var te *json.UnmarshalTypeError
		if errors.As(err, &te) {
			c.add(te.Field, nil, "a JSON "+te.Value+" stands where "+te.Type.String()+" is expected", "mend the field")
		} else {
			c.add("", nil, "not JSON: "+err.Error(), "mend or remove the file; it may be a download that broke off")
		}
		return Dialogue{}, c.problems
	}
	m := r.Metadata
	d := Dialogue{Subset: r.Subset, ConflictTurn: m.Turn, ConflictAgent: agentNumber[m.Agent], Context: m.Context,
		values: [2]string{m.Values.One, m.Values.Two}, raw: slices.Clone(raw)}
	if r.ID == nil {
		c.add("scenario_id", nil, "missing", "give the record a number")
	} else {
		d.ID = *r.ID
	}
	if strings.TrimSpace(m.Context) == "" {
		c.add("metadata.scenario_context", nil, "missing", "write the scene in a sentence; dialogues are grouped by it")
	}
	for i, name := range []string{"agent_1", "agent_2"} {
		a := m.Agents[name]
		d.agents[i] = agent{a.Name, a.Gender, a.Nationality, a.Occupation, a.Age}
		for _, k := range slices.Sorted(maps.Keys(m.Goals[name])) {
			d.goals[i] = append(d.goals[i], m.Goals[name][k])
		}
	}
	var err error
	if d.Stage, err = dmis.ParseStage(m.Stage); err != nil {
		c.add("metadata.conflict_stage", m.Stage, "unknown stage", "use a DMIS stage, such as Denial, Defense or Minimization")
	}
	if len(r.Prefix) == 0 {
		c.add("shared_prefix", nil, "no turns", "the conversation up to the conflict belongs here")
	}
	original, ok := r.Continuations["original"]
	if !ok {
		c.add("continuations.original", nil, "missing", "the conversation after the conflict belongs here; its turns may be empty")
	}
	d.prefix = c.turns("shared_prefix", r.Prefix, 1, &d)
	d.original = c.turns("continuations.original.turns", original.Turns, len(r.Prefix)+1, &d)
	d.positive = c.continuation("positive", r, &d)
	d.negative = c.continuation("negative", r, &d)
	switch agent := d.ConflictAgent; {
	case agent != 1 && agent != 2:
		c.add("metadata.conflict_agent", m.Agent, "unknown agent", "use agent_1 or agent_2")
	case len(r.Prefix) == 0:
	case m.Turn < 1 || m.Turn > len(r.Prefix):
		c.add("metadata.conflict_turn", m.Turn, fmt.Sprintf("outside the shared prefix (1 to %d)", len(r.Prefix)), "give the turn in which the conflict breaks out")
	case m.Turn < len(r.Prefix):
		c.add("metadata.conflict_turn", m.Turn, fmt.Sprintf("the shared prefix goes on to turn %d", len(r.Prefix)), "end the prefix with the conflict; what follows belongs to the continuations")
	case len(c.problems) == 0 && d.prefix[m.Turn-1].Agent != agent:
		c.add("metadata.conflict_agent", m.Agent, fmt.Sprintf("turn %d is spoken by agent_%d", m.Turn, d.prefix[m.Turn-1].Agent), "make both agree")
	}
	return d, c.problems
}

func (c *checker) continuation(kind string, r record, d *Dialogue) *continuation {
	in, ok := r.Continuations[kind]
	if !ok {
		return nil
	}
	return &continuation{utterance: in.Utterance, turn: in.Turn, judge: in.Judge, auc: in.Metrics.AUC,
		turns: c.turns("continuations."+kind+".turns", in.Turns, len(r.Prefix)+1, d)}
}

// turns checks turns that must run from first without a gap, mediators' left
// out, and resolves who speaks.
func (c *checker) turns(field string, in []turnRecord, first int, d *Dialogue) []Turn {
	out := make([]Turn, 0, len(in))
	for i, t := range in {
		at := func(name string) string { return fmt.Sprintf("%s[%d].%s", field, i, name) }
		agent, known := agentNumber[t.Agent]
		switch {
		case !known || agent == Mediator && field == "shared_prefix":
			c.add(at("agent"), t.Agent, "unknown agent", "use agent_1 or agent_2")
			return nil
		case agent == Mediator:
			continue
		}
		want := first + len(out)
		if strings.TrimSpace(string(t.T)) != fmt.Sprint(want) {
			c.add(at("t"), t.T, fmt.Sprintf("turns run from %d without a gap: %d is expected here", first, want), "number and order the turns")
			return nil
		}
		if strings.TrimSpace(t.Message) == "" {
			c.add(at("message"), t.Message, "empty", "every turn needs its text")
			return nil
		}
		speaker := d.Name(agent)
		if speaker == "" {
			speaker = t.Speaker
		}
		out = append(out, Turn{T: want, Speaker: speaker, Agent: agent, Message: t.Message, Label: t.Label, Phase: t.Phase})
	}
	return out
}
