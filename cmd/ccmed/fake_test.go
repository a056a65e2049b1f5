package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

type obj = map[string]any

// fake speaks as much of Ollama's API as the tool uses. Its models answer at
// once and always the same to the same prompt; they differ in their name:
//
//	fake, other  answers drawn from the prompt's hash
//	small        the same, and was trained on 300 tokens of context
//	slow         the same, 8 ms a request
//	stuck        the same, and takes a minute for the 20th answer
//	prose        puts its probability on words when a digit is asked for
//	mute         ends at once
//	thinking     reasons before it answers
type fake struct {
	*httptest.Server
	seen int      // answers that the script has accounted for
	more []string // names of models like the first one, beside fakeModels

	mu    sync.Mutex
	asked int // generations, not renderings
	lives int // generations until the connections break; below 0 never
	stuck int // generations of the model stuck

	fails          int  // every so many answers are spoilt; 0 none
	unrendered     bool // renderings are answered by 503, without a word
	swaps          int  // generations after which the models have other weights; 0 never
	served, spoilt int
}

var fakeModels = []string{"fake", "other", "small", "slow", "stuck", "prose", "mute", "thinking"}

func newFake() *fake {
	f := &fake{lives: -1}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/version", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, obj{"version": "0.17.4"}) })
	mux.HandleFunc("/api/ps", func(w http.ResponseWriter, _ *http.Request) { // it has no room for small
		var held []obj
		for _, m := range append(fakeModels, f.more...) {
			if m != "small" {
				held = append(held, obj{"name": m + map[bool]string{true: "", false: ":latest"}[strings.Contains(m, ":")]})
			}
		}
		reply(w, 200, obj{"models": held})
	})
	mux.HandleFunc("/api/tags", func(w http.ResponseWriter, _ *http.Request) {
		models := make([]obj, len(fakeModels))
		for i, m := range fakeModels {
			models[i] = obj{"name": m, "digest": digest(m)}
		}
		reply(w, 200, obj{"models": models})
	})
	mux.HandleFunc("/api/show", f.show)
	mux.HandleFunc("/api/chat", f.generate)
	mux.HandleFunc("/api/generate", f.generate)
	mux.HandleFunc("/v1/chat/completions", f.completion)
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, obj{"object": "list", "data": []obj{{"id": "fake", "object": "model"}}})
	})
	f.Server = httptest.NewServer(mux)
	return f
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that went away is its own affair
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

func digest(model string) string { return fmt.Sprintf("sha256-%016x", hash(model)) }

// use counts a generation; false means that the server is dead by now.
func (f *fake) use() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lives == 0 {
		return false
	}
	f.lives--
	f.asked++
	return true
}

func (f *fake) sticks() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck++
	return f.stuck == 20
}

func (f *fake) setLives(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lives = n
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

type fakeRequest struct {
	Model    string
	Prompt   string
	Stream   *bool
	Debug    bool `json:"_debug_render_only"`
	Logprobs bool
	Messages []struct{ Role, Content string }
	Options  struct {
		NumCtx     int   `json:"num_ctx"`
		NumPredict int   `json:"num_predict"`
		Seed       int64 `json:"seed"`
	}
	Seed int64
}

func (f *fake) read(w http.ResponseWriter, r *http.Request) (q fakeRequest, ok bool) {
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		reply(w, 400, obj{"error": err.Error()})
		return q, false
	}
	if !slices.Contains(fakeModels, q.Model) && !slices.Contains(f.more, q.Model) {
		reply(w, 404, obj{"error": fmt.Sprintf("model '%s' not found", q.Model)})
		return q, false
	}
	return q, true
}

func (f *fake) show(w http.ResponseWriter, r *http.Request) {
	q, ok := f.read(w, r)
	if !ok {
		return
	}
	trained := 8192
	if q.Model == "small" {
		trained = 300
	}
	f.mu.Lock()
	weights := q.Model
	if f.swaps > 0 && f.asked >= f.swaps {
		weights += " replaced"
	}
	f.mu.Unlock()
	reply(w, 200, obj{"modelfile": "FROM nowhere/" + digest(weights) + "\n", "template": "{{ .Prompt }}",
		"details":    obj{"family": "fake", "quantization_level": "F32", "parameter_size": "0B"},
		"model_info": obj{"general.architecture": "fake", "fake.context_length": trained}})
}

func (q fakeRequest) rendered() string {
	if q.Prompt != "" {
		return q.Prompt
	}
	var b strings.Builder
	for _, m := range q.Messages {
		fmt.Fprintf(&b, "<%s>%s\n", m.Role, m.Content)
	}
	return b.String() + "<assistant>"
}

func (f *fake) generate(w http.ResponseWriter, r *http.Request) {
	q, ok := f.read(w, r)
	if !ok {
		return
	}
	text := q.rendered()
	if q.Debug {
		f.mu.Lock()
		unrendered := f.unrendered
		f.mu.Unlock()
		if unrendered {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if answer := (obj{"model": q.Model, "_debug_info": obj{"rendered_template": text}}); !f.fail(w, answer) {
			reply(w, 200, answer)
		}
		return
	}
	if !f.use() {
		panic(http.ErrAbortHandler) // breaks the connection
	}
	if q.Model == "slow" {
		time.Sleep(8 * time.Millisecond)
	}
	if q.Model == "stuck" && f.sticks() {
		select {
		case <-time.After(time.Minute):
		case <-r.Context().Done():
		}
	}
	tokens := len(text) / 4
	if tokens >= q.Options.NumCtx {
		reply(w, 400, obj{"error": "the input length exceeds the context length"})
		return
	}
	done := obj{"model": q.Model, "response": "", "done": true, "done_reason": "stop", "prompt_eval_count": tokens, "eval_count": 1}
	if strings.HasSuffix(r.URL.Path, "chat") {
		done["message"] = obj{"role": "assistant", "content": q.say()}
		if !f.fail(w, done) {
			reply(w, 200, done)
		}
		return
	}
	for _, t := range q.tokens(text) {
		if q.Stream != nil && !*q.Stream {
			done["response"], done["logprobs"] = t.text, t.logprobs()
			break
		}
		_ = json.NewEncoder(w).Encode(obj{"model": q.Model, "response": t.text, "logprobs": t.logprobs()})
	}
	if !f.fail(w, done) {
		_ = json.NewEncoder(w).Encode(done)
	}
}

func (q fakeRequest) say() string {
	switch q.Model {
	case "mute":
		return ""
	case "thinking":
		return "<think>They are at odds.</think>What matters to each of you here?"
	}
	h := hash(fmt.Sprint(q.rendered(), q.Options.Seed, q.Seed))
	if strings.Contains(q.rendered(), "You take part in a talk about a dispute") {
		return fmt.Sprintf(`{"thought": "They want case %d.", "utterance": "I offer case %d.%s"}`, h%1000, h%1000, []string{"", " [FINAL AGREEMENT]"}[h%2])
	}
	if strings.Contains(q.rendered(), `{"readings"`) {
		return fmt.Sprintf(`{"readings": "1:%d, 2:%d, 99:5"}`, 1+h%5, 1+h/5%5)
	}
	if strings.Contains(q.rendered(), "You write disputes for a study") {
		n := strings.Count(q.rendered(), "<assistant>")
		return fmt.Sprintf(`{"date": "201%d-02-03", "text": "In year %d they quarrelled.", "name": "Pat Lund", "objective": "A say.", "constraints": "No money.", "fallback": "To court.",
			"relation": "A neighbour.", "wish_a": "The first.", "wish_b": "The second.", "wish_c": "The third.", "wish_d": "The fourth.", "wish_e": "The fifth."}`, n, n)
	}
	if strings.Contains(q.rendered(), "You invent everyday scenes") {
		answers := []string{"yes", "no"}
		if strings.Contains(q.rendered(), " and does not agree. The second") {
			answers = []string{"no", "yes"}
		}
		return fmt.Sprintf(`{"context": "Scene %[1]d: street %[2]d, house %[3]d.", "name_1": "Ada", "answer_1": %[4]q, "practical_1": "Find item %[1]d", "argue_1": "Say why %[2]d",
			"name_2": "Bo", "answer_2": %[5]q, "practical_2": "Ask for %[3]d", "argue_2": "Say why not %[1]d"}`, h%1009, h%1013, h%1019, answers[0], answers[h%7/6^1])
	}
	return fmt.Sprintf("I hear you both. What matters to you in case %d?", h%1000)
}

type fakeToken struct {
	text  string
	words []string
	p     []float64
}

func (t fakeToken) logprobs() []obj {
	if t.text == "" {
		return nil
	}
	top := make([]obj, len(t.words))
	for i, w := range t.words {
		top[i] = obj{"token": w, "logprob": math.Log(t.p[i])}
	}
	for i := len(top); i < 20; i++ { // as many as are asked for
		top = append(top, obj{"token": fmt.Sprintf("~%d", i), "logprob": -20.5})
	}
	return []obj{{"token": t.text, "logprob": -0.1, "top_logprobs": top}}
}

// tokens is what the model generates after a rendered prompt; what is asked for
// shows in its last words.
func (q fakeRequest) tokens(text string) []fakeToken {
	words := []string{" yes", " no"}
	switch last := strings.ToLower(strings.TrimSpace(text)); {
	case strings.HasSuffix(last, "stage:"), strings.Contains(text, "How many legs"):
		words = []string{"1", "2", "3", "4", "5", "6"}
	case strings.HasSuffix(last, "score:"):
		words = []string{"1", "2", "3", "4", "5"}
	case strings.HasSuffix(last, "turn"):
		words = []string{" C", " D", " E", " F"}
	case strings.Contains(text, "Answer with one digit."):
		words = []string{"1", "2", "3", "4", "5"}
	case strings.Contains(text, "Answer with the number."):
		words = []string{"1", "2", "5", "8", "9"}
	case strings.Contains(text, "hold by now? Answer with one letter"), strings.Contains(text, "Answer with its letter."):
		words = []string{"A", "B", "C"}
	}
	if q.Model == "prose" && len(words) > 4 {
		words = []string{"The", "I", "Well"}
	}
	answer := draw(text, words)
	switch q.Model {
	case "mute":
		return []fakeToken{{}}
	case "thinking":
		if strings.Contains(text, "</think>") {
			break
		}
		return []fakeToken{sure("<think>"), sure("hm"), sure("</think>"), answer}
	}
	return []fakeToken{answer}
}

func sure(s string) fakeToken { return fakeToken{s, []string{s, "zzz"}, []float64{0.98, 0.01}} }

// draw spreads 0.96 over the words by the prompt's hash.
func draw(text string, words []string) fakeToken {
	p, sum, best := make([]float64, len(words)), 0.0, 0
	for i, w := range words {
		p[i] = 1 + float64(hash(w+text)%1000)/100
		sum += p[i]
	}
	for i := range p {
		p[i] *= 0.96 / sum
		if p[i] > p[best] {
			best = i
		}
	}
	return fakeToken{words[best], words, p}
}

// completion is the same model through OpenAI's API.
func (f *fake) completion(w http.ResponseWriter, r *http.Request) {
	q, ok := f.read(w, r)
	if !ok {
		return
	}
	if !f.use() {
		panic(http.ErrAbortHandler)
	}
	text := q.rendered()
	choice := obj{"index": 0, "finish_reason": "stop", "message": obj{"role": "assistant", "content": q.say()}}
	if q.Logprobs {
		t := q.tokens(strings.TrimSuffix(text, "<assistant>"))[0]
		choice["message"] = obj{"role": "assistant", "content": t.text}
		choice["logprobs"] = obj{"content": t.logprobs()}
	}
	answer := obj{"id": "1", "object": "chat.completion", "model": q.Model, "choices": []obj{choice},
		"usage": obj{"prompt_tokens": len(text) / 4, "completion_tokens": 1, "total_tokens": len(text)/4 + 1}}
	if !f.fail(w, answer) {
		reply(w, 200, answer)
	}
}
