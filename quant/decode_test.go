package quant

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/internal/float16"
)

func eachFormat(t *testing.T, fn func(t *testing.T, f Format)) {
	for _, f := range Formats() {
		t.Run(f.String(), func(t *testing.T) { fn(t, f) })
	}
}

func TestDecodeMatchesDefinition(t *testing.T) {
	eachFormat(t, func(t *testing.T, f Format) {
		r := random(1)
		for range 20 {
			checkSpec(t, f, randomBlocks(r, f, 1+max(1, 64/f.BlockLen())))
		}
		for n := range 9 { // decoders of single weights are unrolled
			checkSpec(t, f, randomBlocks(r, f, n))
		}
	})
}

// scales lists the byte offsets of the float16 fields of a block.
var scales = map[Format][]int{
	Q4_0: {0}, Q4_1: {0, 2}, Q5_0: {0}, Q5_1: {0, 2}, Q8_0: {0},
	Q2_K: {80, 82}, Q3_K: {108}, Q4_K: {0, 2}, Q5_K: {0, 2}, Q6_K: {208}, IQ4_NL: {0}, IQ4_XS: {0},
}

// byteScales lists the byte offsets of the 8-bit scales of a block that are not integers:
// all 256 values are tested.
var byteScales = map[Format][]int{MXFP4: {0}}

func TestDecodeByteScales(t *testing.T) {
	for f, at := range byteScales {
		r := random(8)
		for scale := range 256 {
			src := randomBlocks(r, f, 4)
			for block := src; len(block) > 0; block = block[f.BlockBytes():] {
				for _, i := range at {
					block[i] = byte(scale)
				}
			}
			checkSpec(t, f, src)
		}
	}
}

func TestDecodeExtremeScales(t *testing.T) {
	tests := []struct {
		name, reason string
		half         uint16
	}{
		{"zero", "weights are 0 or −0", 0},
		{"negative zero", "signs turn around", 0x8000},
		{"smallest subnormal", "the products must not vanish", 1},
		{"largest subnormal", "another exponent than normal numbers", 0x83ff},
		{"smallest normal", "one step above", 0x400},
		{"largest", "the products must not overflow", 0x7bff},
		{"infinity", "0·∞ is NaN, everything else infinite", 0x7c00},
		{"NaN", "every weight is NaN", 0xfe01},
	}
	eachFormat(t, func(t *testing.T, f Format) {
		at, ok := scales[f]
		if !ok {
			if f.BlockLen() > 1 && byteScales[f] == nil {
				t.Error("neither scales nor byteScales says where the scales are")
			}
			return // formats of single weights have no scales
		}
		r := random(2)
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				for which := range at {
					src := randomBlocks(r, f, 4)
					for block := src; len(block) > 0; block = block[f.BlockBytes():] {
						binary.LittleEndian.PutUint16(block[at[which]:], tt.half)
						if other := at[len(at)-1-which]; other != at[which] {
							binary.LittleEndian.PutUint16(block[other:], float16.ToF16(float32(r.NormFloat64())))
						}
					}
					checkSpec(t, f, src)
				}
			})
		}
	})
}

// Flipping a bit changes some weight of its block, in at least one of several random
// blocks, and no weight of a neighboring block.
func TestDecodeReadsEveryBit(t *testing.T) {
	eachFormat(t, func(t *testing.T, f Format) {
		r := random(3)
		read := make([]bool, 8*f.BlockBytes())
		for range 10 {
			flipBits(t, f, finiteBlocks(r, f, 3), read)
		}
		for bit, ok := range read {
			if !ok {
				t.Errorf("bit %d is not read", bit)
			}
		}
	})
}

// finiteBlocks returns random blocks with scales near 1.
func finiteBlocks(r *rand.Rand, f Format, n int) []byte {
	src := randomBlocks(r, f, n)
	for block := src; len(block) > 0; block = block[f.BlockBytes():] {
		for _, at := range scales[f] {
			binary.LittleEndian.PutUint16(block[at:], float16.ToF16(float32(1+r.Float64())))
		}
		for _, at := range byteScales[f] {
			block[at] = byte(126 + r.IntN(4))
		}
		if f.BlockLen() == 1 {
			block[f.BlockBytes()-1] &= 0xbf // no exponent of all ones
		}
	}
	return src
}

// flipBits flips each bit of the second of three blocks and records in read which bits
// change a weight.
func flipBits(t *testing.T, f Format, src []byte, read []bool) {
	n, size := f.BlockLen(), f.BlockBytes()
	before := decoded[float32](f, src)
	for bit := range read {
		turn := &src[size+bit/8]
		*turn ^= 1 << (bit % 8)
		after := decoded[float32](f, src)
		*turn ^= 1 << (bit % 8)
		read[bit] = read[bit] || !slices.EqualFunc(before[n:2*n], after[n:2*n], same)
		if !slices.Equal(before[:n], after[:n]) || !slices.Equal(before[2*n:], after[2*n:]) {
			t.Fatalf("bit %d changes neighboring blocks", bit)
		}
	}
}

func TestDecodeLeavesTheRestAlone(t *testing.T) {
	eachFormat(t, func(t *testing.T, f Format) {
		src := randomBlocks(random(4), f, 5)
		before := bytes.Clone(src)
		n := 3 * f.BlockLen()
		row := make([]float64, n+2)
		row[0], row[n+1] = math.Pi, math.E
		Decode(f, row[1:n+1], src[f.BlockBytes():4*f.BlockBytes()])
		if row[0] != math.Pi || row[n+1] != math.E {
			t.Error("wrote outside the row")
		}
		if !bytes.Equal(src, before) {
			t.Error("changed its source")
		}
	})
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	eachFormat(t, func(t *testing.T, f Format) {
		src := randomBlocks(random(5), f, 4)
		narrow, wide := make([]float32, 4*f.BlockLen()), make([]float64, 4*f.BlockLen())
		allocs := testing.AllocsPerRun(10, func() {
			Decode(f, narrow, src)
			Decode(f, wide, src)
		})
		if allocs != 0 {
			t.Errorf("%v allocations", allocs)
		}
	})
}

func FuzzDecode(f *testing.F) {
	r := random(6)
	for i, format := range Formats() {
		f.Add(byte(i), randomBlocks(r, format, 2))
		f.Add(byte(i), bytes.Repeat([]byte{0}, format.BlockBytes()))
		f.Add(byte(i), bytes.Repeat([]byte{0xff}, format.BlockBytes()))
	}
	f.Fuzz(func(t *testing.T, which byte, src []byte) {
		format := Formats()[int(which)%len(Formats())]
		src = src[:len(src)/format.BlockBytes()*format.BlockBytes()]
		checkSpec(t, format, src)
		first, second := decoded[float64](format, src), decoded[float64](format, src)
		for i := range first {
			if math.Float64bits(first[i]) != math.Float64bits(second[i]) {
				t.Errorf("%v: weight %d is %v, and then %v", format, i, first[i], second[i])
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, f := range Formats() {
		b.Run(f.String()+"/float64", func(b *testing.B) { benchmarkDecode[float64](b, f) })
		b.Run(f.String()+"/float32", func(b *testing.B) { benchmarkDecode[float32](b, f) })
	}
}

// benchmarkDecode decodes a row that fits the L1 cache.
func benchmarkDecode[T float](b *testing.B, f Format) {
	const n = 4096
	r := random(7)
	src := finiteBlocks(r, f, n/f.BlockLen())
	if f.BlockLen() == 1 {
		src = encoded(b, f, gaussian(r, n)) // random bytes would give many NaN and subnormal scales
	}
	dst := make([]T, n)
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		Decode(f, dst, src)
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "weights/s")
	b.ReportMetric(b.Elapsed().Seconds()*1e9/(float64(b.N)*n), "ns/weight")
}
