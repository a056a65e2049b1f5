package activation

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// python runs a script with numpy and safetensors. The interpreter is
// CCMED_TEST_PYTHON, which must then have both, or else python3 if it has them.
func python(t *testing.T, dir, script string) string {
	t.Helper()
	name, named := os.LookupEnv("CCMED_TEST_PYTHON")
	if !named {
		name = "python3"
	}
	if out, err := exec.Command(name, "-c", "import numpy, safetensors").CombinedOutput(); err != nil {
		if named {
			t.Fatalf("%s has no numpy and safetensors: %v %s", name, err, out)
		}
		t.Skip("python3 with numpy and safetensors is not here (pip install numpy safetensors, CCMED_TEST_PYTHON names the interpreter)")
	}
	cmd := exec.Command(name, "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// The line of the package comment, as it stands there, and the names beside it.
func TestPythonReadsALayerInOneLine(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^//\t(x = safetensors\.safe_open.*)$`).FindSubmatch(doc)
	if line == nil {
		t.Fatal("the package comment has no line of Python")
	}
	for _, d := range []DType{F32, F16} {
		t.Run(string(d), func(t *testing.T) {
			f := mustCreate(t, t.TempDir(), spec(d))
			for l := range 3 {
				for _, s := range []int{0, 1, 3} {
					mustPut(t, f, l, s, state(l, s, 5))
				}
			}
			mustClose(t, f)
			got := python(t, filepath.Dir(f.Path()), "import json, safetensors\n"+string(line[1])+`
print(x.dtype, x.shape, x.tolist())
f = safetensors.safe_open("`+filepath.Base(f.Path())+`", "numpy")
print(f.get_slice("states").get_shape(), json.loads(f.metadata()["layers"]), f.metadata()["digest"], list(f.keys()))`)
			want := map[DType]string{F32: "float32", F16: "float16"}[d] + ` (4, 5) [[199.5, 200.5, 201.5, 202.5, 203.5], [209.5, 210.5, 211.5, 212.5, 213.5], [nan, nan, nan, nan, nan], [229.5, 230.5, 231.5, 232.5, 233.5]]
[3, 4, 5] ['embed', 'block.1', 'final_norm'] sha256:01 ['states']`
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPythonReadsAProbe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "probe.safetensors")
	if err := SaveProbe(path, probeOf("a", "b", "c"), aboutProbe{0.5, "pooled"}); err != nil {
		t.Fatal(err)
	}
	got := python(t, filepath.Dir(path), `
import hashlib, json, math
from safetensors.numpy import load_file
p, card = load_file("probe.safetensors"), json.load(open("probe.json"))
print(sorted(p), {v.dtype.name for v in p.values()})
print(p["block.1.w"].shape, p["block.1.w"][2, 4] == math.sqrt(3 + 14 + 52), p["embed.scale"][1] == 2 * math.pi)
print(card["weights"] == "sha256:" + hashlib.sha256(open("probe.safetensors", "rb").read()).hexdigest(), card["classes"], card["card"])`)
	want := `['block.1.b', 'block.1.mean', 'block.1.scale', 'block.1.w', 'embed.b', 'embed.mean', 'embed.scale', 'embed.w'] {'float64'}
(3, 5) True True
True ['a', 'b', 'c'] {'accuracy': 0.5, 'design': 'pooled'}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
