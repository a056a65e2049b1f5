package activation

import (
	"encoding/binary"
	"math"

	"github.com/x448/float16"
)

// The missing mark and the plain NaN, see the package comment. Both are quiet
// NaNs, so that no processor changes them on the way.
const (
	missing32 = 0x7FC0CC3D
	nan32     = 0x7FC00000
	missing16 = 0x7E3D
	nan16     = 0x7E00
)

// maxHalf is the largest finite F16 value.
const maxHalf = 65504

// fill puts the missing mark into every value of b.
func (d DType) fill(b []byte) {
	if d == F16 {
		for i := 0; i+2 <= len(b); i += 2 {
			binary.LittleEndian.PutUint16(b[i:], missing16)
		}
		return
	}
	for i := 0; i+4 <= len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], missing32)
	}
}

// encode stores x in dst, which has d.size() bytes a value, and counts the
// values that were not finite, and those that F16 cannot hold.
func (d DType) encode(dst []byte, x []float32) (nonFinite, overflow int) {
	if d == F16 {
		for i, v := range x {
			h := uint16(float16.Fromfloat32(v))
			switch {
			case v != v:
				h = nan16
				nonFinite++
			case math.IsInf(float64(v), 0):
				nonFinite++
			case v > maxHalf:
				// Also what would be rounded down to it: not what the model said.
				h = uint16(float16.Inf(1))
				overflow++
			case v < -maxHalf:
				h = uint16(float16.Inf(-1))
				overflow++
			}
			binary.LittleEndian.PutUint16(dst[2*i:], h)
		}
		return nonFinite, overflow
	}
	for i, v := range x {
		b := math.Float32bits(v)
		if b&0x7F800000 == 0x7F800000 {
			nonFinite++
			if v != v {
				b = nan32
			}
		}
		binary.LittleEndian.PutUint32(dst[4*i:], b)
	}
	return nonFinite, 0
}

// decode reads a row into dst. The row is missing when any value is the mark;
// it then has no count of values that are not finite, and dst is all NaN.
func (d DType) decode(dst []float32, src []byte) (missing bool, nonFinite int) {
	if d == F16 {
		for i := range dst {
			h := binary.LittleEndian.Uint16(src[2*i:])
			if h&0x7C00 == 0x7C00 {
				nonFinite++
				missing = missing || h == missing16
			}
			dst[i] = float16.Frombits(h).Float32()
		}
	} else {
		for i := range dst {
			b := binary.LittleEndian.Uint32(src[4*i:])
			if b&0x7F800000 == 0x7F800000 {
				nonFinite++
				missing = missing || b == missing32
			}
			dst[i] = math.Float32frombits(b)
		}
	}
	if missing {
		for i := range dst {
			dst[i] = float32(math.NaN())
		}
		return true, 0
	}
	return false, nonFinite
}
