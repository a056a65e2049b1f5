package ollama_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/ollama"
)

func file(t *testing.T, content string) (path, digest string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(content))
	return path, "sha256:" + hex.EncodeToString(sum[:])
}

// The parameters are as the server's show writes them.
func TestCreateLikeTakesOverWhatShapesAnswers(t *testing.T) {
	path, digest := file(t, "weights")
	s := infertest.NewServer(t).
		On("/api/show", infertest.Response{Body: obj{
			"modelfile": "FROM x\n", "template": "T {{ .Prompt }}", "system": "Mediate.", "license": "Apache",
			"messages":   []obj{{"role": "user", "content": "hi"}},
			"parameters": "temperature                    0.6\nstop                           \"<|im_end|>\"\nstop                           \"\\n\\n\"\nnum_ctx                        4096\nuse_mmap                       true",
		}}).
		On("/api/blobs/"+digest, infertest.Response{Status: 404}, infertest.Response{Status: 201, Body: ""}).
		On("/api/create", infertest.Response{Body: obj{"status": "success"}})
	got, err := ollama.CreateLike(context.Background(), s.URL, "tuned", path, "base", "[/SPEAK]", "\n\n")
	if err != nil || got != digest {
		t.Fatalf("digest %s (%v), want %s", got, err, digest)
	}
	if asked := s.Requests("/api/show"); len(asked) != 1 || asked[0].Body["model"] != "base" {
		t.Errorf("asked to show %v", asked)
	}
	if rs := s.Requests("/api/blobs/" + digest); len(rs) != 2 || rs[1].Method != "POST" || string(rs[1].Raw) != "weights" {
		t.Errorf("uploaded %+v", rs)
	}
	body := s.Requests("/api/create")[0].Body
	want := obj{
		"model": "tuned", "name": "", "stream": false, "template": "T {{ .Prompt }}", "system": "Mediate.", "license": "Apache",
		"files":    obj{"m.gguf": digest},
		"messages": []any{obj{"role": "user", "content": "hi"}},
		"parameters": obj{"temperature": 0.6, "num_ctx": 4096.0, "use_mmap": true,
			"stop": []any{"<|im_end|>", "\n\n", "[/SPEAK]"}},
	}
	for key, w := range want {
		if !reflect.DeepEqual(body[key], w) {
			t.Errorf("%s is %#v, want %#v", key, body[key], w)
		}
	}
	if len(body) != len(want) {
		t.Errorf("asked for %v", body)
	}
}

func TestCreateLikeWithoutABase(t *testing.T) {
	path, digest := file(t, "weights")
	s := infertest.NewServer(t).
		On("/api/blobs/"+digest, infertest.Response{}).
		On("/api/create", infertest.Response{Body: obj{"status": "success"}})
	if _, err := ollama.CreateLike(context.Background(), s.URL, "tuned", path, "", "[/SPEAK]"); err != nil {
		t.Fatal(err)
	}
	body := s.Requests("/api/create")[0].Body
	if !reflect.DeepEqual(body["parameters"], obj{"stop": []any{"[/SPEAK]"}}) || body["template"] != nil {
		t.Errorf("asked for %v", body)
	}
}

func TestCreateLikeFails(t *testing.T) {
	path, digest := file(t, "weights")
	for name, c := range map[string]struct {
		parameters, status string
		path, want         string
	}{
		"no file":                {"", "success", path + "x", "m.ggufx"},
		"an odd end":             {"", "pulling", path, `the server ended with "pulling"`},
		"parameters without end": {`stop "x`, "success", path, "the parameters of base: stop"},
		"parameters of no kind":  {"num_ctx many", "success", path, "many is neither a string nor a number"},
		"parameters without":     {"num_ctx", "success", path, "has no value"},
	} {
		s := infertest.NewServer(t).
			On("/api/show", infertest.Response{Body: obj{"modelfile": "FROM x\n", "parameters": c.parameters}}).
			On("/api/blobs/"+digest, infertest.Response{}).
			On("/api/create", infertest.Response{Body: obj{"status": c.status}})
		if _, err := ollama.CreateLike(context.Background(), s.URL, "tuned", c.path, "base"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestExists(t *testing.T) {
	s := infertest.NewServer(t).On("/api/show", infertest.Response{Body: show})
	if there, err := ollama.Exists(context.Background(), s.URL, "m"); !there || err != nil {
		t.Errorf("a model: %t %v", there, err)
	}
	s.On("/api/show", infertest.Response{Status: 404, Body: obj{"error": "model 'm' not found"}})
	if there, err := ollama.Exists(context.Background(), s.URL, "m"); there || err != nil {
		t.Errorf("no model: %t %v", there, err)
	}
	s.On("/api/show", infertest.Response{Status: 500, Body: obj{"error": "broken"}})
	if _, err := ollama.Exists(context.Background(), s.URL, "m"); err == nil {
		t.Error("a broken server is no model that is missing")
	}
	if _, err := ollama.Exists(context.Background(), "127.0.0.1:1", "m"); err == nil {
		t.Error("no server is no model that is missing")
	}
}

// TestServerCreatesLike gives the real server a copy of its model with one more
// stop text, and another one like that.
func TestServerCreatesLike(t *testing.T) {
	ctx, host, path := context.Background(), infertest.StartOllama(t), infertest.ModelPath(t)
	digest, err := ollama.CreateLike(ctx, host, "like-one", path, infertest.TestModel, "[/SPEAK]")
	if err != nil {
		t.Fatal(err)
	}
	var hashes []string
	for _, name := range []string{infertest.TestModel, "like-one"} {
		b, err := ollama.New(host, name, ollama.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := b.Model(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Digest != digest {
			t.Errorf("%s has the weights %s, the file is %s", name, m.Digest, digest)
		}
		hashes = append(hashes, m.TemplateHash)
	}
	if hashes[0] != hashes[1] {
		t.Error("the copy has another template")
	}
	// Like the copy: its stop texts are taken over, none twice.
	if _, err := ollama.CreateLike(ctx, host, "like-two", path, "like-one", "[/SPEAK]"); err != nil {
		t.Fatal(err)
	}
	if there, err := ollama.Exists(ctx, host, "like-two"); err != nil || !there {
		t.Errorf("like-two exists: %t %v", there, err)
	}
}
