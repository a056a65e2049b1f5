package dialogue

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// Label is what a person says of the one who speaks a turn, a line of a file of labels.
type Label struct {
	Item string `json:"item"`
	Turn int    `json:"turn"`
	// Stage is empty where the person skipped the turn.
	Stage string `json:"stage,omitempty"`
	By    string `json:"by"`
	// Text is the SHA-256 of the transcript up to the turn, in hexadecimal: a label is
	// about these words.
	Text string `json:"text_sha256"`
}

// TextHash is the SHA-256 of the unmediated transcript up to a turn, in hexadecimal.
func (d Dialogue) TextHash(turn int) string {
	return HashText(Transcript(d.Unmediated()[:turn]))
}

// OwnTurns are the unmediated turns of the conflict speaker from the conflict on.
func (d Dialogue) OwnTurns() []Turn {
	return slices.DeleteFunc(d.Unmediated()[d.ConflictTurn-1:], func(t Turn) bool { return t.Agent != d.ConflictAgent })
}

// HashText is the SHA-256 of a transcript, in hexadecimal, as a Label has it.
func HashText(transcript string) string {
	h := sha256.Sum256([]byte(transcript))
	return hex.EncodeToString(h[:])
}

// ReadLabels reads a file of labels. Where a turn has several with the same words before
// it the last one counts.
func ReadLabels(path string) ([]Label, error) {
	text, err := disk.ReadFile(path, disk.MaxText)
	if err != nil {
		return nil, fmt.Errorf("read labels: %w", err)
	}
	type key struct {
		item, text string
		turn       int
	}
	at := map[key]int{}
	var out []Label
	for number, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var l Label
		if err := strictjson.Unmarshal(line, &l, strictjson.RefuseNUL); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number+1, err)
		}
		if _, err := dmis.ParseStage(l.Stage); err != nil && l.Stage != "" {
			return nil, fmt.Errorf("%s:%d: %w", path, number+1, err)
		}
		k := key{l.Item, l.Text, l.Turn}
		if i, ok := at[k]; ok {
			out[i] = l
			continue
		}
		at[k] = len(out)
		out = append(out, l)
	}
	return out, nil
}

// AppendLabel adds a label to a file of labels, which is made where it is not there.
func AppendLabel(path string, l Label) error {
	line, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode a label: %w", err)
	}
	f, err := disk.Append(path, 0o644)
	if err != nil {
		return fmt.Errorf("keep a label: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("keep a label: %w", err)
	}
	return nil
}

// Relabel returns dialogues with the labels of a file in the place of their own, and none
// where the file has none. Labels of other dialogues are left out; one about other words
// is an error.
func Relabel(ds []Dialogue, labels []Label) ([]Dialogue, error) {
	at := map[string]int{}
	out := slices.Clone(ds)
	for i := range out {
		d := &out[i]
		at[d.Key()] = i
		d.original = slices.Clone(d.original)
		for k := range d.original {
			d.original[k].Label = ""
		}
	}
	for _, l := range labels {
		i, ok := at[l.Item]
		if !ok {
			continue
		}
		d := &out[i]
		switch k := l.Turn - len(d.prefix) - 1; {
		case l.Turn < 1 || l.Turn > d.LastTurn():
			return nil, fmt.Errorf("a label is about turn %d of dialogue %s, which has %d; label these records anew", l.Turn, l.Item, d.LastTurn())
		case l.Text != d.TextHash(l.Turn):
			return nil, fmt.Errorf("a label is about other words than turn %d of dialogue %s has; label these records anew", l.Turn, l.Item)
		case k >= 0:
			d.original[k].Label = l.Stage
		}
	}
	return out, nil
}

// CompareLabels says how far two people's labels agree on the turns that both labelled; nil
// without any, or where all are alike.
func CompareLabels(a, b []Label, ds []Dialogue, seed uint64) (*Agreement, error) {
	contexts := map[string]string{}
	for _, d := range ds {
		contexts[d.Key()] = d.ContextKey()
	}
	type key struct{ item, text string }
	theirs := map[key]string{}
	for _, l := range b {
		theirs[key{l.Item, l.Text}] = l.Stage
	}
	var first, second, groups []string
	for _, l := range a {
		if context, ok := contexts[l.Item]; ok {
			first, second, groups = append(first, l.Stage), append(second, theirs[key{l.Item, l.Text}]), append(groups, context)
		}
	}
	return Agree(first, second, groups, seed)
}

// Agree says how far two lists of stages agree where both name one; groups are the scenario
// contexts. It is nil without any pair, or where all are alike.
func Agree(first, second, groups []string, seed uint64) (*Agreement, error) {
	var pairs labelPairs
	for i, group := range groups {
		x, errX := dmis.ParseStage(first[i])
		y, errY := dmis.ParseStage(second[i])
		if errX == nil && errY == nil {
			pairs.add(x, y, group)
		}
	}
	return pairs.agreement(seed)
}
