package conformance

import (
	"math"
	"math/big"
	"strings"
)

// floatFormat is a binary floating-point format of IEEE 754: one sign bit, the
// exponent, and so many bits of fraction.
type floatFormat struct{ bits, fraction int }

var floatFormats = map[string]floatFormat{
	"f16": {16, 10}, "bf16": {16, 7}, "f32": {32, 23}, "f64": {64, 52},
}

// least is the exponent of the smallest normal number.
func (t floatFormat) least() int { return 2 - 1<<(t.bits-t.fraction-2) }

// inf is positive infinity; what has greater bits, without the sign, is a NaN.
func (t floatFormat) inf() uint64 { return (1<<(t.bits-1-t.fraction) - 1) << t.fraction }

func (t floatFormat) sign() uint64 { return 1 << (t.bits - 1) }

func (t floatFormat) isNaN(x uint64) bool { return x&^t.sign() > t.inf() }

// value is the number that bits stand for.
func (t floatFormat) value(x uint64) float64 {
	magnitude := x &^ t.sign()
	fraction, exponent := magnitude&(1<<t.fraction-1), int(magnitude>>t.fraction)
	var v float64
	switch {
	case t.isNaN(x):
		return math.NaN()
	case magnitude == t.inf():
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(float64(fraction), t.least()-t.fraction)
	default:
		v = math.Ldexp(float64(fraction|1<<t.fraction), exponent-1+t.least()-t.fraction)
	}
	if x&t.sign() != 0 {
		return -v
	}
	return v
}

var half = big.NewFloat(0.5)

// round is a number other than 0 in this format, to nearest with ties to even.
func (t floatFormat) round(x *big.Float) uint64 {
	exponent := max(x.MantExp(nil)-1, t.least())
	scaled := new(big.Float).SetMantExp(x, t.fraction-exponent)
	scaled.Abs(scaled)
	whole, _ := scaled.Int(nil)
	rest := scaled.Sub(scaled, new(big.Float).SetInt(whole)).Cmp(half)
	n := whole.Uint64()
	if rest > 0 || rest == 0 && n%2 == 1 {
		n++
	}
	// A carry out of the fraction makes the next exponent, or infinity, by itself.
	bits := min(uint64(exponent-t.least())<<t.fraction+n, t.inf())
	if x.Signbit() {
		bits |= t.sign()
	}
	return bits
}

// near is a float64 in this format, rounded.
func (t floatFormat) near(x float64) uint64 {
	var bits uint64
	switch {
	case x != x:
		return t.inf() | 1<<(t.fraction-1)
	case math.IsInf(x, 0):
		bits = t.inf()
	case x != 0:
		return t.round(big.NewFloat(x))
	}
	if math.Signbit(x) {
		bits |= t.sign()
	}
	return bits
}

// exactly holds sums of products of float32, whose bits span no more than this.
const exactly = 768

// fused is a·b + c, rounded once.
func (t floatFormat) fused(a, b, c float64) uint64 {
	y := math.FMA(a, b, c)
	if t.bits == 64 || y != y || math.IsInf(y, 0) || y == 0 {
		return t.near(y)
	}
	sum := new(big.Float).SetPrec(exactly).Mul(big.NewFloat(a), big.NewFloat(b))
	return t.round(sum.Add(sum, big.NewFloat(c)))
}

// floatWants are expectations by opcode without the type.
var floatWants = map[string]func(t floatFormat, x []uint64) uint64{
	"add.rn":  func(t floatFormat, x []uint64) uint64 { return t.fused(t.value(x[0]), 1, t.value(x[1])) },
	"sub.rn":  func(t floatFormat, x []uint64) uint64 { return t.fused(t.value(x[0]), 1, -t.value(x[1])) },
	"mul.rn":  func(t floatFormat, x []uint64) uint64 { return t.product(t.value(x[0]), t.value(x[1])) },
	"fma.rn":  func(t floatFormat, x []uint64) uint64 { return t.fused(t.value(x[0]), t.value(x[1]), t.value(x[2])) },
	"div.rn":  func(t floatFormat, x []uint64) uint64 { return t.quotient(t.value(x[0]), t.value(x[1])) },
	"rcp.rn":  func(t floatFormat, x []uint64) uint64 { return t.quotient(1, t.value(x[0])) },
	"sqrt.rn": func(t floatFormat, x []uint64) uint64 { return t.near(math.Sqrt(t.value(x[0]))) },
	"min":     func(t floatFormat, x []uint64) uint64 { return t.lesser(x[0], x[1]) },
	"max":     func(t floatFormat, x []uint64) uint64 { return t.lesser(x[0]^t.sign(), x[1]^t.sign()) ^ t.sign() },
	"abs":     func(t floatFormat, x []uint64) uint64 { return x[0] &^ t.sign() },
	"neg":     func(t floatFormat, x []uint64) uint64 { return x[0] ^ t.sign() },
	// The second operand with the sign of the first.
	"copysign": func(t floatFormat, x []uint64) uint64 { return x[0]&t.sign() | x[1]&^t.sign() },
}

// product is a·b. What is added to it is a zero that keeps the product's sign.
func (t floatFormat) product(a, b float64) uint64 {
	return t.fused(a, b, math.Copysign(0, math.Copysign(1, a)*math.Copysign(1, b)))
}

// quotient is a/b. The machine's own division is that of IEEE 754, too.
func (t floatFormat) quotient(a, b float64) uint64 {
	if t.bits == 32 {
		return uint64(math.Float32bits(float32(a) / float32(b)))
	}
	return t.near(a / b)
}

// lesser is the smaller of two numbers; NaN loses to a number, -0 is below +0.
func (t floatFormat) lesser(a, b uint64) uint64 {
	x, y := t.value(a), t.value(b)
	switch {
	case x != x:
		return b
	case y != y:
		return a
	case x == 0 && y == 0:
		return a | b
	case x < y:
		return a
	}
	return b
}

// floatWant is the expectation of arithmetic on a type, or on pairs of it.
func floatWant(f laneForm) func(x []uint64) uint64 {
	typ := f.in[0]
	half, isPair := strings.CutSuffix(typ, "x2")
	format, isFloat := floatFormats[half]
	want := floatWants[strings.TrimSuffix(f.op, "."+typ)]
	if want == nil || !isFloat {
		return nil
	}
	if !isPair {
		return func(x []uint64) uint64 { return want(format, x) }
	}
	return func(x []uint64) uint64 {
		low, high := make([]uint64, len(x)), make([]uint64, len(x))
		for i, v := range x {
			low[i], high[i] = v&0xffff, v>>16
		}
		return want(format, low) | want(format, high)<<16
	}
}

// sameResult compares bits; of floats any NaN equals any other.
func sameResult(typ string, a, b uint64) bool {
	if half, ok := strings.CutSuffix(typ, "x2"); ok {
		return sameResult(half, a&0xffff, b&0xffff) && sameResult(half, a>>16, b>>16)
	}
	t, isFloat := floatFormats[typ]
	return a == b || isFloat && t.isNaN(a) && t.isNaN(b)
}
