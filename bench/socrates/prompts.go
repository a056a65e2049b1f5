package socrates

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/infer"
)

// What parties and mediator are told beside the scenario.
const (
	partyRules = `You take part in a talk about a dispute, as %s. Stay in this role. The parties speak in turn; a mediator may speak between them.
Answer with one JSON object, {"thought": "...", "utterance": "..."}, and nothing else. The thought is private: what you make of the talk and what you want to reach, in one or two sentences. The utterance is what you say aloud, in one to four sentences, in your own name alone.
When you accept a settlement of every topic, name its terms and write ` + scenario.AgreementMark + ` at the end of the utterance. The talk ends when the latest turn of every party holds it; leave it out to take it back. Write ` + scenario.ImpasseMark + ` to break off for good.`
	begin  = `The talk begins. You speak first.`
	repair = `This could not be read. Answer again with one JSON object, {"thought": "...", "utterance": "..."}, and nothing else.`

	mediatorRules = `You mediate a dispute. You know its background and its topics, and you hear the talk; what the parties want in private you do not know. You take no side and decide nothing. Before each turn of a party you may say something to all, or stay silent and let them talk.`
	think         = `Before %s speaks: what happens in the talk, and does it need you now? Answer in one to three sentences.`
	decide        = `Do you speak now? Answer yes or no.`
	utter         = `Say to the parties what you want to say, in one to four sentences, and nothing else.`
	soFar         = `The talk so far:`
	leftOut       = `(Earlier turns are left out.)`
)

// templates hash what is told, for the run's identity.
func templates() map[string]string {
	h := func(texts ...string) string {
		s := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
		return hex.EncodeToString(s[:16])
	}
	return map[string]string{"socrates_party": h(partyRules, begin, repair, leftOut, fmt.Sprint(scenario.Told())), "socrates_mediator": h(mediatorRules, think, decide, utter, soFar, leftOut),
		"socrates_evaluator": h(evaluatorRules, soFar, askRelevant, askAgreement, askStance, askPass, repairPass)}
}

// scene is what everyone knows: history, background, topics and options.
func scene(s scenario.Scenario) string {
	var b strings.Builder
	b.WriteString("# Background\n\n")
	for _, e := range s.History {
		fmt.Fprintf(&b, "%s: %s\n\n", e.Date, e.Text)
	}
	b.WriteString(s.Background + "\n\n# Topics\n")
	for _, t := range s.Topics {
		fmt.Fprintf(&b, "\n%s: %s\n", t.Name, t.Description)
		for _, o := range t.Options {
			fmt.Fprintf(&b, "  %s. %s\n", o.Letter, o.Text)
		}
	}
	return b.String()
}

// profile is what a party alone knows.
func profile(s scenario.Scenario, p scenario.Party) string {
	var b strings.Builder
	part := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, text)
		}
	}
	part("Your objective", p.Role.Objective)
	part("Your constraints", p.Role.Constraints)
	part("Without an agreement", p.Role.Fallback)
	part("You and the others", p.Relation)
	for _, t := range s.Topics {
		line := p.Preferences[t.ID]
		if w, ok := p.Weights[t.ID]; ok {
			line += fmt.Sprintf(" Weight: %d of 100.", w)
		}
		if letter := p.Stances[t.ID]; letter != "" {
			line += fmt.Sprintf(" You begin with %s.", letter)
		}
		part(t.Name, strings.TrimSpace(line))
	}
	if p.Profile != "" {
		b.WriteString(p.Profile + "\n")
	}
	return b.String()
}

// partyPrompt holds the talk as a chat in which the party's own turns are the answers:
// each prompt begins with the whole one before it.
func (s *speaking) partyPrompt(p scenario.Party) infer.Prompt {
	system := fmt.Sprintf(partyRules, p.Name) + "\n\n" + scene(s.of.Scenario)
	if s.of.Posture != "" {
		system += "\n" + s.of.Posture + "\n"
	}
	system += "\n# You\n\n" + profile(s.of.Scenario, p)
	if trait := s.of.Traits[p.ID]; trait != "" {
		system += trait + "\n"
	}
	ms := []infer.Message{{Role: infer.System, Content: strings.TrimSpace(system)}}
	turns, cut := s.latest()
	var heard []string
	if cut {
		heard = []string{leftOut}
	}
	flush := func() {
		if len(heard) == 0 {
			heard = []string{begin}
		}
		ms = append(ms, infer.Message{Role: infer.User, Content: strings.Join(heard, "\n")})
		heard = nil
	}
	for _, t := range turns {
		if t.By != p.ID {
			heard = append(heard, s.names[t.By]+": "+t.Text)
			continue
		}
		flush()
		ms = append(ms, infer.Message{Role: infer.Assistant, Content: spoken{t.Thought, t.Text}.json()})
	}
	flush()
	return infer.Prompt{Messages: ms}
}

// latest are the turns that a prompt holds.
func (s *speaking) latest() (turns []Turn, cut bool) {
	turns = s.talk.Turns
	if n := s.o.MaxHistory; n > 0 && len(turns) > n {
		return turns[len(turns)-n:], true
	}
	return turns, false
}

// mediatorPrompt asks what the mediator makes of the talk before a party speaks. The talk
// comes last but for the question, so that prompts share it.
func (s *speaking) mediatorPrompt(next scenario.Party) infer.Prompt {
	system := mediatorRules + "\n\n" + scene(s.of.Scenario) + "\n# Parties\n\n" + strings.Join(s.talk.Names, ", ") + "\n"
	if s.o.PostureVisible && s.of.Posture != "" {
		system += "\nThe parties are told: " + s.of.Posture + "\n"
	}
	lines := []string{soFar, ""}
	turns, cut := s.latest()
	if cut {
		lines = append(lines, leftOut)
	}
	for _, t := range turns {
		lines = append(lines, s.names[t.By]+": "+t.Text)
	}
	lines = append(lines, "", fmt.Sprintf(think, next.Name))
	return infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: strings.TrimSpace(system)}, {Role: infer.User, Content: strings.Join(lines, "\n")}}}
}

// filler stands for a text of as many tokens as words.
func filler(tokens int) string { return strings.TrimSpace(strings.Repeat("word ", tokens)) }

// longestPrompts are the last prompts of a talk in which every text is as long as it may
// be: of the party and of the mediator.
func longestPrompts(of scenario.Case, o Options) (party, mediator infer.Prompt) {
	s := &speaking{of: of, o: o, names: map[string]string{MediatorID: "Mediator"}}
	ps := of.Scenario.Parties
	for _, p := range ps {
		s.names[p.ID] = p.Name
		s.talk.Names = append(s.talk.Names, p.Name)
	}
	for turn := range o.MaxTurns - 1 {
		if turn > 0 && o.Arm.Kind != ArmNone {
			s.talk.Turns = append(s.talk.Turns, Turn{By: MediatorID, After: turn, Text: filler(o.MediatorTokens)})
		}
		s.talk.Turns = append(s.talk.Turns, Turn{By: ps[turn%len(ps)].ID, After: turn, Text: filler(o.MaxTokens)})
	}
	mediator = s.mediatorPrompt(ps[0])
	mediator.Messages = append(mediator.Messages, infer.Message{Role: infer.Assistant, Content: filler(o.MediatorTokens)}, infer.Message{Role: infer.User, Content: utter})
	longest := 0
	for _, p := range ps {
		x := s.partyPrompt(p)
		if n := len(x.Messages[0].Content); n > longest {
			party, longest = x, n
		}
	}
	return party, mediator
}

// longestEvaluation is the longest question about a talk that is as long as it may be.
func longestEvaluation(of scenario.Case, o Options) infer.Prompt {
	talk := Talk{}
	for _, p := range of.Scenario.Parties {
		talk.Parties, talk.Names = append(talk.Parties, p.ID), append(talk.Names, p.Name)
	}
	for turn := range o.MaxTurns {
		if turn > 0 && o.Arm.Kind != ArmNone {
			talk.Turns = append(talk.Turns, Turn{By: MediatorID, After: turn, Text: filler(o.MediatorTokens)})
		}
		talk.Turns = append(talk.Turns, Turn{By: talk.Parties[turn%len(talk.Parties)], After: turn, Text: filler(o.MaxTokens)})
	}
	return longestQuestion(of.Scenario, talk)
}

// longestQuestion is the longest question about a talk.
func longestQuestion(of scenario.Scenario, talk Talk) infer.Prompt {
	topic := of.Topics[0]
	for _, t := range of.Topics {
		if len(t.Name) > len(topic.Name) {
			topic = t
		}
	}
	return (&evaluator{of: of, talk: talk}).prompt(talk.PartyTurns(), true, askPass+repairPass, topic)
}
