package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe/activation"
)

// Contexts: what the model was told before a text.
const (
	ContextD     = "D"     // the dialogue, and the conflict's stage with its pattern and move
	ContextND    = "ND"    // the dialogue only
	ContextWrong = "wrong" // as D, with the next of the three ethnocentric stages named instead
	ContextNone  = "none"  // the instruction without the dialogue
)

// Texts: what was said after it.
const (
	TextOwnD    = "own-D"  // the model's own line under D
	TextOwnND   = "own-ND" // the model's own line under ND
	TextPlacebo = "placebo"
	TextOther   = "other" // the model's own ND line in another dialogue
)

// TextPrompt stands for the text in cells that are read before any text.
const TextPrompt = "prompt"

// Positions of a state.
const (
	PromptEnd    = "prompt_end"    // last token of the prompt
	UtteranceEnd = "utterance_end" // the end-of-turn token after the text, the same token for every item
	ContentEnd   = "content_end"   // the text's own last token; secondary
)

// Placebos are the fixed lines that every item gets alike.
var Placebos = []string{
	"Thank you both for saying what you think. Let us take a moment before we go on.",
	"I would like to hear a little more from each of you. What would you like the other person to know?",
	"It is getting late, so let me sum up where we are: you have both spoken, and there is more to say another time.",
}

// Step names of the extraction.
const (
	StepUtterance = "utterance"
	StepStates    = "states"
)

// Pair is a context and a text whose states are read together.
type Pair struct{ Context, Text string }

// Pairs crosses contexts with texts. The text placebo stands for all placebos.
func Pairs(contexts, texts []string) ([]Pair, error) {
	var out []Pair
	for _, c := range contexts {
		if !slices.Contains([]string{ContextD, ContextND, ContextWrong, ContextNone}, c) {
			return nil, fmt.Errorf("unknown context %q; known are D, ND, wrong and none", c)
		}
		for _, t := range texts {
			switch t {
			case TextPlacebo:
				for i := range Placebos {
					out = append(out, Pair{c, placebo(i)})
				}
			case TextOwnD, TextOwnND, TextOther:
				out = append(out, Pair{c, t})
			default:
				return nil, fmt.Errorf("unknown text %q; known are own-D, own-ND, placebo and other", t)
			}
		}
	}
	return out, nil
}

func placebo(i int) string { return fmt.Sprintf("%s-%d", TextPlacebo, i+1) }

// Tokens returns the tokens of a prompt and of what was said after it as one
// text, see llamacpp.Engine.
type Tokens func(ctx context.Context, p infer.Prompt, answer string) ([]int32, error)

// Extraction is a task that reads hidden states into files of a run directory.
type Extraction struct {
	Reader    StateReader
	Render    func(context.Context, infer.Prompt) (string, error)
	Tokens    Tokens
	EndOfTurn int32
	Prompts   *prompt.Set
	Pairs     []Pair
	DType     activation.DType
	Model     infer.Model
	MaxTokens int // of a line that is generated; 0 means 160
	Seed      int64
	// Given are lines made elsewhere, by item and text ("own-D", "own-ND"); with
	// any, none is generated.
	Given map[string]map[string]string
	// Expected holds, by item and context, how many tokens the server counted
	// for the same prompt; another number here is an error.
	Expected map[string]map[string]int

	dir   *run.Dir
	rows  map[string]int
	order []dialogue.Dialogue
	files cellFiles

	loading sync.Once
	lines   map[string]map[string]string
	stops   map[string]map[string]string
	failed  error
}

// States is the data of a sample of the extraction.
type States struct {
	activation.Places
	Stage   string            `json:"stage"`
	Context string            `json:"context"` // hash of the scenario context, the group of all statistics
	Turn    int               `json:"turn"`
	Texts   map[string]string `json:"texts"`
	Missing map[string]string `json:"missing,omitempty"` // text to reason
	// Stop says, by text, why the generation of a line ended (infer.Reply). After one
	// that was cut at its cap the end of the turn is put in all the same.
	Stop map[string]string `json:"stop,omitempty"`
	// NonFinite counts the states that are no numbers, by layer.
	NonFinite []infer.NonFinite `json:"non_finite,omitempty"`
}

// Lines is the data of the step that generates the model's own lines.
type Lines struct {
	Texts   map[string]string `json:"texts"`
	Missing map[string]string `json:"missing,omitempty"`
	Stop    map[string]string `json:"stop,omitempty"` // why generation ended, see States
}

// Cells lists the cells that the extraction fills, positions included.
func (x *Extraction) Cells() []activation.Cell {
	var out []activation.Cell
	seen := map[string]bool{}
	for _, p := range x.Pairs {
		if !seen[p.Context] {
			seen[p.Context] = true
			out = append(out, activation.Cell{Context: p.Context, Text: TextPrompt, Position: PromptEnd})
		}
		out = append(out, activation.Cell{Context: p.Context, Text: p.Text, Position: UtteranceEnd},
			activation.Cell{Context: p.Context, Text: p.Text, Position: ContentEnd})
	}
	return out
}

// Bytes is what the files need on disk for n items.
func (x *Extraction) Bytes(n int) int64 {
	size := int64(4)
	if x.DType == activation.F16 {
		size = 2
	}
	return int64(len(x.Cells())) * int64(len(x.Reader.Layers())) * int64(n) * int64(x.Reader.Width()) * size
}

// Use sets the dialogues, which give the rows. An extraction that goes on, or is one of
// several shards, gets all of them.
func (x *Extraction) Use(ds []dialogue.Dialogue) {
	x.order, x.rows = ds, map[string]int{}
	for i, d := range ds {
		x.rows[d.Key()] = i
	}
}

// Open makes the files of the cells in the run directory, or opens those that
// are there to go on with them. Use comes before it. The caller closes the extraction.
func (x *Extraction) Open(ctx context.Context, dir *run.Dir) (err error) {
	x.dir = dir
	x.files, err = createCells(ctx, dir, activation.Spec{Model: activation.ModelOf(x.Model), Layers: x.Reader.Layers(), Width: x.Reader.Width(), DType: x.DType},
		x.Cells(), func(activation.Cell) int { return len(x.order) })
	return err
}

// Close closes the files.
func (x *Extraction) Close() error {
	err := x.files.close()
	x.files = nil
	return err
}

// Task returns the extraction over the dialogues that Use got.
func (x *Extraction) Task() run.Task[dialogue.Dialogue] {
	t := run.Task[dialogue.Dialogue]{Name: "extract"}
	for _, d := range x.order {
		t.Units = append(t.Units, run.Unit[dialogue.Dialogue]{Item: d.Key(), Group: d.Key(), Value: d})
	}
	if x.Given == nil && len(x.ownContexts()) > 0 {
		t.Steps = append(t.Steps, run.Step[dialogue.Dialogue]{Name: StepUtterance, Role: "mediator", Do: x.generate})
	}
	t.Steps = append(t.Steps, run.Step[dialogue.Dialogue]{Name: StepStates, Do: x.states})
	return t
}

// ownContexts are the contexts under which lines of the model's own are needed.
func (x *Extraction) ownContexts() []string {
	need := map[string]bool{}
	for _, p := range x.Pairs {
		switch p.Text {
		case TextOwnD:
			need[ContextD] = true
		case TextOwnND, TextOther:
			need[ContextND] = true
		}
	}
	var out []string
	for _, c := range []string{ContextD, ContextND} {
		if need[c] {
			out = append(out, c)
		}
	}
	return out
}

// wrongStage is the ethnocentric stage that the context wrong names.
func wrongStage(s dmis.Stage) dmis.Stage { return (s + 1) % (dmis.Minimization + 1) }

// Prompt is what the model is told in a context: the mediator's own prompt, so
// that lines of a mediation run belong to it.
func (x *Extraction) Prompt(d dialogue.Dialogue, contextName string) (infer.Prompt, error) {
	data := map[string]any{"Transcript": dialogue.Transcript(d.Unmediated()[:d.ConflictTurn]), "Turn": d.ConflictTurn, "Stage": "", "Speaker": "", "Pattern": "", "Move": ""}
	noteStage := func(s dmis.Stage) {
		data["Stage"], data["Speaker"], data["Pattern"], data["Move"] = s.String(), d.Name(d.ConflictAgent), s.Pattern(), s.Move()
	}
	switch contextName {
	case ContextD:
		noteStage(d.Stage)
	case ContextWrong:
		noteStage(wrongStage(d.Stage))
	case ContextNone:
		data["Transcript"] = ""
	}
	return x.Prompts.Build("mediate", data)
}

func (x *Extraction) generate(ctx context.Context, b infer.Backend, u run.Unit[dialogue.Dialogue], _ run.Lookup) (run.Sample, error) {
	most := x.MaxTokens
	if most == 0 {
		most = 160
	}
	out := Lines{Texts: map[string]string{}, Missing: map[string]string{}, Stop: map[string]string{}}
	for _, c := range x.ownContexts() {
		p, err := x.Prompt(u.Value, c)
		if err != nil {
			return run.Sample{}, err
		}
		r, err := b.Chat(ctx, p, infer.Params{MaxTokens: most, TopP: 1, Seed: x.Seed})
		if err != nil {
			return run.Sample{}, fmt.Errorf("ask for a line under %s: %w", c, err)
		}
		name := "own-" + c
		if text := strings.TrimSpace(r.Text); text != "" {
			out.Texts[name], out.Stop[name] = text, r.Stop
		} else {
			out.Missing[name] = "the model said nothing"
		}
	}
	data, err := json.Marshal(out)
	return run.Sample{Data: data}, err
}

// line returns a dialogue's text, or why there is none.
func (x *Extraction) line(item, text string) (line, missing string, err error) {
	for i := range Placebos {
		if text == placebo(i) {
			return Placebos[i], "", nil
		}
	}
	x.loading.Do(x.load)
	if x.failed != nil {
		return "", "", x.failed
	}
	if text == TextOther {
		item, text = x.other(item), TextOwnND
		if item == "" {
			return "", "no other scenario context", nil
		}
	}
	if l := strings.TrimSpace(x.lines[item][text]); l != "" {
		return l, "", nil
	}
	return "", "no line " + text, nil
}

// load reads the lines of the first step, which is complete when the second one
// begins, unless they were given.
func (x *Extraction) load() {
	if x.Given != nil {
		x.lines = x.Given
		return
	}
	x.lines, x.stops = map[string]map[string]string{}, map[string]map[string]string{}
	for s, err := range x.dir.All() {
		if err != nil {
			x.failed = fmt.Errorf("read the lines that were generated: %w", err)
			return
		}
		if s.Step != StepUtterance {
			continue
		}
		var l Lines
		if err := json.Unmarshal(s.Data, &l); err != nil {
			x.failed = fmt.Errorf("read the lines of %s: %w", s.Key, err)
			return
		}
		x.lines[s.Item], x.stops[s.Item] = l.Texts, l.Stop
	}
}

// other returns the next dialogue of another scenario context, cyclically.
func (x *Extraction) other(item string) string {
	at := x.rows[item]
	for i := 1; i < len(x.order); i++ {
		d := x.order[(at+i)%len(x.order)]
		if d.ContextKey() != x.order[at].ContextKey() {
			return d.Key()
		}
	}
	return ""
}

func (x *Extraction) states(ctx context.Context, _ infer.Backend, u run.Unit[dialogue.Dialogue], _ run.Lookup) (run.Sample, error) {
	d := u.Value
	row := x.rows[u.Item]
	out := States{Stage: d.Stage.String(), Context: d.ContextKey(), Turn: d.ConflictTurn, Texts: map[string]string{}, Missing: map[string]string{}, Stop: map[string]string{}}
	var seqs []infer.Sequence
	places := map[want][]place{}
	add := func(c activation.Cell, tokens, at int) {
		seq := len(seqs) - 1
		w := want{seq, at}
		if places[w] == nil {
			seqs[seq].At = append(seqs[seq].At, at)
		}
		places[w] = append(places[w], place{c, row})
		out.States = append(out.States, activation.Place{Cell: c, Row: row, Tokens: tokens, Token: at})
	}
	bases := map[string][]int32{}
	prompts := map[string]infer.Prompt{}
	for _, p := range x.Pairs {
		base, seen := bases[p.Context]
		if !seen {
			var err error
			if prompts[p.Context], base, err = x.base(ctx, d, p.Context); err != nil {
				return run.Sample{}, err
			}
			bases[p.Context] = base
			seqs = append(seqs, infer.Sequence{Tokens: base, Prompt: len(base), Hash: prompts[p.Context].Hash()})
			add(activation.Cell{Context: p.Context, Text: TextPrompt, Position: PromptEnd}, len(base), len(base)-1)
		}
		text, missing, err := x.line(u.Item, p.Text)
		if err != nil {
			return run.Sample{}, err
		}
		if missing != "" {
			out.Missing[p.Text] = missing
			continue
		}
		out.Texts[p.Text] = text
		if stop := x.stops[u.Item][p.Text]; stop != "" {
			out.Stop[p.Text] = stop
		}
		// Prompt and text are tokenised as one: the model never saw a seam.
		tokens, err := x.Tokens(ctx, prompts[p.Context], text)
		if err != nil {
			return run.Sample{}, fmt.Errorf("tokenise the %s text after %s: %w", p.Text, p.Context, err)
		}
		if len(tokens) <= len(base) || !slices.Equal(tokens[:len(base)], base) {
			return run.Sample{}, fmt.Errorf("the %s text changes how the prompt before it is tokenised: prompt_end would not be the same state", p.Text)
		}
		tokens = append(slices.Clone(tokens), x.EndOfTurn)
		seqs = append(seqs, infer.Sequence{Tokens: tokens, Prompt: len(base), Hash: prompts[p.Context].Hash()})
		add(activation.Cell{Context: p.Context, Text: p.Text, Position: ContentEnd}, len(tokens), len(tokens)-2)
		add(activation.Cell{Context: p.Context, Text: p.Text, Position: UtteranceEnd}, len(tokens), len(tokens)-1)
	}
	var err error
	if out.NonFinite, err = x.files.store(ctx, x.Reader, seqs, places); err != nil {
		return run.Sample{}, fmt.Errorf("read the hidden states: %w", err)
	}
	if err := x.files.sum(out.States); err != nil {
		return run.Sample{}, fmt.Errorf("add up the hidden states: %w", err)
	}
	data, err := json.Marshal(out)
	return run.Sample{Data: data}, err
}

// base tokenises a context's prompt, and holds it against what the server counted.
func (x *Extraction) base(ctx context.Context, d dialogue.Dialogue, contextName string) (infer.Prompt, []int32, error) {
	p, err := x.Prompt(d, contextName)
	if err != nil {
		return p, nil, err
	}
	tokens, err := x.Tokens(ctx, p, "")
	if err != nil {
		return p, nil, fmt.Errorf("tokenise the prompt %s: %w", contextName, err)
	}
	if n, ok := x.Expected[d.Key()][contextName]; ok && n != len(tokens) {
		return p, nil, fmt.Errorf("the prompt %s of item %s has %d tokens here and had %d on the server: these are not the states of the served model", contextName, d.Key(), len(tokens), n)
	}
	return p, tokens, nil
}
