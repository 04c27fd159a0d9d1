package ptx

// All float32 arithmetic is rounded to nearest even and says so (.rn), because an
// assembler may otherwise contract a product and a sum; subnormals are kept.

// Add is x + y.
func (x F32) Add(y F32) F32 { return apply[F32]("add.rn.f32", x.value, y.value) }

// Sub is x - y.
func (x F32) Sub(y F32) F32 { return apply[F32]("sub.rn.f32", x.value, y.value) }

// Mul is x * y.
func (x F32) Mul(y F32) F32 { return apply[F32]("mul.rn.f32", x.value, y.value) }

// MulN is x * c.
func (x F32) MulN(c float32) F32 { return x.Mul(x.b.F32(c)) }

// AddN is x + c.
func (x F32) AddN(c float32) F32 { return x.Add(x.b.F32(c)) }

// FMA is x*y + z, rounded once.
func (x F32) FMA(y, z F32) F32 { return apply[F32]("fma.rn.f32", x.value, y.value, z.value) }

// Div is x / y, rounded once.
func (x F32) Div(y F32) F32 { return apply[F32]("div.rn.f32", x.value, y.value) }

// Sqrt is the square root, rounded once.
func (x F32) Sqrt() F32 { return apply[F32]("sqrt.rn.f32", x.value) }

// Rcp is 1 / x, rounded once.
func (x F32) Rcp() F32 { return apply[F32]("rcp.rn.f32", x.value) }

// Neg is -x.
func (x F32) Neg() F32 { return apply[F32]("neg.f32", x.value) }

// Abs is |x|.
func (x F32) Abs() F32 { return apply[F32]("abs.f32", x.value) }

// Min is the smaller; a NaN loses to a number.
func (x F32) Min(y F32) F32 { return apply[F32]("min.f32", x.value, y.value) }

// Max is the larger; a NaN loses to a number.
func (x F32) Max(y F32) F32 { return apply[F32]("max.f32", x.value, y.value) }

// Ex2Approx is 2^x within 2 ulp.
func (x F32) Ex2Approx() F32 { return apply[F32]("ex2.approx.f32", x.value) }

// Ex2ApproxFTZ is Ex2Approx with subnormal operands and results taken as 0: one
// instruction, where scaling around the subnormal results takes four.
func (x F32) Ex2ApproxFTZ() F32 { return apply[F32]("ex2.approx.ftz.f32", x.value) }

// Lg2Approx is the logarithm to base 2, within 2^-22.
func (x F32) Lg2Approx() F32 { return apply[F32]("lg2.approx.f32", x.value) }

// RcpApprox is 1 / x within 1 ulp.
func (x F32) RcpApprox() F32 { return apply[F32]("rcp.approx.f32", x.value) }

// RsqrtApprox is 1 / sqrt(x), relatively within 2^-22.9.
func (x F32) RsqrtApprox() F32 { return apply[F32]("rsqrt.approx.f32", x.value) }

// Comparisons are false where an operand is NaN, except Ne, which is true.

// Eq is x == y.
func (x F32) Eq(y F32) Pred { return apply[Pred]("setp.eq.f32", x.value, y.value) }

// Ne is x != y, or one is NaN.
func (x F32) Ne(y F32) Pred { return apply[Pred]("setp.neu.f32", x.value, y.value) }

// Lt is x < y.
func (x F32) Lt(y F32) Pred { return apply[Pred]("setp.lt.f32", x.value, y.value) }

// Le is x <= y.
func (x F32) Le(y F32) Pred { return apply[Pred]("setp.le.f32", x.value, y.value) }

// Gt is x > y.
func (x F32) Gt(y F32) Pred { return apply[Pred]("setp.gt.f32", x.value, y.value) }

// Ge is x >= y.
func (x F32) Ge(y F32) Pred { return apply[Pred]("setp.ge.f32", x.value, y.value) }

// IsNaN holds where x is not a number.
func (x F32) IsNaN() Pred { return apply[Pred]("setp.nan.f32", x.value, x.value) }

// Bits are the bits of x.
func (x F32) Bits() U32 { return apply[U32]("mov.b32", x.value) }

// RoundS32 converts to the nearest integer, ties to even, saturating; NaN gives 0.
func (x F32) RoundS32() S32 { return apply[S32]("cvt.rni.s32.f32", x.value) }

// TruncU32 converts toward zero, saturating; NaN gives 0.
func (x F32) TruncU32() U32 { return apply[U32]("cvt.rzi.u32.f32", x.value) }

// F64 converts exactly.
func (x F32) F64() F64 { return apply[F64]("cvt.f64.f32", x.value) }

// F16 rounds to a half.
func (x F32) F16() F16 { return apply[F16]("cvt.rn.f16.f32", x.value) }

// BF16Bits rounds to bfloat16, in the low 16 bits.
func (x F32) BF16Bits() U32 {
	h := apply[F16]("cvt.rn.bf16.f32", x.value)
	return h.Bits()
}

// PackF16 rounds both to halves; lo goes to the low bits.
func PackF16(lo, hi F32) F16x2 { return apply[F16x2]("cvt.rn.f16x2.f32", hi.value, lo.value) }

// PackBF16 rounds both to bfloat16; lo goes to the low bits.
func PackBF16(lo, hi F32) BF16x2 { return apply[BF16x2]("cvt.rn.bf16x2.f32", hi.value, lo.value) }

// Add is x + y.
func (x F64) Add(y F64) F64 { return apply[F64]("add.rn.f64", x.value, y.value) }

// Sub is x - y.
func (x F64) Sub(y F64) F64 { return apply[F64]("sub.rn.f64", x.value, y.value) }

// Mul is x * y.
func (x F64) Mul(y F64) F64 { return apply[F64]("mul.rn.f64", x.value, y.value) }

// FMA is x*y + z, rounded once.
func (x F64) FMA(y, z F64) F64 { return apply[F64]("fma.rn.f64", x.value, y.value, z.value) }

// RoundS32 converts to the nearest integer, ties to even, saturating.
func (x F64) RoundS32() S32 { return apply[S32]("cvt.rni.s32.f64", x.value) }

// F32 rounds to nearest even.
func (x F64) F32() F32 { return apply[F32]("cvt.rn.f32.f64", x.value) }

// F64 converts exactly.
func (x S32) F64() F64 { return apply[F64]("cvt.rn.f64.s32", x.value) }
