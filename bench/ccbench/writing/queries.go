package writing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/bench/usage"
)

const maxQueries = 64 << 20 // bytes of a file

// Lengths of a question that is taken, in characters.
const (
	shortest = 40
	longest  = 1500
)

// tagged names words of tags by topic. The first topic with a word in a tag is the
// question's; the order is from what is said rarely to what is said of much.
var tagged = []struct {
	topic string
	words []string
}{
	{"addiction", []string{"addict", "alcohol", "smok", "drug abuse", "nicotine", "recovery"}},
	{"relationships", []string{"relationship", "marriage", "partner", "family", "angry", "abuse"}},
	{"children", []string{"baby", "babies", "child", "pediatric", "infant", "newborn", "autism", "cerebral palsy"}},
	{"reproductive health", []string{"pregnan", "contracept", "period", "sex", "ejaculation", "erectile", "vagina", "masturbation", "fertil", "menstru", "abortion", "breast feeding", "penis", "uter", "ovula"}},
	{"mental health", []string{"depress", "anxiety", "bipolar", "psych", "panic", "stress", "counsel", "schizo", "ocd", "mental"}},
	{"sleep", []string{"sleep", "insomnia", "snor"}},
	{"ageing", []string{"aging", "ageing", "arthritis", "osteo", "menopause", "dementia", "alzheimer", "prostate", "hair loss", "hairfall"}},
	{"prevention", []string{"vaccin", "screening", "check-up", "checkup", "prevent", "immuni", "hygiene", "blood pressure monitor", "exercise", "fitness"}},
	{"nutrition", []string{"diet", "food", "weight", "vitamin", "nutrition", "fatty acids", "cholesterol"}},
	{"medicines", []string{"antibiotic", "medication", "tablet", "side effect", "amoxicillin", "levocetirizine", "prednisolone", "serotonin", "fexofenadine", "dose", "steroid"}},
	{"pain", []string{"pain", "ache", "migraine", "numb", "tingling", "physiotherap"}},
	{"disease", []string{"cancer", "diabet", "infection", "disease", "thyroid", "sinusitis", "gerd", "tumor", "hiv", "stroke", "allerg", "fungal", "kidney", "heart", "liver", "anemia", "hernia", "asthma"}},
}

// post is a question of a forum.
type post struct {
	Question string   `json:"question"`
	Text     string   `json:"question_text"`
	Tags     []string `json:"tags"`
}

// topic is the topic of a post by its tags; "" where they name none.
func (p post) topic() string {
	for _, t := range tagged {
		for _, tag := range p.Tags {
			if slices.ContainsFunc(t.words, func(w string) bool { return strings.Contains(strings.ToLower(tag), w) }) {
				return t.topic
			}
		}
	}
	return ""
}

// readQueries takes n questions of a file or of all JSON files of a folder: of each topic
// in turn the next one in an order that the seed draws.
func readQueries(path string, n int, seed int64) ([]build.Query, error) {
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.json")); err != nil || len(files) == 0 {
			return nil, usage.Errorf("--queries %s holds no *.json file", path)
		}
	}
	by := map[string][]build.Query{}
	drawn := map[string]string{}
	seen := map[string]bool{}
	for _, file := range files {
		b, err := disk.ReadFile(file, maxQueries)
		if err != nil {
			return nil, fmt.Errorf("read questions: %w", err)
		}
		var posts []post
		if err := strictjson.Unmarshal(b, &posts); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, p := range posts {
			text := strings.Join(strings.Fields(cmp.Or(strings.TrimSpace(p.Text), p.Question)), " ")
			topic := p.topic()
			if len(text) < shortest || len(text) > longest || topic == "" || seen[text] {
				continue
			}
			seen[text] = true
			h := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s", seed, text))
			by[topic] = append(by[topic], build.Query{Topic: topic, Text: text})
			drawn[text] = hex.EncodeToString(h[:])
		}
	}
	for _, qs := range by {
		slices.SortFunc(qs, func(x, y build.Query) int { return cmp.Compare(drawn[x.Text], drawn[y.Text]) })
	}
	var out []build.Query
	for round, more := 0, true; more && len(out) < n; round++ {
		more = false
		for _, topic := range build.Topics() {
			if qs := by[topic]; round < len(qs) && len(out) < n {
				q := qs[round]
				q.ID, more = fmt.Sprintf("q%02d", len(out)+1), true
				out = append(out, q)
			}
		}
	}
	if len(out) == 0 {
		return nil, usage.Errorf("--queries %s holds no question of %d to %d characters whose tags name a topic", path, shortest, longest)
	}
	return out, nil
}
