package product

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Tile multiplies a matrix of weights by many tokens:
//
//	p[t,r] = Σ_k W[r,k]·x[t,k]
//
// as package internal/product defines, and stores what its Epilogue makes of p.
//
// The results are cut into tiles of Tokens tokens. A CTA computes several, one after another. There are three kinds:
//
//   - With Warpgroups, four warps bring weights and activations by bulk copies, those of the next tile while results are stored.
//     One or two warpgroups multiply by wgmma. Each has 64 rows, and decodes the next weights into operands in registers while
//     the tensor cores multiply those before. With TwoTiles, it has twice as many, and multiplies both halves by the same copy of
//     the activations.
//   - With Sets, four warps copy, too, and sets of Warps warps multiply, 16 rows per warp. Set i multiplies segments i, i+Sets
//     and so on of the CTA. It adds each to the sums of the segments before, which the set before has left in shared memory, so
//     the order of additions is the same. With 24 tokens or more, sets of whole warpgroups multiply by wgmma, which reads
//     activations once per warpgroup. Others multiply by mma.sync. A single set multiplies by wgmma and keeps the sums in
//     registers.
//   - With Warps alone, for targets without wgmma and bulk copies, all warps copy by cp.async and multiply the same segment by
//     mma.sync.
type Tile struct {
	Format     quant.Format
	Tokens     int  // per tile, in steps of 8: to 128, for F32 weights to 96, with Sets to 32, with one set to 64 if registers suffice
	Warpgroups int  // 1 or 2
	TwoTiles   bool // with two Warpgroups: a warp has two tiles of weights, of 16 rows each, not one
	Warps      int  // instead of Warpgroups: 1 to 8; with Sets those of a set, together at most maxTileWarps; with one set a multiple of 4
	Sets       int  // of warps: 1 to 15
	Ring       int  // segments of weights in shared memory, with TwoTiles of half the rows: at least 2, with Sets no fewer, with Warps alone 0
	RingX      int  // segments of activations in shared memory: at least 1, with Warps alone 2, with Sets 0 as they have Ring

	// Experts has one matrix per expert, and multiplies slots instead of tokens. Slot i writes row i of Y. Round has put
	// the slots of an expert into blocks of their own.
	Experts bool

	// OffsetSteps is a bit set of the sums that the activations have for all formats of a launch: 1 for those of formats with one
	// offset step per segment, 2 for those of formats with two, 3 for both. 0: those that Format needs.
	OffsetSteps int

	Epilogue Epilogue
}

// Kernel returns the kernel that multiplies.
func (s Tile) Kernel() kernel.Typed[Args] { return kernelOf(s) }

// Round returns the kernel that rounds activations for the product. Products with the same Tokens, Experts and
// Epilogue.Norm, in formats with the same number of offset steps per segment or with OffsetSteps, have the same one.
func (s Tile) Round() kernel.Typed[RoundArgs] {
	r := s.round()
	return kernel.New(r.name(), r.build, r.launch)
}

// RoundedBytes returns the size of rounded activations.
func (s Tile) RoundedBytes(tokens, k int) int { return s.round().bytes(tokens, k) }

// name returns product_tile_FORMAT_ROWSxTOKENS, where ROWS are those of a tile, and then rRING_RINGX with Warpgroups, pSETS_rRING
// with Sets, or mma_RINGX; oN for OffsetSteps that Format does not need; experts; and the parts of the epilogue.
func (s Tile) name() string {
	pipeline := fmt.Sprintf("r%d_%d", s.Ring, s.RingX)
	switch {
	case s.Sets > 0:
		pipeline = fmt.Sprintf("p%d_r%d", s.Sets, s.Ring)
	case s.Warps > 0:
		pipeline = fmt.Sprintf("mma_%d", s.RingX)
	}
	if n := s.round().offsetSteps; n > offsetSteps(s.Format) {
		pipeline += fmt.Sprintf("_o%d", n)
	}
	rows := tileRows * s.weightTiles()
	return fmt.Sprintf("product_tile_%s_%dx%d_%s%s%s", host.FormatName(s.Format), rows, s.Tokens, pipeline, expertName(s.Experts), s.Epilogue.name())
}

// tileParams are the parameters of Tile alone.
type tileParams struct {
	WeightTiles ptx.U32
	Blocks      ptx.U32 // of Tokens tokens
	Tiles       ptx.U32 // of results; with experts, of the rows of one
}

// tile is a Tile being built.
type tile struct {
	spec Tile
	l    layout
	p    productParams
	own  tileParams
	norm factorParams
	epi  epilogueParams
	moe  tileExpertParams
	b    *ptx.Builder
	c    *constants

	set, warp  ptx.U32 // with Sets the set of warps, and the warp's number in it
	lane       ptx.U32
	totals     ptx.Shared // {four sums, thread of a set}: sums that sets hand on
	weights    ptx.Shared // {stage, tile of 16 rows}
	exps       ptx.Shared // {stage, token}: E
	acts       ptx.Shared // {stage, group of columns}
	operand    ptx.SharedMatrix[ptx.F16x2]
	sums       ptx.Shared // {stage}: sums of activations
	sumOperand ptx.SharedMatrix[ptx.F16x2]
	full       ptx.Shared // barriers, {stage}: weights and E have arrived
	empty      ptx.Shared // barriers, {stage}: all warps have read them
	fullX      ptx.Shared // barriers, {stage, group}: activations have arrived
	emptyX     ptx.Shared // barriers, {stage, group}: all warps have multiplied by them
}

func (s Tile) emit(b *ptx.Builder) {
	if !s.valid() {
		b.Failf("%+v is no kernel", s)
		return
	}
	b.Doc("%s\nW packed, of %v; x of %s", s.Epilogue.doc(), s.Format, s.round().name())
	switch {
	case s.Sets > 0:
		s.emitSets(b)
	case s.Warps > 0:
		s.emitMMA(b)
	default:
		s.emitWGMMA(b)
	}
}

// emitWGMMA emits a Tile with Warpgroups.
func (s Tile) emitWGMMA(b *ptx.Builder) {
	n := newTile(b, s)
	b.LaunchDependents()
	b.WaitForPrior()
	n.countTiles()
	consumers := s.consumers()
	b.IfElse(b.Warp().GeN(consumers), func() {
		if s.Warpgroups == 2 {
			b.DecreaseRegisters(producerRegisters)
		}
		b.If(n.lane.EqN(0), func() { n.produce(b.Warp().AddN(-consumers)) })
	}, func() {
		if s.Warpgroups == 2 {
			b.IncreaseRegisters(consumerRegisters)
		}
		n.consume()
	})
}

// Registers per thread of the warpgroup that copies and of two that multiply: together as many as all have at entry.
const (
	producerRegisters = 24
	consumerRegisters = 240
)

func (s Tile) valid() bool {
	_, ok := layouts[s.Format]
	ok = ok && validTileTokens(s.Tokens) && s.Tokens <= maxTileTokensOf(s.Format) && s.Epilogue.valid()
	ok = ok && (!s.TwoTiles || s.Warpgroups == 2 && s.Format != quant.Q2_K) // Q2_K takes a few registers more
	ok = ok && s.OffsetSteps >= 0 && s.OffsetSteps <= bothOffsetSteps && (s.OffsetSteps == 0 || s.OffsetSteps&offsetSteps(s.Format) == offsetSteps(s.Format))
	switch {
	case s.Warps == 0:
		return ok && s.Sets == 0 && s.Warpgroups >= 1 && s.Warpgroups <= 2 && s.Ring >= 2 && s.RingX >= 1
	case s.Sets == 0:
		return ok && s.Warpgroups == 0 && s.Warps <= maxMMAWarps && s.Ring == 0 && s.RingX >= 2
	}
	ok = ok && s.Warpgroups == 0 && s.Warps > 0 && s.Sets > 0 && s.Sets <= maxSets && s.Warps*s.Sets <= s.maxTileWarps()
	return ok && s.Ring >= max(2, s.Sets) && s.RingX == 0 && (s.Sets > 1 || s.Warps%warpgroup == 0 && !s.Experts)
}

// bothOffsetSteps is the largest bit set of OffsetSteps.
const bothOffsetSteps = 3

// maxTileTokensOf is the largest number of tokens for a format, so that the registers suffice. F32 has two operands per
// step.
func maxTileTokensOf(f quant.Format) int {
	if f == quant.F32 {
		return 96
	}
	return maxTileTokens
}

// maxSets bounds Sets: each has a named barrier. maxSetsTokens bounds the tokens of more than one set.
const (
	maxSets       = 15
	maxSetsTokens = 32
)

// maxTileWarps is the largest number of warps of all sets, so that the registers suffice: 0 if they suffice for none.
func (s Tile) maxTileWarps() int {
	switch {
	case s.Tokens <= 16, s.Tokens <= maxSetsTokens && s.Tokens >= setWGMMATokens && s.Warps%warpgroup == 0:
		return 24
	case s.Tokens <= maxSetsTokens:
		return 18
	case s.Tokens <= 64 && s.Sets == 1 && s.Format != quant.Q2_K && s.Format != quant.Q3_K: // these take a few registers more
		return 16
	}
	return 0
}

func (s Tile) threads() int {
	switch {
	case s.Sets > 0:
		return lanes * (s.Sets*s.Warps + producers)
	case s.Warps > 0:
		return lanes * s.Warps
	}
	return lanes * (s.consumers() + producers)
}

func (s Tile) minCTAs() int { return 1 }

// work implements generator. A tile counts the same in every format: with many tokens, tensor cores bound the time.
func (s Tile) work(a Args) (tasks, cost int) {
	return host.CeilDiv(a.Tokens, s.Tokens) * host.CeilDiv(tiles(a.Rows), s.weightTiles()), 1
}

func (s Tile) round() round {
	return round{s.Tokens, s.OffsetSteps | offsetSteps(s.Format), s.Epilogue.Norm, s.Experts}
}

// consumers is the number of warps that multiply a segment.
func (s Tile) consumers() int { return 4*s.Warpgroups + s.Warps }

// warpTiles is the number of tiles of weights of a warp that multiplies.
func (s Tile) warpTiles() int {
	if s.TwoTiles {
		return 2
	}
	return 1
}

// weightTiles is the number of tiles of weights per tile of results: first one of each warp that multiplies, then the second ones.
func (s Tile) weightTiles() int { return s.consumers() * s.warpTiles() }

// weightBytes and actBytes are the sizes of a stage. A stage of weights has a tile of each warp.
func (s Tile) weightBytes() int { return s.consumers() * layouts[s.Format].segmentBytes() }
func (s Tile) actBytes() int    { return groups * s.round().stageBytes() }

// sumBytes is the size of the sums of activations in a stage.
func (s Tile) sumBytes() int {
	if offsetSteps(s.Format) == 0 {
		return 0
	}
	return s.round().sumsLayout(offsetSteps(s.Format)).Bytes()
}

// shared is the number of bytes of dynamic shared memory.
func (s Tile) shared() int {
	switch r := s.round(); {
	case s.Sets > 0:
		return s.Ring*s.stageBytes() + s.totalsBytes()
	case s.Warps > 0:
		return s.RingX * r.segmentBytes()
	default:
		return s.RingX*s.actBytes() + s.Ring*(s.sumBytes()+s.weightBytes()+4*s.Tokens)
	}
}

// beginTile begins a kernel by either instruction.
func beginTile(b *ptx.Builder, s Tile) *tile {
	n := &tile{spec: s, l: layoutOf(s.Format), b: b}
	ptx.Declare(b, &n.p)
	n.epi.declare(b, s.Epilogue)
	ptx.Declare(b, &n.own)
	if s.Epilogue.Norm && !s.Experts {
		ptx.Declare(b, &n.norm)
	}
	if s.Experts {
		ptx.Declare(b, &n.moe)
	}
	n.warp, n.lane = b.Warp(), b.Lane()
	n.c = newConstants(b, n.l)
	return n
}

// newTile begins a kernel by wgmma.
func newTile(b *ptx.Builder, s Tile) *tile {
	n := beginTile(b, s)
	n.acts = b.DynamicShared(1024)
	n.sums = n.acts.Plus(s.RingX * s.actBytes())
	n.weights = n.sums.Plus(s.Ring * s.sumBytes())
	n.exps = n.weights.Plus(s.Ring * s.weightBytes())
	n.newOperands(n.sums)

	stages := s.RingX * groups // of activations
	all := b.Shared("barriers", 8*2*(s.Ring+stages), 8)
	n.full, n.empty = all, all.Plus(8*s.Ring)
	n.fullX, n.emptyX = all.Plus(16*s.Ring), all.Plus(16*s.Ring+8*stages)
	initBarriers(b, []barriers{
		{n.full, b.N(s.Ring), b.N(producers)}, {n.empty, b.N(s.Ring), b.N(lanes * s.consumers())},
		{n.fullX, b.N(stages), b.N(1)}, {n.emptyX, b.N(stages), b.N(s.consumers())},
	})
	b.Barrier()
	return n
}

// newOperands computes the descriptors of the activations and of their sums in the first stage.
func (n *tile) newOperands(sums ptx.Shared) {
	n.operand = ptx.NewSharedMatrix[ptx.F16x2](n.acts, operandLayout(n.spec.Tokens))
	if offsetSteps(n.spec.Format) > 0 {
		n.sumOperand = ptx.NewSharedMatrix[ptx.F16x2](sums, n.spec.round().sumsLayout(offsetSteps(n.spec.Format)))
	}
}

// stageOf returns the stage of a ring that has the segment counted by seg, and the parity of its phase then.
func stageOf(seg ptx.U32, ring int) (at, parity ptx.U32) {
	return seg.RemN(ring), seg.DivN(ring).AndN(1)
}

// eachTile emits a loop over the CTA's tiles. Segments of all of them are counted together: begin is the first one
// of the tile, and end the first one after it.
func (n *tile) eachTile(body func(tile, begin, end ptx.U32)) {
	b := n.b
	begin := ptx.Var(b.U32(0))
	b.For(b.BlockX(), n.own.Tiles, b.GridX(), func(tile ptx.U32) {
		end := begin.Add(n.p.Segments)
		body(tile, begin, end)
		ptx.Set(begin, end)
	}, ptx.NoUnroll)
}

// place returns the block of tokens of a tile, and how many tiles of rows are above it. CTAs that run together
// share rows, so that their weights are read once.
func (n *tile) place(tile ptx.U32) (block, above ptx.U32) {
	above = tile.Div(n.own.Blocks)
	return tile.Sub(above.Mul(n.own.Blocks)), above
}

// producers is the number of warps that copy.
const producers = groups

// produce copies a warp's part of each segment: one group of activations, and some tiles of weights.
func (n *tile) produce(warp ptx.U32) {
	n.eachTile(func(tile, begin, end ptx.U32) {
		block, above := n.place(tile)
		w := n.matrixOf(block)
		n.b.For(begin, end, n.b.U32(1), func(seg ptx.U32) { n.copySegment(warp, w, block, above, seg.Sub(begin), seg) }, ptx.NoUnroll)
	})
}

// copySegment copies a warp's part of a segment. seg counts the segments of the tile, count those of the CTA.
func (n *tile) copySegment(warp ptx.U32, matrix ptx.Global, block, above, seg, count ptx.U32) {
	b, s := n.b, n.spec
	x := n.p.X.Aligned(16).At(block.Mul(n.p.Segments).Add(seg), s.round().segmentBytes())
	for i := range s.warpTiles() {
		n.copyTiles(warp, matrix, x, above, seg, count, i)
		if i > 0 {
			continue
		}
		stage, parity := stageOf(count, s.RingX)
		ptx.MBarrierAt(n.emptyX.At(stage, 8*groups).At(warp, 8)).Wait(parity.Xor(b.U32(1)))
		full, size := ptx.MBarrierAt(n.fullX.At(stage, 8*groups).At(warp, 8)), s.round().stageBytes()
		full.ArriveExpectTx(b.N(size))
		b.BulkLoad(n.acts.At(stage, s.actBytes()).At(warp, size), x.At(warp, size), b.N(size), full)
	}
}

// copyTiles copies a warp's part of the weights of a segment that the warps multiply as their tile i. Warp 0 copies E, too. Warp 1
// copies the sums of activations.
func (n *tile) copyTiles(warp ptx.U32, matrix, x ptx.Global, above, seg, count ptx.U32, i int) {
	b, s := n.b, n.spec
	stage, parity := n.weightStage(count, i)
	ptx.MBarrierAt(n.empty.At(stage, 8)).Wait(parity.Xor(b.U32(1)))
	full := ptx.MBarrierAt(n.full.At(stage, 8))
	sumBytes, expBytes := s.sumBytes(), 4*s.Tokens
	other := ptx.Select(warp.EqN(0), b.N(expBytes), b.U32(0))
	if sumBytes > 0 {
		other = ptx.Select(warp.EqN(1), b.N(sumBytes), other)
	}
	full.ArriveExpectTx(other.AddN(s.weightBytes() / producers))
	first, last := above.MulN(s.weightTiles()).AddN(i*s.consumers()).Add(warp), n.own.WeightTiles.AddN(-1)
	size := n.l.segmentBytes()
	for j := 0; j < s.consumers(); j += producers {
		w := matrix.At(first.AddN(j).Min(last).Mul(n.p.Segments).Add(seg), size)
		b.BulkLoad(n.weights.At(stage, s.weightBytes()).At(warp, size).Plus(j*size), w, b.N(size), full)
	}
	if sumBytes > 0 {
		b.If(warp.EqN(1), func() {
			b.BulkLoad(n.sums.At(stage, sumBytes), x.Plus(s.round().sumsAt(offsetSteps(s.Format))), b.N(sumBytes), full)
		})
	}
	b.If(warp.EqN(0), func() {
		b.BulkLoad(n.exps.At(stage, expBytes), x.Plus(s.round().expsAt()), b.N(expBytes), full)
	})
}

// weightStage returns the stage of weights that has the warps' tile i of a segment, and the parity of its phase then.
func (n *tile) weightStage(seg ptx.U32, i int) (at, parity ptx.U32) {
	return stageOf(seg.MulN(n.spec.warpTiles()).AddN(i), n.spec.Ring)
}

// consume multiplies the CTA's segments by wgmma and stores the results. While the tensor cores multiply the last operands of a
// tile of weights, it decodes the scales and the first operands of the next one, which may be of the next tile of results.
func (n *tile) consume() {
	b, s := n.b, n.spec
	sums, part := make([][]ptx.F32, s.warpTiles()), n.newSums()
	for i := range sums {
		sums[i] = n.newSums()
	}
	last := n.lastSegment()
	first := n.reader(b.U32(0), 0)
	held, operands := first.held(), first.operands(0, s.stepsAtOnce())
	for i, registers := range operands {
		for j, v := range registers {
			operands[i][j] = ptx.Var(v)
		}
	}
	n.waitActivations(b.U32(0), 0)
	n.eachTile(func(tile, begin, end ptx.U32) {
		for _, v := range slices.Concat(sums...) {
			ptx.Set(v, b.F32(0))
		}
		b.For(begin, end, b.U32(1), func(seg ptx.U32) {
			for i := range sums {
				stage, _ := n.weightStage(seg, i)
				r := held.at(n.block(stage))
				n.multiply(seg, i, r, operands, part)
				following, j := seg, i+1
				if j == len(sums) {
					following, j = seg.AddN(1).Min(last), 0 // the last segment once more in the end
				}
				next := n.reader(following, j)
				nextOperands := next.operands(0, s.stepsAtOnce())
				n.waitActivations(following, 0)
				e := n.compareExps(n.expsOf(stage))
				b.WGMMAWait(0)
				n.release(seg, i, steps)
				n.add(e, r, part, sums[i])
				held.set(next)
				for i, registers := range nextOperands {
					for j, v := range registers {
						ptx.Set(operands[i][j], v)
					}
				}
				b.WarpSync()
				ptx.MBarrierAt(n.empty.At(stage, 8)).Arrive()
			}
		}, ptx.NoUnroll)
		for i := range sums {
			n.newResults(tile, i).store(sums[i])
		}
	})
}

// newSums returns undefined sums of a tile: four for each eight tokens.
func (n *tile) newSums() []ptx.F32 {
	sums := make([]ptx.F32, n.spec.Tokens/2)
	for i := range sums {
		sums[i] = ptx.Undefined[ptx.F32](n.b)
	}
	return sums
}

// lastSegment returns the last segment of the CTA.
func (n *tile) lastSegment() ptx.U32 {
	tiles := n.own.Tiles.Sub(n.b.BlockX()).AddN(-1).Div(n.b.GridX()).AddN(1)
	return tiles.Mul(n.p.Segments).AddN(-1)
}

// waitActivations waits for the activations of a group of steps. The wait is a loop, across which ptxas moves no
// instructions: operands that are decoded before it are ready when the products in flight are.
func (n *tile) waitActivations(seg ptx.U32, group int) {
	stage, parity := stageOf(seg, n.spec.RingX)
	ptx.MBarrierAt(n.fullX.At(stage, 8*groups).Plus(8 * group)).Wait(parity)
}

// block returns the address of the warp's tile in a stage of weights.
func (n *tile) block(stage ptx.U32) ptx.Shared {
	return n.weights.At(stage, n.spec.weightBytes()).At(n.warp, n.l.segmentBytes())
}

// reader waits for the warp's tile i of a segment and returns its reader.
func (n *tile) reader(seg ptx.U32, i int) *segmentReader {
	stage, parity := n.weightStage(seg, i)
	ptx.MBarrierAt(n.full.At(stage, 8)).Wait(parity)
	return newSegmentReader(n.c, n.spec.Format, n.block(stage), n.lane)
}

// release tells the warps that copy that the activations of the group of steps before step have been multiplied, if a group ends there.
// With several tiles, the last one releases them.
func (n *tile) release(seg ptx.U32, i, step int) {
	if step%groupSteps != 0 || i < n.spec.warpTiles()-1 {
		return
	}
	b, group := n.b, step/groupSteps-1
	stage, _ := stageOf(seg, n.spec.RingX)
	b.If(n.lane.EqN(0), func() { ptx.MBarrierAt(n.emptyX.At(stage, 8*groups).Plus(8 * group)).Arrive() })
}

// stepsAtOnce is the number of steps whose operands are decoded together. Registers hold the operands of three times as many.
func (s Tile) stepsAtOnce() int {
	if s.TwoTiles {
		return groupSteps / 2
	}
	return groupSteps
}

// multiply begins to compute the sums of the warp's tile i of a segment. a has the operands of the first steps. Those of others are
// decoded while the ones before are multiplied.
func (n *tile) multiply(seg ptx.U32, i int, r *segmentReader, a [][4]ptx.F16x2, part []ptx.F32) {
	b, size := n.b, n.spec.stepsAtOnce()
	stage, _ := stageOf(seg, n.spec.RingX)
	operand, sums := n.operand.At(stage, n.spec.actBytes()), n.sumOperand
	if offsetSteps(n.spec.Format) > 0 {
		weights, _ := n.weightStage(seg, i)
		sums = sums.At(weights, n.spec.sumBytes())
	}
	var offsets [][4]ptx.F16x2
	for step := 0; ; step += size {
		n.multiplyAsync(step, a, offsets, operand, sums, part)
		following := step + size
		if following == steps {
			break
		}
		a = r.operands(following, size)
		if following+size == steps {
			// Decoded anew: held in variables, they would have to move while other operands are in flight.
			offsets = newSegmentReader(n.c, n.spec.Format, r.block, n.lane).offsets()
		}
		n.waitActivations(seg, following/groupSteps)
		if step > 0 {
			b.WGMMAWait(1)
			n.release(seg, i, step)
		}
	}
	b.WGMMAWait(1)
	n.release(seg, i, steps-size)
}

// multiplyAsync begins to multiply operands of some steps of a group by activations, and offsets by their sums.
func (n *tile) multiplyAsync(first int, operands, offsets [][4]ptx.F16x2, acts, sums ptx.SharedMatrix[ptx.F16x2], part []ptx.F32) {
	b := n.b
	b.WGMMAFence()
	acts = acts.At(b.N(first/groupSteps), n.spec.round().stageBytes())
	for i, registers := range operands {
		ptx.WGMMA(part, registers, acts.Part(0, 16*(first%groupSteps+i/n.l.operands())), first+i > 0)
	}
	for i, registers := range offsets {
		ptx.WGMMA(part, registers, sums.Part(0, 16*i), true)
	}
	b.WGMMACommit()
}

// expsOf returns the address of E in a stage of weights.
func (n *tile) expsOf(stage ptx.U32) ptx.Shared { return n.exps.At(stage, 4*n.spec.Tokens) }

// comparedExps are the E of a segment.
type comparedExps struct {
	at     ptx.Shared // {token}
	first  ptx.F32    // of token 0
	differ ptx.Pred   // not all tokens have that one
}

// compareExps compares the E of all tokens. All lanes of the warp take part.
func (n *tile) compareExps(at ptx.Shared) comparedExps {
	b, first, others := n.b, at.LoadF32(), n.b.U32(0)
	for i := 0; i < n.spec.Tokens; i += lanes {
		token := n.lane.AddN(i)
		if n.spec.Tokens-i < lanes {
			token = token.Min(b.N(n.spec.Tokens - 1))
		}
		others = others.Or(at.At(token, 4).LoadU32().Xor(first.Bits()))
	}
	return comparedExps{at, first, others.Ne(b.U32(0)).Any()}
}

// add adds the inner sums of a segment, times D·E. Nearly always all tokens have one E.
func (n *tile) add(e comparedExps, r *segmentReader, part, sums []ptx.F32) {
	n.b.IfElse(e.differ, func() { n.addScaled(e.at, r, part, sums) }, func() {
		scales := [2]ptx.F32{r.timesD(0, e.first), r.timesD(1, e.first)}
		for i := range sums {
			ptx.Set(sums[i], part[i].FMA(scales[i/2%2], sums[i]))
		}
	})
}

// addScaled is add for tokens with any E, which are at exps.
func (n *tile) addScaled(exps ptx.Shared, r *segmentReader, part, sums []ptx.F32) {
	n.eachScale(exps, r, func(i int, scale ptx.F32) { ptx.Set(sums[i], part[i].FMA(scale, sums[i])) })
}

// eachScale calls do with D·E of each inner sum of a segment. E of all tokens is at exps.
func (n *tile) eachScale(exps ptx.Shared, r *segmentReader, do func(i int, scale ptx.F32)) {
	for j := range n.spec.Tokens / 8 {
		tokens := exps.At(n.lane.AndN(3), 8).Plus(32 * j).LoadF32x2()
		for i := range 4 {
			do(4*j+i, r.timesD(i/2, tokens[i%2]))
		}
	}
}

// maxRows is the largest number of rows of a launch.
const maxRows = 1 << 24

func (s Tile) part(k *ptx.Kernel, a Args) (ptx.Part, error) {
	p, columns := Packing{s.Format, a.K}, s.Epilogue.columns(a.Rows)
	a.YStride = cmp.Or(a.YStride, columns)
	others := slices.Concat(s.Epilogue.checks(a), normChecks(false, a.NormWeight, a.Eps), expertChecks(s.Experts, a), []host.Check{slotCheck(false, false, a.SlotFactors)})
	if err := host.Valid(k, append(others,
		host.Refuse(a.Slots != 0 || a.SlotsPerX != 0, "Slots", "only kernels of Stream take it"),
		host.Bound("Rows", a.Rows, 1, maxRows), host.Bound("YStride", a.YStride, columns, maxRows),
		host.Bound("Tokens", a.Tokens, 1, math.MaxUint32/max(a.YStride, 1)), host.Bound("K", a.K, 1, maxK),
		host.Bound("CTAs", a.CTAs, 1, math.MaxInt32), wholeBlocks(s.Format, a.K),
		host.Refuse(a.X%16 != 0, "X", "%#x is no multiple of 16", a.X), host.NonNil("X", a.X), host.NonNil("W", a.W), host.NonNil("Y", a.Y))...); err != nil {
		return ptx.Part{}, err
	}
	above := host.CeilDiv(tiles(a.Rows), s.weightTiles())
	blocks := host.CeilDiv(a.Tokens, s.Tokens)
	all := blocks * above
	ctas := min(a.CTAs, all)
	if err := host.Valid(k, host.Bound("CTAs", ctas, host.CeilDiv(all*p.segments(), math.MaxUint32), all)); err != nil {
		return ptx.Part{}, err
	}
	own := &tileParams{WeightTiles: ptx.Uint(tiles(a.Rows)), Blocks: ptx.Uint(blocks), Tiles: ptx.Uint(all)}
	params := append(paramsOf(s.Format, s.Epilogue, a), own)
	switch {
	case s.Experts:
		own.Blocks, own.Tiles = ptx.Uint(0), ptx.Uint(above)
		params = append(params, &tileExpertParams{ptx.Addr(a.Experts), ptx.Uint64(uint64(a.ExpertBytes))})
	case s.Epilogue.Norm:
		params = append(params, &factorParams{ptx.Addr(a.X + uint64(s.round().factorsAt(a.Tokens, a.K)))})
	}
	return ptx.Part{CTAs: ctas, Threads: s.threads(), Shared: s.shared(), Params: params}, nil
}
