package construct

import (
	_ "embed"
	"encoding/json"
	"sync"
)

// Question is a statement that people of different cultures may answer differently.
type Question struct {
	Dimension string `json:"dimension"`
	Statement string `json:"statement"`
}

//go:embed questions.json
var questionsFile []byte

type lists struct {
	Questions []Question          `json:"questions"`
	Countries []string            `json:"countries"`
	Cues      map[string][]string `json:"cues"`
}

var own = sync.OnceValue(func() lists {
	var l lists
	if err := json.Unmarshal(questionsFile, &l); err != nil {
		panic(err) // the file is part of the program, and a test reads it
	}
	return l
})

// Questions are the embedded value questions, in words of this project.
func Questions() []Question { return own().Questions }
