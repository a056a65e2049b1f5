package run

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	if b.Len() > maxLine {
		return nil, fmt.Errorf("it has %d bytes, and a line may have %d", b.Len(), maxLine)
	}
	return b.Bytes(), nil
}
