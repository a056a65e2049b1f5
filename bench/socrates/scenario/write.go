package scenario

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ccmed/ccmed/infer"
)

// Limits of what a model writes.
const (
	attempts    = 3    // with other seeds, before a part is left out
	fieldMax    = 300  // characters of a field of a third party
	entryMax    = 1500 // characters of an entry of a history, at most
	temperature = 0.8
	// HistoryTimes is how many times as long as the background a history is to be.
	HistoryTimes = 5
)

const (
	writerRules = `You write disputes for a study of mediation: lifelike, concrete and fair to all sides. Answer with one JSON object and nothing else.`
	askThird    = `This is a dispute, as a file:

%s
Write a third party that joins it: somebody with a name of its own whose interests the settlement touches, and with whom the others must come to terms. Write one JSON object with these fields, each of one or two sentences: "name", "objective" (what the party wants to reach), "constraints" (what it cannot do), "fallback" (what it does without an agreement), "relation" (to the other parties)%s.`
	askStance     = `Which option of %q does %s begin with? Answer with its letter.`
	askImportance = `How important is %q to %s, from 1 (least) to 9 (most)? Answer with the number.`
	askEntry      = `This is a dispute, as a file:

%s
Write what went before it, as %d dated entries in the order of time; the dispute follows the last one. Each is one JSON object {"date": "YYYY-MM-DD", "text": "..."} with a text of about %d words: what was done, said and promised, and by whom.

Write entry 1.`
	askNextEntry = `Write entry %d, of a later date.`
)

// Writer has a model write the third parties and histories that scenarios lack.
type Writer struct {
	Backend infer.Backend
	Model   string // its name, for the source of a scenario
	Seed    int64
}

// Complete returns the scenario with the third party and the history that it lacks, so far
// as they are wanted. left says, for each part that could not be written, what was wrong
// with the last answer.
func (w Writer) Complete(ctx context.Context, s Scenario, third, history bool) (full Scenario, left []error, err error) {
	full = s
	var wrote []string
	part := func(name string, write func() error) error {
		var bad *unusable
		switch err := write(); {
		case err == nil:
			wrote = append(wrote, name)
		case errors.As(err, &bad):
			left = append(left, fmt.Errorf("%s: the %s could not be written: %w", s.ID, name, err))
		default:
			return fmt.Errorf("write the %s of %s: %w", name, s.ID, err)
		}
		return nil
	}
	if third && s.Third == nil {
		if err := part("third party", func() (err error) { full.Third, err = w.third(ctx, s); return err }); err != nil {
			return s, nil, err
		}
	}
	if history && len(s.History) == 0 {
		if err := part("history", func() (err error) { full.History, err = w.history(ctx, s); return err }); err != nil {
			return s, nil, err
		}
	}
	if len(wrote) > 0 {
		full.Source = strings.TrimPrefix(full.Source+"; "+strings.Join(wrote, " and ")+" written by "+w.Model, "; ")
	}
	return full, left, nil
}

// unusable is an answer of the writer that cannot be taken.
type unusable struct{ why, raw string }

func (u *unusable) Error() string {
	if u.raw == "" {
		return u.why
	}
	return fmt.Sprintf("%s; the answer was %q", u.why, u.raw)
}

// written asks for a JSON object of texts until take accepts it, each time from another seed.
func (w Writer) written(ctx context.Context, p infer.Prompt, texts []infer.SchemaText, what string, take func(raw string, a map[string]string) error) error {
	size := 0
	for _, t := range texts {
		size += t.Max
	}
	var last error
	for attempt := range attempts {
		h := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s\x00%d", w.Seed, what, attempt))
		// A token holds two characters of prose or more, so that the object can be closed.
		o := infer.Params{MaxTokens: size/2 + 20*len(texts), Temperature: temperature, TopP: 1,
			Seed: int64(binary.BigEndian.Uint32(h[:]) >> 1), Schema: &infer.Schema{Texts: texts}}
		r, err := w.Backend.Chat(ctx, p, o)
		if err != nil {
			return err
		}
		a := map[string]string{}
		at := strings.IndexByte(r.Text, '{')
		if at < 0 || json.NewDecoder(strings.NewReader(r.Text[at:])).Decode(&a) != nil {
			last = &unusable{"no JSON object of texts", r.Text}
			continue
		}
		var bad *unusable
		if last = take(r.Text, a); last == nil || !errors.As(last, &bad) {
			return last
		}
		if bad.raw == "" {
			bad.raw = r.Text
		}
	}
	return last
}

func (s Scenario) file() string {
	s.Third, s.History = nil, nil
	b, _ := Encode(s) // of texts and numbers: cannot fail
	return string(b)
}

func writerPrompt(text string) infer.Prompt {
	return infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: writerRules}, {Role: infer.User, Content: text}}}
}

func answered(p infer.Prompt, answer, next string) infer.Prompt {
	p.Messages = append(slices.Clip(p.Messages), infer.Message{Role: infer.Assistant, Content: answer}, infer.Message{Role: infer.User, Content: next})
	return p
}

// thirdForm is what a third party is asked for.
func thirdForm(s Scenario) (p infer.Prompt, texts []infer.SchemaText) {
	texts = []infer.SchemaText{{Name: "name", Max: 40}}
	for _, name := range []string{"objective", "constraints", "fallback", "relation"} {
		texts = append(texts, infer.SchemaText{Name: name, Max: fieldMax})
	}
	var wishes strings.Builder
	for i, t := range s.Topics {
		texts = append(texts, infer.SchemaText{Name: wish(i), Max: fieldMax})
		fmt.Fprintf(&wishes, ", %q (what it wants on %q)", wish(i), t.Name)
	}
	return writerPrompt(fmt.Sprintf(askThird, s.file(), wishes.String())), texts
}

// wish names the field of what a party wants on the topic of an index.
func wish(topic int) string { return "wish_" + string(rune('a'+topic)) }

func (w Writer) third(ctx context.Context, s Scenario) (*Party, error) {
	p, texts := thirdForm(s)
	var out *Party
	err := w.written(ctx, p, texts, s.ID+" third", func(raw string, a map[string]string) error {
		x := Party{ID: "third", Name: strings.TrimSpace(a["name"]), Relation: a["relation"], Preferences: map[string]string{},
			Role: Role{Objective: a["objective"], Constraints: a["constraints"], Fallback: a["fallback"]}}
		for slices.ContainsFunc(s.Parties, func(p Party) bool { return p.ID == x.ID }) {
			x.ID += "-party"
		}
		for i, t := range s.Topics {
			x.Preferences[t.ID] = a[wish(i)]
		}
		if s.Parties[0].Weights != nil { // as its own are not there yet, those of another stand in
			x.Weights = s.Parties[0].Weights
		}
		full := s
		full.Third = &x
		if faults := full.Validate(); len(faults) > 0 {
			return &unusable{why: faults[0].Error()}
		}
		if err := w.rate(ctx, s, &x, p, raw); err != nil {
			return err
		}
		out = &x
		return nil
	})
	return out, err
}

// rate has the model say which option the party begins with on each topic, and how
// important the topic is to it, where the other parties have stances and weights.
func (w Writer) rate(ctx context.Context, s Scenario, x *Party, p infer.Prompt, raw string) error {
	ask := func(as []infer.Answer, question string) ([]float64, error) {
		cs, err := w.Backend.Choose(ctx, []infer.Prompt{answered(p, raw, question)}, as, infer.Params{Seed: w.Seed, TopP: 1})
		if err != nil {
			return nil, err
		}
		if c := cs[0]; c.Unscored != "" || c.Mass <= 0 {
			return nil, &unusable{why: fmt.Sprintf("%q has no likely answer", question)}
		}
		return cs[0].P, nil
	}
	importance := make([]float64, len(s.Topics))
	for i, t := range s.Topics {
		if len(s.Parties[0].Stances) > 0 {
			letters := make([]infer.Answer, len(t.Options))
			for j, o := range t.Options {
				letters[j] = infer.Answer{Label: o.Letter, Variants: []string{o.Letter, " " + o.Letter}}
			}
			ps, err := ask(letters, fmt.Sprintf(askStance, t.Name, x.Name))
			if err != nil {
				return err
			}
			if x.Stances == nil {
				x.Stances = map[string]string{}
			}
			x.Stances[t.ID] = t.Options[slices.Index(ps, slices.Max(ps))].Letter
		}
		if x.Weights != nil {
			ps, err := ask(infer.Digits(1, 9), fmt.Sprintf(askImportance, t.Name, x.Name))
			if err != nil {
				return err
			}
			sum := 0.0
			for k, q := range ps {
				importance[i], sum = importance[i]+float64(k+1)*q, sum+q
			}
			importance[i] /= sum
		}
	}
	if x.Weights != nil {
		x.Weights = ranked(s.Topics, importance)
	}
	return nil
}

// ranked gives weights by the rank of topics: of n, n parts to the most important and one to
// the least, in whole hundredths. Ranks make them unequal, as a file needs.
func ranked(topics []Topic, importance []float64) map[string]int {
	order := make([]int, len(topics))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case importance[a] > importance[b]:
			return -1
		case importance[a] < importance[b]:
			return 1
		}
		return 0
	})
	out, n, sum := map[string]int{}, len(topics), 0
	for rank, i := range order {
		out[topics[i].ID] = 100 * (n - rank) / (n * (n + 1) / 2)
		sum += out[topics[i].ID]
	}
	out[topics[order[0]].ID] += 100 - sum
	return out
}

// entryForm is what the first entry of a history is asked for.
func entryForm(s Scenario) (p infer.Prompt, texts []infer.SchemaText) {
	words := max(20, HistoryTimes*len(strings.Fields(s.Background))/entries)
	most := min(entryMax, max(200, 2*HistoryTimes*utf8.RuneCountInString(s.Background)/entries))
	return writerPrompt(fmt.Sprintf(askEntry, s.file(), entries, words)), []infer.SchemaText{{Name: "date", Max: 10}, {Name: "text", Max: most}}
}

func (w Writer) history(ctx context.Context, s Scenario) (out []Entry, err error) {
	p, texts := entryForm(s)
	for i := range entries {
		err := w.written(ctx, p, texts, fmt.Sprint(s.ID, " entry ", i), func(raw string, a map[string]string) error {
			e := Entry{strings.TrimSpace(a["date"]), strings.TrimSpace(a["text"])}
			c := &checker{}
			before := time.Time{}
			if i > 0 {
				before, _ = time.Parse(time.DateOnly, out[i-1].Date) // was checked
			}
			if c.entry(fmt.Sprintf("history[%d]", i), e, before); len(c.faults) > 0 {
				return &unusable{why: c.faults[0].Error()}
			}
			out, p = append(out, e), answered(p, raw, fmt.Sprintf(askNextEntry, i+2))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// LongestWriting are the longest prompts that a writer is asked about a scenario, and the
// most tokens of an answer to them.
func LongestWriting(s Scenario) (ps []infer.Prompt, answer int) {
	third, fields := thirdForm(s)
	history, entry := entryForm(s)
	filler := func(texts []infer.SchemaText) (text string, tokens int) {
		for _, t := range texts {
			tokens += t.Max/2 + 20
		}
		return strings.TrimSpace(strings.Repeat("word ", tokens)), tokens
	}
	text, tokens := filler(fields)
	third = answered(third, text, askStance)
	more, least := filler(entry)
	for range entries - 1 {
		history = answered(history, more, askNextEntry)
	}
	return []infer.Prompt{third, history}, max(tokens, least)
}
