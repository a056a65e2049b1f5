package socrates

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Forms of the evaluation.
const (
	// FormChoose asks after each party turn, topic by topic, whether the turn is about the
	// topic; of those that it is about, how far the parties agree, and where each stands. It
	// reads no turn that comes later.
	FormChoose = "choose"
	// FormPass asks once a topic for all turns, as the source does.
	FormPass = "pass"
	// FormEvery asks for the agreement on every topic after every party turn: FormChoose
	// without its first question, and its baseline.
	FormEvery = "every"
)

// Agreement on a topic is an integer from 1 to mostAgreement.
const mostAgreement = 5

// Evaluation is what an evaluator reads in a talk: the data of the steps that evaluate.
type Evaluation struct {
	PartyTurns int             `json:"party_turns"`
	Topics     []TopicReadings `json:"topics"`
	// Dropped counts, with FormPass, readings of turns or scores that cannot be.
	Dropped int    `json:"dropped,omitempty"`
	Raw     string `json:"raw,omitempty"` // an answer that could not be read
}

// TopicReadings are the party turns at which a topic's score was read, in their order. Other
// turns inherit the score of the one before, and 1 stands before the first.
type TopicReadings struct {
	Topic    string    `json:"topic"`
	Readings []Reading `json:"readings"`
}

// Reading is where the parties stand on a topic after a party turn.
type Reading struct {
	Turn      int     `json:"turn"`               // from 1
	Relevant  float64 `json:"relevant,omitempty"` // P that the turn is about the topic, of FormChoose
	Agreement int     `json:"agreement"`          // 1..5
	P         float64 `json:"p,omitempty"`        // of that answer, of all five together
	// Stances are the options that parties hold, by party; one without an option is not in it.
	Stances map[string]string `json:"stances,omitempty"`
}

const (
	evaluatorRules = `You read the talk of a dispute and say how far its parties agree. You know its background and its topics. Say what the talk shows, and nothing that it does not.`
	askRelevant    = `Is the latest turn about the topic that is named at the end, or does it move a party on it? Answer yes or no.`
	askAgreement   = `How far do all parties agree by now on the topic that is named at the end? 1: they are opposed, or have not spoken of it. 2: they begin to move. 3: they are half-way. 4: they agree but for details. 5: they agree. Answer with one digit.`
	askStance      = `Which option on the topic that is named at the end does %s hold by now? Answer with one letter; %s means none of them, or that it is not known.`
	askPass        = `Go through the whole talk for the topic that is named at the end. List the numbered turns that are about it, or that move a party on it; for each one how far all parties agree after it, from 1 (opposed) to 5 (agreed), and the letter of the option that each party then holds, in the order in which the parties are named, - for none. Answer with one JSON object, {"readings": "TURN:AGREEMENT:LETTERS, TURN:AGREEMENT:LETTERS, ..."}, and nothing else.`
	repairPass     = `This could not be read. Answer again with one JSON object, {"readings": "TURN:AGREEMENT:LETTERS, ..."}, and nothing else.`
	passText       = 2000 // most characters of the answer to askPass
	passTokens     = 800
)

// evaluator reads one talk.
type evaluator struct {
	of      scenario.Scenario
	talk    Talk
	minMass float64
	ask     infer.Backend
}

// Evaluate reads how far the parties of a talk agree after each of their turns. why is not
// empty where an answer cannot be used.
func Evaluate(ctx context.Context, b infer.Backend, of scenario.Scenario, talk Talk, form string, minMass float64) (e Evaluation, why string, err error) {
	x := &evaluator{of, talk, minMass, b}
	e.PartyTurns = talk.PartyTurns()
	for _, t := range of.Topics {
		e.Topics = append(e.Topics, TopicReadings{Topic: t.ID, Readings: []Reading{}})
	}
	if form == FormPass {
		err = x.passes(ctx, &e)
	} else {
		for turn := 1; turn <= e.PartyTurns && err == nil; turn++ {
			err = x.turn(ctx, &e, turn, form)
		}
	}
	if u, ok := err.(*unscored); ok {
		e.Raw = u.raw
		return e, u.why, nil
	}
	return e, "", err
}

// prompt is a question about a topic after a party turn. The talk comes before the question
// and the topic last, so that all questions of a talk share their beginning.
func (x *evaluator) prompt(turn int, numbered bool, question string, topic scenario.Topic) infer.Prompt {
	names := map[string]string{MediatorID: "Mediator"}
	for i, id := range x.talk.Parties[:min(len(x.talk.Parties), len(x.talk.Names))] {
		names[id] = x.talk.Names[i]
	}
	lines, n := []string{soFar, ""}, 0
	for _, t := range x.talk.Turns {
		if n == turn {
			break // a mediator's turn after it is not part of it
		}
		name := names[t.By]
		if t.By != MediatorID {
			n++
			if numbered {
				name = fmt.Sprintf("Turn %d, %s", n, name)
			}
		}
		lines = append(lines, name+": "+t.Text)
	}
	lines = append(lines, "", question, "", "Topic: "+topic.Name)
	system := evaluatorRules + "\n\n" + scene(x.of) + "\n# Parties\n\n" + strings.Join(x.talk.Names, ", ")
	return infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: system}, {Role: infer.User, Content: strings.Join(lines, "\n")}}}
}

// choose asks one question about several topics.
func (x *evaluator) choose(ctx context.Context, turn int, question string, topics []int, as []infer.Answer) ([]infer.Choice, error) {
	ps := make([]infer.Prompt, len(topics))
	for i, k := range topics {
		ps[i] = x.prompt(turn, false, question, x.of.Topics[k])
	}
	cs, err := x.ask.Choose(ctx, ps, as, infer.Params{TopP: 1})
	if err != nil {
		return nil, err
	}
	for i, c := range cs {
		why := c.Unscored
		if why == "" && (c.Mass < x.minMass || c.Argmax() < 0) {
			why = fmt.Sprintf("the probability on the answers is %.3g, and at least %g is needed", c.Mass, x.minMass)
		}
		if why != "" {
			return nil, &unscored{fmt.Sprintf("the evaluator, on %s after turn %d: %s", x.of.Topics[topics[i]].ID, turn, why), ""}
		}
	}
	return cs, nil
}

// turn reads all topics after a party turn.
func (x *evaluator) turn(ctx context.Context, e *Evaluation, turn int, form string) error {
	var topics []int
	relevant := map[int]float64{}
	for k := range x.of.Topics {
		topics = append(topics, k)
	}
	if form == FormChoose {
		cs, err := x.choose(ctx, turn, askRelevant, topics, infer.Words("yes", "no"))
		if err != nil {
			return err
		}
		topics = slices.DeleteFunc(topics, func(k int) bool {
			relevant[k] = cs[k].P[0] / cs[k].Mass
			return relevant[k] < 0.5
		})
	}
	if len(topics) == 0 {
		return nil
	}
	cs, err := x.choose(ctx, turn, askAgreement, topics, infer.Digits(1, mostAgreement))
	if err != nil {
		return err
	}
	for i, k := range topics {
		at := cs[i].Argmax()
		r := Reading{Turn: turn, Relevant: task.Rounded(relevant[k]), Agreement: at + 1, P: task.Rounded(cs[i].P[at] / cs[i].Mass)}
		if r.Stances, err = x.stances(ctx, turn, k); err != nil {
			return err
		}
		e.Topics[k].Readings = append(e.Topics[k].Readings, r)
	}
	return nil
}

// stances reads the option that each party holds on a topic.
func (x *evaluator) stances(ctx context.Context, turn, k int) (map[string]string, error) {
	options := x.of.Topics[k].Options
	if len(options) == 0 {
		return nil, nil
	}
	as := infer.Letters(len(options) + 1)
	for i, o := range options {
		as[i] = infer.Answer{Label: o.Letter, Variants: []string{o.Letter, " " + o.Letter}}
	}
	none := as[len(options)].Label
	held := map[string]string{}
	for i, id := range x.talk.Parties {
		cs, err := x.choose(ctx, turn, fmt.Sprintf(askStance, x.talk.Names[i], none), []int{k}, as)
		if err != nil {
			return nil, err
		}
		if at := cs[0].Argmax(); at < len(options) {
			held[id] = options[at].Letter
		}
	}
	return held, nil
}

// passes reads each topic in one answer.
func (x *evaluator) passes(ctx context.Context, e *Evaluation) error {
	o := infer.Params{MaxTokens: passTokens, TopP: 1, Schema: &infer.Schema{Texts: []infer.SchemaText{{Name: "readings", Max: passText}}}}
	for k, topic := range x.of.Topics {
		p := x.prompt(e.PartyTurns, true, askPass, topic)
		r, err := x.ask.Chat(ctx, p, o)
		if err != nil {
			return err
		}
		readings, dropped, ok := x.parsePass(r.Text, topic)
		if !ok {
			p.Messages = append(p.Messages, infer.Message{Role: infer.Assistant, Content: r.Text}, infer.Message{Role: infer.User, Content: repairPass})
			if r, err = x.ask.Chat(ctx, p, o); err != nil {
				return err
			}
			if readings, dropped, ok = x.parsePass(r.Text, topic); !ok {
				return &unscored{"the evaluator's readings of " + topic.ID + " are no JSON object", r.Text}
			}
		}
		e.Topics[k].Readings, e.Dropped = readings, e.Dropped+dropped
	}
	return nil
}

// parsePass reads TURN:AGREEMENT:LETTERS triples, where options can be left out. Those of
// turns that are not there, of turns that were read already, of other scores and of options
// that are not there are dropped and counted.
func (x *evaluator) parsePass(text string, topic scenario.Topic) (rs []Reading, dropped int, ok bool) {
	var answer struct {
		Readings *string `json:"readings"`
	}
	if !firstObject(text, &answer) || answer.Readings == nil {
		return nil, 0, false
	}
	rs = []Reading{}
	seen := map[int]bool{}
	for triple := range strings.FieldsFuncSeq(*answer.Readings, func(r rune) bool { return r == ',' || r == ';' || r == ' ' || r == '\n' }) {
		at, rest, _ := strings.Cut(triple, ":")
		score, letters, lettered := strings.Cut(rest, ":")
		turn, errTurn := strconv.Atoi(at)
		agreement, errScore := strconv.Atoi(score)
		r := Reading{Turn: turn, Agreement: agreement}
		fits := errTurn == nil && errScore == nil && turn >= 1 && turn <= x.talk.PartyTurns() && agreement >= 1 && agreement <= mostAgreement && !seen[turn]
		if lettered && fits {
			r.Stances, fits = x.held(letters, topic)
		}
		if !fits {
			dropped++
			continue
		}
		seen[turn] = true
		rs = append(rs, r)
	}
	slices.SortFunc(rs, func(a, b Reading) int { return a.Turn - b.Turn })
	return rs, dropped, true
}

// held reads the letters of options by party.
func (x *evaluator) held(letters string, topic scenario.Topic) (map[string]string, bool) {
	if len(letters) != len(x.talk.Parties) {
		return nil, false
	}
	held := map[string]string{}
	for i, party := range x.talk.Parties {
		letter := letters[i : i+1]
		known := slices.ContainsFunc(topic.Options, func(o scenario.Option) bool { return o.Letter == letter })
		switch {
		case known:
			held[party] = letter
		case letter != "-":
			return nil, false
		}
	}
	return held, true
}
