package sft

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// Point is one step of a training, with the validation after it where there was
// one.
type Point struct {
	Step  int
	Train *Event // nil where the step was told by its validation only
	Valid *Event
}

// ReadCurve reads the losses of a training run in the order of steps. A step that
// was done again after a checkpoint counts as it was done last.
func ReadCurve(dir string) ([]Point, error) {
	f, err := disk.OpenEntry(filepath.Join(dir, EventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the loss curve: %w", err)
	}
	defer f.Close()
	points := map[int]Point{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, maxLine+64)
	line := 0
	for s.Scan() {
		var e Event
		if line++; !readEvent(s.Bytes(), &e) {
			return nil, fmt.Errorf("%s:%d: this is no event, and no line that a kill tore; put back a copy of the file",
				filepath.Join(dir, EventsFile), line)
		}
		p := points[e.Step]
		switch e.Event {
		case "step":
			p = Point{Step: e.Step, Train: &e} // its validation was of other weights
		case "eval":
			p.Step, p.Valid = e.Step, &e
		default:
			continue
		}
		points[e.Step] = p
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read the loss curve: %w", err)
	}
	out := make([]Point, 0, len(points))
	for _, step := range sortedKeys(points) {
		out = append(out, points[step])
	}
	return out, nil
}

// readEvent reads one line of events. A line may be torn where this program was
// killed while it wrote it: it is then the last one, or goes on with the start (or the error) of the
// next session. What it said is lost, and e stays empty.
func readEvent(line []byte, e *Event) bool {
	if strictjson.Unmarshal(line, e) == nil {
		return true
	}
	*e = Event{}
	if !bytes.HasSuffix(line, []byte("}")) {
		return true
	}
	next := bytes.LastIndex(line, []byte(`{"time":`))
	return next > 0 && strictjson.Unmarshal(line[next:], e) == nil && (e.Event == "start" || e.Event == "error")
}

// CurveRow is one row of a training as a table: a step, with the validation after it where
// there was one.
type CurveRow struct {
	Run             string   `json:"run" parquet:"run" doc:"name of the folder of the training"`
	Step            int32    `json:"step" parquet:"step" doc:"optimiser step, from 1"`
	Loss            *float64 `json:"loss" parquet:"loss" doc:"training loss: language modelling plus lambda times the decision"`
	LM              *float64 `json:"lm" parquet:"lm" doc:"its part of language modelling, nats a token"`
	BCE             *float64 `json:"bce" parquet:"bce" doc:"its part of the decision, nats"`
	LR              *float64 `json:"lr" parquet:"lr" doc:"learning rate of the adapter"`
	TokensPerSecond *float64 `json:"tokens_per_second" parquet:"tokens_per_second" doc:"speed of the step"`
	MemoryBytes     *int64   `json:"memory_bytes" parquet:"memory_bytes" doc:"greatest memory so far"`
	ValidLM         *float64 `json:"valid_lm" parquet:"valid_lm" doc:"language modelling on the validation split"`
	ValidBCE        *float64 `json:"valid_bce" parquet:"valid_bce" doc:"the decision on the validation split"`
	ValidN          *int32   `json:"valid_n" parquet:"valid_n" doc:"dialogues of the validation split"`
	ValidTurnAcc    *float64 `json:"valid_turn_acc" parquet:"valid_turn_acc" doc:"share of them in which the decision comes at the right turn"`
}

// CurveRows are the steps of a training as rows.
func CurveRows(run string, points []Point) (out []any) {
	for _, p := range points {
		r := &CurveRow{Run: run, Step: int32(p.Step)}
		if e := p.Train; e != nil {
			r.Loss, r.LM, r.BCE, r.LR, r.TokensPerSecond, r.MemoryBytes = &e.Loss, &e.LM, &e.BCE, &e.LR, &e.TokensPerSecond, &e.MemoryBytes
		}
		if e := p.Valid; e != nil {
			n := int32(e.N)
			r.ValidLM, r.ValidBCE, r.ValidN, r.ValidTurnAcc = &e.LM, &e.BCE, &n, &e.TurnAcc
		}
		out = append(out, r)
	}
	return out
}

var curveColumns = []string{"step", "loss", "lm", "bce", "lr", "tokens_per_second", "memory_bytes", "valid_lm", "valid_bce", "valid_n", "valid_turn_acc"}

// writeCurve writes LossFile.
func (t *TrainingRun) writeCurve() error {
	points, err := ReadCurve(t.dir)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	w := csv.NewWriter(&b)
	err = w.Write(curveColumns)
	for _, p := range points {
		row := make([]string, len(curveColumns))
		row[0] = strconv.Itoa(p.Step)
		if e := p.Train; e != nil {
			copy(row[1:], []string{num(e.Loss), num(e.LM), num(e.BCE), num(e.LR), num(e.TokensPerSecond), strconv.FormatInt(e.MemoryBytes, 10)})
		}
		if e := p.Valid; e != nil {
			copy(row[7:], []string{num(e.LM), num(e.BCE), strconv.Itoa(e.N), num(e.TurnAcc)})
		}
		err = errors.Join(err, w.Write(row))
	}
	w.Flush()
	if err := errors.Join(err, w.Error()); err != nil {
		return fmt.Errorf("write the loss curve: %w", err)
	}
	if err := disk.WriteEntry(filepath.Join(t.dir, LossFile), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the loss curve: %w", err)
	}
	return nil
}

// Losses are means over some steps.
type Losses struct{ Loss, LM, BCE float64 }

// Ends returns the mean losses over the first and the last tenth of the steps, at
// least one, and how many steps each is of; none without steps.
func Ends(points []Point) (first, last Losses, n int) {
	points = slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return p.Train == nil })
	if len(points) == 0 {
		return first, last, 0
	}
	n = max(1, len(points)/10)
	return mean(points[:n]), mean(points[len(points)-n:]), n
}

// mean averages steps that have losses.
func mean(ps []Point) (l Losses) {
	for _, p := range ps {
		l.Loss += p.Train.Loss / float64(len(ps))
		l.LM += p.Train.LM / float64(len(ps))
		l.BCE += p.Train.BCE / float64(len(ps))
	}
	return l
}
