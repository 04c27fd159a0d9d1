package alu

import "math"

// factors has A by rows and B by columns.
type factors struct {
	a       [16]vector
	b       [8]vector
	special bool // some value is infinite or NaN
}

// vector is a row of A or a column of B.
type vector struct {
	value [4][lanes]float64 // element k at [k/lanes][k%lanes]
	exp   [4]uint64         // element k in lane k%lanes of word k/lanes
}

// An exponent takes 16 bits of a word, of which the highest stays free. It is stored
// with laneBias added, and zero's as 0: so the sum of two is positive, and if one of
// them is zero's it is below every other.
const (
	lanes     = 4
	laneBias  = 1 << 12
	laneGuard = 0x8000_8000_8000_8000
)

// maxLanes is the maximum in every lane.
func maxLanes(x, y uint64) uint64 {
	notLess := ((x | laneGuard) - y) & laneGuard // where x ≥ y
	return y ^ (x^y)&(notLess-notLess>>15)
}

func (f *factors) load(a *[32][4]uint32, b *[32][2]uint32, bf16 bool) {
	n := &binary16
	if bf16 {
		n = &bfloat16
	}
	for lane := range a {
		g, t := lane>>2, lane&3
		for r, pair := range a[lane] {
			f.put(n, &f.a[g+r&1*8], 2*t+r>>1*8, pair)
		}
		for r, pair := range b[lane] {
			f.put(n, &f.b[g], 2*t+r*8, pair)
		}
	}
}

// put sets elements k and k+1 of v, k even, to the halves of pair.
func (f *factors) put(n *narrow, v *vector, k int, pair uint32) {
	inf := uint32(n.inf)
	low, high := pair&0x7FFF, pair>>16&0x7FFF
	word, at := k/lanes&3, k%lanes&2
	x, y := &v.value[word][at], &v.value[word][at+1]
	*x, *y = n.decode(low, pair<<16), n.decode(high, pair)
	v.exp[word] |= (n.lane(low) | n.lane(high)<<16) << (16 * at)
	if low >= inf || high >= inf {
		f.special = true
		n.replaceSpecial(x, low)
		n.replaceSpecial(y, high)
	}
}

// decode is a finite number from its magnitude and, in the highest bit, its sign.
func (n *narrow) decode(magnitude, sign uint32) float64 {
	// Shifted into place the exponent is too small by the difference of the biases,
	// for subnormal numbers too.
	f := math.Float64frombits(uint64(magnitude)<<(52-n.fraction)) * n.rebias
	return math.Float64frombits(math.Float64bits(f) | uint64(sign>>31)<<63)
}

// replaceSpecial gives v, decoded from a magnitude as if it were finite, the
// infinity or NaN that it is.
func (n *narrow) replaceSpecial(v *float64, magnitude uint32) {
	switch inf := uint32(n.inf); {
	case magnitude == inf:
		*v = math.Copysign(math.Inf(1), *v)
	case magnitude > inf:
		*v = math.NaN()
	}
}

// lane is the exponent of a finite number as it is stored; subnormal numbers have
// the smallest.
func (n *narrow) lane(magnitude uint32) uint64 {
	if magnitude == 0 {
		return 0
	}
	return uint64(max(int(magnitude>>n.fraction), 1) - 1 + n.minExp + laneBias)
}
