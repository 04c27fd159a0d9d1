package conformance

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/lockstep-go/lockstep/quant"
)

// directed are bits that each type must be tried on: zeros, the ends of the range
// and of the subnormal numbers, infinities, quiet and signalling NaN, and what
// conversions round.
var directed = map[string][]uint64{
	"pred": {0, 1},
	"u32":  {0, 1, 2, 3, 7, 16, 31, 32, 33, 63, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x10000, 1 << 24, 1<<24 + 1, 1<<31 - 1, 1 << 31, 1<<31 + 1, 0x80808080, 0x7f7f7f7f, 0xffffffff},
	"u64":  {0, 1, 31, 32, 63, 64, 65, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<53 + 1, 1<<63 - 1, 1 << 63, math.MaxUint64},
	"u16":  {0, 1, 0x7fff, 0x8000, 0xffff},
	"f16":  {0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x3c01, 0x3800, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfe01, 0x5640},
	"bf16": {0, 0x8000, 1, 0x7f, 0x80, 0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x4000},
	"f32":  f32Bits(),
	"f64":  f64Bits(),
}

func f32Bits() []uint64 {
	var all []uint64
	for _, x := range []float32{
		0, 0x1p-149, 0x1p-127, 0x1.fffffcp-127, 0x1p-126, 0x1p-24, 0x1p-14, 0.25, 0.5, 1, 1 + 0x1p-23, 1.5, 2.5, 3, math.Pi, 65504, 65520, 100000,
		1<<24 + 2, 0x1p31, 0x1.fffffep30, 0x1p32, 0x1p100, math.MaxFloat32, float32(math.Inf(1)),
	} {
		all = append(all, uint64(math.Float32bits(x)), uint64(math.Float32bits(-x)))
	}
	return append(all, 0x7fffffff, 0x7fc00001, 0x7f800001, 0xffc00000)
}

func f64Bits() []uint64 {
	var all []uint64
	for _, x := range []float64{
		0, 0x1p-1074, 0x1p-1022, 0x1p-149, 0x1p-150, 0x1p-127, 0.5, 1, 1 + 0x1p-52, 1 + 0x1p-24, 1.5, 2.5, math.Pi, 0x1p31, 0x1p31 - 0.5, 1e6, 0x1p128,
		0x1.ffffffp127, math.MaxFloat64, math.Inf(1),
	} {
		all = append(all, math.Float64bits(x), math.Float64bits(-x))
	}
	return append(all, math.Float64bits(math.NaN()))
}

// pool are the directed bits of a type.
func pool(typ string) []uint64 {
	switch typ {
	case "b32", "s32":
		typ = "u32"
	case "b64", "s64":
		typ = "u64"
	case "b16", "s16":
		typ = "u16"
	case "f16x2", "bf16x2":
		half := directed[typ[:len(typ)-2]]
		var all []uint64
		for i, x := range half {
			all = append(all, x|half[(i+5)%len(half)]<<16)
		}
		return all
	}
	return directed[typ]
}

// randomBits is a random value of a type; a float is a number of moderate size
// rather than random bits, half of the time.
func randomBits(r *rand.Rand, typ string) uint64 {
	x := math.Ldexp(r.NormFloat64(), r.IntN(12)-6)
	if r.IntN(2) == 0 {
		x = 0
	}
	switch {
	case typ == "pred":
		return r.Uint64() & 1
	case x != 0 && typ == "f32":
		return uint64(math.Float32bits(float32(x)))
	case x != 0 && typ == "f64":
		return math.Float64bits(x)
	case x != 0 && typ == "f16":
		return uint64(quant.F32ToF16(float32(x)))
	}
	return r.Uint64() >> (64 - 8*typeBytes[typ])
}

// mostCombinations bounds how many combinations of directed values are tried; of
// more, a random choice.
const mostCombinations = 12288

// operandsOf are the values that a form is tried on, by operand: every combination
// of directed ones, or many, then random ones. There is a multiple of a CTA's.
func operandsOf(f laneForm, seed uint64) [][]uint64 {
	random := rand.New(rand.NewPCG(seed, 3))
	out := make([][]uint64, len(f.in))
	all := 1
	for _, typ := range f.in {
		all *= len(pool(typ))
	}
	n := (min(all, mostCombinations)+2048)/formThreads*formThreads + formThreads
	for i := range n {
		at := i
		if all > mostCombinations {
			at = random.IntN(all)
		}
		for j, typ := range f.in {
			v := randomBits(random, typ)
			if i < min(all, mostCombinations) {
				v = pool(typ)[at%len(pool(typ))]
				at /= len(pool(typ))
			}
			if (f.isOp("div.u", "div.s", "rem.")) && j == 1 && v == 0 {
				v = 1 // the quotient is undefined
			}
			out[j] = append(out[j], v)
		}
	}
	return out
}

// packed are values as memory holds them.
func packed(typ string, values []uint64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
		b = b[:len(b)-8+typeBytes[typ]]
	}
	return b
}

// unpacked is packed turned round.
func unpacked(typ string, b []byte) []uint64 {
	size := typeBytes[typ]
	var all []uint64
	for ; len(b) >= size; b = b[size:] {
		var word [8]byte
		copy(word[:], b[:size])
		all = append(all, binary.LittleEndian.Uint64(word[:]))
	}
	return all
}
