package quant

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"
)

// Encoding decoded weights is exact if each block has a weight at the end of its range,
// and nearly exact if sub-blocks share a scale.
func TestEncodeAgain(t *testing.T) {
	most := map[Format]float64{F32: 0, F16: 0, BF16: 0, Q8_0: 0, Q4_0: 0, Q4_K: 0.01, Q6_K: 0.002, MXFP4: 0}
	for _, f := range encodable() {
		t.Run(f.String(), func(t *testing.T) {
			r := random(11)
			for _, x := range [][]float32{gaussian(r, 1<<15), outliers(r, 1<<15)} {
				once := decoded[float32](f, encoded(t, f, x))
				twice := decoded[float32](f, encoded(t, f, once))
				if got := relative(once, twice); !(got <= most[f]) {
					t.Errorf("error %.3g, want at most %v", got, most[f])
				}
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, f := range Formats() {
		n, size := f.BlockLen(), f.BlockBytes()
		if !f.CanEncode() {
			if err := f.Encode(make([]byte, size), make([]float32, n)); !errors.Is(err, ErrUnsupported) {
				t.Errorf("%v: error %v", f, err)
			}
			continue
		}
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 3e38, -3e38} {
			x := make([]float32, 2*n)
			x[2*n-1] = float32(v)
			err := f.Encode(make([]byte, 2*size), x)
			if want := n > 1; errors.Is(err, ErrRange) != want || (err != nil) != want {
				t.Errorf("%v: %v: error %v", f, v, err)
			}
		}
	}
}

func TestEncodeSingleWeights(t *testing.T) {
	tests := []struct {
		name string
		x    float32
		f16  float32
		bf16 float32
	}{
		{"NaN", float32(math.NaN()), float32(math.NaN()), float32(math.NaN())},
		{"infinity", float32(math.Inf(-1)), float32(math.Inf(-1)), float32(math.Inf(-1))},
		{"overflow", 1e30, float32(math.Inf(1)), 0x1.94p+99},
		{"negative zero", float32(math.Copysign(0, -1)), float32(math.Copysign(0, -1)), float32(math.Copysign(0, -1))},
		{"subnormal", 0x1.8p-24, 0x1p-23, 0x1.8p-24},
		{"rounded", 1 + 0x1p-10 + 0x1p-11, 1 + 0x1p-9, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for f, want := range map[Format]float32{F32: tt.x, F16: tt.f16, BF16: tt.bf16} {
				if got := decoded[float32](f, encoded(t, f, []float32{tt.x}))[0]; !same(got, want) {
					t.Errorf("%v: %v, want %v", f, got, want)
				}
			}
		})
	}
}

// Edge cases of the searches. The error is relative to the weights of all blocks.
func TestEncodeEdges(t *testing.T) {
	tests := []struct {
		name, reason string
		weight       func(j int, largest float64) float64
		most         float64
	}{
		{"constant", "one level is enough", func(int, float64) float64 { return 0.3 }, 1e-3},
		{"negative constant", "a minimum alone is enough", func(int, float64) float64 { return -0.3 }, 1e-3},
		{"one weight", "a sub-block beside others of zero", func(j int, _ float64) float64 { return oneAt(j, 5) }, 1e-3},
		{"one negative weight", "a sign that no minimum takes up", func(j int, _ float64) float64 { return -oneAt(j, 37) }, 1e-3},
		{"two levels", "far from zero and close together", func(j int, _ float64) float64 { return 1 + 0.01*float64(j%2) }, 1e-2},
		{"largest", "the scale just fits", func(_ int, l float64) float64 { return l }, 1e-3},
		{"largest negative", "the minimum just fits", func(_ int, l float64) float64 { return -l }, 1e-3},
		{"largest of both signs", "the widest range of all", func(j int, l float64) float64 { return l * float64(1-j%2*2) }, 0.1},
		{"subnormal scales", "float16 is coarse there", func(j int, _ float64) float64 { return 1e-5 * math.Sin(float64(j)) }, 0.1},
		{"below all scales", "no worse than zero", func(j int, _ float64) float64 { return 1e-8 * math.Sin(float64(j)) }, 1},
		{"subnormal weights", "squares would vanish in float32", func(j int, _ float64) float64 { return 1e-44 * float64(j%3) }, 1},
		{"wide range", "sub-blocks of very different size", func(j int, _ float64) float64 { return math.Ldexp(math.Cos(float64(j)), -j/32) }, 0.1},
	}
	for _, f := range encodable() {
		if f.BlockLen() == 1 {
			continue
		}
		for _, tt := range tests {
			t.Run(f.String()+"/"+tt.name, func(t *testing.T) {
				x := make([]float32, 512)
				for j := range x {
					x[j] = float32(tt.weight(j, float64(f.layout().maxAbs)))
				}
				y := decoded[float32](f, encoded(t, f, x))
				most := tt.most
				if f == MXFP4 { // the scale is a power of two, so that any weight may lie between two levels
					most = max(most, 0.2)
				}
				if got := relative(x, y); !(got <= most) {
					t.Errorf("%s: error %.3g, want at most %v", tt.reason, got, most)
				}
			})
		}
	}
}

func oneAt(j, at int) float64 {
	if j == at {
		return 0.1
	}
	return 0
}

// Zeros decode to 0, not −0.
func TestEncodeZero(t *testing.T) {
	zero := float32(math.Copysign(0, -1))
	for _, f := range encodable() {
		n := 2 * f.BlockLen()
		for i, v := range decoded[float32](f, encoded(t, f, make([]float32, n))) {
			if math.Float32bits(v) != 0 {
				t.Errorf("%v: weight %d is %v", f, i, v)
			}
		}
		for i, v := range decoded[float32](f, encoded(t, f, slices.Repeat([]float32{zero}, n))) {
			if v != 0 {
				t.Errorf("%v: weight %d of −0 is %v", f, i, v)
			}
		}
	}
}

func FuzzEncode(f *testing.F) {
	r := random(12)
	for i := range encodable() {
		f.Add(byte(i), encoded(f, F32, gaussian(r, 256)))
		f.Add(byte(i), encoded(f, F32, outliers(r, 512)))
		f.Add(byte(i), bytes.Repeat([]byte{0, 0, 0x80, 0x7f}, 256))
		f.Add(byte(i), bytes.Repeat([]byte{1, 0, 0, 0x80, 0, 0, 0, 0}, 128))
	}
	f.Fuzz(func(t *testing.T, which byte, raw []byte) {
		format := encodable()[int(which)%len(encodable())]
		x := decoded[float32](F32, raw[:len(raw)/4/format.BlockLen()*format.BlockLen()*4])
		size, err := format.RowBytes(len(x))
		if err != nil {
			t.Fatal(err)
		}
		block := make([]byte, size)
		if err := format.Encode(block, x); err != nil {
			if !errors.Is(err, ErrRange) || format.BlockLen() == 1 {
				t.Fatal(err)
			}
			return
		}
		checkSpec(t, format, block)
		if y := decoded[float32](format, block); format.BlockLen() > 1 && !(distance(x, y) <= distance(x, make([]float32, len(x)))*(1+1e-6)) {
			t.Errorf("%v: %v became %v: zeros would be nearer", format, x, y)
		}
	})
}
