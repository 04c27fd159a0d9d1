package synth

import (
	"context"
	"io"
	"testing"

	"github.com/lockstep-go/lockstep/quant"
)

func BenchmarkFill(b *testing.B) {
	for _, f := range []quant.Format{quant.Q4_K, quant.Q6_K, quant.Q8_0, quant.BF16, quant.F32} {
		b.Run(f.String(), func(b *testing.B) {
			fill, err := newFiller(f, 1, "w", 0, 0.02)
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, pieceBytes/f.BlockBytes()*f.BlockBytes())
			b.SetBytes(int64(len(buf)))
			r := stream(1, "w", 0)
			for b.Loop() {
				fill.fill(buf, &r)
			}
		})
	}
}

// BenchmarkWriter makes a whole model without a disk in the way.
func BenchmarkWriter(b *testing.B) {
	for _, recipe := range []string{"q4_k_m", "bf16"} {
		b.Run(recipe, func(b *testing.B) {
			w, err := plan(b, "llama-3.2-1b", recipe, 0).Writer(context.Background(), 1, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(w.Size())
			for b.Loop() {
				if _, err := w.WriteTo(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
