package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
)

// chromium is a tab of a real browser that notes what a page must not do.
type chromium struct {
	t   *testing.T
	ctx context.Context

	mu    sync.Mutex
	noted []string
}

// tool returns the path that an environment variable names. Without it the test is
// skipped, or fails where browsers are required.
func tool(t *testing.T, name, get string) string {
	t.Helper()
	path := os.Getenv(name)
	if path != "" {
		return path
	}
	say := fmt.Sprintf("%s is not set; %s prints what to set it to", name, get)
	if os.Getenv("CCMED_REQUIRE_BROWSER") == "1" {
		t.Fatal(say)
	}
	t.Skip(say)
	return ""
}

func newChromium(t *testing.T) *chromium {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(tool(t, "CCMED_TEST_CHROMIUM", "scripts/install_chromium.sh")))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none for root
	}
	c := &chromium{t: t}
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(c.listen))
	t.Cleanup(cancel)
	c.ctx = ctx
	return c
}

func (c *chromium) listen(event any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	note := func(format string, args ...any) { c.noted = append(c.noted, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		note("console.%s", e.Type)
	case *runtime.EventExceptionThrown:
		note("exception: %s", e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		note("log: %s", e.Entry.Text)
	case *cdppage.EventJavascriptDialogOpening:
		note("dialog: %s", e.Message)
	case *network.EventRequestWillBeSent:
		// The page itself, and the JSON that it offers to save, are no requests of
		// the network.
		if u := e.Request.URL; !strings.HasPrefix(u, "file://") || !strings.HasSuffix(u, ".html") {
			note("request: %s", u)
		}
	}
}

// quiet fails the test when the page did something that it must not do.
func (c *chromium) quiet() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.noted {
		c.t.Errorf("the page: %s", n)
	}
	c.noted = nil
}

func (c *chromium) do(actions ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	if err := chromedp.Do(c.ctx, actions...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *chromium) open(path string) {
	c.t.Helper()
	c.do(chromedp.Navigate("file://" + path))
}

// eval returns the value of an expression, of its promise if it is one.
func eval[T any](c *chromium, expression string) T {
	c.t.Helper()
	v, err := chromedp.Run(c.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		c.t.Fatalf("%s: %v", strings.SplitN(expression, "\n", 2)[0][:min(80, len(expression))], err)
	}
	return v
}

// worked returns how long the page's main thread has worked. It counts processor
// time, so that other programs make a page no slower.
func (c *chromium) worked() time.Duration {
	c.t.Helper()
	got, err := chromedp.Call(c.ctx, performance.GetMetrics, cdp.Empty{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range got.Metrics {
		if m.Name == "TaskDuration" {
			return time.Duration(m.Value * float64(time.Second))
		}
	}
	c.t.Fatal("the browser does not tell how long it worked")
	return 0
}

// scheme sets light or dark.
func (c *chromium) scheme(name string) {
	c.t.Helper()
	if _, err := chromedp.Call(c.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}); err != nil {
		c.t.Fatal(err)
	}
}

// await waits until an expression is true: a page builds an item after it is opened.
func (c *chromium) await(expression string) {
	c.t.Helper()
	for limit := time.Now().Add(20 * time.Second); !eval[bool](c, "!!("+expression+")"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			c.t.Fatalf("20 s do not make it true: %s", expression)
		}
	}
}

// openAll opens everything that is folded.
func (c *chromium) openAll() {
	c.t.Helper()
	eval[bool](c, "document.querySelectorAll('details').forEach((d) => { d.open = true; }), true")
	c.await("[...document.querySelectorAll('.items details')].every((d) => d.querySelector('.body'))")
}

// tabTo presses the tabulator until an element that matches a selector has the focus.
func (c *chromium) tabTo(selector string) {
	c.t.Helper()
	for range 400 {
		c.do(chromedp.KeyEvent(kb.Tab))
		if eval[bool](c, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
	}
	c.t.Fatalf("400 tabulators do not reach %s", selector)
}

// choose presses the arrow down until the select that has the focus shows an option.
func (c *chromium) choose(option string) {
	c.t.Helper()
	c.do(chromedp.KeyEvent(kb.Home))
	for range 50 {
		now := eval[string](c, "document.activeElement.selectedOptions[0].textContent")
		if strings.HasPrefix(now, option) {
			return
		}
		c.do(chromedp.KeyEvent(kb.ArrowDown))
	}
	c.t.Fatalf("the select has no option %q", option)
}

// newApp is a program that prints nowhere.
func newApp() *app {
	return &app{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }, now: time.Now}
}

// writeReport writes a report of runs and returns its path.
func writeReport(t *testing.T, title string, runs ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "report.html")
	if err := newApp().report(t.Context(), runs, &reportFlags{out: out, format: "html", title: title}); err != nil {
		t.Fatal(err)
	}
	return out
}

const (
	searchField = ".controls input[type=search]"
	shownRows   = "[...document.querySelectorAll('.items > li')].filter((li) => !li.hidden)"
	statusLine  = "document.querySelector('.status').textContent"
)

// TestBrowserManyDialogues opens a report of 1,500 dialogues and uses it by keyboard.
func TestBrowserManyDialogues(t *testing.T) {
	const loadBar, firstBar, keyBar, tabBar = 3 * time.Second, 500 * time.Millisecond, 150 * time.Millisecond, time.Second
	c := newChromium(t)
	data, ds := scriptedRecords(t, 1500)
	path := filepath.Join(t.TempDir(), "many")
	scriptedTiming(t, path, data, ds)
	// Without the metrics, whose intervals take longer than all the rest.
	r, err := newApp().opened().Open(path)
	if err != nil {
		t.Fatal(err)
	}
	res, err := timing.Bench{}.Score(t.Context(), task.Input{Run: r, Stored: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := res.Browser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var html bytes.Buffer
	if err := report.Write(&html, report.HTML, []report.Section{{Title: "Every dialogue", Browser: &b}}, report.Options{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "many.html")
	if err := os.WriteFile(file, html.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(c.ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}); err != nil {
		t.Fatal(err)
	}
	c.open(file)
	c.quiet()
	if got := eval[string](c, statusLine); got != "1,500 of 1,500 dialogues" {
		t.Errorf("the page says %q", got)
	}
	work := func(do func()) time.Duration {
		before := c.worked()
		do()
		return (c.worked() - before).Round(100 * time.Microsecond)
	}
	keystroke := func(typed string) time.Duration {
		return work(func() {
			eval[bool](c, fmt.Sprintf(`(async () => {
				const field = document.querySelector(%q);
				field.value = %q;
				field.dispatchEvent(new Event('input'));
				await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
				return true;
			})()`, searchField, typed))
		})
	}
	load := c.worked() // since the tab began
	// The first search makes the texts ready that have not been made so already.
	first, next := keystroke("s"), max(keystroke("se"), keystroke(""))
	// Rows that the browser lays out late (content-visibility) once made this take 16 s.
	tab := work(func() { c.do(chromedp.KeyEvent(kb.Tab)) })
	t.Logf("1,500 dialogues, %.1f MB: loaded in %v; the first keystroke takes %v, later ones %v, the first tabulator %v", float64(html.Len())/1e6, load, first, next, tab)
	if load > loadBar || first > firstBar || next > keyBar || tab > tabBar {
		t.Errorf("the bars are %v, %v, %v and %v", loadBar, firstBar, keyBar, tabBar)
	}

	c.tabTo(searchField)
	c.do(chromedp.KeyEvent("(1234)"))
	if got := eval[string](c, statusLine); got != "1 of 1,500 dialogues" {
		t.Errorf("searching for the context of one dialogue shows %q", got)
	}
	c.tabTo(".items summary")
	c.do(chromedp.KeyEvent(kb.Enter))
	c.await("document.querySelectorAll('.items [open] .turns li').length > 5")
	c.do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift))) // to the button that clears
	if got := eval[string](c, "document.activeElement.textContent"); got != "Clear" {
		t.Fatalf("the focus is on %q", got)
	}
	c.do(chromedp.KeyEvent(kb.Enter))
	if got := eval[string](c, statusLine); got != "1,500 of 1,500 dialogues" {
		t.Errorf("cleared, the page says %q", got)
	}

	// The focus is on the search field again; the selects and the order follow.
	values := func(i int) []string {
		return eval[[]string](c, fmt.Sprintf("%s.map((li) => li.querySelectorAll('.cell')[%d].lastChild.textContent)", shownRows, i))
	}
	c.tabTo(".controls select") // stage
	c.choose("Defense")
	if stages := slices.Compact(slices.Sorted(slices.Values(values(1)))); !slices.Equal(stages, []string{"Defense"}) {
		t.Errorf("with the stage Defense chosen, the stages are %q", stages)
	}
	c.tabTo(".controls select") // outcome
	c.choose("unscored")
	if n := eval[int](c, shownRows+".length"); n == 0 || n != eval[int](c, shownRows+".filter((li) => li.textContent.includes('unscored: turn 3: the answers got')).length") {
		t.Errorf("with unscored chosen, %d dialogues are shown, not each with its reason", n)
	}
	c.choose("all")
	c.tabTo(".controls select") // sort by
	c.choose("gold turn")
	if golds := values(3); !slices.IsSorted(golds) || golds[0] == golds[len(golds)-1] {
		t.Errorf("sorted by gold turn, the turns are %q", golds)
	}
	c.tabTo(".controls input[type=checkbox]")
	c.do(chromedp.KeyEvent(" "))
	golds := values(3)
	slices.Reverse(golds)
	if !slices.IsSorted(golds) {
		t.Error("the order does not turn round")
	}
	c.quiet()
}

// TestBrowserLongList uses a list whose texts are packed: it opens, searches and saves an
// item of the last pack, and shows no more rows at once than a page can hold.
func TestBrowserLongList(t *testing.T) {
	c := newChromium(t)
	b := report.Browser{Name: "dialogues", Title: "id", Measures: []string{"turn"}}
	for i := range 4100 {
		b.Items = append(b.Items, report.Item{Title: strconv.Itoa(i), Measures: report.Values{float64(i)}, Blocks: []report.Block{{Text: fmt.Sprintf("the words of <%d>", i)}}})
	}
	var html bytes.Buffer
	if err := report.Write(&html, report.HTML, []report.Section{{Title: "Every dialogue", Browser: &b}}, report.Options{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "long.html")
	if err := os.WriteFile(file, html.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	c.open(file)
	rows := func(want int) {
		t.Helper()
		if got := eval[int](c, shownRows+".length"); got != want {
			t.Errorf("%d rows are shown, want %d", got, want)
		}
	}
	rows(2000)
	eval[bool](c, "document.querySelector('.browser > button').click(), true")
	rows(4000)
	eval[bool](c, "document.querySelector('.controls input[type=checkbox]').click(), true") // descending
	if got := eval[string](c, "document.querySelector('.items .title').textContent"); got != "4099" {
		t.Errorf("turned round, the list begins with %q", got)
	}
	c.tabTo(searchField)
	c.do(chromedp.KeyEvent("words <4099>"))
	c.await(statusLine + " === '1 of 4,100 dialogues'")
	rows(1)
	eval[bool](c, shownRows+"[0].querySelector('summary').click(), true")
	c.await("document.querySelector('.items [open] .text')?.textContent === 'the words of <4099>'")
	saved := t.TempDir()
	if _, err := chromedp.CallBrowser(c.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: saved}); err != nil {
		t.Fatal(err)
	}
	eval[bool](c, "document.querySelector('a[download]').click(), true")
	var d struct{ Sections []report.Section }
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(saved, "report.json"))
		if err == nil && json.Unmarshal(text, &d) == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the page saves no JSON in 20 s")
		}
	}
	if items := d.Sections[0].Browser.Items; len(items) != 4100 || items[4099].Blocks[0].Text != "the words of <4099>" {
		t.Errorf("%d items are saved", len(items))
	}
	c.quiet()
}

// TestBrowserHostileTexts opens every dialogue of runs whose texts try to be more
// than text.
func TestBrowserHostileTexts(t *testing.T) {
	c := newChromium(t)
	data, ds := scriptedRecords(t, 20)
	dir := t.TempDir()
	scriptedTiming(t, filepath.Join(dir, "t"), data, ds)
	scriptedMediation(t, filepath.Join(dir, "m"), data, ds, scriptedMediator{qualified: true, say: func(i int) string { return hostile[i%len(hostile)] }})
	c.open(writeReport(t, hostile[0], dir))
	c.openAll()
	// Not innerText, which leaves out what is far from being seen.
	text := eval[string](c, "document.querySelector('main').textContent")
	for _, h := range hostile[:5] {
		if !strings.Contains(text, h) {
			t.Errorf("the page does not show %q", h)
		}
	}
	for _, want := range []string{"␛[31mred␛[0m␛]0;title␇", hostile[6], hostile[7], hostile[8]} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if strings.ContainsAny(text, "\x1b\a\u009b\u202e\u2028") {
		t.Error("the page holds a control character")
	}
	if eval[bool](c, "'hit' in window") {
		t.Error("a text ran")
	}
	if n := eval[int](c, "document.querySelectorAll('img, iframe, object, embed, link, [onerror], [onload], [onfocus], [autofocus]').length + document.scripts.length"); n != 2 {
		t.Errorf("%d elements are not the page's own", n-2)
	}
	c.quiet()
	// What the page saves is what it shows.
	if n := eval[int](c, `JSON.parse(document.getElementById('report-data').textContent).sections.find((s) => s.browser).browser.items.length`); n != 40 {
		t.Errorf("the page's JSON holds %d dialogues, want 40", n)
	}
}

// TestBrowserCopiesAndSaves uses the page's buttons.
func TestBrowserCopiesAndSaves(t *testing.T) {
	c := newChromium(t)
	data, ds := scriptedRecords(t, 3)
	path := filepath.Join(t.TempDir(), "t")
	scriptedTiming(t, path, data, ds)
	c.open(writeReport(t, "t", path))
	saved := t.TempDir()
	if _, err := chromedp.CallBrowser(c.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: saved}); err != nil {
		t.Fatal(err)
	}
	eval[bool](c, "document.querySelector('a[download]').click(), true")
	file := filepath.Join(saved, "report.json")
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var d struct{ Sections []struct{ Title string } }
		if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &d) == nil {
			if d.Sections[0].Title != "What came out" {
				t.Errorf("the file begins with %q", d.Sections[0].Title)
			}
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the page saves no JSON in 20 s")
		}
	}

	// What is copied is pasted into the search field.
	c.do(chromedp.Click("[aria-label='Copy: Command to repeat it, given in " + workingFolder(t) + "']"))
	c.await("document.getElementById('said').textContent === 'Copied'")
	eval[bool](c, "document.querySelector('.controls input[type=search]').focus(), true")
	c.do(chromedp.KeyEvent("v", chromedp.KeyModifiers(chromedp.ModifierCtrl), func(p *input.DispatchKeyEventParams) { p.Commands = []string{"paste"} }))
	c.await(fmt.Sprintf("document.querySelector('.controls input[type=search]').value === %q", "ccmed timing --model scripted --data "+data))
	c.quiet()
}

func workingFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBrowserWithoutScripts: all but the browser of dialogues is there, and the page
// says so.
func TestBrowserWithoutScripts(t *testing.T) {
	c := newChromium(t)
	data, ds := scriptedRecords(t, 3)
	path := filepath.Join(t.TempDir(), "t")
	scriptedTiming(t, path, data, ds)
	file := writeReport(t, "t", path)
	if _, err := chromedp.Call(c.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	c.open(file)
	text := eval[string](c, "document.body.innerText")
	for _, want := range []string{"3 dialogues stand here where scripts may run", "Turn accuracy", "ccmed timing --model scripted"} {
		if !strings.Contains(text, want) {
			t.Errorf("without scripts the page does not show %q", want)
		}
	}
	if eval[int](c, "document.querySelectorAll('button, .controls, a[download]').length") != 0 {
		t.Error("without scripts the page shows buttons that do nothing")
	}
	c.quiet()
}

// TestBrowserAccessible runs axe-core in light and dark, wide and narrow, with
// everything open.
func TestBrowserAccessible(t *testing.T) {
	axe, err := os.ReadFile(tool(t, "CCMED_TEST_AXE", "scripts/get_axe.sh"))
	if err != nil {
		t.Fatal(err)
	}
	c := newChromium(t)
	data, ds := scriptedRecords(t, 12)
	dir := t.TempDir()
	scriptedTiming(t, filepath.Join(dir, "t"), data, ds)
	scriptedMediation(t, filepath.Join(dir, "m"), data, ds, scriptedMediator{qualified: true, say: func(i int) string { return hostile[i%len(hostile)] }})
	file := writeReport(t, "two runs", dir)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1200, 360} {
			t.Run(fmt.Sprintf("%s %d", scheme, width), func(t *testing.T) {
				c.t = t
				c.scheme(scheme)
				c.do(chromedp.EmulateViewport(width, 800))
				c.open(file)
				c.openAll()
				if w := eval[int](c, "document.scrollingElement.scrollWidth"); int64(w) > width {
					t.Errorf("the page is %d pixels wide", w)
				}
				// What is wider than the window lies in an element that scrolls and shows it.
				for _, cut := range eval[[]string](c, `[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1
					&& !e.closest('.scroll, pre')).map((e) => e.outerHTML.slice(0, 120))`) {
					t.Errorf("cut at the window's edge: %s", cut)
				}
				if hint := eval[string](c, "getComputedStyle(document.querySelector('.scroll')).backgroundImage"); !strings.Contains(hint, "gradient") {
					t.Errorf("what scrolls does not show it: %q", hint)
				}
				eval[bool](c, string(axe)+"\n; true")
				for _, v := range eval[[]string](c, `axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) =>
					v.id + ': ' + v.help + ' (' + v.nodes.length + '), as in ' + v.nodes[0].html.slice(0, 200) + ' ' + v.nodes[0].failureSummary))`) {
					t.Error(v)
				}
				c.quiet()
			})
		}
	}
}

// TestBrowserScreenshot writes the picture of the README to the file that
// CCMED_TEST_SCREENSHOT names: scripted answers over the built-in sample.
func TestBrowserScreenshot(t *testing.T) {
	out := os.Getenv("CCMED_TEST_SCREENSHOT")
	if out == "" {
		t.Skip("CCMED_TEST_SCREENSHOT names no file to write")
	}
	c := newChromium(t)
	dir := t.TempDir()
	ds := dialogue.Sample()
	scriptedTiming(t, filepath.Join(dir, "timing"), "sample", ds)
	scriptedMediation(t, filepath.Join(dir, "mediation"), "sample", ds, scriptedMediator{qualified: true, say: func(i int) string {
		return []string{"Could each of you say what the other seems to care about?", "I hear that both of you want this to go well.", "What would it look like from the other side?"}[i%3]
	}})
	c.do(chromedp.EmulateViewport(1200, 1000))
	c.open(writeReport(t, "Scripted answers over the built-in sample", dir))
	eval[bool](c, `(() => {
		const run = document.querySelector('.controls select');
		run.value = 'scripted timing';
		run.dispatchEvent(new Event('change'));
		document.querySelectorAll('.items > li:not([hidden]) details')[2].open = true;
		return true;
	})()`)
	c.await("document.querySelector('.items [open] .curve')")
	eval[bool](c, "document.querySelector('.browser').closest('section').scrollIntoView(), true")
	shot, err := chromedp.Run(c.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 200_000 {
		t.Errorf("the picture has %d bytes", b.Len())
	}
	if err := os.WriteFile(out, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBrowserFirstScreen: without scrolling, on a desk and on a telephone, a page shows
// what came out as a sentence and a table, and the first caution.
func TestBrowserFirstScreen(t *testing.T) {
	data, ds := scriptedRecords(t, 15)
	dir := t.TempDir()
	scriptedTiming(t, filepath.Join(dir, "t"), data, ds)
	one := writeReport(t, "one", filepath.Join(dir, "t"))
	scriptedMediation(t, filepath.Join(dir, "m"), data, ds, scriptedMediator{say: func(int) string { return "a line" }})
	c := newChromium(t)
	for file, widths := range map[string][]int64{one: {1280, 400}, writeReport(t, "two", dir): {1280}} {
		c.open(file)
		for _, width := range widths {
			c.do(chromedp.EmulateViewport(width, 800))
			for what, selector := range map[string]string{"sentence": "section:nth-of-type(1) .lead", "table": "section:nth-of-type(1) tbody tr:last-child", "first caution": "section:nth-of-type(2) .notes li"} {
				if bottom := eval[float64](c, "document.querySelector('"+selector+"').getBoundingClientRect().bottom"); bottom > 800 {
					t.Errorf("%s, %d wide: the %s ends at %.0f of 800", file, width, what, bottom)
				}
			}
		}
	}
}

// TestBrowserDialogue: the conditions of a dialogue stand beside each other on a desk and
// below each other on a telephone, five of them on two screens; an address opens a dialogue,
// and another run's answers stand beside it.
func TestBrowserDialogue(t *testing.T) {
	b := report.Browser{Name: "dialogues", Title: "id", Facets: []report.Facet{{Name: "run"}}}
	for _, run := range []string{"one", "two"} {
		for _, title := range []string{"1", "2"} {
			it := report.Item{Title: title, Facets: [][]string{{run}}, Blocks: []report.Block{{Title: "Before", Turns: []report.Turn{{Name: "1", Text: "word of " + run}}}}}
			for _, c := range []string{"ND", "D", "generic", "ground-truth", "unmediated"} {
				block := report.Block{Title: c, Beside: true, Shares: task.StageNames()}
				for i := range 7 {
					block.Turns = append(block.Turns, report.Turn{Name: strconv.Itoa(i), Speaker: "A", Marks: []string{task.CutMark}, Shares: report.Values{0.5, 0.1, 0.1, 0.1, 0.1, 0.1},
						Text: strings.Repeat("a long line that goes on ", 30)})
				}
				it.Blocks = append(it.Blocks, block)
			}
			b.Items = append(b.Items, it)
		}
	}
	var html bytes.Buffer
	if err := report.Write(&html, report.HTML, []report.Section{{Title: "Every dialogue", Browser: &b}}, report.Options{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dialogue.html")
	if err := os.WriteFile(file, html.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	c := newChromium(t)
	const body = "document.querySelectorAll('.items > li')[3].querySelector('.body')"
	tops := func() []float64 {
		return eval[[]float64](c, "[...new Set([..."+body+".querySelectorAll('.beside > .part')].map((p) => Math.round(p.getBoundingClientRect().top)))]")
	}
	c.do(chromedp.EmulateViewport(1280, 800))
	c.open(file + "#dialogues%2Ftwo%2F2")
	c.await(body)
	if top := eval[float64](c, body+".getBoundingClientRect().top"); top < 0 || top > 800 {
		t.Errorf("the dialogue of the address begins at %.0f", top)
	}
	if n, high := len(tops()), eval[float64](c, body+".getBoundingClientRect().height"); n != 1 || high > 1600 {
		t.Errorf("on a desk five conditions stand in %d rows, %.0f pixels high", n, high)
	}
	if n := eval[int](c, body+".querySelectorAll('.legend').length"); n != 1 {
		t.Errorf("%d legends", n)
	}
	eval[bool](c, body+".querySelector('.turns button').click(), true")
	if n := eval[int](c, body+".querySelectorAll('.said.short').length"); n != 34 {
		t.Errorf("with one text shown whole %d of 35 are short", n)
	}
	eval[bool](c, body+".querySelector('.bar button').click(), true")
	c.await(body + ".querySelectorAll('.sides > .blocks').length === 2")
	if got := eval[string](c, body+".querySelector('.sides').lastChild.textContent"); !strings.Contains(got, "word of one") {
		t.Error("the other run's dialogue is not beside it")
	}
	c.do(chromedp.EmulateViewport(400, 800))
	if n := len(tops()); n != 10 {
		t.Errorf("on a telephone ten conditions stand in %d rows", n)
	}
	if w := eval[int](c, "document.scrollingElement.scrollWidth"); w > 400 {
		t.Errorf("on a telephone the page is %d wide", w)
	}
	c.quiet()
}
