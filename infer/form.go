package infer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Schema is the form of an answer that must be one JSON object of texts, in their order.
// Backends bind the generation to it.
type Schema struct {
	Texts []SchemaText `json:"texts"`
}

// SchemaText is one text of a Schema.
type SchemaText struct {
	Name string `json:"name"` // a-z and _
	Max  int    `json:"max"`  // most characters
}

// JSON is the form as a JSON schema.
func (s *Schema) JSON() json.RawMessage {
	var properties, required []string
	for _, t := range s.Texts {
		properties = append(properties, fmt.Sprintf(`%q:{"type":"string","minLength":1,"maxLength":%d}`, t.Name, t.Max))
		required = append(required, fmt.Sprintf("%q", t.Name))
	}
	return json.RawMessage(`{"type":"object","properties":{` + strings.Join(properties, ",") + `},"required":[` + strings.Join(required, ",") + `],"additionalProperties":false}`)
}

// Grammar is the form as a grammar of llama.cpp (GBNF). Line breaks in a text are escaped.
func (s *Schema) Grammar() string {
	var root, rules strings.Builder
	root.WriteString(`root ::= "{"`)
	for i, t := range s.Texts {
		if i > 0 {
			root.WriteString(` ", "`)
		}
		fmt.Fprintf(&root, ` "\"%s\": \"" char{1,%d} "\""`, t.Name, t.Max)
	}
	root.WriteString(" \"}\"\n")
	rules.WriteString(`char ::= [^"\\\x00-\x1F\x7F] | "\\" ["\\/nt]` + "\n")
	return root.String() + rules.String()
}
