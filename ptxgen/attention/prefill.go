package attention

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Prefill computes attention of many queries per sequence over its cache, which already holds
// the keys and values of the queries' own positions. The queries of all sequences are
// concatenated: sequence s has queries Starts[s] to Starts[s+1]. The last one is at position
// Lengths[s] − 1, and the others at the preceding positions. Query head h reads KV head
// h / (Heads/KVHeads).
//
// A CTA has BlockQ queries of one head and iterates over blocks of keys. If the head dim is above 128, several CTAs
// compute the same weights, each for at most 128 columns of V.
//
// The result of a query depends on the query, its position and the cache alone, as long as no visible element of V is
// infinite or NaN. Such an element makes the outputs of the whole tile NaN, also those of
// queries before its position.
func Prefill(s Shape) kernel.Typed[PrefillArgs] {
	f, d := newPrefillShape(s), newPrefillShape(Shape{KV: s.KV, HeadDim: s.HeadDim})
	name := "flash_attention_" + host.FormatName(s.KV) + "_d" + strconv.Itoa(s.HeadDim)
	if f.kv.page != d.kv.page || f.blockQ != d.blockQ || f.blockK != d.blockK {
		name += fmt.Sprintf("_p%d_q%d_k%d", f.kv.page, f.blockQ, f.blockK)
	}
	return kernel.New(name, f.build, f.launch)
}

// prefillShape says how a CTA divides its queries, keys and values. A warp has 16 queries.
type prefillShape struct {
	kv             kvShape
	blockQ, blockK int
	threads        int
	valueParts     int // CTAs that share the columns of V of a head
	width          int // headDim rounded up to a multiple of 16
	valueWidth     int // likewise, of the CTA's part of V
	// Bytes per row of queries and keys, and of values, in shared memory: odd multiples of 16, so that 8 rows are in
	// different banks.
	stride, valueStride int
}

func newPrefillShape(s Shape) prefillShape {
	queries := 128
	if s.HeadDim > 128 {
		queries = 64
	}
	if s.HeadDim > 256 {
		queries = 32
	}
	kv, blockK := s.layout()
	f := prefillShape{kv: kv, valueParts: s.valueParts(), blockQ: cmp.Or(s.BlockQ, queries), blockK: blockK}
	f.threads = f.blockQ / 16 * 32
	f.width = host.CeilDiv(s.HeadDim, 16) * 16
	f.valueWidth = f.width / f.valueParts
	f.stride, f.valueStride = 2*f.width+16, 2*f.valueWidth+16
	return f
}

// partDim is the largest number of columns of V for which a CTA has registers.
const partDim = 128

// valueParts returns how many CTAs share the columns of V of a head. Each has a multiple of 16.
func (s Shape) valueParts() int {
	if s.HeadDim <= partDim || checkHeadDim(s.HeadDim) != nil {
		return 1
	}
	n := host.CeilDiv(s.HeadDim, partDim)
	for s.HeadDim%(16*n) != 0 {
		n++
	}
	return n
}

func (f prefillShape) check() error {
	switch err := f.kv.check(); {
	case err != nil:
		return err
	case f.blockQ < 16 || f.blockQ > 128 || f.blockQ&(f.blockQ-1) != 0:
		return fmt.Errorf("BlockQ: %d is no power of two from 16 to 128", f.blockQ)
	case f.blockK < f.threads/copyLanes:
		return fmt.Errorf("BlockK: %d is less than %d", f.blockK, f.threads/copyLanes)
	}
	return checkBlock(f.kv, f.blockK)
}

// The methods below return byte offsets in shared memory, which holds what undoes the scaling of the
// queries, tileValues, the queries, two stages of K and two stages of V.
func (f prefillShape) valuesOfTileAt() int { return 4 * f.blockQ }
func (f prefillShape) queriesAt() int      { return f.valuesOfTileAt() + 32 }
func (f prefillShape) keysAt() int         { return f.queriesAt() + f.blockQ*f.stride }
func (f prefillShape) stageBytes() int     { return f.blockK * f.stride }
func (f prefillShape) valuesAt() int       { return f.keysAt() + 2*f.stageBytes() }
func (f prefillShape) valueBytes() int     { return f.blockK * f.valueStride } // of a stage
func (f prefillShape) sharedBytes() int    { return f.valuesAt() + 2*f.valueBytes() }

// valueDim returns the number of columns of V that a CTA has.
func (f prefillShape) valueDim() int { return f.kv.headDim / f.valueParts }

type prefillParams struct {
	Q, K, V, Out           ptx.Global `align:"16"`
	Table, Lengths, Starts ptx.Global
	QStride, OutStride     ptx.U32
	KVHeads                ptx.U32
	Group                  ptx.U32 // query heads per KV head
	MaxPages               ptx.U32
}

func (f prefillShape) build(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	if err := f.check(); err != nil {
		b.Failf("%v", err)
		return b.Finish()
	}
	if f.kv.format == quant.BF16 {
		generate(b, f, tensorBF16)
	} else {
		generate(b, f, tensorF16)
	}
	return b.Finish(ptx.MaxThreads(f.threads))
}

// PrefillArgs are the arguments of a launch of Prefill.
type PrefillArgs struct {
	Q                  ptx.Address // f32 [queries] rows of [Heads][head dim], QStride apart
	Out                ptx.Address // f32 [queries] rows of [Heads][head dim], OutStride apart
	Starts             ptx.Address // u32 [Sequences+1]: first query of each sequence, and the number of queries
	KV                 PagedKV
	Scoring            Scoring
	Sequences, Heads   int
	QStride, OutStride int // in elements, multiples of 4
	MaxQueries         int // at least those of each sequence
}

func (f prefillShape) launch(k *ptx.Kernel, a PrefillArgs) (ptx.Launch, error) {
	return a.launch(k, f.kv, f.valueParts, f.blockQ, f.threads, f.sharedBytes())
}

// launch makes a launch of CTAs of some threads and bytes of dynamic shared memory, with blockQ queries each. valueParts CTAs
// share a head.
func (a PrefillArgs) launch(k *ptx.Kernel, kv kvShape, valueParts, blockQ, threads, shared int) (ptx.Launch, error) {
	width := a.Heads * kv.headDim
	checks := slices.Concat(a.KV.checks(a.Sequences, a.Heads, kv.page), a.Scoring.checks(),
		checkStride("QStride", a.QStride, width, host.MaxSize), checkStride("OutStride", a.OutStride, width, host.MaxSize))
	checks = append(checks, host.Bound("MaxQueries", a.MaxQueries, 1, 65535*blockQ),
		host.NonNil("Q", a.Q), host.NonNil("Out", a.Out), host.NonNil("Starts", a.Starts))
	if err := host.Valid(k, checks...); err != nil {
		return ptx.Launch{}, err
	}
	tiles := host.CeilDiv(a.MaxQueries, blockQ)
	return k.Launch([3]uint32{uint32(a.Heads * valueParts), uint32(tiles), uint32(a.Sequences)}, threads, shared, &prefillParams{
		Q: ptx.Addr(a.Q), K: ptx.Addr(a.KV.K), V: ptx.Addr(a.KV.V), Out: ptx.Addr(a.Out),
		Table: ptx.Addr(a.KV.Table), Lengths: ptx.Addr(a.KV.Lengths), Starts: ptx.Addr(a.Starts),
		QStride: ptx.Uint(a.QStride), OutStride: ptx.Uint(a.OutStride),
		KVHeads: ptx.Uint(a.KV.KVHeads), Group: ptx.Uint(a.Heads / a.KV.KVHeads), MaxPages: ptx.Uint(a.KV.MaxPages),
	}, a.Scoring.params())
}

// Depth returns how many additions follow one another in a score and in an output over length positions. A tensor core adds at least
// eight products at a time.
func Depth(s Shape, length int) (score, output int) {
	_, block := s.layout()
	return host.CeilDiv(s.HeadDim, 16) * 2, splitBlocks*(block/8+1) + 2*host.CeilDiv(length, splitBlocks*block)
}

// tensorType is a 16-bit type of tensor cores.
type tensorType[T ptx.Half2] struct {
	pack func(lo, hi ptx.F32) T
	bits func(T) ptx.U32
	from func(bits ptx.U32) T
	// exponent is the exponent of the largest element of a query after scaling. It is far from
	// overflow and from subnormal numbers.
	exponent int
}

var (
	tensorF16  = tensorType[ptx.F16x2]{ptx.PackF16, ptx.F16x2.Bits, ptx.U32.AsF16x2, 14}
	tensorBF16 = tensorType[ptx.BF16x2]{ptx.PackBF16, ptx.BF16x2.Bits, ptx.U32.AsBF16x2, 0}
)

// prefillGenerator is the state of the kernel while it is generated.
type prefillGenerator[T ptx.Half2] struct {
	shape   prefillShape
	typ     tensorType[T]
	b       *ptx.Builder
	p       prefillParams
	scoring scoringParams

	tile       tileValues
	lane, warp ptx.U32
	shared     ptx.Shared
}

// tileValues describes the tile of queries of a CTA. The values are stored in shared memory and
// loaded again in each iteration, because the products need nearly all registers.
type tileValues struct {
	from, to ptx.U32 // positions that at least one query sees
	first    ptx.U32 // position of the first query
	query    ptx.U32 // index of the first query among those of all sequences
	count    ptx.U32 // number of queries
	kvHead   ptx.U32
	pages    ptx.U32 // index of the sequence's first entry in Table
	end      ptx.U32 // index of the last block, plus 1
}

// saveTile stores the tile's values; after a barrier, reloadTile loads them.
func (f *prefillGenerator[T]) saveTile() {
	t, at := f.tile, f.shared.Plus(f.shape.valuesOfTileAt())
	f.b.When(f.b.ThreadX().EqN(0), func() {
		at.StoreU32x4([4]ptx.U32{t.from, t.to, t.first, t.query})
		at.Plus(16).StoreU32x4([4]ptx.U32{t.count, t.kvHead, t.pages, t.end})
	})
}

func (f *prefillGenerator[T]) reloadTile() {
	at := f.shared.Plus(f.shape.valuesOfTileAt())
	a, c := at.LoadU32x4(), at.Plus(16).LoadU32x4()
	f.tile = tileValues{from: a[0], to: a[1], first: a[2], query: a[3], count: c[0], kvHead: c[1], pages: c[2], end: c[3]}
}

// generate emits the kernel.
func generate[T ptx.Half2](b *ptx.Builder, shape prefillShape, numbers tensorType[T]) {
	f := &prefillGenerator[T]{shape: shape, typ: numbers, b: b, lane: b.Lane(), warp: b.Warp()}
	b.Doc("out = softmax(softcap(scale * Q K^T)) V for %d queries of head %s of sequence ctaid.z,\n"+
		"causal, in blocks of %d keys, head dim %d; the last queries of a sequence come first.", shape.blockQ, headText(shape.valueParts), shape.blockK, shape.kv.headDim)
	q := f.open()
	block := ptx.Var(f.tile.from.DivN(f.shape.blockK))
	f.copyBlock(block, f.pageOf(block))
	b.CopyCommit()
	f.saveTile()
	f.zeroPadding()
	f.stageQueries(q)
	page := ptx.Var(f.pageOf(block.AddN(1)))
	b.Barrier()
	f.reloadTile()
	state := f.newState()
	b.While(func() ptx.Pred { f.reloadTile(); return block.Lt(f.tile.end) }, func() {
		b.Comment("this block has been copied, and no thread reads the other stage any more")
		b.CopyWait(0)
		b.Barrier()
		f.reloadTile()
		next := block.AddN(1)
		b.If(next.Lt(f.tile.end), func() { f.copyBlock(next, page) })
		b.CopyCommit()
		ptx.Set(page, f.pageOf(next.AddN(1)))
		f.addBlock(state, block)
		ptx.Set(block, next)
	})
	f.reloadTile()
	state.endSplit()
	state.tile.store(state.all, &f.p, f.tile.query, f.tile.count, f.shape.kv.headDim, f.shape.valueParts)
}

// open declares the parameters, finds the CTA's tile, and returns the queries of its head. CTAs
// without a tile end.
func (f *prefillGenerator[T]) open() (q ptx.Global) {
	ptx.Declare(f.b, &f.p)
	ptx.Declare(f.b, &f.scoring)
	f.shared = f.b.DynamicShared(16)
	head := headOf(f.b, f.shape.valueParts)
	f.tile = f.p.findTile(f.b, &f.scoring, head, f.shape.blockQ, f.shape.blockK)
	return f.p.Q.At(head, 4*f.shape.kv.headDim)
}

// findTile finds the CTA's tile of blockQ queries of a head, with keys in blocks of blockK. CTAs without
// a tile end.
func (p *prefillParams) findTile(b *ptx.Builder, scoring *scoringParams, head ptx.U32, blockQ, blockK int) tileValues {
	back, sequence := b.BlockY(), b.BlockZ()
	start := p.Starts.At(sequence, 4)
	begin, length := start.LoadU32(), p.Lengths.At(sequence, 4).LoadU32()
	queries := start.Plus(4).LoadU32().Sub(begin)
	tiles := queries.CeilDivN(blockQ)
	b.Comment("end if the sequence has no such tile: all threads alike")
	b.ReturnIf(back.Ge(tiles))
	b.ReturnIf(length.Lt(queries))
	row := tiles.AddN(-1).Sub(back).MulN(blockQ)
	first, count := length.Sub(queries).Add(row), queries.Sub(row).Min(b.N(blockQ))
	return tileValues{
		from: scoring.windowStart(first.AddN(1)), to: first.Add(count), first: first,
		query: begin.Add(row), count: count, kvHead: head.Div(p.Group),
		pages: sequence.Mul(p.MaxPages), end: first.Add(count).CeilDivN(blockK),
	}
}

// pageOf returns the page number of a block of keys. After the last block, it returns that of the
// last block.
func (f *prefillGenerator[T]) pageOf(block ptx.U32) ptx.U32 {
	block = block.Min(f.tile.end.AddN(-1))
	return f.p.Table.At(f.tile.pages.Add(block.DivN(f.shape.kv.page/f.shape.blockK)), 4).LoadU32()
}

// copyLanes is the number of threads that copy a row, 16 bytes of shared memory at a time.
const copyLanes = 8

// copyBlock starts the copy of a block of K and V into its stage. Positions that no query of the
// tile sees become 0: their weights are 0, but 0 times an infinity or NaN would be NaN.
func (f *prefillGenerator[T]) copyBlock(block, page ptx.U32) {
	b := f.b
	b.Comment("K and V of a block, %d threads per row", copyLanes)
	t := b.ThreadX()
	column, row, rows := t.RemN(copyLanes), t.DivN(copyLanes), f.shape.threads/copyLanes
	first := block.MulN(f.shape.blockK)
	at := page.Mul(f.p.KVHeads).Add(f.tile.kvHead)
	inPage := first.RemN(f.shape.kv.page)
	for i, source := range []ptx.Global{f.p.K, f.valueColumns()} {
		half := f.halves()[i]
		to := f.shared.At(block.AndN(1), half.stageBytes).At(row, half.stride).At(column, 16)
		from := source.At(at, f.shape.kv.page*f.shape.kv.rowBytes()).At(inPage, f.shape.kv.rowBytes()).At(row, f.shape.kv.rowBytes()).At(column, 16)
		for r := 0; r < f.shape.blockK; r += rows {
			bytes := ptx.Select(f.tile.visible(first.Add(row).AddN(r)), b.U32(16), b.U32(0))
			f.eachChunk(column, half.columns, func(j int) {
				b.CopyAsyncZeroFill(to.Plus(half.at+r*half.stride+16*j), from.Plus(r*f.shape.kv.rowBytes()+16*j), bytes)
			})
		}
	}
}

// blockHalf is the keys or the values of a block in shared memory.
type blockHalf struct {
	at, stageBytes int // of the first of two stages
	stride         int // bytes per row
	columns        int
}

// halves returns the keys and the values.
func (f *prefillGenerator[T]) halves() [2]blockHalf {
	s := f.shape
	return [2]blockHalf{
		{s.keysAt(), s.stageBytes(), s.stride, s.kv.headDim}, {s.valuesAt(), s.valueBytes(), s.valueStride, s.valueDim()},
	}
}

// valueColumns returns V from the CTA's first column on.
func (f *prefillGenerator[T]) valueColumns() ptx.Global {
	if f.shape.valueParts == 1 {
		return f.p.V
	}
	return f.p.V.At(f.b.BlockX().RemN(f.shape.valueParts), f.shape.kv.rowBytes()/f.shape.valueParts)
}

func (t tileValues) visible(position ptx.U32) ptx.Pred {
	return position.Ge(t.from).And(position.Lt(t.to))
}

// eachChunk calls do for every copyLanes-th 16-byte chunk of a row of columns in shared memory, from column on.
func (f *prefillGenerator[T]) eachChunk(column ptx.U32, columns int, do func(j int)) {
	for j := 0; 8*j < columns; j += copyLanes {
		if 8*(j+copyLanes) <= columns {
			do(j)
		} else {
			f.b.When(column.LtN(columns/8-j), func() { do(j) })
		}
	}
}

// zeroPadding clears the columns of K and V that pad the head dim to a multiple of 16. If CTAs share a head, there are
// none.
func (f *prefillGenerator[T]) zeroPadding() {
	if f.shape.width == f.shape.kv.headDim {
		return
	}
	b := f.b
	zero := [4]ptx.U32{b.U32(0), b.U32(0), b.U32(0), b.U32(0)}
	b.For(b.ThreadX(), b.N(4*f.shape.blockK), b.N(f.shape.threads), func(row ptx.U32) {
		f.shared.Plus(f.shape.keysAt()+2*f.shape.kv.headDim).At(row, f.shape.stride).StoreU32x4(zero)
	})
}

// stageQueries rounds the queries to 16 bits, each scaled by a power of two, into shared memory.
// A warp converts its rows one by one, with eight in flight. Rows after the last query are
// copies of it.
func (f *prefillGenerator[T]) stageQueries(q ptx.Global) {
	b := f.b
	b.Comment("the queries, each scaled by a power of two")
	const ahead = 8
	b.For(b.U32(0), b.U32(16), b.N(ahead), func(i ptx.U32) {
		first := f.warp.MulN(16).Add(i)
		var list [ahead][][4]ptx.F32
		for r := range list {
			row := f.tile.query.Add(first.AddN(r).Min(f.tile.count.AddN(-1)))
			for j := 0; j < f.shape.kv.headDim/4; j += 32 {
				vec := f.lane.AddN(j).Min(b.N(f.shape.kv.headDim/4 - 1))
				from := q.AtBytes(row.MulWide(f.p.QStride).ShlN(2)).Aligned(16)
				list[r] = append(list[r], from.At(vec, 16).LoadF32x4())
			}
		}
		for r := range list {
			f.stageQuery(list[r], first.AddN(r))
		}
	})
}

// stageQuery stores one row. The lane holds every 32nd group of four elements of it.
func (f *prefillGenerator[T]) stageQuery(list [][4]ptx.F32, row ptx.U32) {
	b := f.b
	largest := b.U32(0)
	for _, vec := range list {
		for _, x := range vec {
			largest = x.Abs().Bits().Max(largest)
		}
	}
	scale, unscale := queryScale(b, largest.WarpReduce("max"), f.typ.exponent)
	to := f.shared.Plus(f.shape.queriesAt()).At(row, f.shape.stride)
	for j, x := range list {
		vec := f.lane.AddN(32 * j)
		words := [2]ptx.U32{
			f.typ.bits(f.typ.pack(x[0].Mul(scale), x[1].Mul(scale))), f.typ.bits(f.typ.pack(x[2].Mul(scale), x[3].Mul(scale))),
		}
		b.When(vec.LtN(f.shape.kv.headDim/4), func() { to.At(vec, 8).StoreU32x2(words) })
	}
	b.When(f.lane.EqN(0), func() {
		f.shared.At(row, 4).StoreF32(unscale)
		if f.shape.width > f.shape.kv.headDim {
			to.Plus(2 * f.shape.kv.headDim).StoreU32x4([4]ptx.U32{b.U32(0), b.U32(0), b.U32(0), b.U32(0)})
		}
	})
}

// prefillState is what a warp carries from block to block.
type prefillState[T ptx.Half2] struct {
	queryAt, keyAt, valueAt ptx.Shared // this lane's addresses of matrices of queries, K and V
	queries                 [][4]T     // [16 columns]; nil if there are too few registers
	tile                    queryTile
	values, all             [][4]ptx.F32 // [8 columns], weighted: of the split so far, and of the splits before it
}

func (f *prefillGenerator[T]) newState() *prefillState[T] {
	b := f.b
	s := &prefillState[T]{}
	high, low := f.lane.Field(3, 1).MulN(8).Add(f.lane.AndN(7)), f.lane.ShrN(4)
	warpRow := f.warp.MulN(16)
	s.queryAt = f.shared.Plus(f.shape.queriesAt()).At(warpRow.Add(high), f.shape.stride).At(low, 16)
	s.valueAt = f.shared.Plus(f.shape.valuesAt()).At(high, f.shape.valueStride).At(low, 16)
	s.keyAt = f.shared.Plus(f.shape.keysAt()).At(low.MulN(8).Add(f.lane.AndN(7)), f.shape.stride).At(f.lane.Field(3, 1), 16)
	s.tile = newQueryTile(b, &f.scoring, f.lane, warpRow.Add(f.lane.ShrN(2)))
	s.tile.unscale = func(i int) ptx.F32 { return f.shared.Plus(4*8*i).At(s.tile.row, 4).LoadF32() }
	if f.shape.width <= 128 {
		for k := range f.shape.width / 16 {
			s.queries = append(s.queries, f.loadQuery(s, k))
		}
	}
	s.values, s.all = zeros(b, f.shape.valueDim()/8), zeros(b, f.shape.valueDim()/8)
	return s
}

// zeros returns accumulators of n matrices of 16 rows and 8 columns.
func zeros(b *ptx.Builder, n int) [][4]ptx.F32 {
	list := make([][4]ptx.F32, n)
	for i := range list {
		for j := range list[i] {
			list[i][j] = ptx.Var(b.F32(0))
		}
	}
	return list
}

func (f *prefillGenerator[T]) loadQuery(s *prefillState[T], k int) [4]T {
	return [4]T(ptx.LoadMatrices[T](s.queryAt.Plus(32*k), 4, false))
}

// addBlock adds one block of keys and values.
func (f *prefillGenerator[T]) addBlock(s *prefillState[T], block ptx.U32) {
	stage := block.AndN(1)
	scores := f.scores(s, stage)
	s.tile.softcap(scores)
	f.mask(s, scores, block)
	f.b.If(block.RemN(splitBlocks).EqN(0), s.endSplit) // a new split begins: add the last one, which is empty at first
	f.b.Comment("weights, relative to the largest score of the split so far")
	s.tile.rescale(s.values, s.tile.weigh(scores, s.tile.factors()))
	f.addValues(s, scores, stage)
}

// endSplit adds the split to those before it, and begins another one.
func (s *prefillState[T]) endSplit() {
	s.tile.addSplit(s.values, s.all, s.tile.endSplit())
	for _, x := range flat(s.values) {
		ptx.Set(x, s.tile.b.F32(0))
	}
}

// scores returns Q·Kᵀ of the warp's rows and the block's keys: [8 keys].
func (f *prefillGenerator[T]) scores(s *prefillState[T], stage ptx.U32) [][4]ptx.F32 {
	f.b.Comment("scores")
	scores := zeros(f.b, f.shape.blockK/8)
	keyAt := s.keyAt.At(stage, f.shape.stageBytes())
	for k := range f.shape.width / 16 {
		var query [4]T
		if s.queries != nil {
			query = s.queries[k]
		} else {
			query = f.loadQuery(s, k)
		}
		for n := range f.shape.blockK / 16 {
			key := ptx.LoadMatrices[T](keyAt.Plus(16*n*f.shape.stride+32*k), 4, false)
			ptx.MMA(scores[2*n], query, [2]T(key[:2]))
			ptx.MMA(scores[2*n+1], query, [2]T(key[2:]))
		}
	}
	return scores
}

// mask hides the positions that a query does not see. Most blocks are visible to all queries of the
// tile and skip it.
func (f *prefillGenerator[T]) mask(s *prefillState[T], scores [][4]ptx.F32, block ptx.U32) {
	b := f.b
	b.Comment("mask, in blocks at the diagonal or where a window begins")
	first := block.MulN(f.shape.blockK)
	partly := first.AddN(f.shape.blockK - 1).Gt(f.tile.first).Or(first.Lt(f.scoring.windowStart(f.tile.to)))
	b.If(partly, func() { s.tile.mask(scores, first, f.tile.first) })
}

// addValues adds the weighted values. The accumulators of the scores have the layout that the
// second product needs of its left operand.
func (f *prefillGenerator[T]) addValues(s *prefillState[T], weights [][4]ptx.F32, stage ptx.U32) {
	f.b.Comment("values")
	valueAt := s.valueAt.At(stage, f.shape.valueBytes())
	for k := range f.shape.blockK / 16 {
		a, c := weights[2*k], weights[2*k+1]
		left := [4]T{f.typ.pack(a[0], a[1]), f.typ.pack(a[2], a[3]), f.typ.pack(c[0], c[1]), f.typ.pack(c[2], c[3])}
		for n := range f.shape.valueWidth / 16 {
			value := ptx.LoadMatrices[T](valueAt.Plus(16*k*f.shape.valueStride+32*n), 4, true)
			ptx.MMA(s.values[2*n], left, [2]T(value[:2]))
			if 2*n+1 < len(s.values) {
				ptx.MMA(s.values[2*n+1], left, [2]T(value[2:]))
			}
		}
	}
}
