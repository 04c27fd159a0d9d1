package device

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// NoIndex is the index of an argmax over nothing.
const NoIndex = math.MaxUint32

// OrderedBits maps a float32 to an integer of the same order; -0 and 0 map to the same
// integer. The result for NaN has no meaning.
func OrderedBits(b *ptx.Builder, x ptx.F32) ptx.U32 {
	bits := x.Add(b.F32(0)).Bits()
	return bits.Xor(bits.S32().ShrN(31).U32().Or(b.U32(1 << 31)))
}

// Best is a candidate of an argmax: the OrderedBits of a value, and its index. Of equal
// values the lowest index wins, so no order of evaluation matters.
type Best struct{ Value, Index ptx.U32 }

// NewBest returns a candidate of two variables that loses to all others.
func NewBest(b *ptx.Builder) Best { return Best{ptx.Var(b.U32(0)), ptx.Var(b.U32(NoIndex))} }

// OverWarp returns the best candidate of the 32 lanes.
func (x Best) OverWarp(b *ptx.Builder) Best {
	top := x.Value.WarpReduce("max")
	return Best{top, ptx.Select(x.Value.Eq(top), x.Index, b.U32(NoIndex)).WarpReduce("min")}
}

// OverCTA returns the best candidate of all threads of the CTA.
func (x Best) OverCTA(b *ptx.Builder) Best {
	slots, lane := b.Shared("warp_best", 8*32, 8), b.Lane()
	x = x.OverWarp(b)
	b.If(lane.EqN(0), func() { slots.At(b.Warp(), 8).StoreU32x2([2]ptx.U32{x.Value, x.Index}) })
	b.Barrier()
	y := NewBest(b)
	b.If(lane.Lt(b.ThreadsX().ShrN(5)), func() {
		pair := slots.At(lane, 8).LoadU32x2()
		ptx.Set(y.Value, pair[0])
		ptx.Set(y.Index, pair[1])
	})
	return y.OverWarp(b)
}
