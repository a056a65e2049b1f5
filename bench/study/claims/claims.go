// Package claims holds what a study claims against what runs found. Claims are data: a
// sentence, where it is published, what of which runs it is about, the smallest effect of
// interest and what it needs. Each is supported, contradicted or not testable here.
//
//	set, err := claims.Published()
//	f, err := claims.Judge(ctx, set, claims.Evidence{Runs: runs}, 1)
//	err = report.Write(w, report.Terminal, f.Sections(), report.Options{})
package claims

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/ccmed/ccmed/bench/strictjson"
)

//go:embed claims.yaml
var embedded []byte

// Tests of a claim. Above a bound means: in the claim's direction.
const (
	// Superiority: the measure is above the bound. Contradicted where it is shown to be less
	// than the smallest effect above it.
	Superiority = "superiority"
	// Equivalence: the measure is within the smallest effect of the bound. Contradicted
	// where it is shown to be farther away.
	Equivalence = "equivalence"
	// Difference: the measure is not the bound, on either side. Contradicted where it is
	// within the smallest effect of it.
	Difference = "difference"
	// Rank: the models are in the claimed order, each above the next. Contradicted where one
	// is shown not to be.
	Rank = "rank"
	// Untested: nothing that the program measures can bear on the claim; Why says it.
	Untested = "none"
)

// Set is what one study claims.
type Set struct {
	Study  string  `yaml:"study"`
	Claims []Claim `yaml:"claims"`
}

// Claim is one claim.
type Claim struct {
	ID string `yaml:"id"`
	// Topic heads the table that the claim stands in.
	Topic string `yaml:"topic"`
	// Claim is a sentence, Where its place in the source, Published the number there.
	Claim     string `yaml:"claim"`
	Where     string `yaml:"where"`
	Published string `yaml:"published"`
	Test      string `yaml:"test"`
	// Of is what is measured, Minus what is taken off, run by run; nil is nothing. Where a
	// part of Minus is empty it is that of Of, and a run is then the same run.
	Of    *Source `yaml:"of"`
	Minus *Source `yaml:"minus"`
	// Unit says how values are written: share, score or gain.
	Unit string `yaml:"unit"`
	// Direction is greater or less, of superiority and rank.
	Direction string  `yaml:"direction"`
	Bound     float64 `yaml:"bound"`
	// Smallest is the smallest effect of interest, in the unit of the measure. 0 makes the
	// bound itself the line between support and contradiction.
	Smallest float64 `yaml:"smallest"`
	// Model is the one that the claim is about; "" is every model.
	Model string `yaml:"model"`
	// Order lists the models of a rank, as claimed.
	Order []string `yaml:"order"`
	Needs Needs    `yaml:"needs"`
	Why   string   `yaml:"why"`
	// Note is shown below the table.
	Note string `yaml:"note"`
}

// Source is a measure of a run: a column of its rows, or a place in a JSON file.
type Source struct {
	// Task and Options choose runs, Tuned those of a fine-tuned model, Base that model's own.
	Task    string            `yaml:"task"`
	Options map[string]string `yaml:"options"`
	Tuned   bool              `yaml:"tuned"`
	Base    bool              `yaml:"base"`
	// Condition chooses rows.
	Condition string `yaml:"condition"`
	// Column is one of the columns that ccmed export writes. Is makes it the share of rows
	// with that value, Above the share of rows with a greater one.
	Column string   `yaml:"column"`
	Is     *float64 `yaml:"is"`
	Above  *float64 `yaml:"above"`
	// Among leaves rows out.
	Among *Among `yaml:"among"`
	// Path is a place in the metrics, or in File of the run's folder, see find.
	Path string `yaml:"path"`
	File string `yaml:"file"`
	// Records is a measure of the records themselves: auc_gap.
	Records string `yaml:"records"`
}

// Among keeps the rows whose Column is greater than Above, or at most Most. Measures among
// other rows are of other items, and taken as independent of each other.
type Among struct {
	Column string   `yaml:"column"`
	Above  *float64 `yaml:"above"`
	Most   *float64 `yaml:"most"`
}

// Needs are what must hold before a claim is tested.
type Needs struct {
	// N is the least number of items, Metrics what places in the run's metrics must hold.
	N       int               `yaml:"n"`
	Metrics map[string]string `yaml:"metrics"`
}

// Published returns the claims of the CC-Mediation study, in our words.
func Published() (Set, error) { return Parse("claims.yaml", embedded) }

// Parse reads claims; file names them in messages.
func Parse(file string, source []byte) (Set, error) {
	var s Set
	if err := strictjson.Text(source); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	d := yaml.NewDecoder(bytes.NewReader(source))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(s.Claims) == 0 {
		return s, fmt.Errorf("%s has no claims", file)
	}
	seen := map[string]bool{}
	for i, c := range s.Claims {
		if c.ID == "" {
			return s, fmt.Errorf("%s: claim %d has no id", file, i+1)
		}
		if seen[c.ID] {
			return s, fmt.Errorf("%s: two claims have the id %s", file, c.ID)
		}
		seen[c.ID] = true
		if err := c.check(); err != nil {
			return s, fmt.Errorf("%s: claim %s %w", file, c.ID, err)
		}
	}
	return s, nil
}

func (c *Claim) check() error {
	switch {
	case c.Claim == "" || c.Topic == "":
		return errors.New("lacks its sentence (claim) or its topic")
	case !slices.Contains([]string{"", "share", "score", "gain"}, c.Unit):
		return fmt.Errorf("has the unit %q; known are share, score and gain", c.Unit)
	case c.Smallest < 0:
		return errors.New("has a smallest effect below 0")
	case c.Test == Untested:
		if c.Why == "" {
			return errors.New("is not tested and does not say why")
		}
		return nil
	case !slices.Contains([]string{Superiority, Equivalence, Difference, Rank}, c.Test):
		return fmt.Errorf("has the test %q; known are superiority, equivalence, difference, rank and none", c.Test)
	case (c.Test == Superiority || c.Test == Rank) != (c.Direction == "greater" || c.Direction == "less"):
		return errors.New("needs a direction, greater or less, if and only if its test is superiority or rank")
	case (c.Test == Equivalence || c.Test == Difference) && c.Smallest == 0:
		return errors.New("needs a smallest effect of interest above 0: equal is what differs by less")
	case (c.Test == Rank) != (len(c.Order) > 1):
		return errors.New("needs an order of two models or more if and only if its test is rank")
	case c.Test == Rank && (c.Minus != nil || c.Model != "" || c.Of == nil || c.Of.Column == ""):
		return errors.New("is a rank, which takes a column of the runs of its models and nothing off it")
	case c.Of == nil:
		return errors.New("does not say what is measured (of)")
	}
	if err := c.Of.check(); err != nil {
		return fmt.Errorf("of: %w", err)
	}
	if c.Minus == nil {
		return nil
	}
	m := c.minus()
	if err := m.check(); err != nil {
		return fmt.Errorf("minus: %w", err)
	}
	if (m.Column == "") != (c.Of.Column == "") {
		return errors.New("takes a column off a path, or a path off a column; both must be of one kind")
	}
	return nil
}

func (s Source) check() error {
	kinds := 0
	for _, set := range []bool{s.Column != "", s.Path != "", s.Records != ""} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return errors.New("exactly one of column, path and records must be given")
	case s.Records == "" && s.Task == "":
		return errors.New("no task of runs is given")
	case s.Records != "" && s.Records != aucGap:
		return fmt.Errorf("unknown records %q; known is %s", s.Records, aucGap)
	case s.Column == "" && (s.Is != nil || s.Above != nil || s.Among != nil || s.Condition != ""), s.Is != nil && s.Above != nil:
		return errors.New("is or above, among and a condition belong to a column")
	case s.Among != nil && (s.Among.Column == "" || (s.Among.Above == nil) == (s.Among.Most == nil)):
		return errors.New("among needs a column and either above or most")
	case s.File != "" && (s.Path == "" || strings.ContainsAny(s.File, `/\`)):
		return errors.New("a file is named without folders and has a path")
	}
	return nil
}

// minus is what is taken off, with what it shares with Of.
func (c *Claim) minus() Source {
	m, of := *c.Minus, *c.Of
	if m.Column == "" && m.Path == "" && m.Records == "" {
		m.Column, m.Path, m.Is, m.Above = of.Column, of.Path, of.Is, of.Above
	}
	if m.Column != "" && m.Among == nil {
		m.Among = of.Among
	}
	if m.Path != "" && m.File == "" {
		m.File = of.File
	}
	if m.Column != "" && m.Condition == "" {
		m.Condition = of.Condition
	}
	if m.Task == "" {
		m.Task = of.Task
		if m.Options == nil {
			m.Options = of.Options
		}
	}
	return m
}

// sameRun says that what is taken off is of the run itself.
func (c *Claim) sameRun() bool { return c.Minus.Task == "" && !c.Minus.Base && c.Minus.Options == nil }
