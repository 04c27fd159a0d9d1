package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-go/lockstep/internal/portable"
)

// The fused loops return the bits of decoding and multiplying, on random blocks that
// include infinities and NaNs.
func TestDotIsDecodeThenMultiply(t *testing.T) {
	for _, f := range Formats() {
		t.Run(f.String(), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(9, uint64(f)))
			finite := 0
			for range 400 {
				n := f.BlockLen() * (1 + rng.IntN(4))
				src := make([]byte, n/f.BlockLen()*f.BlockBytes())
				for i := range src {
					src[i] = byte(rng.Uint32())
				}
				x, w := make([]float64, n), make([]float64, n)
				for i := range x {
					x[i] = rng.NormFloat64()
				}
				Decode(f, w, src)
				want, got := portable.Dot(w, x), Dot(f, src, x, make([]float64, n))
				if math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
					t.Fatalf("%d weights: %v, want %v", n, got, want)
				}
				if !math.IsNaN(want) && !math.IsInf(want, 0) {
					finite++
				}
			}
			if finite < 100 {
				t.Errorf("only %d of 400 sums were finite", finite)
			}
		})
	}
}

// BenchmarkDot compares the fused loops with decoding and multiplying.
func BenchmarkDot(b *testing.B) {
	const n = 1024
	for _, f := range []Format{Q8_0, Q4_K, Q6_K} {
		rng := rand.New(rand.NewPCG(9, uint64(f)))
		w, x, scratch := make([]float32, n), make([]float64, n), make([]float64, n)
		for i := range x {
			w[i], x[i] = float32(rng.NormFloat64()), rng.NormFloat64()
		}
		src := make([]byte, n/f.BlockLen()*f.BlockBytes())
		if err := f.Encode(src, w); err != nil {
			b.Fatal(err)
		}
		for _, way := range []struct {
			name string
			run  func()
		}{
			{"direct", func() { Dot(f, src, x, nil) }},
			{"decode first", func() { Decode(f, scratch, src); portable.Dot(scratch, x) }},
		} {
			b.Run(f.String()+"/"+way.name, func(b *testing.B) {
				for b.Loop() {
					way.run()
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/n, "ns/weight")
			})
		}
	}
}
