package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// fail spoils every f.fails-th answer, in another way each time, and reports
// whether it did. Every way but the first ones looks like an answer.
func (f *fake) fail(w http.ResponseWriter, answer obj) bool {
	f.mu.Lock()
	f.served++
	spoil := f.fails > 0 && f.served%f.fails == 0
	if spoil {
		f.spoilt++
	}
	way := f.spoilt
	f.mu.Unlock()
	if !spoil {
		return false
	}
	b, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	with := func(old, new string) { _, _ = w.Write(bytes.Replace(b, []byte(old), []byte(new), 1)) }
	ways := []func(){
		func() { panic(http.ErrAbortHandler) },
		func() { http.Error(w, "<html><h1>502 Bad Gateway</h1>", http.StatusBadGateway) },
		func() {
			w.Header().Set("Retry-After", "1")
			http.Error(w, `{"error":{"message":"busy"}}`, http.StatusTooManyRequests)
		},
		func() { w.Header().Set("Content-Length", "50000"); _, _ = w.Write(b) },
		func() { w.WriteHeader(http.StatusNoContent) },
		func() { _, _ = w.Write(b[:len(b)/2]) },
		func() { _, _ = w.Write([]byte(`{"error":{"message":"upstream rate limit","code":429}}`)) },
		func() { _, _ = w.Write([]byte("<html><title>Log in</title>")) },
		func() { with(`"model":"`, `"model":"other-`) },
		func() { with(`"finish_reason":"stop"`, `"finish_reason":null`) },
		func() { with(`"choices":[`, `"choices":[],"was":[`) },
		func() { with(`"usage":`, `"was":`) },
		func() { with(`"top_logprobs":[`, `"top_logprobs":[],"was":[`) },
		func() { with(`"content":"`, `"content":"`+strings.Repeat("no ", 100_000)) },
		func() { _, _ = w.Write(append(b[:len(b)-1:len(b)-1], bytes.Repeat([]byte(" "), 80<<20)...)) },
		func() { w.Header().Set("Content-Encoding", "gzip"); _, _ = w.Write(b) },
	}
	if answer["choices"] == nil { // Ollama's own API
		ways = append(ways,
			func() { w.WriteHeader(503) },
			func() { with(`"done":true`, `"done":false`) },
			func() { with(`"done_reason":"stop"`, `"done_reason":"load"`) },
			func() { with(`"prompt_eval_count":`, `"was":`) },
			func() { with(`"rendered_template":"`, `"rendered_template":"","was":"`) },
			func() { with(`"rendered_template":"<system>`, `"rendered_template":"<`) },
			func() { with(`"top_logprobs":[{"logprob":`, `"top_logprobs":[{"logprob":null,"was":`) },
			func() { with(`"logprobs":[`, `"logprobs":[],"was":[`) },
			func() { with(`"eval_count":1`, `"eval_count":9000`) },
			func() { with(`"response":"`, `"response":"`+strings.Repeat("no ", 100_000)) },
		)
	}
	ways[way%len(ways)]()
	return true
}
