package report

import (
	"fmt"
	"math"
	"slices"
)

// Browser is a list of items that a reader filters, sorts and opens. An HTML page
// shows it where scripts run; JSON holds all of it; the other formats count the
// items.
//
//	b := report.Browser{Name: "dialogues", Facets: []report.Facet{{Name: "stage"}}, Measures: []string{"gold turn"}}
//	b.Items = append(b.Items, report.Item{Title: "9001", Facets: [][]string{{"Denial"}}, Measures: report.Values{3}})
type Browser struct {
	Name  string `json:"name"`            // what the items are, in the plural: "dialogues"
	Title string `json:"title,omitempty"` // what their titles are, to sort by: "id"
	// Facets are what items are filtered by, Measures what they are sorted by
	// beside title and facets.
	Facets   []Facet  `json:"facets"`
	Measures []string `json:"measures"`
	Items    []Item   `json:"items"`
}

// Facet is a property that an item can have several values of.
type Facet struct {
	Name string `json:"name"`
	// Order lists values in the order to show and to sort them in; others follow.
	Order []string `json:"order,omitempty"`
}

// Item is one entry of a Browser.
type Item struct {
	Title string `json:"title"`
	Note  string `json:"note,omitempty"` // shown without opening it: why something is missing
	// Facets holds the values of each of the browser's facets, Measures of each of
	// its measures, NaN where there is none.
	Facets   [][]string `json:"facets"`
	Measures Values     `json:"measures"`
	Blocks   []Block    `json:"blocks"`
}

// Block is a part of an open item: facts, then turns, then a text as it is.
type Block struct {
	Title string `json:"title,omitempty"`
	// Beside sets the block beside its neighbours that have it too.
	Beside bool        `json:"beside,omitempty"`
	Notes  []string    `json:"notes,omitempty"`
	Facts  [][2]string `json:"facts,omitempty"` // name and value
	// Value names the turns' values, which are drawn as a curve over the turns too.
	Value string `json:"value,omitempty"`
	// Shares name the parts of the turns' distributions.
	Shares []string `json:"shares,omitempty"`
	Turns  []Turn   `json:"turns,omitempty"`
	Text   string   `json:"text,omitempty"`
}

// Turn is something said, with what was measured after it.
type Turn struct {
	Name    string   `json:"name,omitempty"` // "4"
	Speaker string   `json:"speaker,omitempty"`
	Text    string   `json:"text,omitempty"`
	Marks   []string `json:"marks,omitempty"` // what is special about it, in a word or two
	// Value lies in 0..1; nil where nothing was measured.
	Value *float64 `json:"value,omitempty"`
	// Shares are a distribution over the block's Shares; nil where there is none.
	Shares Values `json:"shares,omitempty"`
	// Unscored says why a measurement gave no answer.
	Unscored string `json:"unscored,omitempty"`
}

// check tells where an item does not fit its browser.
func (b *Browser) check() error {
	for _, it := range b.Items {
		if len(it.Facets) != len(b.Facets) || len(it.Measures) != len(b.Measures) {
			return fmt.Errorf("item %q has %d facets and %d measures; the browser has %d and %d", it.Title, len(it.Facets), len(it.Measures), len(b.Facets), len(b.Measures))
		}
		for _, bl := range it.Blocks {
			for _, t := range bl.Turns {
				if t.Shares != nil && len(t.Shares) != len(bl.Shares) {
					return fmt.Errorf("item %q, turn %q: %d shares for %d names", it.Title, t.Name, len(t.Shares), len(bl.Shares))
				}
				if t.Value != nil && !finite(*t.Value) {
					return fmt.Errorf("item %q, turn %q: the value is %v", it.Title, t.Name, *t.Value)
				}
			}
		}
	}
	return nil
}

func (b *Browser) facet(name string) int {
	return slices.IndexFunc(b.Facets, func(f Facet) bool { return f.Name == name })
}

// Join adds the items of another browser. Facets and measures are matched by
// name; what one of them lacks is empty there.
func (b *Browser) Join(o Browser) {
	for _, f := range o.Facets {
		if b.facet(f.Name) < 0 {
			b.Facets = append(b.Facets, Facet{Name: f.Name})
			for i := range b.Items {
				b.Items[i].Facets = append(b.Items[i].Facets, nil)
			}
		}
		mine := &b.Facets[b.facet(f.Name)]
		for _, v := range f.Order {
			if !slices.Contains(mine.Order, v) {
				mine.Order = append(mine.Order, v)
			}
		}
	}
	for _, m := range o.Measures {
		if !slices.Contains(b.Measures, m) {
			b.Measures = append(b.Measures, m)
			for i := range b.Items {
				b.Items[i].Measures = append(b.Items[i].Measures, math.NaN())
			}
		}
	}
	for _, it := range o.Items {
		facets := make([][]string, len(b.Facets))
		for i, v := range it.Facets {
			facets[b.facet(o.Facets[i].Name)] = v
		}
		measures := slices.Repeat(Values{math.NaN()}, len(b.Measures))
		for i, v := range it.Measures {
			measures[slices.Index(b.Measures, o.Measures[i])] = v
		}
		it.Facets, it.Measures = facets, measures
		b.Items = append(b.Items, it)
	}
}

// count stands for the browser where items cannot be opened.
func (b *Browser) count() string {
	return fmt.Sprintf("%d %s, one by one in the HTML and the JSON report", len(b.Items), b.Name)
}
