package ptx

import "math/bits"

// Integer is a 32-bit integer.
type Integer interface{ U32 | S32 }

// fold computes a 32-bit operation on two constants, or simplifies it with a
// neutral one, so that generators may write uniform code for special shapes.
func fold(op string, x, y value) (value, bool) {
	cx, cy := x.op.kind == immediate, y.op.kind == immediate
	a, c := uint32(x.op.n), uint32(y.op.n)
	if cx && cy {
		var r uint32
		switch op {
		case "add":
			r = a + c
		case "sub":
			r = a - c
		case "mul":
			r = a * c
		case "and":
			r = a & c
		case "or":
			r = a | c
		default:
			return value{}, false
		}
		x.op.n = uint64(r)
		return x, true
	}
	switch {
	case cy && (c == 0 && (op == "add" || op == "sub" || op == "or") || c == 1 && op == "mul"):
		return x, true
	case cx && (a == 0 && (op == "add" || op == "or") || a == 1 && op == "mul"):
		return y, true
	case cy && c == 0 && (op == "mul" || op == "and"):
		return y, true
	}
	return value{}, false
}

func arith(name, op string, x, y U32) U32 {
	if v, ok := fold(name, x.value, y.value); ok {
		return U32{v}
	}
	return apply[U32](op, x.value, y.value)
}

// Add is x + y modulo 2^32.
func (x U32) Add(y U32) U32 { return arith("add", "add.u32", x, y) }

// AddN is x + n modulo 2^32.
func (x U32) AddN(n int) U32 { return x.Add(x.b.U32(uint32(n))) }

// Sub is x - y modulo 2^32.
func (x U32) Sub(y U32) U32 { return arith("sub", "sub.u32", x, y) }

// Mul is the low half of x * y.
func (x U32) Mul(y U32) U32 {
	if y.op.kind == immediate {
		return x.MulN(int(uint32(y.op.n)))
	}
	return arith("mul", "mul.lo.u32", x, y)
}

// MulN is the low half of x * n; a shift where n is a power of two.
func (x U32) MulN(n int) U32 {
	if n > 1 && n&(n-1) == 0 && x.op.kind == register {
		return x.ShlN(bits.TrailingZeros(uint(n)))
	}
	return arith("mul", "mul.lo.u32", x, x.b.N(n))
}

// MulHi is the high half of x * y.
func (x U32) MulHi(y U32) U32 { return apply[U32]("mul.hi.u32", x.value, y.value) }

// Mad is the low half of x*y + z.
func (x U32) Mad(y, z U32) U32 { return apply[U32]("mad.lo.u32", x.value, y.value, z.value) }

// DivN is x / n, rounded down; n is positive.
func (x U32) DivN(n int) U32 {
	switch {
	case n <= 0:
		x.b.fail("division by %d", n)
		return x
	case x.op.kind == immediate:
		return x.b.U32(uint32(x.op.n) / uint32(n))
	case n == 1:
		return x
	case n&(n-1) == 0:
		return x.ShrN(bits.TrailingZeros(uint(n)))
	}
	return x.Div(x.b.N(n))
}

// RemN is x modulo n; n is positive.
func (x U32) RemN(n int) U32 {
	switch {
	case n <= 0:
		x.b.fail("remainder by %d", n)
		return x
	case x.op.kind == immediate:
		return x.b.U32(uint32(x.op.n) % uint32(n))
	case n&(n-1) == 0:
		return x.AndN(uint32(n - 1))
	}
	return x.Rem(x.b.N(n))
}

// Div is x / y, rounded down; y is not 0.
func (x U32) Div(y U32) U32 { return apply[U32]("div.u32", x.value, y.value) }

// Rem is x modulo y; y is not 0.
func (x U32) Rem(y U32) U32 { return apply[U32]("rem.u32", x.value, y.value) }

// CeilDivN is x / n, rounded up; x + n must not overflow.
func (x U32) CeilDivN(n int) U32 { return x.AddN(n - 1).DivN(n) }

// Min is the smaller, Max the larger.
func (x U32) Min(y U32) U32 { return apply[U32]("min.u32", x.value, y.value) }

// Max is the larger of both.
func (x U32) Max(y U32) U32 { return apply[U32]("max.u32", x.value, y.value) }

// And is the bitwise and.
func (x U32) And(y U32) U32 { return arith("and", "and.b32", x, y) }

// AndN is the bitwise and with a constant.
func (x U32) AndN(mask uint32) U32 { return x.And(x.b.U32(mask)) }

// Or is the bitwise or.
func (x U32) Or(y U32) U32 { return arith("or", "or.b32", x, y) }

// Xor is the bitwise exclusive or.
func (x U32) Xor(y U32) U32 { return apply[U32]("xor.b32", x.value, y.value) }

// Not inverts every bit.
func (x U32) Not() U32 { return apply[U32]("not.b32", x.value) }

// ShlN shifts left by n bits, ShrN right, filling with zeros; n is 0 to 31.
func (x U32) ShlN(n int) U32 { return x.shiftN("shl.b32", n) }

// ShrN shifts right by n bits, filling with zeros.
func (x U32) ShrN(n int) U32 { return x.shiftN("shr.u32", n) }

func (x U32) shiftN(op string, n int) U32 {
	if n < 0 || n > 31 {
		x.b.fail("%s by %d", op, n)
	}
	if n == 0 {
		return x
	}
	return apply[U32](op, x.value, x.b.U32(uint32(n)).value)
}

// Shl shifts left by n bits; 32 and more give 0.
func (x U32) Shl(n U32) U32 { return apply[U32]("shl.b32", x.value, n.value) }

// Shr shifts right by n bits, filling with zeros; 32 and more give 0.
func (x U32) Shr(n U32) U32 { return apply[U32]("shr.u32", x.value, n.value) }

// Field is the unsigned number in count bits from bit pos on.
func (x U32) Field(pos, count int) U32 {
	return apply[U32]("bfe.u32", x.value, x.b.N(pos).value, x.b.N(count).value)
}

// FieldS is the signed number in count bits from bit pos on.
func (x U32) FieldS(pos, count int) S32 {
	return apply[S32]("bfe.s32", x.value, x.b.N(pos).value, x.b.N(count).value)
}

// FieldAt is Field with a position computed at run time.
func (x U32) FieldAt(pos U32, count int) U32 {
	return apply[U32]("bfe.u32", x.value, pos.value, x.b.N(count).value)
}

// Insert is x with the low count bits of field put at bit pos.
func (x U32) Insert(field U32, pos, count int) U32 {
	return apply[U32]("bfi.b32", field.value, x.value, x.b.N(pos).value, x.b.N(count).value)
}

// Lop3 computes any bitwise function of three operands: bit 4*x+2*y+z of the
// table is its value. LopX, LopY and LopZ build the table: (LopX & LopY) | LopZ.
func (x U32) Lop3(y, z U32, table uint8) U32 {
	return apply[U32]("lop3.b32", x.value, y.value, z.value, x.b.U32(uint32(table)).value)
}

// The truth tables of Lop3's operands.
const (
	LopX uint8 = 0xF0
	LopY uint8 = 0xCC
	LopZ uint8 = 0xAA
)

// Prmt picks four bytes of y:x. Nibble i of the selector says which byte becomes
// byte i: 0 to 3 are of x, 4 to 7 of y; with bit 3 its sign, eight times.
func (x U32) Prmt(y U32, selector uint32) U32 {
	return apply[U32]("prmt.b32", x.value, y.value, x.b.U32(selector).value)
}

// Permute is Prmt with a selector computed at run time, of which the low 16 bits count.
func (x U32) Permute(y, selector U32) U32 {
	return apply[U32]("prmt.b32", x.value, y.value, selector.value)
}

// Popc counts the set bits, Clz the leading zeros.
func (x U32) Popc() U32 { return apply[U32]("popc.b32", x.value) }

// Clz counts the leading zeros.
func (x U32) Clz() U32 { return apply[U32]("clz.b32", x.value) }

// Wide is x as 64 bits.
func (x U32) Wide() U64 { return apply[U64]("cvt.u64.u32", x.value) }

// MulWide is all 64 bits of x * y.
func (x U32) MulWide(y U32) U64 { return apply[U64]("mul.wide.u32", x.value, y.value) }

// F32 converts, rounding to nearest even; F64 is exact.
func (x U32) F32() F32 { return apply[F32]("cvt.rn.f32.u32", x.value) }

// F64 converts exactly.
func (x U32) F64() F64 { return apply[F64]("cvt.rn.f64.u32", x.value) }

// S32 reads the same bits as a signed number.
func (x U32) S32() S32 { return S32{x.value} }

// AsF32 reads the same bits as a float32.
func (x U32) AsF32() F32 { return apply[F32]("mov.b32", x.value) }

// AsF16x2 reads the same bits as two halves.
func (x U32) AsF16x2() F16x2 { return F16x2{x.value} }

// AsBF16x2 reads the same bits as two bfloat16.
func (x U32) AsBF16x2() BF16x2 { return BF16x2{x.value} }

// Comparisons of unsigned numbers.

// Eq is x == y.
func (x U32) Eq(y U32) Pred { return apply[Pred]("setp.eq.u32", x.value, y.value) }

// Ne is x != y.
func (x U32) Ne(y U32) Pred { return apply[Pred]("setp.ne.u32", x.value, y.value) }

// Lt is x < y.
func (x U32) Lt(y U32) Pred { return apply[Pred]("setp.lt.u32", x.value, y.value) }

// Le is x <= y.
func (x U32) Le(y U32) Pred { return apply[Pred]("setp.le.u32", x.value, y.value) }

// Gt is x > y.
func (x U32) Gt(y U32) Pred { return apply[Pred]("setp.gt.u32", x.value, y.value) }

// Ge is x >= y.
func (x U32) Ge(y U32) Pred { return apply[Pred]("setp.ge.u32", x.value, y.value) }

// EqN is x == n.
func (x U32) EqN(n int) Pred { return x.Eq(x.b.N(n)) }

// LtN is x < n.
func (x U32) LtN(n int) Pred { return x.Lt(x.b.N(n)) }

// GeN is x >= n.
func (x U32) GeN(n int) Pred { return x.Ge(x.b.N(n)) }
