package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/report"
)

func (a *app) ccbenchCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "ccbench", Short: "Do answers on health fit the person whose talks were seen"}
	cmd.AddCommand(a.normsCmd())
	return cmd
}

func (a *app) normsCmd() *cobra.Command {
	var culture, check, out string
	var personas int
	var seed int64
	cmd := &cobra.Command{
		Use:   "norms",
		Short: "Show the norms of six cultures, check your own, and draw personas",
		Long: `norms counts the norms of the six cultures of CCBench (arXiv 2607.05405), in words of
this project. With --culture it prints those of one of them, and how an answer fits a
person who follows or avoids each. With --check it reads a culture of your own instead
and names every fault with its field; --out writes a culture as a pattern for it.

With --personas it draws invented people: each subscribes to every value or does not,
by chance, and follows, avoids or is neutral to a norm by the mean of the norm's values.
No two have the same values, and each follows at least one norm and avoids one, of those
that apply to everyone and that text can show.

Norms are tendencies that were told of groups. They say nothing of any person.`,
		Example: `  ccmed ccbench norms
  ccmed ccbench norms --culture nepali --personas 10
  ccmed ccbench norms --check my-culture.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			draw := cmd.Flags().Changed("personas")
			switch {
			case culture != "" && check != "":
				return usagef("--culture and --check name two cultures; give one of them")
			case culture == "" && check == "" && (draw || out != ""):
				return usagef("no culture given; name one with --culture, or a file with --check")
			case draw && personas < 1:
				return usagef("--personas %d; it must be at least 1", personas)
			case culture == "" && check == "":
				section, err := culturesSection()
				if err != nil {
					return err
				}
				return a.print([]report.Section{section})
			}
			c, err := readCulture(culture, check)
			if err != nil {
				return err
			}
			sections := []report.Section{normsSection(c)}
			if draw {
				all, err := c.Personas(personas, seed)
				if err != nil {
					return err
				}
				sections = []report.Section{personasSection(c, all)}
			}
			if out != "" {
				if err := writeJSON(out, c); err != nil {
					return err
				}
				a.note("wrote the %d norms of %s to %s", len(c.Norms), c.Name, out)
			}
			return a.print(sections)
		},
	}
	f := cmd.Flags()
	f.StringVar(&culture, "culture", "", strings.Join(norm.Names(), ", "))
	f.StringVar(&check, "check", "", "file of a culture of your own")
	f.StringVar(&out, "out", "", "file to write the culture to")
	f.IntVar(&personas, "personas", 0, "how many personas are drawn and shown, instead of the norms")
	f.Int64Var(&seed, "seed", 1, "seed of the personas")
	return cmd
}

// readCulture reads an embedded culture or, where a file is named, that.
func readCulture(name, file string) (norm.Culture, error) {
	if file == "" {
		c, err := norm.Named(name)
		if err != nil {
			return c, usagef("--culture: %v", err)
		}
		return c, nil
	}
	c, faults, err := norm.Survey(file)
	for i, f := range faults {
		faults[i] = fmt.Errorf("%s: %w", file, f)
	}
	return c, cmp.Or(err, errors.Join(faults...))
}

// culturesSection counts what the embedded cultures hold.
func culturesSection() (report.Section, error) {
	t := report.Table{}
	for i, name := range []string{"culture", "values", "norms", "communication", "practice", "conditional", "not textual", "neutral"} {
		align := report.Right
		if i == 0 {
			align = report.Left
		}
		t.Columns = append(t.Columns, report.Column{Name: name, Align: align})
	}
	total := 0
	for _, name := range norm.Names() {
		c, err := norm.Named(name)
		if err != nil {
			return report.Section{}, err
		}
		kinds, conditional, untextual := map[string]int{}, 0, 0
		for _, n := range c.Norms {
			kinds[n.Kind]++
			if n.AppliesIf != nil {
				conditional++
			}
			if !n.Textual {
				untextual++
			}
		}
		total += len(c.Norms)
		t.Add(c.ID, len(c.Values), len(c.Norms), kinds[norm.Communication], kinds[norm.Practice], conditional,
			untextual, fmt.Sprintf("%.1f %%", 100*c.NeutralShare()))
	}
	return report.Section{Title: fmt.Sprintf("Norms: %d of %d cultures", total, len(t.Rows)), Tables: []report.Table{t},
		Notes: []string{"neutral: the share of norms to which a persona drawn by chance is neutral",
			"norms are tendencies that were told of groups; they say nothing of any person"}}, nil
}

// normsSection lists the norms of a culture with what fits those who follow or avoid them.
func normsSection(c norm.Culture) report.Section {
	s := report.Section{Title: fmt.Sprintf("%s: %d norms, %d values", c.Name, len(c.Norms), len(c.Values))}
	names := map[string]string{}
	for _, v := range c.Values {
		names[v.ID] = v.Name
	}
	for _, n := range c.Norms {
		traits := []string{n.Kind}
		if n.AppliesIf != nil {
			traits = append(traits, conditionText(*n.AppliesIf))
		}
		if !n.Textual {
			traits = append(traits, "text cannot show it")
		}
		var values []string
		for _, v := range n.Values {
			values = append(values, names[v])
		}
		s.Lists = append(s.Lists, report.List{Title: fmt.Sprintf("%s: %s", n.ID, strings.Join(traits, "; ")),
			Items: []string{n.Statement, "values: " + strings.Join(values, "; "), "follow: " + n.Follow, "avoid: " + n.Avoid}})
	}
	return s
}

// conditionText says to whom a norm applies.
func conditionText(c norm.Condition) string {
	words := cmp.Or(c.Sex, "people")
	if c.MinAge > 0 {
		words += fmt.Sprintf(" from %d years", c.MinAge)
	}
	return "for " + words
}

// personasSection shows personas by their values and states.
func personasSection(c norm.Culture, all []norm.Persona) report.Section {
	t := report.Table{Columns: report.Columns("persona", "sex", "age>", "subscribes to", "follow>", "avoid>",
		"neutral>", "not theirs>")}
	for _, p := range all {
		var subscribed []string
		for _, v := range c.Values {
			if p.Values[v.ID] > 0 {
				subscribed = append(subscribed, v.ID)
			}
		}
		states, others := map[norm.State]int{}, 0
		for _, n := range c.Norms {
			if n.AppliesTo(p) {
				states[p.State(n)]++
			} else {
				others++
			}
		}
		t.Add(p.ID, p.Sex, p.Age, strings.Join(subscribed, " "), states[norm.Follow], states[norm.Avoid],
			states[norm.Neutral], others)
	}
	return report.Section{Title: fmt.Sprintf("%s: %d personas", c.Name, len(all)), Tables: []report.Table{t},
		Notes: []string{"not theirs: norms of another sex or age; they are neither followed nor avoided"}}
}
