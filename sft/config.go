package sft

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Methods of training.
const (
	LoRA = "lora" // low-rank adapters of some projections
	Full = "full" // all weights
)

// Config is what the trainer is told: the JSON file that
// scripts/train_dual_head.py reads.
type Config struct {
	Base string `json:"base"` // folder of the Hugging Face checkpoint
	Data string `json:"data"` // folder of the export
	Out  string `json:"out"`  // folder of the run

	Method  string   `json:"method"` // LoRA or Full
	Rank    int      `json:"rank"`
	Alpha   float64  `json:"alpha"` // the adapter is scaled by Alpha/Rank
	Dropout float64  `json:"dropout"`
	Targets []string `json:"targets"` // names of the adapted projections

	LRAdapter float64 `json:"lr_adapter"` // of adapters, or of all weights
	LRHead    float64 `json:"lr_head"`    // of the decision head
	Epochs    float64 `json:"epochs"`
	MaxSteps  int     `json:"max_steps"` // 0 for none
	Batch     int     `json:"batch"`     // sequences at a time
	GradAccum int     `json:"grad_accum"`
	Lambda    float64 `json:"lambda"`     // loss = LM + Lambda·BCE
	PosWeight float64 `json:"pos_weight"` // 0 for negatives/positives of the data
	Seed      int64   `json:"seed"`

	DType         string `json:"dtype"` // "f32" or "bf16"
	LoadIn4Bit    bool   `json:"load_in_4bit"`
	Checkpointing bool   `json:"gradient_checkpointing"` // activations computed again instead of kept
	MaxLength     int    `json:"max_length"`             // in tokens, 0 for the model's context; a longer sequence is refused

	// ReuseTokens gives each marker the row of an unused token; nil adds new ones.
	ReuseTokens map[string]string `json:"reuse_tokens"`

	SaveSteps   int  `json:"save_steps"`   // 0 for none
	SaveSeconds int  `json:"save_seconds"` // 0 for none
	EvalSteps   int  `json:"eval_steps"`   // 0 for each epoch's end only
	Resume      bool `json:"resume"`
	WarmupSteps int  `json:"warmup_steps"`
	Threads     int  `json:"threads"` // 0 for torch's own choice
}

// Presets lists the names of Preset.
var Presets = []string{"llama-3.1-8b", "gemma-2-9b", "phi-3.5-mini", "medium", "small"}

var attention = []string{"q_proj", "k_proj", "v_proj", "o_proj"}

// preset is what all presets share.
var preset = Config{Method: LoRA, Rank: 16, Alpha: 32, Dropout: 0.05, LRAdapter: 2e-4, LRHead: 1e-3, Epochs: 3, Batch: 1, GradAccum: 8, Lambda: 1, Seed: 1,
	DType: "bf16", Checkpointing: true, SaveSteps: 100, SaveSeconds: 1800, WarmupSteps: 10}

// Preset returns settings for a kind of model on a GPU with 24 GB, and for "small"
// (below a billion parameters) on a CPU too.
func Preset(name string) (Config, error) {
	c := preset
	c.Targets = slices.Clone(attention)
	switch name {
	case "llama-3.1-8b", "medium":
	case "gemma-2-9b":
		// 18.5 GB of bf16 weights leave too little for logits over 256,000 tokens.
		c.LoadIn4Bit = true
	case "phi-3.5-mini":
		c.Targets = []string{"qkv_proj", "o_proj"}
	case "small":
		// New marker rows did not train at 2e-4 in a model this small.
		c.Rank, c.Alpha, c.Dropout, c.LRAdapter = 8, 16, 0, 1e-3
		c.DType, c.Checkpointing, c.GradAccum, c.Epochs = "f32", false, 4, 1
	default:
		return c, fmt.Errorf("unknown preset %q; known are %s", name, strings.Join(Presets, ", "))
	}
	return c, nil
}

// PresetFor names the preset of a base model: that of its family, else by size.
func PresetFor(b *Checkpoint) string {
	switch {
	case b.Parameters < 1e9:
		return "small"
	case b.Type == "gemma2" && b.Parameters > 5e9:
		return "gemma-2-9b"
	case b.Type == "phi3":
		return "phi-3.5-mini"
	case b.Type == "llama" && b.Parameters > 5e9:
		return "llama-3.1-8b"
	}
	return "medium"
}

// Check finds values out of range.
func (c Config) Check() error {
	for _, v := range []struct {
		name string
		ok   bool
		must string
	}{
		{"method", c.Method == LoRA || c.Method == Full, "lora or full"},
		{"rank", c.Method == Full || c.Rank >= 1, "at least 1"},
		{"alpha", c.Method == Full || c.Alpha > 0, "above 0"},
		{"dropout", c.Dropout >= 0 && c.Dropout < 1, "at least 0 and below 1"},
		{"targets", c.Method == Full || len(c.Targets) > 0, "at least one projection, such as q_proj"},
		{"lr_adapter", c.LRAdapter > 0 && c.LRAdapter < 1, "above 0 and below 1"},
		{"lr_head", c.LRHead > 0 && c.LRHead < 1, "above 0 and below 1"},
		{"epochs", c.Epochs > 0, "above 0"},
		{"max_steps", c.MaxSteps >= 0, "at least 0"},
		{"batch", c.Batch >= 1, "at least 1"},
		{"grad_accum", c.GradAccum >= 1, "at least 1"},
		{"lambda", c.Lambda >= 0, "at least 0"},
		{"pos_weight", c.PosWeight >= 0, "at least 0"},
		{"dtype", c.DType == "f32" || c.DType == "bf16", "f32 or bf16"},
		{"max_length", c.MaxLength >= 0, "at least 0"},
		{"save_steps", c.SaveSteps >= 0, "at least 0"},
		{"save_seconds", c.SaveSeconds >= 0, "at least 0"},
		{"eval_steps", c.EvalSteps >= 0, "at least 0"},
		{"warmup_steps", c.WarmupSteps >= 0, "at least 0"},
		{"threads", c.Threads >= 0, "at least 0"},
		{"load_in_4bit", !c.LoadIn4Bit || c.Method == LoRA, "off with method full: quantised weights cannot be trained"},
	} {
		if !v.ok {
			return fmt.Errorf("%s must be %s", flagOf(v.name), v.must)
		}
	}
	for _, m := range []string{TurnEnd, Speak, EndSpeak} {
		if c.ReuseTokens != nil && c.ReuseTokens[m] == "" {
			return fmt.Errorf("%s must give a token for each of the three markers", flagOf("reuse_tokens"))
		}
	}
	return nil
}

// flagOf writes a field of the configuration as it is given on the command line.
func flagOf(field string) string { return "--" + strings.ReplaceAll(field, "_", "-") }

// changed lists the settings that differ between two configurations and could
// change a weight, each as "--rank 8, was 16". Where a run lies, how often it
// saves and with how many threads it computes may change.
func (c Config) changed(was Config) []string {
	free := []string{"base", "data", "out", "resume", "save_steps", "save_seconds", "eval_steps", "threads"}
	var out []string
	now, then := reflect.ValueOf(c), reflect.ValueOf(was)
	for i := range now.NumField() {
		name := now.Type().Field(i).Tag.Get("json")
		a, b := now.Field(i).Interface(), then.Field(i).Interface()
		if slices.Contains(free, name) || reflect.DeepEqual(a, b) {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s, was %s", flagOf(name), compact(a), compact(b)))
	}
	return out
}

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// Memory is about what training takes.
type Memory struct {
	Weights     int64 `json:"weights"`     // as loaded
	Training    int64 `json:"training"`    // gradients, optimiser and f32 copies of what is trained
	Activations int64 `json:"activations"` // of one batch of the longest sequences, logits included
	Runtime     int64 `json:"runtime"`     // of torch itself
}

// Total adds the parts up.
func (m Memory) Total() int64 { return m.Weights + m.Training + m.Activations + m.Runtime }

// trained counts the values that training changes, but for marker rows.
func trained(b *Checkpoint, c Config) int64 {
	if c.Method == Full {
		return b.Parameters
	}
	// Two factors of rank x width for each projection; wider ones are few.
	return int64(b.Blocks) * int64(len(c.Targets)) * 2 * int64(c.Rank) * int64(b.Width)
}

// EstimateDisk tells about how many bytes a run folder takes: two checkpoints with
// the optimiser's moments, a third while it is written, and the result, in f32.
func EstimateDisk(b *Checkpoint, c Config) int64 { return trained(b, c) * 4 * (3*3 + 1) }

// EstimateMemory tells about how many bytes training a base takes, for sequences
// of length tokens. A trained value takes its f32 copy, gradient and two moments
// of Adam: 16 bytes. Activations are counted as 34 values a token, block and unit
// of width, or two where blocks are computed again, which brought an estimate of
// 2.8 GB for SmolLM2 with LoRA in f32 at 600 tokens, where 2.6-3 GB were measured;
// logits and their gradient as three f32 values.
func EstimateMemory(b *Checkpoint, c Config, length int) Memory {
	bytes := int64(2)
	if c.DType == "f32" {
		bytes = 4
	}
	m := Memory{Weights: b.Parameters * bytes, Runtime: 500e6}
	if c.LoadIn4Bit {
		// Embeddings stay as they are; a 4-bit block of 64 has a scale of its own.
		embeddings := int64(b.Vocabulary) * int64(b.Width)
		m.Weights = embeddings*bytes + max(0, b.Parameters-embeddings)*9/16
	}
	m.Training = trained(b, c) * 16
	tokens := int64(c.Batch) * int64(length)
	perBlock := int64(34)
	if c.Checkpointing {
		perBlock = 2
	}
	m.Activations = tokens*int64(b.Width)*(perBlock*int64(b.Blocks)+34)*bytes + tokens*int64(b.Vocabulary)*3*4
	return m
}
