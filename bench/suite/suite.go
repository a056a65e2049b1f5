// Package suite reads suites: several commands of the tool that belong together,
// as a YAML file. It plans which commands to run with which arguments, and in which
// order; it runs none.
//
//	about: two models, asked when to step in
//	vars:
//	  models: [gemma2:9b, phi3.5]
//	  data:                         # no default: must be given
//	steps:
//	  - name: timing
//	    matrix: {model: "${models}"}
//	    command: [timing, --model, "${model}", --data, "${data}"]
//	  - name: compare
//	    command: [compare, "${step:timing}"]
//
// ${name} is a variable of the suite or of the step's matrix, ${out} the suite's
// folder, and ${step:NAME} the folder of an earlier step, which the step then needs.
// An argument that is nothing but a variable with a list, or a step that stands for
// several, becomes as many arguments. A step with a matrix stands for one step for
// every combination of its values; from such a step, ${step:NAME} and needs mean
// those that have the same values of the variables that both have.
//
//	s, err := suite.Parse("night.yaml", source)
//	steps, err := s.Plan("runs/night", map[string]string{"data": "CC-Mediation/data"})
package suite

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/ccmed/ccmed/bench/strictjson"
)

// Suite is a suite as it was written.
type Suite struct {
	About string
	Vars  []Var

	file  string
	steps []template
}

// Var is a variable with its default, one value or a list.
type Var struct {
	Name     string
	Values   []string
	List     bool
	Required bool // has no default

	at *yaml.Node
}

// Step is one command to run.
type Step struct {
	// Name is unique in the plan and fit for a file: the step's own, followed by
	// the values of its matrix.
	Name    string
	Command []string // without the program's name
	Folder  string   // of its run, where the command makes one
	Needs   []string // names of the steps that must be done before
	Uses    []string // those of them whose folders the command names
	// Where the step was written, as file:line, for messages.
	Where string
}

// template is a step before its variables have values.
type template struct {
	name    string
	command []*yaml.Node
	needs   []*yaml.Node
	matrix  []dimension
	at      *yaml.Node
}

type dimension struct {
	name   string
	values []*yaml.Node
}

// Error is a mistake in a suite's file. Column is 0 where only the line is known.
type Error struct {
	File         string
	Line, Column int
	Text         string
}

func (e *Error) Error() string {
	if e.Column == 0 {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// UnknownError reports values for variables that the suite does not have.
type UnknownError struct{ Names, Known []string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("the suite has no variable %s; it has %s", strings.Join(e.Names, ", "), strings.Join(e.Known, ", "))
}

// MissingError reports variables that have neither a default nor a value.
type MissingError struct{ Names []string }

func (e *MissingError) Error() string {
	return "the suite needs a value for " + strings.Join(e.Names, ", ")
}

var (
	stepName  = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]*$`)
	varName   = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
	reference = regexp.MustCompile(`\$\{([^}]*)\}?`)
)

// What a suite may grow to: a file of a few lines must not fill the memory.
const (
	maxSteps  = 1000     // of the plan
	maxValues = 10_000   // of a variable, and arguments of a command
	maxText   = 64 << 10 // bytes of a value or argument
	maxPlan   = 16 << 20 // bytes of all arguments
	maxName   = 200      // bytes of a step's name, which is a file's
)

const out = "out" // the variable that is the suite's folder

// Parse reads a suite; file names it in messages. Mistakes are an *Error.
func Parse(file string, source []byte) (*Suite, error) {
	var doc yaml.Node
	err := strictjson.Text(source)
	if err == nil {
		err = yaml.Unmarshal(source, &doc)
	}
	if err != nil {
		e := &Error{File: file, Line: 1, Text: strings.TrimPrefix(err.Error(), "yaml: ")}
		if n, _ := fmt.Sscanf(e.Text, "line %d:", &e.Line); n == 1 {
			_, e.Text, _ = strings.Cut(e.Text, ": ")
		}
		return nil, e
	}
	if len(doc.Content) == 0 {
		return nil, &Error{File: file, Line: 1, Text: "the file is empty; a suite has steps"}
	}
	s := &Suite{file: file}
	err = s.mapping(doc.Content[0], "a suite", map[string]func(*yaml.Node) error{
		"about": s.text("about", &s.About),
		"vars":  s.parseVars,
		"steps": s.parseSteps,
	})
	if err != nil {
		return nil, err
	}
	if len(s.steps) == 0 {
		return nil, s.errorf(doc.Content[0], "the suite has no steps")
	}
	for _, t := range s.steps {
		for _, d := range t.matrix {
			if slices.ContainsFunc(s.Vars, func(v Var) bool { return v.Name == d.name }) {
				return nil, s.errorf(t.at, "step %q: the matrix variable %q is a variable of the suite already", t.name, d.name)
			}
		}
	}
	return s, nil
}

func (s *Suite) parseVars(n *yaml.Node) error {
	return s.variables(n, "vars", "the variable", func(k, v *yaml.Node, values []*yaml.Node) {
		x := Var{Name: k.Value, List: v.Kind == yaml.SequenceNode, Required: v.Tag == "!!null", at: k}
		for _, e := range values {
			if !x.Required {
				x.Values = append(x.Values, e.Value)
			}
		}
		s.Vars = append(s.Vars, x)
	})
}

// variables visits the variables of a mapping and their values; what and each name
// the mapping and a variable in messages.
func (s *Suite) variables(n *yaml.Node, what, each string, visit func(k, v *yaml.Node, values []*yaml.Node)) error {
	return s.pairs(n, what, func(k, v *yaml.Node) error {
		if k.Value == out {
			return s.errorf(k, "no variable can be named %q: that is the suite's folder", out)
		}
		if !varName.MatchString(k.Value) {
			return s.errorf(k, "%q cannot name a variable; small letters, digits, _ and - can, a letter first", k.Value)
		}
		values, err := s.list(v, each+" "+k.Value)
		visit(k, v, values)
		return err
	})
}

func (s *Suite) parseSteps(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return s.errorf(n, "steps must be a list")
	}
	for _, e := range n.Content {
		t := template{at: e}
		err := s.mapping(e, "a step", map[string]func(*yaml.Node) error{
			"name": s.text("name", &t.name),
			"command": func(n *yaml.Node) (err error) {
				if n.Kind != yaml.SequenceNode {
					return s.errorf(n, "command must be a list of arguments, as in [timing, --model, gemma2:9b]")
				}
				t.command, err = s.list(n, "command")
				return err
			},
			"needs": func(n *yaml.Node) (err error) { t.needs, err = s.list(n, "needs"); return err },
			"matrix": func(n *yaml.Node) error {
				return s.variables(n, "matrix", "the matrix variable", func(k, _ *yaml.Node, values []*yaml.Node) {
					t.matrix = append(t.matrix, dimension{k.Value, values})
				})
			},
		})
		switch {
		case err != nil:
			return err
		case !stepName.MatchString(t.name):
			return s.errorf(e, "a step needs a name of small letters, digits, _, . and -, and this one has %q", t.name)
		case len(t.command) == 0:
			return s.errorf(e, "step %q has no command", t.name)
		case slices.ContainsFunc(s.steps, func(o template) bool { return o.name == t.name }):
			return s.errorf(e, "two steps have the name %q", t.name)
		}
		s.steps = append(s.steps, t)
	}
	return nil
}

// Plan returns the steps with their arguments, each after the steps it needs and
// else as they were written. dir is the suite's folder, set has values for its
// variables; those of a list are separated by commas.
func (s *Suite) Plan(dir string, set map[string]string) ([]Step, error) {
	vars, err := s.values(dir, set)
	if err != nil {
		return nil, err
	}
	p := planner{Suite: s, dir: dir, vars: vars, expanded: map[string][]expansion{}}
	taken := map[string]string{}
	for _, t := range s.steps {
		combos, err := p.combinations(t)
		if err != nil {
			return nil, err
		}
		for _, c := range combos {
			e := expansion{values: c, name: t.name}
			for _, d := range t.matrix {
				e.name += "-" + slug(c[d.name])
			}
			switch {
			case len(e.name) > maxName:
				return nil, p.errorf(t.at, "the name of step %q is longer than %d bytes with the values of its matrix; shorten them", t.name, maxName)
			case len(taken) == maxSteps:
				return nil, p.errorf(t.at, "the suite has more than %d steps; split it", maxSteps)
			}
			if other, ok := taken[e.name]; ok {
				return nil, p.errorf(t.at, "the steps %q and %q would share the name %q", other, t.name, e.name)
			}
			taken[e.name] = t.name
			p.expanded[t.name] = append(p.expanded[t.name], e)
		}
	}
	var steps []Step
	for _, t := range s.steps {
		for _, e := range p.expanded[t.name] {
			step, err := p.step(t, e)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
	}
	return p.order(steps)
}

// values gives every variable its value, in the order of the file: a default may
// use variables above it.
func (s *Suite) values(dir string, set map[string]string) (map[string][]string, error) {
	vars := map[string][]string{out: {dir}}
	unknown := maps.Clone(set)
	var missing, known []string
	for _, v := range s.Vars {
		known = append(known, v.Name)
		delete(unknown, v.Name)
		given, ok := set[v.Name]
		switch {
		case ok && v.List:
			vars[v.Name] = nil
			if given != "" {
				vars[v.Name] = strings.Split(given, ",")
			}
		case ok:
			vars[v.Name] = []string{given}
		case v.Required:
			missing = append(missing, v.Name)
			vars[v.Name] = []string{""}
		default:
			vars[v.Name] = nil
			for _, text := range v.Values {
				value, err := s.expand(v.at, text, vars, nil)
				if err != nil {
					return nil, err
				}
				vars[v.Name] = append(vars[v.Name], value...)
				if len(vars[v.Name]) > maxValues {
					return nil, s.errorf(v.at, "the variable %q has more than %d values; split the suite", v.Name, maxValues)
				}
			}
		}
	}
	if len(unknown) > 0 {
		return nil, &UnknownError{slices.Sorted(maps.Keys(unknown)), known}
	}
	if len(missing) > 0 {
		return nil, &MissingError{missing}
	}
	return vars, nil
}

type expansion struct {
	name   string
	values map[string]string // of the matrix
}

type planner struct {
	*Suite
	dir      string
	vars     map[string][]string
	expanded map[string][]expansion
	size     int // bytes of the arguments planned so far
}

// combinations returns the values of a step's matrix, the first variable changing
// slowest; a step without one has a single empty combination.
func (p *planner) combinations(t template) ([]map[string]string, error) {
	combos := []map[string]string{{}}
	for _, d := range t.matrix {
		var values []string
		for _, n := range d.values {
			v, err := p.expand(n, n.Value, p.vars, nil)
			if err != nil {
				return nil, err
			}
			values = append(values, v...)
			if len(values)*len(combos) > maxSteps {
				return nil, p.errorf(t.at, "the matrix of step %q makes more than %d steps; split the suite", t.name, maxSteps)
			}
		}
		if len(values) == 0 {
			return nil, p.errorf(t.at, "step %q: the matrix variable %q has no values", t.name, d.name)
		}
		var next []map[string]string
		for _, c := range combos {
			for _, v := range values {
				n := maps.Clone(c)
				n[d.name] = v
				next = append(next, n)
			}
		}
		combos = next
	}
	return combos, nil
}

// step gives one expansion of a step its arguments and needs.
func (p *planner) step(t template, e expansion) (Step, error) {
	step := Step{Name: e.name, Folder: filepath.Join(p.dir, e.name), Where: fmt.Sprintf("%s:%d", p.file, t.at.Line)}
	vars := maps.Clone(p.vars)
	for k, v := range e.values {
		vars[k] = []string{v}
	}
	same := func(at *yaml.Node, name string) ([]expansion, error) {
		all, ok := p.expanded[name]
		if !ok {
			return nil, p.errorf(at, "step %q names the step %q, which the suite does not have", t.name, name)
		}
		var expansions []expansion
		for _, o := range all {
			agree := true
			for k, v := range o.values {
				mine, shared := e.values[k]
				agree = agree && (!shared || mine == v)
			}
			if agree {
				expansions = append(expansions, o)
			}
		}
		switch {
		case name == t.name:
			return nil, p.errorf(at, "step %q needs itself", t.name)
		case len(expansions) == 0:
			return nil, p.errorf(at, "step %q: no step %q has the same values of the matrix", e.name, name)
		}
		return expansions, nil
	}
	for _, n := range t.needs {
		expansions, err := same(n, n.Value)
		if err != nil {
			return step, err
		}
		for _, o := range expansions {
			step.Needs = append(step.Needs, o.name)
		}
	}
	for _, n := range t.command {
		args, err := p.expand(n, n.Value, vars, func(name string) ([]string, error) {
			expansions, err := same(n, name)
			var folders []string
			for _, o := range expansions {
				folders = append(folders, filepath.Join(p.dir, o.name))
				step.Uses = append(step.Uses, o.name)
			}
			return folders, err
		})
		if err != nil {
			return step, err
		}
		step.Command = append(step.Command, args...)
		for _, a := range args {
			p.size += len(a)
		}
		if len(step.Command) > maxValues || p.size > maxPlan {
			return step, p.errorf(t.at, "step %q: the arguments grow beyond %d in a step or %d MB in the suite; split the suite", t.name, maxValues, maxPlan>>20)
		}
	}
	if len(step.Command) == 0 {
		return step, p.errorf(t.at, "step %q has no command", t.name)
	}
	slices.Sort(step.Uses)
	step.Uses = slices.Compact(step.Uses)
	step.Needs = append(step.Needs, step.Uses...)
	slices.Sort(step.Needs)
	step.Needs = slices.Compact(step.Needs)
	return step, nil
}

// order puts every step behind those that it needs.
func (p *planner) order(steps []Step) ([]Step, error) {
	var sorted []Step
	placed := map[string]bool{}
	for rest := steps; len(rest) > 0; {
		i := slices.IndexFunc(rest, func(s Step) bool {
			return !slices.ContainsFunc(s.Needs, func(n string) bool { return !placed[n] })
		})
		if i < 0 {
			return nil, cycle(rest)
		}
		placed[rest[i].Name] = true
		sorted = append(sorted, rest[i])
		rest = slices.Delete(slices.Clone(rest), i, i+1)
	}
	return sorted, nil
}

// cycle names the steps that wait for each other, without those that only wait for them.
func cycle(steps []Step) error {
	for {
		needed := map[string]bool{}
		for _, s := range steps {
			for _, n := range s.Needs {
				needed[n] = true
			}
		}
		n := len(steps)
		if steps = slices.DeleteFunc(slices.Clone(steps), func(s Step) bool { return !needed[s.Name] }); len(steps) == n {
			break
		}
	}
	var names []string
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return fmt.Errorf("%s: the steps %s wait for each other", steps[0].Where, strings.Join(names, ", "))
}

// expand replaces the references in a text. What is nothing but one reference has
// as many values as that, anything else is one value. Without a function for steps
// there are none to refer to.
func (s *Suite) expand(at *yaml.Node, text string, vars map[string][]string, step func(name string) ([]string, error)) ([]string, error) {
	resolve := func(ref string) ([]string, error) {
		name, closed := strings.CutSuffix(strings.TrimPrefix(ref, "${"), "}")
		if !closed {
			return nil, s.errorf(at, "%q has no closing brace", text)
		}
		if of, ok := strings.CutPrefix(name, "step:"); ok {
			if step == nil {
				return nil, s.errorf(at, "%q: only commands can name steps", text)
			}
			return step(of)
		}
		values, ok := vars[name]
		if !ok {
			return nil, s.errorf(at, "%q: there is no variable %q here; known are %s", text, name, strings.Join(slices.Sorted(maps.Keys(vars)), ", "))
		}
		return values, nil
	}
	if m := reference.FindString(text); m != "" && m == text {
		return resolve(m)
	}
	var failed error
	grown := len(text)
	value := reference.ReplaceAllStringFunc(text, func(ref string) string {
		values, err := resolve(ref)
		if err == nil && len(values) != 1 {
			err = s.errorf(at, "%q: %s stands for %d values and there is room for one", text, ref, len(values))
		}
		if err == nil {
			if grown += len(values[0]); grown > maxText {
				err = s.errorf(at, "%.40q… grows beyond %d KB when its variables have their values", text, maxText>>10)
			}
		}
		if err != nil {
			failed = cmp.Or(failed, err) // the first
			return ""
		}
		return values[0]
	})
	return []string{value}, failed
}

// slug keeps what is safe in a file name.
func slug(v string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, v), "-.")
}

func (s *Suite) errorf(at *yaml.Node, format string, args ...any) error {
	return &Error{s.file, at.Line, at.Column, fmt.Sprintf(format, args...)}
}

// pairs visits the keys of a mapping; no key may occur twice.
func (s *Suite) pairs(n *yaml.Node, what string, visit func(k, v *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return s.errorf(n, "%s must be keys with values", what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], resolve(n.Content[i+1])
		if seen[k.Value] {
			return s.errorf(k, "%s has the key %q twice", what, k.Value)
		}
		seen[k.Value] = true
		if err := visit(k, v); err != nil {
			return err
		}
	}
	return nil
}

// mapping reads a mapping whose keys are known.
func (s *Suite) mapping(n *yaml.Node, what string, keys map[string]func(*yaml.Node) error) error {
	return s.pairs(n, what, func(k, v *yaml.Node) error {
		read, ok := keys[k.Value]
		if !ok {
			return s.errorf(k, "%s has no key %q; known are %s", what, k.Value, strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
		}
		return read(v)
	})
}

// text reads one value into to.
func (s *Suite) text(what string, to *string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode {
			return s.errorf(n, "%s must be one value", what)
		}
		*to = n.Value
		return nil
	}
}

// list reads a list of values, or one value as a list of one.
func (s *Suite) list(n *yaml.Node, what string) ([]*yaml.Node, error) {
	if n.Kind == yaml.ScalarNode {
		return []*yaml.Node{n}, nil
	}
	if n.Kind != yaml.SequenceNode {
		return nil, s.errorf(n, "%s must be a value or a list of values", what)
	}
	nodes := slices.Clone(n.Content)
	for i, e := range nodes {
		if nodes[i] = resolve(e); nodes[i].Kind != yaml.ScalarNode {
			return nil, s.errorf(e, "%s must be a list of plain values", what)
		}
	}
	return nodes, nil
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
