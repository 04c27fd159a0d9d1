package ptx

import "math/bits"

// fold evaluates a 32-bit operation on two constants, or drops an operation with a neutral
// element. It lets generators write the same code for special shapes.
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

// Add emits add.u32: x + y modulo 2^32.
func (x U32) Add(y U32) U32 { return arith("add", "add.u32", x, y) }

// AddN emits add.u32 with a constant.
func (x U32) AddN(n int) U32 { return x.Add(x.b.U32(uint32(n))) }

// Sub emits sub.u32: x - y modulo 2^32.
func (x U32) Sub(y U32) U32 { return arith("sub", "sub.u32", x, y) }

// MulHigh emits mul.hi.u32: the upper 32 bits of x * y.
func (x U32) MulHigh(y U32) U32 { return apply[U32]("mul.hi.u32", x.value, y.value) }

// Mul emits mul.lo.u32: x * y modulo 2^32.
func (x U32) Mul(y U32) U32 {
	if y.op.kind == immediate {
		return x.MulN(int(uint32(y.op.n)))
	}
	return arith("mul", "mul.lo.u32", x, y)
}

// MulN emits mul.lo.u32 with a constant, or shl.b32 for a power of two.
func (x U32) MulN(n int) U32 {
	if n > 1 && n&(n-1) == 0 && x.op.kind == register {
		return x.ShlN(bits.TrailingZeros(uint(n)))
	}
	return arith("mul", "mul.lo.u32", x, x.b.N(n))
}

// Div emits div.u32: x / y, rounded down. y must not be 0.
func (x U32) Div(y U32) U32 { return apply[U32]("div.u32", x.value, y.value) }

// DivN emits div.u32 with a positive constant, or shr.u32 for a power of two.
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

// CeilDivN divides by a positive constant and rounds up. x + n must not overflow.
func (x U32) CeilDivN(n int) U32 { return x.AddN(n - 1).DivN(n) }

// Rem emits rem.u32: x modulo y. y must not be 0.
func (x U32) Rem(y U32) U32 { return apply[U32]("rem.u32", x.value, y.value) }

// RemN emits rem.u32 with a positive constant, or and.b32 for a power of two.
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

// Min emits min.u32.
func (x U32) Min(y U32) U32 { return apply[U32]("min.u32", x.value, y.value) }

// Max emits max.u32.
func (x U32) Max(y U32) U32 { return apply[U32]("max.u32", x.value, y.value) }

// And emits and.b32.
func (x U32) And(y U32) U32 { return arith("and", "and.b32", x, y) }

// AndN emits and.b32 with a constant.
func (x U32) AndN(mask uint32) U32 { return x.And(x.b.U32(mask)) }

// Or emits or.b32.
func (x U32) Or(y U32) U32 { return arith("or", "or.b32", x, y) }

// Xor emits xor.b32.
func (x U32) Xor(y U32) U32 { return apply[U32]("xor.b32", x.value, y.value) }

// Not emits not.b32: it inverts every bit.
func (x U32) Not() U32 { return apply[U32]("not.b32", x.value) }

// Shl emits shl.b32. A shift by 32 or more gives 0.
func (x U32) Shl(n U32) U32 { return apply[U32]("shl.b32", x.value, n.value) }

// ShlN emits shl.b32 with a constant from 0 to 31.
func (x U32) ShlN(n int) U32 { return x.shiftN("shl.b32", n) }

// Shr emits shr.u32, which fills with zeros. A shift by 32 or more gives 0.
func (x U32) Shr(n U32) U32 { return apply[U32]("shr.u32", x.value, n.value) }

// ShrN emits shr.u32 with a constant from 0 to 31.
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

// Field emits bfe.u32: the unsigned bit field of count bits that begins at bit pos.
func (x U32) Field(pos, count int) U32 {
	return apply[U32]("bfe.u32", x.value, x.b.N(pos).value, x.b.N(count).value)
}

// Lop3 emits lop3.b32: any bitwise function f of three operands. For bits p, q and r of x, y
// and z, bit 4p+2q+r of table is f(p, q, r). The constants LopX, LopY and LopZ combine to a
// table: (LopX & LopY) | LopZ is (x & y) | z.
func (x U32) Lop3(y, z U32, table uint8) U32 {
	return apply[U32]("lop3.b32", x.value, y.value, z.value, x.b.U32(uint32(table)).value)
}

// LopX, LopY and LopZ are the truth tables of Lop3's operands.
const (
	LopX uint8 = 0xF0
	LopY uint8 = 0xCC
	LopZ uint8 = 0xAA
)

// Prmt emits prmt.b32 with a constant selector. Nibble i of the selector chooses byte i of the
// result: 0 to 3 from x, 4 to 7 from y. Bit 3 of a nibble replicates the sign bit of that byte.
func (x U32) Prmt(y U32, selector uint32) U32 {
	return x.Permute(y, x.b.U32(selector))
}

// Permute emits prmt.b32, as Prmt, with a selector in the low 16 bits of a register.
func (x U32) Permute(y, selector U32) U32 {
	return apply[U32]("prmt.b32", x.value, y.value, selector.value)
}

// Popc emits popc.b32: the number of set bits.
func (x U32) Popc() U32 { return apply[U32]("popc.b32", x.value) }

// U64 emits cvt.u64.u32: x, zero-extended.
func (x U32) U64() U64 { return apply[U64]("cvt.u64.u32", x.value) }

// MulWide emits mul.wide.u32: all 64 bits of x * y.
func (x U32) MulWide(y U32) U64 { return apply[U64]("mul.wide.u32", x.value, y.value) }

// F32 emits cvt.rn.f32.u32: x, rounded to nearest even.
func (x U32) F32() F32 { return apply[F32]("cvt.rn.f32.u32", x.value) }

// F64 emits cvt.rn.f64.u32, which is exact.
func (x U32) F64() F64 { return apply[F64]("cvt.rn.f64.u32", x.value) }

// S32 reinterprets the bits as a signed integer. It emits nothing.
func (x U32) S32() S32 { return S32(x) }

// AsF32 emits mov.b32: it reinterprets the bits as a float32.
func (x U32) AsF32() F32 { return apply[F32]("mov.b32", x.value) }

// AsF16x2 reinterprets the bits as two float16. It emits nothing.
func (x U32) AsF16x2() F16x2 { return F16x2(x) }

// AsBF16x2 reinterprets the bits as two bfloat16. It emits nothing.
func (x U32) AsBF16x2() BF16x2 { return BF16x2(x) }

// Eq emits setp.eq.u32.
func (x U32) Eq(y U32) Pred { return apply[Pred]("setp.eq.u32", x.value, y.value) }

// Ne emits setp.ne.u32.
func (x U32) Ne(y U32) Pred { return apply[Pred]("setp.ne.u32", x.value, y.value) }

// Lt emits setp.lt.u32.
func (x U32) Lt(y U32) Pred { return apply[Pred]("setp.lt.u32", x.value, y.value) }

// Le emits setp.le.u32.
func (x U32) Le(y U32) Pred { return apply[Pred]("setp.le.u32", x.value, y.value) }

// Gt emits setp.gt.u32.
func (x U32) Gt(y U32) Pred { return apply[Pred]("setp.gt.u32", x.value, y.value) }

// Ge emits setp.ge.u32.
func (x U32) Ge(y U32) Pred { return apply[Pred]("setp.ge.u32", x.value, y.value) }

// EqN emits setp.eq.u32 with a constant.
func (x U32) EqN(n int) Pred { return x.Eq(x.b.N(n)) }

// LtN emits setp.lt.u32 with a constant.
func (x U32) LtN(n int) Pred { return x.Lt(x.b.N(n)) }

// GeN emits setp.ge.u32 with a constant.
func (x U32) GeN(n int) Pred { return x.Ge(x.b.N(n)) }

// ShrN emits shr.s32 with a constant. It fills with the sign bit.
func (x S32) ShrN(n int) S32 { return apply[S32]("shr.s32", x.value, x.b.N(n).value) }

// Lt emits setp.lt.s32.
func (x S32) Lt(y S32) Pred { return apply[Pred]("setp.lt.s32", x.value, y.value) }

// Ge emits setp.ge.s32.
func (x S32) Ge(y S32) Pred { return apply[Pred]("setp.ge.s32", x.value, y.value) }

// F64 emits cvt.rn.f64.s32, which is exact.
func (x S32) F64() F64 { return apply[F64]("cvt.rn.f64.s32", x.value) }

// U32 reinterprets the bits as an unsigned integer. It emits nothing.
func (x S32) U32() U32 { return U32(x) }

// Add emits add.u64: x + y modulo 2^64.
func (x U64) Add(y U64) U64 { return apply[U64]("add.u64", x.value, y.value) }

// Sub emits sub.u64: x - y modulo 2^64.
func (x U64) Sub(y U64) U64 { return apply[U64]("sub.u64", x.value, y.value) }

// MulHigh emits mul.hi.u64: the upper 64 bits of x * y.
func (x U64) MulHigh(y U64) U64 { return apply[U64]("mul.hi.u64", x.value, y.value) }

// Mul emits mul.lo.u64: x * y modulo 2^64.
func (x U64) Mul(y U64) U64 { return apply[U64]("mul.lo.u64", x.value, y.value) }

// ShlN emits shl.b64 with a constant.
func (x U64) ShlN(n int) U64 { return apply[U64]("shl.b64", x.value, x.b.N(n).value) }

// ShrN emits shr.u64 with a constant. It fills with zeros.
func (x U64) ShrN(n int) U64 { return apply[U64]("shr.u64", x.value, x.b.N(n).value) }

// Shr emits shr.u64, which fills with zeros. A shift by 64 or more gives 0.
func (x U64) Shr(n U32) U64 { return apply[U64]("shr.u64", x.value, n.value) }

// And emits and.b64.
func (x U64) And(y U64) U64 { return apply[U64]("and.b64", x.value, y.value) }

// Or emits or.b64.
func (x U64) Or(y U64) U64 { return apply[U64]("or.b64", x.value, y.value) }

// Ne emits setp.ne.u64.
func (x U64) Ne(y U64) Pred { return apply[Pred]("setp.ne.u64", x.value, y.value) }

// Lt emits setp.lt.u64.
func (x U64) Lt(y U64) Pred { return apply[Pred]("setp.lt.u64", x.value, y.value) }

// Ge emits setp.ge.u64.
func (x U64) Ge(y U64) Pred { return apply[Pred]("setp.ge.u64", x.value, y.value) }

// Low emits cvt.u32.u64: the low 32 bits.
func (x U64) Low() U32 { return apply[U32]("cvt.u32.u64", x.value) }

// And emits and.pred.
func (p Pred) And(q Pred) Pred { return apply[Pred]("and.pred", p.value, q.value) }

// Or emits or.pred.
func (p Pred) Or(q Pred) Pred { return apply[Pred]("or.pred", p.value, q.value) }

// Not emits not.pred.
func (p Pred) Not() Pred { return apply[Pred]("not.pred", p.value) }
