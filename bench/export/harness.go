package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/visible"
	"github.com/ccmed/ccmed/infer"
)

// harnessSample is one line of a samples file, in the layout of
// lm_eval.result_schema.SampleResult.
type harnessSample struct {
	DocID     int               `json:"doc_id"`
	Doc       doc               `json:"doc"`
	Target    string            `json:"target"`
	Arguments map[string]object `json:"arguments"`
	Resps     [][]string        `json:"resps"`
	Filtered  []string          `json:"filtered_resps"`
	Filter    string            `json:"filter"`
	Metrics   []string          `json:"metrics"` // with a value in this sample
	DocHash   string            `json:"doc_hash"`
	PromptSum string            `json:"prompt_hash"`
	TargetSum string            `json:"target_hash"`
	Unscored  *string           `json:"unscored"` // not part of the layout: why a metric is null

	values map[string]*float64 // beside the fields, by metric
}

// doc is the document that a sample is about.
type doc struct {
	Item      string `json:"item"`
	Condition string `json:"condition"`
	Repeat    int    `json:"repeat"`
	Context   string `json:"context"`
	Prompt    string `json:"prompt"`
}

// WriteHarness writes results_DATE.json and a samples_TASK_DATE.jsonl for each
// condition into DIR/MODEL, as `lm_eval --output_path DIR --log_samples` does, beside
// them cautions_DATE.txt where there are any, and returns that folder. Their names carry the start of the run: a file that
// exists is an error of fs.ErrExist unless replace is set.
func (x *Run) WriteHarness(dir string, replace bool) (string, error) {
	model := x.manifest.Identity.Models[x.about.Subject]
	if model.Name == "" {
		model.Backend, model.Name = "none", "none"
	}
	if err := x.scored(Harness); err != nil {
		return "", err
	}
	dir = filepath.Join(dir, sanitized(model.Name))
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		return "", fmt.Errorf("export %s as lm-eval: %s is no folder, and links are not followed; name another --out", x.name, dir)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", fmt.Errorf("export %s as lm-eval: %w", x.name, err)
	}
	date := x.started().UTC().Format("2006-01-02T15-04-05.000000")
	files := map[string][]byte{}
	hashes := map[string]string{}
	for _, condition := range x.conditions() {
		text, hash, err := x.harnessSamples(condition)
		if err != nil {
			return "", fmt.Errorf("export %s as lm-eval: %w", x.name, err)
		}
		name := x.harnessTask(condition)
		hashes[name] = hash
		files[fmt.Sprintf("samples_%s_%s.jsonl", name, date)] = text
	}
	results, err := plainJSON(x.harnessResults(model, hashes), "  ")
	if err != nil {
		return "", fmt.Errorf("export %s as lm-eval: %w", x.name, err)
	}
	files["results_"+date+".json"] = results
	if len(x.table.Cautions) > 0 {
		files["cautions_"+date+".txt"] = []byte(visible.Text(strings.Join(x.table.Cautions, "\n")) + "\n")
	}
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil && !replace {
			return "", fmt.Errorf("export %s as lm-eval: %s: %w", x.name, filepath.Join(dir, name), fs.ErrExist)
		}
	}
	for name, text := range files {
		if err := disk.WriteEntry(filepath.Join(dir, name), text, 0o644); err != nil {
			return "", fmt.Errorf("export %s as lm-eval: %w", x.name, err)
		}
	}
	return dir, nil
}

var unfit = regexp.MustCompile(`["<>:/|\\?*\[\]]+`)

// sanitized is lm_eval.utils.sanitize_model_name, whose result is taken for a
// folder only where it is a name that stays in its folder.
func sanitized(name string) string { return fileName(unfit.ReplaceAllString(name, "__")) }

// plainName matches what is a file's name on every system: no path, nothing hidden,
// no control characters, not too long.
var plainName = regexp.MustCompile(`^[\pL\pN_][\pL\pM\pN_.,;@+=~ ()\[\]{}'&-]*$`)

// longestName is the limit of a name in bytes; file systems allow 255, of which some
// are for what stands before and after it.
const longestName = 120

// fileName returns a name that is plain as it is, and of any other its plain
// characters, with a hash of the whole, so that two names stay two.
func fileName(name string) string {
	if plainName.MatchString(name) && len(name) <= longestName && !strings.HasSuffix(name, ".") && !strings.HasSuffix(name, " ") {
		return name
	}
	kept := strings.Trim(notWord.ReplaceAllString(name, "_"), "_")
	if len(kept) > longestName {
		kept = strings.ToValidUTF8(kept[:longestName], "")
	}
	return strings.TrimPrefix(kept+"_", "_") + hashOf(name)[:8]
}

var notWord = regexp.MustCompile(`[^\pL\pN_]`)

// harnessTask is the task's name for a condition, which is a task of its own.
func (x *Run) harnessTask(condition string) string {
	return fileName(notWord.ReplaceAllString("ccmed_"+x.manifest.Identity.Task+"_"+condition, "_"))
}

// conditions lists the conditions of the rows.
func (x *Run) conditions() []string {
	var out []string
	for _, u := range x.table.Rows {
		if !slices.Contains(out, u.Key.Condition) {
			out = append(out, u.Key.Condition)
		}
	}
	return out
}

// harnessSamples returns the lines of one condition and the hash over them.
func (x *Run) harnessSamples(condition string) (text []byte, hash string, err error) {
	var metrics []string // every line has all of them, so that its type is the same
	for _, u := range x.table.Rows {
		for _, s := range u.Scores {
			if u.Key.Condition == condition && !slices.Contains(metrics, s.Metric) {
				metrics = append(metrics, s.Metric)
			}
		}
	}
	var all strings.Builder
	for _, u := range x.table.Rows {
		if u.Key.Condition != condition {
			continue
		}
		s, err := x.harnessSample(u, metrics, bytes.Count(text, []byte{'\n'}))
		if err != nil {
			return nil, "", err
		}
		all.WriteString(s.DocHash + s.PromptSum + s.TargetSum)
		line, err := s.line(metrics)
		if err != nil {
			return nil, "", err
		}
		text = append(text, line...)
	}
	return text, hashOf(all.String()), nil
}

func (x *Run) harnessSample(u task.Row, metrics []string, number int) (harnessSample, error) {
	prompt := x.prompts[u.Input].text()
	s := harnessSample{DocID: number, Doc: doc{u.Key.Item, u.Key.Condition, u.Key.Repeat, u.Cluster, prompt}, Target: u.Target,
		Arguments: map[string]object{"gen_args_0": {"arg_0": prompt, "arg_1": x.generation()}},
		Resps:     [][]string{{u.Output}}, Filtered: []string{u.Output}, Filter: "none", Metrics: []string{}, values: map[string]*float64{}}
	why := map[string]string{}
	for _, c := range u.Scores {
		if c.Unscored != "" {
			why[c.Metric] = c.Unscored
			continue
		}
		s.Metrics = append(s.Metrics, c.Metric)
		s.values[c.Metric] = &c.Value
	}
	s.Unscored = task.Known(task.Reasons(why, metrics))
	// The harness hashes a document as Python's json.dumps(doc, indent=2) writes it.
	b, err := plainJSON(s.Doc, "  ")
	if err != nil {
		return s, err
	}
	s.DocHash, s.PromptSum, s.TargetSum = hashOf(strings.TrimSuffix(string(b), "\n")), hashOf(prompt), hashOf(u.Target)
	return s, nil
}

// generation tells how the answer was decoded: a choice is the next token.
func (x *Run) generation() object {
	return object{"max_gen_toks": max(1, x.table.MaxTokens), "temperature": x.table.Temperature}
}

// line is the sample with its metrics as fields, null where there is no value.
func (s harnessSample) line(metrics []string) ([]byte, error) {
	b, err := plainJSON(s, "")
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(bytes.TrimSuffix(b, []byte("}\n")))
	for _, m := range metrics {
		v, err := json.Marshal(s.values[m])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, ",%q:%s", m, v)
	}
	out.WriteString("}\n")
	return out.Bytes(), nil
}

// harnessResults has the layout of lm_eval.result_schema.EvalResults.
func (x *Run) harnessResults(model infer.Model, hashes map[string]string) object {
	id := x.manifest.Identity
	results, subtasks, configs, versions := object{}, object{}, object{}, object{}
	shots, higher, counts := object{}, object{}, object{}
	for _, condition := range x.conditions() {
		name := x.harnessTask(condition)
		n, scored := 0, 0
		for _, u := range x.table.Rows {
			if u.Key.Condition == condition {
				n++
				if !slices.ContainsFunc(u.Scores, func(s task.Score) bool { return s.Unscored != "" }) {
					scored++
				}
			}
		}
		r, up, list := object{"name": name, "alias": name, "sample_len": n}, object{}, []object{}
		for _, a := range x.aggregates() {
			if a.condition != condition {
				continue
			}
			up[a.metric] = !a.lower
			list = append(list, object{"metric": a.metric, "aggregation": "mean", "higher_is_better": up[a.metric]})
			if a.scored > 0 {
				r[a.metric+",none"] = a.mean
				if a.stderr != nil {
					r[a.metric+"_stderr,none"] = *a.stderr
				}
			}
		}
		results[name], subtasks[name], versions[name], shots[name], higher[name] = r, []string{}, 1.0, 0, up
		counts[name] = object{"original": n, "effective": scored}
		configs[name] = object{"task": name, "dataset_path": task.DataOf(id), "output_type": "generate_until", "num_fewshot": 0, "repeats": 1,
			"metric_list": list, "metadata": object{"version": 1.0, "data_hash": id.DataHash, "prompts": id.Prompts, "options": id.Options, "cautions": append([]string{}, x.table.Cautions...)}}
	}
	return object{"results": results, "group_subtasks": subtasks, "configs": configs, "versions": versions, "n-shot": shots, "higher_is_better": higher, "n-samples": counts,
		"config": object{"model": model.Backend, "model_args": object{"model": model.Name}, "model_sha": model.Digest, "model_dtype": model.Quantization,
			"batch_size": nil, "device": nil, "use_cache": nil, "limit": nil, "bootstrap_iters": 0, "gen_kwargs": x.generation(),
			"random_seed": id.Seed, "numpy_seed": id.Seed, "torch_seed": id.Seed, "fewshot_seed": id.Seed},
		"date": float64(x.started().UnixMilli()) / 1000, "git_hash": id.Version, "pretty_env_info": "ccmed " + id.Version, "upper_git_hash": nil,
		"task_hashes": hashes, "model_source": model.Backend, "model_name": model.Name, "model_name_sanitized": sanitized(model.Name),
		"system_instruction": nil, "system_instruction_sha": nil, "fewshot_as_multiturn": false, "chat_template": nil, "chat_template_sha": model.TemplateHash,
		"max_length":                    id.NumCtx[x.about.Subject],
		"total_evaluation_time_seconds": fmt.Sprint(x.ended().Sub(x.started()).Seconds())}
}

// plainJSON is JSON in which <, > and & stay what they are.
func plainJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return b.Bytes(), err
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
