package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// tensorType is what the tensor cores multiply.
type tensorType[T ptx.Half2] struct {
	pack func(lo, hi ptx.F32) T
	bits func(T) ptx.U32
	// exponent is that of the largest element of a query after scaling: far from
	// overflow, and from the subnormal numbers.
	exponent int
}

// flashing is a FlashAttention kernel while it is generated.
type flashing[T ptx.Half2] struct {
	flashShape
	tensorType[T]
	b *ptx.Builder

	tile                  tileValues
	lane, warp            ptx.U32
	table, keys, values   ptx.Global
	out                   ptx.Global // of all heads
	kvHeads, window       ptx.U32
	qStride, outStride    ptx.U32
	scaleLog2, scale, cap ptx.F32
	capped                ptx.Pred
	shared                ptx.Shared
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
	b.Doc("out = softmax(softcap(scale * Q K^T)) V for %d queries of head ctaid.x of sequence ctaid.z,\n"+
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
	q, f.keys, f.values, f.out = b.Global("q", 16), b.Global("k", 16), b.Global("v", 16), b.Global("out", 16)
	f.table = b.Global("table", 4)
	lengths, starts := b.Global("lengths", 4), b.Global("starts", 4)
	f.qStride, f.outStride = b.ParamU32("q_stride"), b.ParamU32("out_stride")
	f.kvHeads = b.ParamU32("kv_heads")
	group, maxPages := b.ParamU32("group"), b.ParamU32("max_pages")
	f.window = b.ParamU32("window")
	f.scaleLog2, f.scale, f.cap = b.ParamF32("scale_log2e"), b.ParamF32("scale"), b.ParamF32("softcap")
	f.capped = f.cap.Ne(b.F32(0))
	f.shared = b.DynamicShared(16)

	head, back, sequence := b.BlockX(), b.BlockY(), b.BlockZ()
	start := starts.At(sequence, 4)
	begin, length := start.LoadU32(), lengths.At(sequence, 4).LoadU32()
	queries := start.Plus(4).LoadU32().Sub(begin)
	tiles := queries.CeilDivN(f.blockQ)
	b.Comment("no tile of this sequence: for all threads alike")
	b.ReturnIf(back.Ge(tiles))
	b.ReturnIf(length.Lt(queries))
	row := tiles.AddN(-1).Sub(back).MulN(f.blockQ)
	first, count := length.Sub(queries).Add(row), queries.Sub(row).Min(b.N(f.blockQ))
	f.tile = tileValues{
		from: windowStart(b, first.AddN(1), f.window), to: first.Add(count), first: first,
		rows: begin.Add(row), count: count, kvHead: head.Div(group),
		pages: sequence.Mul(maxPages), end: first.Add(count).CeilDivN(f.blockK),
	}
	return q.At(head, 4*f.headDim)
}

// pageOf is the page that a block of keys lies in, for those behind the last its page.
func (f *flashing[T]) pageOf(block ptx.U32) ptx.U32 {
	block = block.Min(f.tile.end.AddN(-1))
	return f.table.At(f.tile.pages.Add(block.DivN(f.page/f.blockK)), 4).LoadU32()
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
	at := page.Mul(f.kvHeads).Add(f.tile.kvHead)
	inPage := first.RemN(f.page)
	to := f.shared.At(block.AndN(1), f.stageBytes()).At(row, f.stride).At(column, 16)
	if f.format.BlockBytes() == 2 {
		for i, source := range []ptx.Global{f.keys, f.values} {
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
		source := ptx.GlobalAt(ptx.Select(i.EqN(0), f.keys.Address(), f.values.Address()), 16)
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
				from := q.AtBytes(row.MulWide(f.qStride).ShlN(2)).Aligned(16)
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
