package ask

import (
	_ "embed"
	"strings"
)

//go:embed neutral.txt
var neutralText string

// Neutral are twenty paragraphs that have nothing to do with culture or conflict: what an
// edit changes about them is what it costs.
func Neutral() []string { return strings.Split(strings.TrimSpace(neutralText), "\n\n") }
