package arrays

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// CardFile is the card's name in an exported folder.
const CardFile = "card.json"

// Card says whose states some arrays are, and of what: a YAML or JSON file beside them.
type Card struct {
	Model  Model            `json:"model"`
	DType  activation.DType `json:"dtype,omitempty"` // to store: F16, or F32 (also "")
	Layers []string         `json:"layers"`          // of the first axis of every array
	Arrays []Array          `json:"arrays"`
	Items  []string         `json:"items"`            // dialogue of each row
	Labels []string         `json:"labels,omitempty"` // stage of each item; with records they may be left out
	Groups []string         `json:"groups,omitempty"` // scenario context of each item, likewise
	Turns  []int            `json:"turns,omitempty"`
	// Texts are the lines that were read, by text and item; Stops why the generation of
	// each ended.
	Texts map[string][]string `json:"texts,omitempty"`
	Stops map[string][]string `json:"stops,omitempty"`

	path string
}

// Model names the model. The digest tells two models apart: a checksum of the weights, or
// the commit of the repository that they come from.
type Model struct {
	Name         string `json:"name"`
	Digest       string `json:"digest"`
	Quantization string `json:"quantization,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	Edits        string `json:"edits,omitempty"`
}

// Array is one array of shape (layers, rows, width): the states of one cell.
type Array struct {
	File     string `json:"file"`                         // beside the card; .npz, .npy or .safetensors
	Name     string `json:"array,omitempty" yaml:"array"` // in the file; X where it is not given
	Context  string `json:"context"`
	Text     string `json:"text"`
	Position string `json:"position"`
	// Rows are the items of the rows, by number from 0; nil are all of them.
	Rows []int `json:"rows,omitempty"`
	// Tokens are the lengths of the sequences that were evaluated, Token whose states these
	// are, by row.
	Tokens []int `json:"tokens,omitempty"`
	Token  []int `json:"token,omitempty"`
}

func (a Array) cell() activation.Cell {
	return activation.Cell{Context: a.Context, Text: a.Text, Position: a.Position, Kind: activation.Residual}
}

// rows are the items of the array's rows.
func (a Array) rows(items int) []int {
	if a.Rows != nil {
		return a.Rows
	}
	out := make([]int, items)
	for i := range out {
		out[i] = i
	}
	return out
}

// maxCard is far above the card of a hundred thousand dialogues.
const maxCard = 256 << 20

// ReadCard reads the card at path, or the one in an exported folder. Labels and groups that
// it leaves out come from the dialogues; those that it has must be theirs. A nil ds
// is none.
func ReadCard(path string, ds []dialogue.Dialogue) (*Card, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, CardFile)
	}
	text, err := disk.ReadFile(path, maxCard)
	if err != nil {
		return nil, fmt.Errorf("read the card of the arrays: %w", err)
	}
	c := &Card{path: path}
	dec := yaml.NewDecoder(bytes.NewReader(text)) // of which JSON is a part
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		var form *yaml.TypeError
		if errors.As(err, &form) { // the first of a list, without the name of a Go type
			what, _, _ := strings.Cut(form.Errors[0], " in type ")
			err = errors.New(what)
		}
		return nil, fmt.Errorf("%s: %w; `ccmed probe import --help` shows a card", path, err)
	}
	if err := c.take(ds); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// take fills in or compares what dialogues know of the items.
func (c *Card) take(ds []dialogue.Dialogue) error {
	if ds == nil {
		return nil
	}
	of := map[string]dialogue.Dialogue{}
	for _, d := range ds {
		of[d.Key()] = d
	}
	labels, groups := c.Labels, c.Groups
	c.Labels, c.Groups = nil, nil
	turns := c.Turns == nil
	context := map[string]string{} // by the card's own name
	for i, item := range c.Items {
		d, ok := of[item]
		switch {
		case !ok:
			return fmt.Errorf("items[%d] is %q, which the data given do not have", i, item)
		case i < len(labels) && labels[i] != d.Stage.String():
			return fmt.Errorf("labels[%d] is %q, but the dialogue %s of the data given has the stage %s", i, labels[i], item, d.Stage)
		}
		if i < len(groups) {
			if other, seen := context[groups[i]]; seen && other != d.ContextKey() {
				return fmt.Errorf("groups[%d] puts the dialogue %s into %q with a dialogue of another scenario context", i, item, groups[i])
			}
			context[groups[i]] = d.ContextKey()
		}
		c.Labels, c.Groups = append(c.Labels, d.Stage.String()), append(c.Groups, d.ContextKey())
		if turns {
			c.Turns = append(c.Turns, d.ConflictTurn)
		}
	}
	if labels != nil && len(labels) != len(c.Items) || groups != nil && len(groups) != len(c.Items) {
		c.Labels, c.Groups = labels, groups // check says which has the wrong length
	}
	return nil
}

// Used returns those of the dialogues that are items of the card.
func (c *Card) Used(ds []dialogue.Dialogue) (out []dialogue.Dialogue) {
	for _, d := range ds {
		if slices.Contains(c.Items, d.Key()) {
			out = append(out, d)
		}
	}
	return out
}

// check finds what does not fit within the card.
func (c *Card) check() error {
	if c.Model.Name == "" || c.Model.Digest == "" {
		return errors.New("model needs a name and a digest, such as a checksum of the weights or the commit of their repository: probes of one model are not used on another's states")
	}
	switch c.DType {
	case "":
		c.DType = activation.F32
	case activation.F16, activation.F32:
	default:
		return fmt.Errorf("dtype is %q; states are stored as F16 or F32", c.DType)
	}
	if len(c.Layers) == 0 || len(c.Items) == 0 || len(c.Arrays) == 0 {
		return fmt.Errorf("it names %d layers, %d items and %d arrays; all three are needed", len(c.Layers), len(c.Items), len(c.Arrays))
	}
	if err := c.checkItems(); err != nil {
		return err
	}
	seen, probed := map[activation.Cell]int{}, false
	for i, a := range c.Arrays {
		if err := a.check(len(c.Items)); err != nil {
			return fmt.Errorf("arrays[%d]: %w", i, err)
		}
		if first, twice := seen[a.cell()]; twice {
			return fmt.Errorf("arrays[%d] and arrays[%d] are both of %s", first, i, a.cell())
		}
		seen[a.cell()] = i
		probed = probed || a.Position != probe.ContentEnd
	}
	if err := c.checkLengths(); err != nil {
		return err
	}
	if !probed {
		return fmt.Errorf("no array is of the position %s or %s, which probes are trained on", probe.PromptEnd, probe.UtteranceEnd)
	}
	return nil
}

// checkLengths asks for tokens where probes compare the lengths of lines.
func (c *Card) checkLengths() error {
	fixed := func(a Array) bool {
		return a.Context == probe.ContextND && strings.HasPrefix(a.Text, probe.TextPlacebo)
	}
	if !slices.ContainsFunc(c.Arrays, fixed) {
		return nil
	}
	for i, a := range c.Arrays {
		if a.Context == probe.ContextND && a.Tokens == nil {
			return fmt.Errorf("arrays[%d], of %s, has no tokens and token: the loss after fixed lines compares lines of like length", i, a.cell())
		}
	}
	return nil
}

func (c *Card) checkItems() error {
	for _, l := range []struct {
		name   string
		n      int
		needed bool
	}{{"labels", len(c.Labels), true}, {"groups", len(c.Groups), true}, {"turns", len(c.Turns), c.Turns != nil}} {
		if l.needed && l.n != len(c.Items) {
			return fmt.Errorf("%d items and %d %s; each item has one", len(c.Items), l.n, l.name)
		}
	}
	for name, by := range map[string]map[string][]string{"texts": c.Texts, "stops": c.Stops} {
		for text, all := range by {
			if len(all) != len(c.Items) {
				return fmt.Errorf("%d items and %d lines in %s of %s; each item has one, an empty one where there is none", len(c.Items), len(all), name, text)
			}
		}
	}
	seen := map[string]int{}
	for i, item := range c.Items {
		first, twice := seen[item]
		seen[item] = i
		stage, err := dmis.ParseStage(c.Labels[i])
		switch {
		case item == "":
			return fmt.Errorf("items[%d] has no name", i)
		case twice:
			return fmt.Errorf("items[%d] and items[%d] are both %q", first, i, item)
		case err != nil || !stage.Ethnocentric():
			return fmt.Errorf("labels[%d], of item %s, is %q; probes tell %s, %s and %s apart", i, item, c.Labels[i], dmis.Denial, dmis.Defense, dmis.Minimization)
		case c.Groups[i] == "":
			return fmt.Errorf("groups[%d], of item %s, is empty; folds keep the items of one scenario context together", i, item)
		}
	}
	return nil
}

func (a Array) check(items int) error {
	rows := a.rows(items)
	positions := []string{probe.PromptEnd, probe.UtteranceEnd, probe.ContentEnd}
	switch {
	case a.File == "" || !filepath.IsLocal(a.File):
		return fmt.Errorf("file is %q; name one in the card's folder", a.File)
	case !slices.Contains(positions, a.Position):
		return fmt.Errorf("position is %q; known are %s, %s and %s", a.Position, positions[0], positions[1], positions[2])
	case (a.Position == probe.PromptEnd) != (a.Text == probe.TextPrompt):
		return fmt.Errorf("text is %q at %s; at %s it is %q, and nowhere else", a.Text, a.Position, probe.PromptEnd, probe.TextPrompt)
	case a.Tokens != nil && len(a.Tokens) != len(rows) || a.Token != nil && len(a.Token) != len(rows) || (a.Token == nil) != (a.Tokens == nil):
		return fmt.Errorf("%d rows, %d tokens and %d token; each row has both, or none has", len(rows), len(a.Tokens), len(a.Token))
	}
	seen := map[int]bool{}
	for i, r := range rows {
		switch {
		case r < 0 || r >= items:
			return fmt.Errorf("rows[%d] is %d; there are items 0 to %d", i, r, items-1)
		case seen[r]:
			return fmt.Errorf("rows[%d] is %d for the second time", i, r)
		case a.Tokens != nil && (a.Token[i] < 0 || a.Token[i] >= a.Tokens[i]):
			return fmt.Errorf("token[%d] is %d of %d tokens", i, a.Token[i], a.Tokens[i])
		}
		seen[r] = true
	}
	return nil
}

// newCard is the card of a store that is exported, nil for one that cannot be imported: of
// turns or of questions.
func (s *store) newCard() *Card {
	if !s.lines {
		return nil
	}
	c := &Card{Texts: map[string][]string{}, Stops: map[string][]string{}}
	row := map[string]int{}
	for _, cell := range s.index.Cells() {
		for _, e := range s.index.Entries(cell) {
			row[e.Item] = e.Row
		}
	}
	for item := range row {
		c.Items = append(c.Items, item)
	}
	slices.SortFunc(c.Items, func(a, b string) int { return row[a] - row[b] })
	for i, item := range c.Items {
		st := s.states[item]
		c.Labels, c.Groups, c.Turns = append(c.Labels, st.Stage), append(c.Groups, st.Context), append(c.Turns, st.Turn)
		for to, from := range map[*map[string][]string]map[string]string{&c.Texts: st.Texts, &c.Stops: st.Stop} {
			for text, line := range from {
				if (*to)[text] == nil {
					(*to)[text] = make([]string, len(c.Items))
				}
				(*to)[text][i] = line
			}
		}
	}
	return c
}

// add puts a cell on the card.
func (c *Card) add(file string, p *part) {
	spec := p.file.Spec()
	c.Model, c.DType, c.Layers = Model(spec.Model), spec.DType, p.Layers
	a := Array{File: file, Context: spec.Cell.Context, Text: spec.Cell.Text, Position: spec.Cell.Position}
	number := map[string]int{}
	for i, item := range c.Items {
		number[item] = i
	}
	for _, e := range p.entries {
		a.Rows, a.Tokens, a.Token = append(a.Rows, number[e.Item]), append(a.Tokens, e.Tokens), append(a.Token, e.Token)
	}
	if len(a.Rows) == len(c.Items) && slices.IsSorted(a.Rows) {
		a.Rows = nil
	}
	c.Arrays = append(c.Arrays, a)
}

// Identity is the model as runs name it.
func (m Model) Identity() infer.Model {
	return infer.Model{Backend: Backend, Name: m.Name, Digest: m.Digest, Quantization: m.Quantization, Architecture: m.Architecture}
}
