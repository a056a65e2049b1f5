package sft

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
)

// Described says everything that it takes to repeat a training.
func Described(m *Manifest, shell func(args []string) string) (report.Section, error) {
	t := report.NewFacts()
	t.Add("task", "training")
	t.Add("status", m.Status)
	t.Add("ccmed", m.Version)
	t.Add("training scripts", m.Scripts)
	t.Add("base", strings.Join(nonempty(m.base(), m.Base.Source, "checkpoint "+m.Base.Digest, fmt.Sprintf("%s, %d parameters", m.Base.Type, m.Base.Parameters)), "\n"))
	if x := m.Export; x != nil {
		t.Add("data", m.Config.Data)
		t.Add("data hash", strings.Join(nonempty(x.Data, "export "+m.ExportDigest), "\n"))
		t.Add("dialogues", fmt.Sprintf("%d for training, %d for validation", x.Counts["train"], x.Counts["valid"]))
	}
	t.Add("seed", fmt.Sprint(m.Config.Seed))
	for _, s := range m.Sessions {
		e := s.Environment
		var packages []string
		for _, p := range slices.Sorted(maps.Keys(e.Packages)) {
			packages = append(packages, p+" "+e.Packages[p])
		}
		t.Add("session", fmt.Sprintf("%s UTC, %s\nPython %s, %s", s.Started.UTC().Format("2006-01-02 15:04"), s.Status, e.Version, strings.Join(packages, ", ")))
	}
	args, err := m.command()
	if err != nil {
		return report.Section{}, err
	}
	settings, err := json.MarshalIndent(m.Config, "", "  ")
	if err != nil {
		return report.Section{}, fmt.Errorf("show the settings of the training: %w", err)
	}
	return report.Section{Title: "What was trained", Tables: []report.Table{t.Table},
		Passages: []report.Passage{{Title: "Command to repeat it, rebuilt from its settings", Text: shell(args), Open: true}, {Title: "Every setting", Text: string(settings)}}}, nil
}

// base is where the training started from.
func (m *Manifest) base() string {
	if m.Base.From != "" {
		return m.Base.From
	}
	return m.Base.Dir
}

// command rebuilds the command line of a training from what differs from its preset.
func (m *Manifest) command() ([]string, error) {
	args := []string{"sft", "train", "--base", m.base(), "--data", m.Config.Data}
	preset, err := Preset(m.Preset)
	if err != nil {
		preset = Config{} // every setting is told
	} else {
		args = append(args, "--preset", m.Preset)
	}
	now, err := settings(m.Config)
	if err != nil {
		return nil, err
	}
	then, err := settings(preset)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		v := now[name]
		if slices.Contains([]string{"base", "data", "out", "resume"}, name) || v == nil || reflect.DeepEqual(v, then[name]) {
			continue
		}
		value := fmt.Sprint(v)
		switch v := v.(type) {
		case []any:
			value = strings.Trim(strings.Join(strings.Fields(fmt.Sprint(v)), ","), "[]")
		case map[string]any:
			value = fmt.Sprintf("%v,%v,%v", v[TurnEnd], v[Speak], v[EndSpeak])
		}
		args = append(args, "--"+strings.ReplaceAll(name, "_", "-")+"="+value)
	}
	if n := len(m.Sessions); n > 0 && m.Sessions[n-1].Processes > 1 {
		args = append(args, fmt.Sprintf("--nproc=%d", m.Sessions[n-1].Processes))
	}
	return args, nil
}

// settings are a configuration's fields by their names in JSON.
func settings(c Config) (map[string]any, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // a flag takes 1000000, not 1e+06
	var out map[string]any
	return out, dec.Decode(&out)
}

func nonempty(ss ...string) []string {
	return slices.DeleteFunc(ss, func(s string) bool { return s == "" })
}

// Cautions are what a reader must know of a training.
func (m *Manifest) Cautions() []string {
	out := []string{"losses and validation of a training; whether it helped is said by its comparison with the base (ccmed sft bench)"}
	if m.Status != TrainDone {
		out = append(out, "the training is not finished ("+m.Status+")")
	}
	if l := m.Export.Leaks["evaluation"]; l.Contexts.Shared > 0 {
		out = append(out, fmt.Sprintf("it was trained on the scenario context of %s of the evaluation dialogues", report.Pct(l.Contexts.Shared, l.Contexts.Of)))
	}
	return append(out, fmt.Sprintf("one training with one seed (%d): how far another would lie from it is not measured", m.Config.Seed))
}
