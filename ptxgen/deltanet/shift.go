package deltanet

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

type shiftParams struct {
	Inputs                                      ptx.Global
	InputsStride, Channels, Parts, Rows, Window ptx.U32
}

// emitShift emits the second part of Recur. Each thread has one channel of a sequence.
func emitShift(b *ptx.Builder, threads int) {
	device.Overlap(b)
	var p shiftParams
	ptx.Declare(b, &p)
	var in batchParams
	ptx.Declare(b, &in)
	sequence := b.BlockX().Div(p.Parts)
	channel := b.BlockX().Sub(sequence.Mul(p.Parts)).MulN(threads).Add(b.ThreadX())
	b.ReturnIf(channel.Ge(p.Channels))
	first, end := in.Starts.At(sequence, 4).LoadU32(), in.Starts.At(sequence, 4).Plus(4).LoadU32()
	index := in.StateIndex.At(sequence, 4).LoadU32()
	b.ReturnIf(first.Ge(end).Or(index.Eq(b.U32(NoState))))
	start, count := in.Positions.At(first, 4).LoadU32(), end.Sub(first)
	window := in.state(index).At(p.Window, 4).At(channel, 4)
	row := func(r ptx.U32) ptx.Global { return window.AtBytes(r.MulWide(p.Channels).ShlN(2)).Aligned(4) }
	b.Comment("row r+count of the old window and the tokens behind it; rows are replaced in ascending order")
	b.For(b.U32(0), p.Rows, b.U32(1), func(r ptx.U32) {
		from := r.Add(count)
		u := ptx.Var(b.F32(0))
		b.IfElse(from.Ge(p.Rows), func() {
			ptx.Set(u, p.Inputs.AtBytes(first.Add(from.Sub(p.Rows)).MulWide(p.InputsStride).ShlN(2)).Aligned(4).At(channel, 4).LoadF32())
		}, func() {
			b.If(p.Rows.Le(start.Add(from)), func() { ptx.Set(u, row(from).LoadF32()) })
		})
		row(r).StoreF32(u)
	}, ptx.NoUnroll)
}

func (a RecurArgs) shiftPart(threads int) ptx.Part {
	s, in := a.Shape, a.Batch.params()
	parts := host.CeilDiv(s.channels(), threads)
	return ptx.Part{CTAs: a.Batch.Sequences * parts, Threads: threads, Params: []any{&shiftParams{
		Inputs: ptx.Addr(a.Inputs), InputsStride: ptx.Uint(a.InputsStride), Channels: ptx.Uint(s.channels()), Rows: ptx.Uint(s.Taps - 1),
		Parts: ptx.Uint(parts), Window: ptx.Uint(s.matrixFloats()),
	}, &in}}
}
