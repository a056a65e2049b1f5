package socrates

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/infer"
)

// How a talk ends.
const (
	EndAgreement = "agreement" // every party's latest turn holds scenario.AgreementMark
	EndImpasse   = "impasse"   // a party wrote scenario.ImpasseMark
	EndTurns     = "turns"     // the most party turns were spoken
)

// MediatorID is who speaks a turn of the mediator.
const MediatorID = "mediator"

// Talk is one simulated talk: the data of every step.
type Talk struct {
	Scenario string   `json:"scenario"`
	Case     string   `json:"case,omitempty"` // hash of the scenario as its condition leaves it
	Domain   string   `json:"domain"`
	Axis     string   `json:"axis"`
	Parties  []string `json:"parties"` // ids, in the order of speaking
	Names    []string `json:"names"`
	// Turns are those of parties and mediator in their order; After of a mediator's turn is
	// how many party turns came before it.
	Turns     []Turn     `json:"turns"`
	Decisions []Decision `json:"decisions,omitempty"`
	End       string     `json:"end" jsonschema:"enum=agreement,enum=impasse,enum=turns,enum="` // "" where the talk broke off
	// Deal is the option of each topic on which a recorded talk ended.
	Deal map[string]string `json:"deal,omitempty"`
	// Raw is an answer that could not be read, which ended the talk.
	Raw string `json:"raw,omitempty"`
}

// Turn is something said.
type Turn struct {
	By       string `json:"by"`
	After    int    `json:"after"` // party turns before it
	Thought  string `json:"thought,omitempty"`
	Text     string `json:"text"`
	Repaired bool   `json:"repaired,omitempty"` // the second answer is the one that could be read
	Trimmed  bool   `json:"trimmed,omitempty"`  // words in another's name were cut off
	Cut      bool   `json:"cut,omitempty"`      // the text ends at its cap of tokens
}

// Decision is whether the mediator spoke.
type Decision struct {
	After   int     `json:"after"`
	Thought string  `json:"thought"`
	P       float64 `json:"p"` // of yes, of yes and no together
}

// PartyTurns counts the turns of parties.
func (t Talk) PartyTurns() int { return len(t.Turns) - len(t.Interventions()) }

// Interventions lists after how many party turns the mediator spoke.
func (t Talk) Interventions() (out []int) {
	for _, x := range t.Turns {
		if x.By == MediatorID {
			out = append(out, x.After)
		}
	}
	return out
}

// Options steer a talk.
type Options struct {
	Arm            Arm
	Seed           int64
	MaxTurns       int
	MaxTokens      int // of a party's turn
	MediatorTokens int // of a thought of the mediator, and of its words
	MaxHistory     int // latest turns that a prompt holds; 0 is all
	Temperature    float64
	PostureVisible bool // the mediator too is told the parties' strategy
}

// Arm is when a mediator speaks.
type Arm struct {
	Kind  string // ArmNone, ArmNull, ArmReplay, ArmGeneric, ArmPeriodic, ArmAlways
	Every int    // party turns, of ArmPeriodic; the number of an ArmReplay
}

// Arms of a talk. A talk of ArmNull is unmediated too, with other seeds; so are those of
// ArmReplay, each with its own.
const (
	ArmNone     = "unmediated"
	ArmNull     = "null"
	ArmReplay   = "replay"
	ArmGeneric  = "generic"
	ArmPeriodic = "periodic"
	ArmAlways   = "always"
)

// unscored ends a talk whose next turn could not be had.
type unscored struct{ why, raw string }

func (u *unscored) Error() string { return u.why }

// speaking is a talk that goes on.
type speaking struct {
	of     scenario.Case
	o      Options
	party  infer.Backend
	med    infer.Backend
	talk   Talk
	names  map[string]string // by id
	agreed map[string]bool   // by party: its latest turn agrees
	other  map[string]*regexp.Regexp
}

// Simulate lets the parties talk until they agree, break off or have spoken their turns.
// why is not empty where an answer could not be read: the talk then holds what was said
// until there.
func Simulate(ctx context.Context, party, mediator infer.Backend, of scenario.Case, o Options) (t Talk, why string, err error) {
	s := &speaking{of: of, o: o, party: party, med: mediator, names: map[string]string{MediatorID: "Mediator"}, agreed: map[string]bool{}, other: map[string]*regexp.Regexp{}}
	s.talk = Talk{Scenario: of.Scenario.ID, Domain: of.Scenario.Domain, Axis: of.Axis}
	for _, p := range of.Scenario.Parties {
		s.names[p.ID] = p.Name
		s.talk.Parties, s.talk.Names = append(s.talk.Parties, p.ID), append(s.talk.Names, p.Name)
	}
	s.otherNames()
	if s.talk.Case, err = caseHash(of); err != nil {
		return s.talk, "", err
	}
	err = s.run(ctx)
	if u, ok := err.(*unscored); ok {
		s.talk.Raw = u.raw
		return s.talk, u.why, nil
	}
	return s.talk, "", err
}

func (s *speaking) run(ctx context.Context) error {
	for turn := range s.o.MaxTurns {
		p := s.of.Scenario.Parties[turn%len(s.of.Scenario.Parties)]
		if turn > 0 {
			if err := s.mediate(ctx, turn, p); err != nil {
				return err
			}
		}
		t, err := s.speak(ctx, turn, p)
		if err != nil {
			return err
		}
		s.talk.Turns = append(s.talk.Turns, t)
		upper := strings.ToUpper(t.Text)
		s.agreed[p.ID] = strings.Contains(upper, scenario.AgreementMark)
		if strings.Contains(upper, scenario.ImpasseMark) {
			s.talk.End = EndImpasse
			return nil
		}
		if s.allAgree() {
			s.talk.End = EndAgreement
			return nil
		}
	}
	s.talk.End = EndTurns
	return nil
}

func (s *speaking) allAgree() bool {
	for _, id := range s.talk.Parties {
		if !s.agreed[id] {
			return false
		}
	}
	return true
}

// params are those of a turn. The seed depends on scenario, condition and turn, and not on
// the arm, so that talks differ by what the mediator said alone.
func (s *speaking) params(turn, tokens int, what string) infer.Params {
	switch s.o.Arm.Kind {
	case ArmNull:
		what += "\x00" + ArmNull
	case ArmReplay:
		what += fmt.Sprint("\x00", ArmReplay, s.o.Arm.Every)
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s\x00%s\x00%d\x00%s", s.o.Seed, s.of.Scenario.ID, s.of.Condition, turn, what))
	return infer.Params{MaxTokens: tokens, Temperature: s.o.Temperature, TopP: 1, Seed: int64(binary.BigEndian.Uint32(h[:]) >> 1)}
}

// spoken is the form of a party's answer.
type spoken struct {
	Thought   string `json:"thought"`
	Utterance string `json:"utterance"`
}

func (a spoken) json() string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(a) // of texts: cannot fail
	return strings.TrimSpace(b.String())
}

// speak has a party think and say its turn, and asks once more for what cannot be read.
func (s *speaking) speak(ctx context.Context, turn int, p scenario.Party) (Turn, error) {
	prompt := s.partyPrompt(p)
	o := s.params(turn, s.o.MaxTokens, "party")
	// A token holds more than three characters of prose, so that the object can be closed.
	o.Schema = &infer.Schema{Texts: []infer.SchemaText{{Name: "thought", Max: s.o.MaxTokens}, {Name: "utterance", Max: 2 * s.o.MaxTokens}}}
	r, err := s.party.Chat(ctx, prompt, o)
	if err != nil {
		return Turn{}, err
	}
	t, why := s.read(r, turn, p)
	if why == "" {
		return t, nil
	}
	prompt.Messages = append(prompt.Messages, infer.Message{Role: infer.Assistant, Content: r.Text}, infer.Message{Role: infer.User, Content: repair})
	if r, err = s.party.Chat(ctx, prompt, o); err != nil {
		return Turn{}, err
	}
	if t, why = s.read(r, turn, p); why != "" {
		return Turn{}, &unscored{fmt.Sprintf("the answer of a party %s", why), r.Text}
	}
	t.Repaired = true
	return t, nil
}

// firstObject decodes the first JSON object of a text, and says whether there is one.
func firstObject(text string, v any) bool {
	at := strings.IndexByte(text, '{')
	return at >= 0 && json.NewDecoder(strings.NewReader(text[at:])).Decode(v) == nil
}

// read takes the first JSON object of an answer.
func (s *speaking) read(r infer.Reply, turn int, p scenario.Party) (t Turn, why string) {
	var a spoken
	if !firstObject(r.Text, &a) {
		if r.Stop == infer.StopLength {
			return t, "is cut at its cap of tokens"
		}
		return t, "is no JSON object of thought and utterance"
	}
	text, trimmed := s.clean(a.Utterance, p.ID)
	if text == "" {
		return t, "holds no utterance"
	}
	return Turn{By: p.ID, After: turn, Thought: strings.TrimSpace(a.Thought), Text: text, Trimmed: trimmed}, ""
}

var emptyLines = regexp.MustCompile(`\s*\n\s*`)

// otherNames finds, for each speaker, lines that begin with the name of another one.
func (s *speaking) otherNames() {
	for id := range s.names {
		var names []string
		for other, name := range s.names {
			if other != id {
				names = append(names, regexp.QuoteMeta(name))
			}
		}
		s.other[id] = regexp.MustCompile(`(?im)(?:^|\n)[\s*]*(?:` + strings.Join(names, "|") + `)\**\s*:`)
	}
}

// clean takes off a speaker's own name and empty lines, and cuts what is said in the name
// of another one.
func (s *speaking) clean(text, id string) (clean string, trimmed bool) {
	text = strings.TrimSpace(text)
	if own := s.names[id] + ":"; len(text) >= len(own) && strings.EqualFold(text[:len(own)], own) {
		text = text[len(own):]
	}
	if m := s.other[id].FindStringIndex(text); m != nil {
		text, trimmed = text[:m[0]], true
	}
	return emptyLines.ReplaceAllString(strings.TrimSpace(text), "\n"), trimmed
}

// mediate gives the mediator its chance before a party's turn.
func (s *speaking) mediate(ctx context.Context, turn int, next scenario.Party) error {
	switch s.o.Arm.Kind {
	case ArmGeneric, ArmAlways:
	case ArmPeriodic:
		if turn%s.o.Arm.Every != 0 {
			return nil
		}
	default:
		return nil
	}
	prompt := s.mediatorPrompt(next)
	thought, err := s.med.Chat(ctx, prompt, s.params(turn, s.o.MediatorTokens, "thought"))
	if err != nil {
		return err
	}
	ask := func(question string) infer.Prompt {
		ms := append(prompt.Messages[:len(prompt.Messages):len(prompt.Messages)], infer.Message{Role: infer.Assistant, Content: strings.TrimSpace(thought.Text)})
		return infer.Prompt{Messages: append(ms, infer.Message{Role: infer.User, Content: question})}
	}
	if s.o.Arm.Kind == ArmGeneric {
		speaks, err := s.decide(ctx, turn, ask(decide), strings.TrimSpace(thought.Text))
		if err != nil || !speaks {
			return err
		}
	}
	words, err := s.med.Chat(ctx, ask(utter), s.params(turn, s.o.MediatorTokens, "words"))
	if err != nil {
		return err
	}
	text, trimmed := s.clean(words.Text, MediatorID)
	if text == "" {
		return &unscored{"the mediator's words are empty", words.Text}
	}
	s.talk.Turns = append(s.talk.Turns, Turn{By: MediatorID, After: turn, Thought: strings.TrimSpace(thought.Text), Text: text, Trimmed: trimmed, Cut: words.Stop == infer.StopLength})
	return nil
}

func (s *speaking) decide(ctx context.Context, turn int, p infer.Prompt, thought string) (bool, error) {
	cs, err := s.med.Choose(ctx, []infer.Prompt{p}, infer.Words("yes", "no"), infer.Params{Seed: s.o.Seed, TopP: 1})
	if err != nil {
		return false, err
	}
	c := cs[0]
	if c.Unscored == "" && c.Mass <= 0 {
		c.Unscored = "neither yes nor no is among the likely answers"
	}
	if c.Unscored != "" {
		return false, &unscored{"the mediator's decision: " + c.Unscored, ""}
	}
	d := Decision{After: turn, Thought: thought, P: c.P[0] / c.Mass}
	s.talk.Decisions = append(s.talk.Decisions, d)
	return d.P >= 0.5, nil
}
