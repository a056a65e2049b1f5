package run

import (
	"bytes"
	"encoding/json"
)

// encodeLine returns v as one line of JSON with its newline, readable text left
// as it is.
func encodeLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
