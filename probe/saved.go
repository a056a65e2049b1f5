package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// ProbesDir is where the probes of a store lie in its run directory, one file of
// weights and one card a cell.
const ProbesDir = "probes"

// Card is what a saved probe's card says beside its classes and layers.
type Card struct {
	Store    string             `json:"store_samples_sha256"` // of the store it was trained on
	Items    []string           `json:"items"`                // dialogues that it was trained on
	Groups   []string           `json:"groups"`               // their scenario contexts, each once
	C        map[string]float64 `json:"c"`                    // the penalty of each layer, chosen on an inner part
	Accuracy map[string]float64 `json:"accuracy"`             // cross-validated, of each layer; not of these weights on their own rows
}

// Save trains a probe of every layer of every cell on all rows and writes them
// into the store's directory. Penalties are chosen on an inner part, as in
// cross-validation. found are the findings of the same store.
func Save(ctx context.Context, dir *run.Dir, findings *Findings, o FindOptions) (paths []string, err error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	o = o.withDefaults()
	f := &finder{FindOptions: o, store: s, design: o.Design.withDefaults(), Findings: &Findings{N: len(s.items), Classes: findings.Classes}}
	if err := f.prepare(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir.Path(), ProbesDir), 0o755); err != nil {
		return nil, fmt.Errorf("save the probes: %w", err)
	}
	for _, cf := range findings.Cells {
		f.Progress(fmt.Sprintf("probe of %s, %s on all rows", cf.Cell.Context, cf.Cell.Text))
		p, card, err := f.whole(ctx, cf)
		if err != nil {
			return nil, fmt.Errorf("probe of %s on all rows: %w", cf.Cell, err)
		}
		card.Store = findings.Samples
		path := filepath.Join(dir.Path(), ProbesDir, strings.TrimSuffix(cf.Cell.File(), ".safetensors")+".probe.safetensors")
		if err := activation.SaveProbe(path, p, card); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// whole fits a cell's probes to all rows.
func (f *finder) whole(ctx context.Context, cf CellFindings) (*activation.Probe, Card, error) {
	card := Card{Items: f.store.items, C: map[string]float64{}, Accuracy: map[string]float64{}}
	contexts := map[string]bool{}
	for _, item := range f.store.items {
		if c := f.store.states[item].Context; !contexts[c] {
			contexts[c] = true
			card.Groups = append(card.Groups, c)
		}
	}
	p := &activation.Probe{Model: f.store.files[cf.Cell].Spec().Model, Cell: cf.Cell, Layers: make([]activation.LayerProbe, len(f.names))}
	for c := range f.Classes {
		p.Classes = append(p.Classes, dmis.Stage(c).String())
	}
	chosen := make([]float64, len(f.names))
	layers := f.at(cf.Cell)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(f.design.Workers)
	for k, name := range f.names {
		g.Go(func() error {
			x, err := layers.Layer(gctx, k)
			if err != nil {
				return err
			}
			fits, err := f.design.fitWhole(gctx, x, f.samples, []linear.Labels{{Y: f.samples.Y}})
			if err != nil {
				return fmt.Errorf("layer %s: %w", name, err)
			}
			m, scale := fits[0].Standardised()
			chosen[k] = fits[0].C
			p.Layers[k] = activation.LayerProbe{Layer: name, W: m.W, B: m.B, Mean: scale.Mean, Scale: scale.Scale}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, card, err
	}
	for k, name := range f.names {
		card.C[name] = chosen[k]
		if i := slices.Index(cf.layerNames(), name); i >= 0 {
			card.Accuracy[name] = cf.Layers[i].Accuracy
		}
	}
	return p, card, nil
}

func (c CellFindings) layerNames() []string {
	var out []string
	for _, l := range c.Layers {
		out = append(out, l.Layer)
	}
	return out
}

// Applied is what a saved probe says of a cell of another store.
type Applied struct {
	Probe activation.Cell `json:"probe"` // that it was trained on
	Cell  activation.Cell `json:"cell"`  // that it was applied to
	// Seen dialogues were among the training ones and are left out; of the others,
	// SeenContexts share their scenario context with one.
	N            int              `json:"n"`
	Seen         int              `json:"seen"`
	SeenContexts int              `json:"seen_contexts"`
	Layers       []string         `json:"layers"`
	Accuracy     []stats.Estimate `json:"accuracy"` // by layer, conditional on the probe
	Majority     float64          `json:"majority"` // share of the most frequent stage
}

// Apply uses saved probes, without training any, on a store of the same model: a
// train→evaluate design. path is a file of weights, which is applied to every cell,
// or a folder of them, of which each is applied to its own cell.
func Apply(ctx context.Context, dir *run.Dir, path string, r Resampling) (out []Applied, err error) {
	s, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find the saved probes: %w; `ccmed probe train` saves them into STORE/%s", err, ProbesDir)
	}
	files := []string{path}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.probe.safetensors")); err != nil {
			return nil, fmt.Errorf("find the saved probes: %w", err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s holds no probes (*.probe.safetensors); `ccmed probe train` saves them into STORE/%s", path, ProbesDir)
		}
	}
	for _, file := range files {
		var card Card
		p, err := activation.LoadProbe(file, &card)
		if err != nil {
			return nil, err
		}
		for _, c := range append(s.cells(PromptEnd), s.cells(UtteranceEnd)...) {
			if info.IsDir() && c != p.Cell {
				continue
			}
			a, err := s.apply(ctx, p, card, c, r)
			if err != nil {
				return nil, fmt.Errorf("apply %s to %s: %w", file, c, err)
			}
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s and the store share no cell; name one file to apply it to every cell", path)
	}
	return out, nil
}

func (s *store) apply(ctx context.Context, p *activation.Probe, card Card, c activation.Cell, r Resampling) (a Applied, err error) {
	file := s.files[c]
	if err := p.Check(file); err != nil {
		return a, err
	}
	a.Probe, a.Cell = p.Cell, c
	var rows []int
	var y []int
	var groups []string
	count := map[int]int{}
	for i, item := range s.items {
		if slices.Contains(card.Items, item) {
			a.Seen++
			continue
		}
		st := s.states[item]
		label := slices.Index(p.Classes, st.Stage)
		if label < 0 {
			return a, fmt.Errorf("item %s has the stage %s; the probe knows %s", item, st.Stage, strings.Join(p.Classes, ", "))
		}
		if slices.Contains(card.Groups, st.Context) {
			a.SeenContexts++
		}
		rows, y, groups = append(rows, s.rows[i]), append(y, label), append(groups, st.Context)
		count[label]++
	}
	a.N = len(rows)
	if a.N == 0 {
		return a, fmt.Errorf("all %d dialogues were among those that the probe was trained on", a.Seen)
	}
	for _, n := range count {
		a.Majority = max(a.Majority, float64(n)/float64(a.N))
	}
	for _, l := range p.Layers {
		if err := ctx.Err(); err != nil {
			return a, err
		}
		x, err := storeLayers{file, []string{l.Layer}, rows}.Layer(ctx, 0)
		if err != nil {
			return a, err
		}
		m, err := (&linear.Standardiser{Mean: l.Mean, Scale: l.Scale}).Raw(&linear.Model{Classes: len(p.Classes), W: l.W, B: l.B})
		if err != nil {
			return a, err
		}
		held, err := m.Predict(x)
		if err != nil {
			return a, fmt.Errorf("layer %s: %w", l.Layer, err)
		}
		hits := make([]float64, len(y))
		for i := range y {
			if held.Argmax(i) == y[i] {
				hits[i] = 1
			}
		}
		e, err := r.bootstrap().Share(hits, groups)
		if err != nil {
			return a, err
		}
		a.Layers, a.Accuracy = append(a.Layers, l.Layer), append(a.Accuracy, e)
	}
	return a, nil
}
