package attention

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/quant"
)

// Decode computes attention of one query per sequence over its cache. The query of sequence s is at
// position Lengths[s] − 1. CTA (c, h, s) has the h-th group of query heads, which all read the same KV head and share one read of K and V. It takes
// every gridDim.x-th visible split of the keys from the c-th on. For each, it stores (m, l) and o in
// scratch memory, which Combine merges to the output. If gridDim.x is 1, the CTA has all splits of its heads. It merges them itself and
// stores the output.
//
// With Shape.Append the kernel first does the work of rope.Append for one token per sequence. It leaves Q in global memory
// unchanged.
func Decode(s Shape) kernel.Typed[DecodeArgs] {
	d := newDecodeShape(s)
	k := d.kv
	name := "attention_decode_"
	if s.Append {
		name += "append_"
	}
	name += host.FormatName(k.format) + "_d" + strconv.Itoa(k.headDim)
	if _, blockK := (Shape{HeadDim: s.HeadDim}).layout(); k.page != PageTokens || d.blockK != blockK {
		name += fmt.Sprintf("_p%d_k%d", k.page, d.blockK)
	}
	return kernel.New(name,
		func(b *ptx.Builder) (*ptx.Kernel, error) { return buildDecode(b, d) },
		d.launch)
}

// decodeShape says how the warps of a CTA share a block of one KV head. Each multiplies by some of the keys, and by some of the columns of V.
type decodeShape struct {
	kv     kvShape
	blockK int
	append bool // Shape.Append
	warps  int  // a power of two
	// A tile is 8 keys, or 8 columns of V.
	keyTiles   int // per warp; if there are fewer tiles than warps, the last warps have none
	valueTiles int // per warp; the last warps may have fewer
	stages     int // blocks in shared memory: 1 or 2
}

const (
	decodeBytes  = 64       // about this many bytes of K, and as many of V, per thread and block
	decodeWarps  = 8        // maximum number of warps of a CTA
	decodeHeads  = 8        // maximum number of query heads of a CTA
	decodeBuffer = 80 << 10 // maximum bytes of two blocks: some GPUs have little shared memory
)

func newDecodeShape(s Shape) decodeShape {
	k, blockK := s.layout()
	d := decodeShape{kv: k, blockK: blockK, append: s.Append, warps: 1}
	if d.check() != nil {
		return d
	}
	for d.warps < decodeWarps && d.threads()*decodeBytes < d.blockK*k.rowBytes() {
		d.warps *= 2
	}
	d.keyTiles = host.CeilDiv(d.blockK/8, d.warps)
	d.valueTiles = host.CeilDiv(k.headDim/8, d.warps)
	if d.stages = 1; 2*d.stageBytes() <= decodeBuffer {
		d.stages = 2
	}
	return d
}

func (d decodeShape) check() error {
	if err := d.kv.check(); err != nil {
		return err
	}
	return checkBlock(d.kv, d.blockK)
}

func (d decodeShape) threads() int { return 32 * d.warps }

// width is the head dim rounded up to a multiple of 16.
func (d decodeShape) width() int { return host.CeilDiv(d.kv.headDim, 16) * 16 }

// stride is the bytes per row of keys, of values and of queries in shared memory. The padding avoids bank conflicts.
func (d decodeShape) stride() int { return 2*d.width() + 16 }

// keyBytes is the size of the keys of a block in shared memory, and stageBytes that of its keys and values.
func (d decodeShape) keyBytes() int    { return d.blockK * d.stride() }
func (d decodeShape) stageBytes() int  { return 2 * d.keyBytes() }
func (d decodeShape) bufferBytes() int { return d.stages * d.stageBytes() }

// queryBytes is the size of the rounded queries; weightBytes that of the rounded weights of a block, as operands of a
// warp; pairSumBytes that of their sums in pairs, before they are rounded; and maximaBytes that of the largest scores of each
// head per warp.
func (d decodeShape) queryBytes() int   { return decodeHeads * d.stride() }
func (d decodeShape) weightBytes() int  { return 2 * decodeHeads * d.blockK }
func (d decodeShape) pairSumBytes() int { return 2 * decodeHeads * d.blockK }
func (d decodeShape) maximaBytes() int  { return 4 * decodeHeads * d.warps }

// splitKeys is the number of keys per split.
func (d decodeShape) splitKeys() int { return splitBlocks * d.blockK }

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
	Sums           ptx.Global `align:"16"` // [sequences][heads][MaxSplits]: (m, l)
	Parts          ptx.Global `align:"16"` // [sequences][heads][MaxSplits]: o
	Out            ptx.Global `align:"16"`
	QStride        ptx.U32
	OutStride      ptx.U32
	Group          ptx.U32 // query heads per CTA
	HeadParts      ptx.U32 // CTAs that share the query heads of a KV head
	KVHeads        ptx.U32
	MaxPages       ptx.U32
	MaxSplits      ptx.U32 // per sequence in Sums and Parts
	Fresh          ptx.U32
}

// decodeGenerator is the state of the kernel while it is generated. The left operands of its products have a row per query head, and eight
// that are 0. A lane has row lane/4, and of every eight columns 2·(lane%4) and the next.
type decodeGenerator struct {
	shape   decodeShape
	b       *ptx.Builder
	p       decodeParams
	typ     operandType
	scoring scoringParams

	lane, warp       ptx.U32
	kvHead, sequence ptx.U32
	head             ptx.U32    // the group's first query head, counted over all sequences
	table            ptx.Global // the sequence's pages
	length, first    ptx.U32    // visible positions: first ≤ position < length
	begin, end       ptx.U32    // the CTA's blocks: from begin on, below end
	skip             ptx.U32    // blocks from the end of one of its splits to the next
	ahead            ptx.U32    // the block that is copied next
	entry            ptx.U32    // number of its page
	stage            ptx.U32    // of the block that is computed
	onlyCTA          ptx.Pred   // the CTA has all splits of its heads
	appender         *appender  // nil without decodeShape.append

	// Of the lane's head.
	laneHead ptx.U32  // its index among those of the CTA
	hasHead  ptx.Pred // the CTA has such a head
	unscale  ptx.F32  // undoes the scaling of the query
	softmax  softmax
	weighted [][4]ptx.F32 // [8 columns]: values of the split so far
	all      []ptx.F32    // of the splits before it, if it is the only CTA of its heads

	// In dynamic shared memory.
	shared, keys, values    ptx.Shared
	queries                 ptx.Shared // rounded
	weights, pairSums       ptx.Shared // [tile of 8 keys][lane]: two rounded weights, and their sum before
	maxima                  ptx.Shared // [head][warp]
	unscales                ptx.Shared // [head]
	raw                     ptx.Shared // [head][head dim], queries before they are rounded
	queryAt, keyAt, valueAt ptx.Shared // where the lane loads its part of the first matrix
}

func buildDecode(b *ptx.Builder, s decodeShape) (*ptx.Kernel, error) {
	d := decodeGenerator{shape: s, b: b, typ: operandTypeOf(s.kv.format), lane: b.Lane(), warp: b.Warp()}
	if err := s.check(); err != nil {
		b.Failf("%v", err)
		return b.Finish()
	}
	b.Doc("For each query head of part ctaid.y of sequence ctaid.z, over the visible\n"+
		"positions j of its splits of %d keys, every nctaid.x-th: m = max s[j], l = sum exp(s[j]-m),\n"+
		"o = sum exp(s[j]-m) * V[j], where s[j] = softcap(scale * q.K[j]), head dim %d.\n"+
		"If nctaid.x is 1: out = sum exp(m-M) * o / sum exp(m-M) * l, M = max m.", s.splitKeys(), s.kv.headDim)
	ptx.Declare(b, &d.p)
	ptx.Declare(b, &d.scoring)
	if s.append {
		b.Doc("Before: q = rope(norm(q)); K and V of the last position = rope(norm(k)) and norm(v).")
		d.appender = newAppender(&d)
	}
	d.open()
	d.layOut()
	d.start()
	b.Barrier()
	d.unscale = d.unscales.At(d.laneHead, 4).LoadF32()
	d.softmax, d.weighted = newSoftmax(b), zeros(b, s.valueTiles)
	for range 2 * s.valueTiles {
		d.all = append(d.all, ptx.Var(b.F32(0)))
	}
	block := ptx.Var(d.begin)
	b.While(func() ptx.Pred { return block.Lt(d.end) }, func() {
		d.attend(block)
		ptx.Set(block, d.next(block))
		if s.stages > 1 {
			ptx.Set(d.stage, d.stage.Xor(b.U32(1)))
		}
	})
	b.If(d.onlyCTA, d.storeOutput)
	return b.Finish(ptx.MaxThreads(d.shape.threads()), ptx.MinCTAs(d.shape.resident()))
}

// start copies the first block and rounds the queries, in shared memory. If no prior kernel writes that
// block, its copy starts before the wait for prior kernels. A CTA without a block ends. An appender
// replaces the copy of the queries.
func (d *decodeGenerator) start() {
	b := d.b
	first := func() { d.fetchNext(b.U32(0)) }
	others := func() {
		for i := 1; i < d.shape.stages; i++ {
			d.fetchNext(b.N(i))
		}
	}
	if d.appender != nil {
		a := d.appender
		first()
		d.clear()
		a.prepare()
		b.WaitForPrior()
		b.ReturnIf(d.begin.Ge(d.end))
		a.fetch()
		others()
		b.Comment("while the heads arrive")
		a.heads.ComputeAngles()
		b.CopyWait(d.shape.stages - 1)
		b.Barrier()
		a.run()
		return
	}
	early := d.p.Fresh.Ne(b.U32(0)).And(d.begin.AddN(1).MulN(d.shape.blockK).Add(d.p.Fresh).Le(d.length))
	b.If(early, first)
	d.clear()
	b.WaitForPrior()
	b.ReturnIf(d.begin.Ge(d.end))
	d.copyRows(d.queriesAt(), b.U32(0), d.p.Group)
	b.CopyCommit()
	b.IfElse(early, b.CopyCommit, first) // a group either way
	others()
	b.CopyWait(d.shape.stages)
	b.Barrier()
	d.eachRow(d.p.Group, d.roundQuery)
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

// attend computes one block. Then it starts the copy of another one into its stage.
func (d *decodeGenerator) attend(block ptx.U32) {
	b, s := d.b, d.shape
	b.Comment("scores")
	b.CopyWait(s.stages - 1)
	if d.appender != nil {
		d.appender.patch(block)
	}
	b.Barrier()
	scores := d.scores(block)
	b.Barrier()
	b.Comment("weights, relative to the largest score of the split so far")
	shrink := d.weigh(scores)
	b.Barrier()
	b.Comment("values")
	d.multiplyValues(shrink)
	b.If(d.ahead.Lt(d.end), b.Barrier)
	d.fetchNext(d.stage)
	b.If(block.AddN(1).RemN(splitBlocks).EqN(0).Or(block.AddN(1).Eq(d.end)), func() { d.endSplit(block) })
}

// next returns the CTA's block after a block.
func (d *decodeGenerator) next(block ptx.U32) ptx.U32 {
	next := block.AddN(1)
	return next.Add(ptx.Select(next.RemN(splitBlocks).EqN(0), d.skip, d.b.U32(0)))
}

// open finds the blocks of the CTA. It reads only Table and Lengths, which no prior kernel may write, so it may run
// before the wait for prior kernels.
func (d *decodeGenerator) open() {
	b := d.b
	b.LaunchDependents()
	d.kvHead, d.sequence = b.BlockY().Div(d.p.HeadParts), b.BlockZ()
	d.head = d.sequence.Mul(b.GridY()).Add(b.BlockY()).Mul(d.p.Group)
	d.table = d.p.Table.At(d.sequence.Mul(d.p.MaxPages), 4)
	d.length = d.p.Lengths.At(d.sequence, 4).LoadU32()
	// Volatile: otherwise the compiler moves the load after a branch that waits for the length.
	d.entry = ptx.Var(d.pageOf(b.BlockX().MulN(splitBlocks)).LoadU32(ptx.Volatile))
	d.first = d.scoring.windowStart(d.length)
	before := d.first.DivN(d.shape.splitKeys())
	d.begin, d.end = d.first.DivN(d.shape.blockK).Max(before.Add(b.BlockX()).MulN(splitBlocks)), d.length.CeilDivN(d.shape.blockK)
	d.skip, d.onlyCTA = b.GridX().AddN(-1).MulN(splitBlocks), b.GridX().EqN(1)
	b.Comment("the first visible block is not block 0, so the CTA's is not that of its index")
	reload := d.first.GeN(d.shape.blockK).And(d.begin.Lt(d.end))
	b.If(reload, func() { ptx.Set(d.entry, d.pageOf(d.begin).LoadU32()) })
	d.ahead, d.stage = ptx.Var(d.begin), ptx.Var(b.U32(0))
}

// pageOf returns the address of the page number of a block.
func (d *decodeGenerator) pageOf(block ptx.U32) ptx.Global {
	return d.table.At(block.DivN(d.shape.kv.page/d.shape.blockK), 4)
}

// layOut assigns addresses in shared memory.
func (d *decodeGenerator) layOut() {
	b, s := d.b, d.shape
	d.shared = b.DynamicShared(16)
	d.keys, d.values = d.shared, d.shared.Plus(s.keyBytes())
	d.queries = d.shared.Plus(s.bufferBytes() + s.ownBytes())
	d.weights = d.queries.Plus(s.queryBytes())
	d.pairSums = d.weights.Plus(s.weightBytes())
	d.maxima = d.pairSums.Plus(s.pairSumBytes())
	d.unscales = d.maxima.Plus(s.maximaBytes())
	d.raw = d.unscales.Plus(4 * decodeHeads)

	d.laneHead = d.lane.ShrN(2)
	d.hasHead = d.laneHead.Lt(d.p.Group)
	d.queryAt = d.queries.At(d.lane.AndN(7), s.stride()).At(d.lane.ShrN(3), 16)
	keyTile, valueTile := d.warp.MulN(s.keyTiles), d.firstValueTile()
	d.keyAt = d.keys.At(keyTile.MulN(8).Add(d.lane.AndN(7)), s.stride()).At(d.lane.ShrN(3), 16)
	row := d.lane.Field(3, 1).MulN(8).Add(d.lane.AndN(7))
	d.valueAt = d.values.At(row, s.stride()).At(d.lane.ShrN(4), 16).At(valueTile, 16)
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

// clear clears the queries, and the columns of keys that pad the head dim to a multiple of 16. Rows of heads
// that the CTA does not have are multiplied too.
func (d *decodeGenerator) clear() {
	b, s := d.b, d.shape
	zero := [4]ptx.U32{b.U32(0), b.U32(0), b.U32(0), b.U32(0)}
	b.For(b.ThreadX(), b.N(s.queryBytes()/16), b.N(s.threads()), func(i ptx.U32) { d.queries.At(i, 16).StoreU32x4(zero) }, ptx.NoUnroll)
	b.When(b.ThreadX().LtN(decodeHeads), func() { d.unscales.At(b.ThreadX(), 4).StoreF32(b.F32(1)) })
	if s.width() == s.kv.headDim {
		return
	}
	b.For(b.ThreadX(), b.N(s.blockK), b.N(s.threads()), func(row ptx.U32) {
		for stage := range s.stages {
			d.keys.Plus(stage*s.stageBytes()+2*s.kv.headDim).At(row, s.stride()).StoreU32x4(zero)
		}
	}, ptx.NoUnroll)
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
	SMs              int // of the device, so that the grid has about as many CTAs as run at once; 0: one CTA per split
	Shared           int // maximum bytes of shared memory per CTA; 0: no limit. A launch of few CTAs takes more than half
	// Fresh is how many of the last positions of each sequence prior kernels may still be
	// writing. A block without such positions is copied before the wait for prior kernels. Without
	// Shape.Append and with Fresh 0, no block is copied before that wait.
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
func (s Shape) ScratchBytes(sequences, heads, maxPages int) int64 {
	rows := int64(sequences) * int64(heads) * int64(newDecodeShape(s).splits(maxPages))
	return scratchSums(rows) + 4*int64(s.HeadDim)*rows
}

// splits returns the number of splits in some pages.
func (d decodeShape) splits(pages int) int { return host.CeilDiv(pages*d.kv.page, d.splitKeys()) }

// scratchSums returns the size of the first part of the scratch memory, (m, l) of each split of
// each head of each sequence. The second part holds o.
func scratchSums(rows int64) int64 { return (8*rows + 15) / 16 * 16 }

// Combine returns the arguments of the launch of Combine that must follow the launch of
// Decode(s), and whether it is needed.
func (a DecodeArgs) Combine(s Shape) (c CombineArgs, needed bool) {
	d := newDecodeShape(s)
	return CombineArgs{
		Scratch: a.Scratch, Lengths: a.KV.Lengths, Out: a.Out, Sequences: a.Sequences, Heads: a.Heads, OutStride: a.OutStride,
		MaxSplits: d.splits(a.KV.MaxPages), SplitKeys: d.splitKeys(), Scoring: a.Scoring,
	}, d.ctas(a) > 1
}

// maxKeysPerCTA bounds the time of a launch in which one sequence is much longer than the others.
const maxKeysPerCTA = 4096

// smsPerCTA is the number of SMs per CTA from which on no two CTAs share an SM. Else the GPU may place two on one, where both are slower, while
// others are idle.
const smsPerCTA = 4

// ctas returns how many CTAs share the splits of a KV head of a sequence: about as many as run at
// once, but no fewer than maxKeysPerCTA demands. Without SMs, each split has a CTA.
func (d decodeShape) ctas(a DecodeArgs) int {
	splits := min(d.splits(a.pages()), a.Scoring.splits(d.splitKeys()))
	if a.SMs == 0 {
		return splits
	}
	running := a.SMs * d.resident() / max(1, a.KV.KVHeads*d.headParts(a)*a.Sequences)
	return min(splits, max(running, host.CeilDiv(splits*d.splitKeys(), maxKeysPerCTA)))
}

// headParts returns how many CTAs share the query heads of a KV head, so that each has at most decodeHeads.
func (d decodeShape) headParts(a DecodeArgs) int {
	group, parts := a.Heads/a.KV.KVHeads, 1
	for group/parts > decodeHeads || group%parts != 0 {
		parts++
	}
	return parts
}

// sharedBytes returns the size of dynamic shared memory for a number of query heads per CTA.
func (d decodeShape) sharedBytes(heads int) int {
	return d.bufferBytes() + d.ownBytes() + d.queryBytes() + d.weightBytes() + d.pairSumBytes() + d.maximaBytes() + 4*decodeHeads + d.rawBytes(heads)
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
	shared, ctas := d.sharedBytes(group), d.ctas(a)
	if err := host.Valid(k, host.Refuse(a.Shared > 0 && shared > k.MaxDynamic(a.Shared), "Shared", "%d bytes, but the kernel takes %d", a.Shared, shared)); err != nil {
		return ptx.Launch{}, err
	}
	if a.Shared > 0 && smsPerCTA*ctas*a.KV.KVHeads*parts*a.Sequences <= a.SMs {
		shared = max(shared, a.Shared/2+1) // so that no SM has two CTAs
	}
	params := []any{&decodeParams{
		Q: ptx.Addr(a.Q), K: ptx.Addr(a.KV.K), V: ptx.Addr(a.KV.V), Table: ptx.Addr(a.KV.Table), Lengths: ptx.Addr(a.KV.Lengths),
		Sums: ptx.Addr(a.Scratch), Parts: ptx.Addr(a.Scratch + uint64(scratchSums(int64(a.Sequences*a.Heads*d.splits(a.KV.MaxPages))))),
		Out: ptx.Addr(a.Out), QStride: ptx.Uint(a.QStride), OutStride: ptx.Uint(a.OutStride),
		Group: ptx.Uint(group), HeadParts: ptx.Uint(parts), KVHeads: ptx.Uint(a.KV.KVHeads), MaxPages: ptx.Uint(a.KV.MaxPages), MaxSplits: ptx.Uint(d.splits(a.KV.MaxPages)), Fresh: ptx.Uint(a.Fresh),
	}, a.Scoring.params()}
	if d.append {
		params = append(params, &appendParams{ptx.Addr(a.Rotated)}, a.Append.Params())
	}
	return k.Launch([3]uint32{uint32(ctas), uint32(a.KV.KVHeads * parts), uint32(a.Sequences)}, d.threads(), shared, params...)
}

// span holds the visible positions of a block, relative to its start: from ≤ position < to.
type span struct{ from, to ptx.U32 }

func (d *decodeGenerator) visible(block ptx.U32) span {
	base := block.MulN(d.shape.blockK)
	return span{d.first.Max(base).Sub(base), d.length.Sub(base).Min(d.b.N(d.shape.blockK))}
}

// stored returns the positions of a block that are copied from the cache: the visible ones, except one that this kernel appends.
func (d *decodeGenerator) stored(block ptx.U32) span {
	s := d.visible(block)
	if d.appender != nil {
		s.to = d.length.AddN(-1).Sub(block.MulN(d.shape.blockK)).Min(d.b.N(d.shape.blockK))
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

// fetchNext starts the copies of the keys and values of the CTA's next block, if there is one, to a stage. It also loads the page number of the
// block after it, so that the next call need not wait for it.
func (d *decodeGenerator) fetchNext(stage ptx.U32) {
	b := d.b
	b.If(d.ahead.Lt(d.end), func() {
		block, row := d.ahead, d.entry.Mul(d.p.KVHeads).Add(d.kvHead)
		d.fetch(block, d.p.K, row, d.keys.At(stage, d.shape.stageBytes()), d.shape.stride())
		d.fetch(block, d.p.V, row, d.values.At(stage, d.shape.stageBytes()), d.shape.stride())
		ptx.Set(d.ahead, d.next(block))
		ptx.Set(d.entry, d.pageOf(d.ahead.Min(d.end.AddN(-1))).LoadU32())
	})
	b.CopyCommit() // also without a copy, because attend counts the groups
}

// fetch starts the copies of keys or values. row is the index of the KV head in the block's page. Positions that are not
// stored become 0: their weight is 0, but 0 times an infinity would be NaN. Chunk i of 16 bytes is copied by thread i
// modulo the number of threads.
func (d *decodeGenerator) fetch(block ptx.U32, cache ptx.Global, row ptx.U32, to ptx.Shared, stride int) {
	b, kv, count, chunks, threads := d.b, d.shape.kv, d.shape.blockK, d.shape.kv.chunks(), d.shape.threads()
	from, stored := cache.At(row, kv.page*kv.rowBytes()), d.stored(block)
	if n := kv.page / count; n > 1 {
		from = from.At(block.RemN(n), count*kv.rowBytes())
	}
	if threads%chunks == 0 {
		row, rows := b.ThreadX().DivN(chunks), threads/chunks
		source, target := from.At(b.ThreadX(), 16), to.At(row, stride).At(b.ThreadX().RemN(chunks), 16)
		for first := 0; first < count; first += rows {
			copied := func() {
				b.CopyAsyncZeroFill(target.Plus(first*stride), source.Plus(first*kv.rowBytes()), stored.bytes(b, row.AddN(first)), ptx.ReadOnce)
			}
			if first+rows <= count {
				copied()
			} else {
				b.When(row.LtN(count-first), copied)
			}
		}
		return
	}
	b.For(b.ThreadX(), b.N(count*chunks), b.N(threads), func(i ptx.U32) {
		row := i.DivN(chunks)
		b.CopyAsyncZeroFill(to.At(row, stride).At(i.RemN(chunks), 16), from.At(i, 16), stored.bytes(b, row), ptx.ReadOnce)
	}, ptx.NoUnroll)
}

// roundQuery rounds the query in a row of raw to 16 bits, and stores it and what undoes its scaling. A warp rounds a row.
func (d *decodeGenerator) roundQuery(head ptx.U32) {
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
	scale, unscale := queryScale(b, largest.WarpReduce("max"), d.typ.exponent)
	for j, x := range list {
		words := [2]ptx.U32{d.typ.pack(x[0].Mul(scale), x[1].Mul(scale)), d.typ.pack(x[2].Mul(scale), x[3].Mul(scale))}
		vec := d.lane.AddN(32 * j)
		b.When(vec.LtN(dim/4), func() { d.queries.At(head, d.shape.stride()).At(vec, 8).StoreU32x2(words) })
	}
	b.When(d.lane.EqN(0), func() { d.unscales.At(head, 4).StoreF32(unscale) })
}

// scores returns the lane's scores, two per tile of keys: products q·K or, with a softcap, exponents of 2, and -Inf for positions that are not
// visible. It stores the warp's largest score of each head.
func (d *decodeGenerator) scores(block ptx.U32) [][2]ptx.F32 {
	b, steps, n := d.b, d.shape.width()/16, d.shape.keyTiles
	products, zero := zeros(b, n), ptx.Var(b.U32(0))
	d.ifKeys(func() {
		for k := 0; k < steps; k += 2 {
			count := min(2, steps-k)
			queries := d.typ.load(d.queryAt.Plus(32*k), 2*count, false)
			for i, x := range products {
				for step, keys := range d.loadKeys(i, k, count) {
					d.typ.mma(x, [4]ptx.U32{queries[2*step], zero, queries[2*step+1], zero}, keys)
				}
			}
		}
	})
	b.If(d.scoring.hasSoftcap(b), func() {
		for _, x := range products {
			d.scoring.softcap(b, x[:2], d.unscale)
		}
	})
	seen, m := d.visible(block), minusInf(b)
	position := d.warp.MulN(8 * n).Add(d.lane.AndN(3).MulN(2))
	scores := make([][2]ptx.F32, n)
	for i, x := range products {
		for odd := range 2 {
			scores[i][odd] = ptx.Select(seen.holds(position.AddN(8*i+odd)), x[odd], minusInf(b))
			m = scores[i][odd].Max(m)
		}
	}
	for _, lanes := range []int{1, 2} {
		m = m.Max(ptx.ShuffleXor(m, lanes))
	}
	b.When(d.lane.AndN(3).EqN(0), func() { d.maxima.At(d.laneHead, 4*d.shape.warps).At(d.warp, 4).StoreF32(m) })
	return scores
}

// ifKeys emits body for the warps that have keys.
func (d *decodeGenerator) ifKeys(body func()) {
	if busy := d.shape.blockK / 8 / d.shape.keyTiles; busy < d.shape.warps {
		d.b.If(d.warp.LtN(busy), body)
	} else {
		body()
	}
}

// loadKeys returns operands of the warp's tile i of keys, for n steps of sixteen elements from step k on.
func (d *decodeGenerator) loadKeys(i, k, n int) (steps [][2]ptx.U32) {
	at := d.keyAt.At(d.stage, d.shape.stageBytes()).Plus(8 * i * d.shape.stride())
	words := d.typ.load(at.Plus(32*k), 2*n, false)
	for step := range n {
		steps = append(steps, [2]ptx.U32(words[2*step:]))
	}
	return steps
}

// weigh stores the weights of the lane's scores, rounded, as left operands, and their sums in pairs. It returns what sums of the split so far are
// to be multiplied by.
func (d *decodeGenerator) weigh(scores [][2]ptx.F32) (shrink ptx.F32) {
	b, m := d.b, minusInf(d.b)
	line := d.maxima.At(d.laneHead, 4*d.shape.warps)
	for i := range d.shape.warps {
		m = line.Plus(4 * i).LoadF32().Max(m)
	}
	factor := d.scoring.factor(b, d.unscale)
	base, shrink := d.softmax.raise(b, m.Mul(factor))
	d.ifKeys(func() {
		for i, pair := range scores {
			for odd, x := range pair {
				pair[odd] = x.FMA(factor, base.Neg()).Ex2ApproxFTZ()
			}
			tile := d.warp.MulN(d.shape.keyTiles).AddN(i)
			d.weights.At(tile, 4*32).At(d.lane, 4).StoreU32(d.typ.pack(pair[0], pair[1]))
			d.pairSums.At(tile, 4*32).At(d.lane, 4).StoreF32(addWeights(pair[:]))
		}
	})
	return shrink
}

// multiplyValues adds the weighted values in the warp's tiles of columns, and the weights, to the sums of the split.
func (d *decodeGenerator) multiplyValues(shrink ptx.F32) {
	zero := ptx.Var(d.b.U32(0))
	for _, x := range d.weighted {
		for odd := range 2 {
			ptx.Set(x[odd], x[odd].Mul(shrink))
		}
	}
	word := func(tile int) ptx.U32 { return d.weights.Plus(4*32*tile).At(d.lane, 4).LoadU32() }
	for k := range d.shape.blockK / 16 {
		left := [4]ptx.U32{word(2 * k), zero, word(2*k + 1), zero}
		for i := 0; i < len(d.weighted); i += 2 {
			n := min(2, len(d.weighted)-i)
			for j, values := range d.loadValues(k, i, n) {
				d.typ.mma(d.weighted[i+j], left, values)
			}
		}
	}
	sum := d.pairSums.At(d.lane, 4).LoadF32()
	for tile := 1; tile < d.shape.blockK/8; tile++ {
		sum = sum.Add(d.pairSums.Plus(4*32*tile).At(d.lane, 4).LoadF32())
	}
	d.softmax.add(shrink, sum)
}

// loadValues returns operands of n of the warp's tiles of columns from tile i on, for step k of sixteen positions.
func (d *decodeGenerator) loadValues(k, i, n int) (tiles [][2]ptx.U32) {
	at := d.valueAt.At(d.stage, d.shape.stageBytes()).Plus(16 * k * d.shape.stride())
	words := d.typ.load(at.Plus(16*i), 2*n, true)
	for tile := range n {
		tiles = append(tiles, [2]ptx.U32(words[2*tile:]))
	}
	return tiles
}

// endSplit adds the split that ends with a block to those before it if it is the only CTA of its heads. Else it stores its results in scratch memory.
func (d *decodeGenerator) endSplit(block ptx.U32) {
	b := d.b
	var values []ptx.F32
	for _, x := range d.weighted {
		values = append(values, x[0], x[1])
	}
	b.IfElse(d.onlyCTA, func() {
		before, now := d.softmax.endSplit(b)
		for i, x := range values {
			ptx.Set(d.all[i], now.FMA(x, d.all[i].Mul(before)))
		}
	}, func() {
		split, results := block.DivN(splitBlocks), d.results(d.laneHead)
		l := addLanes(d.softmax.sum)
		b.When(d.hasHead.And(d.warp.EqN(0)).And(d.lane.AndN(3).EqN(0)), func() { results.sums.At(split, 8).StoreF32x2([2]ptx.F32{d.softmax.top, l}) })
		d.storeRow(results.values.At(split, 4*d.shape.kv.headDim), values)
		d.softmax.clear(b)
	})
	for _, x := range values {
		ptx.Set(x, b.F32(0))
	}
}

// storeRow stores two elements per tile of columns in a row of the lane's head.
func (d *decodeGenerator) storeRow(row ptx.Global, list []ptx.F32) {
	for i := 0; i < len(list); i += 2 {
		tile, stored := d.storedTile(i / 2)
		to := row.At(tile, 32).At(d.lane.AndN(3), 8)
		d.b.When(d.hasHead.And(stored), func() { to.StoreF32x2([2]ptx.F32(list[i:])) })
	}
}

// storeOutput stores the outputs of a CTA that has all splits of its heads.
func (d *decodeGenerator) storeOutput() {
	inverse := d.softmax.inverseSum(d.b, &d.scoring, d.queryHead(d.laneHead.Min(d.p.Group.AddN(-1))))
	var out []ptx.F32
	for _, x := range d.all {
		out = append(out, quotient(d.b, x, inverse))
	}
	row := d.p.Out.At(d.sequence.Mul(d.p.OutStride), 4).Aligned(16)
	d.storeRow(row.At(d.queryHead(d.laneHead), 4*d.shape.kv.headDim), out)
}

// results returns where the results of a head of the group are stored.
func (d *decodeGenerator) results(head ptx.U32) splitResults {
	row, dim := d.head.Add(head).Mul(d.p.MaxSplits), d.shape.kv.headDim
	return splitResults{d.p.Sums.At(row, 8), d.p.Parts.At(row, 4*dim)}
}

// queryHead returns the index in the model of a head of the CTA.
func (d *decodeGenerator) queryHead(head ptx.U32) ptx.U32 {
	return d.b.BlockY().Mul(d.p.Group).Add(head)
}

// operandType is a 16-bit type of the operands of Decode's products, which are words of two elements.
type operandType struct {
	exponent int // as in tensorType
	pack     func(lo, hi ptx.F32) ptx.U32
	mma      func(acc [4]ptx.F32, a [4]ptx.U32, b [2]ptx.U32)
	load     func(p ptx.Shared, n int, transposed bool) []ptx.U32
}

// operandTypeOf returns the type of a format of the cache.
func operandTypeOf(f quant.Format) operandType {
	if f == quant.BF16 {
		return newOperandType(tensorBF16)
	}
	return newOperandType(tensorF16)
}

func newOperandType[T ptx.Half2](typ tensorType[T]) operandType {
	return operandType{
		exponent: typ.exponent,
		pack:     func(lo, hi ptx.F32) ptx.U32 { return typ.bits(typ.pack(lo, hi)) },
		mma: func(acc [4]ptx.F32, a [4]ptx.U32, b [2]ptx.U32) {
			ptx.MMA(acc, [4]T{typ.from(a[0]), typ.from(a[1]), typ.from(a[2]), typ.from(a[3])}, [2]T{typ.from(b[0]), typ.from(b[1])})
		},
		load: func(p ptx.Shared, n int, transposed bool) (words []ptx.U32) {
			for _, x := range ptx.LoadMatrices[T](p, n, transposed) {
				words = append(words, typ.bits(x))
			}
			return words
		},
	}
}
