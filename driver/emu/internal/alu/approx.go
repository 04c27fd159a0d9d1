package alu

import "math"

// Approx has the operations for which the PTX ISA only bounds the error. The zero value rounds
// correctly. If Perturb is set, the result is another number within the bound. It depends on Seed,
// the operation and the operand. So code that relies on exact results fails, reproducibly.
// Results that the PTX ISA fixes (zeros, infinities, NaN, 2^0) are never perturbed.
//
// Operations whose names end in FTZ flush subnormal numbers to 0, as instructions with .ftz do. Other operations keep them.
type Approx struct {
	Seed    uint64
	Perturb bool
}

// operation makes the perturbations of different operations independent.
type operation uint64

const (
	opEx2 operation = iota + 1
	opLg2
	opRcp
	opRsqrt
	opTanh
	opSqrt
)

// Bounds of the relative error from the PTX ISA. Those of ex2 and rcp are in ulp.
const (
	lg2Bound   = 0x1p-22        // absolute for operands in [0.5, 2]
	rsqrtBound = 1.27765353e-07 // 2^-22.9, rounded down
	tanhBound  = 0x1p-11
	sqrtBound  = 0x1p-23
)

// Ex2 is ex2.approx.f32: 2^x within 2 ulp, and 1 for zeros and subnormal numbers.
func (p Approx) Ex2(x float32) float32 {
	const normal = 0x1p-126
	switch {
	case x > -normal && x < normal:
		return 1
	case x != x:
		return nan32
	case x >= 128:
		return float32(math.Inf(1))
	case x <= -150: // at most half of the smallest subnormal number, rounded to even
		return 0
	}
	y := exp2(float64(x))
	if p.Perturb {
		// Near zero the bound exceeds the value, and no power is negative.
		return max(p.perturb(opEx2, x, y, 2*ulp(y)), 0)
	}
	return roundCorrectly(x, y, exp2Pair)
}

// Ex2FTZ is ex2.approx.ftz.f32: Ex2 with subnormal results flushed to 0.
func (p Approx) Ex2FTZ(x float32) float32 {
	return flush(p.Ex2(x))
}

// Lg2 is lg2.approx.f32: log₂ x with an error of 2⁻²², absolute for x in [0.5, 2] and else
// relative.
func (p Approx) Lg2(x float32) float32 {
	switch {
	case x == 0:
		return float32(math.Inf(-1))
	case !(x > 0):
		return nan32
	case math.IsInf(float64(x), 1):
		return x
	}
	y := log2(float64(x))
	if p.Perturb {
		bound := lg2Bound
		if x < 0.5 || x > 2 {
			bound *= math.Abs(y)
		}
		return p.perturb(opLg2, x, y, bound)
	}
	return roundCorrectly(x, y, log2Pair)
}

// Rcp is rcp.approx.f32: 1/x within 1 ulp.
func (p Approx) Rcp(x float32) float32 {
	y := 1 / float64(x)
	if p.Perturb && y != 0 && math.Abs(y) <= math.MaxFloat32 {
		return p.perturb(opRcp, x, y, ulp(y))
	}
	return RcpRN(x)
}

// RcpFTZ is rcp.approx.ftz.f32: Rcp with subnormal operands and results flushed to 0.
func (p Approx) RcpFTZ(x float32) float32 { return flush(p.Rcp(flush(x))) }

// flush returns x, or 0 with the sign of x if x is subnormal.
func flush(x float32) float32 {
	if -0x1p-126 < x && x < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// Rsqrt is rsqrt.approx.f32: 1/√x with a relative error of 2^-22.9. Rsqrt(-0) is -Inf.
func (p Approx) Rsqrt(x float32) float32 {
	y := 1 / math.Sqrt(float64(x))
	switch {
	case y != y:
		return nan32
	case y == 0 || x == 0:
		return float32(y)
	case p.Perturb:
		return p.perturb(opRsqrt, x, y, float64(rsqrtBound*y))
	}
	return roundCorrectly(x, y, rsqrtPair)
}

// Tanh is tanh.approx.f32: tanh x with a relative error of 2⁻¹¹. A perturbed result may exceed 1,
// because the PTX ISA does not exclude that.
func (p Approx) Tanh(x float32) float32 {
	switch {
	case x != x:
		return nan32
	case x == 0:
		return x
	case math.IsInf(float64(x), 0):
		return float32(math.Copysign(1, float64(x)))
	}
	y := tanh(float64(x))
	if p.Perturb {
		return p.perturb(opTanh, x, y, float64(tanhBound*math.Abs(y)))
	}
	return roundCorrectly(x, y, tanhPair)
}

// Sqrt is sqrt.approx.f32: √x with a relative error of 2⁻²³. Sqrt(-0) is -0.
func (p Approx) Sqrt(x float32) float32 {
	if p.Perturb && x > 0 && x <= math.MaxFloat32 {
		y := math.Sqrt(float64(x))
		return p.perturb(opSqrt, x, y, float64(sqrtBound*y))
	}
	return SqrtRN(x)
}

// elementaryError bounds the relative error of exp2, log2, tanh and 1/√x in float64. It is
// subtracted from the bounds of perturbed results.
const elementaryError = 0x1p-49

// roundCorrectly rounds f(x) to f32, given an approximation y. If the error of y leaves the result
// in doubt, it evaluates pair, which is f in twice the precision.
func roundCorrectly(x float32, y float64, pair func(float64) double) float32 {
	margin := float64(elementaryError * y)
	below, above := float32(y-margin), float32(y+margin)
	if below == above {
		return below
	}
	exact := pair(float64(x))
	return float32(addOdd(exact.hi, exact.lo))
}

// perturb returns an f32 within bound of y, the result of op at x before rounding.
func (p Approx) perturb(op operation, x float32, y, bound float64) float32 {
	bound -= float64(elementaryError * math.Abs(y))
	within := func(r float32) bool { return math.Abs(float64(r)-y) <= bound }

	bits := hash(p.Seed ^ hash(uint64(op)<<32|uint64(math.Float32bits(x))))
	offset := float64(int64(bits)) * 0x1p-63 // in [-1, 1)
	r := float32(y + float64(offset*bound))
	if !within(r) {
		r = math.Nextafter32(r, float32(y))
	}
	if !within(r) {
		r = float32(y)
	}
	return r
}

// hash is the output function of SplitMix64 (Steele, Lea, Flood 2014).
func hash(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// ulp is the unit in the last place of an f32 of the magnitude of y, which is not zero.
func ulp(y float64) float64 {
	return math.Ldexp(1, max(math.Ilogb(y), -126)-23)
}
