package emu

import (
	"math"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

const integers = "u8|s8|u16|s16|u32|s32|u64|s64"

// Conversions between types.
var convertForms = []form{
	{pattern: "cvt." + integers + "." + integers, build: buildConvertInt},
	{pattern: "cvt.rn.f32|f64.u32|s32|u64|s64", build: buildConvertToFloat},
	{pattern: "cvt.rzi|rni|rmi|rpi.u32|s32|u64|s64.f32|f64", build: buildConvertToInt},
	{pattern: "cvt.rzi|rni|rmi|rpi.f32.f32", args: "f32 f32", build: buildRound},
	{pattern: "cvt.f64.f32", args: "f64 f32", vec: unaryU64(func(a uint64) uint64 { return canonical64(float64(float32Of(a))) })},
	{pattern: "cvt.rn.f32.f64", args: "f32 f64", vec: unaryU64(func(a uint64) uint64 { return canonical32(float32(math.Float64frombits(a))) })},

	{pattern: "cvt.f32.f16", args: "f32 b16", vec: unaryU64(func(a uint64) uint64 { return bits32(alu.F16ToF32(uint16(a))) })},
	{pattern: "cvt.f32.bf16", needs: requirement{71, 90}, args: "f32 b16",
		vec: unaryU64(func(a uint64) uint64 { return bits32(alu.BF16ToF32(uint16(a))) })},
	{pattern: "cvt.rn.f16.f32", args: "b16 f32", vec: unaryU64(func(a uint64) uint64 { return uint64(alu.F32ToF16(float32Of(a))) })},
	{pattern: "cvt.rn.bf16.f32", needs: requirement{70, 80}, args: "b16 f32",
		vec: unaryU64(func(a uint64) uint64 { return uint64(alu.F32ToBF16(float32Of(a))) })},
	{pattern: "cvt.rn.f16x2.f32", needs: requirement{70, 80}, args: "b32 f32 f32", vec: packPair(alu.F32ToF16)},
	{pattern: "cvt.rn.bf16x2.f32", needs: requirement{70, 80}, args: "b32 f32 f32", vec: packPair(alu.F32ToBF16)},
}

// canonical32 returns the bits of f, or of the canonical NaN.
func canonical32(f float32) uint64 {
	if f != f {
		return 0x7fffffff
	}
	return bits32(f)
}

// packPair converts two floats to a pair. The first operand goes to the high half.
func packPair(f func(float32) uint16) func(d, a, b, c *vec) {
	return binaryU64(func(a, b uint64) uint64 {
		return uint64(f(float32Of(a)))<<16 | uint64(f(float32Of(b)))
	})
}

// extend reads a register as an integer of type t and extends it to 64 bits.
func extend(t syntax.Type, v uint64) uint64 {
	shift := 64 - t.Bits
	if t.Kind == syntax.Signed {
		return uint64(int64(v<<shift) >> shift)
	}
	return v << shift >> shift
}

// conversion decodes d, a, where the registers may be larger than the types. reg is the type of
// register d.
func (d *decoder) conversion(in *syntax.Instruction, to, from syntax.Type) (o op, reg syntax.Type, err error) {
	if err = wantOperands(in, 2); err != nil {
		return
	}
	if o.a, err = d.sourceWithin(in.Operands[1], from); err != nil {
		return
	}
	if o.d, err = d.typed(in.Operands[0], to, to.FitsWithin); err != nil {
		return
	}
	reg, _ = d.entry.Register(in.Operands[0].Name)
	return
}

func buildConvertInt(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	to, _ := syntax.ParseType(q[1])
	from, _ := syntax.ParseType(q[2])
	o, reg, err := d.conversion(in, to, from)
	keep := ones(max(reg.Bits, 1))
	o.vec = unaryU64(func(a uint64) uint64 { return extend(to, extend(from, a)) & keep })
	return o, err
}

func buildConvertToFloat(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	to, _ := syntax.ParseType(q[2])
	from, _ := syntax.ParseType(q[3])
	o, _, err := d.conversion(in, to, from)
	signed := from.Kind == syntax.Signed
	o.vec = unaryU64(func(a uint64) uint64 {
		v := extend(from, a)
		switch {
		case to.Bits == 64 && signed:
			return math.Float64bits(float64(int64(v)))
		case to.Bits == 64:
			return math.Float64bits(float64(v))
		case signed:
			return bits32(float32(int64(v)))
		}
		return bits32(float32(v))
	})
	return o, err
}

// roundings round to an integral number.
var roundings = map[string]func(float64) float64{
	"rzi": math.Trunc, "rni": math.RoundToEven, "rmi": math.Floor, "rpi": math.Ceil,
}

// buildConvertToInt decodes a conversion that clamps values out of range. NaN becomes 0, or the
// highest bit alone if the source is an f64 or the result has 64 bits.
func buildConvertToInt(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	round := roundings[q[1]]
	to, _ := syntax.ParseType(q[2])
	from, _ := syntax.ParseType(q[3])
	o, reg, err := d.conversion(in, to, from)
	keep := ones(max(reg.Bits, 1))
	low, high := 0.0, math.Ldexp(1, to.Bits)
	least, most := uint64(0), ones(to.Bits)
	if to.Kind == syntax.Signed {
		low, high = -high/2, high/2
		least, most = extend(to, 1<<(to.Bits-1))&keep, ones(to.Bits-1)
	}
	nan := uint64(0)
	if from.Bits == 64 || to.Bits == 64 {
		nan = extend(to, 1<<(to.Bits-1)) & keep
	}
	o.vec = unaryU64(func(a uint64) uint64 {
		f := math.Float64frombits(a)
		if from.Bits == 32 {
			f = float64(float32Of(a))
		}
		f = round(f)
		switch {
		case f != f:
			return nan
		case f < low:
			return least
		case f >= high:
			return most
		case to.Kind == syntax.Signed:
			return uint64(int64(f)) & keep
		}
		return uint64(f)
	})
	return o, err
}

func buildRound(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	round := roundings[q[1]]
	f := form{args: "f32 f32", vec: unaryU64(func(a uint64) uint64 {
		return canonical32(float32(round(float64(float32Of(a)))))
	})}
	return d.fromArgs(&f, in, q)
}
