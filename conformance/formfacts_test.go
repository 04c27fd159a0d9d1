package conformance

import (
	"math"
	"testing"
)

// The expectations are code, too: here are results worked out by hand, of what is
// easily got wrong.
func TestExpectations(t *testing.T) {
	bits := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	nan, inf := uint64(0x7fc00000), bits(float32(math.Inf(1)))
	for _, c := range []struct {
		form form
		x    []uint64
		want uint64
		why  string
	}{
		{form{op: "div.s32"}, []uint64{0xfffffff9, 2}, 0xfffffffd, "-7 / 2 is -3"},
		{form{op: "rem.s32"}, []uint64{0xfffffff9, 2}, 0xffffffff, "and leaves -1"},
		{form{op: "mul.hi.s32"}, []uint64{0xffffffff, 1}, 0xffffffff, "the sign goes on"},
		{form{op: "mul.hi.u32"}, []uint64{0xffffffff, 1}, 0, "no sign"},
		{form{op: "mad.wide.s32"}, []uint64{0xffffffff, 3, 1}, math.MaxUint64 - 1, "1 - 3 in 64 bits"},
		{form{op: "shr.s32"}, []uint64{0x80000000, 99}, 0xffffffff, "shifts are clamped, the sign stays"},
		{form{op: "shl.b32"}, []uint64{1, 32}, 0, "shifts are clamped"},
		{form{op: "shf.l.wrap.b32"}, []uint64{0x80000000, 1, 33}, 3, "shifts wrap"},
		{form{op: "clz.b32"}, []uint64{0}, 32, "no bit at all"},
		{form{op: "brev.b32"}, []uint64{1}, 0x80000000, "the lowest bit becomes the highest"},
		{form{op: "bfe.s32"}, []uint64{0x0000f000, 12, 4}, 0xffffffff, "the field's highest bit is its sign"},
		{form{op: "bfe.s32"}, []uint64{0x80000000, 31, 9}, 0xffffffff, "past the end it is the operand's"},
		{form{op: "bfe.u32"}, []uint64{0xabcd1234, 8, 8}, 0x12, "eight bits from bit 8"},
		{form{op: "bfi.b32"}, []uint64{0xff, 0, 28, 8}, 0xf0000000, "cut off at the end"},
		{form{"lop3.b32", "128"}, []uint64{0xf0, 0xcc, 0xaa}, 0x80, "a & b & c"},
		{form{"lop3.b32", "64"}, []uint64{0xf0, 0xcc, 0xaa}, 0x40, "a & b & ^c"},
		{form{"lop3.b32", "234"}, []uint64{0xf0, 0xcc, 0xaa}, 0xea, "a & b | c: the table itself"},
		{form{op: "prmt.b32"}, []uint64{0x33221100, 0x77665544, 0x0123}, 0x00112233, "bytes turned round"},
		{form{op: "prmt.b32"}, []uint64{0x33221100, 0x77665544, 0x7531}, 0x77553311, "odd bytes"},
		{form{op: "prmt.b32"}, []uint64{0x00008000, 0, 0x0999}, 0x00ffffff, "bit 3 repeats the sign"},
		{form{op: "prmt.b32.f4e"}, []uint64{0x33221100, 0x77665544, 5}, 0x44332211, "forward from byte 1: two bits count"},
		{form{op: "prmt.b32.b4e"}, []uint64{0x33221100, 0x77665544, 1}, 0x66770011, "backward from byte 1"},
		{form{op: "dp4a.s32.u32"}, []uint64{0xff01ff01, 0x02020280, 7}, 133, "128 - 2 + 2 - 2 + 7"},
		{form{op: "setp.ne.f32"}, []uint64{nan, nan}, 0, "NaN is not even unequal"},
		{form{op: "setp.neu.f32"}, []uint64{nan, nan}, 1, "but unordered"},
		{form{op: "setp.lt.s32"}, []uint64{0xffffffff, 0}, 1, "signed"},
		{form{op: "setp.lo.u32"}, []uint64{0xffffffff, 0}, 0, "unsigned"},
		{form{op: "cvt.rni.s32.f32"}, []uint64{bits(2.5)}, 2, "to even"},
		{form{op: "cvt.rzi.u32.f32"}, []uint64{bits(-1)}, 0, "clamped"},
		{form{op: "cvt.rzi.s32.f32"}, []uint64{bits(1e10)}, math.MaxInt32, "clamped"},
		{form{op: "cvt.rzi.s32.f32"}, []uint64{nan}, 0, "of a float32"},
		{form{op: "cvt.rzi.s32.f64"}, []uint64{math.Float64bits(math.NaN())}, 1 << 31, "of a float64"},
		{form{op: "cvt.s32.s8"}, []uint64{0x1ff}, 0xffffffff, "only 8 bits count"},
		{form{op: "cvt.rn.f16.f32"}, []uint64{bits(65519.996)}, 0x7bff, "below the middle"},
		{form{op: "cvt.rn.f16.f32"}, []uint64{bits(65520)}, 0x7c00, "the middle goes to infinity"},
		{form{op: "cvt.rn.f16.f32"}, []uint64{bits(0x1p-25)}, 0, "the middle goes to 0"},
		{form{op: "cvt.rn.f16.f32"}, []uint64{bits(-0x1.8p-25)}, 0x8001, "above it to the least"},
		{form{op: "cvt.rn.bf16x2.f32"}, []uint64{bits(1), bits(2)}, 0x3f804000, "the first goes high"},
		{form{op: "add.rn.f16x2"}, []uint64{0x7bff3c00, 0x4c001400}, 0x7c003c01, "65504 + 16 and 1 + 2^-10, by halves"},
		{form{op: "fma.rn.bf16x2"}, []uint64{0x3f804000, 0x40003f80, 0x3f800000}, 0x40404000, "1·2 + 1 and 2·1 + 0"},
		{form{op: "fma.rn.f32"}, []uint64{0xbfc00000, 0x3f800001, 0x00800000}, 0xbfc00001, "what is far below the middle decides"},
		{form{op: "mul.rn.f32"}, []uint64{inf, 0}, nan, "infinity times 0"},
		{form{op: "mul.rn.f32"}, []uint64{0x80000000, bits(3)}, 0x80000000, "0 has a sign"},
		{form{op: "add.rn.f32"}, []uint64{0x80000000, 0}, 0, "-0 + 0 is 0"},
		{form{op: "min.f32"}, []uint64{0, 0x80000000}, 0x80000000, "-0 is less"},
		{form{op: "max.f32"}, []uint64{nan, bits(1)}, bits(1), "NaN loses"},
		{form{op: "copysign.f32"}, []uint64{bits(-3), bits(2)}, bits(-2), "the sign of the first"},
	} {
		f, ok := laneFormOf(c.form)
		if !ok {
			t.Fatalf("%v has no signature", c.form)
		}
		if got := laneWant(f)(c.x); !sameResult(f.out, got, c.want) {
			t.Errorf("%v of %#x (%s): %#x, want %#x", c.form, c.x, c.why, got, c.want)
		}
	}
}
