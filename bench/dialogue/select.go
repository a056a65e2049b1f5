package dialogue

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/dmis"
)

// Limit returns n dialogues spread over stages and conflict turns, sorted by id:
// the stages are taken in turn, and within each the conflict turns. It depends on
// nothing but the dialogues. All are returned for n = 0 and where there are no
// more than n.
func Limit(ds []Dialogue, n int) []Dialogue {
	all := slices.Clone(ds)
	slices.SortFunc(all, byID)
	if n <= 0 || n >= len(all) {
		return all
	}
	turns := map[int]bool{}
	cells := map[dmis.Stage]map[int][]Dialogue{}
	for _, d := range all {
		turns[d.ConflictTurn] = true
		if cells[d.Stage] == nil {
			cells[d.Stage] = map[int][]Dialogue{}
		}
		cells[d.Stage][d.ConflictTurn] = append(cells[d.Stage][d.ConflictTurn], d)
	}
	order := sortedKeys(turns)
	stages := sortedKeys(cells)
	queues := make([][]Dialogue, len(stages))
	for i, s := range stages {
		// Every stage begins at another turn, so that few dialogues differ in both.
		queues[i] = rounds(cells[s], slices.Concat(order[i%len(order):], order[:i%len(order)]))
	}
	var out []Dialogue
	for i := 0; len(out) < n; i++ {
		for _, q := range queues {
			if i < len(q) && len(out) < n {
				out = append(out, q[i])
			}
		}
	}
	slices.SortFunc(out, byID)
	return out
}

// rounds lists all dialogues, one of each turn and then again.
func rounds(byTurn map[int][]Dialogue, order []int) []Dialogue {
	var out []Dialogue
	for i, more := 0, true; more; i++ {
		more = false
		for _, t := range order {
			if i < len(byTurn[t]) {
				out, more = append(out, byTurn[t][i]), true
			}
		}
	}
	return out
}

func byID(a, b Dialogue) int { return cmp.Compare(a.ID, b.ID) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	ks := make([]K, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

// Hash returns the SHA-256 of the records in hexadecimal. Neither their order
// nor the spacing of their JSON changes it.
func Hash(ds []Dialogue) string {
	sums := make([][]byte, len(ds))
	for i, d := range ds {
		if d.sum == [sha256.Size]byte{} { // not read from a record: only its id tells it apart
			d.sum = sha256.Sum256([]byte(d.Key()))
		}
		sums[i] = d.sum[:]
	}
	slices.SortFunc(sums, bytes.Compare)
	h := sha256.Sum256(slices.Concat(sums...))
	return hex.EncodeToString(h[:])
}

// Split divides ds so that about fraction of the dialogues, of every stage, are
// in eval and no context is in both parts. The same seed gives the same split,
// whatever the order of ds; both parts are sorted by id.
func Split(ds []Dialogue, fraction float64, seed int64) (train, eval []Dialogue, err error) {
	if !(fraction > 0 && fraction < 1) {
		return nil, nil, fmt.Errorf("split dialogues: fraction %g; it must lie between 0 and 1", fraction)
	}
	groups := map[string][]Dialogue{}
	var total [dmis.NumStages]float64
	for _, d := range ds {
		groups[d.ContextKey()] = append(groups[d.ContextKey()], d)
		total[d.Stage] += fraction
	}
	if len(groups) < 2 {
		return nil, nil, fmt.Errorf("split dialogues: %d dialogues with %d scenario contexts; two contexts are needed, because none may be in both parts", len(ds), len(groups))
	}
	keys := sortedKeys(groups)
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	// A context goes to eval where that brings the stages' counts nearer to
	// fraction of the total; the last one changes side if a part would be empty.
	var got [dmis.NumStages]float64
	for i, k := range keys {
		var gain float64
		with := got
		for _, d := range groups[k] {
			with[d.Stage]++
		}
		for s := range got {
			gain += (got[s]-total[s])*(got[s]-total[s]) - (with[s]-total[s])*(with[s]-total[s])
		}
		last := i == len(keys)-1
		if (gain > 0 || last && len(eval) == 0) && !(last && len(train) == 0) {
			got, eval = with, append(eval, groups[k]...)
		} else {
			train = append(train, groups[k]...)
		}
	}
	slices.SortFunc(train, byID)
	slices.SortFunc(eval, byID)
	return train, eval, nil
}

// Write writes every record into its own file, dir/ID.json, byte for byte as it
// was read. It refuses a folder that holds records which are not among ds: they
// would be read with them.
func Write(dir string, ds []Dialogue) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write dialogues: %w", err)
	}
	present, err := records(dir)
	if err != nil {
		return fmt.Errorf("write dialogues: %w", err)
	}
	files := map[string]Dialogue{}
	for _, d := range ds {
		files[filepath.Join(dir, d.Key()+".json")] = d
	}
	for _, p := range present {
		if _, ok := files[p]; !ok {
			return fmt.Errorf("write dialogues: %s holds other records, such as %s; choose a new folder", dir, filepath.Base(p))
		}
	}
	for _, p := range sortedKeys(files) {
		d := files[p]
		if len(d.raw) == 0 {
			return fmt.Errorf("write dialogues: dialogue %s was not read whole from a record", d.Key())
		}
		if err := disk.WriteEntry(p, d.raw, 0o644); err != nil {
			return fmt.Errorf("write dialogues: %w", err)
		}
	}
	return nil
}
