package direction

import (
	"fmt"
	"math"
	"slices"

	"github.com/ccmed/ccmed/infer"
)

// greatestDose is beyond every use: states of eight lengths are no longer a model's.
const greatestDose = 1000

// Edits are those of a class at a dose, one a layer and scope. A dose of 1 adds the
// direction in its own length, erases whole or replaces; a negative one adds the other way.
func (f *File) Edits(class string, dose float64) ([]infer.Edit, error) {
	if !slices.Contains(f.Classes, class) {
		return nil, &UnknownClassError{class, f.Classes}
	}
	switch {
	case math.IsNaN(dose) || math.Abs(dose) > greatestDose:
		return nil, fmt.Errorf("a dose of %g; it must be a number between %d and %d", dose, -greatestDose, greatestDose)
	case f.Kind == LEACE && (dose < 0 || dose > 1):
		return nil, fmt.Errorf("a dose of %g of an erasure; it lies between 0, nothing, and 1, all", dose)
	case f.replaces() && dose != 1:
		return nil, fmt.Errorf("a dose of %g of states that stand in the place of others; it can only be 1", dose)
	}
	var out []infer.Edit
	for _, layer := range f.Layers {
		k, err := block(layer)
		if err != nil {
			return nil, err
		}
		change := f.change(layer, class, dose)
		for _, s := range f.Scope {
			change.Block, change.Scope = k, infer.Scope(s)
			out = append(out, change)
		}
	}
	return out, nil
}

// change is the edit of a class at a layer, without its place.
func (f *File) change(layer, class string, dose float64) (e infer.Edit) {
	switch {
	case f.Kind == LEACE:
		e.Erase = &infer.Erase{U: f.rows32(tensor(layer, class, partU), dose), V: f.rows32(tensor(layer, class, partV), 1),
			Mean: f.row32(tensor(layer, class, partMean), 0, 1)}
	case f.replaces():
		e.Replace = map[string][]float32{}
		for k, hash := range f.Prompts {
			e.Replace[hash] = f.row32(tensor(layer, class, partReplace), k, 1)
		}
	default:
		e.Add = f.row32(tensor(layer, class, partAdd), 0, dose)
	}
	return e
}

// Widest is how many times the mean length of the states the edit of a class at a dose is
// long, in the layer where that is most; 0 for a file that adds nothing.
func (f *File) Widest(class string, dose float64) float64 {
	most := 0.0
	if f.Kind == LEACE || f.replaces() {
		return most
	}
	for k, norm := range f.StateNorms {
		if k < len(f.Norms[class]) && norm > 0 {
			most = math.Max(most, math.Abs(dose)*f.Norms[class][k]/norm)
		}
	}
	return most
}

// Only is the file with one of its layers, of which a dose of 1 is what dose is here.
func (f *File) Only(layer string, dose float64, from string) (*File, error) {
	if !slices.Contains(f.Layers, layer) {
		return nil, fmt.Errorf("the edit file has no layer %q; it has %v", layer, f.Layers)
	}
	if f.Kind == LEACE || f.replaces() {
		return nil, fmt.Errorf("a file of the kind %s has no other doses to choose from", f.Kind)
	}
	out := &File{Card: f.Card, tensors: newTensors()}
	at := slices.Index(f.Layers, layer)
	out.StateNorms = f.StateNorms[at : at+1]
	out.Layers, out.From, out.Dose, out.Norms = []string{layer}, from, dose, map[string][]float64{}
	for _, c := range f.Classes {
		scaled := slices.Clone(f.tensors[tensor(layer, c, partAdd)].Values)
		for j := range scaled {
			scaled[j] *= dose
		}
		out.put(layer, c, partAdd, scaled)
		out.Norms[c] = []float64{f.Norms[c][at] * math.Abs(dose)}
	}
	return out, nil
}
