package llamacpp

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// ftypes are the quantisations that Quantize offers: those that need no
// importance matrix to be of use.
var ftypes = map[string]llama.Ftype{
	"q8_0": llama.FtypeMostlyQ8_0, "q6_k": llama.FtypeMostlyQ6_K, "q5_k_m": llama.FtypeMostlyQ5_K_M,
	"q4_k_m": llama.FtypeMostlyQ4_K_M, "q4_0": llama.FtypeMostlyQ4_0, "q4_1": llama.FtypeMostlyQ4_1,
}

// Quantizations lists what Quantize offers, such as "q8_0".
func Quantizations() []string { return slices.Sorted(maps.Keys(ftypes)) }

// Quantize writes a GGUF file of 16- or 32-bit weights to another file, with
// smaller ones. It cannot be interrupted; where it fails no file is left.
func Quantize(from, to, kind string) error {
	f, ok := ftypes[strings.ToLower(kind)]
	if !ok {
		return fmt.Errorf("llamacpp: unknown quantisation %q; known are %s", kind, strings.Join(Quantizations(), ", "))
	}
	if _, _, err := loadParams(from, ""); err != nil {
		return err
	}
	p := llama.ModelQuantizeDefaultParams()
	p.Ftype = f
	takeComplaints()
	code := llama.ModelQuantize(from, to, &p)
	if st, err := os.Stat(to); code == 0 && err == nil && st.Size() > 0 {
		return nil
	}
	err := fmt.Errorf("llamacpp: quantising %s to %s failed%s; is there room on the disk?", from, kind, takeComplaints())
	if e := os.Remove(to); !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	return err
}
