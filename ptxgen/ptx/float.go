package ptx

// Float32 arithmetic rounds to nearest even and keeps subnormals. The .rn suffix is always
// written out: without it an assembler may contract a multiplication and an addition to an fma.

// Add emits add.rn.f32: x + y.
func (x F32) Add(y F32) F32 { return apply[F32]("add.rn.f32", x.value, y.value) }

// AddN emits add.rn.f32 with a constant.
func (x F32) AddN(c float32) F32 { return x.Add(x.b.F32(c)) }

// Sub emits sub.rn.f32: x - y.
func (x F32) Sub(y F32) F32 { return apply[F32]("sub.rn.f32", x.value, y.value) }

// Mul emits mul.rn.f32: x * y.
func (x F32) Mul(y F32) F32 { return apply[F32]("mul.rn.f32", x.value, y.value) }

// MulN emits mul.rn.f32 with a constant.
func (x F32) MulN(c float32) F32 { return x.Mul(x.b.F32(c)) }

// FMA emits fma.rn.f32: x*y + z, rounded once.
func (x F32) FMA(y, z F32) F32 { return apply[F32]("fma.rn.f32", x.value, y.value, z.value) }

// Div emits div.rn.f32: x / y, correctly rounded.
func (x F32) Div(y F32) F32 { return apply[F32]("div.rn.f32", x.value, y.value) }

// Sqrt emits sqrt.rn.f32: the square root, correctly rounded.
func (x F32) Sqrt() F32 { return apply[F32]("sqrt.rn.f32", x.value) }

// Rcp emits rcp.rn.f32: 1 / x, correctly rounded.
func (x F32) Rcp() F32 { return apply[F32]("rcp.rn.f32", x.value) }

// RcpApprox emits rcp.approx.f32: 1 / x within 1 ulp.
func (x F32) RcpApprox() F32 { return apply[F32]("rcp.approx.f32", x.value) }

// RcpApproxFTZ emits rcp.approx.ftz.f32: RcpApprox that flushes subnormal operands and results to 0. It is one machine
// instruction, while RcpApprox needs several to keep subnormals.
func (x F32) RcpApproxFTZ() F32 { return apply[F32]("rcp.approx.ftz.f32", x.value) }

// Ex2Approx emits ex2.approx.f32: 2^x within 2 ulp.
func (x F32) Ex2Approx() F32 { return apply[F32]("ex2.approx.f32", x.value) }

// Ex2ApproxFTZ emits ex2.approx.ftz.f32: Ex2Approx that flushes subnormal operands and results
// to 0. It is one machine instruction, while Ex2Approx needs several to keep subnormals.
func (x F32) Ex2ApproxFTZ() F32 { return apply[F32]("ex2.approx.ftz.f32", x.value) }

// Neg emits neg.f32: -x.
func (x F32) Neg() F32 { return apply[F32]("neg.f32", x.value) }

// Abs emits abs.f32: |x|.
func (x F32) Abs() F32 { return apply[F32]("abs.f32", x.value) }

// Min emits min.f32. If one operand is NaN, the result is the other one.
func (x F32) Min(y F32) F32 { return apply[F32]("min.f32", x.value, y.value) }

// Max emits max.f32. If one operand is NaN, the result is the other one.
func (x F32) Max(y F32) F32 { return apply[F32]("max.f32", x.value, y.value) }

// Eq emits setp.eq.f32, which is false if an operand is NaN.
func (x F32) Eq(y F32) Pred { return apply[Pred]("setp.eq.f32", x.value, y.value) }

// Ne emits setp.neu.f32, which is true if an operand is NaN.
func (x F32) Ne(y F32) Pred { return apply[Pred]("setp.neu.f32", x.value, y.value) }

// Lt emits setp.lt.f32, which is false if an operand is NaN.
func (x F32) Lt(y F32) Pred { return apply[Pred]("setp.lt.f32", x.value, y.value) }

// Le emits setp.le.f32, which is false if an operand is NaN.
func (x F32) Le(y F32) Pred { return apply[Pred]("setp.le.f32", x.value, y.value) }

// Gt emits setp.gt.f32, which is false if an operand is NaN.
func (x F32) Gt(y F32) Pred { return apply[Pred]("setp.gt.f32", x.value, y.value) }

// Ge emits setp.ge.f32, which is false if an operand is NaN.
func (x F32) Ge(y F32) Pred { return apply[Pred]("setp.ge.f32", x.value, y.value) }

// IsNaN emits setp.nan.f32.
func (x F32) IsNaN() Pred { return apply[Pred]("setp.nan.f32", x.value, x.value) }

// Bits emits mov.b32: it reinterprets the float32 as bits.
func (x F32) Bits() U32 { return apply[U32]("mov.b32", x.value) }

// F64 emits cvt.f64.f32, which is exact.
func (x F32) F64() F64 { return apply[F64]("cvt.f64.f32", x.value) }

// F16 emits cvt.rn.f16.f32.
func (x F32) F16() F16 { return apply[F16]("cvt.rn.f16.f32", x.value) }

// BF16Bits emits cvt.rn.bf16.f32 and gives the bfloat16 in the low 16 bits.
func (x F32) BF16Bits() U32 {
	h := apply[F16]("cvt.rn.bf16.f32", x.value)
	return apply[U32]("cvt.u32.u16", h.value)
}

// PackF16 emits cvt.rn.f16x2.f32: both rounded to float16, lo in the low bits.
func PackF16(lo, hi F32) F16x2 { return apply[F16x2]("cvt.rn.f16x2.f32", hi.value, lo.value) }

// PackBF16 emits cvt.rn.bf16x2.f32: both rounded to bfloat16, lo in the low bits.
func PackBF16(lo, hi F32) BF16x2 { return apply[BF16x2]("cvt.rn.bf16x2.f32", hi.value, lo.value) }

// TruncU32 emits cvt.rzi.u32.f32: x rounded toward 0, saturating. NaN gives 0.
func (x F32) TruncU32() U32 { return apply[U32]("cvt.rzi.u32.f32", x.value) }

// Add emits add.rn.f64: x + y.
func (x F64) Add(y F64) F64 { return apply[F64]("add.rn.f64", x.value, y.value) }

// Sub emits sub.rn.f64: x - y.
func (x F64) Sub(y F64) F64 { return apply[F64]("sub.rn.f64", x.value, y.value) }

// Mul emits mul.rn.f64: x * y.
func (x F64) Mul(y F64) F64 { return apply[F64]("mul.rn.f64", x.value, y.value) }

// FMA emits fma.rn.f64: x*y + z, rounded once.
func (x F64) FMA(y, z F64) F64 { return apply[F64]("fma.rn.f64", x.value, y.value, z.value) }

// RoundS32 emits cvt.rni.s32.f64: the nearest integer, ties to even, saturating. NaN gives 0.
func (x F64) RoundS32() S32 { return apply[S32]("cvt.rni.s32.f64", x.value) }

// Ge emits setp.ge.f64, which is false if an operand is NaN.
func (x F64) Ge(y F64) Pred { return apply[Pred]("setp.ge.f64", x.value, y.value) }

// Bits emits mov.b64: it reinterprets the float64 as bits.
func (x F64) Bits() U64 { return apply[U64]("mov.b64", x.value) }

// F32 emits cvt.rn.f32.f64.
func (x F64) F32() F32 { return apply[F32]("cvt.rn.f32.f64", x.value) }

// F32 emits cvt.f32.f16, which is exact.
func (x F16) F32() F32 { return apply[F32]("cvt.f32.f16", x.value) }

// Dup emits mov.b32 {x, x}: x in both halves.
func (x F16) Dup() F16x2 {
	res, r := fresh[F16x2](x.b)
	x.b.emit("mov.b32", 1, one(r), braces(x.op, x.op))
	return res
}

// F32 emits mov.b32 and cvt.f32.f16: both halves, exactly.
func (x F16x2) F32() (lo, hi F32) {
	l, rl := fresh[F16](x.b)
	h, rh := fresh[F16](x.b)
	x.b.emit("mov.b32", 1, braces(rl, rh), one(x.op))
	return l.F32(), h.F32()
}

// Add emits add.rn.f16x2: x + y in both halves.
func (x F16x2) Add(y F16x2) F16x2 { return apply[F16x2]("add.rn.f16x2", x.value, y.value) }

// Mul emits mul.rn.f16x2: x * y in both halves.
func (x F16x2) Mul(y F16x2) F16x2 { return apply[F16x2]("mul.rn.f16x2", x.value, y.value) }

// Sub emits sub.rn.f16x2: x - y, in both halves.
func (x F16x2) Sub(y F16x2) F16x2 { return apply[F16x2]("sub.rn.f16x2", x.value, y.value) }

// FMA emits fma.rn.f16x2: x*y + z, rounded once, in both halves.
func (x F16x2) FMA(y, z F16x2) F16x2 {
	return apply[F16x2]("fma.rn.f16x2", x.value, y.value, z.value)
}

// Bits reinterprets both halves as 32 bits. It emits nothing.
func (x F16x2) Bits() U32 { return U32(x) }

// F32 converts both halves exactly: a bfloat16 is the upper half of a float32.
func (x BF16x2) F32() (lo, hi F32) {
	u := x.Bits()
	return u.ShlN(16).AsF32(), u.AndN(0xFFFF0000).AsF32()
}

// Bits reinterprets both halves as 32 bits. It emits nothing.
func (x BF16x2) Bits() U32 { return U32(x) }
