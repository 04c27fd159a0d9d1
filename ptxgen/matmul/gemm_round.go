package matmul

import (
	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// halfScaled are the formats whose weights are d*(stored - center) with a float16 d.
var halfScaled = map[quant.Format]bool{quant.Q4_0: true, quant.Q5_0: true, quant.Q8_0: true, quant.IQ4_NL: true}

// rounded gives what emits weights 4j to 4j+3 of a unit, rounded to Input, two a word.
func (g *gemm) rounded(u unit) func(j int) [2]ptx.U32 {
	if g.Input == quant.F16 && halfScaled[g.Format] {
		return u.halves()
	}
	quad := u.quads()
	return func(j int) [2]ptx.U32 {
		w := quad(j)
		return [2]ptx.U32{g.round(w[0], w[1]), g.round(w[2], w[3])}
	}
}

// round makes two numbers of Input.
func (g *gemm) round(low, high ptx.F32) ptx.U32 {
	if g.Input == quant.BF16 {
		return ptx.PackBF16(low, high).Bits()
	}
	return ptx.PackF16(low, high).Bits()
}

// halves is rounded for a format of halfScaled, in half arithmetic. Stored quants have
// at most 8 bits: behind the upper byte of 1024 they are the half 1024 + stored, from
// which 1024 + center is subtracted exactly. The product with d, rounded once, is what
// the float32 weight rounds to, since that is the exact product: it has 19 bits at most.
func (u unit) halves() func(j int) [2]ptx.U32 {
	const upper = 0x64 // of the half 1024
	d := u.last()[0].LowF16().Dup()
	zero := ptx.Var(u.b.U32(uint32(float16.ToF16(float32(-1024-u.d.center))) * 0x00010001)).AsF16x2()
	bytes := u.bytes()
	return func(j int) (words [2]ptx.U32) {
		w, clean := bytes(j)
		if !clean {
			w = w.AndN(each(u.d.top))
		}
		for i, selector := range []uint32{0x4140, 0x4342} {
			stored := w.Prmt(u.b.U32(each(upper)), selector).AsF16x2()
			words[i] = stored.Add(zero).Mul(d).Bits()
		}
		return words
	}
}
