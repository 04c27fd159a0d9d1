package isa

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// edgeCases lists values that each type is tested with: zeros, the ends of the ranges of
// normal and subnormal numbers, infinities, quiet and signaling NaN, and ties.
var edgeCases = map[string][]uint64{
	"pred":  {0, 1},
	"u32":   {0, 1, 2, 3, 7, 16, 31, 32, 33, 63, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x10000, 1 << 24, 1<<24 + 1, 1<<31 - 1, 1 << 31, 1<<31 + 1, 0x80808080, 0x7f7f7f7f, 0xffffffff},
	"u64":   {0, 1, 31, 32, 63, 64, 65, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<53 + 1, 1<<63 - 1, 1 << 63, math.MaxUint64},
	"u16":   {0, 1, 0x7fff, 0x8000, 0xffff},
	"f16":   {0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x3c01, 0x3800, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfe01, 0x5640},
	"bf16":  {0, 0x8000, 1, 0x7f, 0x80, 0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x4000},
	"f32":   f32Bits(),
	"f64":   f64Bits(),
	"clamp": {31, 0, 0x1f1f, 0x181f, 0x1c03, 0x1000, 0x100f, 0x1e01, 7, 0x1003},
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
		0, 0x1p-1074, 0x1p-1022, 0x1p-149, 0x1p-150, 0x1p-127, 0.5, 1, 1 + 0x1p-52, 1 + 0x1p-24, 1.5, 2.5, math.Pi, 0x1p31, 0x1p31 - 0.5, 1e6, 0x1p63, 0x1p128,
		0x1.ffffffp127, math.MaxFloat64, math.Inf(1),
	} {
		all = append(all, math.Float64bits(x), math.Float64bits(-x))
	}
	return append(all, math.Float64bits(math.NaN()))
}

// pool returns the edge cases of a type.
func pool(typ string) []uint64 {
	if list := edgeCases[typ]; list != nil {
		return list
	}
	if half, ok := strings.CutSuffix(typ, "x2"); ok {
		var all []uint64
		for i, x := range edgeCases[half] {
			all = append(all, x|edgeCases[half][(i+5)%len(edgeCases[half])]<<16)
		}
		return all
	}
	return edgeCases[fmt.Sprintf("u%d", 8*typeBytes[typ])]
}

// randomBits returns a random value of a type. Half of the floats are numbers of moderate
// size instead of random bits.
func randomBits(r *rand.Rand, typ string) uint64 {
	format, isFloat := floatFormats[strings.TrimSuffix(typ, "x2")]
	moderate := r.IntN(2) == 0
	number := func() uint64 { return format.nearest(math.Ldexp(r.NormFloat64(), r.IntN(12)-6)) }
	switch {
	case typ == "pred":
		return r.Uint64() & 1
	case typ == "clamp":
		return edgeCases[typ][r.IntN(len(edgeCases[typ]))]
	case isFloat && moderate && strings.HasSuffix(typ, "x2"):
		return number() | number()<<16
	case isFloat && moderate:
		return number()
	}
	return r.Uint64() >> (64 - 8*typeBytes[typ])
}

// operandsOf returns the values of each operand: every combination of edge cases, or most
// random ones of them, followed by random values. The number of combinations is a multiple
// of Threads.
func operandsOf(f LaneForm, most int, seed uint64) [][]uint64 {
	random := rand.New(rand.NewPCG(seed, 3))
	out := make([][]uint64, len(f.in))
	all := 1
	for _, typ := range f.in {
		all *= len(pool(typ))
	}
	n := (min(all, most)+6144/len(f.in))/Threads*Threads + Threads
	for i := range n {
		at := i
		if all > most {
			at = random.IntN(all)
		}
		for j, typ := range f.in {
			v := randomBits(random, typ)
			if i < min(all, most) {
				v = pool(typ)[at%len(pool(typ))]
				at /= len(pool(typ))
			}
			if typ == "mask" {
				v = maskAt(f, i)
			}
			out[j] = append(out[j], f.allowed(j, v))
		}
	}
	return out
}

// allowed replaces a value of operand j for which the result is undefined.
func (f LaneForm) allowed(j int, v uint64) uint64 {
	if f.form.isOp("div.u", "div.s", "rem.") && j == 1 && v == 0 {
		return 1
	}
	return v
}

// maskAt returns the lane mask of thread i: a full warp, half a warp in one warp of four,
// and a quarter in another. Instructions that read other lanes get full masks.
func maskAt(f LaneForm, i int) uint64 {
	lane, warp := i%32, i/32
	switch {
	case f.form.isOp("shfl") || warp%4 < 2:
		return 0xffffffff
	case warp%4 == 2:
		return 0xffff << (lane / 16 * 16)
	}
	return 0x11111111 << (lane % 4)
}

// Limits on the variants with literals, per set of literal operands: literals found in
// kernels, and edge cases.
const (
	maxFound     = 10
	maxEdgeCases = 8
)

// variantsOf returns the variants to test: all operands in registers, and literals where
// the form was found with literals.
func variantsOf(f LaneForm, tuples map[string]bool, seed uint64) []variant {
	random := rand.New(rand.NewPCG(seed, 5))
	first := make(variant, len(f.in))
	for i, typ := range f.in {
		if typ == "mask" {
			first[i] = "-1"
		}
	}
	all := []variant{first}
	found := map[string][]variant{}
	for _, tuple := range slices.Sorted(maps.Keys(tuples)) {
		v, literals := f.variant(tuple)
		found[literals] = append(found[literals], v)
	}
	for _, literals := range slices.Sorted(maps.Keys(found)) {
		if !strings.Contains(literals, "1") && !slices.Contains(f.in, "mask") {
			continue
		}
		list := found[literals]
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		all = append(all, list[:min(len(list), maxFound)]...)
		for range maxEdgeCases {
			all = append(all, f.withNumbers(list[0], random))
		}
	}
	return all
}

// variant parses a tuple. In literals, each operand has a character: '1' for a literal.
func (f LaneForm) variant(tuple string) (v variant, literals string) {
	v = make(variant, len(f.in))
	for i, arg := range strings.Split(tuple, ",")[:len(f.in)] {
		switch {
		case arg == "%":
			literals += "0"
		case f.in[i] == "mask": // a literal mask is replaced by all lanes
			literals, v[i] = literals+"0", "-1"
		default:
			literals, v[i] = literals+"1", literal(f.in[i], f.allowed(i, bitsOfLiteral(f.in[i], arg)))
		}
	}
	return v, literals
}

// withNumbers replaces the literals of v by edge cases.
func (f LaneForm) withNumbers(v variant, random *rand.Rand) variant {
	out := slices.Clone(v)
	for i, typ := range f.in {
		if v[i] != "" && typ != "mask" {
			out[i] = literal(typ, f.allowed(i, pool(typ)[random.IntN(len(pool(typ)))]))
		}
	}
	return f.withinOperand(out)
}

// withinOperand keeps a literal bit field within the operand. Beyond it, ptxas folds
// constants differently from the instruction: bfe.s32 at position 33 with length 255 gives
// -1 for each sign.
func (f LaneForm) withinOperand(v variant) variant {
	n := len(f.in)
	if n < 2 || f.in[n-2] != "field" || v[n-2] == "" || v[n-1] == "" {
		return v
	}
	width := uint64(8 * typeBytes[f.Out])
	pos, length := bitsOfLiteral("field", v[n-2])%width, bitsOfLiteral("field", v[n-1])%(width+1)
	v[n-2], v[n-1] = literal("field", pos), literal("field", min(length, width-pos))
	return v
}

// literal formats a value as a PTX literal.
func literal(typ string, v uint64) string {
	switch typ {
	case "f32":
		return fmt.Sprintf("0f%08X", v)
	case "f64":
		return fmt.Sprintf("0d%016X", v)
	case "s32":
		return strconv.Itoa(int(int32(v)))
	case "s64":
		return strconv.Itoa(int(v))
	case "field": // ptxas rejects larger literals
		v &= 255
	}
	return strconv.FormatUint(v, 10)
}

// bitsOfLiteral parses a PTX literal.
func bitsOfLiteral(typ, text string) uint64 {
	digits, base := text, 0
	if strings.HasPrefix(text, "0f") || strings.HasPrefix(text, "0d") {
		digits, base = text[2:], 16
	}
	v, err := strconv.ParseUint(digits, base, 64)
	if err != nil {
		signed, err := strconv.ParseInt(digits, base, 64)
		if err != nil {
			panic(fmt.Sprintf("%q is no number", text))
		}
		v = uint64(signed)
	}
	return v & (math.MaxUint64 >> (64 - 8*typeBytes[typ]))
}

// pack encodes values as memory holds them.
func pack(typ string, values []uint64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
		b = b[:len(b)-8+typeBytes[typ]]
	}
	return b
}

// unpack decodes values of size bytes each.
func unpack(size int, b []byte) []uint64 {
	var all []uint64
	for ; len(b) >= size; b = b[size:] {
		var word [8]byte
		copy(word[:], b[:size])
		all = append(all, binary.LittleEndian.Uint64(word[:]))
	}
	return all
}
