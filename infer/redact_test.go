package infer_test

import (
	"testing"

	"github.com/ccmed/ccmed/infer"
)

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"no server answers at http://alice:PW@gpu-box:11434; start it": "no server answers at http://***@gpu-box:11434; start it",
		"https://token@host/v1 and http://a:b@c@host2/x":               "https://***@host/v1 and http://***@host2/x",
		"alice:PW@gpu-box:11434":                                       "***@gpu-box:11434",
		"http://host/v1?key=abc&x=1":                                   "http://host/v1?key=***&x=1",
		"api_key=abc, token=d":                                         "api_key=***, token=***",
		"Authorization: Bearer abcdef123456":                           "Authorization: Bearer ***",
		"Incorrect API key provided: sk-abcdefgh1234":                  "Incorrect API key provided: sk-***",
		"http://127.0.0.1:11434/api/chat":                              "http://127.0.0.1:11434/api/chat",
		"http://[::1]:11434":                                           "http://[::1]:11434",
		"max_tokens=5 of a token = 3, key: value":                      "max_tokens=5 of a token = 3, key: value",
		"asked at 10:30 by anna@example.org":                           "asked at 10:30 by anna@example.org",
		"":                                                             "",
	} {
		if got := infer.Redact(text); got != want {
			t.Errorf("Redact(%q) = %q, want %q", text, got, want)
		}
	}
}
