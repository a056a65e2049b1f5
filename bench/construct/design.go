package construct

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// A conflict breaks out in turn firstConflict to lastConflict of lastTurn turns.
const (
	firstConflict = 3
	lastConflict  = 8
	lastTurn      = 10
)

// Case is a scenario with the conflict that is scripted into it: a line of a file of prompts.
type Case struct {
	ID       int      `json:"id"`
	Scenario Scenario `json:"scenario"`
	// Stage is the ethnocentric stage from which the conflict speaker speaks at Turn; Agent
	// (1 or 2) is the conflict speaker.
	Stage string `json:"conflict_stage"`
	Turn  int    `json:"conflict_turn"`
	Agent int    `json:"conflict_agent"`
	// Profiles are what the simulator is told about each person, Script what the conflict
	// speaker is told at Turn.
	Profiles [2]string `json:"profiles"`
	Script   string    `json:"script"`
}

// Design gives every scenario perScenario conflicts. Stages and turns are balanced: of any
// three cases in a row, from the first on, each stage has one; of any six each turn has one
// and of any 18 each pair. The seed draws which comes first.
func Design(scenarios []Scenario, perScenario int, seed int64, set *prompt.Set) ([]Case, error) {
	r := rand.New(rand.NewPCG(uint64(seed), 18))
	stages, turns := r.Perm(3), r.Perm(lastConflict-firstConflict+1)
	var out []Case
	for _, s := range scenarios {
		for range perScenario {
			i := len(out)
			turn := firstConflict + turns[i%6]
			c := Case{ID: i + 1, Scenario: s, Stage: dmis.Stage(stages[(i+i/6)%3]).String(), Turn: turn, Agent: mediation.SpeakerOf(turn)}
			if err := c.fill(set); err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// fill writes what the simulator is told.
func (c *Case) fill(set *prompt.Set) error {
	d, err := c.dialogue()
	if err != nil {
		return err
	}
	for i := range c.Profiles {
		if c.Profiles[i], err = (mediation.Options{Prompts: set}).Profile(d, i+1); err != nil {
			return err
		}
	}
	p, err := set.Build("conflict", map[string]any{"Name": d.Name(c.Agent), "Other": d.Name(3 - c.Agent), "Pattern": d.Stage.Pattern()})
	if err != nil {
		return err
	}
	c.Script = p.Messages[0].Content
	return nil
}

// dialogue is the case as a record in which nothing is said yet, for the prompts that
// benchmarks make of records.
func (c Case) dialogue() (dialogue.Dialogue, error) {
	var turns []Said
	for t := 1; t <= c.Turn; t++ {
		turns = append(turns, Said{T: t, Agent: mediation.SpeakerOf(t), Text: "-"})
	}
	return recordOf(Labelled{Talk: Talk{Case: c, Turns: turns}}, nil, nil).parse()
}

// Check finds what cannot be a case.
func (c Case) check() error {
	stage, err := dmis.ParseStage(c.Stage)
	switch why := c.Scenario.Check(); {
	case err != nil:
		return err
	case !stage.Ethnocentric():
		return fmt.Errorf("the conflict stage %s is not one of Denial, Defense, Minimization", c.Stage)
	case c.Turn < firstConflict || c.Turn > lastConflict:
		return fmt.Errorf("the conflict turn %d lies outside of %d to %d", c.Turn, firstConflict, lastConflict)
	case c.Agent != mediation.SpeakerOf(c.Turn):
		return fmt.Errorf("turn %d is spoken by agent %d and not by %d", c.Turn, mediation.SpeakerOf(c.Turn), c.Agent)
	case c.Profiles[0] == "" || c.Profiles[1] == "" || c.Script == "":
		return fmt.Errorf("a profile or the script is empty")
	case why != "":
		return fmt.Errorf("scenario %s: %s", c.Scenario.ID, why)
	}
	return nil
}

// WriteCases writes cases, one a line.
func WriteCases(path string, cases []Case) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, c := range cases {
		if err := e.Encode(c); err != nil {
			return fmt.Errorf("encode case %d: %w", c.ID, err)
		}
	}
	return disk.WriteFile(path, b.Bytes(), 0o644)
}

// ReadCases reads what WriteCases wrote.
func ReadCases(path string) ([]Case, error) {
	b, err := disk.ReadFile(path, disk.MaxText)
	if err != nil {
		return nil, fmt.Errorf("read prompts: %w", err)
	}
	var out []Case
	ids := map[int]bool{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, dialogue.MaxRecord)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var c Case
		err := strictjson.Unmarshal(lines.Bytes(), &c, strictjson.RefuseNUL)
		if err == nil {
			err = c.check()
		}
		if err == nil && ids[c.ID] {
			err = fmt.Errorf("the id %d is that of an earlier line", c.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w; make the file with ccmed build prompts", path, n, err)
		}
		ids[c.ID] = true
		out = append(out, c)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read prompts: %s: %w", path, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no prompts; make it with ccmed build prompts", path)
	}
	return out, nil
}
