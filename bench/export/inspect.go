package export

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// What follows is the part of Inspect's log (inspect_ai.log.EvalLog, version 2)
// that a run fills. Inspect reads what is left out as its defaults.

type object = map[string]any

type evalLog struct {
	Version int          `json:"version"`
	Status  string       `json:"status"`
	Eval    object       `json:"eval"`
	Plan    object       `json:"plan"`
	Results evalResults  `json:"results"`
	Stats   evalStats    `json:"stats"`
	Samples []evalSample `json:"samples,omitempty"`
}

type evalResults struct {
	Total     int         `json:"total_samples"`
	Completed int         `json:"completed_samples"`
	Scores    []evalScore `json:"scores"`
}

type evalScore struct {
	Name     string                `json:"name"`
	Scorer   string                `json:"scorer"`
	Scored   int                   `json:"scored_samples"`
	Unscored int                   `json:"unscored_samples"`
	Params   object                `json:"params"`
	Metrics  map[string]evalMetric `json:"metrics"`
}

type evalMetric struct {
	Name   string  `json:"name"`
	Group  string  `json:"group,omitempty"`
	Value  float64 `json:"value"`
	Params object  `json:"params"`
}

type evalStats struct {
	Started   string                `json:"started_at"`
	Completed string                `json:"completed_at"`
	Usage     map[string]modelUsage `json:"model_usage"`
	Roles     map[string]modelUsage `json:"role_usage"`
}

type modelUsage struct {
	Input     int `json:"input_tokens"` // without those from a prefix cache
	Output    int `json:"output_tokens"`
	Total     int `json:"total_tokens"`
	CacheRead int `json:"input_tokens_cache_read"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Source  string `json:"source,omitempty"`
	Model   string `json:"model,omitempty"`
}

type evalSample struct {
	ID       string                `json:"id"`
	Epoch    int                   `json:"epoch"`
	UUID     string                `json:"uuid"`
	Input    any                   `json:"input"` // a text or chat messages
	Target   string                `json:"target"`
	Messages []chatMessage         `json:"messages"`
	Output   object                `json:"output"`
	Scores   map[string]any        `json:"scores"`
	Metadata object                `json:"metadata"`
	Usage    map[string]modelUsage `json:"model_usage"`
	Roles    map[string]modelUsage `json:"role_usage"`
	Seconds  float64               `json:"total_time"`
	Events   []modelEvent          `json:"events"`
}

// modelEvent is one question to a model.
type modelEvent struct {
	UUID       string        `json:"uuid"`
	Timestamp  string        `json:"timestamp"` // the start of the run: questions have no time of their own
	Working    float64       `json:"working_start"`
	Event      string        `json:"event"`
	Model      string        `json:"model"`
	Role       string        `json:"role,omitempty"`
	Input      []chatMessage `json:"input"`
	Tools      []object      `json:"tools"`
	ToolChoice string        `json:"tool_choice"`
	Config     object        `json:"config"`
	Output     object        `json:"output"`
	Metadata   object        `json:"metadata"`
}

// Inspect keeps a sample without a usable answer by the value NaN, which its
// metrics leave out. JSON has no such number: unscoredValue stands in for it and
// is replaced in the text. No text of a model can look like it, for quotes inside
// a JSON string are escaped.
const unscoredValue = "\x00"

var (
	standIn = []byte(`"value":"\u0000"`)
	nan     = []byte(`"value":NaN`)
)

func encodeInspect(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(b.Bytes(), standIn, nan), nil
}

// writeInspect writes the log in Inspect's JSON form.
func (x *Run) writeInspect(w io.Writer) error {
	log, err := x.inspect()
	if err != nil {
		return err
	}
	b, err := encodeInspect(log)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// WriteEval writes the log in Inspect's compact form, the zip archive that has
// the ending .eval: the header and each sample in a file of its own.
func (x *Run) WriteEval(w io.Writer) error {
	if err := x.scored(Inspect); err != nil {
		return err
	}
	log, err := x.inspect()
	if err != nil {
		return fmt.Errorf("export %s as an .eval archive: %w", x.name, err)
	}
	z := zip.NewWriter(w)
	add := func(name string, v any) error {
		b, err := encodeInspect(v)
		if err != nil {
			return err
		}
		f, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: x.started()})
		if err != nil {
			return err
		}
		_, err = f.Write(b)
		return err
	}
	samples := log.Samples
	log.Samples = nil
	summaries := make([]object, len(samples))
	for i, s := range samples {
		if err := add(fmt.Sprintf("samples/%s_epoch_%d.json", s.ID, s.Epoch), s); err != nil {
			return fmt.Errorf("export %s as an .eval archive: %w", x.name, err)
		}
		summaries[i] = object{"id": s.ID, "epoch": s.Epoch, "uuid": s.UUID, "input": s.Input, "target": s.Target, "metadata": s.Metadata, "scores": s.Scores,
			"model_usage": s.Usage, "role_usage": s.Roles, "total_time": s.Seconds, "completed": true, "message_count": len(s.Messages)}
	}
	start := object{"version": log.Version, "eval": log.Eval, "plan": log.Plan}
	for _, f := range []struct {
		name string
		v    any
	}{{"_journal/start.json", start}, {"summaries.json", summaries}, {"header.json", log}} {
		if err := add(f.name, f.v); err != nil {
			return fmt.Errorf("export %s as an .eval archive: %w", x.name, err)
		}
	}
	return z.Close()
}

// LogName is the name that Inspect would give the log: the start of the run, the
// task and an identifier. Inspect lists logs that end in .eval under any name, and
// those that end in .json under such a name only.
func (x *Run) LogName(extension string) string {
	return fmt.Sprintf("%s_ccmed-%s_%s%s", strings.ReplaceAll(stamp(x.started()), ":", "-"), x.manifest.Identity.Task, short(x.name, "task"), extension)
}

func (x *Run) inspect() (evalLog, error) {
	id := x.manifest.Identity
	status := map[string]string{run.StatusDone: "success", run.StatusInterrupted: "cancelled", run.StatusFailed: "error"}[x.manifest.Status]
	log := evalLog{Version: 2, Status: cmp.Or(status, "started"), Plan: object{"name": "plan", "steps": []object{{"solver": "ccmed/" + id.Task, "params": object{}}}},
		Results: evalResults{Total: len(x.table.Rows), Completed: len(x.table.Rows), Scores: x.evalScores()},
		Stats:   evalStats{Started: stamp(x.started()), Completed: stamp(x.ended()), Usage: map[string]modelUsage{}, Roles: map[string]modelUsage{}}}
	epochs := 1
	ids := make([]string, 0, len(x.table.Rows))
	for i := range x.table.Rows {
		s, err := x.evalSample(i)
		if err != nil {
			return log, err
		}
		log.Samples = append(log.Samples, s)
		if epochs = max(epochs, s.Epoch); !slices.Contains(ids, s.ID) {
			ids = append(ids, s.ID)
		}
	}
	for _, u := range x.table.Rows {
		x.spend(u.Steps, log.Stats.Usage, log.Stats.Roles)
	}
	x.spend(x.table.Rest, log.Stats.Usage, log.Stats.Roles)
	data := task.DataOf(id)
	roles := object{}
	for _, r := range slices.Sorted(maps.Keys(id.Models)) {
		roles[r] = object{"model": modelName(id.Models[r]), "config": object{}, "args": object{"digest": id.Models[r].Digest, "quantization": id.Models[r].Quantization, "num_ctx": id.NumCtx[r]}}
	}
	log.Eval = object{"eval_id": short(x.manifest.SamplesHash, "eval"), "run_id": short(x.name, "run"), "task_id": short(x.name, "task"),
		"created": stamp(x.started()), "task": "ccmed_" + id.Task, "task_version": run.SampleSchema, "task_args": id.Options,
		"solver": "ccmed/" + id.Task, "model": x.mainModel(), "model_generate_config": object{"seed": id.Seed}, "model_args": object{}, "model_roles": roles,
		"dataset": object{"name": filepath.Base(data), "location": data, "samples": len(ids), "sample_ids": ids, "shuffled": false},
		"config":  object{"epochs": epochs}, "packages": object{"ccmed": id.Version},
		"metadata": object{"run": x.name, "data_hash": id.DataHash, "items_hash": id.ItemsHash, "prompt_templates": id.Prompts, "samples_sha256": x.manifest.SamplesHash, "cautions": append([]string{}, x.table.Cautions...)},
		"scorers":  x.scorers()}
	return log, nil
}

func (x *Run) started() time.Time {
	if len(x.manifest.Sessions) == 0 {
		return time.Time{}
	}
	return x.manifest.Sessions[0].Start
}

// ended is the end of the last session, or its start when it was killed.
func (x *Run) ended() time.Time {
	if n := len(x.manifest.Sessions); n > 0 {
		last := x.manifest.Sessions[n-1]
		if last.End.IsZero() {
			return last.Start
		}
		return last.End
	}
	return time.Time{}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05+00:00") }

// short is an identifier that stays the same when a run is exported again.
func short(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%s\n", p)
	}
	return hex.EncodeToString(h.Sum(nil)[:11])
}

// modelName is provider/name, as Inspect writes models.
func modelName(m infer.Model) string { return m.Backend + "/" + m.Name }

// mainModel is the model that the run is about; Inspect has a name for none, as
// where lines made elsewhere are scored.
func (x *Run) mainModel() string {
	if m, ok := x.manifest.Identity.Models[x.about.Subject]; ok {
		return modelName(m)
	}
	return "none/none"
}

// mean is the name of the aggregate.
func (a aggregate) meanName() string {
	if a.binary {
		return "accuracy"
	}
	return "mean"
}

// evalScores gives each metric's mean and standard error by condition. With more
// than one condition there is no mean over all of them, for it would say nothing.
func (x *Run) evalScores() []evalScore {
	aggregates := x.aggregates()
	conditions := map[string]bool{}
	for _, a := range aggregates {
		conditions[a.condition] = true
	}
	var out []evalScore
	for _, a := range aggregates {
		i := slices.IndexFunc(out, func(s evalScore) bool { return s.Name == a.metric })
		if i < 0 {
			i = len(out)
			out = append(out, evalScore{Name: a.metric, Scorer: a.metric, Params: object{}, Metrics: map[string]evalMetric{}})
		}
		s := &out[i]
		s.Scored, s.Unscored = s.Scored+a.scored, s.Unscored+a.unscored
		if a.scored == 0 {
			continue
		}
		cluster := object{"cluster": "context"}
		if len(conditions) == 1 {
			s.Metrics[a.meanName()] = evalMetric{Name: a.meanName(), Value: a.mean, Params: object{}}
			if a.stderr != nil {
				s.Metrics["stderr"] = evalMetric{Name: "stderr", Value: *a.stderr, Params: cluster}
			}
			continue
		}
		s.Metrics[a.condition] = evalMetric{Name: a.condition, Group: a.meanName(), Value: a.mean, Params: object{}}
		if a.stderr != nil {
			s.Metrics[a.condition+"_stderr"] = evalMetric{Name: a.condition, Group: "stderr", Value: *a.stderr, Params: cluster}
		}
	}
	return out
}

func (x *Run) scorers() []object {
	var out []object
	var seen []string
	for _, a := range x.aggregates() {
		if !slices.Contains(seen, a.metric) {
			seen = append(seen, a.metric)
			out = append(out, object{"name": a.metric, "metrics": []object{{"name": a.meanName()}, {"name": "stderr", "options": object{"cluster": "context"}}}})
		}
	}
	return out
}

// sampleID names a unit within the log, and in an archive the sample's file. Conditions are samples of
// their own.
func (x *Run) sampleID(k run.Key) string {
	if x.single {
		return fileName(k.Item)
	}
	return fileName(k.Item + " " + k.Condition)
}

func (x *Run) evalSample(i int) (evalSample, error) {
	u := x.table.Rows[i]
	s := evalSample{ID: x.sampleID(u.Key), Epoch: u.Key.Repeat + 1, UUID: short(x.name, u.Key.String()), Target: u.Target, Scores: map[string]any{},
		Usage: map[string]modelUsage{}, Roles: map[string]modelUsage{}, Messages: []chatMessage{}}
	usage, seconds := task.Cost(u.Steps)
	s.Seconds = seconds
	x.spend(u.Steps, s.Usage, s.Roles)
	s.Input = ""
	if asked := x.messages(u.Input); asked != nil {
		s.Input, s.Messages = asked, asked
	}
	model := x.mainModel()
	s.Output = x.output(model, u.Said, u.Stop)
	if u.Said != "" {
		s.Messages = append(slices.Clip(s.Messages), x.said(model, u.Said))
	}
	s.Output["usage"], s.Output["time"] = newUsage(usage), s.Seconds
	for i, q := range u.Asked {
		s.Events = append(s.Events, x.event(fmt.Sprint(s.UUID, i), q))
	}
	for _, c := range u.Scores {
		v := object{"value": any(c.Value), "answer": u.Output, "explanation": c.Explanation}
		switch {
		case c.Unscored != "":
			v = object{"value": unscoredValue, "answer": u.Output, "explanation": c.Unscored, "reason": c.Unscored}
		case c.Binary && c.Value == 1:
			v["value"] = "C"
		case c.Binary:
			v["value"] = "I"
		}
		s.Scores[c.Metric] = v
	}
	b, err := json.Marshal(u.Value)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s.Metadata); err != nil {
		return s, err
	}
	delete(s.Metadata, "prompt") // it is the input
	for _, c := range u.Scores {
		delete(s.Metadata, c.Metric)
	}
	return s, nil
}

// messages are a prompt as chat messages, system and user apart where the run tells them
// apart; nil for no prompt.
func (x *Run) messages(hash string) (out []chatMessage) {
	q, ok := x.prompts[hash]
	if !ok {
		return nil
	}
	for _, m := range run.Asked(q).Sent() {
		out = append(out, chatMessage{Role: m.Role, Content: m.Content, Source: "input"})
	}
	if out == nil {
		out = []chatMessage{{Role: infer.User, Content: q.text(), Source: "input"}}
	}
	return out
}

// said is what a model wrote.
func (x *Run) said(model, text string) chatMessage {
	return chatMessage{Role: infer.Assistant, Content: text, Source: "generate", Model: model}
}

// output is what came of a question; one that was asked for probabilities has no choice,
// since nothing was said.
func (x *Run) output(model, said, stop string) object {
	choices := []object{}
	if said != "" {
		choices = append(choices, object{"message": x.said(model, said), "stop_reason": cmp.Or(stopReasons[stop], "unknown")})
	}
	return object{"model": model, "choices": choices, "completion": said}
}

// event is one question as Inspect keeps calls of models. Probabilities stand in its
// metadata.
func (x *Run) event(id string, q task.Asked) modelEvent {
	model := "none/none"
	if m, ok := x.manifest.Identity.Models[q.Role]; ok {
		model = modelName(m)
	}
	e := modelEvent{UUID: short(x.name, id), Timestamp: stamp(x.started()), Event: "model", Model: model, Role: q.Role, Input: x.messages(q.Prompt), Tools: []object{}, ToolChoice: "none",
		Config: object{}, Output: x.output(model, q.Said, q.Stop), Metadata: object{"about": q.About}}
	if e.Input == nil {
		e.Input = []chatMessage{}
	}
	if q.P != nil {
		e.Metadata["probabilities"], e.Metadata["mass"] = q.P, q.Mass
		if len(q.Top) > 0 {
			e.Metadata["top_logprobs"] = q.Top
		}
	}
	if q.Unscored != "" {
		e.Metadata["unscored"] = q.Unscored
	}
	return e
}

// spend adds what samples cost to the usage of models and of roles.
func (x *Run) spend(steps []run.Sample, models, roles map[string]modelUsage) {
	for _, s := range steps {
		role, ok := x.about.Roles[s.Step]
		m, known := x.manifest.Identity.Models[role]
		if !ok || !known || s.Usage == (infer.Usage{}) {
			continue
		}
		models[modelName(m)] = models[modelName(m)].add(newUsage(s.Usage))
		roles[role] = roles[role].add(newUsage(s.Usage))
	}
}

func newUsage(u infer.Usage) modelUsage {
	return modelUsage{u.Evaluated, u.Generated, u.Evaluated + u.Generated + u.Cached, u.Cached}
}

func (u modelUsage) add(v modelUsage) modelUsage {
	return modelUsage{u.Input + v.Input, u.Output + v.Output, u.Total + v.Total, u.CacheRead + v.CacheRead}
}
