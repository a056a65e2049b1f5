package sft

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// recordsOf reads an exported file. Every record has a dialogue that holds its
// gold turn.
func recordsOf(path string) ([]Record, error) {
	b, err := disk.ReadFile(path, disk.MaxText)
	if err != nil {
		return nil, fmt.Errorf("read exported records: %w", err)
	}
	var out []Record
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var r Record
		err := strictjson.Unmarshal(line, &r, strictjson.RefuseNUL, strictjson.RefuseNullEntries)
		if err == nil {
			err = r.check()
		}
		if err != nil {
			return nil, fmt.Errorf("%s, record %d: %w", path, len(out)+1, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func (r Record) check() error {
	switch turns := strings.Count(r.Dialogue, TurnEnd); {
	case r.Dialogue == "" || r.Gold < 1:
		return errors.New("it has no dialogue or no gold turn; name a file of `ccmed sft export`")
	case r.Gold > turns:
		return fmt.Errorf("it has the gold turn %d and a dialogue of %d turns; export again", r.Gold, turns)
	}
	return nil
}
