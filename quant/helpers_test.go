package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// random returns a source with a fixed seed.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x5eed)) }

// randomBlocks returns n blocks of random bytes. Scales may be infinite or NaN.
func randomBlocks(r *rand.Rand, f Format, n int) []byte {
	b := make([]byte, n*f.BlockBytes())
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// gaussian returns n weights with the deviation of a trained matrix.
func gaussian(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64() * 0.02)
	}
	return x
}

// outliers returns Gaussian weights, one in a hundred 30 times larger.
func outliers(r *rand.Rand, n int) []float32 {
	x := gaussian(r, n)
	for i := range x {
		if r.IntN(100) == 0 {
			x[i] *= 30
		}
	}
	return x
}

func decoded[T float](f Format, src []byte) []T {
	dst := make([]T, len(src)/f.BlockBytes()*f.BlockLen())
	Decode(f, dst, src)
	return dst
}

func encoded(t testing.TB, f Format, x []float32) []byte {
	t.Helper()
	n, err := f.RowBytes(len(x))
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	if err := f.Encode(b, x); err != nil {
		t.Fatal(err)
	}
	return b
}

// encodable returns the formats that Encode can write.
func encodable() (all []Format) {
	for _, f := range Formats() {
		if f.CanEncode() {
			all = append(all, f)
		}
	}
	return all
}

// same reports whether the bits are equal or both are NaN.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// checkSpec compares both decoders with the definition.
func checkSpec(t testing.TB, f Format, src []byte) {
	t.Helper()
	narrow, wide := decoded[float32](f, src), decoded[float64](f, src)
	for i, got := range narrow {
		block := src[i/f.BlockLen()*f.BlockBytes():][:f.BlockBytes()]
		want := specs[f](block, i%f.BlockLen())
		if !same(got, want) {
			t.Fatalf("%v: weight %d is %v (%#08x), want %v (%#08x), of block %x",
				f, i, got, math.Float32bits(got), want, math.Float32bits(want), block)
		}
		if exact := float64(got); wide[i] != exact && got == got ||
			math.Signbit(wide[i]) != math.Signbit(exact) || (wide[i] != wide[i]) != (got != got) {
			t.Fatalf("%v: weight %d is %v as float32, %v as float64", f, i, got, wide[i])
		}
	}
}

// distance returns Σ(x − y)².
func distance(x, y []float32) (sum float64) {
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += d * d
	}
	return sum
}

// relative returns ‖x − y‖/‖x‖.
func relative(x, y []float32) float64 {
	return math.Sqrt(distance(x, y) / distance(x, make([]float32, len(x))))
}

// mustPanic runs fn and fails unless it panics.
func mustPanic(t *testing.T, fn func()) {
	t.Helper()
	defer func() {
		if p := recover(); p == nil {
			t.Error("no panic")
		} else if text := fmt.Sprint(p); len(text) < 6 || text[:6] != "quant:" {
			t.Errorf("panic %q is not this package's", text)
		}
	}()
	fn()
}
