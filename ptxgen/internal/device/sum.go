package device

import (
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Sum2 is a compensated sum of about twice the precision of a float32: high is the float32
// sum, low the sum of the rounding errors.
type Sum2 struct{ high, low ptx.F32 }

// NewSum2 returns a sum of 0 that Add and AddSquare can change.
func NewSum2(b *ptx.Builder) Sum2 { return Sum2{ptx.Var(b.F32(0)), ptx.Var(b.F32(0))} }

// twoSum returns x + y rounded, and its rounding error exactly (Knuth's TwoSum).
func twoSum(x, y ptx.F32) (sum, lost ptx.F32) {
	sum = x.Add(y)
	part := sum.Sub(x)
	return sum, x.Sub(sum.Sub(part)).Add(y.Sub(part))
}

// Add adds x.
func (t Sum2) Add(x ptx.F32) {
	sum, lost := twoSum(t.high, x)
	ptx.Set(t.high, sum)
	ptx.Set(t.low, t.low.Add(lost))
}

// AddSquare adds x*x, including the rounding error of the product.
func (t Sum2) AddSquare(x ptx.F32) {
	s := x.Mul(x)
	ptx.Set(t.low, t.low.Add(x.FMA(x, s.Neg())))
	t.Add(s)
}

// merge returns t + u. It is commutative to the bit.
func (t Sum2) merge(u Sum2) Sum2 {
	sum, lost := twoSum(t.high, u.high)
	return Sum2{sum, t.low.Add(u.low).Add(lost)}
}

// Value rounds the sum to a float32. If the float32 sum is infinite or NaN, so is the value.
func (t Sum2) Value(b *ptx.Builder) ptx.F32 {
	return ptx.Select(t.high.Abs().Lt(b.F32(float32(math.Inf(1)))), t.high.Add(t.low), t.high)
}

// OverWarp returns the sum over the 32 lanes by a butterfly, with the same bits in each.
func (t Sum2) OverWarp() Sum2 { return overWarp([]Sum2{t})[0] }

// overWarp returns OverWarp of each sum. Their butterflies run side by side.
func overWarp(sums []Sum2) []Sum2 {
	sums = slices.Clone(sums)
	for mask := 16; mask > 0; mask /= 2 {
		for i, t := range sums {
			sums[i] = t.merge(Sum2{ptx.ShuffleXor(t.high, mask), ptx.ShuffleXor(t.low, mask)})
		}
	}
	return sums
}
