package run

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/disk"
)

// readers are all ways in which a run's files are read, by the file.
func readers(path string) map[string]func(*Dir) error {
	all := func(d *Dir) error {
		for _, err := range d.All() {
			if err != nil {
				return err
			}
		}
		return nil
	}
	prompts := func(d *Dir) error {
		for _, err := range d.Prompts() {
			if err != nil {
				return err
			}
		}
		return nil
	}
	resumed := func(*Dir) error {
		d, _, err := Resume(path, identity(), nil)
		if err == nil {
			err = d.Close(StatusFailed)
		}
		return err
	}
	return map[string]func(*Dir) error{
		SamplesFile + " All": all, SamplesFile + " Samples": func(d *Dir) error { _, err := d.Samples(); return err },
		PromptsFile + " Prompts": prompts, ErrorsFile + " Failures": func(d *Dir) error { _, err := d.Failures(); return err },
		"Resume": resumed, "Check": func(d *Dir) error { return d.Check() }, "Verify": func(*Dir) error { return Verify(path, VerifyOptions{}) },
	}
}

// faulty makes a finished run with samples, prompts and failures.
func faulty(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run")
	task := words(6)
	task.Steps[0].Do = failing(func(item string) error {
		if item == "item-004" {
			return errors.New("refused")
		}
		return nil
	})
	if _, err := Execute(t.Context(), create(t, path), task, Options{Workers: (&echo{}).workers(1), MaxFailures: 1}); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every reader of a file finds every edit of it, and resuming finds those of all
// files; the edit undone, all of them read it again.
func TestEveryReaderFindsAnEdit(t *testing.T) {
	path := faulty(t)
	check := func(what, file string, changed bool) {
		t.Helper()
		for name, read := range readers(path) {
			reads, _, one := strings.Cut(name, " ")
			d, err := Open(path)
			if err == nil {
				err = read(d)
			}
			var ce *ChangedError
			if want := changed && (!one || reads == file); errors.As(err, &ce) != want || !want && err != nil {
				t.Errorf("%s: %s says %v", what, name, err)
			}
			if errors.As(err, &ce) && (ce.File != filepath.Join(path, file) || !strings.Contains(err.Error(), "put back")) {
				t.Errorf("%s: %s names no file or remedy: %v", what, name, err)
			}
		}
	}
	check("as it was", "", false)
	for _, file := range lineFiles {
		whole, err := os.ReadFile(filepath.Join(path, file))
		if err != nil {
			t.Fatal(err)
		}
		second := bytes.IndexByte(whole, '\n') + 1
		for what, edited := range map[string][]byte{
			"a digit changed":     bytes.Replace(whole, []byte("item-00"), []byte("item-01"), 1),
			"the first line gone": whole[second:],
			"the last line gone":  whole[:bytes.LastIndexByte(whole[:len(whole)-1], '\n')+1],
			"a line twice":        append(bytes.Clone(whole), whole[:second]...),
			"an empty line more":  append(bytes.Clone(whole), '\n'),
			"nothing left":        {},
		} {
			if what == "the first line gone" && file == ErrorsFile {
				continue // it has one, which is the last
			}
			if err := os.WriteFile(filepath.Join(path, file), edited, 0o644); err != nil {
				t.Fatal(err)
			}
			d, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			var ce *ChangedError
			if err := d.Check(file); !errors.As(err, &ce) {
				t.Errorf("%s: %s: %v", file, what, err)
			}
			if what == "a digit changed" && file != PromptsFile {
				check(file+": "+what, file, true)
			}
		}
		if err := os.Remove(filepath.Join(path, file)); err != nil {
			t.Fatal(err)
		}
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Check(file); err == nil {
			t.Errorf("%s is gone and nobody says so", file)
		}
		if err := os.WriteFile(filepath.Join(path, file), whole, 0o644); err != nil {
			t.Fatal(err)
		}
		check(file+" put back", "", false)
	}
}

// A refused resume changes nothing: the file put back, the run goes on.
func TestRefusedResumeLeavesTheRun(t *testing.T) {
	path := faulty(t)
	before, err := os.ReadFile(filepath.Join(path, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	samples, err := os.ReadFile(filepath.Join(path, SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	change(t, path, SamplesFile, replace("item-003", "item-xxx"))
	if _, _, err := Resume(path, identity(), nil); err == nil {
		t.Fatal("an edited run was resumed")
	}
	if after, err := os.ReadFile(filepath.Join(path, ManifestFile)); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a refused resume changed the manifest (%v)", err)
	}
	if err := os.WriteFile(filepath.Join(path, SamplesFile), samples, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Execute(t.Context(), resume(t, path), words(6), Options{Workers: (&echo{}).workers(1)}); err != nil {
		t.Fatal(err)
	}
	if n := len(content(t, path)); n != 12 {
		t.Errorf("%d samples, want 12", n)
	}
}

// A session that cannot begin leaves a killed run killed: what came last gets no
// checksum from it.
func TestResumeThatCannotBeginRecordsNothing(t *testing.T) {
	path := three(t)
	killed(t, path)
	whole, err := os.ReadFile(filepath.Join(path, SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	change(t, path, SamplesFile, replace(`{"step"`, `{"step":"say","step"`))
	d, _, err := Resume(path, threeIdentity(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Execute(t.Context(), d, words(3), Options{Workers: (&echo{}).workers(1)}); err == nil || !strings.Contains(err.Error(), "samples.jsonl:1 is damaged: field step: the key stands twice") {
		t.Fatalf("error %v", err)
	}
	if d, err = Open(path); err != nil || d.Manifest().Status != StatusStarted || d.Manifest().SamplesHash != "" {
		t.Errorf("manifest %+v, %v", d.Manifest(), err)
	}
	// The remedy that the message names.
	if err := os.WriteFile(filepath.Join(path, SamplesFile), whole, 0o644); err != nil {
		t.Fatal(err)
	}
	if d, _, err = Resume(path, threeIdentity(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Execute(t.Context(), d, words(3), Options{Workers: (&echo{}).workers(1)}); err != nil {
		t.Error(err)
	}
}

// What a killed session added has no checksum; what the session before it recorded
// keeps its own.
func TestKilledSessionKeepsEarlierChecksums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	task := words(9)
	task.Steps = task.Steps[:1]
	units := task.Units
	task.Units = units[:3]
	if _, err := Execute(t.Context(), create(t, path), task, Options{Workers: (&echo{}).workers(1)}); err != nil {
		t.Fatal(err)
	}
	task.Units = units
	d := resume(t, path)
	started, err := os.ReadFile(filepath.Join(path, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Execute(t.Context(), d, task, Options{Workers: (&echo{}).workers(1)}); err != nil {
		t.Fatal(err)
	}
	if notes := must(Open(path)).Unchecked(lineFiles...); len(notes) > 0 {
		t.Errorf("a finished run has the notes %q", notes)
	}
	if err := os.WriteFile(filepath.Join(path, ManifestFile), started, 0o644); err != nil {
		t.Fatal(err)
	}
	d = must(Open(path))
	if s, err := d.Samples(); err != nil || len(s) != 9 {
		t.Fatalf("%d samples, %v", len(s), err)
	}
	if notes := d.Unchecked(lineFiles...); len(notes) != 1 || !strings.Contains(notes[0], "was killed or is going on: the 3 samples") {
		t.Errorf("notes %q", notes)
	}
	var ce *ChangedError
	change(t, path, SamplesFile, replace("item-002", "item-xxx"))
	if _, err := d.Samples(); !errors.As(err, &ce) {
		t.Errorf("an edit of a recorded sample: %v", err)
	}
	change(t, path, SamplesFile, replace("item-xxx", "item-002"))
	change(t, path, SamplesFile, replace("item-007", "item-xxx"))
	if _, err := d.Samples(); err != nil {
		t.Errorf("a sample without a checksum: %v", err)
	}
}

func must(d *Dir, err error) *Dir {
	if err != nil {
		panic(err)
	}
	return d
}

// Files without a recorded checksum are read, and a note says so. An identity without one
// is refused.
func TestFilesWithoutAChecksumAreReadWithANote(t *testing.T) {
	path := faulty(t)
	m, err := readManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	m.Files = nil
	if err := (&Dir{path: path, manifest: m}).writeManifest(); err != nil {
		t.Fatal(err)
	}
	for name, read := range readers(path) {
		if name == "Resume" {
			continue // which records what was missing
		}
		if err := read(must(Open(path))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	notes := strings.Join(must(Open(path)).Unchecked(SamplesFile, PromptsFile), "\n")
	if strings.Contains(notes, "\n") || !strings.Contains(notes, "its prompts.jsonl has no checksum") {
		t.Errorf("notes %q", notes)
	}
	m.IdentityHash = ""
	if err := (&Dir{path: path, manifest: m}).writeManifest(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "identity was changed") {
		t.Errorf("an identity without a checksum: %v", err)
	}
	m.IdentityHash = must(Open(faulty(t))).Manifest().IdentityHash
	if err := (&Dir{path: path, manifest: m}).writeManifest(); err != nil {
		t.Fatal(err)
	}
	if err := resume(t, path).Close(StatusFailed); err != nil {
		t.Fatal(err)
	}
}

// An edited identity is refused by whoever would attribute a number to it.
func TestEditedIdentityIsRefused(t *testing.T) {
	path := faulty(t)
	change(t, path, ManifestFile, replace(`"limit": 20`, `"limit": 21`))
	edited := identity()
	edited.Options = map[string]any{"limit": 21}
	var ce *ChangedError
	if _, err := Open(path); !errors.As(err, &ce) {
		t.Errorf("Open: %v", err)
	}
	if _, _, err := Resume(path, edited, nil); !errors.As(err, &ce) {
		t.Errorf("Resume with the edited identity: %v", err)
	}
	change(t, path, ManifestFile, replace(`"limit": 21`, `"limit": 20`))
	if _, err := Open(path); err != nil {
		t.Error(err)
	}
}

// Nothing in a run folder is read or written through a link.
func TestLinksInAFolderAreRefused(t *testing.T) {
	for _, name := range []string{ManifestFile, SamplesFile, PromptsFile, ErrorsFile, lockFile, LogFile, MetricsFile} {
		path := faulty(t)
		file, target := filepath.Join(path, name), filepath.Join(t.TempDir(), "target")
		const text = "text of somebody else\n"
		if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(target, file); err != nil {
			t.Fatal(err)
		}
		d, _, err := Resume(path, identity(), nil)
		if err == nil {
			_, err = Execute(t.Context(), d, words(6), Options{Workers: (&echo{}).workers(1)})
			if name == MetricsFile {
				err = errors.Join(err, must(Open(path)).WriteMetrics(map[string]int{}))
			}
		}
		var n *disk.NodeError
		if !errors.As(err, &n) || n.Path != file {
			t.Errorf("%s is a link: %v", name, err)
		}
		if got, err := os.ReadFile(target); err != nil || string(got) != text {
			t.Errorf("%s is a link, and its target holds %q, %v", name, got, err)
		}
	}
}

func TestLineTooLong(t *testing.T) {
	path := three(t)
	file := filepath.Join(path, SamplesFile)
	if err := os.Truncate(file, maxLine*4); err != nil { // zeros without a newline
		t.Fatal(err)
	}
	if _, err := must(Open(path)).Samples(); err == nil || !strings.Contains(err.Error(), "samples.jsonl:7 is longer than") {
		t.Errorf("error %v", err)
	}
	if _, err := encodeLine(strings.Repeat("x", maxLine)); err == nil {
		t.Error("a line that cannot be read back was made")
	}
}

func TestLogIsPrivateAndTold(t *testing.T) {
	path := three(t)
	if st, err := os.Stat(filepath.Join(path, LogFile)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the log has mode %v, %v", st.Mode(), err)
	}
	d, _, err := Resume(path, threeIdentity(), nil)
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no /dev/full here: %v", err)
	}
	d.log = &logFile{f: full}
	_, err = Execute(t.Context(), d, words(3), Options{Workers: (&echo{}).workers(1)})
	if err == nil || !strings.Contains(err.Error(), "write the run's log") {
		t.Errorf("error %v", err)
	}
	if s := must(Open(path)).Manifest().Status; s != StatusDone {
		t.Errorf("status %s, want done: the samples are whole", s)
	}
}
