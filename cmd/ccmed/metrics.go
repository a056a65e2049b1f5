package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/bench/visible"
	"github.com/ccmed/ccmed/infer"
)

// maxLine bounds one input line of metrics.
const maxLine = 16 << 20

func (a *app) metricsCmd() *cobra.Command {
	var rule string
	var minMass float64
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "The metrics alone: JSON lines in, JSON lines out",
		Long: `metrics reads JSON lines on standard input and answers each with one line:

  {"pre":[6 numbers],"post":[6 numbers]}
      the shift between two stage distributions: signed_w1_paige, signed_w1_index,
      w1_paige, js, tv, dominance, expected_pre, expected_post (Paige scale)
  {"pre_stage":0-5,"intervention_turn":n,"last_turn":n,
   "trajectory":[[turn,stage],...]}
      the trajectory AUC: auc_paige, auc_index; null, and unscored says why, where
      no turn after the intervention is labelled
  {"top_logprobs":[{"token":"4","logprob":-0.1},...]}
      the stage distribution of a labeller's first token: distribution, mass,
      missing, scored

A line that cannot be answered gives {"line":n,"error":"..."}; the exit code is then 3.`,
		Example: `  echo '{"pre":[0,1,0,0,0,0],"post":[0,0,0,1,0,0]}' | ccmed metrics`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if rule != "ours" && rule != "reference" {
				return usagef("unknown --labeller-rule %q; known are ours and reference", rule)
			}
			if minMass < 0 || minMass >= 1 {
				return usagef("--min-mass %g; it must lie in 0..1", minMass)
			}
			return metricsLines(a.stdin, a.stdout, rule == "reference", minMass)
		},
	}
	cmd.Flags().StringVar(&rule, "labeller-rule", "ours", "ours (variants of a digit add up; nothing seen is unscored) or reference (the public code's: the largest variant)")
	cmd.Flags().Float64Var(&minMass, "min-mass", 0.05, "minimum probability mass on the digits; below it the distribution is unscored")
	return cmd
}

type metricsQuery struct {
	Pre  []float64 `json:"pre"`
	Post []float64 `json:"post"`

	PreStage         *int        `json:"pre_stage"`
	InterventionTurn *int        `json:"intervention_turn"`
	LastTurn         *int        `json:"last_turn"`
	Trajectory       [][]float64 `json:"trajectory"`

	TopLogprobs []infer.TokenLogprob `json:"top_logprobs"`
}

func metricsLines(in io.Reader, out io.Writer, reference bool, minMass float64) error {
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxLine)
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	line, bad := 0, 0
	for scan.Scan() {
		line++
		if len(bytes.TrimSpace(scan.Bytes())) == 0 {
			continue
		}
		var answer any
		var q metricsQuery
		err := strictjson.Unmarshal(scan.Bytes(), &q, strictjson.RefuseNullEntries)
		if err != nil {
			err = fmt.Errorf("not a JSON object of a known form: %w", err)
		} else {
			answer, err = q.answer(reference, minMass)
		}
		if err != nil {
			bad++
			answer = map[string]any{"line": line, "error": err.Error()}
		}
		text.Reset()
		err = enc.Encode(answer)
		if err == nil {
			_, err = io.WriteString(out, visible.JSON(text.String()))
		}
		if err != nil {
			return fmt.Errorf("write answer to line %d: %w", line, err)
		}
	}
	if errors.Is(scan.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("line %d of standard input is longer than %d bytes; nothing after it was read", line+1, maxLine)
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("read standard input after line %d: %w", line, err)
	}
	if bad > 0 {
		return &partialError{fmt.Errorf("%d of %d lines could not be answered", bad, line)}
	}
	return nil
}

func (q metricsQuery) answer(reference bool, minMass float64) (any, error) {
	pair, curve := q.Pre != nil || q.Post != nil, q.Trajectory != nil || q.PreStage != nil
	switch top := q.TopLogprobs != nil; {
	case pair && !curve && !top:
		return shift(q.Pre, q.Post)
	case curve && !pair && !top:
		return q.auc()
	case top && !pair && !curve:
		return labelOf(q.TopLogprobs, reference, minMass)
	case pair || curve || top:
		return nil, errors.New("the line has the fields of two forms; put each on a line of its own")
	}
	return nil, errors.New(`the line has none of "pre" and "post", "trajectory", "top_logprobs"`)
}

type shiftAnswer struct {
	SignedW1Paige float64 `json:"signed_w1_paige"`
	SignedW1Index float64 `json:"signed_w1_index"`
	W1Paige       float64 `json:"w1_paige"`
	JS            float64 `json:"js"`
	TV            float64 `json:"tv"`
	Dominance     string  `json:"dominance"`
	ExpectedPre   float64 `json:"expected_pre"`
	ExpectedPost  float64 `json:"expected_post"`
}

func shift(pre, post []float64) (any, error) {
	p, err := distribution("pre", pre)
	if err != nil {
		return nil, err
	}
	q, err := distribution("post", post)
	if err != nil {
		return nil, err
	}
	return shiftAnswer{dmis.SignedW1(p, q, dmis.Paige), dmis.SignedW1(p, q, dmis.Index), dmis.W1(p, q, dmis.Paige), dmis.JS(p, q), dmis.TV(p, q),
		dmis.Dominance(p, q), p.Expected(dmis.Paige), q.Expected(dmis.Paige)}, nil
}

func distribution(name string, v []float64) (d dmis.Distribution, err error) {
	if len(v) != len(d) {
		return d, fmt.Errorf("%q has %d numbers; a stage distribution has 6", name, len(v))
	}
	copy(d[:], v)
	if err := d.Validate(); err != nil {
		return d, fmt.Errorf("%q: %w", name, err)
	}
	return d, nil
}

func (q metricsQuery) auc() (any, error) {
	if q.PreStage == nil || q.InterventionTurn == nil || q.LastTurn == nil || q.Trajectory == nil {
		return nil, errors.New(`a trajectory needs "pre_stage", "intervention_turn", "last_turn" and "trajectory"`)
	}
	pre, err := stageIndex("pre_stage", float64(*q.PreStage))
	if err != nil {
		return nil, err
	}
	points := make([]dmis.StageAt, len(q.Trajectory))
	for i, p := range q.Trajectory {
		if len(p) != 2 || p[0] != math.Trunc(p[0]) || math.Abs(p[0]) > 1e9 {
			return nil, fmt.Errorf(`"trajectory" entry %d is not [turn, stage]`, i+1)
		}
		s, err := stageIndex(fmt.Sprintf(`"trajectory" entry %d`, i+1), p[1])
		if err != nil {
			return nil, err
		}
		points[i] = dmis.StageAt{Turn: int(p[0]), Stage: s}
	}
	out := map[string]any{}
	for name, scale := range map[string]dmis.Scale{"auc_paige": dmis.Paige, "auc_index": dmis.Index} {
		v, err := dmis.StageAUC(pre, *q.InterventionTurn, *q.LastTurn, points, scale)
		switch {
		case errors.Is(err, dmis.ErrNoTurn): // a result, as in the public code, and no bad line
			out[name], out["unscored"] = nil, err.Error()
		case err != nil:
			return nil, err
		default:
			out[name] = v
		}
	}
	return out, nil
}

func stageIndex(name string, v float64) (dmis.Stage, error) {
	if v != math.Trunc(v) || v < 0 || v > 5 {
		return 0, fmt.Errorf("%s is %v; a stage index is 0 (Denial) to 5 (Integration)", name, v)
	}
	return dmis.Stage(int(v)), nil
}

type labelAnswer struct {
	Distribution *dmis.Distribution `json:"distribution"`
	Mass         float64            `json:"mass"`
	Missing      []int              `json:"missing"`
	Scored       bool               `json:"scored"`
	Unscored     string             `json:"unscored,omitempty"`
}

func labelOf(top []infer.TokenLogprob, reference bool, minMass float64) (any, error) {
	kept, unscored := infer.Alternatives(top)
	top = kept
	if reference && !slices.ContainsFunc(top, func(t infer.TokenLogprob) bool { return math.IsNaN(t.Logprob) }) {
		unscored = "" // a softmax over the digits, which logits have too
	}
	if unscored != "" {
		return labelAnswer{Missing: []int{}, Unscored: unscored}, nil
	}
	tokens, logprobs := make([]string, len(top)), make([]float64, len(top))
	for i, t := range top {
		tokens[i], logprobs[i] = t.Token, t.Logprob
	}
	var l dmis.Label
	if reference {
		l = dmis.FromTopReference(tokens, logprobs)
	} else {
		l = dmis.FromTop(tokens, logprobs, minMass)
	}
	a := labelAnswer{Mass: l.Mass, Missing: l.Missing, Scored: l.Unscored == "", Unscored: l.Unscored}
	if a.Missing == nil {
		a.Missing = []int{}
	}
	if a.Scored {
		a.Distribution = &l.Dist
	}
	return a, nil
}
