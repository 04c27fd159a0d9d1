package attention

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/quant"
)

// Decode computes attention of one query per sequence over its cache, split by pages. For
// every page i that the query sees, and every query head g that reads KV head h of sequence
// s, it computes, over the visible positions j of the page,
//
//	m = max_j s[g][j]      with s as Scoring says
//	l = Σ_j exp(s[g][j] − m)
//	o = Σ_j exp(s[g][j] − m) · V[j]
//
// into scratch memory, which Combine merges to the output. The query of sequence s is at
// position Lengths[s] − 1. CTA (c, h, s) has the h-th group of query heads, which all read the same KV head. It takes every
// gridDim.x-th visible page from the c-th on. If gridDim.x is 1, the CTA has all pages of its heads. It merges them as Combine
// does, and stores the output. The heads of a group share one read of K and V.
//
// Both products run on tensor cores with float32 accumulators. Queries and weights are sums of 16-bit terms: two of
// float16 for an F16 cache, else three of bfloat16. The elements of an F32 cache are such sums, too. A term is the
// rounded remainder that the terms before it leave. So the operands have nearly the precision of float32. Before they are
// split, queries are scaled by a power of two per head, and weights by the same power of two for all heads.
//
// Order of additions: a score is the sum of up to four chains. Chain i takes the 16-element steps i, i+chains, and so
// on, and in each step the terms of K in turn, the smallest first. Then the sums of the query's terms are added, the
// smallest first; then the chains in order. o and l take steps of 16 positions in order; then the sums of the weights'
// terms are added, the smallest first. The order depends on the position alone, not on the batch,
// the page table or the number of query heads.
//
// With Shape.Append the kernel first does the work of rope.Append for one token per sequence. It leaves Q in global memory
// unchanged.
func Decode(s Shape) kernel.Typed[DecodeArgs] {
	k, d := s.decode(), newDecodeShape(s)
	d.append = s.Append
	name := "attention_decode_"
	if s.Append {
		name += "append_"
	}
	name += host.FormatName(k.format) + "_d" + strconv.Itoa(k.headDim)
	if k.page != PageTokens {
		name += "_p" + strconv.Itoa(k.page)
	}
	return kernel.New(name,
		func(b *ptx.Builder) (*ptx.Kernel, error) { return buildDecode(b, d) },
		d.launch)
}

// decode returns the layout of the cache that Decode reads.
func (s Shape) decode() kvShape { return kvShape{s.KV, s.HeadDim, cmp.Or(s.Page, PageTokens)} }

// decodeShape says how the warps of a CTA share the page of one KV head. Each has some of the keys, and some of the columns of V.
type decodeShape struct {
	kv     kvShape
	append bool // Shape.Append
	warps  int  // a power of two
	// A tile is 8 keys, or 8 columns of V.
	keyTiles   int  // per warp; if there are fewer tiles than warps, the last warps have none
	valueTiles int  // per warp; the last warps may have fewer
	oneBuffer  bool // K and V use the same shared memory one after the other
}

const (
	decodeBytes  = 64       // about this many bytes of K, and as many of V, per thread and page
	decodeWarps  = 8        // maximum number of warps of a CTA
	decodeHeads  = 8        // maximum number of query heads of a CTA: rows of a matrix of tensor cores that hold one term
	decodeBuffer = 72 << 10 // maximum bytes of K and V on GPUs with little shared memory
)

func newDecodeShape(s Shape) decodeShape {
	k := s.decode()
	d := decodeShape{kv: k, warps: 1}
	if k.check() != nil {
		return d
	}
	for d.warps < decodeWarps && d.threads()*decodeBytes < k.page*k.rowBytes() {
		d.warps *= 2
	}
	d.keyTiles = host.CeilDiv(k.page/8, d.warps)
	d.valueTiles = host.CeilDiv(k.headDim/8, d.warps)
	d.oneBuffer = d.keyBytes()+d.valueBytes() > decodeBuffer
	return d
}

func (d decodeShape) threads() int { return 32 * d.warps }

// chains is the number of chains that a score is the sum of. A long chain is slow and loses precision.
func (d decodeShape) chains() int { return max(1, min(4, d.width()/64)) }

// width is the head dim rounded up to a multiple of 16.
func (d decodeShape) width() int { return host.CeilDiv(d.kv.headDim, 16) * 16 }

// keyStride, valueStride and queryStride are the bytes per row of keys, of values and of terms of queries in shared memory. The
// padding avoids bank conflicts.
func (d decodeShape) keyStride() int {
	if d.kv.format == quant.F32 {
		return 4*d.width() + 32
	}
	return d.queryStride()
}
func (d decodeShape) valueStride() int {
	if d.oneBuffer && d.width() > d.kv.headDim {
		return d.keyStride() // so that values leave the padding of keys 0
	}
	return d.width()*d.kv.format.BlockBytes() + 16
}
func (d decodeShape) queryStride() int { return 2*d.width() + 16 }

func (d decodeShape) keyBytes() int   { return d.kv.page * d.keyStride() }
func (d decodeShape) valueBytes() int { return d.kv.page * d.valueStride() }

// bufferBytes returns the size of the copies of K and V in shared memory.
func (d decodeShape) bufferBytes() int {
	if d.oneBuffer {
		return max(d.keyBytes(), d.valueBytes())
	}
	return d.keyBytes() + d.valueBytes()
}

// queryBytes is the size of the terms of the queries: matrices of 16 rows. weightBytes is that of the terms of the weights of
// a page, as operands of a warp.
func (d decodeShape) queryBytes() int  { return matricesOf(d.kv.format) * 16 * d.queryStride() }
func (d decodeShape) weightBytes() int { return matricesOf(d.kv.format) * d.kv.page / 16 * 512 }

// maximaBytes is the size of the largest scores of each head per warp.
func (d decodeShape) maximaBytes() int { return 4 * decodeHeads * d.warps }

// resident returns how many CTAs run on an SM at a time: with 128 registers per thread, or one CTA with more if rows are long.
func (d decodeShape) resident() int {
	if d.kv.rowBytes() > 512 {
		return 1
	}
	return min(8, 512/d.threads())
}

type decodeParams struct {
	Q, K, V        ptx.Global `align:"16"`
	Table, Lengths ptx.Global
	Sums           ptx.Global `align:"16"` // [sequences][heads][MaxPages]: (m, l)
	Parts          ptx.Global `align:"16"` // [sequences][heads][MaxPages]: o
	Out            ptx.Global `align:"16"`
	Sinks          ptx.Global
	QStride        ptx.U32
	OutStride      ptx.U32
	Group          ptx.U32 // query heads per CTA
	HeadParts      ptx.U32 // CTAs that share the query heads of a KV head
	KVHeads        ptx.U32
	MaxPages       ptx.U32
	Window         ptx.U32 // see Scoring.span
	ChunkMask      ptx.U32
	Fresh          ptx.U32
	Scale, Softcap ptx.F32
}

// decodeGenerator is the state of the kernel while it is generated. Of a matrix of sixteen rows, a lane has rows lane/4 and
// lane/4 + 8, and of every eight columns 2·(lane%4) and the next. These rows are two terms of head lane/4.
type decodeGenerator struct {
	shape decodeShape
	b     *ptx.Builder
	p     decodeParams
	mma   float32MMA

	lane, warp         ptx.U32
	kvHead, sequence   ptx.U32
	head               ptx.U32    // the group's first query head, counted over all sequences
	table              ptx.Global // the sequence's pages
	length, first      ptx.U32    // visible positions: first ≤ position < length
	begin, end, stride ptx.U32    // the CTA's pages: begin, begin+stride, … below end
	entry              ptx.U32    // number of the page that is copied next
	row                ptx.U32    // index of the KV head in the page that was copied last
	onlyCTA            ptx.Pred   // the CTA has all pages of its heads
	appender           *appender  // nil without decodeShape.append

	// Of the lane's head.
	laneHead ptx.U32  // its index among those of the CTA
	hasHead  ptx.Pred // the CTA has such a head
	factor   ptx.F32  // of products q·K: the scale, and what undoes the scaling of the query
	// If it is the only CTA of its heads, the sums of the lane's columns: over the pages so far of the current block, and over the blocks before.
	block, total runningSum

	// In dynamic shared memory.
	shared, keys, values    ptx.Shared
	queries, weights        ptx.Shared // terms
	factors, maxima         ptx.Shared // [head]; [head][warp]
	raw                     ptx.Shared // [head][head dim], queries before they are split
	queryAt, keyAt, valueAt ptx.Shared // where the lane loads its part of the first matrix
}

func buildDecode(b *ptx.Builder, s decodeShape) (*ptx.Kernel, error) {
	d := decodeGenerator{shape: s, b: b, mma: mmaOf(s.kv.format), lane: b.Lane(), warp: b.Warp()}
	if err := s.kv.check(); err != nil {
		b.Failf("%v", err)
		return b.Finish()
	}
	b.Doc("For each query head of part ctaid.y of sequence ctaid.z, over the visible\n"+
		"positions j of its pages, every nctaid.x-th: m = max s[j], l = sum exp(s[j]-m),\n"+
		"o = sum exp(s[j]-m) * V[j], where s[j] = softcap(scale * q.K[j]), head dim %d.\n"+
		"If nctaid.x is 1: out = sum exp(m-M) * o / sum exp(m-M) * l, M = max m.", d.shape.kv.headDim)
	ptx.Declare(b, &d.p)
	if s.append {
		b.Doc("Before: q = rope(norm(q)); K and V of the last position = rope(norm(k)) and norm(v).")
		d.appender = newAppender(&d)
	}
	d.open()
	d.layOut()
	d.start()
	b.Barrier()
	d.factor = d.factors.At(d.laneHead, 4).LoadF32()
	d.block, d.total = newRunningSum(b, 2*s.valueTiles), newRunningSum(b, 2*s.valueTiles)
	b.For(d.begin, d.end, d.stride, d.attend, ptx.NoUnroll)
	b.If(d.onlyCTA, d.storeOutput)
	return b.Finish(ptx.MaxThreads(d.shape.threads()), ptx.MinCTAs(d.shape.resident()))
}

// start copies the first page and splits the queries into terms, in shared memory. If no prior kernel writes that
// page, its copy starts before the wait for prior kernels. A CTA without a page ends. An appender
// replaces the copy of the queries.
func (d *decodeGenerator) start() {
	b := d.b
	if d.appender != nil {
		a := d.appender
		b.If(d.begin.Lt(d.end), d.fetchFirst)
		d.clearTerms()
		a.prepare()
		b.WaitForPrior()
		b.ReturnIf(d.begin.Ge(d.end))
		a.fetch()
		b.Comment("while the heads arrive")
		a.heads.ComputeAngles()
		b.CopyWait(0)
		b.Barrier()
		a.run()
		return
	}
	early := d.begin.Lt(d.end).And(d.p.Fresh.Ne(b.U32(0))).And(d.begin.AddN(1).MulN(d.shape.kv.page).Add(d.p.Fresh).Le(d.length))
	b.If(early, d.fetchFirst)
	d.clearTerms()
	b.WaitForPrior()
	b.ReturnIf(d.begin.Ge(d.end))
	d.copyRows(d.queriesAt(), b.U32(0), d.p.Group)
	b.CopyCommit()
	b.IfElse(early, func() { b.CopyWait(0) }, func() {
		d.fetchFirst()
		b.CopyWait(d.inFlight() + 1)
	})
	b.Barrier()
	d.eachRow(d.p.Group, d.splitQuery)
}

// queriesAt returns the address of the CTA's queries.
func (d *decodeGenerator) queriesAt() ptx.Global {
	return d.p.Q.At(d.sequence.Mul(d.p.QStride), 4).Aligned(16).At(d.queryHead(d.b.U32(0)), 4*d.shape.kv.headDim)
}

// copyRows starts the copies of float32 rows of the head dim to raw, from its row on.
func (d *decodeGenerator) copyRows(from ptx.Global, row, rows ptx.U32) {
	b, size := d.b, 4*d.shape.kv.headDim
	b.For(b.ThreadX(), rows.MulN(size/16), b.N(d.shape.threads()), func(i ptx.U32) {
		b.CopyAsync(d.raw.At(row, size).At(i, 16), from.Aligned(16).At(i, 16))
	}, ptx.NoUnroll)
}

// eachRow calls do for rows 0 to n-1, each by a warp.
func (d *decodeGenerator) eachRow(n ptx.U32, do func(row ptx.U32)) {
	d.b.For(d.warp, n, d.b.N(d.shape.warps), do, ptx.NoUnroll)
}

// fetchFirst starts the copies of the CTA's first page: of its keys, and of its values if there is room.
func (d *decodeGenerator) fetchFirst() {
	d.fetchKeys(d.begin)
	d.b.CopyCommit()
	if !d.shape.oneBuffer {
		d.fetchValues(d.begin)
		d.b.CopyCommit()
	}
}

// inFlight returns how many groups of copies may still be in flight when attend goes on. While it reads keys, those are the
// values; while it reads values, the next keys.
func (d *decodeGenerator) inFlight() int {
	if d.shape.oneBuffer {
		return 0
	}
	return 1
}

// attend computes one page. The copy of the next page's keys (or values) starts as soon as no warp reads the memory any more.
func (d *decodeGenerator) attend(page ptx.U32) {
	b, next := d.b, page.Add(d.stride)
	more := next.Lt(d.end)
	nextKeys := func() { b.If(more, func() { d.fetchKeys(next) }) }
	afterKeys, afterValues := nextKeys, func() { b.If(more, func() { d.fetchValues(next) }) }
	if d.shape.oneBuffer {
		afterKeys, afterValues = func() { d.fetchValues(page) }, nextKeys
	}
	b.Comment("scores")
	b.CopyWait(d.inFlight())
	if d.appender != nil {
		d.appender.patch(page, d.keys, d.shape.keyStride(), d.appender.key)
	}
	b.Barrier()
	scores := d.scores(page, d.multiplyKeys())
	b.Barrier()
	afterKeys()
	b.CopyCommit() // also without a copy, because inFlight counts the group
	b.Comment("weights exp(s - m)")
	m := d.weigh(scores)
	b.Comment("values")
	b.CopyWait(d.inFlight())
	if d.appender != nil {
		d.appender.patch(page, d.values, d.shape.valueStride(), d.appender.value)
	}
	b.Barrier()
	sums, weights := d.multiplyValues()
	b.If(more, b.Barrier)
	afterValues()
	b.CopyCommit()
	d.add(page, m, sums, weights)
}

// open finds the pages of the CTA. It reads only Table and Lengths, which no prior kernel may write, so it may run
// before the wait for prior kernels.
func (d *decodeGenerator) open() {
	b := d.b
	b.LaunchDependents()
	d.kvHead, d.sequence, d.stride = b.BlockY().Div(d.p.HeadParts), b.BlockZ(), b.GridX()
	d.head = d.sequence.Mul(b.GridY()).Add(b.BlockY()).Mul(d.p.Group)
	d.table = d.p.Table.At(d.sequence.Mul(d.p.MaxPages), 4)
	d.length = d.p.Lengths.At(d.sequence, 4).LoadU32()
	// Volatile: otherwise the compiler moves the load after a branch that waits for the length.
	d.entry = ptx.Var(d.table.At(b.BlockX(), 4).LoadU32(ptx.Volatile))
	d.row = ptx.Var(b.U32(0))
	d.first = windowStart(d.length, d.p.Window, d.p.ChunkMask)
	before := d.first.DivN(d.shape.kv.page)
	d.begin, d.end = before.Add(b.BlockX()), d.length.CeilDivN(d.shape.kv.page)
	d.onlyCTA = d.stride.EqN(1)
	reload := before.Ne(b.U32(0)).And(d.begin.Lt(d.end)) // the first visible page is not page 0, so the CTA's is not that of its index
	b.If(reload, func() { ptx.Set(d.entry, d.table.At(d.begin, 4).LoadU32()) })
}

// layOut assigns addresses in shared memory.
func (d *decodeGenerator) layOut() {
	b, s := d.b, d.shape
	d.shared = b.DynamicShared(16)
	d.keys, d.values = d.shared, d.shared
	if !s.oneBuffer {
		d.values = d.shared.Plus(s.keyBytes())
	}
	d.queries = d.shared.Plus(s.bufferBytes() + s.ownBytes())
	d.weights = d.queries.Plus(s.queryBytes())
	d.maxima = d.weights.Plus(s.weightBytes())
	d.factors = d.maxima.Plus(s.maximaBytes())
	d.raw = d.factors.Plus(4 * decodeHeads)

	d.laneHead = d.lane.ShrN(2)
	d.hasHead = d.laneHead.Lt(d.p.Group)
	row, column := d.lane.Field(3, 1).MulN(8).Add(d.lane.AndN(7)), d.lane.ShrN(4)
	d.queryAt = d.queries.At(row, s.queryStride()).At(column, 16)
	keyTile, valueTile := d.warp.MulN(s.keyTiles), d.firstValueTile()
	if s.kv.format == quant.F32 {
		d.keyAt = d.keys.At(keyTile.MulN(8).Add(d.laneHead), s.keyStride()).At(d.lane.AndN(3), 8)
		d.valueAt = d.values.At(d.lane.AndN(3).MulN(2), s.valueStride()).At(valueTile.MulN(8).Add(d.laneHead), 4)
		return
	}
	d.keyAt = d.keys.At(keyTile.MulN(8).Add(d.lane.AndN(7)), s.keyStride()).At(d.lane.ShrN(3), 16)
	d.valueAt = d.values.At(row, s.valueStride()).At(column, 16).At(valueTile, 16)
}

// firstValueTile returns the warp's first tile of columns of V. If there are too few for the last warps, their tiles begin earlier; see
// storedTile.
func (d *decodeGenerator) firstValueTile() ptx.U32 {
	return d.warp.MulN(d.shape.valueTiles).Min(d.b.N(d.shape.kv.headDim/8 - d.shape.valueTiles))
}

// storedTile returns the warp's tile i of columns of V, and whether the warp stores its results: another one may do so.
func (d *decodeGenerator) storedTile(i int) (tile ptx.U32, stored ptx.Pred) {
	tile = d.firstValueTile().AddN(i)
	return tile, tile.Ge(d.warp.MulN(d.shape.valueTiles))
}

// clearTerms clears the terms of the queries, and the columns of keys that pad the head dim to a multiple of 16. Rows of heads
// that the CTA does not have are multiplied too, so they must be 0.
func (d *decodeGenerator) clearTerms() {
	b, s := d.b, d.shape
	zero := [4]ptx.U32{b.U32(0), b.U32(0), b.U32(0), b.U32(0)}
	b.For(b.ThreadX(), b.N(s.queryBytes()/16), b.N(s.threads()), func(i ptx.U32) { d.queries.At(i, 16).StoreU32x4(zero) }, ptx.NoUnroll)
	b.When(b.ThreadX().LtN(decodeHeads), func() { d.factors.At(b.ThreadX(), 4).StoreF32(b.F32(1)) })
	if s.width() == s.kv.headDim {
		return
	}
	size := s.kv.format.BlockBytes()
	b.For(b.ThreadX(), b.N(s.kv.page), b.N(s.threads()), func(row ptx.U32) {
		for i := 0; i < 8*size; i += 16 {
			d.keys.Plus(s.kv.headDim*size+i).At(row, s.keyStride()).StoreU32x4(zero)
		}
	}, ptx.NoUnroll)
}

// DecodeDepth returns how many additions follow one another in a score and in an output over length positions, including those
// of Combine. Most are those of tensor cores.
func DecodeDepth(s Shape, length int) (score, output int) {
	d := newDecodeShape(s)
	pages, mma := host.CeilDiv(length, d.kv.page), mmaOf(d.kv.format)
	score = host.CeilDiv(d.width()/8, d.chains())*mma.rightTerms + d.chains() + mma.leftTerms + 1
	return score, d.kv.page/8*mma.rightTerms + mma.leftTerms + 1 + 2*(combineBlock+host.CeilDiv(pages, combineBlock)+1)
}

// DecodeArgs are the arguments of a launch of Decode.
type DecodeArgs struct {
	Q                ptx.Address // f32 [Sequences] rows of [Heads][head dim], QStride apart
	Scratch          ptx.Address // ScratchBytes bytes, aligned to 16; Combine reads them
	Out              ptx.Address // f32 [Sequences] rows of [Heads][head dim], OutStride apart; written unless Combine is needed
	KV               PagedKV
	Scoring          Scoring
	Sequences, Heads int
	QStride          int // in elements, a multiple of 4
	OutStride        int // likewise
	Pages            int // at least those of the longest sequence, at most MaxPages; 0: MaxPages
	SMs              int // of the device, so that the grid has about as many CTAs as run at once; 0: one CTA per page
	Shared           int // maximum bytes of shared memory per CTA; 0: no limit
	// Fresh is how many of the last positions of each sequence prior kernels may still be
	// writing. A page without such positions is copied before the wait for prior kernels. Without
	// Shape.Append and with Fresh 0, no page is copied before that wait.
	Fresh int

	// With Shape.Append, Append are the arguments of rope.Append for one token per sequence, at position Lengths[s] − 1. Fields
	// that both have are equal. Positions and Sequences are not read: token s is of sequence s. The kernel reads the cache before it
	// waits for prior kernels, so none of these may write it, and Fresh is 0. Rotated is f32 [Sequences, Heads, head dim], to which rotated queries are
	// written as well; 0: they are not.
	Append  rope.AppendArgs
	Rotated ptx.Address
}

// ScratchBytes returns the size of the scratch memory through which Decode passes its
// results to Combine.
func ScratchBytes(headDim, sequences, heads, maxPages int) int64 {
	return scratchSums(sequences, heads, maxPages) + 4*int64(headDim)*int64(sequences)*int64(heads)*int64(maxPages)
}

// scratchSums returns the size of the first part of the scratch memory, (m, l) of each page of
// each head of each sequence. The second part holds o.
func scratchSums(sequences, heads, maxPages int) int64 {
	return (8*int64(sequences)*int64(heads)*int64(maxPages) + 15) / 16 * 16
}

// Combine returns the arguments of the launch of Combine that must follow the launch of
// Decode(s), and whether it is needed.
func (a DecodeArgs) Combine(s Shape) (c CombineArgs, needed bool) {
	d := newDecodeShape(s)
	return CombineArgs{
		Scratch: a.Scratch, Lengths: a.KV.Lengths, Out: a.Out, Sequences: a.Sequences, Heads: a.Heads, OutStride: a.OutStride,
		MaxPages: a.KV.MaxPages, Pages: a.pages(), Page: d.kv.page, Scoring: a.Scoring,
	}, d.ctas(a) > 1
}

const (
	decodeAlone = 2  // pages that one CTA computes in less time than Combine takes
	decodePages = 64 // maximum number of pages per CTA: bounds the time of a launch in which one sequence is much longer than the others
)

// ctas returns how many CTAs share the pages of a KV head of a sequence: one for few pages, else about as many as run at
// once, but no fewer than decodePages demands. Without SMs, each page has a CTA.
func (d decodeShape) ctas(a DecodeArgs) int {
	pages := min(a.pages(), a.Scoring.pages(d.kv.page))
	switch {
	case a.SMs == 0:
		return pages
	case pages <= decodeAlone:
		return 1
	}
	running := a.SMs * d.resident() / max(1, a.KV.KVHeads*a.Sequences)
	return min(pages, max(running, host.CeilDiv(pages, decodePages)))
}

// headParts returns how many CTAs share the query heads of a KV head: enough to use idle SMs, and so that a CTA has at most
// decodeHeads.
func (d decodeShape) headParts(a DecodeArgs) int {
	group, idle := a.Heads/a.KV.KVHeads, a.SMs/(d.ctas(a)*a.KV.KVHeads*a.Sequences)
	parts := 1
	for n := 2; n <= group; n++ {
		if group%n == 0 && (n <= idle || group/parts > decodeHeads) {
			parts = n
		}
	}
	return parts
}

// sharedBytes returns the size of dynamic shared memory for a number of query heads per CTA.
func (d decodeShape) sharedBytes(heads int) int {
	return d.bufferBytes() + d.ownBytes() + d.queryBytes() + d.weightBytes() + d.maximaBytes() + 4*decodeHeads + d.rawBytes(heads)
}

// pages returns the number of pages that the launch covers.
func (a DecodeArgs) pages() int { return cmp.Or(a.Pages, a.KV.MaxPages) }

func (d decodeShape) launch(k *ptx.Kernel, a DecodeArgs) (ptx.Launch, error) {
	longest := host.MaxSize / max(a.Sequences, 1) // stride: rows are counted in 32 bits
	checks := slices.Concat(a.KV.checks(a.Sequences, a.Heads, d.kv.page), a.Scoring.checks(), checkStride("QStride", a.QStride, a.Heads*d.kv.headDim, longest),
		checkStride("OutStride", a.OutStride, a.Heads*d.kv.headDim, longest))
	checks = append(checks, host.Bound("Pages", a.pages(), 1, a.KV.MaxPages), host.Bound("SMs", a.SMs, 0, host.MaxSize),
		host.Bound("Fresh", a.Fresh, 0, 65535), host.NonNil("Q", a.Q), host.NonNil("Scratch", a.Scratch), host.NonNil("Out", a.Out))
	checks = append(checks, a.appendChecks(d)...)
	if err := host.Valid(k, checks...); err != nil {
		return ptx.Launch{}, err
	}
	parts := d.headParts(a)
	group := a.Heads / a.KV.KVHeads / parts
	shared := d.sharedBytes(group)
	if err := host.Valid(k, host.Refuse(a.Shared > 0 && shared > k.MaxDynamic(a.Shared), "Shared", "%d bytes, but the kernel takes %d", a.Shared, shared)); err != nil {
		return ptx.Launch{}, err
	}
	window, chunkMask := a.Scoring.span()
	params := []any{&decodeParams{
		Q: ptx.Addr(a.Q), K: ptx.Addr(a.KV.K), V: ptx.Addr(a.KV.V), Table: ptx.Addr(a.KV.Table), Lengths: ptx.Addr(a.KV.Lengths),
		Sums: ptx.Addr(a.Scratch), Parts: ptx.Addr(a.Scratch + uint64(scratchSums(a.Sequences, a.Heads, a.KV.MaxPages))),
		Out: ptx.Addr(a.Out), QStride: ptx.Uint(a.QStride), OutStride: ptx.Uint(a.OutStride),
		Group: ptx.Uint(group), HeadParts: ptx.Uint(parts), KVHeads: ptx.Uint(a.KV.KVHeads), MaxPages: ptx.Uint(a.KV.MaxPages), Window: window, ChunkMask: chunkMask, Fresh: ptx.Uint(a.Fresh),
		Scale: ptx.Float(a.Scoring.Scale), Softcap: ptx.Float(a.Scoring.Softcap), Sinks: ptx.Addr(a.Scoring.Sinks),
	}}
	if d.append {
		params = append(params, &appendParams{ptx.Addr(a.Rotated)}, a.Append.Params())
	}
	return k.Launch([3]uint32{uint32(d.ctas(a)), uint32(a.KV.KVHeads * parts), uint32(a.Sequences)}, d.threads(), shared, params...)
}

// span holds the visible positions of a page, relative to its start: from ≤ position < to.
type span struct{ from, to ptx.U32 }

func (d *decodeGenerator) visible(page ptx.U32) span {
	base := page.MulN(d.shape.kv.page)
	return span{d.first.Max(base).Sub(base), d.length.Sub(base).Min(d.b.N(d.shape.kv.page))}
}

// stored returns the positions of a page that are copied from the cache: the visible ones, except one that this kernel appends.
func (d *decodeGenerator) stored(page ptx.U32) span {
	s := d.visible(page)
	if d.appender != nil {
		s.to = d.length.AddN(-1).Sub(page.MulN(d.shape.kv.page)).Min(d.b.N(d.shape.kv.page))
	}
	return s
}

func (s span) holds(position ptx.U32) ptx.Pred {
	return position.Ge(s.from).And(position.Lt(s.to))
}

// bytes returns how many of the 16 bytes at a position are copied: 0 or 16.
func (s span) bytes(b *ptx.Builder, position ptx.U32) ptx.U32 {
	return ptx.Select(s.holds(position), b.U32(16), b.U32(0))
}

// fetchKeys starts the copies of the keys of a page. It also loads the page number of the CTA's next page, so
// that the next call need not wait for it.
func (d *decodeGenerator) fetchKeys(page ptx.U32) {
	ptx.Set(d.row, d.entry.Mul(d.p.KVHeads).Add(d.kvHead))
	d.fetch(page, d.p.K, d.keys, d.shape.keyStride())
	after := page.Add(d.stride).Min(d.end.AddN(-1))
	ptx.Set(d.entry, d.table.At(after, 4).LoadU32())
}

// fetchValues starts the copies of the values of the page whose keys were copied last.
func (d *decodeGenerator) fetchValues(page ptx.U32) {
	d.fetch(page, d.p.V, d.values, d.shape.valueStride())
}

// fetch starts the copies of keys or values. Positions that are not stored become 0: their weight is 0, but 0 times an
// infinity would be NaN. Chunk i of 16 bytes is copied by thread i modulo the number of threads.
func (d *decodeGenerator) fetch(page ptx.U32, cache ptx.Global, to ptx.Shared, stride int) {
	b, kv, chunks, threads := d.b, d.shape.kv, d.shape.kv.chunks(), d.shape.threads()
	from, stored := cache.At(d.row, kv.page*kv.rowBytes()), d.stored(page)
	if threads%chunks == 0 {
		row, rows := b.ThreadX().DivN(chunks), threads/chunks
		source, target := from.At(b.ThreadX(), 16), to.At(row, stride).At(b.ThreadX().RemN(chunks), 16)
		for first := 0; first < kv.page; first += rows {
			copied := func() {
				b.CopyAsyncZeroFill(target.Plus(first*stride), source.Plus(first*kv.rowBytes()), stored.bytes(b, row.AddN(first)))
			}
			if first+rows <= kv.page {
				copied()
			} else {
				b.When(row.LtN(kv.page-first), copied)
			}
		}
		return
	}
	b.For(b.ThreadX(), b.N(kv.page*chunks), b.N(threads), func(i ptx.U32) {
		row := i.DivN(chunks)
		b.CopyAsyncZeroFill(to.At(row, stride).At(i.RemN(chunks), 16), from.At(i, 16), stored.bytes(b, row))
	}, ptx.NoUnroll)
}

// splitQuery stores the terms of a head's query, of which raw has the elements, and its factor. A warp splits a row.
func (d *decodeGenerator) splitQuery(head ptx.U32) {
	b, dim := d.b, d.shape.kv.headDim
	from := d.raw.At(head, 4*dim)
	var list [][4]ptx.F32
	largest := b.U32(0)
	for j := 0; j < dim/4; j += 32 {
		vec := from.At(d.lane.AddN(j).Min(b.N(dim/4-1)), 16).LoadF32x4()
		for _, x := range vec {
			largest = x.Abs().Bits().Max(largest)
		}
		list = append(list, vec)
	}
	factor, inverse := queryScale(b, largest.WarpReduce("max"), d.mma.exponent)
	for j, x := range list {
		lo, hi := d.mma.split(x[0].Mul(factor), x[1].Mul(factor)), d.mma.split(x[2].Mul(factor), x[3].Mul(factor))
		vec := d.lane.AddN(32 * j)
		for term := range lo {
			to := d.queries.Plus(8*term*d.shape.queryStride()).At(head, d.shape.queryStride()).At(vec, 8)
			b.When(vec.LtN(dim/4), func() { to.StoreU32x2([2]ptx.U32{lo[term], hi[term]}) })
		}
	}
	// The factor must not underflow to 0: 0 times an infinite product would be NaN.
	b.When(d.lane.EqN(0), func() {
		d.factors.At(head, 4).StoreF32(d.p.Scale.Mul(inverse).Max(b.F32(math.SmallestNonzeroFloat32)))
	})
}

// scores returns the lane's scores from the products q·K, two per tile of keys: -Inf for positions that are not visible. It stores the
// warp's largest score of each head.
func (d *decodeGenerator) scores(page ptx.U32, products [][][][4]ptx.F32) [][2]ptx.F32 {
	b := d.b
	scores, seen := make([][2]ptx.F32, len(products)), d.visible(page)
	position := d.warp.MulN(8 * d.shape.keyTiles).Add(d.lane.AndN(3).MulN(2))
	for i, chains := range products {
		total := d.mma.sum(chains[0])
		for _, chain := range chains[1:] {
			for odd, x := range d.mma.sum(chain) {
				total[odd] = total[odd].Add(x)
			}
		}
		for odd, x := range total {
			scores[i][odd] = ptx.Var(x.Mul(d.factor))
		}
	}
	b.If(d.p.Softcap.Ne(b.F32(0)), func() {
		for _, pair := range scores {
			for _, x := range pair {
				ptx.Set(x, device.Softcap(b, x, d.p.Softcap))
			}
		}
	})
	m := minusInf(b)
	for i := range scores {
		for odd, x := range scores[i] {
			scores[i][odd] = ptx.Select(seen.holds(position.AddN(8*i+odd)), x, minusInf(b))
			m = scores[i][odd].Max(m)
		}
	}
	for _, lanes := range []int{1, 2} {
		m = m.Max(ptx.ShuffleXor(m, lanes))
	}
	b.When(d.lane.AndN(3).EqN(0), func() { d.maxima.At(d.laneHead, 4*d.shape.warps).At(d.warp, 4).StoreF32(m) })
	return scores
}

// newProducts returns accumulators: [tile][chain][matrix of terms].
func (d *decodeGenerator) newProducts(tiles, chains int) [][][][4]ptx.F32 {
	list := make([][][][4]ptx.F32, tiles)
	for i := range list {
		for range chains {
			list[i] = append(list[i], zeros(d.b, d.mma.matrices()))
		}
	}
	return list
}

// multiplyKeys returns q·K of the warp's keys.
func (d *decodeGenerator) multiplyKeys() [][][][4]ptx.F32 {
	steps, chains := d.shape.width()/16, d.shape.chains()
	products := d.newProducts(d.shape.keyTiles, chains)
	multiply := func() {
		for k := 0; k < steps; k += 2 {
			n := min(2, steps-k)
			queries := make([][][4]ptx.U32, n) // [step][matrix]
			for step := range queries {
				for matrix := range d.mma.matrices() {
					at := d.queryAt.Plus(16*matrix*d.shape.queryStride() + 32*(k+step))
					queries[step] = append(queries[step], [4]ptx.U32(d.mma.load(at, 4, false)))
				}
			}
			for i := range products {
				for step, keys := range d.loadKeys(i, k, n) {
					d.mma.multiply(products[i][(k+step)%chains], queries[step], keys)
				}
			}
		}
	}
	if d.shape.keyTiles*d.shape.warps > d.shape.kv.page/8 {
		d.b.If(d.warp.LtN(d.shape.kv.page/8/d.shape.keyTiles), multiply)
	} else {
		multiply()
	}
	return products
}

// loadKeys returns operands of the warp's tile i of keys, for n steps of sixteen elements from step k on: [step][term].
func (d *decodeGenerator) loadKeys(i, k, n int) (steps [][][2]ptx.U32) {
	at := d.keyAt.Plus(8 * i * d.shape.keyStride())
	if d.shape.kv.format == quant.F32 {
		for step := k; step < k+n; step++ {
			a, c := at.Plus(64*step).LoadF32x2(), at.Plus(64*step+32).LoadF32x2()
			steps = append(steps, d.mma.operands(a, c))
		}
		return steps
	}
	words := d.mma.load(at.Plus(32*k), 2*n, false)
	for step := range n {
		steps = append(steps, [][2]ptx.U32{[2]ptx.U32(words[2*step:])})
	}
	return steps
}

// weigh stores the terms of the weights exp(s − m) of the lane's scores, as operands. It returns m, the largest score of the lane's
// head in the page.
func (d *decodeGenerator) weigh(scores [][2]ptx.F32) (m ptx.F32) {
	b := d.b
	m = minusInf(b)
	line := d.maxima.At(d.laneHead, 4*d.shape.warps)
	for i := range d.shape.warps {
		m = line.Plus(4 * i).LoadF32().Max(m)
	}
	base := finiteMax(b, m)
	to := d.weights.At(d.lane, 16)
	for i, pair := range scores {
		for odd, x := range pair {
			pair[odd] = x.Sub(base).MulN(math.Log2E).Ex2Approx().Mul(b.F32(float32(math.Ldexp(1, d.mma.exponent))))
		}
		split := d.mma.split(pair[0], pair[1])
		tile := d.warp.MulN(d.shape.keyTiles).AddN(i)
		write := func() {
			for matrix := range d.mma.matrices() {
				words := [2]ptx.U32{split[2*matrix], b.U32(0)}
				if 2*matrix+1 < len(split) {
					words[1] = split[2*matrix+1]
				}
				to.Plus(matrix*d.shape.kv.page/16*512).At(tile.ShrN(1), 512).At(tile.AndN(1), 8).StoreU32x2(words)
			}
		}
		if d.shape.keyTiles*d.shape.warps > d.shape.kv.page/8 {
			b.When(tile.LtN(d.shape.kv.page/8), write)
		} else {
			write()
		}
	}
	return m
}

// multiplyValues returns the weighted values in the warp's tiles of columns, and the sums of the weights.
func (d *decodeGenerator) multiplyValues() (products [][][][4]ptx.F32, weights [][4]ptx.F32) {
	b, steps, matrices := d.b, d.shape.kv.page/16, d.mma.matrices()
	products, weights = d.newProducts(d.shape.valueTiles, 1), zeros(b, matrices)
	one := ptx.Var(d.mma.split(b.F32(1), b.F32(1))[0])
	for k := range steps {
		left := make([][4]ptx.U32, matrices)
		for matrix := range left {
			left[matrix] = d.weights.Plus((matrix*steps+k)*512).At(d.lane, 16).LoadU32x4()
		}
		d.mma.multiply(weights, left, [][2]ptx.U32{{one, one}})
		for i := 0; i < len(products); i += 2 {
			n := min(2, len(products)-i)
			for j, values := range d.loadValues(k, i, n) {
				d.mma.multiply(products[i+j][0], left, values)
			}
		}
	}
	return products, weights
}

// loadValues returns operands of n of the warp's tiles of columns from tile i on, for step k of sixteen positions: [tile][term].
func (d *decodeGenerator) loadValues(k, i, n int) (tiles [][][2]ptx.U32) {
	at := d.valueAt.Plus(16 * k * d.shape.valueStride())
	if d.shape.kv.format == quant.F32 {
		for tile := i; tile < i+n; tile++ {
			column := at.Plus(32 * tile)
			load := func(row int) ptx.F32 { return column.Plus(row * d.shape.valueStride()).LoadF32() }
			tiles = append(tiles, d.mma.operands([2]ptx.F32{load(0), load(1)}, [2]ptx.F32{load(8), load(9)}))
		}
		return tiles
	}
	words := d.mma.load(at.Plus(16*i), 2*n, true)
	for tile := range n {
		tiles = append(tiles, [][2]ptx.U32{[2]ptx.U32(words[2*tile:])})
	}
	return tiles
}

// add adds the results of a page, o and l, to those of its block if it is the only CTA of its heads. Else it stores m, l and o in scratch memory.
func (d *decodeGenerator) add(page ptx.U32, m ptx.F32, products [][][][4]ptx.F32, weights [][4]ptx.F32) {
	b := d.b
	scale := b.F32(float32(math.Ldexp(1, -d.mma.exponent)))
	l, sums := d.mma.sum(weights)[0].Mul(scale), make([]ptx.F32, 0, 2*len(products))
	for _, x := range products {
		pair := d.mma.sum(x[0])
		sums = append(sums, pair[0].Mul(scale), pair[1].Mul(scale))
	}
	b.IfElse(d.onlyCTA, func() {
		d.block.add(b, m, l, sums)
		b.If(page.AddN(1).RemN(combineBlock).EqN(0).Or(page.AddN(1).Eq(d.end)), func() {
			d.total.add(b, d.block.top, d.block.l, d.block.o)
			d.block.reset(b)
		})
	}, func() {
		results := d.results(d.laneHead)
		b.When(d.hasHead.And(d.warp.EqN(0)).And(d.lane.AndN(3).EqN(0)), func() { results.sums.At(page, 8).StoreF32x2([2]ptx.F32{m, l}) })
		d.storeRow(results.parts.At(page, 4*d.shape.kv.headDim), sums)
	})
}

// storeRow stores two elements per tile of columns in a row of the lane's head.
func (d *decodeGenerator) storeRow(row ptx.Global, list []ptx.F32) {
	for i := 0; i < len(list); i += 2 {
		tile, stored := d.storedTile(i / 2)
		to := row.At(tile, 32).At(d.lane.AndN(3), 8)
		d.b.When(d.hasHead.And(stored), func() { to.StoreF32x2([2]ptx.F32(list[i:])) })
	}
}

// storeOutput stores the outputs of a CTA that has all pages of its heads.
func (d *decodeGenerator) storeOutput() {
	sink := headSink{d.p.Sinks, d.queryHead(d.laneHead.Min(d.p.Group.AddN(-1)))}
	row := d.p.Out.At(d.sequence.Mul(d.p.OutStride), 4).Aligned(16)
	d.storeRow(row.At(d.queryHead(d.laneHead), 4*d.shape.kv.headDim), d.total.quotient(d.b, sink))
}

// results returns where the results of a head of the group are stored.
func (d *decodeGenerator) results(head ptx.U32) pageResults {
	row, dim := d.head.Add(head).Mul(d.p.MaxPages), d.shape.kv.headDim
	return pageResults{d.p.Sums.At(row, 8), d.p.Parts.At(row, 4*dim)}
}

// queryHead returns the index in the model of a head of the CTA.
func (d *decodeGenerator) queryHead(head ptx.U32) ptx.U32 {
	return d.b.BlockY().Mul(d.p.Group).Add(head)
}
