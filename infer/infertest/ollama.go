package infertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer/ollama"
)

// TestModel is the name under which StartOllama's server holds the test model.
const TestModel = "smollm2-test"

// OllamaSlots is how many requests StartOllama's server answers at a time, each
// with a prompt cache of its own.
const OllamaSlots = 4

// The environment that StartOllama reads.
const (
	EnvOllamaBin = "CCMED_OLLAMA_BIN" // an Ollama server binary; default: "ollama" on the PATH
	EnvTestModel = "CCMED_TEST_MODEL" // a small instruct model as a GGUF file
	EnvRequire   = "CCMED_REQUIRE"    // "1": a test that cannot run fails instead of skipping
)

var shared struct {
	sync.Mutex
	users int
	*server
}

type server struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	dir  string
	host string
}

// StartOllama returns the address of a real Ollama server on a free port of this
// machine, with a model folder of its own that holds TestModel. The test process
// shares one server: it starts for the first user and stops, by its own process
// group, with the last one's clean-up (with the process where TestMain calls
// Run). Without the binary or the model the test is skipped, or fails when
// CCMED_REQUIRE is 1.
func StartOllama(tb testing.TB) (host string) {
	tb.Helper()
	bin, model := requirements(tb)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s, err := start(bin, model)
		if err != nil {
			tb.Fatalf("starting Ollama for the test: %v", err)
		}
		shared.server = s
	}
	shared.users++
	tb.Cleanup(release)
	return shared.host
}

// OllamaLog returns what StartOllama's server has logged so far, at debug level.
// It must be called while the test uses the server.
func OllamaLog(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		tb.Fatal("infertest: OllamaLog without StartOllama")
	}
	b, err := os.ReadFile(filepath.Join(shared.dir, "log"))
	if err != nil {
		tb.Fatalf("reading Ollama's log: %v", err)
	}
	return string(b)
}

// ModelPath returns the GGUF file of the test model, and skips or fails the test
// as StartOllama does when there is none.
func ModelPath(tb testing.TB) string {
	tb.Helper()
	path := os.Getenv(EnvTestModel)
	if _, err := os.Stat(path); path == "" || err != nil {
		skip(tb, fmt.Sprintf("no test model: set %s to a GGUF file (`make test` does)", EnvTestModel))
	}
	return path
}

// Run runs a package's tests and keeps StartOllama's server over all of them,
// for use in TestMain: os.Exit(infertest.Run(m)).
func Run(m *testing.M) int {
	shared.Lock()
	shared.users++
	shared.Unlock()
	defer release()
	return m.Run()
}

func requirements(tb testing.TB) (bin, model string) {
	tb.Helper()
	bin = os.Getenv(EnvOllamaBin)
	if bin == "" {
		bin = "ollama"
	}
	bin, err := exec.LookPath(bin)
	if err != nil {
		skip(tb, fmt.Sprintf("no Ollama server: set %s or put ollama on the PATH (%v)", EnvOllamaBin, err))
	}
	return bin, ModelPath(tb)
}

func skip(tb testing.TB, why string) {
	tb.Helper()
	if os.Getenv(EnvRequire) == "1" {
		tb.Fatal(why)
	}
	tb.Skip(why)
}

func release() {
	shared.Lock()
	defer shared.Unlock()
	shared.users--
	if shared.users == 0 && shared.server != nil {
		shared.stop()
		shared.server = nil
	}
}

func start(bin, model string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("finding a free port: %w", err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("freeing the port: %w", err)
	}
	dir, err := os.MkdirTemp("", "ccmed-ollama-")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer log.Close()
	cmd := exec.Command(bin, "serve")
	cmd.Env = append(os.Environ(), "HOME="+dir, "OLLAMA_HOST="+addr, "OLLAMA_MODELS="+filepath.Join(dir, "models"),
		"OLLAMA_DEBUG=1", fmt.Sprintf("OLLAMA_NUM_PARALLEL=%d", OllamaSlots), "OLLAMA_KEEP_ALIVE=30m", "OLLAMA_NOPRUNE=1")
	cmd.Stdout, cmd.Stderr = log, log
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{cmd: cmd, done: make(chan struct{}), dir: dir, host: "http://" + addr}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(s.done)
	}()
	if err := s.ready(model); err != nil {
		tail, _ := os.ReadFile(log.Name())
		s.stop()
		return nil, fmt.Errorf("%w; the end of its log:\n%s", err, tail[max(0, len(tail)-2000):])
	}
	return s, nil
}

// ready waits until the server answers and gives it the model.
func (s *server) ready(model string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		resp, err := http.Get(s.host + "/api/version")
		if err == nil {
			resp.Body.Close()
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-s.done:
			return errors.New("the server ended at once")
		case <-time.After(50 * time.Millisecond):
		}
	}
	_, err := ollama.CreateLike(ctx, s.host, TestModel, model, "")
	return err
}

func (s *server) stop() {
	interrupt(s.cmd)
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
	}
	kill(s.cmd) // what is left of its group: the runner outlives a server that hangs
	<-s.done
	_ = os.RemoveAll(s.dir) // a leftover in the temporary folder is no test failure
}
