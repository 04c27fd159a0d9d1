package conformance

import (
	"math"
	"math/big"
	"math/bits"
	"strings"

	"github.com/lockstep-go/lockstep/quant"
)

// isOp reports whether the opcode begins with one of these.
func (f laneForm) isOp(prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(f.op, p) {
			return true
		}
	}
	return false
}

// wantOf computes an exact instruction in Go, from the definitions of the PTX ISA
// and with nothing of the emulator, for thread i of these operands; nil where there
// is no such expectation.
func wantOf(f laneForm) func(x [][]uint64, i int) uint64 {
	if w := warpWants[f.op]; w != nil {
		return w
	}
	if f.isOp("shfl") {
		return shuffleWant(f)
	}
	lane := laneWant(f)
	if lane == nil {
		return nil
	}
	return func(x [][]uint64, i int) uint64 {
		own := make([]uint64, len(x))
		for j := range x {
			own[j] = x[j][i]
		}
		return lane(own)
	}
}

// laneWant is wantOf for what depends on the lane's own operands.
func laneWant(f laneForm) func(x []uint64) uint64 {
	switch {
	case exactWants[f.op] != nil:
		return exactWants[f.op]
	case f.isOp("lop3"):
		return lop3Want(f)
	case f.isOp("prmt"):
		return prmtWant(f)
	case f.isOp("setp"):
		return setpWant(f)
	case f.isOp("selp"):
		return func(x []uint64) uint64 {
			if x[2] != 0 {
				return x[0]
			}
			return x[1]
		}
	case f.isOp("mov."):
		return func(x []uint64) uint64 { return x[0] }
	}
	return nil
}

func f32Of(x uint64) float32     { return math.Float32frombits(uint32(x)) }
func bitsOfF32(x float32) uint64 { return uint64(math.Float32bits(x)) }

func u32(x int64) uint64 { return uint64(uint32(x)) }

// rounded32 is a sum of products, rounded once to float32: exactly, by rational
// numbers, where it is finite and not 0; else as float64 has it, where signs of
// zeros, infinities and NaN are the same.
func rounded32(a, b, c float32) uint64 {
	y := math.FMA(float64(a), float64(b), float64(c))
	if y == 0 || math.IsInf(y, 0) || y != y {
		return bitsOfF32(float32(y))
	}
	sum := new(big.Rat).Mul(rational(a), rational(b))
	near, _ := sum.Add(sum, rational(c)).Float32()
	if near == 0 {
		near = float32(math.Copysign(0, y))
	}
	return bitsOfF32(near)
}

func rational(x float32) *big.Rat { return new(big.Rat).SetFloat64(float64(x)) }

// exactWants are expectations by opcode. Arithmetic of float32 on single operations
// is Go's own, which rounds to nearest even and keeps subnormals, as .rn does.
var exactWants = map[string]func(x []uint64) uint64{
	"add.u32":         func(x []uint64) uint64 { return u32(int64(x[0] + x[1])) },
	"add.s32":         func(x []uint64) uint64 { return u32(int64(x[0] + x[1])) },
	"sub.u32":         func(x []uint64) uint64 { return u32(int64(x[0] - x[1])) },
	"mul.lo.u32":      func(x []uint64) uint64 { return u32(int64(x[0] * x[1])) },
	"mul.lo.s32":      func(x []uint64) uint64 { return u32(int64(x[0] * x[1])) },
	"mul.hi.u32":      func(x []uint64) uint64 { return x[0] * x[1] >> 32 },
	"mad.lo.u32":      func(x []uint64) uint64 { return u32(int64(x[0]*x[1] + x[2])) },
	"mul.wide.u32":    func(x []uint64) uint64 { return x[0] * x[1] },
	"mad.wide.u32":    func(x []uint64) uint64 { return x[0]*x[1] + x[2] },
	"add.u64":         func(x []uint64) uint64 { return x[0] + x[1] },
	"sub.u64":         func(x []uint64) uint64 { return x[0] - x[1] },
	"mul.lo.u64":      func(x []uint64) uint64 { return x[0] * x[1] },
	"div.u32":         func(x []uint64) uint64 { return x[0] / x[1] },
	"rem.u32":         func(x []uint64) uint64 { return x[0] % x[1] },
	"min.u32":         func(x []uint64) uint64 { return min(x[0], x[1]) },
	"max.u32":         func(x []uint64) uint64 { return max(x[0], x[1]) },
	"min.s32":         func(x []uint64) uint64 { return u32(int64(min(int32(x[0]), int32(x[1])))) },
	"max.s32":         func(x []uint64) uint64 { return u32(int64(max(int32(x[0]), int32(x[1])))) },
	"max.u64":         func(x []uint64) uint64 { return max(x[0], x[1]) },
	"and.b32":         func(x []uint64) uint64 { return x[0] & x[1] },
	"or.b32":          func(x []uint64) uint64 { return x[0] | x[1] },
	"xor.b32":         func(x []uint64) uint64 { return x[0] ^ x[1] },
	"not.b32":         func(x []uint64) uint64 { return u32(int64(^x[0])) },
	"or.b64":          func(x []uint64) uint64 { return x[0] | x[1] },
	"and.pred":        func(x []uint64) uint64 { return x[0] & x[1] },
	"or.pred":         func(x []uint64) uint64 { return x[0] | x[1] },
	"xor.pred":        func(x []uint64) uint64 { return x[0] ^ x[1] },
	"not.pred":        func(x []uint64) uint64 { return x[0] ^ 1 },
	"shl.b32":         func(x []uint64) uint64 { return u32(int64(x[0] << min(x[1], 32))) },
	"shr.u32":         func(x []uint64) uint64 { return x[0] >> min(x[1], 32) },
	"shr.s32":         func(x []uint64) uint64 { return u32(int64(int32(x[0])) >> min(x[1], 31)) },
	"shl.b64":         func(x []uint64) uint64 { return x[0] << min(x[1], 64) },
	"shr.u64":         func(x []uint64) uint64 { return x[0] >> min(x[1], 64) },
	"neg.s32":         func(x []uint64) uint64 { return u32(-int64(x[0])) },
	"popc.b32":        func(x []uint64) uint64 { return uint64(bits.OnesCount64(x[0])) },
	"clz.b32":         func(x []uint64) uint64 { return uint64(bits.LeadingZeros32(uint32(x[0]))) },
	"bfe.u32":         func(x []uint64) uint64 { return x[0] >> min(x[1]&255, 32) & (1<<min(x[2]&255, 32) - 1) },
	"bfi.b32":         bfiWant,
	"dp4a.s32.s32":    func(x []uint64) uint64 { return dp4aWant(x, true, true) },
	"dp4a.s32.u32":    func(x []uint64) uint64 { return dp4aWant(x, true, false) },
	"dp4a.u32.s32":    func(x []uint64) uint64 { return dp4aWant(x, false, true) },
	"cvt.u64.u32":     func(x []uint64) uint64 { return x[0] },
	"cvt.u32.u64":     func(x []uint64) uint64 { return uint64(uint32(x[0])) },
	"cvt.u32.u16":     func(x []uint64) uint64 { return x[0] },
	"cvt.u16.u32":     func(x []uint64) uint64 { return x[0] & 0xffff },
	"cvt.rn.f32.u32":  func(x []uint64) uint64 { return bitsOfF32(float32(uint32(x[0]))) },
	"cvt.rn.f32.s32":  func(x []uint64) uint64 { return bitsOfF32(float32(int32(x[0]))) },
	"cvt.rn.f64.u32":  func(x []uint64) uint64 { return math.Float64bits(float64(uint32(x[0]))) },
	"cvt.rn.f64.s32":  func(x []uint64) uint64 { return math.Float64bits(float64(int32(x[0]))) },
	"cvt.f64.f32":     func(x []uint64) uint64 { return math.Float64bits(float64(f32Of(x[0]))) },
	"cvt.rn.f32.f64":  func(x []uint64) uint64 { return bitsOfF32(float32(math.Float64frombits(x[0]))) },
	"cvt.f32.f16":     func(x []uint64) uint64 { return bitsOfF32(quant.F16ToF32(uint16(x[0]))) },
	"cvt.rn.f16.f32":  func(x []uint64) uint64 { return uint64(quant.F32ToF16(f32Of(x[0]))) },
	"cvt.rn.bf16.f32": func(x []uint64) uint64 { return uint64(quant.F32ToBF16(f32Of(x[0]))) },
	"cvt.rn.f16x2.f32": func(x []uint64) uint64 {
		return uint64(quant.F32ToF16(f32Of(x[0])))<<16 | uint64(quant.F32ToF16(f32Of(x[1])))
	},
	"cvt.rn.bf16x2.f32": func(x []uint64) uint64 {
		return uint64(quant.F32ToBF16(f32Of(x[0])))<<16 | uint64(quant.F32ToBF16(f32Of(x[1])))
	},
	"cvt.rni.s32.f32": func(x []uint64) uint64 {
		return saturated(math.RoundToEven(float64(f32Of(x[0]))), math.MinInt32, math.MaxInt32)
	},
	"cvt.rni.s32.f64": func(x []uint64) uint64 {
		if y := math.Float64frombits(x[0]); y == y {
			return saturated(math.RoundToEven(y), math.MinInt32, math.MaxInt32)
		}
		return 1 << 31 // of a float64 that is NaN, unlike of a float32
	},
	"cvt.rzi.u32.f32": func(x []uint64) uint64 {
		return saturated(math.Trunc(float64(f32Of(x[0]))), 0, math.MaxUint32)
	},
	"add.rn.f32":  func(x []uint64) uint64 { return bitsOfF32(f32Of(x[0]) + f32Of(x[1])) },
	"sub.rn.f32":  func(x []uint64) uint64 { return bitsOfF32(f32Of(x[0]) - f32Of(x[1])) },
	"mul.rn.f32":  func(x []uint64) uint64 { return bitsOfF32(f32Of(x[0]) * f32Of(x[1])) },
	"div.rn.f32":  func(x []uint64) uint64 { return bitsOfF32(f32Of(x[0]) / f32Of(x[1])) },
	"rcp.rn.f32":  func(x []uint64) uint64 { return bitsOfF32(1 / f32Of(x[0])) },
	"sqrt.rn.f32": func(x []uint64) uint64 { return bitsOfF32(float32(math.Sqrt(float64(f32Of(x[0]))))) },
	"fma.rn.f32":  func(x []uint64) uint64 { return rounded32(f32Of(x[0]), f32Of(x[1]), f32Of(x[2])) },
	"neg.f32":     func(x []uint64) uint64 { return x[0] ^ 1<<31 },
	"abs.f32":     func(x []uint64) uint64 { return x[0] &^ (1 << 31) },
	"min.f32":     func(x []uint64) uint64 { return lesser(x[0], x[1]) },
	"max.f32":     func(x []uint64) uint64 { return lesser(x[0]^1<<31, x[1]^1<<31) ^ 1<<31 },
	"add.rn.f64": func(x []uint64) uint64 {
		return math.Float64bits(math.Float64frombits(x[0]) + math.Float64frombits(x[1]))
	},
	"sub.rn.f64": func(x []uint64) uint64 {
		return math.Float64bits(math.Float64frombits(x[0]) - math.Float64frombits(x[1]))
	},
	"mul.rn.f64": func(x []uint64) uint64 {
		return math.Float64bits(math.Float64frombits(x[0]) * math.Float64frombits(x[1]))
	},
	"fma.rn.f64": func(x []uint64) uint64 {
		return math.Float64bits(math.FMA(math.Float64frombits(x[0]), math.Float64frombits(x[1]), math.Float64frombits(x[2])))
	},
}

// lesser is the smaller of two float32; NaN loses to a number, -0 is below +0.
func lesser(a, b uint64) uint64 {
	x, y := f32Of(a), f32Of(b)
	switch {
	case x != x:
		return b
	case y != y:
		return a
	case x == 0 && y == 0:
		return a | b
	case x < y:
		return a
	}
	return b
}

// saturated is a rounded number as an integer of 32 bits; NaN gives 0.
func saturated(x, least, most float64) uint64 {
	if x != x {
		return 0
	}
	return u32(int64(min(max(x, least), most)))
}
