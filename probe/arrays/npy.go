package arrays

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/x448/float16"
)

// A NumPy file (.npy) is a magic string, a version, the length of its header, a Python
// dictionary with type, order and shape, and the values
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). Libraries read
// and write whole arrays; here a layer at a time passes by.

const (
	npyMagic = "\x93NUMPY"
	npyAlign = 64
	// maxNPYHeader is far above what an array of numbers needs.
	maxNPYHeader = 1 << 16
)

// npyHeader returns the bytes before the values of an array in C order.
func npyHeader(descr string, shape []int) []byte {
	var dims strings.Builder
	for _, n := range shape {
		fmt.Fprintf(&dims, "%d, ", n)
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, strings.TrimSuffix(dims.String(), " "))
	before := len(npyMagic) + 4
	dict += strings.Repeat(" ", npyAlign-1-(before+len(dict))%npyAlign) + "\n"
	b := append([]byte(npyMagic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)))
	return append(b, dict...)
}

var (
	npyDescr   = regexp.MustCompile(`'descr':\s*'([^']*)'`)
	npyFortran = regexp.MustCompile(`'fortran_order':\s*(True|False)`)
	npyShape   = regexp.MustCompile(`'shape':\s*\(([0-9, ]*)\)`)
)

// readNPYText reads the header of an array as text and returns its whole length.
func readNPYText(r io.Reader) (text []byte, length int64, err error) {
	var start [8]byte
	if _, err := io.ReadFull(r, start[:]); err != nil || string(start[:6]) != npyMagic {
		return nil, 0, errors.New("it does not begin as a NumPy array does")
	}
	size := make([]byte, 2)
	if start[6] > 1 {
		size = make([]byte, 4)
	}
	_, err = io.ReadFull(r, size)
	n := binary.LittleEndian.Uint32(append(slices.Clone(size), 0, 0))
	if err != nil || n > maxNPYHeader {
		return nil, 0, fmt.Errorf("the header of the array claims %d bytes; at most %d are read", n, maxNPYHeader)
	}
	text = make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, 0, errors.New("it ends within the header of the array")
	}
	return text, int64(len(start) + len(size) + len(text)), nil
}

// readNPYHeader reads up to the values of an array of size bytes, and checks that they are
// as many as its shape says.
func readNPYHeader(r io.Reader, size int64) (kind numberKind, shape []int64, err error) {
	text, length, err := readNPYText(r)
	if err != nil {
		return "", nil, err
	}
	descr, order, dims := npyDescr.FindSubmatch(text), npyFortran.FindSubmatch(text), npyShape.FindSubmatch(text)
	if descr == nil || order == nil || dims == nil {
		return "", nil, errors.New("the header of the array names no type, order and shape of numbers")
	}
	if string(order[1]) == "True" {
		return "", nil, errors.New("the array lies in Fortran order; save numpy.ascontiguousarray of it")
	}
	kind, ok := npyKinds[string(descr[1])]
	if !ok {
		return "", nil, fmt.Errorf("the array has type %q; float16, float32 and float64 in little-endian order are read", descr[1])
	}
	for _, d := range strings.FieldsFunc(string(dims[1]), func(c rune) bool { return c == ',' || c == ' ' }) {
		n, err := strconv.ParseInt(d, 10, 64)
		if err != nil {
			return "", nil, fmt.Errorf("the array has the shape (%s)", dims[1])
		}
		shape = append(shape, n)
	}
	left := size - length
	for _, n := range shape {
		if n < 1 || left%n != 0 {
			left = 0
		}
		left /= max(n, 1)
	}
	if left != int64(kind.size()) {
		return "", nil, fmt.Errorf("the array has the shape %v of %s, and %d bytes of values", shape, kind, size-length)
	}
	return kind, shape, nil
}

// numberKind is a type of floating-point numbers, in the words of safetensors.
type numberKind string

const (
	kindF16  numberKind = "F16"
	kindBF16 numberKind = "BF16"
	kindF32  numberKind = "F32"
	kindF64  numberKind = "F64"
)

var npyKinds = map[string]numberKind{"<f2": kindF16, "<f4": kindF32, "<f8": kindF64}

func (k numberKind) size() int {
	switch k {
	case kindF16, kindBF16:
		return 2
	case kindF64:
		return 8
	}
	return 4
}

// decode reads little-endian numbers into dst.
func (k numberKind) decode(dst []float32, b []byte) {
	for i := range dst {
		at := b[i*k.size():]
		switch k {
		case kindF16:
			dst[i] = float16.Frombits(binary.LittleEndian.Uint16(at)).Float32()
		case kindBF16: // the upper half of a float32
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(at)) << 16)
		case kindF64:
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(at)))
		default:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(at))
		}
	}
}
