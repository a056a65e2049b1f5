package sft

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

// Published sizes of the models that the presets are for.
var (
	llama  = &Checkpoint{Type: "llama", Parameters: 8_030_261_248, Width: 4096, Blocks: 32, Vocabulary: 128_256}
	gemma  = &Checkpoint{Type: "gemma2", Parameters: 9_241_705_984, Width: 3584, Blocks: 42, Vocabulary: 256_000}
	phi    = &Checkpoint{Type: "phi3", Parameters: 3_821_079_552, Width: 3072, Blocks: 32, Vocabulary: 32_064}
	smollm = &Checkpoint{Type: "llama", Parameters: 134_515_008, Width: 576, Blocks: 30, Vocabulary: 49_152}
)

func TestPresets(t *testing.T) {
	for want, b := range map[string]*Checkpoint{"llama-3.1-8b": llama, "gemma-2-9b": gemma, "phi-3.5-mini": phi, "small": smollm,
		"medium": {Type: "qwen2", Parameters: 3e9}} {
		if got := PresetFor(b); got != want {
			t.Errorf("%s %g: preset %s, want %s", b.Type, float64(b.Parameters), got, want)
		}
	}
	for _, name := range Presets {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Check(); err != nil {
			t.Errorf("preset %s: %v", name, err)
		}
	}
	if _, err := Preset("huge"); err == nil || !strings.Contains(err.Error(), "llama-3.1-8b") {
		t.Errorf("an unknown preset: %v", err)
	}
	// A preset is the caller's own.
	a, _ := Preset("small")
	a.Targets[0] = "x"
	if b, _ := Preset("small"); b.Targets[0] == "x" {
		t.Error("presets share their targets")
	}
}

// TestMemoryEstimate holds the estimate against what was measured for SmolLM2 with
// LoRA of rank 8 in f32 at 600 tokens: 2.6-3 GB, and 1.9 GB with blocks computed
// again; and the presets for 24 GB against that.
func TestMemoryEstimate(t *testing.T) {
	small, err := Preset("small")
	if err != nil {
		t.Fatal(err)
	}
	whole := EstimateMemory(smollm, small, 600).Total()
	small.Checkpointing = true
	again := EstimateMemory(smollm, small, 600).Total()
	if whole < 2.3e9 || whole > 3.3e9 || again < 1.2e9 || again > 2.2e9 {
		t.Errorf("SmolLM2: %.2f GB, %.2f with blocks computed again", float64(whole)/1e9, float64(again)/1e9)
	}
	for name, b := range map[string]*Checkpoint{"llama-3.1-8b": llama, "gemma-2-9b": gemma, "phi-3.5-mini": phi} {
		c, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		// 24 GiB, of which a desktop may hold some, at the longest dialogue of the data.
		if m := EstimateMemory(b, c, 1100); m.Total() > 23e9 {
			t.Errorf("%s: %.1f GB (%+v)", name, float64(m.Total())/1e9, m)
		}
	}
	full := Config{Method: Full, DType: "f32", Batch: 1}
	if m := EstimateMemory(llama, full, 600); m.Total() < 8.03e9*20 {
		t.Errorf("full fine-tuning of 8 billion: %.1f GB", float64(m.Total())/1e9)
	}
	if d := EstimateDisk(smollm, full); d < 3*smollm.Parameters*4 {
		t.Errorf("disk of full fine-tuning: %d", d)
	}
}

func TestConfigKeys(t *testing.T) {
	c, err := Preset("small")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	program := read(t, filepath.Join("..", "scripts"), "train_dual_head.py")
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	for k := range keys {
		if k != "lambda" && !strings.Contains(program, "    "+k+": ") || !strings.Contains(program, `"lambda"`) {
			t.Errorf("the trainer does not know the key %s", k)
		}
	}
}

func TestConfigCheck(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"--method":       func(c *Config) { c.Method = "dpo" },
		"--rank":         func(c *Config) { c.Rank = 0 },
		"--targets":      func(c *Config) { c.Targets = nil },
		"--lr-head":      func(c *Config) { c.LRHead = -1 },
		"--epochs":       func(c *Config) { c.Epochs = 0 },
		"--dtype":        func(c *Config) { c.DType = "f16" },
		"--load-in-4bit": func(c *Config) { c.Method, c.LoadIn4Bit = Full, true },
		"--reuse-tokens": func(c *Config) { c.ReuseTokens = map[string]string{TurnEnd: "<a>"} },
	} {
		c, err := Preset("medium")
		if err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), name+" must ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// checkpointFiles writes what ReadCheckpoint looks at: two tensors of 6 and 4
// values.
func checkpointFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	header := `{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"F32","shape":[4],"data_offsets":[24,40]}}`
	weights := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	for name, content := range map[string]string{
		"config.json":           `{"model_type":"llama","hidden_size":3,"num_hidden_layers":2,"vocab_size":5,"max_position_embeddings":64}`,
		"model.safetensors":     string(append(weights, make([]byte, 40)...)),
		"tokenizer.json":        `{}`,
		"tokenizer_config.json": `{"chat_template":"{{ messages }}"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadCheckpoint(t *testing.T) {
	dir := checkpointFiles(t)
	c, err := ReadCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	digest := c.Digest
	if c.Digest = ""; *c != (Checkpoint{Dir: dir, Type: "llama", Parameters: 10, Width: 3, Blocks: 2, Vocabulary: 5, Context: 64}) {
		t.Errorf("checkpoint %+v", c)
	}
	file := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] = 1
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err = ReadCheckpoint(dir); err != nil || c.Digest == digest {
		t.Errorf("other weights have the same digest (%v)", err)
	}
}

func TestReadCheckpointRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		file, content, says string
	}{
		"no configuration": {"config.json", "", "is no Hugging Face checkpoint"},
		"another kind":     {"config.json", `{"model_type":"bert"}`, "hidden_size"},
		"no weights":       {"model.safetensors", "", "no *.safetensors weights"},
		"a pointer":        {"model.safetensors", "version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS"},
		"a torn file":      {"model.safetensors", "\x40\x00\x00\x00\x00\x00\x00\x00{", "ends within its header"},
		"no tokenizer":     {"tokenizer.json", "", "no tokenizer.json"},
		"no template":      {"tokenizer_config.json", `{}`, "no chat template"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := checkpointFiles(t)
			path := filepath.Join(dir, c.file)
			err := os.Remove(path)
			if c.content != "" {
				err = os.WriteFile(path, []byte(c.content), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = ReadCheckpoint(dir)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v", err)
			}
			var missing *infer.MissingError
			if errors.As(err, &missing) != (name == "no configuration") {
				t.Errorf("error of type %T", err)
			}
		})
	}
}
