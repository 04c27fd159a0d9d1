package isa

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// intType is an integer type; b32 counts as unsigned.
type intType struct {
	bits   int
	signed bool
}

// intTypeOf parses a type name. It returns false if the type is no integer.
func intTypeOf(typ string) (intType, bool) {
	n, err := strconv.Atoi(typ[1:])
	return intType{n, typ[0] == 's'}, err == nil && strings.Contains("bus", typ[:1])
}

// truncate returns x modulo 2^bits.
func (t intType) truncate(x uint64) uint64 { return x & (math.MaxUint64 >> (64 - t.bits)) }

// extend sign- or zero-extends the low bits of x to 64 bits.
func (t intType) extend(x uint64) uint64 {
	if x = t.truncate(x); t.signed && x>>(t.bits-1) == 1 {
		x |= math.MaxUint64 << (t.bits - 1)
	}
	return x
}

func (t intType) big(x uint64) *big.Int {
	if t.signed {
		return big.NewInt(int64(t.extend(x)))
	}
	return new(big.Int).SetUint64(t.truncate(x))
}

func (t intType) less(a, b uint64) bool { return t.big(a).Cmp(t.big(b)) < 0 }

// wrap returns an integer modulo 2^bits.
func (t intType) wrap(x *big.Int) uint64 {
	return new(big.Int).And(x, new(big.Int).SetUint64(math.MaxUint64>>(64-t.bits))).Uint64()
}

func (t intType) product(a, b uint64) *big.Int { return new(big.Int).Mul(t.big(a), t.big(b)) }

func (t intType) wide() intType { return intType{2 * t.bits, t.signed} }

// intWants maps opcodes without their type to implementations.
var intWants = map[string]func(t intType, x []uint64) uint64{
	"add":    func(t intType, x []uint64) uint64 { return t.truncate(x[0] + x[1]) },
	"sub":    func(t intType, x []uint64) uint64 { return t.truncate(x[0] - x[1]) },
	"mul.lo": func(t intType, x []uint64) uint64 { return t.wrap(t.product(x[0], x[1])) },
	"mul.hi": func(t intType, x []uint64) uint64 {
		p := t.product(x[0], x[1])
		return t.wrap(p.Rsh(p, uint(t.bits)))
	},
	"mul.wide": func(t intType, x []uint64) uint64 { return t.wide().wrap(t.product(x[0], x[1])) },
	"mad.lo":   func(t intType, x []uint64) uint64 { return t.truncate(t.wrap(t.product(x[0], x[1])) + x[2]) },
	"mad.wide": func(t intType, x []uint64) uint64 {
		return t.wide().truncate(t.wide().wrap(t.product(x[0], x[1])) + x[2])
	},
	"div": func(t intType, x []uint64) uint64 { return t.wrap(new(big.Int).Quo(t.big(x[0]), t.big(x[1]))) },
	"rem": func(t intType, x []uint64) uint64 { return t.wrap(new(big.Int).Rem(t.big(x[0]), t.big(x[1]))) },
	"min": func(t intType, x []uint64) uint64 { return pick(t.less(x[0], x[1]), x[0], x[1]) },
	"max": func(t intType, x []uint64) uint64 { return pick(t.less(x[0], x[1]), x[1], x[0]) },
	"neg": func(t intType, x []uint64) uint64 { return t.truncate(-x[0]) },
	"abs": func(t intType, x []uint64) uint64 { return t.wrap(new(big.Int).Abs(t.big(x[0]))) },

	"and": func(_ intType, x []uint64) uint64 { return x[0] & x[1] },
	"or":  func(_ intType, x []uint64) uint64 { return x[0] | x[1] },
	"xor": func(_ intType, x []uint64) uint64 { return x[0] ^ x[1] },
	"not": func(t intType, x []uint64) uint64 { return t.truncate(^x[0]) },
	"shl": func(t intType, x []uint64) uint64 {
		return t.wrap(new(big.Int).Lsh(t.big(x[0]), uint(min(x[1], 64))))
	},
	"shr": func(t intType, x []uint64) uint64 {
		return t.wrap(new(big.Int).Rsh(t.big(x[0]), uint(min(x[1], 64))))
	},
	"popc": func(_ intType, x []uint64) uint64 { return uint64(bits.OnesCount64(x[0])) },
	"clz":  func(t intType, x []uint64) uint64 { return uint64(t.bits - bits.Len64(x[0])) },
	"brev": func(t intType, x []uint64) uint64 { return bits.Reverse64(x[0]) >> (64 - t.bits) },
	"bfe":  fieldOf,
	"bfi":  withField,

	// the high half of b:a shifted left, or the low half shifted right
	"shf.l.wrap": func(_ intType, x []uint64) uint64 { return (x[1]<<32 | x[0]) << (x[2] % 32) >> 32 },
	"shf.r.wrap": func(t intType, x []uint64) uint64 { return t.truncate((x[1]<<32 | x[0]) >> (x[2] % 32)) },
}

func pick(first bool, a, b uint64) uint64 {
	if first {
		return a
	}
	return b
}

// fieldOf implements bfe bit by bit. Bits beyond the operand or the field repeat the
// field's sign.
func fieldOf(t intType, x []uint64) uint64 {
	pos, n := int(x[1]&255), int(x[2]&255)
	var sign, field uint64
	if t.signed && n > 0 {
		sign = x[0] >> min(pos+n-1, t.bits-1) & 1
	}
	for i := range t.bits {
		bit := sign
		if i < n && pos+i < t.bits {
			bit = x[0] >> (pos + i) & 1
		}
		field |= bit << i
	}
	return field
}

// withField implements bfi bit by bit.
func withField(t intType, x []uint64) uint64 {
	pos, n := int(x[2]&255), int(x[3]&255)
	out := x[1]
	for i := 0; i < n && pos+i < t.bits; i++ {
		out = out&^(1<<(pos+i)) | x[0]>>i&1<<(pos+i)
	}
	return out
}

// intWant implements integer arithmetic.
func intWant(f LaneForm) func(x []uint64) uint64 {
	typ := f.in[0]
	want := intWants[strings.TrimSuffix(f.form.Op, "."+typ)]
	t, ok := intTypeOf(typ)
	if want == nil || !ok {
		return nil
	}
	return func(x []uint64) uint64 { return want(t, x) }
}

// dp4aWant adds four products of bytes. Each operand is signed or unsigned.
func dp4aWant(f LaneForm) func(x []uint64) uint64 {
	types := typesIn(f.form.Op)
	a, b := intType{8, types[0] == "s32"}, intType{8, types[1] == "s32"}
	return func(x []uint64) uint64 {
		sum := x[2]
		for i := range 4 {
			sum += a.extend(x[0]>>(8*i)) * b.extend(x[1]>>(8*i))
		}
		return sum & math.MaxUint32
	}
}
