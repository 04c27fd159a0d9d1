package alu

import "math"

// Accumulate says how a tensor core sums products of f16 or bf16 and an f32.
//
// A tensor core does not round after every addition. As published (Fasi, Higham,
// Mikaitis, Pranesh 2021; Khattak, Mikaitis 2025) it takes a group of exact
// products and the accumulator, aligns all of them to the largest exponent,
// truncates each to FractionBits bits after the binary point of that exponent, adds
// what is left exactly, and rounds the sum toward zero to f32. The exponent of a
// product is the sum of its factors' exponents, whether or not the significands'
// product reaches 2. Groups follow one another, each taking the last one's sum as
// its accumulator.
//
// Before it is rounded, Hopper's sum of 16 products and an accumulator is less than
// 17/4 away from the exact one, in last places of an f32 of the largest term.
//
// What is published does not cover everything. Here a product or an accumulator
// that is zero does not take part in the alignment; and as an H200 does, a sum of
// zero is +0, one of 2¹²⁸ or more is infinite, and one between the largest f32 and
// that rounds toward zero to it.
//
// The zero value is no hardware: it adds exactly and rounds once, to nearest.
type Accumulate struct {
	FractionBits int // 1 to 45, or 0 for an exact sum
	Group        int // products in a step: 4, 8 or 16; ignored in an exact sum
}

// The known ways of accumulating m16n8k16.
var (
	Exact  = Accumulate{}
	Ampere = Accumulate{FractionBits: 24, Group: 8} // and Ada
	Hopper = Accumulate{FractionBits: 25, Group: 16}
)

// MMA16816 is D = A·B + C for one warp: A 16×16 and B 16×8 in f16 or bf16, C and D
// 16×8 in f32. Every argument has the registers of each lane; dst may be c. With
// g = lane/4 and t = lane%4, element i of a lane is
//
//	A  row g (+8 for i in 2, 3, 6, 7)  column 2t + i%2 (+8 for i ≥ 4)
//	B  row 2t + i%2 (+8 for i ≥ 2)     column g
//	C  row g (+8 for i ≥ 2)            column 2t + i%2
//
// and register r of A and B has elements 2r (low half) and 2r+1.
func (m Accumulate) MMA16816(dst *[32][4]float32, a *[32][4]uint32, b *[32][2]uint32, c *[32][4]float32, bf16 bool) {
	m.check()
	var f factors
	f.load(a, b, bf16)
	for lane := range dst {
		g, t := lane>>2, lane&3
		for i := range dst[lane] {
			row, col := &f.a[g+i>>1*8], &f.b[2*t+i&1]
			addend := c[lane][i]
			if f.special || addend-addend != 0 {
				if s := plainDot(row, col, addend); s-s != 0 {
					dst[lane][i] = canonical(float32(s))
					continue
				}
			}
			dst[lane][i] = m.dot(row, col, addend)
		}
	}
}

// dot is Σ a[i]·b[i] + addend of finite terms.
func (m Accumulate) dot(a, b *vector, addend float32) float32 {
	if m.FractionBits == 0 {
		return exactDot(a, b, addend)
	}
	for first := 0; first < len(a.exp) && addend-addend == 0; first += m.Group / lanes {
		addend = m.step(a, b, first, addend)
	}
	return addend
}

func (m Accumulate) check() {
	if m.FractionBits == 0 {
		return
	}
	if m.FractionBits < 0 || m.FractionBits > 45 || m.Group != 4 && m.Group != 8 && m.Group != 16 {
		panic("alu: no such Accumulate: FractionBits are 0 to 45, Group is 4, 8 or 16")
	}
}

// step is one addition of the tensor core: addend + Σ a[i]·b[i] over a group, of which
// the first elements are in the given word.
func (m Accumulate) step(a, b *vector, first int, addend float32) float32 {
	top := a.exp[first&3] + b.exp[first&3]
	switch m.Group {
	case 8:
		top = maxLanes(top, a.exp[(first+1)&3]+b.exp[(first+1)&3])
	case 16:
		top = maxLanes(maxLanes(top, a.exp[1]+b.exp[1]), maxLanes(a.exp[2]+b.exp[2], a.exp[3]+b.exp[3]))
	}
	top = maxLanes(top, top>>32)
	top = maxLanes(top, top>>16)
	largest := max(int(top&0xFFFF)-2*laneBias, exponent32(addend))
	if largest < -laneBias/2 { // every term is zero
		return 0
	}
	// The products are exact, and so is scaling them by a power of two. The conversion
	// truncates toward zero. Below 2^(FractionBits+2) each, they add up in an int64.
	unit := powerOfTwo(m.FractionBits - largest)
	sum := int64(float64(addend) * unit)
	for i := first; i < first+m.Group/lanes; i++ {
		x, y := &a.value[i&3], &b.value[i&3]
		sum += int64(float64(x[0]*y[0])*unit) + int64(float64(x[1]*y[1])*unit)
		sum += int64(float64(x[2]*y[2])*unit) + int64(float64(x[3]*y[3])*unit)
	}
	return towardZero(float64(sum) * powerOfTwo(largest-m.FractionBits))
}

// exponent32 is the exponent of f; that of a subnormal number is the smallest, and
// zero's is below that of every product.
func exponent32(f float32) int {
	bits := math.Float32bits(f) << 1
	if bits == 0 {
		return -2 * laneBias
	}
	return max(int(bits>>24), 1) - 127
}

// powerOfTwo is 2^k for normal results.
func powerOfTwo(k int) float64 { return math.Float64frombits(uint64(1023+k) << 52) }

// towardZero is x rounded toward zero to f32, but infinite from 2¹²⁸ on.
func towardZero(x float64) float32 {
	if a := math.Abs(x); a < 0x1p-126 || a >= 0x1p128 {
		return edgeTowardZero(x)
	}
	// Clearing what f32 has no room for takes no branch that depends on the data.
	const beyond = 1<<(52-23) - 1
	return float32(math.Float64frombits(math.Float64bits(x) &^ beyond))
}

// edgeTowardZero is towardZero where the result may be subnormal, or overflow.
func edgeTowardZero(x float64) float32 {
	f := float32(x)
	if f-f == 0 && math.Abs(float64(f)) > math.Abs(x) {
		f = math.Float32frombits(math.Float32bits(f) - 1)
	}
	return f
}
