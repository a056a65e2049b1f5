package scripts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	named  = regexp.MustCompile(`(?m)^([A-Za-z0-9._-]+)==([^ \\\n]+)`)
	hashed = regexp.MustCompile(`^\S+==\S+( ; [^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n`)
)

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What is named is locked in that version, and nothing is locked without a hash.
func TestLocks(t *testing.T) {
	lists, err := filepath.Glob("requirements-*.in")
	if err != nil || len(lists) < 5 {
		t.Fatalf("lists %q, %v", lists, err)
	}
	for _, list := range lists {
		lock := text(t, strings.TrimSuffix(list, ".in")+".txt")
		for _, m := range named.FindAllStringSubmatch(text(t, list), -1) {
			name := strings.ReplaceAll(strings.ToLower(m[1]), "_", "-")
			if !strings.Contains(lock, "\n"+name+"=="+m[2]+" ") {
				t.Errorf("%s: %s %s is not locked; run scripts/lock_requirements.sh", list, name, m[2])
			}
		}
		for _, at := range named.FindAllStringIndex(lock, -1) {
			if !hashed.MatchString(lock[at[0]:]) {
				t.Errorf("%s: %s has no hash", list, lock[at[0]:at[1]])
			}
		}
	}
}

// Every script that calls pip asks for the hashes.
func TestPipTakesHashes(t *testing.T) {
	programs, err := filepath.Glob("*.sh")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, p := range programs {
		for line := range strings.Lines(text(t, p)) {
			call := strings.TrimSpace(line)
			if strings.HasPrefix(call, "#") || !regexp.MustCompile(`pip"? (install|download)|\(install `).MatchString(call) {
				continue
			}
			calls++
			if !strings.Contains(call, "--require-hashes") {
				t.Errorf("%s: %s", p, call)
			}
		}
	}
	if calls < 5 {
		t.Errorf("%d calls of pip were found", calls)
	}
}
