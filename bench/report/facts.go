package report

// Facts is a table of names and values under construction.
type Facts struct{ Table }

// NewFacts starts a table of facts.
func NewFacts() *Facts {
	return &Facts{Table{Columns: []Column{{Name: "fact"}, {Name: "value"}}}}
}

// Add adds a fact unless it is empty.
func (f *Facts) Add(name, value string) {
	if value != "" {
		f.Rows = append(f.Rows, []Cell{Text(name), Text(value)})
	}
}
