package ccbench

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/bench/usage"
)

const maxLabels = 64 << 20 // bytes

// Label is what a person says of an answer: a line of a file of labels.
type Label struct {
	Query  string `json:"query"` // may be left out
	Item   string `json:"item"`
	Answer string `json:"answer"`
	Label  string `json:"label"` // yes or no
}

// readLabels reads a file of labels; none without a file.
func readLabels(path string) (out []Label, hash string, err error) {
	if path == "" {
		return nil, "", nil
	}
	b, err := disk.ReadFile(path, maxLabels)
	if err != nil {
		return nil, "", fmt.Errorf("read the labels: %w", err)
	}
	for i, line := range bytes.Split(b, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var l Label
		if err := strictjson.Unmarshal(line, &l, strictjson.RefuseNUL); err != nil {
			return nil, "", fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		switch {
		case strings.TrimSpace(l.Item) == "":
			return nil, "", fmt.Errorf("%s:%d: field item: there is no text", path, i+1)
		case l.Label != "yes" && l.Label != "no":
			return nil, "", fmt.Errorf("%s:%d: field label: %q; it is yes or no", path, i+1, l.Label)
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		return nil, "", usage.Errorf("--labels %s holds no label", path)
	}
	h := sha256.Sum256(b)
	return out, hex.EncodeToString(h[:]), nil
}

// labelled are the units of a card.
func labelled(labels []Label) (out []run.Unit[unit]) {
	for i, l := range labels {
		out = append(out, run.Unit[unit]{Item: fmt.Sprintf("label %d", i+1), Condition: Card, Group: Card,
			Value: unit{setting: Card, query: build.Query{Text: l.Query}, given: l.Answer, items: []Item{{Text: l.Item, Label: l.Label}}}})
	}
	return out
}

// JudgeCard is how far the judge agrees with a person.
type JudgeCard struct {
	N         int             `json:"n"`
	Unscored  int             `json:"unscored"`
	Agree     int             `json:"agree"`
	JudgeYes  int             `json:"judge_yes"`
	PersonYes int             `json:"person_yes"`
	Agreement *stats.Estimate `json:"agreement,omitempty"`
	Kappa     *stats.Estimate `json:"kappa,omitempty"` // Cohen's
}

// cardOf holds the judge against the labels of a run; nil without any.
func cardOf(all []judgedUnit, seed uint64) (*JudgeCard, error) {
	c := &JudgeCard{}
	var judge, person []int
	var hits []float64
	var groups []string
	for _, u := range all {
		if u.key.Condition != Card {
			continue
		}
		c.N++
		if u.unscored != "" || len(u.Items) == 0 || u.Items[0].Unscored != "" {
			c.Unscored++
			continue
		}
		it := u.Items[0]
		said, label := count(it.yes()), count(it.Label == "yes")
		judge, person, groups = append(judge, said), append(person, label), append(groups, u.key.Item)
		hits = append(hits, float64(count(said == label)))
		c.Agree, c.JudgeYes, c.PersonYes = c.Agree+count(said == label), c.JudgeYes+said, c.PersonYes+label
	}
	if c.N == 0 {
		return nil, nil
	}
	if len(hits) == 0 {
		return c, nil
	}
	b := stats.Bootstrap{Resamples: resamples, Seed: seed}
	e, err := b.Share(hits, groups)
	if err != nil {
		return nil, err
	}
	c.Agreement = &e
	if k, err := b.Kappa(judge, person, 2, groups); err == nil {
		c.Kappa = &k // undefined where both always say the same
	}
	return c, nil
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
