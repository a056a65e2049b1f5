package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

// aucGap is the AUC that a record states for its chosen path minus that of its rejected one.
const aucGap = "auc_gap"

// mostFile bounds a JSON file of findings.
const mostFile = 256 << 20

// untestable is why a claim is not testable, for readers.
type untestable string

func (u untestable) Error() string { return string(u) }

func untestablef(format string, args ...any) error { return untestable(fmt.Sprintf(format, args...)) }

// runs reads measures of runs, each table and file once.
type runs struct {
	tables map[*task.Run]table
	trees  map[string]any
}

// table is a run's rows by column.
type table struct {
	rows     []row
	constant bool
	err      error
}

type row struct {
	item, condition, cluster string
	columns                  map[string]any
}

func (o *runs) table(ctx context.Context, r *task.Run) table {
	if t, ok := o.tables[r]; ok {
		return t
	}
	var t table
	res, err := r.Result(ctx, task.ScoreOptions{})
	if err == nil {
		var all task.Table
		all, err = res.Table(ctx)
		t.constant = all.Constant
		for _, x := range all.Rows {
			columns, failed := tree(x.Value)
			err = errors.Join(err, failed)
			c, _ := columns.(map[string]any)
			t.rows = append(t.rows, row{x.Key.Item, x.Key.Condition, x.Cluster, c})
		}
	}
	t.err = err
	o.tables[r] = t
	return t
}

// observations are the values of a column, the repeats of an item averaged.
func (o *runs) observations(ctx context.Context, r *task.Run, s Source) ([]stats.Observation, error) {
	t := o.table(ctx, r)
	if t.err != nil {
		return nil, t.err
	}
	if t.constant && s.Is == nil {
		return nil, untestable("constant answer: nothing is read from it")
	}
	at := map[string]int{}
	var out []stats.Observation
	var repeats []int
	for _, x := range t.rows {
		if s.Condition != "" && x.condition != s.Condition {
			continue
		}
		if keep, err := s.Among.keeps(x); err != nil {
			return nil, err
		} else if !keep {
			continue
		}
		v, unscored, err := s.value(x)
		if err != nil {
			return nil, err
		}
		i, ok := at[x.item]
		if !ok {
			i = len(out)
			at[x.item] = i
			out, repeats = append(out, stats.Observation{Item: x.item, Group: x.cluster, Unscored: unscored}), append(repeats, 0)
		}
		if unscored == "" {
			out[i].Value, out[i].Unscored = (out[i].Value*float64(repeats[i])+v)/float64(repeats[i]+1), ""
			repeats[i]++
		}
	}
	if len(out) == 0 {
		return nil, untestable("no row of the run is meant")
	}
	return out, nil
}

// keeps tells whether a row is among those that are measured; one without a value is not.
func (a *Among) keeps(x row) (bool, error) {
	if a == nil {
		return true, nil
	}
	v, unscored, err := Source{Column: a.Column}.value(x)
	switch {
	case err != nil || unscored != "":
		return false, err
	case a.Above != nil:
		return v > *a.Above, nil
	}
	return v <= *a.Most, nil
}

// value is what a row says.
func (s Source) value(x row) (v float64, unscored string, err error) {
	cell, there := x.columns[s.Column]
	if !there {
		return 0, "", fmt.Errorf("the run's rows have no column %s", s.Column)
	}
	if cell == nil {
		if scored, _ := x.columns["scored"].(bool); s.Is != nil && scored {
			return 0, "", nil // an answer, and another one
		}
		why, _ := x.columns["unscored"].(string)
		if why == "" {
			why = "no value"
		}
		return 0, why, nil
	}
	switch c := cell.(type) {
	case float64:
		v = c
	case bool:
		if c {
			v = 1
		}
	default:
		return 0, "", fmt.Errorf("the column %s of the run's rows holds no numbers", s.Column)
	}
	switch {
	case s.Is != nil:
		v = indicator(v == *s.Is)
	case s.Above != nil:
		v = indicator(v > *s.Above)
	}
	return v, "", nil
}

func indicator(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// estimate is the value at a path.
func (o *runs) estimate(ctx context.Context, r *task.Run, s Source) (stats.Estimate, error) {
	root, err := o.root(ctx, r, s.File)
	if err != nil {
		return stats.Estimate{}, err
	}
	v, err := find(root, s.Path)
	if err != nil {
		return stats.Estimate{}, err
	}
	if n, ok := v.(float64); ok {
		return stats.Estimate{Value: n, NoInterval: noInterval}, nil
	}
	var e stats.Equivalence
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	m, ok := v.(map[string]any)
	if !ok || err != nil || m["value"] == nil || m["lo"] == nil {
		return e.Estimate, fmt.Errorf("%s holds no number with an interval", s.Path)
	}
	if m["margin"] != nil {
		return e.At95(), nil
	}
	return e.Estimate, nil
}

// noInterval is the reason of a number that its run gives no interval of.
const noInterval = "no interval"

// root is the metrics of a run, or one of its files.
func (o *runs) root(ctx context.Context, r *task.Run, file string) (any, error) {
	path := filepath.Join(r.Path(), file)
	if t, ok := o.trees[path]; ok {
		return t, nil
	}
	var t any
	if file == "" {
		res, err := r.Result(ctx, task.ScoreOptions{})
		if err != nil {
			return nil, err
		}
		if t, err = tree(res.Metrics()); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Path(), err)
		}
	} else {
		b, err := disk.ReadFile(path, mostFile)
		if err != nil {
			return nil, untestablef("run missing: it has no %s", file)
		}
		if err := checksum.Check(b); err != nil && !errors.Is(err, checksum.ErrNone) {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		if err := json.Unmarshal(b, &t); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	o.trees[path] = t
	return t, nil
}

// tree is v as JSON holds it.
func tree(v any) (t any, err error) {
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	return t, err
}

// find follows a path through JSON: names between dots, behind a name of a list in brackets
// which of its elements is meant. [NAME=VALUE,…] is the first element whose members, names
// between dots again, have these values, and with ^ for = one that begins with the value;
// [NAMES@NAME] is the element at the position that the root's member NAME has in its list
// NAMES, as in decomposition[layers@at].elic.
func find(root any, path string) (any, error) {
	at := root
	for rest := path; rest != ""; {
		end := strings.IndexAny(rest, ".[")
		name := rest
		if end >= 0 {
			name = rest[:end]
		}
		m, ok := at.(map[string]any)
		if !ok || m[name] == nil {
			return nil, untestablef("not measured: there is no %s (%s)", name, path)
		}
		at, rest = m[name], rest[len(name):]
		if strings.HasPrefix(rest, "[") {
			which, after, ok := strings.Cut(rest[1:], "]")
			list, isList := at.([]any)
			if !ok || !isList {
				return nil, fmt.Errorf("the path %s is none: %s is no list, or a bracket is open", path, name)
			}
			i := element(root, list, which)
			if i < 0 || i >= len(list) || list[i] == nil {
				return nil, untestablef("not measured: there is no %s (%s)", name, path)
			}
			at, rest = list[i], after
		}
		rest = strings.TrimPrefix(rest, ".")
	}
	return at, nil
}

// element is the index of the element that brackets name, -1 where there is none.
func element(root any, list []any, which string) int {
	if names, name, ok := strings.Cut(which, "@"); ok {
		m, _ := root.(map[string]any)
		all, _ := m[names].([]any)
		return slices.IndexFunc(all, func(x any) bool { return x == m[name] })
	}
	return slices.IndexFunc(list, func(x any) bool {
		for _, want := range strings.Split(which, ",") {
			name, value, equal := strings.Cut(want, "=")
			if !equal {
				name, value, _ = strings.Cut(want, "^")
			}
			v, err := find(x, name)
			if err != nil || equal && text(v) != value || !strings.HasPrefix(text(v), value) {
				return false
			}
		}
		return true
	})
}

// text is a value of JSON as options and paths write it.
func text(v any) string {
	if n, ok := v.(float64); ok {
		return strconv.FormatFloat(n, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// recordGaps are the gaps that the records state.
func recordGaps(ds []dialogue.Dialogue) (out []stats.Observation) {
	for i, d := range ds {
		p, okP := d.StoredAUC(dialogue.Positive)
		n, okN := d.StoredAUC(dialogue.Negative)
		if okP && okN {
			out = append(out, stats.Observation{Item: strconv.Itoa(i), Group: d.ContextKey(), Value: p - n})
		}
	}
	return out
}

// resamples is how often groups are drawn.
const resamples = 10_000

// mean is the mean of observations with its interval, those without a value counted.
func mean(obs []stats.Observation, seed uint64) (e stats.Estimate, unscored int, err error) {
	var v []float64
	var groups []string
	binary := true
	for _, x := range obs {
		if x.Unscored != "" {
			unscored++
			continue
		}
		v, groups = append(v, x.Value), append(groups, x.Group)
		binary = binary && (x.Value == 0 || x.Value == 1)
	}
	return bounded(v, groups, 0, binary, unscored, seed)
}

// difference is the mean of a − b over the items that both have a value of.
func difference(a, b []stats.Observation, seed uint64) (e stats.Estimate, dropped int, err error) {
	of := map[string]stats.Observation{}
	for _, x := range b {
		of[x.Item] = x
	}
	var v []float64
	var groups []string
	binary := true
	for _, x := range a {
		y, ok := of[x.Item]
		if !ok || x.Unscored != "" || y.Unscored != "" {
			dropped++
			continue
		}
		v, groups = append(v, x.Value-y.Value), append(groups, x.Group)
		for _, z := range []float64{x.Value, y.Value} {
			binary = binary && (z == 0 || z == 1)
		}
	}
	return bounded(v, groups, -1, binary, dropped, seed)
}

// bounded is the mean of v by Student's t; where v are differences of shares or shares, from
// least to 1, an exact interval stands where all are alike.
func bounded(v []float64, groups []string, least float64, binary bool, unscored int, seed uint64) (stats.Estimate, int, error) {
	if len(v) == 0 {
		return stats.Estimate{}, unscored, untestable("no item has a value")
	}
	boot := stats.Bootstrap{Resamples: resamples, Seed: seed}
	e, err := boot.MeanT(v, groups)
	if errors.Is(err, stats.ErrOneGroup) {
		return stats.Estimate{Value: e.Value, N: len(v), Groups: 1, NoInterval: stats.OneGroup}, unscored, nil
	}
	if err == nil && binary && e.NoInterval == stats.AllAlike {
		e = boot.Within(e, least, 1)
	}
	return e, unscored, err
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
