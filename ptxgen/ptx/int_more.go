package ptx

// Add is x + y modulo 2^32.
func (x S32) Add(y S32) S32 { return apply[S32]("add.s32", x.value, y.value) }

// Sub is x - y modulo 2^32.
func (x S32) Sub(y S32) S32 { return apply[S32]("sub.s32", x.value, y.value) }

// Mul is the low half of x * y.
func (x S32) Mul(y S32) S32 { return apply[S32]("mul.lo.s32", x.value, y.value) }

// Mad is the low half of x * y, plus z modulo 2^32.
func (x S32) Mad(y, z S32) S32 { return apply[S32]("mad.lo.s32", x.value, y.value, z.value) }

// Min is the smaller of both.
func (x S32) Min(y S32) S32 { return apply[S32]("min.s32", x.value, y.value) }

// Max is the larger of both.
func (x S32) Max(y S32) S32 { return apply[S32]("max.s32", x.value, y.value) }

// Neg is -x.
func (x S32) Neg() S32 { return apply[S32]("neg.s32", x.value) }

// ShrN shifts right by n bits, repeating the sign.
func (x S32) ShrN(n int) S32 { return apply[S32]("shr.s32", x.value, x.b.N(n).value) }

// Lt is x < y.
func (x S32) Lt(y S32) Pred { return apply[Pred]("setp.lt.s32", x.value, y.value) }

// Ge is x >= y.
func (x S32) Ge(y S32) Pred { return apply[Pred]("setp.ge.s32", x.value, y.value) }

// F32 converts, rounding to nearest even.
func (x S32) F32() F32 { return apply[F32]("cvt.rn.f32.s32", x.value) }

// U32 reads the same bits as an unsigned number.
func (x S32) U32() U32 { return U32{x.value} }

// DP4A is x plus the dot product of the four bytes of p and q, each taken as
// signed or not.
func (x S32) DP4A(p, q U32, pSigned, qSigned bool) S32 {
	sign := map[bool]string{true: ".s32", false: ".u32"}
	return apply[S32]("dp4a"+sign[pSigned]+sign[qSigned], p.value, q.value, x.value)
}

// Add is x + y modulo 2^64.
func (x U64) Add(y U64) U64 { return apply[U64]("add.u64", x.value, y.value) }

// Sub is x - y modulo 2^64.
func (x U64) Sub(y U64) U64 { return apply[U64]("sub.u64", x.value, y.value) }

// Mul is the low half of x * y.
func (x U64) Mul(y U64) U64 { return apply[U64]("mul.lo.u64", x.value, y.value) }

// ShlN shifts left by n bits.
func (x U64) ShlN(n int) U64 { return apply[U64]("shl.b64", x.value, x.b.N(n).value) }

// ShrN shifts right by n bits, filling with zeros.
func (x U64) ShrN(n int) U64 { return apply[U64]("shr.u64", x.value, x.b.N(n).value) }

// Or is the bitwise or.
func (x U64) Or(y U64) U64 { return apply[U64]("or.b64", x.value, y.value) }

// Eq is x == y.
func (x U64) Eq(y U64) Pred { return apply[Pred]("setp.eq.u64", x.value, y.value) }

// Ne is x != y.
func (x U64) Ne(y U64) Pred { return apply[Pred]("setp.ne.u64", x.value, y.value) }

// Lt is x < y.
func (x U64) Lt(y U64) Pred { return apply[Pred]("setp.lt.u64", x.value, y.value) }

// Max is the larger of both.
func (x U64) Max(y U64) U64 { return apply[U64]("max.u64", x.value, y.value) }

// Low is the low half.
func (x U64) Low() U32 { return apply[U32]("cvt.u32.u64", x.value) }

// And holds where both hold.
func (p Pred) And(q Pred) Pred { return apply[Pred]("and.pred", p.value, q.value) }

// Or holds where one holds.
func (p Pred) Or(q Pred) Pred { return apply[Pred]("or.pred", p.value, q.value) }

// Xor holds where exactly one holds.
func (p Pred) Xor(q Pred) Pred { return apply[Pred]("xor.pred", p.value, q.value) }

// Not holds where p does not.
func (p Pred) Not() Pred { return apply[Pred]("not.pred", p.value) }
