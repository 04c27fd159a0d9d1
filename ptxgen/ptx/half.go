package ptx

// F32 converts exactly.
func (x F16) F32() F32 { return apply[F32]("cvt.f32.f16", x.value) }

// Bits are the 16 bits of x in the low half.
func (x F16) Bits() U32 {
	res, r := fresh[U32](x.b)
	x.b.emit("cvt.u32.u16", 1, one(r), one(x.op))
	return res
}

// Twice is x in both halves.
func (x F16) Twice() F16x2 {
	res, r := fresh[F16x2](x.b)
	x.b.emit("mov.b32", 1, one(r), braces(x.op, x.op))
	return res
}

// Split gives the low and the high half.
func (x F16x2) Split() (lo, hi F16) {
	lo, l := fresh[F16](x.b)
	hi, h := fresh[F16](x.b)
	x.b.emit("mov.b32", 1, braces(l, h), one(x.op))
	return lo, hi
}

// F32 converts both exactly.
func (x F16x2) F32() (lo, hi F32) {
	l, h := x.Split()
	return l.F32(), h.F32()
}

// Add is x + y in both halves.
func (x F16x2) Add(y F16x2) F16x2 { return apply[F16x2]("add.rn.f16x2", x.value, y.value) }

// Sub is x - y in both halves.
func (x F16x2) Sub(y F16x2) F16x2 { return apply[F16x2]("sub.rn.f16x2", x.value, y.value) }

// Mul is x * y in both halves.
func (x F16x2) Mul(y F16x2) F16x2 { return apply[F16x2]("mul.rn.f16x2", x.value, y.value) }

// FMA is x*y + z in both halves, rounded once.
func (x F16x2) FMA(y, z F16x2) F16x2 {
	return apply[F16x2]("fma.rn.f16x2", x.value, y.value, z.value)
}

// Bits are the 32 bits of both.
func (x F16x2) Bits() U32 { return U32{x.value} }

// FMA is x*y + z in both halves, rounded once. (Addition and multiplication of
// bfloat16 alone need sm_90; write them as FMA with 1 or -0.)
func (x BF16x2) FMA(y, z BF16x2) BF16x2 {
	return apply[BF16x2]("fma.rn.bf16x2", x.value, y.value, z.value)
}

// F32 converts both exactly: a bfloat16 is the upper half of a float32.
func (x BF16x2) F32() (lo, hi F32) {
	u := x.Bits()
	return u.ShlN(16).AsF32(), u.AndN(0xFFFF0000).AsF32()
}

// Bits are the 32 bits of both.
func (x BF16x2) Bits() U32 { return U32{x.value} }

// LowF16 reads the low 16 bits as a half.
func (x U32) LowF16() F16 { return apply[F16]("cvt.u16.u32", x.value) }

// BF16 reads the low 16 bits as a bfloat16.
func (x U32) BF16() F32 { return x.ShlN(16).AsF32() }
