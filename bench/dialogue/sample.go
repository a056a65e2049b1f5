package dialogue

import (
	"embed"
	"fmt"
	"path"
	"slices"
)

//go:embed sample/*.json
var sampleFiles embed.FS

// Sample returns the embedded sample: twelve dialogues, ids 9001 to 9012, four
// of each of Denial, Defense and Minimization, two of each conflict turn from 3
// to 8. They show the format and try the commands; nothing can be concluded from
// so few.
func Sample() []Dialogue {
	ds, err := readSample()
	if err != nil {
		panic(err) // the files are part of the program, and a test reads them
	}
	return ds
}

func readSample() ([]Dialogue, error) {
	entries, err := sampleFiles.ReadDir("sample")
	if err != nil {
		return nil, fmt.Errorf("read the embedded sample: %w", err)
	}
	var ds []Dialogue
	for _, e := range entries {
		name := path.Join("sample", e.Name())
		raw, err := sampleFiles.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the embedded sample: %w", err)
		}
		d, ps := parse(name, raw)
		if len(ps) > 0 {
			return nil, fmt.Errorf("read the embedded sample: %w", ps[0])
		}
		ds = append(ds, d)
	}
	slices.SortFunc(ds, byID)
	return ds, nil
}
