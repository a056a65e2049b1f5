package mediation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// labelSource is what a labeller is held against.
type labelSource struct {
	reliability *dialogue.Agreement // nil where it is unknown
	files       []string            // absolute
	hash        string              // of the files; "" of recorded labels
	first       []dialogue.Label    // of the first file
}

// labels finds the labels that a labeller is held against: those of files, or the
// recorded ones.
func (c *Call) labels(ctx context.Context, env task.Env, all []dialogue.Dialogue) (l labelSource, err error) {
	if len(c.Labels) == 0 {
		l.reliability, err = c.recordedLabels(ctx, env, all)
		return l, err
	}
	h := sha256.New()
	var sides [][]dialogue.Label
	for _, path := range c.Labels {
		side, err := dialogue.ReadLabels(path)
		if err != nil {
			return l, err
		}
		if err := json.NewEncoder(h).Encode(side); err != nil {
			return l, fmt.Errorf("hash the labels: %w", err)
		}
		sides, l.files = append(sides, side), append(l.files, absolute(path))
	}
	l.first, l.hash = sides[0], hex.EncodeToString(h.Sum(nil))
	if len(sides) == 2 {
		l.reliability, err = dialogue.CompareLabels(sides[0], sides[1], all, uint64(env.Seed))
	}
	return l, err
}

// recordedLabels is the reliability of the recorded labels in all records beside the run's.
func (c *Call) recordedLabels(ctx context.Context, env task.Env, all []dialogue.Dialogue) (*dialogue.Agreement, error) {
	of := c.Records
	of.Split, of.Lenient = "", true
	splits, err := of.Splits()
	if err != nil {
		return nil, err
	}
	if len(splits) > 1 {
		all = nil
		for _, s := range splits {
			of.Split = s
			ds, err := env.All(ctx, of)
			if err != nil {
				return nil, err
			}
			all = append(all, ds...)
		}
	}
	_, own, err := dialogue.LabelReliability(all, uint64(env.Seed))
	return own, err
}

// trainingCard are the training records whose continuations the labeller card takes beside
// those of the run's dialogues ds, where these are all of their split and too few.
func (c *Call) trainingCard(ctx context.Context, env task.Env, ds []dialogue.Dialogue) ([]dialogue.Dialogue, error) {
	n := c.CardItems - len(ds)
	if n <= 0 || c.Records.Limit > 0 || c.Baselines != "" || len(c.Labels) > 0 || c.Records.Path == task.EmbeddedSample || c.Records.Split == dialogue.Training {
		return nil, nil
	}
	splits, err := dialogue.Splits(c.Records.Path)
	if err != nil || !slices.Contains(splits, dialogue.Training) {
		return nil, err
	}
	of := c.Records
	of.Split, of.Lenient = dialogue.Training, true
	all, err := env.All(ctx, of)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, d := range ds {
		known[d.Key()] = true
	}
	others := slices.DeleteFunc(slices.Clone(all), func(d dialogue.Dialogue) bool { return known[d.Key()] })
	if len(others) == 0 {
		return nil, nil
	}
	return dialogue.Limit(others, n), nil
}

func (c *Call) preview(items []Item, longest map[string][]infer.Prompt) (task.Preview, error) {
	out := task.Preview{Calls: map[string][]infer.Prompt{}, First: map[string]infer.Prompt{}}
	for _, it := range items {
		ps, err := Planned(it, c.Options)
		if err != nil {
			return out, err
		}
		for role := range ps {
			out.Calls[role] = append(out.Calls[role], ps[role]...)
		}
	}
	for role := range out.Calls {
		out.First[role] = longest[role][0]
	}
	return out, nil
}

// items builds the units of a run over ds, which are some of all dialogues of the data.
func (c *Call) items(env task.Env, ds, all []dialogue.Dialogue) ([]Item, error) {
	if c.Recorded {
		card := cardDialogues(ds, c.CardItems)
		var items []Item
		for _, d := range ds {
			items = append(items, RecordedItems(d)...)
			if card[d.Key()] {
				items = append(items, CardItem(d))
			}
		}
		return items, nil
	}
	mediated, err := c.mediated(env, all)
	if err != nil {
		return nil, err
	}
	return c.itemsOf(ds, mediated, env.Note)
}

// itemsOf builds the units of dialogues that are mediated so.
func (c *Call) itemsOf(ds []dialogue.Dialogue, mediated func(dialogue.Dialogue) []Item, note func(string, ...any)) ([]Item, error) {
	card := cardDialogues(ds, c.CardItems)
	var items []Item
	left := 0
	for _, d := range ds {
		own := mediated(d)
		if own == nil {
			left++
			continue
		}
		items = append(items, own...)
		if len(own) > 0 {
			if m, ok := MatchedItem(d, own[0].Turn); ok {
				items = append(items, m)
			}
		}
		if c.Baselines == "" {
			items = append(items, BaselineItems(d)...)
			if card[d.Key()] {
				items = append(items, CardItem(d))
			}
		}
	}
	if left > 0 {
		note("%d dialogues are left out: the given turns or lines do not have them", left)
	}
	if len(items) == 0 {
		return nil, errors.New("no dialogue is left to mediate")
	}
	return items, nil
}

// mediated returns how a dialogue is mediated: nil where the given turns or lines do not
// have it.
func (c *Call) mediated(env task.Env, all []dialogue.Dialogue) (func(dialogue.Dialogue) []Item, error) {
	var turns map[string]task.Line
	if path, ok := strings.CutPrefix(c.Turn, predicted); ok {
		var err error
		if turns, err = predictedTurns(env, path); err != nil {
			return nil, err
		}
	} else if c.Turn != "gold" {
		return nil, usage.Errorf("--turn %q; it is gold or predicted:RUN", c.Turn)
	}
	if c.Utterances != "" {
		if turns != nil {
			return nil, usage.Errorf("--utterances brings its own turns; leave --turn out")
		}
		return c.given(env, all)
	}
	return func(d dialogue.Dialogue) []Item {
		turn := d.ConflictTurn
		if turns != nil {
			l := turns[d.Key()]
			if l.Turn == nil { // unknown, which is not the same as none
				return nil
			}
			turn = *l.Turn
		}
		items := []Item{}
		for _, r := range c.Rubric {
			items = append(items, Item{Dialogue: d, Condition: map[string]string{"none": ND, "stage": D}[r], Turn: turn})
		}
		return items
	}, nil
}

// given mediates with the lines that were made elsewhere.
func (c *Call) given(env task.Env, all []dialogue.Dialogue) (func(dialogue.Dialogue) []Item, error) {
	lines, err := env.Lines(c.Utterances, all, c.Records.Lenient)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf(`--utterances: %w; name a run, or a JSON file {"per_sid":[{"sid","predicted_turn","utterance"}]}`, err)
	}
	if err != nil {
		return nil, err
	}
	gold := 0
	for _, l := range lines {
		if l.Turn == nil {
			gold++
		}
	}
	if gold > 0 {
		env.Note("%d lines come without a predicted_turn: they are said at the conflict turn", gold)
	}
	return func(d dialogue.Dialogue) []Item {
		l, ok := lines[d.Key()]
		if !ok {
			return nil
		}
		turn := d.ConflictTurn
		if l.Turn != nil {
			turn = *l.Turn
		}
		return []Item{{Dialogue: d, Condition: Foreign, Turn: turn, Given: strings.TrimSpace(l.Text)}}
	}, nil
}

// predictedTurns reads the turns of a run that decides on turns.
func predictedTurns(env task.Env, path string) (map[string]task.Line, error) {
	r, err := env.Open(path)
	if err != nil {
		return nil, err
	}
	if r.Identity().Task == TaskName {
		return nil, fmt.Errorf("--turn predicted:%s: that is a %s run; name a timing run", path, TaskName)
	}
	lines, err := env.RunLines(path)
	if err != nil {
		return nil, fmt.Errorf("--turn predicted:%s: %w; name a timing run", path, err)
	}
	return lines, nil
}

// cardDialogues chooses the dialogues of the labeller card, spread over stages.
func cardDialogues(ds []dialogue.Dialogue, n int) map[string]bool {
	out := map[string]bool{}
	if n > 0 { // Limit takes 0 for all
		for _, d := range dialogue.Limit(ds, n) {
			out[d.Key()] = true
		}
	}
	return out
}

// sameBaselines reports why the baselines of a run cannot stand beside a run with
// identity id.
func sameBaselines(base run.Manifest, id run.Identity) error {
	b := base.Identity
	var differ []string
	add := func(what string, same bool) {
		if !same {
			differ = append(differ, what)
		}
	}
	add("task", b.Task == id.Task)
	add("seed", b.Seed == id.Seed)
	for _, role := range []string{RoleSimulator, RoleLabeller, RoleJudge} {
		x, y := b.Models[role], id.Models[role]
		add(role, x.Name == y.Name && x.Digest == y.Digest && x.TemplateHash == y.TemplateHash)
	}
	for _, t := range TemplateNames()[1:] {
		add("prompt template "+t, b.Prompts[t] == id.Prompts[t])
	}
	for _, o := range instrumentSettings {
		add(o, fmt.Sprint(b.Options[o]) == fmt.Sprint(id.Options[o]))
	}
	missing := 0
	for _, k := range id.Items {
		if !slices.Contains(b.Items, k) {
			missing++
		}
	}
	if missing > 0 {
		differ = append(differ, fmt.Sprintf("items (%d of %d are not in it)", missing, len(id.Items)))
	}
	if len(differ) > 0 {
		return fmt.Errorf("the baselines of %s cannot be used here; they differ in: %s", base.Path, strings.Join(differ, ", "))
	}
	if base.Status != run.StatusDone {
		return fmt.Errorf("the run %s, whose baselines are asked for, is not finished; go on with: ccmed runs resume %s", base.Path, base.Path)
	}
	return nil
}
