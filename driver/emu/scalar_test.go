package emu

import (
	"math/rand/v2"
	"testing"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
)

func TestIntegers(t *testing.T) {
	runScalar(t, sm80, []scalarCase{
		{"add wraps", "add.u32 %r0, %r1, 0xffffffff;", func(i uint32) uint32 { return i - 1 }},
		{"sub", "sub.s32 %r0, 5, %r1;", func(i uint32) uint32 { return 5 - i }},
		{"mul low", "mul.lo.s32 %r0, %r1, -3;", func(i uint32) uint32 { return -(3 * i) }},
		{"mul high unsigned", "mul.hi.u32 %r0, 0x80000000, %r1;", func(i uint32) uint32 { return i / 2 }},
		{"mul high signed", "neg.s32 %r2, %r1; mul.hi.s32 %r0, %r2, 1;", func(i uint32) uint32 {
			if i == 0 {
				return 0
			}
			return 0xffffffff
		}},
		{"mul high of 64 bits", "mov.u64 %rd2, -2; mul.hi.s64 %rd3, %rd2, 3; cvt.u32.u64 %r0, %rd3;", always(0xffffffff)},
		{"mul wide signed", "mul.wide.s32 %rd2, %r1, -1; shr.s64 %rd2, %rd2, 4; cvt.u32.u64 %r0, %rd2;",
			func(i uint32) uint32 { return uint32(-int64(i) >> 4) }},
		{"mad", "mad.lo.u32 %r0, %r1, %r1, 7;", func(i uint32) uint32 { return i*i + 7 }},
		{"mad wide", "mov.u64 %rd2, 1; mad.wide.u32 %rd3, %r1, 0x80000000, %rd2; shr.u64 %rd3, %rd3, 31; cvt.u32.u64 %r0, %rd3;",
			func(i uint32) uint32 { return i }},
		{"division", "add.u32 %r2, %r1, 1; div.u32 %r0, 100, %r2;", func(i uint32) uint32 { return 100 / (i + 1) }},
		{"signed division truncates", "add.u32 %r2, %r1, 1; div.s32 %r0, -100, %r2;",
			func(i uint32) uint32 { return uint32(-100 / int32(i+1)) }},
		{"signed remainder has the dividend's sign", "add.u32 %r2, %r1, 1; rem.s32 %r0, -100, %r2;",
			func(i uint32) uint32 { return uint32(-100 % int32(i+1)) }},
		{"remainder of 64 bits", "mov.u64 %rd2, 0x100000007; rem.u64 %rd3, %rd2, 0x100000000; cvt.u32.u64 %r0, %rd3;", always(7)},
		{"unsigned high half of 64 bits", "mov.u64 %rd2, 0x8000000000000000; mul.hi.u64 %rd3, %rd2, 6; cvt.u32.u64 %r0, %rd3;", always(3)},
		{"mad of 64 bits", "mov.u64 %rd2, 0x100000000; mad.lo.u64 %rd3, %rd2, 5, %rd2; shr.u64 %rd3, %rd3, 32; cvt.u32.u64 %r0, %rd3;", always(6)},
		{"mad wide signed", "neg.s32 %r2, %r1; mov.u64 %rd2, 7; mad.wide.s32 %rd3, %r2, 3, %rd2; shr.s64 %rd3, %rd3, 1; cvt.u32.u64 %r0, %rd3;",
			func(i uint32) uint32 { return uint32((7 - 3*int64(i)) >> 1) }},
		{"min and max of 64 bits", "mov.u64 %rd2, -1; min.u64 %rd3, %rd2, 9; max.s64 %rd4, %rd2, 5; min.s64 %rd5, %rd2, 5; max.u64 %rd6, %rd2, 5; add.u64 %rd3, %rd3, %rd4; sub.u64 %rd5, %rd5, %rd6; add.u64 %rd3, %rd3, %rd5; cvt.u32.u64 %r0, %rd3;", always(14)},
		{"signs of 64 bits", "mov.u64 %rd2, -5; abs.s64 %rd3, %rd2; neg.s64 %rd4, %rd2; add.u64 %rd3, %rd3, %rd4; cvt.u32.u64 %r0, %rd3;", always(10)},
		{"min and max signed", "sub.s32 %r2, %r1, 8; min.s32 %r2, %r2, 5; max.s32 %r0, %r2, -2;",
			func(i uint32) uint32 { return uint32(max(min(int32(i)-8, 5), -2)) }},
		{"min unsigned", "sub.u32 %r2, %r1, 1; min.u32 %r0, %r2, 9;", func(i uint32) uint32 { return min(i-1, 9) }},
		{"abs", "sub.s32 %r2, %r1, 9; abs.s32 %r0, %r2;", func(i uint32) uint32 { return max(i, 9) - min(i, 9) }},
		{"dp4a of mixed signs", "dp4a.s32.u32 %r0, 0xff01ff01, 0x02020202, %r1;", func(i uint32) uint32 { return i }},
		{"dp4a unsigned", "dp4a.u32.u32 %r0, 0x01020304, 0x01010101, %r1;", func(i uint32) uint32 { return i + 10 }},
	})
}

func TestBits(t *testing.T) {
	runScalar(t, sm80, []scalarCase{
		{"logic", "and.b32 %r2, %r1, 12; or.b32 %r2, %r2, 1; xor.b32 %r2, %r2, 0xf0; not.b32 %r0, %r2;",
			func(i uint32) uint32 { return ^(i&12 | 1) ^ 0xf0 }},
		{"left shift past the width is 0", "shl.b32 %r0, 1, %r1; shl.b32 %r2, 1, 32; or.b32 %r0, %r0, %r2;",
			func(i uint32) uint32 { return 1 << i }},
		{"arithmetic shift past the width is the sign", "mov.u32 %r2, 0x80000000; shr.s32 %r0, %r2, 99;", always(0xffffffff)},
		{"logical shift", "shr.u32 %r0, 0x80000000, %r1;", func(i uint32) uint32 { return 0x80000000 >> i }},
		{"field", "bfe.u32 %r2, 0xabcd1234, 8, 8; bfi.b32 %r0, %r2, %r1, 16, 8;", func(i uint32) uint32 { return 0x12<<16 | i }},
		{"signed field", "bfe.s32 %r0, 0x0000f000, 12, 4;", always(0xffffffff)},
		{"lop3 as three-way xor", "lop3.b32 %r0, %r1, 0x55, 0x0f, 0x96;", func(i uint32) uint32 { return i ^ 0x55 ^ 0x0f }},
		{"prmt reverses bytes", "prmt.b32 %r0, 0x11223344, 0, 0x0123;", always(0x44332211)},
		{"prmt replicates a sign", "prmt.b32 %r0, 0x00008000, 0, 0x0999;", always(0x00ffffff)},
		{"popc, clz and brev", "popc.b32 %r2, 0xf0f0; clz.b32 %r3, 0x00010000; add.u32 %r2, %r2, %r3; brev.b32 %r0, %r2;", always(0xe8000000)},
		{"funnel shift right, the amount modulo 32", "shf.r.wrap.b32 %r0, 0x00000010, 3, 36;", always(0x30000001)},
		{"64 bits", "mov.u64 %rd2, 0xf; not.b64 %rd3, %rd2; shl.b64 %rd3, %rd3, 28; shr.b64 %rd3, %rd3, 32; shr.s64 %rd4, %rd3, 99; shl.b64 %rd5, %rd3, 64; or.b64 %rd3, %rd3, %rd4; xor.b64 %rd3, %rd3, %rd5; cvt.u32.u64 %r0, %rd3;", always(0xffffffff)},
		{"masks of lanes", "mov.u32 %r2, %lanemask_lt; mov.u32 %r3, %lanemask_le; mov.u32 %r4, %lanemask_gt; mov.u32 %r5, %lanemask_ge; mov.u32 %r6, %lanemask_eq; popc.b32 %r0, %r2; xor.b32 %r3, %r3, %r2; xor.b32 %r3, %r3, %r6; xor.b32 %r5, %r5, %r4; xor.b32 %r5, %r5, %r6; or.b32 %r2, %r2, %r4; or.b32 %r2, %r2, %r6; not.b32 %r2, %r2; or.b32 %r0, %r0, %r2; or.b32 %r0, %r0, %r3; or.b32 %r0, %r0, %r5;",
			func(i uint32) uint32 { return i }},
		{"extents and numbers", "mov.u32 %r2, %ntid.x; mov.u32 %r3, %ntid.y; mov.u32 %r4, %nctaid.z; mov.u32 %r5, %tid.z; mov.u32 %r6, %warpid; mov.u32 %r7, %laneid; mad.lo.u32 %r0, %r2, %r3, %r4; add.u32 %r0, %r0, %r5; add.u32 %r0, %r0, %r6; add.u32 %r0, %r0, %r7;",
			func(i uint32) uint32 { return 33 + i }},
		{"funnel shift", "shf.l.wrap.b32 %r0, 0x80000000, 1, 1;", always(3)},
		{"halves", "mov.u32 %r2, 0x12345678; mov.b32 {%h1, %h2}, %r2; mov.b32 %r0, {%h2, %h1};", always(0x56781234)},
		{"words", "mov.b64 %rd2, {%r1, 7}; mov.b64 {%r2, %r3}, %rd2; add.u32 %r0, %r2, %r3;", func(i uint32) uint32 { return i + 7 }},
		{"predicates", "setp.lt.u32 %p1, %r1, 16; setp.ge.u32 %p2, %r1, 8; and.pred %p3, %p1, %p2; not.pred %p4, %p3; selp.b32 %r0, 1, 2, %p4;",
			func(i uint32) uint32 {
				if i >= 8 && i < 16 {
					return 2
				}
				return 1
			}},
	})
}

func TestComparisons(t *testing.T) {
	b := func(v bool) uint32 {
		if v {
			return 1
		}
		return 0
	}
	var cases []scalarCase
	for name, want := range map[string]func(a, b int32) bool{
		"eq": func(a, b int32) bool { return a == b }, "ne": func(a, b int32) bool { return a != b },
		"lt": func(a, b int32) bool { return a < b }, "le": func(a, b int32) bool { return a <= b },
		"gt": func(a, b int32) bool { return a > b }, "ge": func(a, b int32) bool { return a >= b },
	} {
		cases = append(cases, scalarCase{name + " signed", "sub.s32 %r2, %r1, 16; setp." + name + ".s32 %p1, %r2, -3; selp.u32 %r0, 1, 0, %p1;",
			func(i uint32) uint32 { return b(want(int32(i)-16, -3)) }})
		cases = append(cases, scalarCase{name + " float", "cvt.rn.f32.u32 %f1, %r1; setp." + name + ".f32 %p1, %f1, 0f40400000; selp.u32 %r0, 1, 0, %p1;",
			func(i uint32) uint32 { return b(want(int32(i), 3)) }})
		cases = append(cases, scalarCase{name + " of NaN", "mov.f32 %f1, 0f7FC00000; setp." + name + ".f32 %p1, %f1, %f1; selp.u32 %r0, 1, 0, %p1;", always(0)})
		cases = append(cases, scalarCase{name + "u of NaN", "mov.f32 %f1, 0f7FC00000; setp." + name + "u.f32 %p1, %f1, 0f00000000; selp.u32 %r0, 1, 0, %p1;", always(1)})
	}
	cases = append(cases,
		scalarCase{"lo is unsigned", "setp.lo.u32 %p1, %r1, 0xffffffff; selp.u32 %r0, 1, 0, %p1;", always(1)},
		scalarCase{"doubles", "cvt.rn.f64.u32 %fd1, %r1; setp.ge.f64 %p1, %fd1, 0d4000000000000000; setp.eq.f64 %p2, %fd1, 0d4000000000000000; selp.u32 %r0, 1, 0, %p1; @%p2 add.u32 %r0, %r0, 1;",
			func(i uint32) uint32 { return b(i >= 2) + b(i == 2) }},
		scalarCase{"signed of 64 bits", "mov.u64 %rd2, -1; setp.lt.s64 %p1, %rd2, 0; setp.lt.u64 %p2, %rd2, 0; selp.u32 %r0, 1, 0, %p1; @%p2 add.u32 %r0, %r0, 2;", always(1)},
		scalarCase{"predicates move", "mov.pred %p1, 1; mov.pred %p2, %p1; @%p2 mov.u32 %r0, 3; @!%p2 mov.u32 %r0, 4;", always(3)},
		scalarCase{"selects of all sizes", "setp.eq.u32 %p1, %r1, 3; mov.u64 %rd2, 7; selp.b64 %rd3, %rd2, %rd1, %p1; cvt.u32.u64 %r2, %rd3; cvt.u32.u64 %r3, %rd1; setp.eq.u32 %p2, %r2, %r3; selp.u32 %r0, 0, 1, %p2;",
			func(i uint32) uint32 { return b(i == 3) }},
		scalarCase{"num", "mov.f64 %fd1, 0d7FF8000000000000; setp.num.f64 %p1, %fd1, %fd1; selp.u32 %r0, 1, 0, %p1;", always(0)})
	runScalar(t, sm80, cases)
}

func TestFloats(t *testing.T) {
	const nan = 0x7fffffff
	runScalar(t, sm80, []scalarCase{
		{"add", "cvt.rn.f32.u32 %f1, %r1; add.rn.f32 %f2, %f1, 0f3F000000; mov.b32 %r0, %f2;", func(i uint32) uint32 { return f32(float32(i) + 0.5) }},
		{"fma rounds once", "mov.f32 %f1, 0f3F800001; fma.rn.f32 %f2, %f1, %f1, 0fBF800002; mov.b32 %r0, %f2;", always(f32(0x1p-46))},
		{"subnormal products are kept", "mul.rn.f32 %f2, 0f0D800000, 0f27000000; mul.rn.f32 %f3, 0f00000001, 0f3F000000; add.rn.f32 %f2, %f2, %f3; mov.b32 %r0, %f2;", always(1)},
		{"mul rounds", "mov.f32 %f1, 0f3F800001; mul.rn.f32 %f2, %f1, %f1; mov.b32 %r0, %f2;", always(0x3f800002)},
		{"division", "cvt.rn.f32.u32 %f1, %r1; div.rn.f32 %f2, 0f3F800000, %f1; mov.b32 %r0, %f2;", func(i uint32) uint32 { return f32(1 / float32(i)) }},
		{"square root of a negative number", "sqrt.rn.f32 %f2, 0fBF800000; mov.b32 %r0, %f2;", always(nan)},
		{"min passes over NaN", "min.f32 %f2, 0f7FC00000, 0f3F800000; mov.b32 %r0, %f2;", always(f32(1))},
		{"min and max pass over a second NaN", "min.f32 %f2, 0f3F800000, 0f7FC00000; max.f32 %f3, 0f40000000, 0f7FC00000; sub.rn.f32 %f2, %f3, %f2; mov.b32 %r0, %f2;", always(f32(1))},
		{"double operations", "mov.f64 %fd1, 0d4010000000000000; sqrt.rn.f64 %fd2, %fd1; rcp.rn.f64 %fd3, %fd2; div.rn.f64 %fd4, %fd1, %fd3; neg.f64 %fd4, %fd4; sub.rn.f64 %fd4, %fd4, %fd3; abs.f64 %fd4, %fd4; add.rn.f64 %fd4, %fd4, %fd1; cvt.rn.f32.f64 %f1, %fd4; mov.b32 %r0, %f1;", always(f32(12.5))},
		{"zeros have an order", "min.f32 %f1, 0f00000000, 0f80000000; max.f32 %f2, 0f00000000, 0f80000000; copysign.f32 %f3, %f1, 0f3F800000; copysign.f32 %f4, %f2, 0f40000000; add.rn.f32 %f3, %f3, %f4; mov.b32 %r0, %f3;", always(f32(1))},
		{"min and max", "cvt.rn.f32.u32 %f1, %r1; min.f32 %f1, %f1, 0f41200000; max.f32 %f1, 0f40000000, %f1; mov.b32 %r0, %f1;", func(i uint32) uint32 { return f32(float32(max(min(i, 10), 2))) }},
		{"NaN has one form", "mov.f32 %f1, 0fFF800000; add.rn.f32 %f2, %f1, 0f7F800000; mul.rn.f32 %f3, %f1, 0f00000000; mov.b32 %r2, %f2; mov.b32 %r3, %f3; and.b32 %r0, %r2, %r3;", always(nan)},
		{"max of two NaN", "max.f32 %f2, 0f7FC00000, 0fFFC00000; mov.b32 %r0, %f2;", always(nan)},
		{"sign", "neg.f32 %f1, 0f3F800000; abs.f32 %f2, %f1; copysign.f32 %f3, %f1, 0f40000000; add.rn.f32 %f2, %f2, %f3; mov.b32 %r0, %f2;", always(f32(-1))},
		{"approximations of powers of two are exact", "ex2.approx.f32 %f1, 0f40400000; lg2.approx.f32 %f2, %f1; rcp.approx.f32 %f3, %f1; add.rn.f32 %f2, %f2, %f3; mov.b32 %r0, %f2;",
			always(f32(3.125))},
		{"rsqrt, sqrt, tanh", "rsqrt.approx.f32 %f1, 0f40800000; sqrt.approx.f32 %f2, 0f40800000; tanh.approx.f32 %f3, 0f00000000; add.rn.f32 %f1, %f1, %f2; add.rn.f32 %f1, %f1, %f3; mov.b32 %r0, %f1;",
			always(f32(2.5))},
		{"double", "cvt.rn.f64.u32 %fd1, %r1; mul.rn.f64 %fd1, %fd1, 0d3FF8000000000000; fma.rn.f64 %fd1, %fd1, %fd1, 0d0000000000000000; cvt.rn.f32.f64 %f1, %fd1; mov.b32 %r0, %f1;",
			func(i uint32) uint32 { return f32(float32(i) * 1.5 * float32(i) * 1.5) }},
		{"half sums", "mov.b32 %r2, 0x3c004000; mov.b32 %r3, 0x3c003c00; add.rn.f16x2 %r4, %r2, %r3; mov.b32 %r5, 0x00003c00; fma.rn.f16x2 %r0, %r4, %r3, %r5;", always(0x40004400)},
		{"bf16 fma", "mov.b32 %r2, 0x3f804000; mov.b32 %r3, 0x40003f80; mov.b32 %r4, 0x3f800000; fma.rn.bf16x2 %r0, %r2, %r3, %r4;", always(0x40404000)},
	})
}

func TestConversions(t *testing.T) {
	runScalar(t, sm80, []scalarCase{
		{"signed bytes", "mov.u32 %r2, 0x1ff; cvt.s32.s8 %r0, %r2;", always(0xffffffff)},
		{"unsigned bytes", "mov.u32 %r2, 0x1ff; cvt.u32.u8 %r0, %r2;", always(0xff)},
		{"sign to 64 bits", "neg.s32 %r2, %r1; cvt.s64.s32 %rd2, %r2; shr.u64 %rd2, %rd2, 32; cvt.u32.u64 %r0, %rd2;",
			func(i uint32) uint32 { return uint32(uint64(-int64(i)) >> 32) }},
		{"from signed", "neg.s32 %r2, %r1; cvt.rn.f32.s32 %f1, %r2; mov.b32 %r0, %f1;", func(i uint32) uint32 { return f32(float32(-int32(i))) }},
		{"toward zero", "cvt.rzi.s32.f32 %r0, 0fC0200000;", always(^uint32(1))},
		{"to the even", "cvt.rni.s32.f32 %r0, 0f40200000;", always(2)},
		{"down", "cvt.rmi.s32.f32 %r0, 0fC0200000;", always(^uint32(2))},
		{"up", "cvt.rpi.s32.f32 %r0, 0f40200000;", always(3)},
		{"clamped", "cvt.rzi.u32.f32 %r2, 0fBF800000; cvt.rzi.s32.f32 %r3, 0f7F800000; add.u32 %r0, %r2, %r3;", always(0x7fffffff)},
		{"the sign goes on in a larger register", "cvt.rzi.s32.f32 %rd2, 0fC0200000; cvt.rni.s32.f32 %rd3, 0fFF800000; and.b64 %rd2, %rd2, %rd3; shr.u64 %rd2, %rd2, 31; cvt.u32.u64 %r0, %rd2;", always(0xffffffff)},
		{"NaN to integer", "cvt.rzi.s32.f32 %r0, 0f7FC00000;", always(0)},
		{"NaN of 64 bits to integer", "cvt.rni.s32.f64 %r0, 0d7FF8000000000000;", always(0x80000000)},
		{"NaN to an integer of 64 bits", "cvt.rzi.u64.f32 %rd2, 0f7FC00000; shr.u64 %rd2, %rd2, 32; cvt.u32.u64 %r0, %rd2;", always(0x80000000)},
		{"clamped to 64 bits", "cvt.rzi.s64.f64 %rd2, 0d7FF0000000000000; cvt.rzi.u64.f64 %rd3, 0d43F0000000000000; xor.b64 %rd2, %rd2, %rd3; shr.u64 %rd2, %rd2, 32; cvt.u32.u64 %r0, %rd2;", always(0x80000000)},
		{"from 64 bits", "mov.u64 %rd2, 0xffffff7fffffffff; cvt.rn.f32.u64 %f1, %rd2; cvt.rn.f64.s64 %fd1, %rd2; cvt.rn.f32.f64 %f2, %fd1; mov.b32 %r2, %f1; mov.b32 %r3, %f2; xor.b32 %r0, %r2, %r3;",
			always(f32(float32(uint64(0xffffff7fffffffff))) ^ f32(float32(-0x8000000001)))},
		{"integral float", "cvt.rni.f32.f32 %f1, 0f40200000; mov.b32 %r0, %f1;", always(f32(2))},
		{"half there and back", "cvt.rn.f32.u32 %f1, %r1; cvt.rn.f16.f32 %h1, %f1; cvt.f32.f16 %f2, %h1; mov.b32 %r0, %f2;", func(i uint32) uint32 { return f32(float32(i)) }},
		{"first source to the high half", "cvt.rn.f16x2.f32 %r0, 0f3F800000, 0f40000000;", always(0x3c004000)},
		{"bf16 pair", "cvt.rn.bf16x2.f32 %r0, 0f3F800000, 0f40000000;", always(0x3f804000)},
		{"bf16", "cvt.rn.bf16.f32 %h1, 0f3F808000; mov.b32 %r0, {%h1, %h1};", always(0x3f803f80)},
	})
}

// fmaFloat agrees with alu.FMA32, also at midpoints of two float32 and at the ends of the range.
func TestFusedSum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	number := func() uint64 {
		v := r.Uint32()
		switch r.IntN(4) {
		case 0:
			v &= 0xfffff000 // few bits: sums that lie on a middle
		case 1:
			v = v&0x807fffff | uint32(120+r.IntN(16))<<23
		case 2:
			v = v&0x807fe000 | uint32(r.IntN(4)+62)<<23 // products below 2⁻¹²⁶
		}
		return uint64(v)
	}
	var a, b, c, d vec
	for range 20000 {
		for l := range a {
			a[l], b[l], c[l] = number(), number(), number()
		}
		fmaFloat(&d, &a, &b, &c)
		for l := range d {
			if want := bits32(alu.FMA32(float32Of(a[l]), float32Of(b[l]), float32Of(c[l]))); d[l] != want {
				t.Fatalf("fma(%#x, %#x, %#x) = %#x, want %#x", a[l], b[l], c[l], d[l], want)
			}
		}
	}
}

// A perturbed approximation is another number within the bound, and reproducible.
func TestPerturbed(t *testing.T) {
	body := "cvt.rn.f32.u32 %f1, %r1; add.rn.f32 %f1, %f1, 0f3F000000; rcp.approx.f32 %f2, %f1; mov.b32 %r0, %f2;"
	var runs [3][]uint32
	for i, opts := range []Options{{}, {Approx: Perturbed(1)}, {Approx: Perturbed(1)}} {
		out, err := kernelRun{opts: opts, ptx: perThread(sm80, "", body), args: []any{32}}.run(t)
		if err != nil {
			t.Fatal(err)
		}
		runs[i] = out[0]
	}
	moved := 0
	for i, exact := range runs[0] {
		got := runs[1][i]
		if got != runs[2][i] {
			t.Errorf("lane %d: %#x, then %#x", i, got, runs[2][i])
		}
		if got != exact {
			moved++
		}
		if off := int32(got - exact); off < -2 || off > 2 {
			t.Errorf("lane %d is off by %d ulp", i, off)
		}
	}
	if moved == 0 {
		t.Error("no result was moved")
	}
}
