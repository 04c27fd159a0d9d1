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

// PrefillWGMMA computes what Prefill computes, with the same order of additions, by wgmma on sm_90a. It is for F16
// and BF16 caches and head dims that are multiples of 16.
//
// A CTA has one warpgroup per 64 queries, and one more that copies blocks of keys and values into a ring in shared
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
		return a.launch(k, f.kv, 1, f.blockQ, f.threads(), f.sharedBytes())
	})
}

// PrefillFor returns the kernel for a launch on a device of some SMs that supports kernels for target most. The
// choice does not change a bit of the results.
func PrefillFor(s Shape, a PrefillArgs, most ptx.Target, sms int) kernel.Typed[PrefillArgs] {
	if !most.HasWGMMA() || newWarpgroupShape(s).check() != nil {
		return Prefill(s)
	}
	// Larger tiles read keys and values less often, but a few of them do not fill the device.
	large := s
	large.BlockQ = mostQueries
	if newWarpgroupShape(large).check() == nil && a.Heads*(a.MaxQueries/mostQueries) >= 2*sms {
		return PrefillWGMMA(large)
	}
	return PrefillWGMMA(s)
}

// warpgroupShape says how a CTA divides its work and its shared memory.
type warpgroupShape struct {
	kv             kvShape
	blockQ, blockK int
}

func newWarpgroupShape(s Shape) warpgroupShape {
	d := newPrefillShape(Shape{KV: s.KV, HeadDim: s.HeadDim, Page: s.Page})
	return warpgroupShape{kv: d.kv, blockQ: cmp.Or(s.BlockQ, leastQueries), blockK: cmp.Or(s.BlockK, d.blockK)}
}

const (
	leastQueries, mostQueries = 2 * ptx.WGMMARows, 3 * ptx.WGMMARows // per CTA

	warpgroupThreads = 128
	ring             = 4 // blocks of keys and values in shared memory, each copied by a warp of its own
	maxShared        = 224 << 10
)

func (f warpgroupShape) check() error {
	switch err := f.kv.check(); {
	case err != nil:
		return err
	case f.kv.format == quant.F32 || f.kv.headDim%16 != 0 || f.kv.headDim > largeHead:
		return fmt.Errorf("cache of %v with head dim %d: want F16 or BF16 and a multiple of 16 up to %d", f.kv.format, f.kv.headDim, largeHead)
	case f.blockQ != leastQueries && (f.blockQ != mostQueries || f.kv.headDim > 128):
		return fmt.Errorf("BlockQ: %d is not 128, or 192 with a head dim up to 128", f.blockQ)
	case f.blockK < 16 || f.blockK > 64 || f.kv.page%f.blockK != 0:
		return fmt.Errorf("BlockK: %d is less than 16 or more than 64, or does not divide a page of %d", f.blockK, f.kv.page)
	case f.sharedBytes() > maxShared:
		return fmt.Errorf("BlockK: %d keys of head dim %d take %d bytes of shared memory", f.blockK, f.kv.headDim, f.sharedBytes())
	}
	return nil
}

func (f warpgroupShape) consumers() int { return f.blockQ / 16 } // warps
func (f warpgroupShape) threads() int   { return warpgroupThreads * (f.blockQ/ptx.WGMMARows + 1) }

// registers returns the registers per thread of the warpgroups that multiply, and of that which copies.
func (f warpgroupShape) registers() (consumer, producer int) {
	if f.blockQ == leastQueries {
		return 232, 40
	}
	return 160, 32
}

// line is the number of bytes of a key that lie together in shared memory: see ptx.MatrixLayout.
func (f warpgroupShape) line() int {
	line := 128
	for f.kv.rowBytes()%line != 0 {
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
	return ptx.MatrixLayout{Rows: f.kv.headDim, Depth: f.blockK, Line: f.line(), Transposed: true}
}

func (f warpgroupShape) queries() ptx.MatrixLayout {
	return ptx.MatrixLayout{Rows: f.blockQ, Depth: f.kv.headDim, Line: f.line()}
}

// stagesQueries reports whether there are too few registers for queries, besides outputs, scores and weights.
func (f warpgroupShape) stagesQueries() bool {
	const others = 36 // registers that are left for what is not an operand of a product
	most, _ := f.registers()
	return f.kv.headDim/4+f.kv.headDim/2+f.blockK/2+f.blockK/4 > most-others
}

// blockBytes is the size of the keys, and of the values, of a block. Shared memory holds the keys of all stages, the
// values of all stages, and the queries if they are not in registers.
func (f warpgroupShape) blockBytes() int { return f.keys().Bytes() }
func (f warpgroupShape) queriesAt() int  { return 2 * ring * f.blockBytes() }
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
	shape warpgroupShape
	typ   tensorType[T]
	b     *ptx.Builder
	p     prefillParams

	tile        tileValues
	begin       ptx.U32 // index of the first block
	hasSoftcap  ptx.Pred
	quotient    ptx.F32 // Scale/Softcap
	shared      ptx.Shared
	full, empty ptx.Shared // barriers, {stage}: all lanes have copied their part of a block; all warps have multiplied by it
	lane, warp  ptx.U32
}

// generateWarpgroups emits the kernel.
func generateWarpgroups[T ptx.Half2](b *ptx.Builder, shape warpgroupShape, typ tensorType[T]) {
	f := &warpgroupGenerator[T]{shape: shape, typ: typ, b: b, lane: b.Lane(), warp: b.Warp()}
	b.Doc("out = softmax(softcap(scale * Q K^T)) V for %d queries of head ctaid.x of sequence ctaid.z,\n"+
		"causal, in blocks of %d keys, head dim %d; the last queries of a sequence come first.", shape.blockQ, shape.blockK, shape.kv.headDim)
	ptx.Declare(b, &f.p)
	f.hasSoftcap = f.p.Softcap.Ne(b.F32(0))
	f.quotient = f.p.Scale.Div(f.p.Softcap)
	f.shared = b.DynamicShared(1024)
	f.tile = f.p.findTile(b, b.BlockX(), shape.blockQ, shape.blockK)
	f.begin = f.tile.from.DivN(shape.blockK)

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
	b.For(own, f.tile.end.Sub(f.begin), b.N(ring), func(i ptx.U32) {
		block := f.begin.Add(i)
		page := f.p.Table.At(f.tile.pages.Add(block.DivN(f.shape.kv.page/f.shape.blockK)), 4).LoadU32()
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
	var to []ptx.Shared
	for r := 0; r < max(rows, swizzled); r += rows {
		to = append(to, s.keys().Chunk(f.shared.At(stage, s.blockBytes()), row.AddN(r), column))
	}
	var from [2]ptx.Global
	at, inPage := page.Mul(f.p.KVHeads).Add(f.tile.kvHead), first.RemN(s.kv.page).Add(row)
	for i, source := range []ptx.Global{f.p.K, f.p.V} {
		from[i] = source.At(at, s.kv.page*s.kv.rowBytes()).At(inPage, s.kv.rowBytes()).At(column, 16)
	}
	for r := 0; r < s.blockK; r += rows {
		bytes := ptx.Select(f.tile.visible(position.AddN(r)), b.U32(16), b.U32(0))
		step := r / rows % len(to)
		for i := range from {
			for line := 0; line < s.kv.rowBytes(); line += s.line() {
				target := to[step].Plus(i*ring*s.blockBytes() + s.blockK*line + (r-step*rows)*s.line())
				b.CopyAsyncZeroFill(target, from[i].Plus(r*s.kv.rowBytes()+line), bytes)
			}
		}
	}
}

// consumer is the state of a warpgroup that multiplies.
type consumer[T ptx.Half2] struct {
	queries      [][4]T              // [16 columns]; nil if they are in shared memory
	staged       ptx.SharedMatrix[T] // the queries in shared memory
	online       onlineSoftmax
	factor       []ptx.F32
	scores, out  [][4]ptx.F32 // [8 keys], [8 columns]
	weights      [][4]T       // [16 keys]
	keys, values ptx.SharedMatrix[T]
	group        ptx.U32
}

func (f *warpgroupGenerator[T]) newConsumer() *consumer[T] {
	b := f.b
	c := &consumer[T]{group: f.warp.ShrN(2)}
	c.online = onlineSoftmax{b: b, p: &f.p, lane: f.lane, hasSoftcap: f.hasSoftcap, row: f.warp.MulN(16).Add(f.lane.ShrN(2))}
	c.online.addTile()
	f.loadQueries(c)
	c.factor = c.online.factors()
	c.keys = ptx.NewSharedMatrix[T](f.shared, f.shape.keys())
	c.values = ptx.NewSharedMatrix[T](f.shared, f.shape.values())
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
	c.out = zeros(b, f.shape.kv.headDim/8)
	return c
}

// loadQueries rounds the queries to 16 bits, each scaled by a power of two, into registers. Rows after the
// last query are copies of it.
func (f *warpgroupGenerator[T]) loadQueries(c *consumer[T]) {
	b := f.b
	b.Comment("the queries, each scaled by a power of two")
	var rows [2][][2]ptx.F32 // [row][8 columns]
	for i := range rows {
		query := f.tile.query.Add(c.online.row.AddN(8 * i).Min(f.tile.count.AddN(-1)))
		from := f.p.Q.At(b.BlockX(), 4*f.shape.kv.headDim).AtBytes(query.MulWide(f.p.QStride).ShlN(2)).Aligned(16).At(f.lane.AndN(3), 8)
		for j := 0; j < f.shape.kv.headDim; j += 8 {
			rows[i] = append(rows[i], from.Plus(4*j).LoadF32x2())
		}
	}
	c.queries = make([][4]T, f.shape.kv.headDim/16)
	var inverse [2]ptx.F32
	for i, row := range rows {
		largest := b.U32(0)
		for _, pair := range row {
			largest = pair[1].Abs().Bits().Max(pair[0].Abs().Bits().Max(largest))
		}
		for _, lanes := range []int{1, 2} {
			largest = largest.Max(ptx.ShuffleXor(largest, lanes))
		}
		var factor ptx.F32
		factor, inverse[i] = queryScale(b, largest, f.typ.exponent)
		for j, pair := range row {
			c.queries[j/2][i+j%2*2] = f.typ.pack(pair[0].Mul(factor), pair[1].Mul(factor))
		}
	}
	c.online.inverse = func(i int) ptx.F32 { return inverse[i] }
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
			chunk := layout.Chunk(to, c.online.row.AddN(i%2*8), b.N(2*k+i/2))
			chunk.At(f.lane.AndN(3), 4).StoreU32(f.typ.bits(w))
		}
	}
	c.queries = nil
	c.staged = ptx.NewSharedMatrix[T](to, layout).At(c.group, ptx.WGMMARows*layout.Line)
	b.FenceProxyAsync()
	b.NamedBarrier(c.group.AddN(1), warpgroupThreads).Sync()
}

// consume multiplies all blocks and stores the results. It waits for a block before it releases the last but one.
func (f *warpgroupGenerator[T]) consume() {
	b := f.b
	c := f.newConsumer()
	count := f.tile.end.Sub(f.begin)
	last := count.AddN(-1)
	await := func(stage, parity ptx.U32) { ptx.MBarrierAt(f.full.At(stage, 8)).Wait(parity) }
	await(b.U32(0), b.U32(0))
	b.WGMMAFence()
	f.multiplyKeys(c, b.U32(0))
	b.WGMMAWait(0)
	f.weigh(c, f.begin)
	f.packWeights(c)
	await(last.Min(b.U32(1)), b.U32(0))
	b.For(b.U32(1), count, b.U32(1), func(i ptx.U32) {
		b.WGMMAFence()
		f.multiplyKeys(c, i)
		f.multiplyValues(c, i.AddN(-1))
		b.WGMMAWait(1)
		shrink, changed := f.weigh(c, f.begin.Add(i))
		await(stage(i.AddN(1).Min(last))) // a branch: ptxas would move the next wait before the weights
		b.WGMMAWait(0)
		f.release(i.AddN(-1))
		c.online.rescale([][][4]ptx.F32{c.out}, shrink, changed)
		f.packWeights(c)
	}, ptx.NoUnroll)
	b.WGMMAFence()
	f.multiplyValues(c, last)
	b.WGMMAWait(0)
	c.online.store([][][4]ptx.F32{c.out}, f.tile.query, f.tile.count, f.shape.kv.headDim, 1)
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
	keys := c.keys.At(stage, f.shape.blockBytes())
	for k := range f.shape.kv.headDim / 16 {
		part := keys.Part(0, 16*k)
		if c.queries == nil {
			ptx.WGMMAShared(flat(c.scores), c.staged.Part(0, 16*k), part, k > 0)
		} else {
			ptx.WGMMA(flat(c.scores), c.queries[k], part, k > 0)
		}
	}
	b.WGMMACommit()
}

// multiplyValues begins the products of the weights and the values of a block.
func (f *warpgroupGenerator[T]) multiplyValues(c *consumer[T], i ptx.U32) {
	b := f.b
	b.Comment("values")
	stage, _ := stage(i)
	values := c.values.At(stage.AddN(ring), f.shape.blockBytes())
	for k, weights := range c.weights {
		ptx.WGMMA(flat(c.out), weights, values.Part(0, 16*k), true)
	}
	b.WGMMACommit()
}

// weigh replaces the scores of a block by weights. Most blocks are visible to all queries of the tile and
// skip the mask.
func (f *warpgroupGenerator[T]) weigh(c *consumer[T], block ptx.U32) (shrink []ptx.F32, changed ptx.Pred) {
	b, scores := f.b, [][][4]ptx.F32{c.scores}
	b.If(f.hasSoftcap, func() { c.online.softcap(scores, f.quotient) })
	b.Comment("mask, in blocks at the diagonal or where a window begins")
	key := block.MulN(f.shape.blockK)
	partly := key.AddN(f.shape.blockK - 1).Gt(f.tile.first).Or(key.Lt(f.p.windowStart(f.tile.to)))
	b.If(partly, func() { c.online.mask(scores, key, f.tile.first) })
	b.Comment("weights, relative to the largest score so far")
	return c.online.weigh(scores, c.factor)
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
