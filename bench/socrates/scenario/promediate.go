package scenario

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// released are the cases of ProMediate, whose files hold neither a title nor a domain.
var released = map[string]struct{ title, domain string }{
	"flagship": {"Flagship Airways", "business-to-business"},
	"francis":  {"St. Francis Hospital", "healthcare"},
	"hmo":      {"Hopkins HMO", "business-to-business"},
	"ias":      {"Integrated Account System", "intra-organizational"},
	"river":    {"River basin", "environmental"},
	"williams": {"Williams Medical Center", "healthcare"},
}

// proMediate is the part of a case of ProMediate that is read.
type proMediate struct {
	Instruction string            `json:"instruction"`
	Issues      string            `json:"issues"`
	Options     string            `json:"options"`
	Names       map[string]string `json:"names"`
}

// ImportProMediate reads a case of ProMediate. Its parties keep their instructions as
// profiles; it has no weights. domain is for files that are none of the six released ones.
func ImportProMediate(path, domain string) (Scenario, error) {
	b, err := disk.ReadFile(path, maxFile)
	if err != nil {
		return Scenario{}, fmt.Errorf("read a case: %w", err)
	}
	var p proMediate
	if err := strictjson.Unmarshal(b, &p, strictjson.RefuseNUL); err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", path, err)
	}
	stem := strings.TrimSuffix(filepath.Base(path), ".json")
	s, err := p.scenario(slug(stem), domain)
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (p proMediate) scenario(id, domain string) (Scenario, error) {
	at := strings.Index(strings.ToLower(p.Instruction), "## key issues")
	if at < 0 || p.Issues == "" || p.Options == "" || len(p.Names) == 0 {
		return Scenario{}, errors.New(`it is no case of ProMediate, which has "instruction" with a part "## Key Issues", "issues", "options" and "names"`)
	}
	s := Scenario{ID: id, Title: id, Domain: domain, Source: "ProMediate (MIT licence)", Background: unwrap(scenarioHeading.ReplaceAllString(p.Instruction[:at], ""))}
	if r, ok := released[id]; ok {
		s.Title = r.title
		if domain == "" {
			s.Domain = r.domain
		}
	}
	if s.Domain == "" {
		return s, errors.New("the domain of the case is not known; name it with --domain")
	}
	issues, options := sections(p.Issues), sections(p.Options)
	if len(issues) != len(options) {
		return s, fmt.Errorf("it has %d issues and options for %d", len(issues), len(options))
	}
	for i := range issues {
		s.Topics = append(s.Topics, topicOf(i+1, issues[i], options[i]))
	}
	for _, name := range keys(p.Names) {
		if name != "Mediator" {
			s.Parties = append(s.Parties, Party{ID: slug(name), Name: name, Profile: strings.TrimSpace(p.Names[name])})
		}
	}
	var faults []error
	for _, f := range s.Validate() {
		faults = append(faults, f)
	}
	return s, errors.Join(faults...)
}

var (
	scenarioHeading = regexp.MustCompile(`(?i)^\s*##\s*scenarios?\s*\n`)
	sectionHead     = regexp.MustCompile(`(?m)^(?:##\s*Issue\s+)?(\d+)[.:]\s+`)
	optionHead      = regexp.MustCompile(`(?m)(?:^|[;\s])(?:\(([A-Za-z]|\d)\)[.:]?|- Option \d+([A-Z]):)\s*`)
	nameEnd         = regexp.MustCompile(`:\s|\s–\s|\n`)
	layout          = regexp.MustCompile(`[ \t]*\n[ \t]*`)
)

// sections splits a text at its numbers 1, 2, 3 …; other numbers belong to the text.
func sections(text string) (out []string) {
	var starts, ends []int
	for _, m := range sectionHead.FindAllStringSubmatchIndex(text, -1) {
		if text[m[2]:m[3]] == fmt.Sprint(len(starts)+1) {
			starts, ends = append(starts, m[0]), append(ends, m[1])
		}
	}
	for i, from := range ends {
		to := len(text)
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		out = append(out, strings.TrimSpace(text[from:to]))
	}
	return out
}

// topicOf makes a topic of an issue and of the options for it.
func topicOf(n int, issue, options string) Topic {
	t := Topic{ID: fmt.Sprint(n), Name: issue}
	if m := nameEnd.FindStringIndex(issue); m != nil {
		t.Name, t.Description = strings.TrimRight(issue[:m[0]], ": "), unwrap(issue[m[1]:])
	}
	var heads [][]int
	for _, m := range optionHead.FindAllStringSubmatchIndex(options, -1) {
		label := ""
		if m[2] >= 0 {
			label = options[m[2]:m[3]]
		} else {
			label = options[m[4]:m[5]]
		}
		if next := len(heads); label == fmt.Sprint(next+1) || strings.EqualFold(label, string(rune('A'+next))) {
			heads = append(heads, m)
		}
	}
	for i, m := range heads {
		to := len(options)
		if i+1 < len(heads) {
			to = heads[i+1][0]
		}
		t.Options = append(t.Options, Option{string(rune('A' + i)), unwrap(strings.TrimRight(options[m[1]:to], "; \n"))})
	}
	if len(heads) > 0 {
		_, explained, _ := strings.Cut(options[:heads[0][0]], "\n")
		t.Description = strings.TrimSpace(t.Description + "\n" + unwrap(explained))
	}
	return t
}

// unwrap joins the lines of a paragraph that were broken for a page, and keeps lists.
func unwrap(s string) string {
	lines := strings.Split(layout.ReplaceAllString(strings.TrimSpace(s), "\n"), "\n")
	var b strings.Builder
	for i, line := range lines {
		switch {
		case i == 0:
		case line == "" || lines[i-1] == "" || strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "#"):
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(line)
	}
	return b.String()
}
