package isa

import (
	"fmt"
	"math"
	"math/big"
	"strings"
)

// approximation is an instruction with a documented bound of its error.
type approximation struct {
	of       func(x float64) float64
	relative float64 // error bound relative to the result
	absolute float64 // added to the relative bound
	// subnormal says that subnormal operands may count as 0.
	subnormal bool
}

// approximations holds the bounds of the PTX ISA. An error of n ulp is at most n·2⁻²³ of
// the result. Results below the normal numbers may be off by one subnormal spacing, or by
// 2⁻¹²⁶ if the instruction flushes them.
var approximations = map[string]approximation{
	"ex2.approx.f32":     {math.Exp2, 2 * 0x1p-23, 0x1p-149, false},
	"ex2.approx.ftz.f32": {math.Exp2, 2 * 0x1p-23, 0x1p-126, true},
	"lg2.approx.f32":     {math.Log2, 0x1p-22, 0, false}, // absolute in (0.5, 2)
	"rcp.approx.f32":     {func(x float64) float64 { return 1 / x }, 0x1p-23, 0x1p-149, false},
	"rcp.approx.ftz.f32": {func(x float64) float64 { return 1 / x }, 0x1p-23, 0x1p-126, true},
	"rsqrt.approx.f32":   {func(x float64) float64 { return 1 / math.Sqrt(x) }, math.Exp2(-22.9), 0, false},
	"sqrt.approx.f32":    {math.Sqrt, 0x1p-23, 0x1p-149, false},
	"tanh.approx.f32":    {math.Tanh, 0x1p-11, 0x1p-126, false},
}

// check compares results with the bound and returns the largest error divided by it. NaN
// and infinities must match the limit of the function.
func (a approximation) check(f Form, x, got []uint64) (worst float64, err error) {
	f32 := floatFormats["f32"]
	for i := range x {
		in, y := f32.value(x[i]), f32.value(got[i])
		want := a.of(in)
		near := f32.value(f32.nearest(want))
		if want != want && y != y || math.IsInf(near, 0) && y == near {
			continue
		}
		bound := a.relative*math.Abs(want) + a.absolute
		if f.Op == "lg2.approx.f32" && in > 0.5 && in < 2 {
			bound = a.relative
		}
		ratio := math.Abs(y-want) / bound
		if y == want {
			ratio = 0
		}
		if a.subnormal && math.Abs(in) < 0x1p-126 && y == a.of(math.Copysign(0, in)) {
			continue
		}
		if !(ratio <= 1) {
			return ratio, fmt.Errorf("%v of %v gives %v, want %v within %.3g", f, in, y, want, bound)
		}
		worst = max(worst, ratio)
	}
	return worst, nil
}

// convertWant implements cvt by its types and rounding.
func convertWant(f LaneForm) func(x []uint64) uint64 {
	parts := strings.Split(f.form.Op, ".")[1:]
	rounding := ""
	if len(parts) == 3 {
		rounding, parts = parts[0], parts[1:]
	}
	if len(parts) != 2 {
		return nil
	}
	to, from := parts[0], parts[1]
	toFloat, intoFloat := floatFormats[strings.TrimSuffix(to, "x2")]
	fromFloat, isFloat := floatFormats[from]
	toInt, intoInt := intTypeOf(to)
	fromInt, isInt := intTypeOf(from)
	whole := integerRoundings[rounding]
	switch {
	case isInt && intoInt && rounding == "":
		register := intType{8 * typeBytes[to], false}
		return func(x []uint64) uint64 { return register.truncate(toInt.extend(fromInt.extend(x[0]))) }
	case isInt && intoFloat && rounding == "rn":
		return func(x []uint64) uint64 { return toFloat.fromInt(fromInt.big(x[0])) }
	case isFloat && intoInt && whole != nil:
		return func(x []uint64) uint64 { return toInt.fromFloat(whole(fromFloat.value(x[0])), fromFloat) }
	case isFloat && to == from && whole != nil:
		return func(x []uint64) uint64 { return toFloat.nearest(whole(fromFloat.value(x[0]))) }
	case isFloat && strings.HasSuffix(to, "x2") && rounding == "rn": // the first operand is the high half
		return func(x []uint64) uint64 {
			return toFloat.nearest(fromFloat.value(x[0]))<<16 | toFloat.nearest(fromFloat.value(x[1]))
		}
	case isFloat && intoFloat && (rounding == "rn") == (toFloat.bits < fromFloat.bits) && toFloat.bits != fromFloat.bits:
		return func(x []uint64) uint64 { return toFloat.nearest(fromFloat.value(x[0])) }
	}
	return nil
}

// integerRoundings maps the modifiers for rounding to an integer: to nearest even, toward
// zero, down, up.
var integerRoundings = map[string]func(float64) float64{
	"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil,
}

func (t floatFormat) fromInt(x *big.Int) uint64 {
	if x.Sign() == 0 {
		return 0
	}
	return t.round(new(big.Float).SetInt(x))
}

// fromFloat clamps an integer to the type. NaN gives 0, except from float64 or to 64 bits:
// then it gives the highest bit alone.
func (t intType) fromFloat(x float64, from floatFormat) uint64 {
	one := big.NewInt(1)
	least, most := new(big.Int), new(big.Int).Lsh(one, uint(t.bits))
	if t.signed {
		most.Rsh(most, 1)
		least.Neg(most)
	}
	most.Sub(most, one)
	switch {
	case x != x && from.bits < 64 && t.bits < 64:
		return 0
	case x != x:
		return 1 << (t.bits - 1)
	case math.IsInf(x, 1):
		return t.wrap(most)
	case math.IsInf(x, -1):
		return t.wrap(least)
	}
	whole, _ := big.NewFloat(x).Int(nil)
	switch {
	case whole.Cmp(most) > 0:
		whole = most
	case whole.Cmp(least) < 0:
		whole = least
	}
	return t.wrap(whole)
}

// floatFormat is a binary format of IEEE 754 with one sign bit. It has bits bits in total,
// of which fraction are fraction bits.
type floatFormat struct{ bits, fraction int }

var floatFormats = map[string]floatFormat{
	"f16": {16, 10}, "bf16": {16, 7}, "f32": {32, 23}, "f64": {64, 52},
}

// minExponent returns the exponent of the smallest normal number.
func (t floatFormat) minExponent() int { return 2 - 1<<(t.bits-t.fraction-2) }

// inf returns positive infinity. Larger magnitudes are NaN.
func (t floatFormat) inf() uint64 { return (1<<(t.bits-1-t.fraction) - 1) << t.fraction }

func (t floatFormat) sign() uint64 { return 1 << (t.bits - 1) }

func (t floatFormat) isNaN(x uint64) bool { return x&^t.sign() > t.inf() }

// value returns the number that x encodes.
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
		v = math.Ldexp(float64(fraction), t.minExponent()-t.fraction)
	default:
		v = math.Ldexp(float64(fraction|1<<t.fraction), exponent-1+t.minExponent()-t.fraction)
	}
	if x&t.sign() != 0 {
		return -v
	}
	return v
}

var half = big.NewFloat(0.5)

// round encodes a nonzero number, to nearest with ties to even.
func (t floatFormat) round(x *big.Float) uint64 {
	exponent := max(x.MantExp(nil)-1, t.minExponent())
	scaled := new(big.Float).SetMantExp(x, t.fraction-exponent)
	scaled.Abs(scaled)
	whole, _ := scaled.Int(nil)
	rest := scaled.Sub(scaled, new(big.Float).SetInt(whole)).Cmp(half)
	n := whole.Uint64()
	if rest > 0 || rest == 0 && n%2 == 1 {
		n++
	}
	// A carry out of the fraction increments the exponent, up to infinity.
	bits := min(uint64(exponent-t.minExponent())<<t.fraction+n, t.inf())
	if x.Signbit() {
		bits |= t.sign()
	}
	return bits
}

// nearest encodes a float64, to nearest with ties to even.
func (t floatFormat) nearest(x float64) uint64 {
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

// exactBits is a precision that holds sums of products of float32 exactly.
const exactBits = 768

// fused encodes a·b + c, rounded once.
func (t floatFormat) fused(a, b, c float64) uint64 {
	y := math.FMA(a, b, c)
	if t.bits == 64 || y != y || math.IsInf(y, 0) || y == 0 {
		return t.nearest(y)
	}
	sum := new(big.Float).SetPrec(exactBits).Mul(big.NewFloat(a), big.NewFloat(b))
	return t.round(sum.Add(sum, big.NewFloat(c)))
}

// floatWants maps opcodes without their type to implementations.
var floatWants = map[string]func(t floatFormat, x []uint64) uint64{
	"add.rn":  func(t floatFormat, x []uint64) uint64 { return t.fused(t.value(x[0]), 1, t.value(x[1])) },
	"sub.rn":  func(t floatFormat, x []uint64) uint64 { return t.fused(t.value(x[0]), 1, -t.value(x[1])) },
	"mul.rn":  func(t floatFormat, x []uint64) uint64 { return t.product(t.value(x[0]), t.value(x[1])) },
	"fma.rn":  func(t floatFormat, x []uint64) uint64 { return t.fused(t.value(x[0]), t.value(x[1]), t.value(x[2])) },
	"div.rn":  func(t floatFormat, x []uint64) uint64 { return t.quotient(t.value(x[0]), t.value(x[1])) },
	"rcp.rn":  func(t floatFormat, x []uint64) uint64 { return t.quotient(1, t.value(x[0])) },
	"sqrt.rn": func(t floatFormat, x []uint64) uint64 { return t.nearest(math.Sqrt(t.value(x[0]))) },
	"min":     func(t floatFormat, x []uint64) uint64 { return t.lesser(x[0], x[1]) },
	"max":     func(t floatFormat, x []uint64) uint64 { return t.lesser(x[0]^t.sign(), x[1]^t.sign()) ^ t.sign() },
	"abs":     func(t floatFormat, x []uint64) uint64 { return x[0] &^ t.sign() },
	"neg":     func(t floatFormat, x []uint64) uint64 { return x[0] ^ t.sign() },
	// the second operand with the sign of the first
	"copysign": func(t floatFormat, x []uint64) uint64 { return x[0]&t.sign() | x[1]&^t.sign() },
}

// product encodes a·b. It adds a zero with the product's sign, which keeps the sign of a
// zero result.
func (t floatFormat) product(a, b float64) uint64 {
	return t.fused(a, b, math.Copysign(0, math.Copysign(1, a)*math.Copysign(1, b)))
}

// quotient encodes a/b. Go's division rounds as IEEE 754 demands.
func (t floatFormat) quotient(a, b float64) uint64 {
	if t.bits == 32 {
		return uint64(math.Float32bits(float32(a) / float32(b)))
	}
	return t.nearest(a / b)
}

// lesser returns the smaller number. A number wins over NaN, and -0 is less than +0.
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

// floatWant implements arithmetic on a float type or on pairs of it.
func floatWant(f LaneForm) func(x []uint64) uint64 {
	typ := f.in[0]
	half, isPair := strings.CutSuffix(typ, "x2")
	format, isFloat := floatFormats[half]
	want := floatWants[strings.TrimSuffix(f.form.Op, "."+typ)]
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

// SameResult compares bits. Any two NaNs are equal.
func SameResult(typ string, a, b uint64) bool {
	if half, ok := strings.CutSuffix(typ, "x2"); ok {
		return SameResult(half, a&0xffff, b&0xffff) && SameResult(half, a>>16, b>>16)
	}
	t, isFloat := floatFormats[typ]
	return a == b || isFloat && t.isNaN(a) && t.isNaN(b)
}
