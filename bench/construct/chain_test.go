package construct

import (
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/infer"
)

func TestAModelThatPlaysWell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := players{level: func(scripted, turn int, helped bool) int {
		if scripted == 0 && !helped {
			return 1 + turn%4 // so that labels vary
		}
		return well(scripted, turn, helped)
	}}
	dialogues := w.run(Dialogues{}, p.model(), "--cases", w.cases(18))
	m, cautions := w.score(dialogues)
	if m.Items != 18 || m.Kept != 18 || len(m.Rejected) > 0 || len(cautions) > 0 {
		t.Errorf("%d of %d are kept, %v, %q", m.Kept, m.Items, m.Rejected, cautions)
	}
	for _, c := range m.Stages {
		if c.Scripted != 6 || c.Spoken != 6 || c.Played != 6 || c.Kept != 6 {
			t.Errorf("%+v, want six of each", c)
		}
	}
	labels := w.run(Label{}, p.model(), "--dialogues", dialogues)
	m, cautions = w.score(labels)
	if c := m.Labels; c.Grade != Consistent || c.Reliability.Kappa.Value != 1 || c.Scripted.K != 18 || c.Unscored != 0 || len(cautions) > 0 {
		t.Errorf("the labeller is %+v, %q", c, cautions)
	}
	pairs := w.run(Pairs{}, p.model(), "--labelled", labels)
	m, cautions = w.score(pairs)
	f := m.Pairs
	if f == nil || f.Pairs != 18 || f.Admitted == 0 || f.Grade != Consistent {
		t.Fatalf("the pairs are %+v", f)
	}
	if f.Curse.Value != 0 || f.Chosen.AUC.Value <= 0 || f.Chosen.AUC.Value != f.Chosen.AUCAgain.Value || len(cautions) > 0 {
		t.Errorf("a labeller without noise makes a winner's curse of %v on a gap of %v, %q", f.Curse, f.Chosen.AUC, cautions)
	}
	if m.Kept != 2*f.Admitted || m.Rejected[notAdmitted] != 2*(f.Pairs-f.Admitted) {
		t.Errorf("of %d paths %d are kept and %v rejected; %d pairs are admitted", m.Items, m.Kept, m.Rejected, f.Admitted)
	}
}

func TestAModelThatPlaysWrongly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := players{level: func(scripted, turn int, helped bool) int {
		if scripted == 2 {
			return 5
		}
		return well(scripted, turn, helped)
	}}
	m, cautions := w.score(w.run(Dialogues{}, p.model(), "--cases", w.cases(18)))
	if m.Kept != 12 || m.Rejected[otherByLabel] != 6 {
		t.Errorf("%d kept, %v rejected; want 12 and 6", m.Kept, m.Rejected)
	}
	for _, c := range m.Stages {
		want := StageCount{Stage: c.Stage, Scripted: 6, Spoken: 6, Played: 6, Kept: 6}
		if c.Stage == "Defense" {
			want.Played, want.Kept = 0, 0
		}
		if c != want {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	if len(cautions) != 1 || !strings.Contains(cautions[0], "no scripted turn of Defense") {
		t.Errorf("a stage that no model plays is not told: %q", cautions)
	}
}

func TestALabellerBelowGrade(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n     int
		read  func(level int, reversed bool, p infer.Prompt) int
		grade string
	}{
		"one that depends on the order": {12, func(level int, reversed bool, p infer.Prompt) int {
			if reversed {
				return 1 + int(p.Hash()[9])%6
			}
			return level
		}, mediation.Weak},
		"one that gives one answer": {12, func(int, bool, infer.Prompt) int { return 2 }, mediation.DegenerateLabels},
		"one without noise":         {12, nil, Consistent},
		"too few turns":             {2, nil, mediation.DegenerateLabels},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := players{level: varied, read: c.read}
			labels := w.labelled(p, c.n)
			if got := w.metrics(labels).Labels; got.Grade != c.grade {
				t.Fatalf("the grade is %s: %q, want %s", got.Grade, got.Why, c.grade)
			}
			_, err := w.plan(Pairs{}, "--labelled", labels)
			if refused := err != nil; refused != (c.grade != Consistent) {
				t.Errorf("a labeller that is %s gives %v", c.grade, err)
			}
			if err != nil && !strings.Contains(err.Error(), "--weak") {
				t.Errorf("the refusal names no way on: %v", err)
			}
			if _, err := w.plan(Pairs{}, "--labelled", labels, "--weak"); err != nil {
				t.Errorf("--weak: %v", err)
			}
		})
	}
}

// The stages of both paths differ by a labeller's noise, by an effect, or by both.
func TestTheWinnersCurse(t *testing.T) {
	t.Parallel()
	noisy := func(level int, _ bool, p infer.Prompt) int { return min(6, level+2*(int(p.Hash()[7])%3)) }
	for name, c := range map[string]struct {
		effect       int
		read         func(int, bool, infer.Prompt) int
		cursed, real bool
	}{"noise alone": {0, noisy, true, false}, "an effect and noise": {1, noisy, true, true}, "an effect alone": {1, nil, false, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			p := players{read: c.read, level: func(scripted, turn int, helped bool) int {
				switch {
				case scripted > 0:
					return scripted
				case helped:
					return 1 + turn%3 + c.effect
				}
				return 1 + turn%3
			}}
			m, cautions := w.score(w.run(Pairs{}, p.model(), "--labelled", w.labelled(p, 90), "--weak"))
			f := m.Pairs
			if cursed := f.Curse.Lo > 0; cursed != c.cursed {
				t.Errorf("the winner's curse is %v", f.Curse)
			}
			if told := strings.Contains(strings.Join(cautions, "\n"), "on a second labelling"); told != c.cursed {
				t.Errorf("the curse is told: %t, %q", told, cautions)
			}
			if real := f.Chosen.AUCAgain.Lo > 0; real != c.real {
				t.Errorf("on a second labelling the gap of the admitted is %v, the first says %v", f.Chosen.AUCAgain, f.Chosen.AUC)
			}
			if f.Chosen.AUC.Lo <= 0 {
				t.Errorf("the gap that pairs are chosen by is %v", f.Chosen.AUC)
			}
		})
	}
}

// Of constant labels no AUC is said, whatever was planned.
func TestConstantLabelsOfPaths(t *testing.T) {
	t.Parallel()
	for name, constant := range map[string]func(prompt string, paths bool) bool{
		"everywhere":           func(string, bool) bool { return true },
		"on the paths":         func(_ string, paths bool) bool { return paths },
		"on the positive path": func(prompt string, _ bool) bool { return strings.Contains(prompt, helpful) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			paths := false
			p := players{level: varied,
				read: func(level int, _ bool, p infer.Prompt) int {
					if constant(text(p), paths) {
						return 2
					}
					return level
				}}
			labels := w.labelled(p, 12)
			paths = true
			path := w.run(Pairs{}, p.model(), "--labelled", labels, "--weak")
			m, cautions := w.score(path)
			f, want := m.Pairs, name != "on the positive path"
			if got := f.Withheld != ""; got != want || (f.All.AUC == nil) != want || (f.Curse == nil) != want {
				t.Errorf("withheld %q with %+v", f.Withheld, f.All)
			}
			if got := strings.Contains(strings.Join(cautions, "\n"), "withheld"); got != want {
				t.Errorf("cautions %q", cautions)
			}
		})
	}
}
