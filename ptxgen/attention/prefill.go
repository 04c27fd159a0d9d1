package attention

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Prefill is attention of many queries a sequence over its cache, which
// already holds the keys and values of the queries' own positions. The queries of
// all sequences are concatenated; query i of sequence s, of Starts[s+1]−Starts[s],
// has position p = Lengths[s] − (Starts[s+1]−Starts[s]) + i and
//
//	out = Σ_j exp(s[j] − m)·V[j] / Σ_j exp(s[j] − m),    m = max_j s[j]
//
// with s as Scoring says, over the visible positions j. Query head h reads KV head
// h / (Heads/KVHeads).
//
// A CTA has BlockQ queries of one head and goes over the keys in blocks of BlockK,
// counted from position 0, with a running maximum. Both products are of 16-bit
// numbers with float32 accumulation on tensor cores: bfloat16 for a BF16 cache,
// half precision for an F16 and an F32 one, whose elements are rounded (and
// overflow beyond 65,504). Each query is scaled by a power of two of its own before
// it is rounded, so that none overflows and few elements are subnormal; the scores
// are scaled back, in float32. The weights exp(s − m) are rounded for the second
// product, but not in the sum that divides it.
//
// What is computed for a query depends on it, its position and the cache only: not
// on the queries around it, nor on how a prompt was cut, as long as no visible
// element of V is infinite or NaN. (Such an element makes the output NaN for the
// other queries of its tile too, also those before its position.)
func Prefill(s Shape) kernel.Typed[PrefillArgs] {
	f, d := newPrefillShape(s), newPrefillShape(Shape{KV: s.KV, HeadDim: s.HeadDim})
	name := "flash_attention_" + host.FormatName(s.KV) + "_d" + strconv.Itoa(s.HeadDim)
	if f.page != d.page || f.blockQ != d.blockQ || f.blockK != d.blockK {
		name += fmt.Sprintf("_p%d_q%d_k%d", f.page, f.blockQ, f.blockK)
	}
	return kernel.New(name, f.build, f.launch)
}

// How the warps share a tile.
type flashShape struct {
	kvShape
	blockQ, blockK int
	tiles          int // of 16 queries a warp
	threads        int
	width          int // headDim as a multiple of 16
	stride         int // bytes of a row in shared memory: an odd multiple of 16, so that 8 rows lie in different banks
}

func newPrefillShape(s Shape) flashShape {
	queries, keys := 128, 64
	if s.HeadDim > 128 {
		queries, keys = 64, 32
	}
	page := cmp.Or(s.Page, PageTokens)
	f := flashShape{
		kvShape: kvShape{s.KV, s.HeadDim, page}, tiles: 1,
		blockQ: cmp.Or(s.BlockQ, queries), blockK: cmp.Or(s.BlockK, min(keys, page)),
	}
	if f.blockQ >= 128 && s.HeadDim <= 128 {
		f.tiles = 2 // what a warp loads of K and V is used twice
	}
	f.threads = f.blockQ / 16 / f.tiles * 32
	f.width = host.CeilDiv(s.HeadDim, 16) * 16
	f.stride = 2*f.width + 16
	return f
}

func (f flashShape) check() error {
	switch err := f.kvShape.check(); {
	case err != nil:
		return err
	case f.blockQ < 16 || f.blockQ > 128 || f.blockQ&(f.blockQ-1) != 0:
		return fmt.Errorf("BlockQ: %d is no power of two from 16 to 128", f.blockQ)
	case f.blockK < 16 || f.page%f.blockK != 0 || f.blockK < f.threads/copyLanes:
		return fmt.Errorf("BlockK: %d is less than 16 or %d, or does not divide a page of %d", f.blockK, f.threads/copyLanes, f.page)
	}
	return nil
}

// Shared memory holds the queries' scales, tileValues, the queries, and two stages of
// K and V.
func (f flashShape) valuesOfTileAt() int { return 4 * f.blockQ }
func (f flashShape) queriesAt() int      { return f.valuesOfTileAt() + 32 }
func (f flashShape) keysAt() int         { return f.queriesAt() + f.blockQ*f.stride }
func (f flashShape) stageBytes() int     { return f.blockK * f.stride }
func (f flashShape) valuesAt() int       { return f.keysAt() + 2*f.stageBytes() }
func (f flashShape) sharedBytes() int    { return f.valuesAt() + 2*f.stageBytes() }

type prefillParams struct {
	Q, K, V, Out           ptx.Global `align:"16"`
	Table, Lengths, Starts ptx.Global
	QStride, OutStride     ptx.U32
	KVHeads                ptx.U32
	Group                  ptx.U32 // query heads per KV head
	MaxPages, Window       ptx.U32
	ScaleLog2e             ptx.F32 // Scale·log2(e)
	Scale, Softcap         ptx.F32
}

func (f flashShape) build(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	if err := f.check(); err != nil {
		b.Failf("%v", err)
		return b.Finish()
	}
	if f.format == quant.BF16 {
		generateFlash(b, f, tensorType[ptx.BF16x2]{ptx.PackBF16, ptx.BF16x2.Bits, 0})
	} else {
		generateFlash(b, f, tensorType[ptx.F16x2]{ptx.PackF16, ptx.F16x2.Bits, 14})
	}
	return b.Finish(ptx.MaxThreads(f.threads))
}

// PrefillArgs are a launch's arguments.
type PrefillArgs struct {
	Q                  ptx.Address // f32 [queries] rows of [Heads][HeadDim], QStride apart
	Out                ptx.Address // f32 [queries] rows of [Heads][HeadDim], OutStride apart
	Starts             ptx.Address // u32 [Sequences+1]: the first query of each sequence, and how many there are
	KV                 PagedKV
	Scoring            Scoring
	Sequences, Heads   int
	QStride, OutStride int // in elements, multiples of 4
	MaxQueries         int // of a sequence, at least
}

func (f flashShape) launch(k *ptx.Kernel, a PrefillArgs) (ptx.Launch, error) {
	width := a.Heads * f.headDim
	checks := slices.Concat(a.KV.checks(a.Sequences, a.Heads, f.page), a.Scoring.checks(),
		checkStride("QStride", a.QStride, width, host.MaxSize), checkStride("OutStride", a.OutStride, width, host.MaxSize))
	checks = append(checks, host.Bound("MaxQueries", a.MaxQueries, 1, 65535*f.blockQ),
		host.Given("Q", a.Q), host.Given("Out", a.Out), host.Given("Starts", a.Starts))
	if err := host.Valid(k, checks...); err != nil {
		return ptx.Launch{}, err
	}
	tiles := host.CeilDiv(a.MaxQueries, f.blockQ)
	return k.Launch([3]uint32{uint32(a.Heads), uint32(tiles), uint32(a.Sequences)}, f.threads, f.sharedBytes(), &prefillParams{
		Q: ptx.Addr(a.Q), K: ptx.Addr(a.KV.K), V: ptx.Addr(a.KV.V), Out: ptx.Addr(a.Out),
		Table: ptx.Addr(a.KV.Table), Lengths: ptx.Addr(a.KV.Lengths), Starts: ptx.Addr(a.Starts),
		QStride: ptx.Uint(a.QStride), OutStride: ptx.Uint(a.OutStride),
		KVHeads: ptx.Uint(a.KV.KVHeads), Group: ptx.Uint(a.Heads / a.KV.KVHeads), MaxPages: ptx.Uint(a.KV.MaxPages), Window: ptx.Uint(a.Scoring.Window),
		ScaleLog2e: ptx.Float(float32(float64(a.Scoring.Scale) * math.Log2E)), Scale: ptx.Float(a.Scoring.Scale), Softcap: ptx.Float(a.Scoring.Softcap),
	})
}

// PrefillDepth returns how many steps of a tensor core, of eight products each, follow one
// another in a score and in an output over length positions.
func PrefillDepth(s Shape, length int) (score, output int) {
	return newPrefillShape(s).width / 8, host.CeilDiv(length, 8)
}

// tensorType is what the tensor cores multiply.
type tensorType[T ptx.Half2] struct {
	pack func(lo, hi ptx.F32) T
	bits func(T) ptx.U32
	// exponent is that of the largest element of a query after scaling: far from
	// overflow, and from the subnormal numbers.
	exponent int
}

// flashing is a Prefill kernel while it is generated.
type flashing[T ptx.Half2] struct {
	flashShape
	tensorType[T]
	b *ptx.Builder
	p prefillParams

	tile       tileValues
	lane, warp ptx.U32
	capped     ptx.Pred
	shared     ptx.Shared
}

// tileValues are the same for all threads of a CTA. They are kept in shared memory
// and read again for each block: the products need nearly all registers.
type tileValues struct {
	from, to    ptx.U32 // positions that any of the queries sees
	first       ptx.U32 // position of the first query
	rows, count ptx.U32 // number of the first query, and how many there are
	kvHead      ptx.U32
	pages       ptx.U32 // where the sequence's part of the table begins
	end         ptx.U32 // the block behind the last
}

// keep stores the values; reload, behind a barrier, reads them.
func (f *flashing[T]) keep() {
	t, at := f.tile, f.shared.Plus(f.valuesOfTileAt())
	f.b.When(f.b.ThreadX().EqN(0), func() {
		at.StoreU32x4([4]ptx.U32{t.from, t.to, t.first, t.rows})
		at.Plus(16).StoreU32x4([4]ptx.U32{t.count, t.kvHead, t.pages, t.end})
	})
}

func (f *flashing[T]) reload() {
	at := f.shared.Plus(f.valuesOfTileAt())
	a, c := at.LoadU32x4(), at.Plus(16).LoadU32x4()
	f.tile = tileValues{from: a[0], to: a[1], first: a[2], rows: a[3], count: c[0], kvHead: c[1], pages: c[2], end: c[3]}
}

// generateFlash emits the kernel.
func generateFlash[T ptx.Half2](b *ptx.Builder, shape flashShape, numbers tensorType[T]) {
	f := &flashing[T]{flashShape: shape, tensorType: numbers, b: b, lane: b.Lane(), warp: b.Warp()}
	b.Doc("out = softmax(device.Softcap(scale * Q K^T)) V for %d queries of head ctaid.x of sequence ctaid.z,\n"+
		"causal, in blocks of %d keys, head dim %d; the last queries of a sequence come first.", f.blockQ, f.blockK, f.headDim)
	q := f.open()
	block := ptx.Var(f.tile.from.DivN(f.blockK))
	f.copyBlock(block, f.pageOf(block))
	b.CopyCommit()
	f.keep()
	f.zeroPadding()
	f.stageQueries(q)
	page := ptx.Var(f.pageOf(block.AddN(1)))
	b.Barrier()
	f.reload()
	state := f.newState()
	b.While(func() ptx.Pred { f.reload(); return block.Lt(f.tile.end) }, func() {
		b.Comment("this block has landed, and nobody reads the other stage any more")
		b.CopyWait(0)
		b.Barrier()
		f.reload()
		next := block.AddN(1)
		b.If(next.Lt(f.tile.end), func() { f.copyBlock(next, page) })
		b.CopyCommit()
		ptx.Set(page, f.pageOf(next.AddN(1)))
		f.step(state, block)
		ptx.Set(block, next)
	})
	f.reload()
	f.store(state)
}

// open takes the parameters and finds the CTA's tile, and q of its head. A CTA without
// a tile ends.
func (f *flashing[T]) open() (q ptx.Global) {
	b := f.b
	ptx.Declare(b, &f.p)
	f.capped = f.p.Softcap.Ne(b.F32(0))
	f.shared = b.DynamicShared(16)

	head, back, sequence := b.BlockX(), b.BlockY(), b.BlockZ()
	start := f.p.Starts.At(sequence, 4)
	begin, length := start.LoadU32(), f.p.Lengths.At(sequence, 4).LoadU32()
	queries := start.Plus(4).LoadU32().Sub(begin)
	tiles := queries.CeilDivN(f.blockQ)
	b.Comment("no tile of this sequence: for all threads alike")
	b.ReturnIf(back.Ge(tiles))
	b.ReturnIf(length.Lt(queries))
	row := tiles.AddN(-1).Sub(back).MulN(f.blockQ)
	first, count := length.Sub(queries).Add(row), queries.Sub(row).Min(b.N(f.blockQ))
	f.tile = tileValues{
		from: windowStart(b, first.AddN(1), f.p.Window), to: first.Add(count), first: first,
		rows: begin.Add(row), count: count, kvHead: head.Div(f.p.Group),
		pages: sequence.Mul(f.p.MaxPages), end: first.Add(count).CeilDivN(f.blockK),
	}
	return f.p.Q.At(head, 4*f.headDim)
}

// pageOf is the page that a block of keys lies in, for those behind the last its page.
func (f *flashing[T]) pageOf(block ptx.U32) ptx.U32 {
	block = block.Min(f.tile.end.AddN(-1))
	return f.p.Table.At(f.tile.pages.Add(block.DivN(f.page/f.blockK)), 4).LoadU32()
}

// copyLanes threads copy a row, 16 bytes of shared memory at a time.
const copyLanes = 8

// copyBlock begins to copy a block of K and V into its stage. Positions that no
// query of the tile sees are not read but become 0: their weights are 0, and 0
// times what lies there might be NaN.
func (f *flashing[T]) copyBlock(block, page ptx.U32) {
	b := f.b
	b.Comment("K and V of a block, %d threads a row", copyLanes)
	t := b.ThreadX()
	column, row, step := t.RemN(copyLanes), t.DivN(copyLanes), f.threads/copyLanes
	first := block.MulN(f.blockK)
	at := page.Mul(f.p.KVHeads).Add(f.tile.kvHead)
	inPage := first.RemN(f.page)
	to := f.shared.At(block.AndN(1), f.stageBytes()).At(row, f.stride).At(column, 16)
	if f.format.BlockBytes() == 2 {
		for i, source := range []ptx.Global{f.p.K, f.p.V} {
			from := source.At(at, f.page*f.rowBytes()).At(inPage, f.rowBytes()).At(row, f.rowBytes()).At(column, 16)
			for r := 0; r < f.blockK; r += step {
				bytes := ptx.Select(f.visible(first.Add(row).AddN(r)), b.U32(16), b.U32(0))
				f.eachPart(column, func(j int) {
					b.CopyAsyncZeroFill(to.Plus([]int{f.keysAt(), f.valuesAt()}[i]+r*f.stride+16*j), from.Plus(r*f.rowBytes()+16*j), bytes)
				})
			}
		}
		return
	}
	b.For(b.U32(0), b.U32(2), b.U32(1), func(i ptx.U32) {
		source := ptx.GlobalAt(ptx.Select(i.EqN(0), f.p.K.Address(), f.p.V.Address()), 16)
		source = source.At(at, f.page*f.rowBytes()).At(inPage, f.rowBytes())
		f.convertBlock(f.shared.At(block.AndN(1), f.stageBytes()).Plus(f.keysAt()).At(i, f.valuesAt()-f.keysAt()), source, first)
	}, ptx.NoUnroll) // registers do not suffice for both at once
}

func (f *flashing[T]) visible(position ptx.U32) ptx.Pred {
	return position.Ge(f.tile.from).And(position.Lt(f.tile.to))
}

// eachPart calls do for every copyLanes-th 16 bytes of a row in shared memory, from
// column on.
func (f *flashing[T]) eachPart(column ptx.U32, do func(j int)) {
	for j := 0; 8*j < f.headDim; j += copyLanes {
		if 8*(j+copyLanes) <= f.headDim {
			do(j)
		} else {
			f.b.When(column.LtN(f.headDim/8-j), func() { do(j) })
		}
	}
}

// convertBlock copies a block of float32 whose first position is first; a thread
// has eight elements at a time.
func (f *flashing[T]) convertBlock(to ptx.Shared, from ptx.Global, first ptx.U32) {
	b := f.b
	parts := f.headDim / 8
	b.For(b.ThreadX(), b.N(f.blockK*parts), b.N(f.threads), func(i ptx.U32) {
		row, column := i.DivN(parts), i.RemN(parts)
		position := first.Add(row)
		// A part of the block is visible, so that this is a row of it.
		source := position.Max(f.tile.from).Min(f.tile.to.AddN(-1)).Sub(first)
		at := from.At(source, f.rowBytes()).At(column, 32)
		lo, hi := at.LoadF32x4(), at.Plus(16).LoadF32x4()
		words := [4]ptx.U32{
			ptx.PackF16(lo[0], lo[1]).Bits(), ptx.PackF16(lo[2], lo[3]).Bits(),
			ptx.PackF16(hi[0], hi[1]).Bits(), ptx.PackF16(hi[2], hi[3]).Bits(),
		}
		visible := f.visible(position)
		for j, w := range words {
			words[j] = ptx.Select(visible, w, b.U32(0))
		}
		to.At(row, f.stride).At(column, 16).StoreU32x4(words)
	})
}

// zeroPadding clears the columns of K and V that make the head dim a multiple of 16.
func (f *flashing[T]) zeroPadding() {
	if f.width == f.headDim {
		return
	}
	b := f.b
	zero := [4]ptx.U32{b.U32(0), b.U32(0), b.U32(0), b.U32(0)}
	b.For(b.ThreadX(), b.N(4*f.blockK), b.N(f.threads), func(row ptx.U32) {
		f.shared.Plus(f.keysAt()+2*f.headDim).At(row, f.stride).StoreU32x4(zero)
	})
}

// stageQueries rounds the queries to 16 bits, each scaled by a power of two, into
// shared memory. A warp has its rows one by one, eight of them under way. Behind the
// last query it is repeated.
func (f *flashing[T]) stageQueries(q ptx.Global) {
	b := f.b
	b.Comment("the queries, each scaled by a power of two")
	const ahead = 8
	own := 16 * f.tiles
	b.For(b.U32(0), b.N(own), b.N(ahead), func(i ptx.U32) {
		first := f.warp.MulN(own).Add(i)
		var list [ahead][][4]ptx.F32
		for r := range list {
			row := f.tile.rows.Add(first.AddN(r).Min(f.tile.count.AddN(-1)))
			for j := 0; j < f.headDim/4; j += 32 {
				quad := f.lane.AddN(j).Min(b.N(f.headDim/4 - 1))
				from := q.AtBytes(row.MulWide(f.p.QStride).ShlN(2)).Aligned(16)
				list[r] = append(list[r], from.At(quad, 16).LoadF32x4())
			}
		}
		for r := range list {
			f.stageQuery(list[r], first.AddN(r))
		}
	})
}

// stageQuery stores one row, of which the lane has every 32nd four elements.
func (f *flashing[T]) stageQuery(list [][4]ptx.F32, row ptx.U32) {
	b := f.b
	most := b.U32(0)
	for _, quad := range list {
		for _, x := range quad {
			most = x.Abs().Bits().Max(most)
		}
	}
	// The exponents of the factor and its inverse stay within those of normal numbers.
	exponent := b.N(254 + f.exponent).Sub(most.WarpReduce("max").ShrN(23)).Min(b.N(253))
	factor, inverse := exponent.ShlN(23).AsF32(), b.N(254).Sub(exponent).ShlN(23).AsF32()
	to := f.shared.Plus(f.queriesAt()).At(row, f.stride)
	for j, x := range list {
		quad := f.lane.AddN(32 * j)
		words := [2]ptx.U32{
			f.bits(f.pack(x[0].Mul(factor), x[1].Mul(factor))), f.bits(f.pack(x[2].Mul(factor), x[3].Mul(factor))),
		}
		b.When(quad.LtN(f.headDim/4), func() { to.At(quad, 8).StoreU32x2(words) })
	}
	b.When(f.lane.EqN(0), func() {
		f.shared.At(row, 4).StoreF32(inverse)
		if f.width > f.headDim {
			to.Plus(2 * f.headDim).StoreU32x4([4]ptx.U32{b.U32(0), b.U32(0), b.U32(0), b.U32(0)})
		}
	})
}

// flashState is what a warp keeps from block to block. In each of its tiles a lane
// has the rows lane/4 and lane/4 + 8, and of every eight columns 2·(lane%4) and the
// next.
type flashState[T ptx.Half2] struct {
	queryAt, keyAt, valueAt ptx.Shared // what this lane addresses for matrices of queries, K and V
	queries                 [][][4]T   // [tile][16 columns]; nil where registers do not suffice
	row                     ptx.U32    // the first of this lane's, of the tile
	rows                    []flashRow // two a tile, eight positions apart
	out                     [][][4]ptx.F32
}

// flashRow is one query of a lane. Where registers are scarce, what can be had from
// shared memory once a block is not kept.
type flashRow struct {
	most ptx.F32 // of the scores so far, as a power of two
	sum  ptx.F32 // of the weights so far, in this lane's columns
}

// inverse is the power of two that undoes the scaling of the lane's row i.
func (f *flashing[T]) inverse(s *flashState[T], i int) ptx.F32 {
	return f.shared.Plus(4*8*i).At(s.row, 4).LoadF32()
}

func (f *flashing[T]) newState() *flashState[T] {
	b := f.b
	s := &flashState[T]{}
	high, low := f.lane.Field(3, 1).MulN(8).Add(f.lane.AndN(7)), f.lane.ShrN(4)
	warpRow := f.warp.MulN(16 * f.tiles)
	s.queryAt = f.shared.Plus(f.queriesAt()).At(warpRow.Add(high), f.stride).At(low, 16)
	s.valueAt = f.shared.Plus(f.valuesAt()).At(high, f.stride).At(low, 16)
	s.keyAt = f.shared.Plus(f.keysAt()).At(low.MulN(8).Add(f.lane.AndN(7)), f.stride).At(f.lane.Field(3, 1), 16)
	const most = 32 // registers for queries
	s.row = warpRow.Add(f.lane.ShrN(2))
	for t := range f.tiles {
		for range 2 {
			s.rows = append(s.rows, flashRow{most: ptx.Var(minusInf(b)), sum: ptx.Var(b.F32(0))})
		}
		if f.tiles*f.width/4 <= most {
			var list [][4]T
			for k := range f.width / 16 {
				list = append(list, f.loadQuery(s, t, k))
			}
			s.queries = append(s.queries, list)
		}
		s.out = append(s.out, f.zeros(f.headDim/8))
	}
	return s
}

// zeros are accumulators of n matrices of 16 rows and 8 columns.
func (f *flashing[T]) zeros(n int) [][4]ptx.F32 {
	list := make([][4]ptx.F32, n)
	for i := range list {
		for j := range list[i] {
			list[i][j] = ptx.Var(f.b.F32(0))
		}
	}
	return list
}

func (f *flashing[T]) loadQuery(s *flashState[T], tile, k int) [4]T {
	return [4]T(ptx.LoadMatrices[T](s.queryAt.Plus(16*tile*f.stride+32*k), 4, false))
}

// step takes one block of keys into account.
func (f *flashing[T]) step(s *flashState[T], block ptx.U32) {
	stage := block.AndN(1)
	scores := f.scores(s, stage)
	f.b.If(f.capped, func() { f.softcap(s, scores) })
	f.mask(s, scores, block)
	f.softmax(s, scores)
	f.addValues(s, scores, stage)
}

// scores are Q·Kᵀ of the warp's rows and the block's keys: [tile][8 keys].
func (f *flashing[T]) scores(s *flashState[T], stage ptx.U32) [][][4]ptx.F32 {
	f.b.Comment("scores")
	scores := make([][][4]ptx.F32, f.tiles)
	for t := range scores {
		scores[t] = f.zeros(f.blockK / 8)
	}
	keyAt := s.keyAt.At(stage, f.stageBytes())
	for k := range f.width / 16 {
		query := make([][4]T, f.tiles)
		for t := range query {
			if s.queries != nil {
				query[t] = s.queries[t][k]
			} else {
				query[t] = f.loadQuery(s, t, k)
			}
		}
		for n := range f.blockK / 16 {
			key := ptx.LoadMatrices[T](keyAt.Plus(16*n*f.stride+32*k), 4, false)
			for t := range query {
				ptx.MMA(scores[t][2*n], query[t], [2]T(key[:2]))
				ptx.MMA(scores[t][2*n+1], query[t], [2]T(key[2:]))
			}
		}
	}
	return scores
}

// eachScore calls do for the scores of each row: of column 8·n + 2·(lane%4) + odd.
func (f *flashing[T]) eachScore(scores [][][4]ptx.F32, do func(row, n, odd int, x ptx.F32)) {
	for t := range scores {
		for half := range 2 {
			for n, x := range scores[t] {
				for odd := range 2 {
					do(2*t+half, n, odd, x[2*half+odd])
				}
			}
		}
	}
}

// softcap makes powers of two of the products: cap·device.Tanh(scale·x/cap)·log2 e.
func (f *flashing[T]) softcap(s *flashState[T], scores [][][4]ptx.F32) {
	f.b.Comment("softcap")
	scale, capLog2 := f.p.Scale.Div(f.p.Softcap), f.p.Softcap.MulN(math.Log2E)
	factor := make([]ptx.F32, len(s.rows))
	for i := range factor {
		factor[i] = scale.Mul(f.inverse(s, i))
	}
	f.eachScore(scores, func(row, _, _ int, x ptx.F32) {
		ptx.Set(x, device.Tanh(f.b, x.Mul(factor[row])).Mul(capLog2))
	})
}

// factors turn products into powers of two; softcap has done so where there is one.
func (f *flashing[T]) factors(s *flashState[T]) []ptx.F32 {
	list := make([]ptx.F32, len(s.rows))
	for i := range list {
		// A factor of 0 would make NaN of -Inf.
		x := f.p.ScaleLog2e.Mul(f.inverse(s, i)).Max(f.b.F32(math.SmallestNonzeroFloat32))
		list[i] = ptx.Select(f.capped, f.b.F32(1), x)
	}
	return list
}

// mask makes -Inf of the scores of what a query does not see. Most blocks are seen
// by all queries of the tile and are left out.
func (f *flashing[T]) mask(s *flashState[T], scores [][][4]ptx.F32, block ptx.U32) {
	b := f.b
	b.Comment("mask, in blocks at the diagonal or at the window's edge")
	first := block.MulN(f.blockK)
	partly := first.AddN(f.blockK - 1).Gt(f.tile.first).Or(first.Lt(windowStart(b, f.tile.to, f.p.Window)))
	b.If(partly, func() {
		column := first.Add(f.lane.AndN(3).MulN(2))
		low, high := make([]ptx.S32, len(s.rows)), make([]ptx.S32, len(s.rows))
		for i := range s.rows {
			end := f.tile.first.Add(s.row).AddN(8*i + 1)
			low[i], high[i] = windowStart(b, end, f.p.Window).Sub(column).S32(), end.Sub(column).S32()
		}
		f.eachScore(scores, func(row, n, odd int, x ptx.F32) {
			next := b.S32(int32(8*n + odd + 1))
			ptx.Set(x, ptx.Select(high[row].Ge(next).And(low[row].Lt(next)), x, minusInf(b)))
		})
	})
}

// softmax makes weights of the scores and scales what was added up so far to the new
// maximum. A block of which a row sees nothing leaves the row's bits as they are.
func (f *flashing[T]) softmax(s *flashState[T], scores [][][4]ptx.F32) {
	f.b.Comment("weights, relative to the largest score so far")
	rows := len(s.rows)
	most, sum, factor := make([]ptx.F32, rows), make([]ptx.F32, rows), f.factors(s)
	f.eachScore(scores, func(row, n, odd int, x ptx.F32) {
		if n+odd > 0 {
			x = x.Max(most[row])
		}
		most[row] = x
	})
	shrink, changed := f.raise(s, most, factor)
	f.eachScore(scores, func(row, n, odd int, x ptx.F32) {
		ptx.Set(x, x.FMA(factor[row], most[row].Neg()).Ex2ApproxFTZ())
		if n+odd > 0 {
			sum[row] = sum[row].Add(x)
		} else {
			sum[row] = x
		}
	})
	for i, r := range s.rows {
		ptx.Set(r.sum, r.sum.FMA(shrink[i], sum[i]))
	}
	f.b.If(changed.Any(), func() {
		for t := range s.out {
			for n := range s.out[t] {
				for i, x := range s.out[t][n] {
					ptx.Set(x, x.Mul(shrink[2*t+i/2]))
				}
			}
		}
	})
}

// raise takes the largest products of this block into each row's maximum, as a power
// of two, leaves that in most, and gives what the sums so far are to be multiplied
// with and whether that is not 1 for all rows of the lane.
func (f *flashing[T]) raise(s *flashState[T], most, factor []ptx.F32) (shrink []ptx.F32, changed ptx.Pred) {
	b := f.b
	for i, r := range s.rows {
		top := most[i]
		for _, lanes := range []int{1, 2} {
			top = top.Max(ptx.ShuffleXor(top, lanes))
		}
		top = top.Mul(factor[i]).Max(r.most)
		same := top.Eq(r.most)
		most[i] = finiteMax(b, top)
		shrink = append(shrink, ptx.Select(same, b.F32(1), r.most.Sub(most[i]).Ex2ApproxFTZ()))
		ptx.Set(r.most, top)
		if i == 0 {
			changed = same.Not()
		} else {
			changed = changed.Or(same.Not())
		}
	}
	return shrink, changed
}

// addValues adds the weighted values. The accumulators of the scores hold the
// weights as the second product takes its left side.
func (f *flashing[T]) addValues(s *flashState[T], weights [][][4]ptx.F32, stage ptx.U32) {
	f.b.Comment("values")
	valueAt := s.valueAt.At(stage, f.stageBytes())
	for k := range f.blockK / 16 {
		left := make([][4]T, f.tiles)
		for t := range left {
			a, c := weights[t][2*k], weights[t][2*k+1]
			left[t] = [4]T{f.pack(a[0], a[1]), f.pack(a[2], a[3]), f.pack(c[0], c[1]), f.pack(c[2], c[3])}
		}
		for n := range f.width / 16 {
			value := ptx.LoadMatrices[T](valueAt.Plus(16*k*f.stride+32*n), 4, true)
			for t := range left {
				ptx.MMA(s.out[t][2*n], left[t], [2]T(value[:2]))
				if 2*n+1 < len(s.out[t]) {
					ptx.MMA(s.out[t][2*n+1], left[t], [2]T(value[2:]))
				}
			}
		}
	}
}

// store divides by the sums and writes the rows that are queries.
func (f *flashing[T]) store(s *flashState[T]) {
	b := f.b
	out := f.p.Out.At(b.BlockX(), 4*f.headDim) // not before: it would take registers from the loop
	b.Comment("divide by the sum of the weights")
	for i := range s.rows {
		sum := s.rows[i].sum
		for _, lanes := range []int{1, 2} {
			sum = sum.Add(ptx.ShuffleXor(sum, lanes))
		}
		inverse := sum.Rcp()
		row := s.row.AddN(8 * i)
		b.If(row.Lt(f.tile.count), func() {
			to := out.AtBytes(f.tile.rows.Add(row).MulWide(f.p.OutStride).ShlN(2)).Aligned(16).At(f.lane.AndN(3), 8)
			for n, x := range s.out[i/2] {
				pair := x[2*(i%2):]
				to.Plus(32 * n).StoreF32x2([2]ptx.F32{pair[0].Mul(inverse), pair[1].Mul(inverse)})
			}
		})
	}
}
