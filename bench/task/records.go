package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// EmbeddedSample is the name of the records that the program brings along.
const EmbeddedSample = "sample"

// Records say which records of CC-Mediation a command works on.
type Records struct {
	// Path is a folder or a JSONL file of records, or EmbeddedSample.
	Path  string
	Split string // dialogue.Evaluate or dialogue.Training, where a folder holds both
	// Lenient leaves out records that cannot be used.
	Lenient bool
	Limit   int // takes the first dialogues, spread over stages; 0 takes all
	// Whole keeps the records as they are written, to write them again.
	Whole bool
}

// Register adds the flags.
func (r *Records) Register(f *pflag.FlagSet) {
	f.StringVar(&r.Path, "data", "", `folder or JSONL file of CC-Mediation records (their repository's data folder works); "sample" is the embedded sample`)
	f.StringVar(&r.Split, "split", "", "evaluate or training, where the folder holds both (default evaluate)")
	f.BoolVar(&r.Lenient, "lenient", false, "leave out records and predictions that cannot be used, name them and go on")
	f.IntVar(&r.Limit, "limit", 0, "take the first N dialogues, spread over stages; 0 takes all")
	Reads(f, "data")
	Choose(f, "split", dialogue.Evaluate, dialogue.Training)
}

// Check finds values out of range.
func (r *Records) Check() error {
	switch {
	case r.Path == "":
		return usage.Errorf(`no data given; name a folder of records with --data, or try --data sample`)
	case r.Split != "" && r.Split != dialogue.Evaluate && r.Split != dialogue.Training:
		return usage.Errorf("unknown --split %q; known are %s and %s", r.Split, dialogue.Evaluate, dialogue.Training)
	case r.Limit < 0:
		return usage.Errorf("--limit %d; it must not be negative", r.Limit)
	}
	return nil
}

// Place is the data's place for a manifest: absolute, so that the run can be scored from
// anywhere.
func (r *Records) Place() string {
	if r.Path == EmbeddedSample {
		return r.Path
	}
	if p, err := filepath.Abs(r.Path); err == nil {
		return p
	}
	return r.Path
}

// Splits returns what a look at all records reads one by one: Split, or the splits that
// the folder holds, or "" for records that lie together.
func (r *Records) Splits() ([]string, error) {
	if r.Split == "" && r.Path != EmbeddedSample {
		splits, err := dialogue.Splits(r.Path)
		if err != nil || len(splits) > 0 {
			return splits, MissingRecords(err)
		}
	}
	return []string{r.Split}, nil
}

// Dialogues reads the dialogues, each folder once a command, and notes what is left out.
// The chosen ones are those that Limit takes from all.
func (a *Archive) Dialogues(ctx context.Context, r Records) (chosen, all []dialogue.Dialogue, err error) {
	if err := r.Check(); err != nil {
		return nil, nil, err
	}
	if all, err = a.read(ctx, r, a.Note); err != nil {
		return nil, nil, err
	}
	return dialogue.Limit(all, r.Limit), all, nil
}

// All reads all dialogues of records, whatever their Limit, and notes what is left out.
func (a *Archive) All(ctx context.Context, r Records) ([]dialogue.Dialogue, error) {
	return a.read(ctx, r, a.Note)
}

// read reads records whatever their Limit; note is nil where nothing is to be said.
func (a *Archive) read(ctx context.Context, r Records, note func(string, ...any)) ([]dialogue.Dialogue, error) {
	if r.Path == EmbeddedSample {
		return dialogue.Sample(), nil
	}
	r.Limit = 0
	if ds, ok := a.records[r]; ok {
		return ds, nil
	}
	ds, rep, err := dialogue.Read(ctx, r.Path, dialogue.ReadOptions{Lenient: r.Lenient, Split: r.Split, Whole: r.Whole})
	if err != nil {
		return nil, MissingRecords(err)
	}
	if note != nil {
		for _, p := range rep.Problems {
			note("left out: %v", p)
		}
		noteControls(ds, note)
	}
	if a.records == nil {
		a.records = map[Records][]dialogue.Dialogue{}
	}
	a.records[r] = ds
	return ds, nil
}

// noteControls says which records hold what a model could take for its own control tokens.
func noteControls(ds []dialogue.Dialogue, note func(string, ...any)) {
	var families *infer.Controls
	messages, first := 0, ""
	for _, d := range ds {
		for _, t := range d.Unmediated() {
			if at := families.Find(t.Message); len(at) > 0 {
				messages++
				if first == "" {
					first = fmt.Sprintf("record %s, turn %d: %s", d.Key(), t.T, t.Message[at[0][0]:at[0][1]])
				}
			}
		}
	}
	if messages > 0 {
		note("%d messages hold what reads like a control token of a language model (first %s); they are read as text: the engine tokenises them so, "+
			"for a server a space breaks them", messages, first)
	}
}

// MissingRecords adds to an error of a path that is not there what may stand in its place.
func MissingRecords(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf(`%w; name a folder or JSONL file of records, or "sample"`, err)
	}
	return err
}

// RecordSettings are the settings of a run that say where its records were.
type RecordSettings struct {
	Data  string `json:"data"`
	Split string `json:"split"`
	Limit int    `json:"limit"`
}

// Settings are the records as settings of a run.
func (r *Records) Settings() RecordSettings { return RecordSettings{r.Place(), r.Split, r.Limit} }

// runRecords are the records of a run, read again.
type runRecords struct {
	at                  Records
	dialogues, training []dialogue.Dialogue
	err                 error
}

// Dialogues are the dialogues of the run, read again from where the run read them, or
// from at where that is given: in the order of the records, and checked by their hash. An
// error says why they are not at hand.
func (r *Run) Dialogues(ctx context.Context, at Records) ([]dialogue.Dialogue, error) {
	rr := r.readAgain(ctx, at)
	return rr.dialogues, rr.err
}

// Training are the training records beside the run's own, for what is fitted: none where
// the records hold none. Those that the run evaluates are left out.
func (r *Run) Training(ctx context.Context, at Records) ([]dialogue.Dialogue, error) {
	rr := r.readAgain(ctx, at)
	if rr.err != nil || rr.training != nil || rr.at.Path == EmbeddedSample {
		return rr.training, rr.err
	}
	splits, err := dialogue.Splits(rr.at.Path)
	if err != nil || !slices.Contains(splits, dialogue.Training) {
		return nil, nil
	}
	of := rr.at
	of.Split = dialogue.Training
	all, err := r.Archive.read(ctx, of, nil)
	if err != nil {
		return nil, fmt.Errorf("read the training records for the baselines: %w", err)
	}
	evaluated := map[string]string{}
	for _, d := range rr.dialogues {
		evaluated[d.Key()] = d.ContextKey()
	}
	rr.training = slices.DeleteFunc(slices.Clone(all), func(d dialogue.Dialogue) bool { return evaluated[d.Key()] == d.ContextKey() })
	return rr.training, nil
}

func (r *Run) readAgain(ctx context.Context, at Records) *runRecords {
	if r.records == nil || r.records.at != at && at != (Records{}) {
		r.records = &runRecords{at: at}
		r.records.err = r.records.read(ctx, r)
	}
	return r.records
}

func (rr *runRecords) read(ctx context.Context, r *Run) error {
	m := r.Manifest()
	s, err := Settings[RecordSettings](m.Identity)
	if err != nil {
		return err
	}
	given := rr.at.Path != ""
	if !given {
		if s.Data == "" {
			return errors.New("the manifest does not say where they lie")
		}
		rr.at.Path = s.Data
		if s.Data != EmbeddedSample && !filepath.IsAbs(s.Data) && len(m.Sessions) > 0 {
			rr.at.Path = filepath.Join(m.Sessions[0].Dir, s.Data)
		}
		if rr.at.Split == "" {
			rr.at.Split = s.Split
		}
	}
	rr.at.Lenient, rr.at.Limit = true, 0
	all, err := r.Archive.read(ctx, rr.at, nil)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, k := range m.Identity.Items {
		wanted[k] = true
	}
	for _, d := range all {
		if wanted[d.Key()] {
			rr.dialogues = append(rr.dialogues, d)
		}
	}
	if n := len(rr.dialogues); n != len(wanted) {
		rr.dialogues = nil
		return fmt.Errorf("%s is not what the run read: it holds %d of the run's %d dialogues", rr.at.Path, n, len(wanted))
	}
	// Imported states may name no records; who reads them compares what they need.
	if h := m.Identity.DataHash; h != "" && h != dialogue.Hash(rr.dialogues) {
		rr.dialogues = nil
		return fmt.Errorf("%s is not what the run read: its hash differs", rr.at.Path)
	}
	return nil
}

// Keys are the keys of dialogues, each once, in their order.
func Keys(ds []dialogue.Dialogue) []string {
	seen := map[string]bool{}
	var out []string
	for _, d := range ds {
		if !seen[d.Key()] {
			seen[d.Key()] = true
			out = append(out, d.Key())
		}
	}
	return out
}

// DataOf is where a run's data was.
func DataOf(id run.Identity) string {
	s, err := Settings[RecordSettings](id)
	if err != nil {
		return ""
	}
	return s.Data
}
