//go:build linux && !race

package torture

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

type obj = map[string]any

func hash(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	x := h.Sum64()
	x ^= x >> 31 // the low bits of FNV are poor
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}

// model is the name of the one model that a server has.
const model = "truth"

// A server speaks as much of the APIs of Ollama and OpenAI as the program uses, and
// knows one right answer to every prompt: it follows from the prompt's hash.
type server struct {
	*httptest.Server
	// spoil answers a request wrongly and returns true, or leaves it to the server.
	spoil func(w http.ResponseWriter, r *http.Request, a *answer) bool
	delay time.Duration // before every answer of the model
	each  func(n int)   // called before the nth answer of the model; may be nil

	mu       sync.Mutex
	requests int
	answers  int             // of the model: neither renderings nor questions about it
	rendered map[string]bool // every text that a rendering gave
	strange  int             // prompts that no rendering gave
	tried    map[string]int  // requests by what they ask
	said     map[string]bool // every pair of a prompt and the text that answered it
}

// An answer is what is right to say to a request.
type answer struct {
	kind   string // render, choose, stream, chat, about
	asks   string // what distinguishes the request: its path, prompt and seed
	again  int    // earlier requests that asked the same
	prompt string
	body   obj
	lines  []obj // of a stream, before the body
}

func newServer(t testing.TB) *server {
	s := &server{rendered: map[string]bool{}, tried: map[string]int{}, said: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

type asked struct {
	Model    string
	Prompt   string
	Stream   *bool
	Raw      bool
	Debug    bool `json:"_debug_render_only"`
	Messages []struct{ Role, Content string }
	Options  struct {
		Seed        int64
		NumPredict  int     `json:"num_predict"`
		Temperature float64 `json:"temperature"`
	}
	Seed         int64
	MaxTokens    int  `json:"max_tokens"`
	Logprobs     any  `json:"logprobs"`
	TopLogprobs  int  `json:"top_logprobs"`
	ContinueLast bool `json:"continue_final_message"`
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	var q asked
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	a := s.right(r.URL.Path, q)
	if q.Model != "" && a.kind != "about" {
		setModel(a, q.Model)
	}
	s.mu.Lock()
	s.requests++
	a.again = s.tried[a.asks]
	s.tried[a.asks]++
	n := s.answers
	if a.kind != "render" && a.kind != "about" {
		s.answers++
		n++
	}
	s.mu.Unlock()
	if s.each != nil && (a.kind == "choose" || a.kind == "stream" || a.kind == "chat") {
		s.each(n)
	}
	sleep(r.Context(), s.delay)
	if s.spoil != nil && s.spoil(w, r, a) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(a.bytes()) // a client that went away is its own affair
}

func (a *answer) bytes() []byte {
	var b strings.Builder
	for _, l := range append(a.lines[:len(a.lines):len(a.lines)], a.body) {
		b.WriteString(encode(l) + "\n")
	}
	return []byte(b.String())
}

// right is the right answer to a request.
func (s *server) right(path string, q asked) *answer {
	a := &answer{kind: "about", asks: path}
	switch path {
	case "/api/version":
		a.body = obj{"version": "0.17.4"}
	case "/api/ps":
		a.body = obj{"models": []obj{}}
	case "/api/tags":
		a.body = obj{"models": []obj{{"name": model, "model": model, "digest": strings.Repeat("1", 64)}}}
	case "/api/show":
		a.body = obj{"modelfile": "FROM nowhere/sha256-" + strings.Repeat("1", 64) + "\n", "template": "{{ .Prompt }}",
			"details":    obj{"family": "truth", "quantization_level": "F32", "parameter_size": "0B"},
			"model_info": obj{"general.architecture": "truth", "truth.context_length": 8192}}
	case "/v1/models":
		a.body = obj{"object": "list", "data": []obj{{"id": model, "object": "model"}, {"id": "other", "object": "model"}}}
	case "/api/chat", "/api/generate":
		s.ollama(a, path, q)
	case "/v1/chat/completions":
		s.openai(a, q)
	default:
		a.body = obj{"error": "no such path"}
	}
	return a
}

func render(q asked) string {
	var b strings.Builder
	for _, m := range q.Messages {
		fmt.Fprintf(&b, "<%s>%s</%s>\n", m.Role, m.Content, m.Role)
	}
	return b.String() + "<assistant>"
}

// counted is the number of tokens of a text: about as many as words and marks.
func counted(text string) int { return len(strings.Fields(text)) * 4 / 3 }

func (s *server) ollama(a *answer, path string, q asked) {
	a.prompt = q.Prompt
	if path == "/api/chat" {
		a.prompt = render(q)
	}
	a.asks = fmt.Sprint(path, q.Debug, q.Options.Seed, q.Options.NumPredict, q.Options.Temperature, a.prompt)
	a.body = obj{"model": model, "created_at": "2026-12-01T00:00:00Z", "done": true, "done_reason": "stop",
		"prompt_eval_count": counted(a.prompt), "eval_count": 1}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case q.Debug:
		a.kind = "render"
		s.rendered[a.prompt] = true
		a.body = obj{"model": model, "done": true, "_debug_info": obj{"rendered_template": a.prompt}}
		return
	case path == "/api/chat":
		a.kind = "chat"
		a.body["message"] = obj{"role": "assistant", "content": s.say(a.prompt, q.Options.Seed)}
		return
	}
	a.kind = "choose"
	s.check(a.prompt)
	tokens := generated(a.prompt)
	if q.Stream == nil || *q.Stream {
		a.kind = "stream"
		for _, t := range tokens {
			a.lines = append(a.lines, obj{"model": model, "response": t.text, "done": false, "logprobs": []obj{t.json()}})
		}
		a.body["response"], a.body["eval_count"] = "", len(tokens)
		return
	}
	a.body["response"], a.body["logprobs"] = tokens[0].text, []obj{tokens[0].json()}
}

// check counts a prompt that begins with nothing that was rendered here.
func (s *server) check(prompt string) {
	end := strings.LastIndex(prompt, "<assistant>")
	if end < 0 || !s.rendered[prompt[:end+len("<assistant>")]] {
		s.strange++
	}
}

func (s *server) openai(a *answer, q asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.kind, a.prompt = "chat", render(q)
	a.asks = fmt.Sprint("completions", q.Seed, q.MaxTokens, a.prompt)
	choice := obj{"index": 0, "finish_reason": "stop", "message": obj{"role": "assistant", "content": s.say(a.prompt, q.Seed)}}
	n := 12
	if q.TopLogprobs > 0 {
		a.kind = "choose"
		tokens, text := generated(a.prompt), ""
		tokens = tokens[:min(len(tokens), max(1, q.MaxTokens))]
		var content []obj
		for _, t := range tokens {
			text += t.text
			content = append(content, t.json())
		}
		n = len(tokens)
		choice["message"], choice["logprobs"], choice["finish_reason"] = obj{"role": "assistant", "content": text}, obj{"content": content}, "length"
	}
	a.body = obj{"id": "1", "object": "chat.completion", "created": 1, "model": model, "choices": []obj{choice},
		"usage": obj{"prompt_tokens": counted(a.prompt), "completion_tokens": n, "total_tokens": counted(a.prompt) + n}}
}

// say is what the model says; s.mu is held.
func (s *server) say(prompt string, seed int64) string {
	text := fmt.Sprintf("I hear you both. What matters to you in case %d?", hash(prompt, fmt.Sprint(seed))%1e6)
	s.said[prompt+"\n"+text] = true
	return text
}

// A token is what the model generates, with its 20 most probable alternatives.
type token struct {
	text  string
	words []string
	p     []float64
}

func (t token) json() obj {
	top := make([]obj, len(t.words))
	for i, w := range t.words {
		top[i] = obj{"token": w, "logprob": math.Log(t.p[i]), "bytes": []byte(w)}
	}
	for i := range top {
		top[i]["bytes"] = ints(top[i]["token"].(string))
	}
	return obj{"token": t.text, "logprob": math.Log(t.p[0]), "bytes": ints(t.text), "top_logprobs": top}
}

func ints(s string) []int {
	out := make([]int, len(s))
	for i := range len(s) {
		out[i] = int(s[i])
	}
	return out
}

func sure(s string) token { return spread([]string{s}, []float64{0.98}) }

// spread makes a token of words and probabilities, the most probable first, and adds
// other words with what is left until there are twenty.
func spread(words []string, p []float64) token {
	best := 0
	for i := range p {
		if p[i] > p[best] {
			best = i
		}
	}
	words, p = append([]string{words[best]}, append(words[:best:best], words[best+1:]...)...), append([]float64{p[best]}, append(p[:best:best], p[best+1:]...)...)
	for i := len(words); i < 20; i++ {
		words, p = append(words, fmt.Sprintf("w%d", i)), append(p, 0.0005)
	}
	return token{words[0], words, p}
}

// generated is what the model says after a prompt. Every tenth prompt makes it reason
// first. What is asked for shows in the prompt's last words.
func generated(prompt string) []token {
	asks := strings.TrimSpace(strings.TrimSuffix(prompt, "<assistant>"))
	asks = strings.TrimSpace(strings.TrimSuffix(asks, "</user>"))
	words := []string{" yes", " no"}
	switch last := strings.ToLower(asks); {
	case strings.HasSuffix(last, "stage:"), strings.Contains(last[max(0, len(last)-300):], "1 to 6"):
		words = []string{"1", "2", "3", "4", "5", "6"}
	case strings.HasSuffix(last, "score:"), strings.Contains(last[max(0, len(last)-300):], "1 to 5"):
		words = []string{"1", "2", "3", "4", "5"}
	case strings.HasSuffix(last, "turn"):
		words = []string{" C", " D", " E", " F"}
	}
	p, sum := make([]float64, len(words)), 0.0
	for i, w := range words {
		p[i] = 1 + float64(hash(w, prompt)%1000)/100
		sum += p[i]
	}
	for i := range p {
		p[i] *= 0.96 / sum
	}
	last := spread(words, p)
	if hash("reasons", prompt)%10 == 0 {
		return []token{sure("<think>"), sure("hm"), sure("</think>"), sure("\n\n"), last}
	}
	return []token{last}
}
