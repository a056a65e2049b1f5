package sft

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/infer"
)

// Limits of the proofs, for weights in F16. Of quantised ones the same is measured
// and reported: they are meant to differ.
const (
	// MaxPDifference is how far P(speak) may be from PyTorch's.
	MaxPDifference = 0.02
	// MinGap is the lead in logits from which on another token than PyTorch's is a
	// disagreement: below, rounding decides.
	MinGap = 0.05
)

// Names of the proofs.
const (
	ProofMarkers  = "markers are single tokens"
	ProofHead     = "decision head"
	ProofTokens   = "tokens of PyTorch and llama.cpp"
	ProofP        = "P(speak) here and in PyTorch"
	ProofGreedy   = "greedy tokens of PyTorch"
	ProofEnds     = "generation ends"
	ProofRendered = "rendered prompts of base and tuned"
)

// NotRun is the proof of a check that could not be made.
func NotRun(name, why string) Proof { return Proof{Name: name, NotRun: why} }

// Failed returns an error that names the proofs which do not hold; nil where all
// do that were run.
func Failed(ps []Proof) error {
	var parts []string
	for _, p := range ps {
		if !p.OK && p.NotRun == "" {
			parts = append(parts, p.Name+": "+p.Detail)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return fmt.Errorf("not proved: %s", strings.Join(parts, "; "))
}

// holds is a proof that holds where nothing speaks against it.
func holds(name, detail string, against ...string) Proof {
	if len(against) > 0 {
		return Proof{Name: name, Detail: strings.Join(against, "; ")}
	}
	return Proof{Name: name, OK: true, Detail: detail}
}

// measured is a proof with a value, which holds up to the limit; without one it
// is a report.
func measured(name, detail string, value float64, limit *float64) Proof {
	return Proof{Name: name, OK: limit == nil || value <= *limit, Detail: detail, Value: &value, Limit: limit}
}

// limit is a proof's limit for the package's weights.
func (p *Package) limit(v float64) *float64 {
	if p.Card.Quantization != "F16" {
		return nil
	}
	return &v
}

// Prover is what a package is proved with: the embedded engine on its model file.
type Prover interface {
	Reader
	infer.Backend
	Width() int
	Piece(token int32) (text []byte, ends bool, err error)
}

// Prove checks the files of the package with the embedded engine against what
// PyTorch says of the checkpoint that they were made of.
func (p *Package) Prove(ctx context.Context, e Prover, refs []Reference) ([]Proof, error) {
	m, err := e.Model(ctx)
	if err != nil {
		return nil, err
	}
	head, err := ReadHead(filepath.Join(p.Dir, HeadFile))
	if err != nil {
		return []Proof{holds(ProofHead, "", err.Error())}, nil
	}
	if err := head.Check(m, e.Width()); err != nil {
		return []Proof{holds(ProofHead, "", err.Error())}, nil
	}
	out := []Proof{holds(ProofHead, fmt.Sprintf("%s [1, %d] and %s [1], finite, bound to %s", headWeight, e.Width(), headBias, m.Digest))}
	markers, err := MarkerTokensOf(e)
	if err != nil {
		return append(out, holds(ProofMarkers, "", err.Error())), nil
	}
	out = append(out, p.proveMarkers(markers))
	tokens, err := proveTokens(e, refs)
	if err != nil {
		return nil, err
	}
	out = append(out, tokens)
	pr := &Prediction{Reader: e, Head: head, Markers: markers}
	curves, err := p.proveP(ctx, pr, refs)
	if err != nil {
		return nil, err
	}
	out = append(out, curves)
	words, err := p.ProveWords(ctx, "embedded engine", e, e, markers, refs)
	return append(out, words...), err
}

func (p *Package) proveMarkers(m MarkerTokens) Proof {
	got := map[string]int32{TurnEnd: m.TurnEnd, Speak: m.Speak, EndSpeak: m.EndSpeak}
	if !maps.Equal(got, p.Card.Markers) {
		return holds(ProofMarkers, "", fmt.Sprintf("their tokens are %v in the file and %v in training", got, p.Card.Markers))
	}
	return holds(ProofMarkers, fmt.Sprintf("%s %d, %s %d, %s %d", TurnEnd, m.TurnEnd, Speak, m.Speak, EndSpeak, m.EndSpeak))
}

func proveTokens(r Reader, refs []Reference) (Proof, error) {
	n := 0
	for _, ref := range refs {
		ts, err := r.LiteralTokens(ref.Dialogue)
		if err != nil {
			return Proof{}, fmt.Errorf("tokenise dialogue %s: %w", ref.ID, err)
		}
		if !slices.Equal(ts, ref.Tokens) {
			at := 0
			for at < min(len(ts), len(ref.Tokens)) && ts[at] == ref.Tokens[at] {
				at++
			}
			return holds(ProofTokens, "", fmt.Sprintf("dialogue %s has %d tokens in PyTorch and %d here, the first that differs is number %d", ref.ID, len(ref.Tokens), len(ts), at)), nil
		}
		n += len(ts)
	}
	return holds(ProofTokens, fmt.Sprintf("all %d of %d dialogues are equal", n, len(refs))), nil
}

func (p *Package) proveP(ctx context.Context, pr *Prediction, refs []Reference) (Proof, error) {
	worst, sum, n, where := 0.0, 0.0, 0, ""
	for _, ref := range refs {
		curve, err := pr.Curve(ctx, ref.Dialogue)
		if err != nil {
			return Proof{}, fmt.Errorf("dialogue %s: %w", ref.ID, err)
		}
		if len(curve) != len(ref.P) {
			return holds(ProofP, "", fmt.Sprintf("dialogue %s has %d turns here and %d in PyTorch", ref.ID, len(curve), len(ref.P))), nil
		}
		for t, v := range curve {
			d := math.Abs(v - ref.P[t])
			if d > worst || where == "" || math.IsNaN(d) {
				worst, where = d, fmt.Sprintf("dialogue %s, turn %d: %.4f here and %.4f there", ref.ID, t+1, v, ref.P[t])
			}
			sum += d
			n++
		}
	}
	return measured(ProofP, fmt.Sprintf("greatest difference of %d turns %.5f, mean %.5f (%s)", n, worst, sum/float64(max(1, n)), where), worst, p.limit(MaxPDifference)), nil
}

// Pieces gives the text of tokens.
type Pieces interface {
	Piece(token int32) (text []byte, ends bool, err error)
}

// ProveWords decodes greedily with a backend that serves the model, named to the
// reader by who, and compares the text with PyTorch's tokens; and whether it ends
// where PyTorch's does, at EndSpeak or the model's own end.
func (p *Package) ProveWords(ctx context.Context, who string, b infer.Backend, pieces Pieces, markers MarkerTokens, refs []Reference) ([]Proof, error) {
	var wrong, ties, tokens, whole, ended, runOn int
	var first string
	// More tokens than PyTorch was asked for, so that the text has all of its last
	// one, which may be a part of a character; and one context length for all.
	const more = 4
	room := 0
	for _, ref := range refs {
		room = max(room, (len(ref.Tokens)+len(ref.Greedy)+more+1024)/1024*1024)
	}
	for _, ref := range refs {
		want, err := referenceText(pieces, markers, ref)
		if err != nil {
			return nil, err
		}
		r, err := b.Chat(ctx, infer.Prompt{Raw: ref.prompt(), Literal: true}, infer.Params{MaxTokens: len(ref.Greedy) + more, TopP: 1, NumCtx: room, Stop: []string{EndSpeak}})
		if err != nil {
			return nil, fmt.Errorf("%s: decode after dialogue %s: %w", who, ref.ID, err)
		}
		at := diverges(want, r.Text, r.Stop)
		tokens += at
		switch {
		case at == len(want):
			whole++
			if len(want) > 0 && want[at-1].ends {
				ended++
			}
		case ref.Gap[at] <= MinGap:
			ties++
		default:
			wrong++
			if want[at].ends {
				runOn++
			}
			if first == "" {
				first = fmt.Sprintf("; the first: dialogue %s, token %d, where PyTorch's %q leads by %.3f", ref.ID, at+1, want[at].text, ref.Gap[at])
			}
		}
	}
	n := len(refs)
	greedy := measured(ProofGreedy+", "+who, fmt.Sprintf("%d tokens equal; of %d utterances %d equal to the end, %d part where PyTorch's own lead is at most %g logits, which does not count, %d disagree%s",
		tokens, n, whole, ties, MinGap, wrong, first), float64(wrong), p.limit(0))
	if ended+runOn == 0 {
		return []Proof{greedy, NotRun(ProofEnds+", "+who, fmt.Sprintf("within its tokens PyTorch ends none of %d utterances that are comparable to their end; allow more tokens, or train longer", n))}, nil
	}
	ends := measured(ProofEnds+", "+who, fmt.Sprintf("%d of %d utterances that PyTorch ends at %s or the model's end, end there; %d run on", ended, ended+runOn, EndSpeak, runOn), float64(runOn), p.limit(0))
	return []Proof{greedy, ends}, nil
}

// word is a token of a reference: its text, and whether it ends the utterance.
type word struct {
	text []byte
	ends bool
}

func referenceText(pieces Pieces, markers MarkerTokens, ref Reference) ([]word, error) {
	out := make([]word, len(ref.Greedy))
	for i, t := range ref.Greedy {
		text, ends, err := pieces.Piece(t)
		if err != nil {
			return nil, fmt.Errorf("the text of PyTorch's token %d of dialogue %s: %w", i+1, ref.ID, err)
		}
		out[i] = word{text, ends || t == markers.EndSpeak}
	}
	return out, nil
}

// diverges returns the index of the first token that a generated text does not
// follow, or their number where it follows all. stop is why the text ended.
func diverges(want []word, text, stop string) int {
	rest := []byte(text)
	for i, w := range want {
		switch {
		case w.ends && len(rest) == 0 && stop == "stop":
		case !w.ends && bytes.HasPrefix(rest, w.text):
			rest = rest[len(w.text):]
		default:
			return i
		}
	}
	return len(want)
}

// ProveRendered compares how two models render chat prompts. note is added to
// what it says.
func ProveRendered(ctx context.Context, base, tuned infer.Backend, prompts []infer.Prompt, note string) (Proof, error) {
	for i, q := range prompts {
		a, err := base.Render(ctx, q)
		if err != nil {
			return Proof{}, fmt.Errorf("render a prompt of the base: %w", err)
		}
		b, err := tuned.Render(ctx, q)
		if err != nil {
			return Proof{}, fmt.Errorf("render a prompt of the tuned model: %w", err)
		}
		if a != b {
			return holds(ProofRendered, "", fmt.Sprintf("prompt %d of %d is %.200q for the base and %.200q for the tuned model", i+1, len(prompts), a, b)), nil
		}
	}
	return holds(ProofRendered, fmt.Sprintf("all %d are equal%s", len(prompts), note)), nil
}

// ChatPrompts are prompts of every form that a template distinguishes.
func ChatPrompts() []infer.Prompt {
	say := func(roles ...string) infer.Prompt {
		var p infer.Prompt
		for i, role := range roles {
			p.Messages = append(p.Messages, infer.Message{Role: role, Content: []string{"Be brief. Sei kurz; 请简短。", "What's 12 + 34?\n\n  (as a number)", "46 “exactly” 🙂", " Thank you! "}[i]})
		}
		return p
	}
	return []infer.Prompt{
		say(infer.System, infer.User),
		say(infer.System, infer.User, infer.Assistant, infer.User),
		say(infer.User),
		say(infer.User, infer.Assistant, infer.User),
	}
}
