package product

import (
	"cmp"
	"fmt"
	"math"
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

	// Hold keeps the stage with the last segment of a row tile until the tile's sums have been added. That takes less shared memory
	// for sums, but the stage is copied later.
	Hold bool

	// Experts has one matrix per expert and one token per slot. Slot i multiplies row i/SlotsPerX of X by the matrix of
	// expert Args.Experts[i], and writes row i of Y. Tokens is 1.
	Experts bool

	Epilogue Epilogue
}

// Kernel returns the kernel.
func (s Stream) Kernel() kernel.Typed[Args] { return kernelOf(s) }

// name returns product_stream_FORMAT_TOKENS_wWARPS_rRINGxSTAGE_cCTAS, hold, experts, and the parts of the epilogue.
func (s Stream) name() string {
	hold := ""
	if s.Hold {
		hold = "_hold"
	}
	return fmt.Sprintf("product_stream_%s_%d_w%d_r%dx%d_c%d%s%s%s",
		host.FormatName(s.Format), s.Tokens, s.Warps, s.Ring, s.Stage, s.CTAs, hold, expertName(s.Experts), s.Epilogue.name())
}

// pairBytes is the size of the rounded activations of a token for two steps.
const pairBytes = 64

// pairs is the number of pairs of steps per segment. The last one has the offsets, if there are any.
func (s Stream) pairs() int { return (steps + 1 + offsetSteps(s.Format)) / 2 }

// tokenBytes is the size of the rounded activations of a segment of a token.
func (s Stream) tokenBytes() int { return s.pairs() * pairBytes }

// streamParams are the parameters of Stream alone.
type streamParams struct {
	K            ptx.U32
	Tiles, Extra ptx.U32 // per CTA, and how many CTAs have one more
	SumBuffers   ptx.U32 // buffers in shared memory, each for the inner sums of a row tile
	Reciprocal   ptx.U32 // 2^32 / SumBuffers, rounded up

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
	tile, seg    ptx.U32 // variables: the warp's next segment, and the row tile that has it, counted from first
	at           ringPosition
	left         ptx.U32 // variable: segments that have not been copied

	from        [roundedAtOnce]ptx.U32    // variables, of the segments that the warp rounds next: where in x the lane's columns begin
	normWeights [roundedAtOnce][8]ptx.F32 // variables: weights of the norm for these columns
	addends     []addends                 // one per column of columns
	factor      ptx.F32                   // variable: f of the token with the lane's number, or 0 before it is computed: see computeFactor

	acts    ptx.Shared // activations: {segment, pair of steps, token, quarter of the columns, 8 float16}
	sums    ptx.Shared // {buffer, segment}: inner sums, see storeSums
	xScales ptx.Shared // f32: E of {segment, token}
	squares ptx.Shared // f32, with a norm: sum of the squares of {segment, token}
	ring    ptx.Shared // weights: {stage, segment}
	full    ptx.Shared // barriers, {stage}: weights have arrived
	empty   ptx.Shared // barriers, {stage}: the warps that read the stage have done so
	done    ptx.Shared // barriers, {buffer}: all inner sums of a row tile are there
}

// Bounds of a Stream. Operand B of an instruction has eight columns, one per token. With 28 warps, a thread may have
// 64 registers.
const (
	maxStreamTokens = 8
	maxStreamWarps  = 28
)

// maxSumBuffers bounds the buffers of inner sums: see sumBuffers.
const maxSumBuffers = 96

func (s Stream) emit(b *ptx.Builder) {
	_, ok := layouts[s.Format]
	ok = ok && powerOfTwo(s.Tokens) && s.Tokens <= maxStreamTokens && s.Warps >= 1 && s.Warps <= maxStreamWarps && s.sumBuffers(1) <= maxSumBuffers
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
		n.prepareRounding(n.warp)
		n.findFirst()
		n.initDone()
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
	n.xScales = n.sums.At(n.p.Segments.Mul(n.own.SumBuffers), s.sumBytes())
	if s.Epilogue.Norm {
		n.squares = n.xScales.At(n.p.Segments, 4*s.Tokens)
	}

	// Whole lines of 128 bytes, so that those of the ring behind them are, too.
	all := b.Shared("barriers", host.CeilDiv(8*(2*s.stages()+maxSumBuffers), 128)*128, 8)
	n.full, n.empty = all, all.Plus(8*s.stages())
	n.done = n.empty.Plus(8 * s.stages())
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
	early := min(host.CeilDiv(earlySegments, s.Stage), s.stages()) // stages
	present := n.left.CeilDivN(s.Stage).Min(b.N(early))
	copies := n.lane.EqN(0)
	b.If(copies, func() {
		initBarriers(b, barriers{n.full, early, 1})
		b.For(b.U32(0), present, b.U32(1), func(i ptx.U32) { n.copyStage(i, i) }, ptx.NoUnroll)
		initBarriers(b, barriers{n.full.Plus(8 * early), s.stages() - early, 1}, barriers{n.empty, s.stages(), s.Stage})
	})
	n.rounded().Arrive()
	if !s.Experts {
		b.WaitForPrior()
	}
	b.If(copies, func() {
		i := ptx.Var(present)
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

// prepareRounding finds in x what the warp rounds next, and loads the norm weights for it. first counts pairs of a segment and a token, the
// tokens of a segment in turn. For the first pairs it is called before the wait for the kernel that writes x.
func (n *stream) prepareRounding(first ptx.U32) {
	b, tokens := n.b, n.spec.Tokens
	for j := range roundedAtOnce {
		i := first.AddN(j * n.spec.Warps)
		seg, token := i.DivN(tokens), i.RemN(tokens).Min(n.p.Tokens.AddN(-1))
		column := laneColumn(seg, n.lane)
		assign(n.from[j:j+1], []ptx.U32{n.rowOfX(token).Mul(n.own.K).Add(column)})
		if n.spec.Epilogue.Norm {
			w := loadSegment(b, n.norm.NormWeight.At(column, 4), seg.Lt(n.p.Segments), column, n.own.K, n.l.format.BlockLen())
			assign(n.normWeights[j][:], w[:])
		}
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
			x[j] = loadSegment(b, n.p.X.At(n.from[j], 4), i.Lt(all), laneColumn(i.DivN(tokens), n.lane), n.own.K, n.l.format.BlockLen())
		}
		round := func(i ptx.U32, j int) {
			scaled, sum := x[j], ptx.F32{}
			if n.spec.Epilogue.Norm {
				sum = squares(x[j])
				for k, w := range n.normWeights[j] {
					scaled[k] = x[j][k].Mul(w)
				}
			}
			n.storeActivations(i.DivN(tokens), i.RemN(tokens), scaled)
			if n.spec.Epilogue.Norm {
				b.If(n.lane.EqN(0), func() { n.squares.At(i, 4).StoreF32(sum) })
			}
		}
		round(first, 0)
		for j := 1; j < len(x); j++ {
			i := first.AddN(j * n.spec.Warps)
			b.If(i.Lt(all), func() { round(i, j) })
		}
		next := first.AddN(roundedAtOnce * n.spec.Warps)
		b.If(next.Lt(all), func() { n.prepareRounding(next) })
	}, ptx.NoUnroll)
}

// storeActivations rounds a segment of a token.
func (n *stream) storeActivations(seg, token ptx.U32, x [8]ptx.F32) {
	b, tokens := n.b, n.spec.Tokens
	r := roundSegment(b, n.lane, x, offsetSteps(n.l.format))
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

// findFirst finds the warp's first segment. It divides by a loop: ptxas would put a division, and what prepareRounding computes, after the
// wait for prior kernels that follows.
func (n *stream) findFirst() {
	b := n.b
	n.at = newRingPosition(b, n.warp.DivN(n.spec.Stage), n.spec.stages())
	n.tile, n.seg = ptx.Var(b.U32(0)), ptx.Var(n.warp)
	b.While(func() ptx.Pred { return n.seg.Ge(n.p.Segments) }, func() {
		ptx.Set(n.seg, n.seg.Sub(n.p.Segments))
		ptx.Set(n.tile, n.tile.AddN(1))
	}, ptx.NoUnroll)
}

// initDone initializes the barriers of the buffers of sums.
func (n *stream) initDone() {
	b := n.b
	b.If(n.lane.EqN(0).And(n.warp.LtN(n.spec.Warps)), func() {
		b.For(n.warp, n.own.SumBuffers, b.N(n.spec.Warps), func(i ptx.U32) { b.NewMBarrier(n.done.At(i, 8), n.p.Segments) }, ptx.NoUnroll)
	})
}

// run multiplies the CTA's row tiles. Warp w takes segments w, w+Warps, w+2·Warps and so on of the CTA.
func (n *stream) run() {
	b, tile, seg, at := n.b, n.tile, n.seg, n.at
	if n.spec.Epilogue.Norm {
		n.factor = ptx.Var(b.F32(0))
	}
	n.addends = n.newAddends()
	lastSegment := n.p.Segments.AddN(-1)
	own := n.ring.At(n.warp.RemN(n.spec.Stage), n.l.segmentBytes()) // of the first stage
	b.While(func() ptx.Pred { return tile.Lt(n.count) }, func() {
		last := seg.Eq(lastSegment)
		b.If(last, func() { n.loadAddends(tile) })
		ptx.MBarrierAt(n.full.At(at.stage, 8)).Wait(at.parity)
		block := own.At(at.stage, n.spec.stageBytes())
		r := newSegmentReader(n.c, n.l.format, block, n.lane)
		acc := n.multiply(r, seg)
		empty, now := ptx.MBarrierAt(n.empty.At(at.stage, 8)), n.lane.EqN(0)
		if n.spec.Hold {
			now = now.And(last.Not())
		}
		b.WarpSync()
		b.When(now, empty.Arrive)

		uses := tile.MulHigh(n.own.Reciprocal) // of the buffer before
		buffer := tile.Sub(uses.Mul(n.own.SumBuffers))
		done, sums := ptx.MBarrierAt(n.done.At(buffer, 8)), n.sums.At(buffer.Mul(n.p.Segments), n.spec.sumBytes())
		n.storeSums(r, acc, seg, sums.At(seg, n.spec.sumBytes()))
		arriveAsWarp(b, n.lane, done)
		b.If(last, func() {
			n.computeFactor()
			n.add(tile, sums, func() { done.Wait(uses.AndN(1)) })
			if n.spec.Hold {
				arriveAsWarp(b, n.lane, empty)
			}
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

// column is a column of y in which a lane stores the results of a row tile, for the tokens of a strip.
type column struct {
	strip, r ptx.U32 // r counts the columns of a row tile
	number   ptx.U32
	live     ptx.Pred // y has the column
	results  []result // one per token
}

// result is a result that a lane stores.
type result struct {
	token, at ptx.U32 // at is where in y the result is
	live      ptx.Pred
}

// columns returns the columns of a row tile whose results the lane stores.
func (n *stream) columns(tile ptx.U32) (list []column) {
	b, columns := n.b, n.spec.Epilogue.tileColumns()
	all := columns * n.spec.strips()
	for first := 0; first < all; first += lanes {
		i := n.lane.AddN(first)
		c := column{strip: i.DivN(columns).Min(b.N(n.spec.strips() - 1)), r: i.RemN(columns)}
		c.number = n.first.Add(tile).MulN(columns).Add(c.r)
		c.live = i.LtN(all).And(c.number.Lt(n.p.Columns))
		for t := range n.spec.stripTokens() {
			token := c.strip.MulN(n.spec.stripTokens()).AddN(t)
			y := result{token: token, at: n.rowOfY(token).Mul(n.p.YStride).Add(c.number), live: c.live}
			if n.spec.Tokens > 1 {
				y.live = c.live.And(token.Lt(n.p.Tokens))
			}
			c.results = append(c.results, y)
		}
		list = append(list, c)
	}
	return list
}

// loadAddends loads the addends of a row tile. A warp calls it before it multiplies the last segment of the tile, so that it does not wait
// for them after that.
func (n *stream) loadAddends(tile ptx.U32) {
	b := n.b
	load := func(to ptx.F32, live ptx.Pred, from ptx.Global, at ptx.U32, none float32) {
		element := from.At(at, 4)
		ptx.Set(to, b.F32(none))
		b.When(live.And(device.NonNil(b, from)), func() { ptx.Set(to, element.LoadF32()) })
	}
	for i, c := range n.columns(tile) {
		for j, r := range n.addends[i].rows {
			row := n.first.Add(tile).MulN(tileRows).Add(c.r).AddN(n.spec.Epilogue.tileColumns() * j)
			load(r.bias, c.live, n.p.Bias, row, 0)
			if hasRowScale(n.l.format) {
				ptx.Set(r.scale, n.p.Scales.At(row, 4).LoadF32())
			}
		}
		for t, y := range c.results {
			load(n.addends[i].residuals[t], y.live, n.p.Residual, y.at, noResidual)
		}
	}
}

// addends are variables: what is added to the results of a column, and the D of its rows.
type addends struct {
	rows      []rowSum  // bias and scale of one row, or with Gated of two
	residuals []ptx.F32 // one per token
}

// newAddends returns variables for what loadAddends loads.
func (n *stream) newAddends() (list []addends) {
	b, s := n.b, n.spec
	columns := s.Epilogue.tileColumns()
	for range host.CeilDiv(columns*s.strips(), lanes) {
		var l addends
		for range tileRows / columns {
			row := rowSum{bias: ptx.Var(b.F32(0))}
			if hasRowScale(n.l.format) {
				row.scale = ptx.Var(b.F32(0))
			}
			l.rows = append(l.rows, row)
		}
		for range s.stripTokens() {
			l.residuals = append(l.residuals, ptx.Var(b.F32(0)))
		}
		list = append(list, l)
	}
	return list
}

// add adds the inner sums of a row tile's segments in order, after wait, and stores the results.
func (n *stream) add(tile ptx.U32, sums ptx.Shared, wait func()) {
	for i, c := range n.columns(tile) {
		n.addColumn(c, n.addends[i], sums, wait)
	}
}

// addColumn computes the results of a column, and stores them.
func (n *stream) addColumn(c column, more addends, sums ptx.Shared, wait func()) {
	b, e := n.b, n.spec.Epilogue
	totals := make([][]ptx.F32, len(c.results)) // of each token, one per row
	for t := range totals {
		for range more.rows {
			totals[t] = append(totals[t], ptx.Var(b.F32(0)))
		}
	}
	wait()
	addInOrder(b, n.p.Segments, func(seg ptx.U32, i int) func() {
		at := sums.At(seg, n.spec.sumBytes()).Plus(n.spec.sumBytes() * i)
		xScales := n.xScales.At(seg, 4*n.spec.Tokens).Plus(4 * n.spec.Tokens * i)
		list := n.loadSums(at, xScales, c.strip, c.r)
		return func() {
			for t, rows := range totals {
				for j, total := range rows {
					ptx.Set(total, list[t][j].sum.FMA(list[t][j].scale, total))
				}
			}
		}
	})
	for t, y := range c.results {
		rows := slices.Clone(more.rows)
		for j := range rows {
			rows[j].sum = totals[t][j]
		}
		factor := n.factor
		if e.Norm && n.spec.Tokens > 1 {
			factor = ptx.ShuffleIdx(factor, y.token)
		}
		v := e.result(b, rows, factor, n.epi).Add(more.residuals[t])
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

// sumBuffers returns the number of buffers of inner sums, at least two. Row tile t has buffer t mod that number. So no warp may multiply
// a later tile with the same buffer before the sums of tile t have been added.
//
// The warp that adds them is the one with the last segment of tile t. With Hold, it releases the stage of that segment after adding,
// else at least the stage of its next segment, Warps segments later. A stage holds a segment that is Ring·Warps segments later only after
// its release, and stages are copied in order.
func (s Stream) sumBuffers(segments int) int {
	ahead := s.Ring*s.Warps - 1 // segments after the last one of tile t that may be multiplied before its sums are added
	if !s.Hold {
		ahead += s.Warps
	}
	return max(2, 1+host.CeilDiv(ahead, segments))
}

// shared returns the bytes of dynamic shared memory for rows of a number of segments.
func (s Stream) shared(segments int) int {
	perToken := s.tokenBytes() + 4
	if s.Epilogue.Norm {
		perToken += 4
	}
	return s.stages()*s.stageBytes() + segments*(s.Tokens*perToken+s.sumBytes()*s.sumBuffers(segments))
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
	ctas, buffers := min(max(a.CTAs/max(a.Slots, 1), 1), rowTiles(a.Rows)), s.sumBuffers(p.segments())
	params := append(paramsOf(s.Format, s.Epilogue, a), &streamParams{
		K: ptx.Uint(a.K), Tiles: ptx.Uint(rowTiles(a.Rows) / ctas), Extra: ptx.Uint(rowTiles(a.Rows) % ctas), SumBuffers: ptx.Uint(buffers), Reciprocal: ptx.Uint((1<<32 + buffers - 1) / buffers),
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
