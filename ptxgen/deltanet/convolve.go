package deltanet

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

type convolveParams struct {
	X, W, Sequence, Y              ptx.Global
	XStride, Channels, Taps, Parts ptx.U32
	AllHeads, UnitHeads            ptx.U32
	Window                         ptx.U32 // where it begins in a state
	Eps                            ptx.F32
}

// tapLoads is how many taps of all its channels a thread has in flight.
const tapLoads = 4

// emitConvolve emits the convolution of Inputs. While earlier kernels run, it loads the weights of the first
// taps and the arrays of the batch.
func emitConvolve(b *ptx.Builder, dim int) {
	b.LaunchDependents()
	var p convolveParams
	ptx.Declare(b, &p)
	var in batchParams
	ptx.Declare(b, &in)
	token := b.BlockX().Div(p.Parts)
	head := b.BlockX().Sub(token.Mul(p.Parts)).MulN(inputsWarps).Add(b.Warp())
	hasHead := head.Lt(p.AllHeads)
	first := head.MulN(dim).Add(b.Lane()) // the lane's first channel; the next ones are 32 apart
	sums := make([]ptx.F32, host.CeilDiv(dim, 32))
	var w [tapLoads][]ptx.F32
	for g := range sums {
		sums[g] = ptx.Var(b.F32(0))
		for n := range w {
			w[n] = append(w[n], ptx.Var(b.F32(0)))
		}
	}
	channel := func(row ptx.Global, g int) ptx.Global { return row.Aligned(4).At(first, 4).Plus(128 * g) }
	allLanes := func(g int) bool { return 32*g+32 <= dim }
	hasLast := hasHead // the lane has a channel of the last group
	if dim%32 != 0 {
		hasLast = b.Lane().LtN(dim % 32)
	}
	last := p.Taps.AddN(-1)
	loadWeights := func(from ptx.U32) {
		for n := range w {
			row := p.W.AtBytes(from.AddN(n).Min(last).MulWide(p.Channels).ShlN(2))
			for g, x := range w[n] {
				at := channel(row, g)
				load := func() { ptx.Set(x, at.LoadF32(ptx.ReadOnly)) }
				if allLanes(g) {
					load()
				} else {
					b.When(hasLast, load)
				}
			}
		}
	}
	b.Comment("Volatile keeps the compiler from moving a load after the wait")
	sequence, position := p.Sequence.At(token, 4).LoadU32(ptx.Volatile), in.Positions.At(token, 4).LoadU32(ptx.Volatile)
	b.If(hasHead, func() { loadWeights(b.U32(0)) })
	index, start := in.StateIndex.At(sequence, 4).LoadU32(ptx.Volatile), in.Starts.At(sequence, 4).LoadU32(ptx.Volatile)
	b.WaitForPrior()
	b.ReturnIf(hasHead.Not())  // whole warps
	offset := token.Sub(start) // from the sequence's first token in the batch
	hasState := index.Ne(b.U32(NoState))
	known := ptx.Select(hasState, position.AddN(1), b.U32(0)) // how many of the last inputs are known

	window := in.state(index).At(p.Window, 4)
	addTaps := func(from ptx.U32) {
		var u [tapLoads][]ptx.F32
		for n := range u {
			tap := from.AddN(n)
			back := last.Sub(tap) // positions before the token's; it wraps around beyond the last tap
			inBatch := back.Le(offset)
			row := ptx.Select(inBatch, p.X.AtBytes(token.Sub(back).MulWide(p.XStride).ShlN(2)).Address(),
				window.AtBytes(offset.Add(tap).MulWide(p.Channels).ShlN(2)).Address())
			for g := range sums {
				x, at, loads := ptx.Var(b.F32(0)), channel(ptx.GlobalAt(row, 4), g), back.Lt(known)
				if !allLanes(g) {
					loads = loads.And(hasLast)
				}
				b.When(loads, func() { ptx.Set(x, at.LoadF32()) })
				u[n] = append(u[n], x)
			}
		}
		for n := range u {
			b.If(from.AddN(n).Lt(p.Taps), func() {
				for g, sum := range sums {
					ptx.Set(sum, w[n][g].FMA(u[n][g], sum))
				}
			})
		}
	}
	addTaps(b.U32(0))
	b.For(b.U32(tapLoads), p.Taps, b.U32(tapLoads), func(from ptx.U32) {
		loadWeights(from)
		addTaps(from)
	}, ptx.NoUnroll)
	b.ReturnIf(hasState.Not())

	square := b.F32(0)
	for g, sum := range sums {
		sums[g] = device.ActivateN(b, device.SiLU, sum) // 0 in a lane without the channel
		square = sums[g].FMA(sums[g], square)
	}
	length := ptx.WarpSum(square).Sqrt().Max(p.Eps)
	length = ptx.Select(head.Lt(p.UnitHeads), length, b.F32(1))
	y := p.Y.AtBytes(token.MulWide(p.Channels).ShlN(2))
	for g, sum := range sums {
		store := func() { channel(y, g).StoreF32(sum.Div(length)) }
		if allLanes(g) {
			store()
		} else {
			b.If(hasLast, store)
		}
	}
}

func (a InputsArgs) convolvePart() ptx.Part {
	s, in := a.Shape, a.Batch.params()
	heads := 2*s.KeyHeads + s.ValueHeads
	parts := host.CeilDiv(heads, inputsWarps)
	return ptx.Part{CTAs: a.Batch.Tokens * parts, Threads: 32 * inputsWarps, Params: []any{&convolveParams{
		X: ptx.Addr(a.X), W: ptx.Addr(a.W), Sequence: ptx.Addr(a.Batch.Sequence), Y: ptx.Addr(a.Y),
		XStride: ptx.Uint(a.XStride), Channels: ptx.Uint(s.channels()), Taps: ptx.Uint(s.Taps),
		AllHeads: ptx.Uint(heads), UnitHeads: ptx.Uint(2 * s.KeyHeads), Parts: ptx.Uint(parts), Window: ptx.Uint(s.matrixFloats()), Eps: ptx.Float(a.Eps),
	}, &in}}
}
