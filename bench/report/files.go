package report

import (
	"bytes"
	"errors"
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

// allTables is the file with every table of a folder.
const allTables = "tables"

// tablesAPage is how many tables allTables holds before it lets LaTeX set them: LaTeX keeps
// no more than some dozens waiting.
const tablesAPage = 10

// WriteFiles writes each figure of sections as SVG and PDF and each table as LaTeX
// (booktabs and, for wide ones, tabularx; with caption and label) and Markdown into a folder,
// which is not there yet, or empty, and returns the files' names. Files are named by section
// and title; tables.tex holds all tables. What fails leaves no folder.
func WriteFiles(dir string, sections []Section) (files []string, err error) {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("write figures: %s is not empty; name a new folder", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of figures: %w", err)
	}
	whole, err := os.MkdirTemp(filepath.Dir(dir), ".figures-*")
	if err != nil {
		return nil, fmt.Errorf("make the folder of figures: %w", err)
	}
	defer os.RemoveAll(whole) // fails after the rename, as it should
	if files, err = writeFiles(whole, sections); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(whole, 0o755), os.Remove(dir), os.Rename(whole, dir)); err != nil {
		return nil, fmt.Errorf("write figures: %w", err)
	}
	return files, nil
}

func writeFiles(dir string, sections []Section) (files []string, err error) {
	taken := map[string]bool{allTables: true}
	var tables bytes.Buffer
	tables.WriteString("% \\usepackage{booktabs,tabularx}\n")
	count := 0
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
			tex := t.labelled("tab:" + n)
			if err := write(n+".tex", []byte(tex)); err != nil {
				return files, err
			}
			tables.WriteString(tex)
			if count++; count%tablesAPage == 0 {
				tables.WriteString("\\clearpage\n")
			}
			if err := write(n+".md", []byte(markdown([]Section{{Tables: []Table{t}}}))); err != nil {
				return files, err
			}
		}
	}
	if count == 0 {
		return files, nil
	}
	return files, write(allTables+".tex", tables.Bytes())
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
