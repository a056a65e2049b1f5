package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ccmedOn runs a command line in this process.
func ccmedOn(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, getenv: func(string) string { return "" }, now: time.Now}
	code = a.main(args)
	return code, out.String(), errs.String()
}

// A prediction that is not one of a dialogue of the data is refused with its place,
// by score and by mediate, and with --lenient left out and told.
func TestPredictionsAreChecked(t *testing.T) {
	const good = `{"sid":"9002","predicted_turn":4,"utterance":"x"}`
	for name, c := range map[string]struct {
		entry, want string
		whole       bool // the file, and not an entry, is at fault
	}{
		"a turn below 0":        {`{"sid":"9001","predicted_turn":-1}`, "per_sid[0]: sid 9001: predicted_turn -1 is not a turn of the dialogue (1 to 9, 0 for none)", false},
		"a turn after the last": {`{"sid":"9001","predicted_turn":99}`, "predicted_turn 99 is not a turn", false},
		"an unknown id":         {`{"sid":"1","predicted_turn":3}`, `per_sid[0]: sid "1" is not among the dialogues`, false},
		"an id with a space":    {`{"sid":" 9001","predicted_turn":3}`, `sid " 9001" is not among the dialogues`, false},
		"an id with ESC":        {`{"sid":"\u001b[2J","predicted_turn":3}`, `sid "\x1b[2J" is not among the dialogues`, false},
		"an id twice":           {`{"sid":9002,"predicted_turn":3}`, "per_sid[1]: sid 9002 occurs twice, first in per_sid[0]", false},
		"half a turn":           {`{"sid":"9001","predicted_turn":3.5}`, "field per_sid[0].predicted_turn: a JSON number 3.5 stands where a whole number is expected", true},
		"a text as turn":        {`{"sid":"9001","predicted_turn":"3"}`, "field per_sid[0].predicted_turn: a JSON string stands where a whole number is expected", true},
		"a turn in two cases":   {`{"sid":"9001","predicted_turn":3,"Predicted_Turn":8}`, `field per_sid[0].Predicted_Turn: the keys "predicted_turn" and "Predicted_Turn" of one object differ in case only`, true},
		"a turn twice":          {`{"sid":"9001","predicted_turn":3,"predicted_turn":8}`, "field per_sid[0].predicted_turn: the key stands twice", true},
		"null":                  {`null`, "field per_sid[0]: null stands in a list", true},
		"no id":                 {`{"predicted_turn":3}`, `per_sid[0]: there is no "sid"`, true},
		"a fraction as id":      {`{"sid":9001.0,"predicted_turn":3}`, "per_sid[0]: sid 9001.0 is neither a text nor a whole number", true},
		"a result":              {`{"sid":"9001","pred_turn":3}`, "per_sid[0] has pred_turn, the key of results", true},
		"NUL":                   {`{"sid":"9001","predicted_turn":3,"utterance":"a\u0000"}`, "field per_sid[0].utterance: the text holds the character NUL", true},
		"Latin-1":               {"{\"sid\":\"9001\",\"utterance\":\"\xE9\"}", "field per_sid[0].utterance: byte E9 is no UTF-8", true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "p.json")
			if err := os.WriteFile(file, []byte(`{"per_sid":[`+c.entry+`,`+good+`]}`), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"score", file, "--data", "sample"}, {"mediate", "--utterances", file, "--data", "sample", "--model", "m", "--dry-run"}} {
				code, stdout, stderr := ccmedOn(t, args...)
				if code != exitFailed || stdout != "" || !strings.Contains(stderr, file) || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "\x1b") {
					t.Errorf("%s: exit code %d, %q; want %q", args[0], code, stderr, c.want)
				}
			}
			code, stdout, stderr := ccmedOn(t, "score", file, "--data", "sample", "--lenient")
			if !strings.Contains(stderr, c.want) || !c.whole && (code != exitDone || !strings.Contains(stderr, "left out: ") || !strings.Contains(stdout, "100.0 % (1/1)")) {
				t.Errorf("lenient: exit code %d, %s%s", code, stdout, stderr)
			}
		})
	}
}

// What a limit leaves out is not unknown; a turn that is not given is told.
func TestPredictionsBeyondALimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.json")
	text := `{"per_sid":[{"sid":9001,"predicted_turn":3},{"sid":"9012","predicted_turn":0},{"sid":"9005","predicted_turn":null}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := ccmedOn(t, "score", file, "--data", "sample")
	if code != exitDone || !strings.Contains(stdout, "50.0 % (1/2)") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr = ccmedOn(t, "score", file, "--data", "sample", "--limit", "1"); code != exitDone || !strings.Contains(stdout, "100.0 % (1/1)") {
		t.Errorf("limited: exit code %d\n%s%s", code, stdout, stderr)
	}
}

// Files that are no predictions say what they lack.
func TestNoPredictions(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "is no file of predictions: there is no JSON; it must look like",
		"sid,predicted_turn\n":             "is no file of predictions: not JSON: invalid character 's'",
		"{}":                               `holds no predictions; it must look like {"per_sid"`,
		`[{"sid":1}]`:                      "a JSON array stands where an object is expected",
		"\xEF\xBB\xBF{}":                   "byte order mark",
		"\xFF\xFE{\x00}\x00":               "UTF-16",
		`{"per_sid":[],"Per_SID":[]}`:      "differ in case only",
		`{"per_sid":{"9001":3}}`:           "field per_sid: a JSON object stands where a list is expected",
		`{"per_sid":[{"sid":"9001"}]} {} `: "text follows",
	} {
		file := filepath.Join(t.TempDir(), "p.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := ccmedOn(t, "score", file, "--data", "sample"); code != exitFailed || !strings.Contains(stderr, want) || !strings.Contains(stderr, file) {
			t.Errorf("%q: exit code %d, %s, want %q", text, code, stderr, want)
		}
	}
}
