package llamacpp

import (
	"os"
	"strings"
	"sync"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/hybridgroup/yzma/pkg/utils"

	"github.com/ccmed/ccmed/bench/visible"
)

// complaints keeps llama.cpp's latest error messages: its functions return only
// that they failed, and its log says why.
var complaints struct {
	sync.Mutex
	lines []string
	level llama.LogLevel
}

// keepLines is how many error messages are kept: a failed load writes two or three.
const keepLines = 6

// logCallback returns the C function that receives llama.cpp's log. It shows
// nothing, unless CCMED_LLAMA_LOG is 1: then all of it goes to standard error.
// A callback is never freed, so it is made once a process, by Load.
func logCallback() uintptr {
	echo := os.Getenv("CCMED_LLAMA_LOG") == "1"
	return purego.NewCallback(func(level int32, text *byte, _ uintptr) uintptr {
		s := utils.BytePtrToString(text)
		if echo {
			os.Stderr.WriteString(visible.Text(s))
		}
		complain(llama.LogLevel(level), s)
		return 0
	})
}

func complain(level llama.LogLevel, text string) {
	complaints.Lock()
	defer complaints.Unlock()
	if level != llama.LogLevelContinue {
		complaints.level = level
	}
	if text = strings.TrimSpace(text); complaints.level != llama.LogLevelError || text == "" {
		return
	}
	complaints.lines = append(complaints.lines, text)
	if n := len(complaints.lines); n > keepLines {
		complaints.lines = complaints.lines[n-keepLines:]
	}
}

// takeComplaints returns what llama.cpp complained about since the last call, in
// one line that starts with a colon, or "".
func takeComplaints() string {
	complaints.Lock()
	defer complaints.Unlock()
	if len(complaints.lines) == 0 {
		return ""
	}
	s := ": " + strings.Join(complaints.lines, "; ")
	complaints.lines = nil
	return s
}
