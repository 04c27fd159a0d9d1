package conformance

import (
	"math"
	"math/big"
	"strings"
)

// convertWant is the expectation of cvt, by its types and its rounding.
func convertWant(f laneForm) func(x []uint64) uint64 {
	parts := strings.Split(f.op, ".")[1:]
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
	whole := wholes[rounding]
	switch {
	case isInt && intoInt && rounding == "":
		register := intType{8 * typeBytes[to], false}
		return func(x []uint64) uint64 { return register.cut(toInt.extend(fromInt.extend(x[0]))) }
	case isInt && intoFloat && rounding == "rn":
		return func(x []uint64) uint64 { return toFloat.fromInt(fromInt.big(x[0])) }
	case isFloat && intoInt && whole != nil:
		return func(x []uint64) uint64 { return toInt.fromFloat(whole(fromFloat.value(x[0])), fromFloat) }
	case isFloat && to == from && whole != nil:
		return func(x []uint64) uint64 { return toFloat.near(whole(fromFloat.value(x[0]))) }
	case isFloat && strings.HasSuffix(to, "x2") && rounding == "rn": // the first goes to the high half
		return func(x []uint64) uint64 {
			return toFloat.near(fromFloat.value(x[0]))<<16 | toFloat.near(fromFloat.value(x[1]))
		}
	case isFloat && intoFloat && (rounding == "rn") == (toFloat.bits < fromFloat.bits) && toFloat.bits != fromFloat.bits:
		return func(x []uint64) uint64 { return toFloat.near(fromFloat.value(x[0])) }
	}
	return nil
}

// wholes are the roundings to whole numbers: to nearest even, toward zero, down, up.
var wholes = map[string]func(float64) float64{
	"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil,
}

func (t floatFormat) fromInt(x *big.Int) uint64 {
	if x.Sign() == 0 {
		return 0
	}
	return t.round(new(big.Float).SetInt(x))
}

// fromFloat clamps a whole number to the type. A NaN gives 0, but from a float64 or
// to 64 bits the number with only the highest bit.
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
		return t.of(most)
	case math.IsInf(x, -1):
		return t.of(least)
	}
	whole, _ := big.NewFloat(x).Int(nil)
	switch {
	case whole.Cmp(most) > 0:
		whole = most
	case whole.Cmp(least) < 0:
		whole = least
	}
	return t.of(whole)
}
