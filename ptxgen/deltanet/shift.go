package deltanet

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const shiftThreads = 256 // per CTA; each has one channel of a sequence

// Shift replaces the window of each sequence's state by the Taps-1 inputs of the convolution before the next token:
//
//	window[r] = u[p-Taps+1+r]        r from 0 to Taps-2, p is the position after the last token
//
// u is 0 before position 0. No Inputs of the same tokens may run after it.
func Shift() kernel.Typed[ShiftArgs] { return kernel.New("deltanet_shift", buildShift, launchShift) }

type shiftParams struct {
	X                                      ptx.Global
	XStride, Channels, Parts, Rows, Window ptx.U32
}

func buildShift(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("window = the last inputs of the convolution")
	var p shiftParams
	ptx.Declare(b, &p)
	var in batchParams
	ptx.Declare(b, &in)
	sequence := b.BlockX().Div(p.Parts)
	channel := b.BlockX().Sub(sequence.Mul(p.Parts)).MulN(shiftThreads).Add(b.ThreadX())
	b.ReturnIf(channel.Ge(p.Channels))
	first, end := in.Starts.At(sequence, 4).LoadU32(), in.Starts.At(sequence, 4).Plus(4).LoadU32()
	slot := in.Slots.At(sequence, 4).LoadU32()
	b.ReturnIf(first.Ge(end).Or(slot.Eq(b.U32(NoState))))
	start, count := in.Positions.At(first, 4).LoadU32(), end.Sub(first)
	window := in.state(slot).At(p.Window, 4).At(channel, 4)
	row := func(r ptx.U32) ptx.Global { return window.AtBytes(r.MulWide(p.Channels).ShlN(2)).Aligned(4) }
	b.Comment("row r+count of the old window and the tokens behind it; rows are replaced in ascending order")
	b.For(b.U32(0), p.Rows, b.U32(1), func(r ptx.U32) {
		from := r.Add(count)
		u := ptx.Var(b.F32(0))
		b.IfElse(from.Ge(p.Rows), func() {
			ptx.Set(u, p.X.AtBytes(first.Add(from.Sub(p.Rows)).MulWide(p.XStride).ShlN(2)).Aligned(4).At(channel, 4).LoadF32())
		}, func() {
			b.If(p.Rows.Le(start.Add(from)), func() { ptx.Set(u, row(from).LoadF32()) })
		})
		row(r).StoreF32(u)
	}, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(shiftThreads))
}

// ShiftArgs are the arguments of a launch of Shift.
type ShiftArgs struct {
	X       ptx.Address // f32, as of Inputs
	XStride int         // elements from token to token
	Shape   Shape
	Batch   Batch
}

func launchShift(k *ptx.Kernel, a ShiftArgs) (ptx.Launch, error) {
	s := a.Shape
	if err := checkBoth(k, s, a.Batch); err != nil {
		return ptx.Launch{}, err
	}
	if err := host.Valid(k, host.Bound("XStride", a.XStride, s.channels(), host.MaxSize), host.NonNil("X", a.X)); err != nil {
		return ptx.Launch{}, err
	}
	parts := host.CeilDiv(s.channels(), shiftThreads)
	in := a.Batch.params()
	return k.Launch([3]uint32{uint32(a.Batch.Sequences * parts), 1, 1}, shiftThreads, 0, &shiftParams{
		X: ptx.Addr(a.X), XStride: ptx.Uint(a.XStride), Channels: ptx.Uint(s.channels()), Rows: ptx.Uint(s.Taps - 1),
		Parts: ptx.Uint(parts), Window: ptx.Uint(s.matrixFloats()),
	}, &in)
}
