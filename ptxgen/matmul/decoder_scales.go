package matmul

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The methods of this file read the scales. All products are exact: a float16 has 11
// significant bits, a small scale at most 7.

// powerOfTwo is 2^n.
func powerOfTwo(n int) float32 { return float32(math.Ldexp(1, n)) }

func (u unit) last() []ptx.U32 { return u.raw[len(u.raw)-1] }

// lastHalf: the last plane is d.
func (u unit) lastHalf() scales {
	return scales{scale: []ptx.F32{u.last()[0].LowF16().F32()}}
}

// scaleAndOffset: the last plane is d and m, and a weight is d*q + m.
func (u unit) scaleAndOffset() scales {
	d, m := u.last()[0].AsF16x2().F32()
	return scales{scale: []ptx.F32{d}, min: []ptx.F32{m.Neg()}}
}

// byteScales: two signed scales in the last plane but one, d in the last.
func (u unit) byteScales() scales {
	d := u.last()[0].LowF16().F32()
	pair := u.raw[len(u.raw)-2][0]
	return scales{scale: []ptx.F32{d.Mul(pair.FieldS(0, 8).F32()), d.Mul(pair.FieldS(8, 8).F32())}}
}

// nibbleScales: two scales and minimums of four bits in the second plane, d and dmin
// in the third.
func (u unit) nibbleScales() scales {
	d, dmin := u.raw[2][0].AsF16x2().F32()
	four := func(at int) ptx.F32 { return u.raw[1][0].Field(at, 4).F32() }
	return scales{
		scale: []ptx.F32{d.Mul(four(0)), d.Mul(four(8))},
		min:   []ptx.F32{dmin.Mul(four(4)), dmin.Mul(four(12))},
	}
}

// sixBits is six bits for sub-block s of eight: those of the first four are the low bits
// of the bytes of w; of the others low has four, the upper ends of w's bytes two.
func sixBits(w, low, s ptx.U32) ptx.U32 {
	at := s.AndN(3).ShlN(3)
	byte := w.Shr(at)
	second := byte.ShrN(2).AndN(0x30).Or(low.AndN(15))
	return ptx.Select(s.LtN(4), byte.AndN(63), second)
}

// head: the last plane is d, dmin, scales and minimums as the file has them.
func (u unit) head() scales {
	h, s := u.last(), u.index.AndN(7)
	d, dmin := h[0].AsF16x2().F32()
	low := h[3].Shr(s.AndN(3).ShlN(3))
	return scales{
		scale: []ptx.F32{d.Mul(sixBits(h[1], low, s).F32())},
		min:   []ptx.F32{dmin.Mul(sixBits(h[2], low.ShrN(4), s).F32())},
	}
}

// sixBitScale: the last plane is what packIQ4_XS writes; a scale is 32 less.
func (u unit) sixBitScale() scales {
	h, s := u.last(), u.index.AndN(7)
	low := h[0].ShrN(16).Shr(s.AndN(3).ShlN(2))
	scale := sixBits(h[1], low, s).AddN(-32).S32()
	return scales{scale: []ptx.F32{h[0].LowF16().F32().Mul(scale.F32())}}
}
