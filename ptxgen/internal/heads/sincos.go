package heads

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// sincos holds the sine and cosine of an angle times a factor, each rounded once to float32.
type sincos struct{ sin, cos ptx.F32 }

// newSincos computes the sine and cosine of an angle in radians, of at most 2^31 quarter
// turns. It subtracts quarter turns in float64, with pi/2 as a sum of two numbers (Cody and
// Waite). Taylor series give the sine and cosine of the rest, which is within ±pi/4. Their
// first omitted terms are below 2^-33.
func newSincos(b *ptx.Builder, angle ptx.F64, factor ptx.F32) sincos {
	const (
		piHalf    = math.Pi / 2
		piHalfLow = 6.123233995736766e-17 // pi/2 - float64(pi/2)
	)
	turns := angle.Mul(b.F64(2 / math.Pi)).RoundS32()
	n := turns.F64()
	r := n.FMA(b.F64(-piHalf), angle)
	r = n.FMA(b.F64(-piHalfLow), r)
	square := r.Mul(r)
	series := func(from int) ptx.F64 { // 1 - r^2/(from*(from+1)) + ...
		sum := b.F64(1)
		for i := from + 10; i >= from; i -= 2 {
			sum = square.Mul(sum).FMA(b.F64(-1/float64(i*(i+1))), b.F64(1))
		}
		return sum
	}
	factor64 := factor.F64()
	s, c := r.Mul(series(2)).Mul(factor64).F32(), series(1).Mul(factor64).F32()

	odd := turns.U32().AndN(1).EqN(1)
	flip := func(x ptx.F32, bits ptx.U32) ptx.F32 { return x.Bits().Xor(bits.AndN(2).ShlN(30)).AsF32() }
	return sincos{
		sin: flip(ptx.Select(odd, c, s), turns.U32()),
		cos: flip(ptx.Select(odd, s, c), turns.U32().AddN(1)),
	}
}

// rotate returns (x*cos - y*sin, x*sin + y*cos).
func (r sincos) rotate(x, y ptx.F32) (ptx.F32, ptx.F32) {
	return x.FMA(r.cos, y.Mul(r.sin).Neg()), x.FMA(r.sin, y.Mul(r.cos))
}
