package infer

import (
	"strings"
	"testing"
)

func TestSplitThinking(t *testing.T) {
	for _, c := range []struct {
		name, text, thinking, answer string
		complete                     bool
	}{
		{"no reasoning is kept to the byte", " yes\n", "", " yes\n", true},
		{"empty", "", "", "", true},
		{"closed", "<think>\nLet me see.\n</think>\n\nYes", "Let me see.", "Yes", true},
		{"empty reasoning", "<think>\n\n</think>\n\n4", "", "4", true},
		{"cut off", "<think>Let me", "Let me", "", false},
		{"opened in the prompt", "Let me see.</think>Yes", "Let me see.", "Yes", true},
		{"closed and no answer", "<think>x</think>", "x", "", true},
		{"longer mark", "<thinking>x</thinking>y", "x", "y", true},
		{"Magistral", "[THINK]x[/THINK]4", "x", "4", true},
		{"Command", "<|START_THINKING|>x<|END_THINKING|>4", "x", "4", true},
		{"Gemma 4", "<|channel>thought\nx\n<channel|>4", "x", "4", true},
		{"Harmony", "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>", "x", "4", true},
		{"Harmony cut off", "<|channel|>analysis<|message|>x", "x", "", false},
		{"Harmony straight to the answer", "<|channel|>final<|message|>4", "", "4", true},
		{"a mark inside the answer is text", "Say <think> now", "", "Say <think> now", true},
	} {
		thinking, answer, complete := SplitThinking(c.text)
		if thinking != c.thinking || answer != c.answer || complete != c.complete {
			t.Errorf("%s: got %q, %q, %v; want %q, %q, %v", c.name, thinking, answer, complete, c.thinking, c.answer, c.complete)
		}
	}
}

func TestOpensThinking(t *testing.T) {
	for text, want := range map[string]bool{
		"<think>": true, "<": true, " <think": true, "<|channel|>": true, "[THINK]": true, "<think>\nso": true,
		"": false, " ": false, "4": false, "Yes": false, "</think>": false, "<b>": false, "think": false,
	} {
		if got := OpensThinking(text); got != want {
			t.Errorf("OpensThinking(%q) = %v, want %v", text, got, want)
		}
	}
}

func FuzzSplitThinking(f *testing.F) {
	f.Add("<think>a</think>b")
	f.Add("<|channel|>analysis<|message|>x<|end|>")
	f.Fuzz(func(t *testing.T, text string) {
		thinking, answer, complete := SplitThinking(text)
		if !complete && answer != "" {
			t.Errorf("answer %q although reasoning is not closed", answer)
		}
		if !complete && !OpensThinking(text) {
			t.Errorf("%q is cut off although it does not open reasoning", text)
		}
		if !strings.Contains(text, thinking) || !strings.Contains(text, answer) {
			t.Errorf("%q was split into text that is not in it: %q, %q", text, thinking, answer)
		}
	})
}
