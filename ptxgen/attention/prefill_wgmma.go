package attention

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// PrefillWGMMA computes what Prefill computes, by wgmma on sm_90a. It is for F16 and BF16 caches and head dims that are multiples of 16.
//
// As in Prefill, several CTAs share a head dim above 128. A CTA has one warpgroup per 64 queries, and one more that copies blocks of keys and values into a ring in shared
// memory. A warpgroup multiplies its queries by the keys of the next block and the weights of a block by its values
// at the same time, and weighs the next block's scores while the second product runs.
func PrefillWGMMA(s Shape) kernel.Typed[PrefillArgs] {
	f, d := newWarpgroupShape(s), newWarpgroupShape(Shape{KV: s.KV, HeadDim: s.HeadDim})
	name := "flash_wgmma_" + host.FormatName(s.KV) + "_d" + strconv.Itoa(s.HeadDim)
	if f.blockQ != d.blockQ {
		name += fmt.Sprintf("_q%d", f.blockQ)
	}
	if f.kv.page != d.kv.page || f.blockK != d.blockK {
		name += fmt.Sprintf("_p%d_k%d", f.kv.page, f.blockK)
	}
	return kernel.New(name, f.build, func(k *ptx.Kernel, a PrefillArgs) (ptx.Launch, error) {
		return a.launch(k, f.kv, f.valueParts, f.blockQ, f.threads(), f.sharedBytes())
	})
}

// PrefillFor returns the kernel for a launch on a device of some SMs that supports kernels for target most. The
// choice does not change a bit of the results.
func PrefillFor(s Shape, a PrefillArgs, most ptx.Target, sms int) kernel.Typed[PrefillArgs] {
	if !most.HasWGMMA() || newWarpgroupShape(s).check() != nil {
		if most.SM > 80 && most.SM < 90 {
			s = s.onLittleShared()
		}
		return Prefill(s)
	}
	// Larger tiles read keys and values less often, but a few of them do not fill the device.
	large := s
	large.BlockQ = threeWarpgroupQueries
	if newWarpgroupShape(large).check() == nil && a.Heads*(a.MaxQueries/threeWarpgroupQueries) >= 2*sms {
		return PrefillWGMMA(large)
	}
	return PrefillWGMMA(s)
}

// onLittleShared returns the shape for GPUs that have 99 KB of shared memory per CTA: with half of the queries if needed.
func (s Shape) onLittleShared() Shape {
	if f := newPrefillShape(s); f.sharedBytes() > 99<<10 {
		s.BlockQ = f.blockQ / 2
	}
	return s
}

// warpgroupShape says how a CTA divides its work and its shared memory.
type warpgroupShape struct {
	kv             kvShape
	blockQ, blockK int
	valueParts     int // CTAs that share the columns of V of a head
}

func newWarpgroupShape(s Shape) warpgroupShape {
	kv, blockK := s.layout()
	return warpgroupShape{kv: kv, blockQ: cmp.Or(s.BlockQ, twoWarpgroupQueries), blockK: blockK, valueParts: s.valueParts()}
}

const (
	twoWarpgroupQueries, threeWarpgroupQueries = 2 * ptx.WGMMARows, 3 * ptx.WGMMARows // per CTA

	warpgroupThreads = 128
	ring             = 4 // blocks of keys and values in shared memory, each copied by a warp of its own
	maxShared        = 224 << 10
)

func (f warpgroupShape) check() error {
	switch err := f.kv.check(); {
	case err != nil:
		return err
	case f.kv.headDim%16 != 0 || f.kv.headDim > 256:
		return fmt.Errorf("head dim %d is no multiple of 16 up to 256", f.kv.headDim)
	case f.blockQ != twoWarpgroupQueries && (f.blockQ != threeWarpgroupQueries || f.kv.headDim > 64):
		return fmt.Errorf("BlockQ: %d is not 128, or 192 with a head dim up to 64", f.blockQ)
	case f.blockK > 64:
		return fmt.Errorf("BlockK: %d is more than 64", f.blockK)
	case checkBlock(f.kv, f.blockK) != nil:
		return checkBlock(f.kv, f.blockK)
	case f.sharedBytes() > maxShared:
		return fmt.Errorf("BlockK: %d keys of head dim %d take %d bytes of shared memory", f.blockK, f.kv.headDim, f.sharedBytes())
	}
	return nil
}

func (f warpgroupShape) consumers() int { return f.blockQ / 16 } // warps
func (f warpgroupShape) threads() int   { return warpgroupThreads * (f.blockQ/ptx.WGMMARows + 1) }

// registers returns the registers per thread of the warpgroups that multiply, and of that which copies.
func (f warpgroupShape) registers() (consumer, producer int) {
	switch {
	case f.blockQ != twoWarpgroupQueries:
		return 160, 32
	case f.valueParts > 1:
		return 232, 40
	}
	return 240, 24
}

// line is the number of bytes of a key, and of a CTA's part of a value, that lie together in shared memory: see ptx.MatrixLayout.
func (f warpgroupShape) line() int {
	line := 128
	for f.kv.rowBytes()/f.valueParts%line != 0 {
		line /= 2
	}
	return line
}

// keys and values are the layouts of the two matrices of a block, which differ in what K is: the
// elements of a head or the keys.
func (f warpgroupShape) keys() ptx.MatrixLayout {
	return ptx.MatrixLayout{Rows: f.blockK, Depth: f.kv.headDim, Line: f.line()}
}

func (f warpgroupShape) values() ptx.MatrixLayout {
	return ptx.MatrixLayout{Rows: f.valueDim(), Depth: f.blockK, Line: f.line(), Transposed: true}
}

func (f warpgroupShape) queries() ptx.MatrixLayout {
	return ptx.MatrixLayout{Rows: f.blockQ, Depth: f.kv.headDim, Line: f.line()}
}

// valueDim returns the number of columns of V that a CTA has.
func (f warpgroupShape) valueDim() int { return f.kv.headDim / f.valueParts }

// stagesQueries reports whether there are too few registers for queries, besides weighted values, scores and weights.
func (f warpgroupShape) stagesQueries() bool {
	const others = 30 // registers that are left for what is not an operand of a product
	most, _ := f.registers()
	return f.kv.headDim/4+f.valueDim()+f.blockK/2+f.blockK/4 > most-others
}

// Shared memory holds the keys of all stages, the values of all stages, and the queries if they are not in registers.
func (f warpgroupShape) valuesAt() int  { return ring * f.keys().Bytes() }
func (f warpgroupShape) queriesAt() int { return f.valuesAt() + ring*f.values().Bytes() }
func (f warpgroupShape) sharedBytes() int {
	if f.stagesQueries() {
		return f.queriesAt() + f.queries().Bytes()
	}
	return f.queriesAt()
}

func (f warpgroupShape) build(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	if err := f.check(); err != nil {
		b.Failf("%v", err)
		return b.Finish()
	}
	if f.kv.format == quant.BF16 {
		generateWarpgroups(b, f, tensorBF16)
	} else {
		generateWarpgroups(b, f, tensorF16)
	}
	return b.Finish(ptx.MaxThreads(f.threads()), ptx.MinCTAs(1))
}

// warpgroupGenerator is the state of the kernel while it is generated.
type warpgroupGenerator[T ptx.Half2] struct {
	shape   warpgroupShape
	typ     tensorType[T]
	b       *ptx.Builder
	p       prefillParams
	scoring scoringParams

	tile        tileValues
	begin       ptx.U32 // index of the first block, the first of a split
	splits      ptx.U32
	shared      ptx.Shared
	full, empty ptx.Shared // barriers, {stage}: all lanes have copied their part of a block; all warps have multiplied by it
	lane, warp  ptx.U32
}

// generateWarpgroups emits the kernel.
func generateWarpgroups[T ptx.Half2](b *ptx.Builder, shape warpgroupShape, typ tensorType[T]) {
	f := &warpgroupGenerator[T]{shape: shape, typ: typ, b: b, lane: b.Lane(), warp: b.Warp()}
	b.Doc("out = softmax(softcap(scale * Q K^T)) V for %d queries of head %s of sequence ctaid.z,\n"+
		"causal, in blocks of %d keys, head dim %d; the last queries of a sequence come first.", shape.blockQ, headText(shape.valueParts), shape.blockK, shape.kv.headDim)
	ptx.Declare(b, &f.p)
	ptx.Declare(b, &f.scoring)
	f.shared = b.DynamicShared(1024)
	f.tile = f.p.findTile(b, &f.scoring, headOf(b, shape.valueParts), shape.blockQ, shape.blockK)
	f.begin = f.tile.from.DivN(splitBlocks * shape.blockK).MulN(splitBlocks)
	f.splits = f.tile.end.Sub(f.begin).CeilDivN(splitBlocks)

	barriers := b.Shared("barriers", 16*ring, 8)
	f.full, f.empty = barriers, barriers.Plus(8*ring)
	b.If(b.ThreadX().EqN(0), func() {
		for i := range ring {
			b.NewMBarrier(f.full.Plus(8*i), b.U32(32))
			b.NewMBarrier(f.empty.Plus(8*i), b.N(shape.consumers()))
		}
		b.FenceMBarrierInit()
	})
	b.Barrier()
	consumer, producer := shape.registers()
	b.IfElse(f.warp.GeN(shape.consumers()), func() {
		b.DecreaseRegisters(producer)
		f.produce()
	}, func() {
		b.IncreaseRegisters(consumer)
		f.consume()
	})
}

// stage returns the stage of a block and the parity of its phase. Blocks count from the first one.
func stage(i ptx.U32) (stage, parity ptx.U32) { return i.RemN(ring), i.DivN(ring).AndN(1) }

// produce copies blocks. Each stage belongs to one warp, so that the copies of several blocks are in flight.
func (f *warpgroupGenerator[T]) produce() {
	b := f.b
	own := f.warp.AddN(-f.shape.consumers())
	full, empty := ptx.MBarrierAt(f.full.At(own, 8)), ptx.MBarrierAt(f.empty.At(own, 8))
	first, last := f.tile.from.DivN(f.shape.blockK), f.tile.end.AddN(-1) // visible
	b.For(own, f.splits.MulN(splitBlocks), b.N(ring), func(i ptx.U32) {
		block := f.begin.Add(i)
		page := f.p.Table.At(f.tile.pages.Add(block.Max(first).Min(last).DivN(f.shape.kv.page/f.shape.blockK)), 4).LoadU32()
		_, parity := stage(i)
		empty.Wait(parity.Xor(b.U32(1)))
		f.copyBlock(block, page, own)
		b.CopyCommit()
		b.CopyWait(0)
		b.FenceProxyAsync()
		full.Arrive()
	}, ptx.NoUnroll)
}

// copyBlock starts the warp's copy of a block of K and V into a stage. Positions that no query of the tile sees
// become 0: their weights are 0, but 0 times an infinity or NaN would be NaN.
func (f *warpgroupGenerator[T]) copyBlock(block, page, stage ptx.U32) {
	b, s := f.b, f.shape
	b.Comment("K and V of a block, 16 bytes per lane")
	const swizzled = 8 // rows after which the permutation of chunks repeats
	lanes := s.line() / 16
	rows := 32 / lanes // per step
	column, row := f.lane.RemN(lanes), f.lane.DivN(lanes)
	first := block.MulN(s.blockK)
	position := first.Add(row)
	at, inPage := page.Mul(f.p.KVHeads).Add(f.tile.kvHead), first.RemN(s.kv.page).Add(row)
	type operand struct {
		from ptx.Global
		to   []ptx.Shared // by step, until the permutation repeats
		size int          // bytes per row
	}
	part := b.BlockX().RemN(s.valueParts)
	operands := []operand{{from: f.p.K, size: s.kv.rowBytes()}, {from: f.p.V, size: s.kv.rowBytes() / s.valueParts}}
	stages := []ptx.Shared{f.shared.At(stage, s.keys().Bytes()), f.shared.Plus(s.valuesAt()).At(stage, s.values().Bytes())}
	for i := range operands {
		o := &operands[i]
		o.from = o.from.At(at, s.kv.page*s.kv.rowBytes()).At(inPage, s.kv.rowBytes()).At(column, 16)
		if o.size < s.kv.rowBytes() {
			o.from = o.from.At(part, o.size)
		}
		for r := 0; r < max(rows, swizzled); r += rows {
			o.to = append(o.to, s.keys().Chunk(stages[i], row.AddN(r), column))
		}
	}
	for r := 0; r < s.blockK; r += rows {
		bytes := ptx.Select(f.tile.visible(position.AddN(r)), b.U32(16), b.U32(0))
		for _, o := range operands {
			step := r / rows % len(o.to)
			for line := 0; line < o.size; line += s.line() {
				target := o.to[step].Plus(s.blockK*line + (r-step*rows)*s.line())
				b.CopyAsyncZeroFill(target, o.from.Plus(r*s.kv.rowBytes()+line), bytes)
			}
		}
	}
}

// consumer is the state of a warpgroup that multiplies.
type consumer[T ptx.Half2] struct {
	queries     [][4]T              // [16 columns]; nil if they are in shared memory
	staged      ptx.SharedMatrix[T] // the queries in shared memory
	tile        queryTile
	factor      [2]ptx.F32
	scores      [][4]ptx.F32 // [8 keys]
	weights     [][4]T       // [16 keys]
	values, all [][4]ptx.F32 // [8 columns], weighted: of the split so far, and of the splits before it
	k, v        ptx.SharedMatrix[T]
	group       ptx.U32
}

func (f *warpgroupGenerator[T]) newConsumer() *consumer[T] {
	b := f.b
	c := &consumer[T]{group: f.warp.ShrN(2)}
	c.tile = newQueryTile(b, &f.scoring, f.lane, f.warp.MulN(16).Add(f.lane.ShrN(2)))
	f.loadQueries(c)
	c.factor = c.tile.factors()
	c.k = ptx.NewSharedMatrix[T](f.shared, f.shape.keys())
	c.v = ptx.NewSharedMatrix[T](f.shared.Plus(f.shape.valuesAt()), f.shape.values())
	c.scores = make([][4]ptx.F32, f.shape.blockK/8)
	for n := range c.scores {
		for i := range c.scores[n] {
			c.scores[n][i] = ptx.Undefined[ptx.F32](b)
		}
	}
	c.weights = make([][4]T, f.shape.blockK/16)
	for k := range c.weights {
		for i := range c.weights[k] {
			c.weights[k][i] = ptx.Undefined[T](b)
		}
	}
	c.values, c.all = zeros(b, f.shape.valueDim()/8), zeros(b, f.shape.valueDim()/8)
	return c
}

// loadQueries rounds the queries to 16 bits, each scaled by a power of two, into registers. Rows after the
// last query are copies of it.
func (f *warpgroupGenerator[T]) loadQueries(c *consumer[T]) {
	b := f.b
	b.Comment("the queries, each scaled by a power of two")
	var rows [2][][2]ptx.F32 // [row][8 columns]
	for i := range rows {
		query := f.tile.query.Add(c.tile.row.AddN(8 * i).Min(f.tile.count.AddN(-1)))
		from := f.p.Q.At(headOf(b, f.shape.valueParts), 4*f.shape.kv.headDim).AtBytes(query.MulWide(f.p.QStride).ShlN(2)).Aligned(16).At(f.lane.AndN(3), 8)
		for j := 0; j < f.shape.kv.headDim; j += 8 {
			rows[i] = append(rows[i], from.Plus(4*j).LoadF32x2())
		}
	}
	c.queries = make([][4]T, f.shape.kv.headDim/16)
	var unscale [2]ptx.F32
	for i, row := range rows {
		largest := b.U32(0)
		for _, pair := range row {
			largest = pair[1].Abs().Bits().Max(pair[0].Abs().Bits().Max(largest))
		}
		for _, lanes := range []int{1, 2} {
			largest = largest.Max(ptx.ShuffleXor(largest, lanes))
		}
		var scale ptx.F32
		scale, unscale[i] = queryScale(b, largest, f.typ.exponent)
		for j, pair := range row {
			c.queries[j/2][i+j%2*2] = f.typ.pack(pair[0].Mul(scale), pair[1].Mul(scale))
		}
	}
	c.tile.unscale = func(i int) ptx.F32 { return unscale[i] }
	if f.shape.stagesQueries() {
		f.stageQueries(c)
	}
}

// stageQueries moves the queries to shared memory.
func (f *warpgroupGenerator[T]) stageQueries(c *consumer[T]) {
	b, layout := f.b, f.shape.queries()
	to := f.shared.Plus(f.shape.queriesAt())
	for k, words := range c.queries {
		for i, w := range words {
			chunk := layout.Chunk(to, c.tile.row.AddN(i%2*8), b.N(2*k+i/2))
			chunk.At(f.lane.AndN(3), 4).StoreU32(f.typ.bits(w))
		}
	}
	c.queries = nil
	c.staged = ptx.NewSharedMatrix[T](to, layout).At(c.group, ptx.WGMMARows*layout.Line)
	b.FenceProxyAsync()
	b.NamedBarrier(c.group.AddN(1), warpgroupThreads).Sync()
}

// consume multiplies all blocks and stores the results.
func (f *warpgroupGenerator[T]) consume() {
	b := f.b
	c := f.newConsumer()
	last := f.splits.MulN(splitBlocks).AddN(-1)
	f.await(b.U32(0))
	split := func(i ptx.U32, first bool) {
		for j := range splitBlocks {
			f.addBlock(c, i.MulN(splitBlocks).AddN(j), last, j, first && j == 0)
		}
	}
	split(b.U32(0), true)
	b.For(b.U32(1), f.splits, b.U32(1), func(i ptx.U32) { split(i, false) }, ptx.NoUnroll)
	b.WGMMAFence()
	f.multiplyValues(c, last, splitBlocks-1)
	b.WGMMAWait(0)
	c.tile.addSplit(c.values, c.all, c.tile.endSplit())
	c.tile.store(c.all, &f.p, f.tile.query, f.tile.count, f.shape.kv.headDim, f.shape.valueParts)
}

// addBlock computes the weights of block i, the j-th of its split, while it adds the values of the block before it, unless it is the first.
// It waits for the next block before it releases that one.
func (f *warpgroupGenerator[T]) addBlock(c *consumer[T], i, last ptx.U32, j int, first bool) {
	b := f.b
	b.WGMMAFence()
	f.multiplyKeys(c, i)
	if !first {
		f.multiplyValues(c, i.AddN(-1), (j+splitBlocks-1)%splitBlocks)
		b.WGMMAWait(1)
	} else {
		b.WGMMAWait(0)
	}
	var factors splitFactors
	if j == 0 {
		factors = c.tile.endSplit()
	}
	shrink := f.weigh(c, f.begin.Add(i))
	f.await(i.AddN(1).Min(last)) // a branch: ptxas would move the next wait before the weights
	if !first {
		b.WGMMAWait(0)
		f.release(i.AddN(-1))
		if j == 0 {
			c.tile.addSplit(c.values, c.all, factors)
		} else {
			c.tile.rescale(c.values, shrink)
		}
	}
	f.packWeights(c)
}

// await waits for the copy of block i.
func (f *warpgroupGenerator[T]) await(i ptx.U32) {
	stage, parity := stage(i)
	ptx.MBarrierAt(f.full.At(stage, 8)).Wait(parity)
}

// release gives the stage of a block back.
func (f *warpgroupGenerator[T]) release(i ptx.U32) {
	stage, _ := stage(i)
	f.b.If(f.lane.EqN(0), func() { ptx.MBarrierAt(f.empty.At(stage, 8)).Arrive() })
}

// flat returns the registers of an accumulator.
func flat(list [][4]ptx.F32) []ptx.F32 {
	var all []ptx.F32
	for _, four := range list {
		all = append(all, four[:]...)
	}
	return all
}

// multiplyKeys begins the products of the queries and the keys of a block.
func (f *warpgroupGenerator[T]) multiplyKeys(c *consumer[T], i ptx.U32) {
	b := f.b
	b.Comment("scores")
	stage, _ := stage(i)
	keys := c.k.At(stage, f.shape.keys().Bytes())
	for k := range f.shape.kv.headDim / 16 {
		part := keys.Sub(0, 16*k)
		if c.queries == nil {
			ptx.WGMMAShared(flat(c.scores), c.staged.Sub(0, 16*k), part, k > 0)
		} else {
			ptx.WGMMA(flat(c.scores), c.queries[k], part, k > 0)
		}
	}
	b.WGMMACommit()
}

// multiplyValues begins the products of the weights and the values of block i, the j-th of its split.
func (f *warpgroupGenerator[T]) multiplyValues(c *consumer[T], i ptx.U32, j int) {
	b := f.b
	b.Comment("values")
	stage, _ := stage(i)
	values := c.v.At(stage, f.shape.values().Bytes())
	for k, weights := range c.weights {
		ptx.WGMMA(flat(c.values), weights, values.Sub(0, 16*k), j > 0 || k > 0)
	}
	b.WGMMACommit()
}

// weigh replaces the scores of a block by weights. Most blocks are visible to all queries of the tile and
// skip the mask.
func (f *warpgroupGenerator[T]) weigh(c *consumer[T], block ptx.U32) (shrink [2]ptx.F32) {
	b := f.b
	c.tile.softcap(c.scores)
	b.Comment("mask, in blocks at the diagonal or where a window begins")
	key := block.MulN(f.shape.blockK)
	partly := key.AddN(f.shape.blockK - 1).Gt(f.tile.first).Or(key.Lt(f.scoring.windowStart(f.tile.to)))
	b.If(partly, func() { c.tile.mask(c.scores, key, f.tile.first) })
	b.Comment("weights, relative to the largest score of the split so far")
	return c.tile.weigh(c.scores, c.factor)
}

// packWeights rounds the weights to 16 bits. Accumulators have the layout that the second product needs of its left
// operand.
func (f *warpgroupGenerator[T]) packWeights(c *consumer[T]) {
	for k, w := range c.weights {
		a, d := c.scores[2*k], c.scores[2*k+1]
		ptx.Set(w[0], f.typ.pack(a[0], a[1]))
		ptx.Set(w[1], f.typ.pack(a[2], a[3]))
		ptx.Set(w[2], f.typ.pack(d[0], d[1]))
		ptx.Set(w[3], f.typ.pack(d[2], d[3]))
	}
}
