package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/ccmed/ccmed/bench/disk"
)

// epoch is the date in files that are the same whenever they are written.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// WriteFiles writes each figure of sections as SVG and PDF and each table as LaTeX
// (booktabs and, for wide ones, tabularx; with caption and label) and Markdown into a folder, which is made, or is empty,
// and returns the files' names. Files are named by section and title.
func WriteFiles(dir string, sections []Section) (files []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of figures: %w", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		if err == nil {
			err = fmt.Errorf("%s is not empty; name a new folder", dir)
		}
		return nil, fmt.Errorf("write figures: %w", err)
	}
	taken := map[string]bool{}
	name := func(titles ...string) string {
		base := slug(strings.Join(titles, " "))
		for k := 1; ; k++ {
			n := base
			if k > 1 {
				n = fmt.Sprintf("%s-%d", base, k)
			}
			if !taken[n] {
				taken[n] = true
				return n
			}
		}
	}
	write := func(file string, content []byte) error {
		if err := disk.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
		files = append(files, file)
		return nil
	}
	for _, s := range sections {
		for _, f := range s.Figures {
			var svg, pdf bytes.Buffer
			if err := WriteSVG(&svg, f); err != nil {
				return files, err
			}
			if err := WritePDF(&pdf, f); err != nil {
				return files, err
			}
			n := name(s.Title, f.Title)
			if err := write(n+".svg", svg.Bytes()); err != nil {
				return files, err
			}
			if err := write(n+".pdf", pdf.Bytes()); err != nil {
				return files, err
			}
		}
		for _, t := range s.Tables {
			if len(t.Rows) == 0 {
				continue
			}
			if t.Title == "" {
				t.Title = s.Title
			}
			n := name(s.Title, t.Title)
			if err := write(n+".tex", []byte(t.labelled("tab:"+n))); err != nil {
				return files, err
			}
			if err := write(n+".md", []byte(markdown([]Section{{Tables: []Table{t}}}))); err != nil {
				return files, err
			}
		}
	}
	return files, nil
}

// mostName is the greatest length of a file's name without its end.
const mostName = 72

// slug makes a file's name of titles: lower-case letters and digits with hyphens between,
// each word once.
func slug(titles string) string {
	var words []string
	seen := map[string]bool{}
	length := 0
	for _, w := range strings.FieldsFunc(strings.ToLower(strings.ReplaceAll(titles, "Δ", "delta-")), func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		if seen[w] || length+len(w) > mostName {
			continue
		}
		seen[w] = true
		words, length = append(words, w), length+len(w)+1
	}
	if len(words) == 0 {
		return "untitled"
	}
	return strings.Join(words, "-")
}
