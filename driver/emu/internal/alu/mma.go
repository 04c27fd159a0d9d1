package alu

import "math"

// Accumulate describes how a tensor core sums products of f16 or bf16 and an f32 accumulator.
//
// A tensor core does not round after every addition (Fasi, Higham, Mikaitis, Pranesh 2021; Khattak,
// Mikaitis 2025). It takes a group of exact products and the accumulator, and aligns them to the
// largest exponent. It truncates each to FractionBits bits after the binary point of that
// exponent, adds these exactly, and rounds the sum toward zero to f32. The exponent of a product is
// the sum of the exponents of its factors, also if the product of the significands reaches 2. The
// sum of a group is the accumulator of the next group.
//
// For Hopper, the sum of 16 products and an accumulator differs before rounding by less than 17/4
// ulp of the largest term from the exact one.
//
// The publications leave some cases open. Here a product or an accumulator of zero does not take
// part in the alignment. As on an H200, a sum of zero is +0, a sum of 2¹²⁸ or more is infinite, and
// a sum between the largest f32 and 2¹²⁸ rounds to the largest f32.
//
// The zero value adds exactly and rounds once to nearest. No hardware does that.
type Accumulate struct {
	FractionBits int // 1 to 45, or 0 for an exact sum
	Group        int // products per group: 4, 8 or 16; unused if FractionBits is 0
}

// Ways to accumulate m16n8k16.
var (
	Exact  = Accumulate{}
	Ampere = Accumulate{FractionBits: 24, Group: 8} // and Ada
	Hopper = Accumulate{FractionBits: 25, Group: 16}
)

// MMA16816 is mma.sync.aligned.m16n8k16.row.col.f32 for one warp: D = A·B + C, with A [16, 16] and
// B [16, 8] in f16 or bf16, and C and D [16, 8] in f32. The arguments have the registers of each
// lane. dst may be c. With g = lane/4 and t = lane%4, element i of a lane is
//
//	A  row g (+8 for i in 2, 3, 6, 7)  column 2t + i%2 (+8 for i ≥ 4)
//	B  row 2t + i%2 (+8 for i ≥ 2)     column g
//	C  row g (+8 for i ≥ 2)            column 2t + i%2
//
// and register r of A and B has elements 2r, in the low half, and 2r+1.
func (m Accumulate) MMA16816(dst *[32][4]float32, a *[32][4]uint32, b *[32][2]uint32, c *[32][4]float32, bf16 bool) {
	m.check()
	var ab mmaOperands
	ab.load(a, b, bf16)
	for lane := range dst {
		g, t := lane>>2, lane&3
		for i := range dst[lane] {
			dst[lane][i] = m.add(&ab.rows[g+i>>1*8], &ab.columns[2*t+i&1], c[lane][i], ab.special)
		}
	}
}

// add is Σ a[k]·b[k] + addend. If special is not set, the elements of a and b are finite.
func (m Accumulate) add(a, b *mmaVector, addend float32, special bool) float32 {
	if special || addend-addend != 0 {
		if s := floatDot(a, b, addend); s-s != 0 {
			return canonical(float32(s))
		}
	}
	return m.dot(a, b, addend)
}

func (m Accumulate) check() {
	if m.FractionBits == 0 {
		return
	}
	if m.FractionBits < 0 || m.FractionBits > 45 || m.Group != 4 && m.Group != 8 && m.Group != 16 {
		panic("alu: invalid Accumulate: FractionBits must be 0 to 45 and Group 4, 8 or 16")
	}
}

// mmaOperands holds A by rows and B by columns.
type mmaOperands struct {
	rows    [16]mmaVector
	columns [8]mmaVector
	special bool // some element is infinite or NaN
}

// mmaVector is a row of A or a column of B. Element k is at [k/perWord][k%perWord].
type mmaVector struct {
	value [4][perWord]float64
	exp   [4]uint64 // four exponents of 16 bits per word, so that maxExps compares four at once
}

// An exponent is stored with expBias added, and that of zero as 0. So the sum of two is positive,
// and below every other sum if one of the factors is zero. The highest bit of each field stays
// free.
const (
	perWord  = 4
	expBias  = 1 << 12
	highBits = 0x8000_8000_8000_8000
)

// maxExps is the maximum of each of the four fields.
func maxExps(x, y uint64) uint64 {
	notLess := ((x | highBits) - y) & highBits // where x ≥ y
	return y ^ (x^y)&(notLess-notLess>>15)
}

func (ab *mmaOperands) load(a *[32][4]uint32, b *[32][2]uint32, bf16 bool) {
	n := &binary16
	if bf16 {
		n = &bfloat16
	}
	for lane := range a {
		g, t := lane>>2, lane&3
		for r, pair := range a[lane] {
			ab.special = ab.rows[g+r&1*8].set(n, 2*t+r>>1*8, pair) || ab.special
		}
		for r, pair := range b[lane] {
			ab.special = ab.columns[g].set(n, 2*t+r*8, pair) || ab.special
		}
	}
}

// set decodes the two halves of pair into elements k and k+1, which were zero. k is even. It reports
// whether one is infinite or NaN.
func (v *mmaVector) set(n *format16, k int, pair uint32) (special bool) {
	inf := uint32(n.inf)
	low, high := pair&0x7FFF, pair>>16&0x7FFF
	word, at := k/perWord&3, k%perWord&2
	x, y := &v.value[word][at], &v.value[word][at+1]
	*x, *y = n.decode(low, pair<<16), n.decode(high, pair)
	v.exp[word] |= (n.storedExp(low) | n.storedExp(high)<<16) << (16 * at)
	if low < inf && high < inf {
		return false
	}
	n.replaceSpecial(x, low)
	n.replaceSpecial(y, high)
	return true
}

// decode returns a finite number from its magnitude and, in the highest bit of sign, its sign.
func (n *format16) decode(magnitude, sign uint32) float64 {
	// Shifted into place, the exponent is too small by the difference of the biases. Multiplying
	// corrects it, also for subnormal numbers.
	f := math.Float64frombits(uint64(magnitude)<<(52-n.fraction)) * n.rebias
	return math.Float64frombits(math.Float64bits(f) | uint64(sign>>31)<<63)
}

// replaceSpecial corrects v, which decode made, if the magnitude is that of an infinity or NaN.
func (n *format16) replaceSpecial(v *float64, magnitude uint32) {
	switch inf := uint32(n.inf); {
	case magnitude == inf:
		*v = math.Copysign(math.Inf(1), *v)
	case magnitude > inf:
		*v = math.NaN()
	}
}

// storedExp is the biased exponent of a finite number. Subnormal numbers have the smallest exponent
// of normal ones.
func (n *format16) storedExp(magnitude uint32) uint64 {
	if magnitude == 0 {
		return 0
	}
	return uint64(max(int(magnitude>>n.fraction), 1) - 1 + n.minExp + expBias)
}

// dot is Σ a[k]·b[k] + addend of finite terms.
func (m Accumulate) dot(a, b *mmaVector, addend float32) float32 {
	if m.FractionBits == 0 {
		return exactDot(a, b, addend)
	}
	for first := 0; first < len(a.exp) && addend-addend == 0; first += m.Group / perWord {
		addend = m.addGroup(a, b, first, addend)
	}
	return addend
}

// addGroup is addend + Σ a[k]·b[k] over the group that begins in word first.
func (m Accumulate) addGroup(a, b *mmaVector, first int, addend float32) float32 {
	top := a.exp[first&3] + b.exp[first&3]
	switch m.Group {
	case 8:
		top = maxExps(top, a.exp[(first+1)&3]+b.exp[(first+1)&3])
	case 16:
		top = maxExps(maxExps(top, a.exp[1]+b.exp[1]), maxExps(a.exp[2]+b.exp[2], a.exp[3]+b.exp[3]))
	}
	top = maxExps(top, top>>32)
	top = maxExps(top, top>>16)
	largest := max(int(top&0xFFFF)-2*expBias, exponent32(addend))
	if largest < -expBias/2 { // every term is zero
		return 0
	}
	// Products are exact, and scaling by a power of two is, too. The conversion truncates toward
	// zero. Each term is below 2^(FractionBits+2), so that the sum fits an int64.
	scale := powerOfTwo(m.FractionBits - largest)
	sum := int64(float64(addend) * scale)
	for i := first; i < first+m.Group/perWord; i++ {
		x, y := &a.value[i&3], &b.value[i&3]
		sum += int64(float64(x[0]*y[0])*scale) + int64(float64(x[1]*y[1])*scale)
		sum += int64(float64(x[2]*y[2])*scale) + int64(float64(x[3]*y[3])*scale)
	}
	return towardZero(float64(sum) * powerOfTwo(largest-m.FractionBits))
}

// exponent32 is the exponent of f. Subnormal numbers have the smallest exponent of normal ones, and
// zero has one below that of every product.
func exponent32(f float32) int {
	bits := math.Float32bits(f) << 1
	if bits == 0 {
		return -2 * expBias
	}
	return max(int(bits>>24), 1) - 127
}

// powerOfTwo is 2^k, if that is a normal number.
func powerOfTwo(k int) float64 { return math.Float64frombits(uint64(1023+k) << 52) }

// towardZero rounds x toward zero to f32, and to infinity from 2¹²⁸ on.
func towardZero(x float64) float32 {
	if a := math.Abs(x); a < 0x1p-126 || a >= 0x1p128 {
		return towardZeroEdge(x)
	}
	// Clearing the bits that f32 lacks needs no branch that depends on the data.
	const beyond = 1<<(52-23) - 1
	return float32(math.Float64frombits(math.Float64bits(x) &^ beyond))
}

// towardZeroEdge is towardZero for subnormal and infinite results.
func towardZeroEdge(x float64) float32 {
	f := float32(x)
	if f-f == 0 && math.Abs(float64(f)) > math.Abs(x) {
		f = math.Float32frombits(math.Float32bits(f) - 1)
	}
	return f
}

// floatDot is Σ a[k]·b[k] + addend in float64. It is infinite or NaN exactly if a term is, because
// finite terms do not overflow.
func floatDot(a, b *mmaVector, addend float32) float64 {
	s := float64(addend)
	for i := range a.value {
		for j, x := range a.value[i] {
			s += float64(x * b.value[i][j])
		}
	}
	return s
}

// exactDot is Σ a[k]·b[k] + addend, rounded once to nearest.
func exactDot(a, b *mmaVector, addend float32) float32 {
	s, inexact := float64(addend), false
	for i := range a.value {
		for j, x := range a.value[i] {
			var rest float64
			s, rest = twoSum(s, float64(x*b.value[i][j]))
			inexact = inexact || rest != 0
		}
	}
	if !inexact {
		return float32(s)
	}
	terms := [17]float64{16: float64(addend)}
	for i := range a.value {
		for j, x := range a.value[i] {
			terms[perWord*i+j] = float64(x * b.value[i][j])
		}
	}
	return float32(sumOdd(terms[:]))
}

// sumOdd is the sum of finite terms, rounded to odd. It overwrites terms with an expansion: numbers
// of rising magnitude that do not overlap and have the same sum (Shewchuk 1997, GROW-EXPANSION).
func sumOdd(terms []float64) float64 {
	parts := terms[:0]
	for _, x := range terms {
		n := 0
		for _, part := range parts {
			var rest float64
			if x, rest = twoSum(x, part); rest != 0 {
				parts[n] = rest
				n++
			}
		}
		parts = append(parts[:n], x)
	}
	sum := 0.0
	for i := len(parts) - 1; i >= 0; i-- {
		var rest float64
		if sum, rest = twoSum(sum, parts[i]); rest != 0 {
			return odd(sum, rest) // the other parts together are less than an ulp of rest
		}
	}
	return sum
}
