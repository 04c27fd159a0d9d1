package ptxgen

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

// byteScales: two signed scales in the third plane, d in the fourth.
func (u unit) byteScales() scales {
	d := u.raw[3][0].LowF16().F32()
	pair := u.raw[2][0]
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

// head: the last plane is what packHead writes.
func (u unit) head() scales {
	h := u.last()
	d, dmin := h[0].AsF16x2().F32()
	at := u.index.AndN(7).ShlN(2)
	scale, min, high := h[1].Shr(at).AndN(15), h[2].Shr(at).AndN(15), h[3].Shr(at)
	scale = high.AndN(3).MulN(16).Add(scale)
	min = high.AndN(12).MulN(4).Add(min)
	return scales{scale: []ptx.F32{d.Mul(scale.F32())}, min: []ptx.F32{dmin.Mul(min.F32())}}
}

// sixBitScale: the last plane is d, the upper two bits of eight scales, and the
// lower four; a scale is 32 less.
func (u unit) sixBitScale() scales {
	h := u.last()
	s := u.index.AndN(7)
	low := h[1].Shr(s.ShlN(2)).AndN(15)
	high := h[0].Shr(s.ShlN(1).AddN(16)).AndN(3)
	scale := high.MulN(16).Add(low).AddN(-32).S32()
	return scales{scale: []ptx.F32{h[0].LowF16().F32().Mul(scale.F32())}}
}
