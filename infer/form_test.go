package infer_test

import (
	"encoding/json"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

func TestSchema(t *testing.T) {
	t.Parallel()
	s := &infer.Schema{Texts: []infer.SchemaText{{Name: "thought", Max: 9}, {Name: "utterance", Max: 20}}}
	const form = `{"type":"object","properties":{"thought":{"type":"string","minLength":1,"maxLength":9},"utterance":{"type":"string","minLength":1,"maxLength":20}},"required":["thought","utterance"],"additionalProperties":false}`
	if got := string(s.JSON()); got != form || !json.Valid(s.JSON()) {
		t.Errorf("the schema is %s", got)
	}
	const grammar = `root ::= "{" "\"thought\": \"" char{1,9} "\"" ", " "\"utterance\": \"" char{1,20} "\"" "}"
char ::= [^"\\\x00-\x1F\x7F] | "\\" ["\\/nt]
`
	if got := s.Grammar(); got != grammar {
		t.Errorf("the grammar is\n%s", got)
	}
}

// Requests without a form keep their keys in the response cache.
func TestParamsWithoutASchemaAreAsBefore(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(infer.Params{MaxTokens: 1})
	if err != nil || string(b) != `{"max_tokens":1,"num_ctx":0,"temperature":0,"top_p":0,"seed":0,"repeat":0}` {
		t.Errorf("%s, %v", b, err)
	}
}
