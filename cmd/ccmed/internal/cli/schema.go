package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ConfigSchema returns the JSON Schema (draft 2020-12) of ccmed.yaml: every flag of
// every command, and a section for each command.
func ConfigSchema(root *cobra.Command, values ValueTable) ([]byte, error) {
	s := sectionSchema(root, values)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"], s["title"] = "ccmed.schema.json", "ccmed.yaml"
	s["description"] = "Settings of ccmed: flags, and a section for a command's own flags. Programs are not among them; servers outside this machine and places to write count only in a file that --config names. See ccmed help config."
	// YAML reads 9001 and off as something else than text.
	s["$defs"] = map[string]any{"text": map[string]any{"type": []string{"string", "number", "boolean"}}}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("encode the schema of ccmed.yaml: %w", err)
	}
	return b.Bytes(), nil
}

func sectionSchema(c *cobra.Command, values ValueTable) map[string]any {
	// A flag of several commands may mean several things: each of its forms is
	// allowed above them.
	forms := map[string][]map[string]any{}
	Walk(c, func(c *cobra.Command) {
		if !TakesSettings(c) || c.Hidden {
			return
		}
		add := func(f *pflag.Flag) {
			if !Configurable(f) || Reaches[f.Name] == Starts {
				return
			}
			form := flagSchema(c, f, values)
			if !slices.ContainsFunc(forms[f.Name], func(other map[string]any) bool { return equalJSON(form, other) }) {
				forms[f.Name] = append(forms[f.Name], form)
			}
		}
		c.LocalFlags().VisitAll(add)
		c.InheritedFlags().VisitAll(add)
	})
	properties := map[string]any{}
	for name, all := range forms {
		if len(all) == 1 {
			properties[name] = all[0]
		} else {
			properties[name] = map[string]any{"anyOf": all}
		}
	}
	for _, s := range c.Commands() {
		if !s.IsAvailableCommand() || !TakesSettings(s) || s.IsAdditionalHelpTopicCommand() {
			continue
		}
		section := sectionSchema(s, values)
		section["description"] = s.Short
		if flag, both := properties[s.Name()]; both {
			properties[s.Name()] = map[string]any{"anyOf": []any{flag, section}}
		} else {
			properties[s.Name()] = section
		}
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

func equalJSON(a, b map[string]any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}

// flagSchema is the schema of one flag's value.
func flagSchema(c *cobra.Command, f *pflag.Flag, values ValueTable) map[string]any {
	item := map[string]any{}
	switch kind := strings.TrimSuffix(strings.TrimSuffix(f.Value.Type(), "Slice"), "Array"); {
	case kind == "bool":
		item["type"] = "boolean"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		item["type"] = "integer"
	case strings.HasPrefix(kind, "float"):
		item["type"] = "number"
	case kind == "duration":
		item["type"], item["pattern"] = "string", `^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h)([0-9.]+(ns|us|ms|s|m|h))*$`
	default:
		item["$ref"] = "#/$defs/text"
	}
	if e, ok := values.Of(c, f.Name); ok && !e.Open {
		item = map[string]any{"enum": e.Values}
	}
	s := item
	if IsList(f) {
		s = map[string]any{"anyOf": []any{item, map[string]any{"type": "array", "items": item}}}
	}
	s["description"] = f.Usage
	return s
}
