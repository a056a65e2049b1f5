//go:build linux && !race

package torture

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A fault is one way in which a server, or what stands before it, answers wrongly. It
// has one part or several: what the answer says, its bytes, and how they are sent.
type fault struct {
	name string
	// kinds are the answers that it can spoil; empty for all.
	kinds string
	edit  func(a *answer)
	raw   func(b []byte) []byte
	send  func(w http.ResponseWriter, r *http.Request, body []byte)
	// unscored allows a choice without an answer and with a reason.
	unscored bool
	// dear faults cost seconds, or some hundred megabytes: a few of them are enough.
	dear bool
}

const choices = "choose stream"

var faults = []fault{
	// Statuses. The body is a lie wherever there is one.
	{name: "401 with a body", send: status(401, obj{"error": "unauthorized"})},
	{name: "401", send: status(401, nil)},
	{name: "429, Retry-After 1", send: limited("1"), dear: true},
	{name: "429, Retry-After 0", send: limited("0")},
	{name: "500 with a body", send: status(500, obj{"error": "llama runner process no longer running"})},
	{name: "500", send: status(500, nil)},
	{name: "500 with an answer", edit: lie, send: coded(500)},
	{name: "502, HTML", send: page(502)},
	{name: "503 with an answer", edit: lie, send: coded(503)},
	{name: "503", send: status(503, nil)},
	{name: "204", send: status(204, nil)},
	{name: "200, empty", send: status(200, nil)},
	{name: "200, HTML", send: page(200)},
	{name: "200, {}", send: status(200, obj{})},
	{name: "200, null", raw: func([]byte) []byte { return []byte("null") }},
	{name: "200, an error", send: status(200, obj{"error": "upstream rate limit"})},
	{name: "200, an error object", send: status(200, obj{"error": obj{"message": "upstream rate limit", "code": 429}})},
	{name: "an answer and an error", edit: func(a *answer) { late(a); a.body["error"] = "out of memory" }},

	// The connection.
	{name: "cut before the first byte", send: func(w http.ResponseWriter, _ *http.Request, _ []byte) { wire(w, false, nil) }},
	{name: "reset", send: func(w http.ResponseWriter, _ *http.Request, _ []byte) { wire(w, true, nil) }},
	{name: "cut after the header", send: func(w http.ResponseWriter, _ *http.Request, b []byte) { wire(w, false, header(len(b), "")) }},
	{name: "cut after half", send: func(w http.ResponseWriter, _ *http.Request, b []byte) {
		wire(w, false, header(len(b), ""), b[:len(b)/2])
	}},
	{name: "reset after half", send: func(w http.ResponseWriter, _ *http.Request, b []byte) {
		wire(w, true, header(len(b), ""), b[:len(b)/2])
	}},
	{name: "cut after half, no length", send: func(w http.ResponseWriter, _ *http.Request, b []byte) {
		wire(w, false, header(-1, ""), b[:len(b)/2])
	}},
	{name: "cut chunks", send: func(w http.ResponseWriter, _ *http.Request, b []byte) {
		wire(w, false, header(-1, "Transfer-Encoding: chunked\r\n"), fmt.Appendf(nil, "%x\r\n", len(b)), b[:len(b)/2])
	}},
	{name: "length too long", send: func(w http.ResponseWriter, _ *http.Request, b []byte) { wire(w, false, header(len(b)+5000, ""), b) }},
	{name: "length too short", send: func(w http.ResponseWriter, _ *http.Request, b []byte) { wire(w, false, header(len(b)/2, ""), b) }},
	{name: "no HTTP", send: func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		wire(w, false, []byte("SSH-2.0-OpenSSH_9.2\r\n"))
	}},
	{name: "bad gzip", send: func(w http.ResponseWriter, _ *http.Request, b []byte) {
		wire(w, false, header(len(b), "Content-Encoding: gzip\r\n"), b)
	}},
	{name: "gzip cut", send: func(w http.ResponseWriter, _ *http.Request, b []byte) {
		z := zipped(bytes.NewReader(b))
		wire(w, false, header(len(z)-6, "Content-Encoding: gzip\r\n"), z[:len(z)-6])
	}},
	{name: "gzip bomb", dear: true, send: func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		z := bomb()
		wire(w, false, header(len(z), "Content-Encoding: gzip\r\n"), z)
	}},
	{name: "slow drip", send: func(w http.ResponseWriter, r *http.Request, b []byte) {
		for i := range 10 {
			_, _ = w.Write(b[len(b)*i/10 : len(b)*(i+1)/10])
			_ = http.NewResponseController(w).Flush()
			sleep(r.Context(), 10*time.Millisecond)
		}
	}},
	{name: "stall before the header", dear: true, send: func(_ http.ResponseWriter, r *http.Request, _ []byte) { sleep(r.Context(), time.Minute) }},
	{name: "stall after half", dear: true, send: func(w http.ResponseWriter, r *http.Request, b []byte) {
		_, _ = w.Write(b[:len(b)/2])
		_ = http.NewResponseController(w).Flush()
		sleep(r.Context(), time.Minute)
	}},
	{name: "wrong content type", send: func(w http.ResponseWriter, _ *http.Request, b []byte) {
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write(b)
	}},

	// Bytes.
	{name: "JSON cut", raw: func(b []byte) []byte { return b[:len(b)*2/3] }},
	{name: "NUL", raw: func(b []byte) []byte { return append(b[:len(b)/2:len(b)/2], append([]byte{0}, b[len(b)/2:]...)...) }},
	{name: "invalid UTF-8", kinds: "render choose stream chat", raw: func(b []byte) []byte { return bytes.Replace(b, []byte("e"), []byte("\xff"), 40) }},
	{name: "second document", raw: func(b []byte) []byte {
		return append(b[:len(b):len(b)], `{"done":true,"response":"no","model":"other"}`...)
	}},
	{name: "byte order mark", raw: func(b []byte) []byte { return append([]byte("\xef\xbb\xbf"), b...) }},
	{name: "line over 8 MB", dear: true, raw: func(b []byte) []byte {
		return bytes.Replace(b, []byte("{"), []byte(`{"x":"`+strings.Repeat("x", 9<<20)+`",`), 1)
	}},
	{name: "200 MB of spaces", dear: true, send: func(w http.ResponseWriter, _ *http.Request, b []byte) {
		for range 200 {
			if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
				return
			}
		}
		_, _ = w.Write(b)
	}},
	{name: "200 MB of text", dear: true, send: func(w http.ResponseWriter, _ *http.Request, b []byte) {
		_, _ = w.Write([]byte(`{"response":"`))
		for range 200 {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
				return
			}
		}
		_, _ = w.Write([]byte(`",` + string(b[1:])))
	}},
	{name: "deep nesting", raw: func(b []byte) []byte {
		return bytes.Replace(b, []byte("{"), []byte(`{"x":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`,`), 1)
	}},

	// What the answer says.
	{name: "another model's name and answer", kinds: "choose stream chat", edit: func(a *answer) {
		lie(a)
		setModel(a, "other")
	}},
	{name: "not done", kinds: "choose stream chat render", edit: func(a *answer) {
		late(a)
		if _, ok := a.body["done"]; ok {
			a.body["done"] = false
		} else {
			a.body["choices"] = []obj{}
		}
	}},
	{name: "done is missing", kinds: "choose stream chat", edit: func(a *answer) {
		late(a)
		delete(a.body, "done")
		delete(a.body, "choices")
	}},
	{name: "empty text", kinds: "chat", edit: func(a *answer) { setText(a, "") }},
	{name: "no message", kinds: "chat", edit: func(a *answer) {
		delete(a.body, "message")
		if cs, ok := a.body["choices"].([]obj); ok {
			delete(cs[0], "message")
		}
	}},
	{name: "empty rendering", kinds: "render", edit: rendering("")},
	{name: "rendering without the last words", kinds: "render", edit: func(a *answer) { rendering(a.prompt[:len(a.prompt)/2])(a) }},
	{name: "rendering of another prompt", kinds: "render", edit: rendering("<system>s</system>\n<user>Is ice hot?</user>\n<assistant>")},
	{name: "no rendering", kinds: "render", edit: func(a *answer) { delete(a.body, "_debug_info") }},
	{name: "prompt cut in silence", kinds: choices + " chat", edit: func(a *answer) { cutPrompt(a, counted(a.prompt)/3) }},
	{name: "no prompt_eval_count", kinds: choices + " chat", edit: func(a *answer) {
		if _, ok := a.body["prompt_eval_count"]; ok { // /v1 promises no usage
			late(a)
			delete(a.body, "prompt_eval_count")
		}
	}},

	// Log-probabilities.
	{name: "all null", kinds: choices, unscored: true, edit: alternatives(func(_ int, t obj) { t["logprob"] = nil })},
	{name: "all missing", kinds: choices, unscored: true, edit: alternatives(func(_ int, t obj) { delete(t, "logprob") })},
	{name: "the second null", kinds: choices, unscored: true, edit: alternatives(func(i int, t obj) {
		if i == 1 {
			t["logprob"] = nil
		}
	})},
	{name: "the second missing", kinds: choices, unscored: true, edit: alternatives(func(i int, t obj) {
		if i == 1 {
			delete(t, "logprob")
		}
	})},
	{name: "text for numbers", kinds: choices, unscored: true, edit: alternatives(func(_ int, t obj) { t["logprob"] = fmt.Sprint(t["logprob"]) })},
	{name: "logits", kinds: choices, unscored: true, edit: alternatives(func(i int, t obj) { t["logprob"] = float64(i%3) + 14.2 })},
	{name: "sums over 1", kinds: choices, unscored: true, edit: alternatives(func(i int, t obj) {
		if i < 6 {
			t["logprob"] = -0.3 - float64(i%2)/10
		}
	})},
	{name: "the second twice", kinds: choices, unscored: true, edit: tokens(func(t obj) {
		top := t["top_logprobs"].([]obj)
		t["top_logprobs"] = append(top[:2:2], append([]obj{top[1], top[1]}, top[2:]...)...)
	})},
	{name: "the second again, other value", kinds: choices, unscored: true, edit: tokens(func(t obj) {
		top := t["top_logprobs"].([]obj)
		t["top_logprobs"] = append(top[:2:2], append([]obj{{"token": top[1]["token"], "bytes": top[1]["bytes"], "logprob": -0.4}}, top[2:]...)...)
	})},
	{name: "no alternatives", kinds: choices, unscored: true, edit: tokens(func(t obj) { t["top_logprobs"] = []obj{} })},
	{name: "no log-probabilities", kinds: choices, unscored: true, edit: func(a *answer) {
		lie(a)
		delete(a.body, "logprobs")
		for _, l := range a.lines {
			delete(l, "logprobs")
		}
		if cs, ok := a.body["choices"].([]obj); ok {
			delete(cs[0], "logprobs")
		}
	}},
}

// lie gives an answer of the right form, to another prompt.
func lie(a *answer) {
	alternatives(func(i int, t obj) {
		if i < 2 {
			t["logprob"] = -0.1 - 3*float64((i+1)%2) // the second becomes the first
		} else {
			t["logprob"] = -9.5
		}
	})(a)
	if a.kind == "chat" {
		setText(a, "This was never said.")
	}
}

// late lies in an answer whose fault shows at its end. Who follows a stream to the
// token that it wants need not wait for that end: there the answer does not come.
func late(a *answer) {
	if a.kind == "stream" {
		a.lines = a.lines[:len(a.lines)/2]
		return
	}
	lie(a)
}

// cutPrompt answers half of the prompt, as a server does that cuts what is too long.
func cutPrompt(a *answer, n int) {
	late(a)
	if u, ok := a.body["usage"].(obj); ok {
		u["prompt_tokens"] = n
	} else {
		a.body["prompt_eval_count"] = n
	}
}

func setModel(a *answer, name string) {
	for _, b := range append(a.lines, a.body) {
		b["model"] = name
	}
}

func setText(a *answer, text string) {
	m, ok := a.body["message"].(obj)
	if cs, v1 := a.body["choices"].([]obj); v1 {
		m, ok = cs[0]["message"].(obj), true
	}
	if ok {
		m["content"] = text
	}
}

func rendering(text string) func(*answer) {
	return func(a *answer) { a.body["_debug_info"] = obj{"rendered_template": text} }
}

// tokens applies f to every generated token of an answer.
func tokens(f func(obj)) func(*answer) {
	return func(a *answer) {
		var lists [][]obj
		for _, b := range append(a.lines, a.body) {
			if l, ok := b["logprobs"].([]obj); ok {
				lists = append(lists, l)
			}
		}
		if cs, ok := a.body["choices"].([]obj); ok {
			if l, ok := cs[0]["logprobs"].(obj); ok {
				lists = append(lists, l["content"].([]obj))
			}
		}
		for _, l := range lists {
			for _, t := range l {
				f(t)
			}
		}
	}
}

func alternatives(f func(i int, t obj)) func(*answer) {
	return tokens(func(t obj) {
		for i, x := range t["top_logprobs"].([]obj) {
			f(i, x)
		}
	})
}

func status(code int, body obj) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.WriteHeader(code)
		if body != nil {
			_, _ = io.WriteString(w, encode(body))
		}
	}
}

func coded(code int) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, _ *http.Request, b []byte) {
		w.WriteHeader(code)
		_, _ = w.Write(b)
	}
}

func limited(after string) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Retry-After", after)
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

func page(code int) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html><body><h1>Bad Gateway</h1>\x1b[31m\u202e</body></html>\n")
	}
}

func header(length int, more string) []byte {
	if length >= 0 {
		more += "Content-Length: " + strconv.Itoa(length) + "\r\n"
	}
	return []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + more + "Connection: close\r\n\r\n")
}

// wire writes to the connection itself and closes it, with a reset where asked.
func wire(w http.ResponseWriter, reset bool, parts ...[]byte) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err) // of HTTP/1
	}
	defer c.Close()
	for _, p := range parts {
		if _, err := c.Write(p); err != nil {
			return
		}
	}
	if tcp, ok := c.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
}

func zipped(r io.Reader) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	_, _ = io.Copy(z, r) // into memory
	_ = z.Close()
	return b.Bytes()
}

// bomb is a megabyte or two that become 600 MB of JSON.
var bomb = sync.OnceValue(func() []byte {
	mega := strings.Repeat("x", 1<<20)
	rs := []io.Reader{strings.NewReader(`{"done":true,"model":"truth","response":"`)}
	for range 600 {
		rs = append(rs, strings.NewReader(mega))
	}
	return zipped(io.MultiReader(append(rs, strings.NewReader(`"}`))...))
})
