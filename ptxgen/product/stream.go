package product

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Stream multiplies a matrix of weights by one to eight tokens:
//
//	p[t,r] = Σ_k W[r,k]·x[t,k]
//
// as package internal/product defines, and stores what its Epilogue makes of p. It is bound by the memory that holds the weights, or by
// decoding them.
//
// A CTA multiplies consecutive row tiles, so that its weights are one piece of memory. One lane copies them, stage by stage, into a
// ring in shared memory. A stage has some segments. The other warps take the segments in turn: a warp decodes one and multiplies it
// on tensor cores by activations that the CTA has rounded before. It leaves the inner sums in a buffer in shared memory. The warp that
// has the last segment of a row tile adds them in order.
type Stream struct {
	Format quant.Format
	Tokens int // at most: 1, 2, 4 or 8; StreamFor chooses up to 4
	Warps  int // that multiply, per CTA: at most 28
	Stage  int // segments per stage: a divisor of Warps, because Stage warps read stages of their own
	Ring   int // stages per Stage warps: the ring has Ring·Warps/Stage
	CTAs   int // resident per SM: the compiler limits the registers to that

	// Experts has one matrix per expert and one token per slot. Slot i multiplies row i/SlotsPerX of X by the matrix of
	// expert Args.Experts[i], and writes row i of Y. Tokens is 1.
	Experts bool

	Epilogue Epilogue
}

// Kernel returns the kernel.
func (s Stream) Kernel() kernel.Typed[Args] { return kernelOf(s) }

// name returns product_stream_FORMAT_TOKENS_wWARPS_rRINGxSTAGE_cCTAS, experts, and the parts of the epilogue.
func (s Stream) name() string {
	return fmt.Sprintf("product_stream_%s_%d_w%d_r%dx%d_c%d%s%s",
		host.FormatName(s.Format), s.Tokens, s.Warps, s.Ring, s.Stage, s.CTAs, expertName(s.Experts), s.Epilogue.name())
}

// pairBytes is the size of the rounded activations of a token for two steps.
const pairBytes = 64

// pairs is the number of pairs of steps per segment. The last one has the offsets, if there are any.
func (s Stream) pairs() int { return (steps + 1 + offsetSteps(s.Format)) / 2 }

// tokenBytes is the size of the rounded activations of a segment of a token.
func (s Stream) tokenBytes() int { return s.pairs() * pairBytes }

// streamParams are the parameters of Stream alone.
type streamParams struct {
	K              ptx.U32
	Tiles, Extra   ptx.U32 // per CTA, and how many CTAs have one more
	Log2SumBuffers ptx.U32 // of the number of buffers in shared memory, each for the inner sums of a row tile

	StepTiles, StepSegments ptx.U32 // row tiles and segments from one segment of a warp to its next one
}

// streamExpertParams are the parameters of a Stream of experts.
type streamExpertParams struct {
	Experts     ptx.Global
	SlotsPerX   ptx.U32
	ExpertBytes ptx.U64
}

// stream is a Stream being built.
type stream struct {
	spec Stream
	l    layout
	p    productParams
	own  streamParams
	norm normParams
	epi  epilogueParams
	moe  streamExpertParams
	slot slotParams
	b    *ptx.Builder
	c    *constants

	warp, lane   ptx.U32
	first, count ptx.U32 // of the CTA's row tiles
	left         ptx.U32 // variable: segments that have not been copied

	normWeights [roundedAtOnce][8]ptx.F32 // variables, the lane's part of those segments that the warp rounds next
	factor      ptx.F32                   // variable: f of the token with the lane's number, or 0 before it is computed: see computeFactor

	acts    ptx.Shared // activations: {segment, pair of steps, token, quarter of the columns, 8 float16}
	sums    ptx.Shared // {buffer, segment}: inner sums, see storeSums
	xScales ptx.Shared // f32: E of {segment, token}
	squares ptx.Shared // f32, with a norm: sum of the squares of {segment, token}
	ring    ptx.Shared // weights: {stage, segment}
	full    ptx.Shared // barriers, {stage}: weights have arrived
	empty   ptx.Shared // barriers, {stage}: the warps that read the stage have done so
	done    ptx.Shared // barriers, {buffer}: all inner sums of a row tile are there
	free    ptx.Shared // barriers, {buffer}: they have been added
}

// Bounds of a Stream. Operand B of an instruction has eight columns, one per token. With 28 warps, a thread may have
// 64 registers.
const (
	maxStreamTokens = 8
	maxStreamWarps  = 28
)

// maxSumBuffers bounds the buffers of inner sums: two per warp, rounded up to a power of two.
const maxSumBuffers = 64

func (s Stream) emit(b *ptx.Builder) {
	_, ok := layouts[s.Format]
	ok = ok && powerOfTwo(s.Tokens) && s.Tokens <= maxStreamTokens && s.Warps >= 1 && s.Warps <= maxStreamWarps
	ok = ok && (!s.Experts || s.Tokens == 1)
	if !ok || !s.Epilogue.valid() || s.Stage < 1 || s.Warps%s.Stage != 0 || s.Ring < 1 || s.CTAs < 1 {
		b.Failf("%+v is no kernel", s)
		return
	}
	b.Doc("%s\nW packed, of %v", s.Epilogue.doc(), s.Format)
	n := newStream(b, s)
	b.LaunchDependents()
	if s.Experts {
		b.WaitForPrior() // which may choose the experts
		n.chooseExpert()
	} else {
		b.Comment("the first copies do not wait for the kernel that writes the activations")
	}
	b.Comment("ptxas sees that a shuffled number is the same in all lanes")
	warp := ptx.ShuffleIdx(n.warp, b.U32(0))
	b.IfElse(warp.EqN(s.Warps), n.copyAll, func() {
		n.loadNormWeights(n.warp)
		if !s.Experts {
			b.WaitForPrior()
		}
		b.If(warp.LtN(s.Warps), func() { // Beside may start more warps
			n.roundActivations()
			n.rounded().Sync()
			n.run()
		})
	})
}

func powerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

func (s Stream) threads() int { return lanes * (s.Warps + 1) }

func (s Stream) minCTAs() int { return s.CTAs }

// work implements generator: the size of the weights stands for the time.
func (s Stream) work(a Args) (tasks, cost int) {
	return rowTiles(a.Rows), layouts[s.Format].segmentBytes()
}

// stages is the number of stages of the ring.
func (s Stream) stages() int { return s.Ring * s.Warps / s.Stage }

func (s Stream) stageBytes() int { return s.Stage * layouts[s.Format].segmentBytes() }

func newStream(b *ptx.Builder, s Stream) *stream {
	n := &stream{spec: s, l: layoutOf(s.Format), b: b}
	ptx.Declare(b, &n.p)
	n.epi.declare(b, s.Epilogue)
	ptx.Declare(b, &n.own)
	if s.Epilogue.Norm {
		ptx.Declare(b, &n.norm)
	}
	if s.Experts {
		ptx.Declare(b, &n.moe)
	}
	if s.Experts && s.Epilogue.Norm {
		ptx.Declare(b, &n.slot)
	}
	n.warp, n.lane = b.Warp(), b.Lane()
	n.first = b.BlockX().Mul(n.own.Tiles).Add(b.BlockX().Min(n.own.Extra))
	n.count = n.own.Tiles.Add(ptx.Select(b.BlockX().Lt(n.own.Extra), b.U32(1), b.U32(0)))
	n.left = ptx.Var(n.count.Mul(n.p.Segments))
	n.c = newConstants(b, n.l)

	n.ring = b.DynamicShared(16)
	n.acts = n.ring.Plus(s.stages() * s.stageBytes())
	n.sums = n.acts.At(n.p.Segments, s.Tokens*s.tokenBytes())
	n.xScales = n.sums.At(n.p.Segments.Shl(n.own.Log2SumBuffers), s.sumBytes())
	if s.Epilogue.Norm {
		n.squares = n.xScales.At(n.p.Segments, 4*s.Tokens)
	}

	// Whole lines of 128 bytes, so that those of the ring behind them are, too.
	all := b.Shared("barriers", host.CeilDiv(8*2*(s.stages()+maxSumBuffers), 128)*128, 8)
	n.full, n.empty = all, all.Plus(8*s.stages())
	n.done, n.free = n.empty.Plus(8*s.stages()), n.empty.Plus(8*s.stages()+8*maxSumBuffers)
	return n
}

// rounded returns the barrier at which the warps that multiply wait for the activations and for all barriers in shared memory.
func (n *stream) rounded() ptx.NamedBarrier { return n.b.NamedBarrier(n.b.N(1), n.spec.threads()) }

// chooseExpert moves the weights and the bias to those of the slot's expert.
func (n *stream) chooseExpert() {
	expert := n.moe.Experts.At(n.b.BlockY(), 4).LoadU32()
	offset := expert.U64().Mul(n.moe.ExpertBytes)
	n.p.Bias = n.spec.Epilogue.biasOf(n.b, n.p.Bias, expert, n.p.Columns)
	n.p.W, n.p.Scales = n.p.W.AtBytes(offset).Aligned(16), n.p.Scales.AtBytes(offset).Aligned(4)
}

// rowOfX and rowOfY return the row of a token.
func (n *stream) rowOfX(token ptx.U32) ptx.U32 {
	if n.spec.Experts {
		return n.b.BlockY().Div(n.moe.SlotsPerX)
	}
	return token
}

func (n *stream) rowOfY(token ptx.U32) ptx.U32 {
	if n.spec.Experts {
		return n.b.BlockY()
	}
	return token
}

// earlySegments is how many segments of weights, rounded up to whole stages, are copied before the wait for the kernel that writes the
// activations. With more, loads of activations wait behind the copies. With fewer, memory is idle. The best number depends on the
// format: see ADR 0060.
const earlySegments = 8

// copyAll copies all weights of the CTA, by one lane. Before the first copies, it initializes the barriers that they need, and after them
// the others.
func (n *stream) copyAll() {
	b, s := n.b, n.spec
	early := n.left.CeilDivN(s.Stage).Min(b.N(min(host.CeilDiv(earlySegments, s.Stage), s.stages()))) // stages
	copies := n.lane.EqN(0)
	b.If(copies, func() {
		initBarriers(b, barriers{n.full, s.stages(), 1})
		b.For(b.U32(0), early, b.U32(1), func(i ptx.U32) { n.copyStage(i, i) }, ptx.NoUnroll)
		initBarriers(b, barriers{n.empty, s.stages(), s.Stage})
		b.For(b.U32(0), b.U32(1).Shl(n.own.Log2SumBuffers), b.U32(1), func(i ptx.U32) {
			b.NewMBarrier(n.done.At(i, 8), n.p.Segments)
			b.NewMBarrier(n.free.At(i, 8), b.U32(1))
		}, ptx.NoUnroll)
	})
	n.rounded().Arrive()
	if !s.Experts {
		b.WaitForPrior()
	}
	b.If(copies, func() {
		i := ptx.Var(early)
		b.While(func() ptx.Pred { return n.left.Gt(b.U32(0)) }, func() {
			stage, parity := stageOf(i, s.stages())
			ptx.MBarrierAt(n.empty.At(stage, 8)).Wait(parity.Xor(b.U32(1)))
			n.copyStage(i, stage)
			ptx.Set(i, i.AddN(1))
		}, ptx.NoUnroll)
	})
}

// copyStage begins copy i, counted from 0, to a stage that is free: Stage segments, or what is left. Calls are in the order of i.
func (n *stream) copyStage(i, stage ptx.U32) {
	b, s := n.b, n.spec
	segments := n.left.Min(b.N(s.Stage))
	size := segments.MulN(n.l.segmentBytes())
	full := ptx.MBarrierAt(n.full.At(stage, 8))
	full.ArriveExpectTx(size)
	from := n.p.W.At(n.first.Mul(n.p.Segments), n.l.segmentBytes()).At(i, s.stageBytes())
	b.BulkLoad(n.ring.At(stage, s.stageBytes()), from, size, full)
	ptx.Set(n.left, n.left.Sub(segments))
}

// roundedAtOnce is the number of segments that a warp loads before it rounds them, so that it waits for memory once.
const roundedAtOnce = 2

// loadNormWeights loads the weights of a norm for the segments that the warp rounds next. first counts pairs of a segment and
// a token, the tokens of a segment in turn. Those of the first ones are loaded before the wait for the kernel that writes x.
func (n *stream) loadNormWeights(first ptx.U32) {
	if !n.spec.Epilogue.Norm {
		return
	}
	for j := range roundedAtOnce {
		seg := first.AddN(j * n.spec.Warps).DivN(n.spec.Tokens)
		assign(&n.normWeights[j], loadSegment(n.b, n.norm.NormWeight, seg.Lt(n.p.Segments), seg, n.own.K, n.l.format.BlockLen()))
	}
}

// roundActivations stores x̂, X and E of all segments and tokens. A warp rounds a segment of a token at a time.
// Beyond the last token, the columns of the operand repeat it.
func (n *stream) roundActivations() {
	b, tokens := n.b, n.spec.Tokens
	all := n.p.Segments.MulN(tokens)
	b.For(n.warp, all, b.N(roundedAtOnce*n.spec.Warps), func(first ptx.U32) {
		x := make([][8]ptx.F32, roundedAtOnce)
		for j := range x {
			i := first.AddN(j * n.spec.Warps)
			row := n.p.X.At(n.rowOfX(i.RemN(tokens).Min(n.p.Tokens.AddN(-1))).Mul(n.own.K), 4)
			x[j] = loadSegment(b, row, i.Lt(all), i.DivN(tokens), n.own.K, n.l.format.BlockLen())
		}
		round := func(i ptx.U32, j int) {
			if n.spec.Epilogue.Norm {
				sum := squares(x[j])
				b.If(n.lane.EqN(0), func() { n.squares.At(i, 4).StoreF32(sum) })
				for k, w := range n.normWeights[j] {
					x[j][k] = x[j][k].Mul(w)
				}
			}
			n.storeActivations(i.DivN(tokens), i.RemN(tokens), x[j])
		}
		round(first, 0)
		for j := 1; j < len(x); j++ {
			i := first.AddN(j * n.spec.Warps)
			b.If(i.Lt(all), func() { round(i, j) })
		}
		n.loadNormWeights(first.AddN(roundedAtOnce * n.spec.Warps))
	}, ptx.NoUnroll)
}

// storeActivations rounds a segment of a token.
func (n *stream) storeActivations(seg, token ptx.U32, x [8]ptx.F32) {
	b, tokens := n.b, n.spec.Tokens
	r := roundSegment(b, x, offsetSteps(n.l.format))
	b.If(n.lane.EqN(0), func() { n.xScales.At(seg.MulN(tokens).Add(token), 4).StoreF32(r.e) })
	at := n.acts.At(seg.MulN(n.spec.pairs()*tokens).Add(token), pairBytes).At(n.lane.ShrN(3), 16)
	pair := n.lane.AndN(3).MulN(2).Add(n.lane.ShrN(2).AndN(1))
	var words [4]ptx.U32
	for i, w := range r.words {
		words[i] = w.Bits()
	}
	at.At(pair, tokens*pairBytes).StoreU32x4(words)
	for _, sums := range r.sums {
		for j := range sums.offsetSteps {
			b.If(n.lane.AndN(7).EqN(sumLane(j, sums.offsetSteps)), func() {
				at.Plus(steps/2*tokens*pairBytes + 8*j).StoreU32x2([2]ptx.U32{sums.words[0].Bits(), sums.words[1].Bits()})
			})
		}
	}
}

// run multiplies the CTA's row tiles. Warp w takes segments w, w+Warps, w+2·Warps and so on of the CTA.
func (n *stream) run() {
	b := n.b
	tile, seg := ptx.Var(n.warp.Div(n.p.Segments)), ptx.Var(n.warp.Rem(n.p.Segments))
	if n.spec.Epilogue.Norm {
		n.factor = ptx.Var(b.F32(0))
	}
	at := newRingPosition(b, n.warp.DivN(n.spec.Stage), n.spec.stages())
	b.While(func() ptx.Pred { return tile.Lt(n.count) }, func() {
		ptx.MBarrierAt(n.full.At(at.stage, 8)).Wait(at.parity)
		block := n.ring.At(at.stage, n.spec.stageBytes()).At(n.warp.RemN(n.spec.Stage), n.l.segmentBytes())
		r := newSegmentReader(n.c, n.l.format, block, n.lane)
		acc := n.multiply(r, seg)
		arriveAsWarp(b, n.lane, ptx.MBarrierAt(n.empty.At(at.stage, 8)))

		buffer, parity := tile.And(b.U32(1).Shl(n.own.Log2SumBuffers).AddN(-1)), tile.Shr(n.own.Log2SumBuffers).AndN(1)
		done, free := ptx.MBarrierAt(n.done.At(buffer, 8)), ptx.MBarrierAt(n.free.At(buffer, 8))
		sums := n.sums.At(buffer.Mul(n.p.Segments), n.spec.sumBytes())
		free.Wait(parity.Xor(b.U32(1)))
		n.storeSums(r, acc, seg, sums.At(seg, n.spec.sumBytes()))
		arriveAsWarp(b, n.lane, done)
		b.If(seg.Eq(n.p.Segments.AddN(-1)), func() {
			n.computeFactor()
			n.add(tile, sums, func() { done.Wait(parity) })
			arriveAsWarp(b, n.lane, free)
		})
		at.advance(b, n.spec.Warps/n.spec.Stage)
		ptx.Set(tile, tile.Add(n.own.StepTiles))
		ptx.Set(seg, seg.Add(n.own.StepSegments))
		b.When(seg.Ge(n.p.Segments), func() {
			ptx.Set(seg, seg.Sub(n.p.Segments))
			ptx.Set(tile, tile.AddN(1))
		})
	}, ptx.NoUnroll)
}

// multiply multiplies a segment. It returns the sums.
func (n *stream) multiply(r *segmentReader, seg ptx.U32) (acc [4]ptx.F32) {
	b, tokens := n.b, n.spec.Tokens
	token := seg.MulN(n.spec.pairs() * tokens)
	if tokens > 1 {
		token = token.Add(n.lane.ShrN(2).Min(b.N(tokens - 1)))
	}
	acts := n.acts.At(token, pairBytes).At(n.lane.AndN(3), 16)
	for i := range acc {
		acc[i] = ptx.Var(b.F32(0))
	}
	last := steps + offsetSteps(n.l.format) - 1
	var x [4]ptx.U32
	for step := range last + 1 {
		at := acts.Plus(step / 2 * pairBytes * tokens)
		switch {
		case step%2 == 0 && step == last:
			pair := at.LoadU32x2()
			copy(x[:], pair[:])
		case step%2 == 0:
			x = at.LoadU32x4()
		}
		pair := x[step%2*2:]
		for plane := range n.l.operands() {
			ptx.MMA(acc, r.operand(step, plane), [2]ptx.F16x2{pair[0].AsF16x2(), pair[1].AsF16x2()})
		}
	}
	return acc
}

// computeFactor computes f once per warp, in each lane that of the token with its number.
func (n *stream) computeFactor() {
	if !n.spec.Epilogue.Norm {
		return
	}
	b := n.b
	b.If(n.factor.Eq(b.F32(0)), func() {
		sum := ptx.Var(b.F32(0))
		addSquares(b, sum, n.p.Segments, n.squares.At(n.lane.Min(b.N(n.spec.Tokens-1)), 4), 4*n.spec.Tokens)
		f := normFactor(sum, n.own.K, n.norm.Eps)
		if n.spec.Experts {
			f = n.slot.scale(b, f, b.BlockY())
		}
		ptx.Set(n.factor, f)
	})
}

// add adds the inner sums of a row tile's segments in order, after wait, and stores the results. A lane has a column for the tokens
// of a strip.
func (n *stream) add(tile ptx.U32, sums ptx.Shared, wait func()) {
	b, columns := n.b, n.spec.Epilogue.tileColumns()
	all := columns * n.spec.strips()
	for first := 0; first < all; first += lanes {
		i := n.lane.AddN(first)
		strip := i.DivN(columns).Min(b.N(n.spec.strips() - 1))
		n.addColumn(n.first.Add(tile), strip, i.RemN(columns), i.LtN(all), sums, wait)
	}
}

// addColumn computes the results of column r of a row tile for the tokens of a strip. It stores them if the lane is live.
func (n *stream) addColumn(tile, strip, r ptx.U32, live ptx.Pred, sums ptx.Shared, wait func()) {
	b, e, columns := n.b, n.spec.Epilogue, n.spec.Epilogue.tileColumns()
	column := tile.MulN(columns).Add(r)
	live = live.And(column.Lt(n.p.Columns))
	load := func(live ptx.Pred, from ptx.Global, at ptx.U32, none float32) ptx.F32 {
		v, element := ptx.Var(b.F32(none)), from.At(at, 4)
		b.When(live.And(device.NonNil(b, from)), func() { ptx.Set(v, element.LoadF32()) })
		return v
	}
	rows := make([]rowSum, tileRows/columns)
	for j := range rows {
		row := tile.MulN(tileRows).Add(r).AddN(columns * j)
		rows[j].bias = load(live, n.p.Bias, row, 0)
		if hasRowScale(n.l.format) {
			rows[j].scale = n.p.Scales.At(row, 4).LoadF32()
		}
	}
	type result struct {
		token, at ptx.U32
		live      ptx.Pred
		residual  ptx.F32
		sums      []ptx.F32
	}
	results := make([]result, n.spec.stripTokens())
	for i := range results {
		token := strip.MulN(len(results)).AddN(i)
		y := result{token: token, live: live, at: n.rowOfY(token).Mul(n.p.YStride).Add(column)}
		if n.spec.Tokens > 1 {
			y.live = live.And(token.Lt(n.p.Tokens))
		}
		y.residual = load(y.live, n.p.Residual, y.at, noResidual)
		for range rows {
			y.sums = append(y.sums, ptx.Var(b.F32(0)))
		}
		results[i] = y
	}
	wait()
	addInOrder(b, n.p.Segments, func(seg ptx.U32, i int) func() {
		at := sums.At(seg, n.spec.sumBytes()).Plus(n.spec.sumBytes() * i)
		xScales := n.xScales.At(seg, 4*n.spec.Tokens).Plus(4 * n.spec.Tokens * i)
		list := n.loadSums(at, xScales, strip, r)
		return func() {
			for t, y := range results {
				for j, sum := range y.sums {
					ptx.Set(sum, list[t][j].sum.FMA(list[t][j].scale, sum))
				}
			}
		}
	})
	for _, y := range results {
		for j := range rows {
			rows[j].sum = y.sums[j]
		}
		factor := n.factor
		if e.Norm && n.spec.Tokens > 1 {
			factor = ptx.ShuffleIdx(factor, y.token)
		}
		v := e.result(b, rows, factor, n.epi).Add(y.residual)
		b.If(y.live, func() { n.p.Y.At(y.at, 4).StoreF32(v) })
	}
}

// addInOrder adds numbers of all segments in the order of the segments. load loads those of segment seg+i, and returns what adds
// them. The numbers of eight segments are loaded together.
func addInOrder(b *ptx.Builder, segments ptx.U32, load func(seg ptx.U32, i int) (add func())) {
	seg := ptx.Var(b.U32(0))
	addUpTo := func(end ptx.U32, together int) {
		b.While(func() ptx.Pred { return seg.Lt(end) }, func() {
			var adds []func()
			for i := range together {
				adds = append(adds, load(seg, i))
			}
			for _, add := range adds {
				add()
			}
			ptx.Set(seg, seg.AddN(together))
		}, ptx.NoUnroll)
	}
	addUpTo(segments.AndN(^uint32(7)), 8)
	addUpTo(segments, 1)
}

// log2SumBuffers returns log2 of the number of buffers of inner sums, one per row tile: enough for each warp to have segments of two
// tiles, rounded up to a power of two.
func (s Stream) log2SumBuffers(segments int) int {
	return bits.Len(uint(2*host.CeilDiv(s.Warps, segments) - 1))
}

// shared returns the bytes of dynamic shared memory for rows of a number of segments.
func (s Stream) shared(segments int) int {
	perToken := s.tokenBytes() + 4
	if s.Epilogue.Norm {
		perToken += 4
	}
	return s.stages()*s.stageBytes() + segments*(s.Tokens*perToken+s.sumBytes()<<s.log2SumBuffers(segments))
}

// check checks the arguments of a launch. y has as many columns.
func (s Stream) check(k *ptx.Kernel, a Args, columns int) error {
	slots := host.Bound("Slots", a.Slots, 0, 0) // of experts
	if s.Experts {
		slots = host.Bound("Slots", a.Slots, 1, min(maxGridY, math.MaxUint32/max(a.K, a.YStride, 1)))
	}
	others := slices.Concat(s.Epilogue.checks(a), normChecks(s.Epilogue.Norm, a.NormWeight, a.Eps), expertChecks(s.Experts, a))
	return host.Valid(k, append(others,
		host.Bound("Tokens", a.Tokens, 1, s.Tokens), host.Bound("Rows", a.Rows, 1, maxRows),
		host.Bound("K", a.K, 1, maxK), host.Bound("YStride", a.YStride, columns, maxRows), host.Bound("CTAs", a.CTAs, 1, maxGridY),
		wholeBlocks(s.Format, a.K), host.NonNil("X", a.X), host.Refuse(a.K%4 == 0 && a.X%16 != 0, "X", "%#x is no multiple of 16", a.X), host.NonNil("W", a.W), host.NonNil("Y", a.Y),
		slots, slotCheck(s.Experts, s.Epilogue.Norm, a.SlotFactors), host.Refuse(s.Experts && a.SlotsPerX < 1, "SlotsPerX", "%d is not positive", a.SlotsPerX))...)
}

func (s Stream) part(k *ptx.Kernel, a Args) (ptx.Part, error) {
	columns := s.Epilogue.columns(a.Rows)
	a.YStride = cmp.Or(a.YStride, columns)
	if err := s.check(k, a, columns); err != nil {
		return ptx.Part{}, err
	}
	p := Packing{s.Format, a.K}
	ctas := min(max(a.CTAs/max(a.Slots, 1), 1), rowTiles(a.Rows))
	params := append(paramsOf(s.Format, s.Epilogue, a), &streamParams{
		K: ptx.Uint(a.K), Tiles: ptx.Uint(rowTiles(a.Rows) / ctas), Extra: ptx.Uint(rowTiles(a.Rows) % ctas), Log2SumBuffers: ptx.Uint(s.log2SumBuffers(p.segments())),
		StepTiles: ptx.Uint(s.Warps / p.segments()), StepSegments: ptx.Uint(s.Warps % p.segments()),
	})
	if s.Epilogue.Norm {
		params = append(params, &normParams{NormWeight: ptx.Addr(a.NormWeight), Eps: ptx.Float(a.Eps)})
	}
	if s.Experts {
		params = append(params, &streamExpertParams{ptx.Addr(a.Experts), ptx.Uint(a.SlotsPerX), ptx.Uint64(uint64(a.ExpertBytes))})
	}
	if s.Experts && s.Epilogue.Norm {
		params = append(params, &slotParams{ptx.Addr(a.SlotFactors)})
	}
	return ptx.Part{CTAs: ctas, Threads: s.threads(), Shared: s.shared(p.segments()), Params: params}, nil
}
