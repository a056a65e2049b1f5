package writing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// Filters that reject a talk, in the order in which they are applied.
const (
	FilterForm        = "form"        // it cannot be read as a talk
	FilterRepeated    = "repeated"    // the stances at its end are not those told
	FilterOrigin      = "origin"      // words say where the person comes from
	FilterCulture     = "culture"     // the checker says that the culture is stated
	FilterHidden      = "hidden"      // a stance that it has to show cannot be inferred
	FilterContradicts = "contradicts" // it shows the opposite of a stance
	FilterUnsure      = "unsure"      // the checker gave no usable answer
)

var filters = []string{FilterForm, FilterRepeated, FilterOrigin, FilterCulture, FilterHidden, FilterContradicts, FilterUnsure}

// Made is the data of a unit.
type Made struct {
	Culture string `json:"culture"`
	Persona string `json:"persona,omitempty"`
	Kind    string `json:"kind,omitempty"`
	// Turns and Signals are those of the talk that passed.
	Turns    []build.Turn `json:"turns,omitempty"`
	Signals  []string     `json:"signals,omitempty"`
	Assigned []string     `json:"assigned,omitempty"` // norms that the talk has to show
	Rejected []Rejection  `json:"rejected,omitempty"`
	// Checked are the answers about a query or a norm.
	Checked []Checked `json:"checked,omitempty"`
}

// Rejection is a talk that did not pass.
type Rejection struct {
	Filter string `json:"filter"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

// Checked is whether a norm is relevant to a query, or can be shown by text.
type Checked struct {
	Norm     string  `json:"norm"`
	P        float64 `json:"p"` // of yes, of yes and no together
	Unscored string  `json:"unscored,omitempty"`
	Textual  bool    `json:"textual,omitempty"` // what the norm's data say
}

// What writer and checker are told.
const (
	writerRules = `You write a talk between a person and an AI assistant, as it could be taken from real life. You are told how the person lives, speaks and decides. Show it by what the person says and does, in passing, and never name it.
Do not say which country, people, language or religion the person belongs to. Greetings and what the person does for their faith may be there.
Write one line a turn, "Person: ..." and "Assistant: ..." in turn, three to five of each. Begin with the person's words that are given, and end with the assistant. After the talk write a line with STANCES, and then for each point that this talk has to show one line with its id and its word, for instance "%s: %s". Write nothing else.`
	checkerRules = `You read a talk between a person and an AI assistant and answer one question about the person with yes or no, from the talk alone.`
	plainRules   = `You answer one question with yes or no.`
	stances      = "STANCES"
)

func templates() map[string]string {
	h := sha256.Sum256([]byte(strings.Join([]string{writerRules, checkerRules, plainRules, strings.Join(everyday, "\n"), strings.Join(health, "\n"),
		text(inferPrompt("", norm.Norm{})), text(followPrompt("", norm.Norm{})), text(culturePrompt("")), text(unit{}.plainPrompt(Query, norm.Norm{})), text(unit{}.plainPrompt(Norm, norm.Norm{}))}, "\x00")))
	return map[string]string{"ccbench_build": hex.EncodeToString(h[:16])}
}

func text(p infer.Prompt) string { return p.Messages[len(p.Messages)-1].Content }

func ask(system, user string) infer.Prompt {
	return infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: system}, {Role: infer.User, Content: user}}}
}

// writerPrompt tells the writer all stances, and which of them the talk has to show.
func writerPrompt(u unit) infer.Prompt {
	var all, shown strings.Builder
	for _, s := range u.culture.Stances(u.persona) {
		truth := "This is true of the person."
		if s.State == norm.Avoid {
			truth = "This is not true of the person, who does the opposite."
		}
		fmt.Fprintf(&all, "%s (%s): %s %s\n", s.Norm.ID, s.State, s.Norm.Statement, truth)
	}
	example := u.assigned[0]
	for _, s := range u.assigned {
		fmt.Fprintf(&shown, "%s: %s\n", s.Norm.ID, s.State)
	}
	return ask(fmt.Sprintf(writerRules, example.Norm.ID, example.State),
		fmt.Sprintf("The person is %s and %d years old.\n\n%s\nThis talk has to show\n%s\nNothing in it may contradict the other points. The person begins: %s", u.persona.Sex, u.persona.Age, all.String(), shown.String(), u.starter))
}

func talkPrompt(talk, question string) infer.Prompt {
	return ask(checkerRules, "# Talk\n\n"+talk+"\n\n# Question\n\n"+question+" Answer yes or no.")
}

func inferPrompt(talk string, n norm.Norm) infer.Prompt {
	return talkPrompt(talk, "Consider this way of behaving: \""+n.Statement+"\" Can one tell from what the person says or does in the talk whether the person behaves so or not?")
}

func followPrompt(talk string, n norm.Norm) infer.Prompt {
	return talkPrompt(talk, "Consider this way of behaving: \""+n.Statement+"\" Does the person in the talk behave so?")
}

func culturePrompt(talk string) infer.Prompt {
	return talkPrompt(talk, "Does the person say outright which country, people or religion they belong to? A greeting in another language, a dish or a religious practice does not count.")
}

// plainPrompt asks whether a norm is relevant to a query, or can be shown by text.
func (u unit) plainPrompt(condition string, n norm.Norm) infer.Prompt {
	if condition == Query {
		return ask(plainRules, "Somebody asks: \""+u.query.Text+"\"\n\nA person may behave so, or not: \""+n.Statement+"\"\n\nCould a good answer to the question differ between a person who behaves so and one who does not? Answer yes or no.")
	}
	return ask(plainRules, "A person may behave so, or not: \""+n.Statement+"\"\n\nCan a written talk with an AI assistant show which of both it is? Answer yes or no.")
}

// origins say where somebody comes from, in general and by culture.
var (
	origins = regexp.MustCompile(`\b(?:[Ii]|[Ww]e|[Mm]y (?:family|parents|people)) (?:am|are|is|come|comes|came|was born|were born|moved here)(?: \w+)? (?:from|in) [A-Z]\w+|\b[Ii]n (?:my|our) (?:culture|country|homeland|religion)\b|\b[Ww]here (?:I|we) come from\b|\b[Aa]s an? (?:Muslim|Buddhist|Hindu|Christian|immigrant|refugee)\b`)
	peoples = map[string]string{"afghan": "Afghan|Kabul|Pashtun|Dari", "burmese": "Burm|Myanmar|Yangon|Rangoon|Rohingya", "chinese": "Chin(?:a|ese)|Beijing|Mandarin|Cantonese",
		"maori": "M[aā]ori|Aotearoa|New Zealand", "nepali": "Nepal|Kathmandu|Gurkha", "vietnamese": "Viet ?[Nn]am|Hanoi|Saigon"}
)

// statesOrigin finds words of the person by which they say where they come from.
func statesOrigin(c norm.Culture, turns []build.Turn) string {
	words := regexp.QuoteMeta(c.Name)
	if known := peoples[c.ID]; known != "" {
		words += "|" + known
	}
	named := regexp.MustCompile(`(?i)\b(?:` + words + `)\w*`)
	for _, t := range turns {
		for _, re := range []*regexp.Regexp{named, origins} {
			if found := re.FindString(t.Text); found != "" {
				return found
			}
		}
	}
	return ""
}

// readTalk reads the writer's lines: the turns, and the stances that it repeats.
func readTalk(text, starter string) (turns []build.Turn, repeated map[string]string, why string) {
	talk, end, ok := strings.Cut(text, stances)
	if !ok {
		return nil, nil, "there is no line with " + stances
	}
	for _, line := range strings.Split(talk, "\n") {
		line = strings.TrimSpace(strings.ReplaceAll(line, "**", ""))
		by, words, named := strings.Cut(line, ":")
		switch by = strings.ToLower(strings.TrimSpace(by)); {
		case line == "":
		case named && (by == build.Person || by == build.Assistant):
			turns = append(turns, build.Turn{By: by, Text: strings.TrimSpace(words)})
		case len(turns) == 0:
			return nil, nil, "it does not begin with a turn"
		default:
			turns[len(turns)-1].Text += "\n" + line
		}
	}
	if len(turns) < 4 {
		return nil, nil, fmt.Sprintf("it has %d turns", len(turns))
	}
	for i, t := range turns {
		if t.By != []string{build.Person, build.Assistant}[i%2] || t.Text == "" {
			return nil, nil, fmt.Sprintf("turn %d is not one of the %s", i+1, []string{build.Person, build.Assistant}[i%2])
		}
	}
	if len(turns)%2 != 0 {
		return nil, nil, "it does not end with the assistant"
	}
	if !strings.HasPrefix(strings.ToLower(turns[0].Text), strings.ToLower(strings.TrimRight(starter, ".?! "))) {
		return nil, nil, "it does not begin with the words that were given"
	}
	repeated = map[string]string{}
	for _, line := range strings.Split(end, "\n") {
		if id, word, ok := strings.Cut(strings.Trim(line, " -*"), ":"); ok {
			repeated[strings.ToLower(strings.TrimSpace(id))] = strings.ToLower(strings.Trim(word, " .*"))
		}
	}
	return turns, repeated, ""
}

// write has talks written until one passes.
func write(ctx context.Context, writer, checker infer.Backend, u run.Unit[unit], o Options) (m Made, why string, err error) {
	v := u.Value
	m = Made{Culture: v.culture.Culture.ID, Persona: v.persona.ID, Kind: v.kind}
	for _, s := range v.assigned {
		m.Assigned = append(m.Assigned, s.Norm.ID)
	}
	for try := range o.Tries {
		h := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s\x00%d", o.Seed, u.Item, try))
		r, err := writer.Chat(ctx, writerPrompt(v), infer.Params{MaxTokens: o.MaxTokens, Temperature: temperature, TopP: 1, Seed: int64(binary.BigEndian.Uint32(h[:]) >> 1), Repeat: try})
		if err != nil {
			return m, "", err
		}
		turns, signals, rejected, err := examine(ctx, checker, v, r, o)
		if err != nil {
			return m, "", err
		}
		if rejected.Filter == "" {
			m.Turns, m.Signals = turns, signals
			return m, "", nil
		}
		rejected.Text = r.Text
		m.Rejected = append(m.Rejected, rejected)
	}
	return m, "no talk passed", nil
}

// examine applies the filters to a talk: first the rules, then the checker.
func examine(ctx context.Context, checker infer.Backend, u unit, r infer.Reply, o Options) (turns []build.Turn, signals []string, rejected Rejection, err error) {
	reject := func(filter, reason string) ([]build.Turn, []string, Rejection, error) {
		return nil, nil, Rejection{Filter: filter, Reason: reason}, nil
	}
	if r.Stop == infer.StopLength {
		return reject(FilterForm, "it is cut at its cap of tokens")
	}
	turns, repeated, why := readTalk(r.Text, u.starter)
	if why != "" {
		return reject(FilterForm, why)
	}
	for _, s := range u.assigned {
		if said := repeated[s.Norm.ID]; said != s.State.String() {
			return reject(FilterRepeated, fmt.Sprintf("of %s it repeats %q, not %q", s.Norm.ID, said, s.State))
		}
	}
	if words := statesOrigin(u.culture.Culture, turns); words != "" {
		return reject(FilterOrigin, fmt.Sprintf("it says %q", words))
	}
	var lines []string
	for _, t := range turns {
		lines = append(lines, strings.ToUpper(t.By[:1])+t.By[1:]+": "+t.Text)
	}
	talk := strings.Join(lines, "\n")
	prompts := []infer.Prompt{culturePrompt(talk)}
	all := u.culture.Stances(u.persona)
	for _, s := range all {
		prompts = append(prompts, inferPrompt(talk, s.Norm), followPrompt(talk, s.Norm))
	}
	cs, err := checker.Choose(ctx, prompts, infer.Words("yes", "no"), infer.Params{Seed: o.Seed, TopP: 1})
	if err != nil {
		return nil, nil, Rejection{}, err
	}
	p := make([]float64, len(cs))
	for i, c := range cs {
		if p[i], why = share(c, o.MinMass); why != "" {
			return reject(FilterUnsure, why)
		}
	}
	if p[0] >= 0.5 {
		return reject(FilterCulture, fmt.Sprintf("P(culture is stated) is %.2f", p[0]))
	}
	for i, s := range all {
		inferrable, follows := p[1+2*i], p[2+2*i]
		must := slices.ContainsFunc(u.assigned, func(a build.Stance) bool { return a.Norm.ID == s.Norm.ID })
		switch shows := inferrable >= 0.5; {
		case must && !shows:
			return reject(FilterHidden, fmt.Sprintf("P(%s can be inferred) is %.2f", s.Norm.ID, inferrable))
		case shows && (follows >= 0.5) != (s.State == norm.Follow):
			return reject(FilterContradicts, fmt.Sprintf("the persona is to %s %s, and P(follows it) is %.2f", s.State, s.Norm.ID, follows))
		case shows:
			signals = append(signals, s.Norm.ID)
		}
	}
	return turns, signals, Rejection{}, nil
}

// share is the probability of yes, of yes and no together.
func share(c infer.Choice, least float64) (p float64, unscored string) {
	switch {
	case c.Unscored != "":
		return 0, c.Unscored
	case c.Mass < least || c.Mass <= 0:
		return 0, fmt.Sprintf("yes and no got %.3g of the probability, less than %g", c.Mass, least)
	}
	return c.P[0] / c.Mass, ""
}

// checkNorms asks which norms are relevant to a query, or whether text can show a norm.
func checkNorms(ctx context.Context, checker infer.Backend, u run.Unit[unit], o Options) (m Made, why string, err error) {
	m = Made{Culture: u.Value.culture.Culture.ID}
	var prompts []infer.Prompt
	for _, n := range u.Value.norms {
		prompts = append(prompts, u.Value.plainPrompt(u.Condition, n))
	}
	cs, err := checker.Choose(ctx, prompts, infer.Words("yes", "no"), infer.Params{Seed: o.Seed, TopP: 1})
	if err != nil {
		return m, "", err
	}
	scored := 0
	for i, c := range cs {
		x := Checked{Norm: u.Value.norms[i].ID, Textual: u.Value.norms[i].Textual}
		if x.P, x.Unscored = share(c, o.MinMass); x.Unscored == "" {
			scored++
		}
		m.Checked = append(m.Checked, x)
	}
	if scored == 0 {
		why = "the checker gave no usable answer"
	}
	return m, why, nil
}
