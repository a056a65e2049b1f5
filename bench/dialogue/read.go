package dialogue

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ccmed/ccmed/bench/disk"
)

// Names of the splits, as the published folders have them.
const (
	Evaluate = "evaluate"
	Training = "training"
)

// ReadOptions says what is read, and how strictly.
type ReadOptions struct {
	// Lenient leaves records with problems out and reports them, instead of
	// failing.
	Lenient bool
	// Split is Evaluate or Training. Where a folder holds both, "" means
	// Evaluate; records that do not lie in such folders are chosen by their subset,
	// and "" takes them all.
	Split string
	// Whole keeps the records as they are written, for Write.
	Whole bool
}

// Report tells what was read.
type Report struct {
	Read     int // records that can be used
	Problems []Problem
}

// Problem is why a record cannot be used.
type Problem struct {
	File   string // with ":line" in a JSONL file
	Field  string // path in the record, "" for the whole of it
	Value  string // as it is written there, shortened
	What   string
	Remedy string
}

// Error says file, field, value, what is wrong and what to do.
func (p Problem) Error() string {
	s := p.File
	if strings.ContainsFunc(s, unicode.IsControl) {
		s = strconv.Quote(s) // a name of two lines would pass for two problems
	}
	if p.Field != "" {
		s += ": field " + p.Field
	}
	if p.Value != "" {
		s += ": value " + p.Value
	}
	return s + ": " + p.What + "; " + p.Remedy
}

// maxJoined caps the problems that a strict Read puts into its error.
const maxJoined = 10

// MaxRecord is the limit, in bytes, of one record: of a .json file, or of a line of
// a .jsonl file. A record of the study has at most 22 kB.
const MaxRecord = 4 << 20

// Read reads the records at path, sorted by id. The path is a folder of .json
// files of one record each, a folder that holds such folders named evaluate and
// training (or has them in its subfolder data), or a .jsonl file. A record that
// cannot be used is an error, whose message lists the first ten; with
// ReadOptions.Lenient it is left out and reported.
func Read(ctx context.Context, path string, o ReadOptions) ([]Dialogue, Report, error) {
	var rep Report
	if o.Split != "" && o.Split != Evaluate && o.Split != Training {
		return nil, rep, fmt.Errorf("unknown split %q; known are %s and %s", o.Split, Evaluate, Training)
	}
	var ds []Dialogue
	seen := map[int]string{}
	var subset string
	add := func(file string, raw []byte, refused error) {
		d, ps := Dialogue{}, []Problem{unread(file, refused)}
		if refused == nil {
			d, ps = parse(file, raw)
		}
		if !o.Whole {
			d.raw = nil
		}
		if subset != "" && len(ps) == 0 && d.Subset != subset {
			return
		}
		if first, ok := seen[d.ID]; ok && len(ps) == 0 {
			ps = append(ps, Problem{file, "scenario_id", d.Key(), "the id is that of " + first + " too", "give every record its own id"})
		}
		if len(ps) > 0 {
			// One a record: the first fault often causes the others.
			rep.Problems = append(rep.Problems, ps[0])
			return
		}
		seen[d.ID] = file
		ds = append(ds, d)
	}
	dir, foldered, err := place(path, o.Split)
	if err != nil {
		return nil, rep, fmt.Errorf("read dialogues: %w", err)
	}
	if !foldered {
		subset = o.Split
	}
	if err := each(ctx, dir, add); err != nil {
		return nil, rep, fmt.Errorf("read dialogues: %w", err)
	}
	if len(ds)+len(rep.Problems) == 0 {
		return nil, rep, fmt.Errorf("read dialogues: %s holds no record of the subset %s", path, subset)
	}
	slices.SortFunc(ds, func(a, b Dialogue) int { return cmp.Compare(a.ID, b.ID) })
	rep.Read = len(ds)
	if !o.Lenient && len(rep.Problems) > 0 {
		var errs []error
		for _, p := range rep.Problems[:min(maxJoined, len(rep.Problems))] {
			errs = append(errs, p)
		}
		if n := len(rep.Problems) - maxJoined; n > 0 {
			errs = append(errs, fmt.Errorf("and %d more", n))
		}
		return nil, rep, errors.Join(errs...)
	}
	return ds, rep, nil
}

// unread makes a problem of why a file or line was not read.
func unread(file string, err error) Problem {
	var node *disk.NodeError
	if errors.As(err, &node) {
		return Problem{File: file, What: "it is " + node.What, Remedy: node.Remedy}
	}
	return Problem{File: file, What: "it is longer than the " + fmt.Sprint(MaxRecord) + " bytes that one record may have", Remedy: "put each record into a file or line of its own"}
}

// each calls add with every record of a folder or file, in the order of names or
// lines, or with why it is not read as one.
func each(ctx context.Context, path string, add func(file string, raw []byte, refused error)) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return lines(ctx, path, add)
	}
	files, err := records(path)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s holds no record: expected .json files, a folder %s or %s with such files, or a .jsonl file", path, Evaluate, Training)
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		raw, err := disk.ReadEntry(f, MaxRecord)
		var node *disk.NodeError
		var size *disk.SizeError
		if err != nil && !errors.As(err, &node) && !errors.As(err, &size) {
			return err
		}
		add(f, raw, err)
	}
	return nil
}

var errLong = errors.New("a line is too long")

func lines(ctx context.Context, path string, add func(file string, raw []byte, refused error)) error {
	if !strings.EqualFold(filepath.Ext(path), ".jsonl") {
		return fmt.Errorf("%s is neither a folder nor a .jsonl file; name the folder of the records", path)
	}
	f, err := disk.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	if first, _ := r.Peek(2); utf16(first) {
		// One problem instead of one a line: the lines are cut within characters.
		add(path, first, nil)
		return nil
	}
	n := 0
	for line := 1; ; line++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		raw, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errLong) {
			return err
		}
		refused := err
		if errors.Is(err, io.EOF) {
			refused = nil
		}
		if raw = bytes.TrimSpace(raw); len(raw) > 0 || refused != nil {
			n++
			add(fmt.Sprintf("%s:%d", path, line), raw, refused)
		}
		if errors.Is(err, io.EOF) {
			break
		}
	}
	if n == 0 {
		return fmt.Errorf("%s holds no record", path)
	}
	return nil
}

// readLine reads a line with its end. Of one that is longer than a record may be it
// keeps nothing: the error is errLong, and the next call reads the next line.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > MaxRecord; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case long && (err == nil || errors.Is(err, io.EOF)):
			return nil, errLong // at the end of the file the next call says so
		default:
			return line, err
		}
	}
}

// utf16 tells whether a text that begins with these two bytes is UTF-16.
func utf16(b []byte) bool {
	return len(b) == 2 && (b[0] == 0xFF && b[1] == 0xFE || b[0] == 0xFE && b[1] == 0xFF || (b[0] == 0) != (b[1] == 0))
}

// records lists a folder's .json files by name.
func records(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && strings.EqualFold(filepath.Ext(e.Name()), ".json") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// Splits returns which of Evaluate and Training the folder holds, in this order;
// none for a folder of records and for a file.
func Splits(path string) ([]string, error) {
	_, splits, err := splitRoot(path)
	if err != nil {
		return nil, fmt.Errorf("look for splits: %w", err)
	}
	return splits, nil
}

// splitsIn returns the splits in a folder. A link in the place of one is an error:
// it could lead anywhere.
func splitsIn(root string) (splits []string, err error) {
	for _, s := range []string{Evaluate, Training} {
		path := filepath.Join(root, s)
		info, err := os.Lstat(path)
		switch {
		case err != nil: // not there
		case info.Mode()&fs.ModeSymlink != 0:
			return nil, &disk.NodeError{Path: path, What: "a link", Remedy: "links in a folder are not followed: name the folder that it leads to"}
		case info.IsDir():
			splits = append(splits, s)
		}
	}
	return splits, nil
}

// splitRoot returns the folder that holds the splits, and which: path, or its
// subfolder data, which is where the published repository keeps them.
func splitRoot(path string) (root string, splits []string, err error) {
	if _, err := os.Stat(path); err != nil {
		return "", nil, err
	}
	for _, root := range []string{path, filepath.Join(path, "data")} {
		if splits, err := splitsIn(root); err != nil || len(splits) > 0 {
			return root, splits, err
		}
	}
	return path, nil, nil
}

// place returns where the records of a split lie, and whether a folder of their
// own sets them apart from other splits.
func place(path, split string) (dir string, foldered bool, err error) {
	root, splits, err := splitRoot(path)
	if err != nil {
		return "", false, err
	}
	switch {
	case len(splits) == 0:
		return path, false, nil
	case split == "":
		split = splits[0]
	case !slices.Contains(splits, split):
		return "", false, fmt.Errorf("%s has no folder %s, only %s", root, split, splits[0])
	}
	return filepath.Join(root, split), true, nil
}
