package report_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccmed/ccmed/bench/report"
)

// elements parses a page and calls visit at the start of every element.
func elements(t *testing.T, page string, visit func(e xml.StartElement, attr map[string]string)) {
	t.Helper()
	// A script element ends at the first </script>, whatever stands in it.
	d := xml.NewDecoder(strings.NewReader(scripts.ReplaceAllString(page, "$1</script>")))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("parse the page: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok {
			attr := map[string]string{}
			for _, a := range e.Attr {
				attr[a.Name.Local] = a.Value
			}
			visit(e, attr)
		}
	}
}

var (
	style   = regexp.MustCompile(`(?s)<style>.*?</style>`)
	scripts = regexp.MustCompile(`(?s)(<script[^>]*>).*?</script>`)
	// ours is the page's own script, the one that no attribute marks as data.
	ours = regexp.MustCompile(`(?s)<script>(.*?)</script>`)
)

func TestHTMLGolden(t *testing.T) {
	got := render(t, report.HTML, report.Options{Title: "Runs of 30 November"}, append(full[:2:2], report.Section{Title: "Figures", Figures: []report.Figure{layers, matrix}})...)
	got = style.ReplaceAllString(got, "<style></style>") // looks are looked at, not compared
	got = ours.ReplaceAllString(got, "<script></script>")
	got = regexp.MustCompile(`'sha256-[^']*'`).ReplaceAllString(got, "'sha256-'")
	file := filepath.Join("testdata", "html.golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestHTMLRunsNothing puts hostile text wherever a task can put text.
func TestHTMLRunsNothing(t *testing.T) {
	for name, evil := range map[string]string{
		"script":     `</script><script>alert(1)</script>`,
		"raw text":   `</title></style></pre></textarea><script>alert(1)</script>`,
		"handler":    `<img src=x onerror=alert(1)>`,
		"attribute":  `" onmouseover="alert(1)" x="`,
		"quote":      `' onfocus='alert(1)' autofocus='`,
		"url":        `javascript:alert(1)`,
		"template":   `{{.Style}}{{template "page"}}`,
		"comment":    `<!-- --!><script>alert(1)</script>`,
		"svg":        `<svg onload=alert(1)><![CDATA[<script>alert(1)</script>]]>`,
		"entity":     `&lt;script&gt;alert(1)&lt;/script&gt;`,
		"ansi":       "\x1b[31mred\x1b]0;title\a\x9b",
		"direction":  "a\u202eb",
		"not UTF-8":  "\xff\xfe<script>",
		"zero bytes": "<scr\x00ipt>alert(1)</script>",
	} {
		t.Run(name, func(t *testing.T) {
			cell := report.Table{Title: evil, Columns: []report.Column{{Name: evil}, {Name: evil, Align: report.Right}}, Rows: [][]report.Cell{{report.Text(evil), report.Text(evil)}}, Notes: []string{evil}}
			lines := report.Figure{Title: evil, Description: evil, Notes: []string{evil}, Lines: &report.Lines{X: report.Axis{Name: evil}, Y: report.Axis{Name: evil}, Categories: []string{evil},
				Series: []report.Series{{Name: evil, Y: []float64{1}}}, References: []report.Reference{{Name: evil, Value: 1}}}}
			points := report.Figure{Title: evil, Points: &report.Points{X: report.Axis{Name: evil}, Groups: []string{evil}, Series: []report.Series{{Name: evil, Y: []float64{1}}}}}
			browser := &report.Browser{Name: evil, Facets: []report.Facet{{Name: evil}}, Measures: []string{evil}, Items: []report.Item{{Title: evil, Facets: [][]string{{evil}}, Measures: report.Values{1},
				Blocks: []report.Block{{Title: evil, Notes: []string{evil}, Facts: [][2]string{{evil, evil}}, Value: evil, Shares: []string{evil}, Text: evil,
					Turns: []report.Turn{{Name: evil, Speaker: evil, Text: evil, Marks: []string{evil}, Shares: report.Values{1}, Unscored: evil}}}}}}}
			heat := report.Figure{Title: evil, Heat: &report.Heat{X: evil, Y: evil, Columns: []string{evil}, Rows: []string{evil}, Values: []report.Values{{1}}}}
			page := render(t, report.HTML, report.Options{Title: evil}, report.Section{Title: evil, Text: evil, Notes: []string{evil}, Tables: []report.Table{cell}, Figures: []report.Figure{lines, points, heat},
				Passages: []report.Passage{{Title: evil, Text: evil, Open: true}, {Group: evil, Title: evil, Text: evil}}, Browser: browser})
			known := map[string]bool{}
			elements(t, render(t, report.HTML, report.Options{}, append(full[:2:2], report.Section{Title: "Figures", Figures: allFigures,
				Passages: []report.Passage{{Title: "command", Text: "text", Open: true}, {Group: "prompts", Title: "prompt", Text: "text"}}, Browser: &report.Browser{Name: "items"}})...), func(e xml.StartElement, attr map[string]string) {
				known[e.Name.Local] = true
				for a := range attr {
					known[e.Name.Local+" "+a] = true
				}
			})
			elements(t, page, func(e xml.StartElement, attr map[string]string) {
				if !known[e.Name.Local] {
					t.Errorf("text became the element %s", e.Name.Local)
				}
				for a, v := range attr {
					if !known[e.Name.Local+" "+a] || a == "href" && !strings.HasPrefix(v, "#") || a == "src" {
						t.Errorf("text became the attribute %s=%q of %s", a, v, e.Name.Local)
					}
				}
			})
			if strings.ContainsAny(page, "\x00\x07\x1b\u202e\u009b") {
				t.Error("a control character is left")
			}
		})
	}
}

// TestHTMLAsksForNothing: no address in the page, and a policy that forbids all
// loads and every script but the page's own.
func TestHTMLAsksForNothing(t *testing.T) {
	page := render(t, report.HTML, report.Options{}, report.Section{Title: "Figures", Figures: allFigures})
	script := ours.FindAllStringSubmatch(page, -1)
	if len(script) != 1 {
		t.Fatalf("%d scripts, want one", len(script))
	}
	// The namespace of SVG is a name, not an address that is asked.
	rest := strings.ReplaceAll(page, "http://www.w3.org/2000/svg", "")
	for _, no := range []string{"http:", "https:", "url(", "@import", "<link", "<img", " src=", "fetch(", "innerHTML", "eval("} {
		if strings.Contains(rest, no) {
			t.Errorf("the page holds %q", no)
		}
	}
	sum := sha256.Sum256([]byte(script[0][1]))
	want := fmt.Sprintf(`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'">`, base64.StdEncoding.EncodeToString(sum[:]))
	if !strings.Contains(html.UnescapeString(page), want) {
		t.Errorf("the page does not hold the policy %s", want)
	}
}

// TestHTMLCarriesItsJSON: the data of a page is what the JSON format holds.
func TestHTMLCarriesItsJSON(t *testing.T) {
	section := report.Section{Title: "a & <b>", Notes: []string{"\u2028 </script> \x1b[31m \u009b"}, Browser: &report.Browser{Name: "items", Facets: []report.Facet{{Name: "f"}}, Measures: []string{"m"},
		Items: []report.Item{{Title: "1", Facets: [][]string{{"<!--"}}, Measures: report.Values{math.NaN()}}}}}
	page := render(t, report.HTML, report.Options{}, section)
	m := regexp.MustCompile(`(?s)<script id="report-data" type="application/json">(.*?)</script>`).FindStringSubmatch(page)
	if m == nil {
		t.Fatal("the page has no data")
	}
	if strings.ContainsAny(m[1], "<>&\u2028\u009b\x1b") {
		t.Error("the data holds a character that could end it or be obeyed")
	}
	var inPage, alone any
	if err := json.Unmarshal([]byte(m[1]), &inPage); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(render(t, report.JSON, report.Options{}, section)), &alone); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(alone, inPage); d != "" {
		t.Errorf("(-JSON +page):\n%s", d)
	}
}

// TestHTMLIsAccessible checks what a machine can: order of headings, names of
// regions, heads of tables, ids of their own.
// The blocks of a long list are in packs: with them the page holds all of its JSON.
func TestHTMLPacksALongList(t *testing.T) {
	b := &report.Browser{Name: "items"}
	for i := range 4001 {
		b.Items = append(b.Items, report.Item{Title: strconv.Itoa(i), Blocks: []report.Block{{Text: fmt.Sprintf("</script> \x1b %d", i)}}})
	}
	page := render(t, report.HTML, report.Options{}, report.Section{Title: "s"}, report.Section{Browser: b})
	if b.Items[0].Blocks == nil {
		t.Error("the caller's items have lost their blocks")
	}
	if strings.Contains(page, " 77\"") {
		t.Error("the blocks of a long list are in the page as they are")
	}
	var blocks [][]report.Block
	for _, m := range regexp.MustCompile(`<script class="pack" type="text/plain" data-section="1" data-items="2000">([^<]*)</script>`).FindAllStringSubmatch(page, -1) {
		text, err := base64.StdEncoding.DecodeString(m[1])
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var part [][]report.Block
		if err := json.NewDecoder(z).Decode(&part); err != nil {
			t.Fatal(err)
		}
		if blocks = append(blocks, part...); len(part) > 2000 {
			t.Errorf("a pack holds %d items", len(part))
		}
	}
	if len(blocks) != 4001 {
		t.Fatalf("the packs hold the blocks of %d of 4,001 items", len(blocks))
	}
	for i, bs := range blocks {
		if want := fmt.Sprintf("</script> \x1b %d", i); len(bs) != 1 || bs[0].Text != want {
			t.Fatalf("item %d has %+v, want the text %q", i, bs, want)
		}
	}
}

func TestHTMLIsAccessible(t *testing.T) {
	page := render(t, report.HTML, report.Options{Title: "Report"}, append(full[:2:2], report.Section{Title: "Figures", Figures: allFigures}, report.Section{Title: "Nothing"})...)
	ids, refs, level, heads := map[string]bool{}, []string{}, 0, 0
	elements(t, page, func(e xml.StartElement, attr map[string]string) {
		name := e.Name.Local
		if id := attr["id"]; id != "" {
			if ids[id] {
				t.Errorf("the id %q occurs twice", id)
			}
			ids[id] = true
		}
		refs = append(refs, strings.Fields(attr["aria-labelledby"])...)
		if h, ok := strings.CutPrefix(attr["href"], "#"); ok {
			refs = append(refs, h)
		}
		switch {
		case name == "h1" || name == "h2":
			now := int(name[1] - '0')
			if now > level+1 {
				t.Errorf("heading %s after level %d", name, level)
			}
			level = now
		case name == "th":
			heads++
			if attr["scope"] == "" {
				t.Error("a head of a table has no scope")
			}
		case attr["role"] == "group" && (attr["aria-label"] == "" || attr["tabindex"] != "0"):
			t.Errorf("a box that scrolls has the name %q and tabindex %q", attr["aria-label"], attr["tabindex"])
		case name == "html" && attr["lang"] == "":
			t.Error("the page has no language")
		}
	})
	if heads == 0 || len(refs) < 8 {
		t.Fatalf("%d heads of tables and %d references: the page is not what this test looks at", heads, len(refs))
	}
	for _, r := range refs {
		if !ids[r] {
			t.Errorf("nothing has the id %q", r)
		}
	}
}

// TestColoursContrast computes the contrast of the style sheet's colours after
// WCAG 2.2: 4.5 for text, 3 for what a figure draws.
func TestColoursContrast(t *testing.T) {
	page := render(t, report.HTML, report.Options{})
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(page, -1)
	if len(schemes) != 2 {
		t.Fatalf("%d colour schemes, want light and dark", len(schemes))
	}
	for i, s := range schemes {
		colours := map[string]string{}
		for _, m := range regexp.MustCompile(`--(\w+): (#\w+);`).FindAllStringSubmatch(s[1], -1) {
			colours[m[1]] = m[2]
		}
		contrast := func(a, b [3]float64) float64 {
			x, y := luminance(a), luminance(b)
			return (max(x, y) + 0.05) / (min(x, y) + 0.05)
		}
		paper := rgb(t, colours["paper"])
		for name, least := range map[string]float64{"ink": 4.5, "soft": 4.5, "s0": 4.5, "s1": 3, "s2": 3, "s3": 3, "s4": 3, "s5": 3} {
			if c := contrast(rgb(t, colours[name]), paper); c < least {
				t.Errorf("scheme %d: %s on paper has a contrast of %.2f, want %v", i, name, c, least)
			}
		}
		deepest := rgb(t, colours["s0"]) // of a matrix: half over paper
		for k := range deepest {
			deepest[k] = (deepest[k] + paper[k]) / 2
		}
		if c := contrast(rgb(t, colours["ink"]), deepest); c < 4.5 {
			t.Errorf("scheme %d: a value on the deepest shade has a contrast of %.2f", i, c)
		}
	}
}

// rgb reads a colour's channels, 0 to 1.
func rgb(t *testing.T, hex string) (c [3]float64) {
	t.Helper()
	v, err := strconv.ParseUint(strings.TrimPrefix(hex, "#"), 16, 24)
	if err != nil || len(hex) != 7 {
		t.Fatalf("%q is not a colour", hex)
	}
	return [3]float64{float64(v>>16) / 255, float64(v>>8&255) / 255, float64(v&255) / 255}
}

// luminance is WCAG 2.2's relative luminance.
func luminance(c [3]float64) float64 {
	for i, v := range c {
		if v <= 0.04045 {
			c[i] = v / 12.92
		} else {
			c[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
}
