package construct

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

func TestDesignIsBalanced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	scenarios := make([]Scenario, 36)
	for i := range scenarios {
		scenarios[i] = sound(fmt.Sprint(i))
	}
	orders := map[string]bool{}
	for seed := int64(1); seed <= 8; seed++ {
		cases, err := Design(scenarios, 1, seed, w.prompts)
		if err != nil {
			t.Fatal(err)
		}
		var order strings.Builder
		for _, block := range []int{3, 6, 18} {
			for i := 0; i+block <= len(cases); i += block {
				stages, turns, both := map[string]int{}, map[int]int{}, map[string]int{}
				for _, c := range cases[i : i+block] {
					stages[c.Stage]++
					turns[c.Turn]++
					both[fmt.Sprint(c.Stage, c.Turn)]++
				}
				if len(stages) != 3 || stages["Denial"] != block/3 || stages["Defense"] != block/3 || block >= 6 && (len(turns) != 6 || turns[3] != block/6) || block == 18 && len(both) != 18 {
					t.Errorf("seed %d: cases %d to %d have stages %v, turns %v", seed, i, i+block, stages, turns)
				}
			}
		}
		for i, c := range cases {
			fmt.Fprint(&order, c.Stage, c.Turn, " ")
			if c.ID != i+1 || c.Agent != 2-c.Turn%2 || c.check() != nil {
				t.Errorf("case %d: %+v, %v", i, c, c.check())
			}
		}
		orders[order.String()] = true
	}
	if len(orders) < 4 {
		t.Errorf("eight seeds give %d orders", len(orders))
	}
}

func oneCase(t *testing.T, turn int, stage string) (options, Case) {
	t.Helper()
	w := newWorld(t)
	c := Case{ID: 1, Scenario: sound("1"), Stage: stage, Turn: turn, Agent: mediation.SpeakerOf(turn)}
	if err := c.fill(w.prompts); err != nil {
		t.Fatal(err)
	}
	return options{Prompts: w.prompts, Seed: 1, MaxTokens: 40, Temperature: 0.8, Attempts: 2, MinMass: 0.05}, c
}

func TestTurnsThatCannotStand(t *testing.T) {
	t.Parallel()
	for why, c := range map[string]struct {
		says  func(turn string, n int) string
		turns int
	}{
		emptyTurn: {func(turn string, _ int) string { return strings.TrimPrefix("Fine, "+turn, "Fine, 2") }, 1},
		repeatedTurn: {func(turn string, _ int) string {
			return map[string]string{"3": "So it is. 2"}[turn] + "So it is, " + turn
		}, 4},
		namedStage: {func(turn string, _ int) string {
			return map[bool]string{true: "You are in the stage of Defense.", false: "Hm " + turn}[turn == "4"]
		}, 3},
		otherByWords: {func(turn string, _ int) string {
			return map[bool]string{true: "Deep down we are all the same.", false: "Hm " + turn}[turn == "4"]
		}, 3},
		"": {func(turn string, n int) string {
			if turn == "4" && n == 1 {
				return "Deep down we are all the same."
			}
			return "You people, " + turn
		}, 10},
	} {
		o, of := oneCase(t, 4, "Defense")
		asked := map[string]int{}
		b := &infertest.Scripted{Say: func(p infer.Prompt, _ infer.Params) infer.Reply {
			turn := askedTurn.FindStringSubmatch(text(p))[1]
			asked[turn]++
			return infer.Reply{Text: c.says(turn, asked[turn])}
		}}
		if why == repeatedTurn {
			b.Say = func(p infer.Prompt, _ infer.Params) infer.Reply {
				turn := askedTurn.FindStringSubmatch(text(p))[1]
				asked[turn]++
				return infer.Reply{Text: map[string]string{"1": "Good morning.", "2": "Hello.", "3": "good  morning!"}[turn]}
			}
			c.turns = 2
		}
		turns, got, err := o.speak(t.Context(), b, of, nil, 1, lastTurn)
		if err != nil || got != why || len(turns) != c.turns {
			t.Errorf("%q: refused with %q after %d turns, %v; want %d turns", why, got, len(turns), err, c.turns)
		}
		for turn, n := range asked {
			if n > o.Attempts {
				t.Errorf("turn %s was asked for %d times", turn, n)
			}
		}
		if why == "" && turns[3].Attempts != 2 {
			t.Errorf("the scripted turn stands after %d attempts, want 2", turns[3].Attempts)
		}
	}
}

func TestCleanTurn(t *testing.T) {
	t.Parallel()
	_, c := oneCase(t, 3, "Denial")
	d, err := c.dialogue()
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"Aino: Good morning.":                   "Good morning.",
		"Turn 3 (Aino): Good morning.":          "Good morning.",
		`"Good morning."`:                       "Good morning.",
		"Good morning.\nKofi: And to you.":      "Good morning.",
		"Good morning.\n**Mediator:** Hello.":   "Good morning.",
		"One.\nTwo.":                            "One.\nTwo.",
		"Kofi: I speak for him.":                "",
		"Good morning.\nTurn 4 (Kofi): And you": "Good morning.",
	} {
		if got := cleanTurn(in, d, 1); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// Only the conflict speaker is told the stage, in the conflict turn, and no prompt of a turn
// has a name of a stage.
func TestWhatTheSimulatorIsTold(t *testing.T) {
	t.Parallel()
	o, c := oneCase(t, 6, "Minimization")
	d, err := c.dialogue()
	if err != nil {
		t.Fatal(err)
	}
	full := o.fullTalk(c)
	for turn := 1; turn <= lastTurn; turn++ {
		p, err := o.turnPrompt(c, d, full.Turns[:turn-1], turn)
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(text(p), "covers difference with sameness"); told != (turn == 6) {
			t.Errorf("turn %d is told the pattern: %t", turn, told)
		}
		if at := stageWords.FindString(text(p)); at != "" {
			t.Errorf("the prompt of turn %d says %q", turn, at)
		}
		speaker := c.Scenario.People[1-turn%2].Name
		if !strings.Contains(text(p), fmt.Sprintf("Write turn %d, the words of %s", turn, speaker)) {
			t.Errorf("turn %d is not %s's:\n%s", turn, speaker, text(p))
		}
	}
}

// Of what the prompts of a dialogue have in common nearly nothing is evaluated twice by a
// server with one slot, which keeps the last prompt.
func TestPromptsOfADialogueShareTheirBeginning(t *testing.T) {
	t.Parallel()
	o, c := oneCase(t, 6, "Minimization")
	calls, longest := map[string][]infer.Prompt{}, map[string][]infer.Prompt{}
	d, err := c.dialogue()
	if err != nil {
		t.Fatal(err)
	}
	full := o.fullTalk(c)
	for i := range full.Turns {
		full.Turns[i].Text = fmt.Sprintf("turn%d ", i) + full.Turns[i].Text
	}
	for turn := 1; turn <= lastTurn; turn++ {
		p, err := o.turnPrompt(c, d, full.Turns[:turn-1], turn)
		if err != nil {
			t.Fatal(err)
		}
		calls["turns"] = append(calls["turns"], p)
	}
	if err := o.addPathPrompts(pathUnit{Labelled{Talk: full}, Positive, 6}, calls, longest); err != nil {
		t.Fatal(err)
	}
	stages, reversed, _, err := o.labelPrompts(full)
	if err != nil {
		t.Fatal(err)
	}
	calls["stages"], calls["reversed"] = stages, reversed
	for _, name := range []string{"turns", RoleSimulator, "stages", "reversed"} {
		evaluated, unique := evaluations(calls[name])
		if ratio := float64(evaluated) / float64(unique); ratio > 1.10 {
			t.Errorf("%s: %d words are evaluated, %d are unique: %.3f", name, evaluated, unique, ratio)
		}
	}
}

// evaluations counts the words that a server with one slot evaluates, and those of the
// prompts' tree.
func evaluations(ps []infer.Prompt) (evaluated, unique int) {
	tree := map[string]bool{}
	var last []string
	for _, p := range ps {
		now := strings.Fields(text(p))
		same := 0
		for same < min(len(now), len(last)) && now[same] == last[same] {
			same++
		}
		evaluated += len(now) - same
		for i := range now {
			if path := strings.Join(now[:i+1], " "); !tree[path] {
				tree[path] = true
				unique++
			}
		}
		last = now
	}
	return evaluated, unique
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		positive, negative gain
		want               bool
	}{
		"a larger AUC":                 {gain{1, -2}, gain{0.5, 2}, true},
		"a smaller AUC":                {gain{0.5, 2}, gain{1, -2}, false},
		"one AUC, a larger W1":         {gain{1, 0.2}, gain{1, 0.1}, true},
		"one AUC but for rounding":     {gain{0.1 + 0.2, 0.2}, gain{0.3, 0.1}, true},
		"one AUC, the smaller W1":      {gain{1, 0.1}, gain{1, 0.2}, false},
		"both alike":                   {gain{1, 0.1}, gain{1, 0.1}, false},
		"rounding is no larger AUC":    {gain{0.1 + 0.2, 0}, gain{0.3, 0}, false},
		"a gap below nought is a loss": {gain{-1, 0}, gain{-0.5, 0}, false},
	} {
		if got := admitted(c.positive, c.negative); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// sure is a label that gives one stage all.
func sure(turn, stage int, own bool) mediation.TurnLabel {
	l := mediation.TurnLabel{Turn: turn, Own: own, Mass: 1}
	l.P[stage] = 1
	l.Stage = dialogueStages[stage]
	return l
}

var dialogueStages = []string{"Denial", "Defense", "Minimization", "Acceptance", "Adaptation", "Integration"}

// The conflict lies in turn 7, Denial; the stages after it are 2, 2, 4 of the index 0 to 5.
// By hand, τ is 1/3, 2/3, 1: the first value back to 0, trapezes after it:
// 2·1/3 + 2·1/3 + 3·1/3 = 7/3. Three turns later all mass is four steps on.
func TestGain(t *testing.T) {
	t.Parallel()
	after := []mediation.TurnLabel{sure(8, 2, false), sure(9, 2, true), sure(10, 4, false)}
	g, ok := gainOf(7, sure(7, 0, true), after)
	if want := 7.0 / 3; !ok || g.AUC < want-1e-12 || g.AUC > want+1e-12 || g.W1 != 4 {
		t.Errorf("%+v, want AUC %.4f and W1 4", g, want)
	}
	after[1] = mediation.TurnLabel{Turn: 9, Unscored: "no digit"}
	if _, ok := gainOf(7, sure(7, 0, true), after); ok {
		t.Error("a turn without a stage gives an AUC")
	}
}

func TestWrongTurn(t *testing.T) {
	t.Parallel()
	seen := map[int]int{}
	for id := range 300 {
		turn := wrongTurn(Case{ID: id, Turn: 5}, 1)
		seen[turn]++
		if turn == 5 || turn < firstConflict || turn > lastConflict {
			t.Fatalf("the wrong turn is %d", turn)
		}
	}
	if len(seen) != 5 {
		t.Errorf("wrong turns %v", seen)
	}
}

// A path is the conversation up to the later of the mediator's turn and the conflict.
func TestWhereAPathBegins(t *testing.T) {
	t.Parallel()
	o, c := oneCase(t, 5, "Denial")
	l := Labelled{Talk: o.fullTalk(c)}
	for mediated, want := range map[int]int{3: 6, 5: 6, 8: 9} {
		turns, from := pathUnit{l, Negative, mediated}.before(Line{Turn: mediated, Text: "Hm."})
		if from != want || len(turns) != want || turns[mediated].Agent != dialogue.Mediator || turns[len(turns)-1].T != want-1 {
			t.Errorf("mediated after %d: goes on with turn %d after %d lines, want turn %d", mediated, from, len(turns), want)
		}
	}
}
