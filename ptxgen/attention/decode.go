package attention

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strconv"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
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
// position Lengths[s] − 1. CTA (c, h, s) computes part h of the query heads, which are of one KV head. It takes every
// gridDim.x-th visible page from the c-th on. If gridDim.x is 1, the CTA has all pages of its heads and stores what Combine
// would store. The query heads of a CTA share one read of K and V. Everything is float32.
//
// Order of additions: a score is a tree over the lanes that share a row of K, of serial sums;
// l is a butterfly over the lanes of serial sums; o is the sum of the thread groups in order,
// each over consecutive positions. The order depends on the position alone, not on the batch,
// the page table or the number of query heads.
//
// With Shape.Append the kernel first does the work of rope.Append for one token per sequence. It leaves Q in global memory
// unchanged.
func Decode(s Shape) kernel.Typed[DecodeArgs] {
	k, d := s.decode(), newDecodeShape(s.decode())
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

// decodeShape says how the threads of a CTA share the page of one KV head.
type decodeShape struct {
	kv      kvShape
	append  bool // Shape.Append
	threads int
	// Products q·K: neighboring lanes read one row of K together. A chunk is 16 bytes of a row.
	lanes      int // lanes per row of K, a power of two
	laneChunks int // chunks of a row per lane; those beyond the row are 0
	keys       int // rows of K per thread
	// Products with V: a group of threads reads whole rows of V, one chunk per thread.
	values    int  // consecutive rows of V per thread
	groups    int  // groups of threads
	scores    int  // scores per head in shared memory: those of the page, and padding that is read
	heads     int  // heads per iteration over the products with V
	oneBuffer bool // K and V use the same shared memory one after the other
}

const (
	decodeBytes   = 128      // about this many bytes of K, and as many of V, per thread and page
	decodeThreads = 512      // maximum number of threads of a CTA
	decodeLanes   = 8        // maximum number of lanes that share a row of K
	decodeKeys    = 80       // maximum elements of K per thread: they occupy as many registers
	decodeHeads   = 8        // maximum of decodeShape.heads
	decodeMerged  = 16 << 10 // maximum bytes of the partial sums of several heads; one head may exceed it
	decodeBuffer  = 64 << 10 // maximum bytes of K and V on GPUs with little shared memory
)

func newDecodeShape(k kvShape) decodeShape {
	if k.check() != nil {
		return decodeShape{kv: k}
	}
	d := decodeShape{kv: k, threads: max(32, host.CeilDiv(k.page*k.rowBytes()/decodeBytes, 32)*32)}
	if k.headDim > largeHead {
		d.threads = min(d.threads, decodeThreads)
	}
	d.shareKeys()
	d.groups = d.threads / d.kv.chunks()
	d.values = host.CeilDiv(d.kv.page, d.groups)
	d.scores = host.CeilDiv(max(d.kv.page, host.CeilDiv(d.threads, d.kv.chunks())*d.values), 4) * 4
	d.heads = max(1, min(decodeHeads, decodeMerged/d.mergedBytes()))
	d.oneBuffer = (d.keys*d.laneChunks+d.values)*d.chunksBytes() > decodeBuffer
	return d
}

// shareKeys divides K among the threads. The lanes of a row divide its chunks evenly, unless a
// thread then has more than decodeKeys elements.
func (d *decodeShape) shareKeys() {
	excess := true
	for lanes := 1; lanes <= decodeLanes; lanes *= 2 {
		if excess || d.kv.chunks()%lanes == 0 {
			excess = d.setLanes(lanes)
		}
	}
	for excess {
		d.threads += 32
		excess = d.setLanes(d.lanes)
	}
}

// setLanes sets how K is divided, and reports whether a thread has too many elements.
func (d *decodeShape) setLanes(lanes int) (excess bool) {
	d.lanes, d.laneChunks = lanes, host.CeilDiv(d.kv.chunks(), lanes)
	d.keys = host.CeilDiv(d.kv.page, d.threads/lanes)
	return d.keys*d.laneChunks*d.kv.pack() > decodeKeys
}

// rowLanes returns how many lanes have a chunk of the row as their chunk j.
func (d decodeShape) rowLanes(j int) int { return min(d.lanes, d.kv.chunks()-j*d.lanes) }

// mergedBytes returns the size of the partial sums of one head, in shared memory.
func (d decodeShape) mergedBytes() int { return 4 * d.groups * d.kv.headDim }

// chunksBytes returns the size of one chunk per thread.
func (d decodeShape) chunksBytes() int { return 16 * d.threads }

// lineBytes returns the size of the line of one head: its scores, which become weights; the
// maximum over the pages so far; l of the page; padding.
func (d decodeShape) lineBytes() int { return 4*d.scores + 16 }

// bufferBytes returns the size of the copies of K and V in shared memory.
func (d decodeShape) bufferBytes() int {
	if d.oneBuffer {
		return max(d.keys*d.laneChunks, d.values) * d.chunksBytes()
	}
	return (d.keys*d.laneChunks + d.values) * d.chunksBytes()
}

// resident returns how many CTAs run on an SM at a time, with 128 registers per thread.
func (d decodeShape) resident() int { return max(1, 512/max(d.threads, 1)) }

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

// decodeGenerator is the state of the kernel while it is generated.
type decodeGenerator struct {
	shape decodeShape
	b     *ptx.Builder
	p     decodeParams

	kvHead, sequence       ptx.U32
	head                   ptx.U32    // first query head of the CTA, counted over all sequences
	table                  ptx.Global // of the sequence
	first, length          ptx.U32    // visible positions
	begin, end, stride     ptx.U32    // the CTA's pages: begin, begin+stride, … below end
	entry                  ptx.U32    // page number of the page whose keys are copied next
	row                    ptx.U32    // index of the KV head in the page whose keys were copied last
	keyChunks, valueChunks ptx.Shared // the thread's first chunk of K and of V; the next ones follow every chunksBytes
	single, several        ptx.Pred   // the CTA has the only visible page, or all of several
	shared                 ptx.Shared // dynamic shared memory
	queries, lines, merged ptx.Shared
	appender               *appender // nil without decodeShape.append
}

func buildDecode(b *ptx.Builder, s decodeShape) (*ptx.Kernel, error) {
	d := decodeGenerator{shape: s, b: b}
	if err := s.kv.check(); err != nil {
		b.Failf("%v", err)
	} else if d.shape.threads > decodeThreads {
		b.Failf("page of %d bytes of keys: more than 512 threads read", d.shape.kv.page*d.shape.kv.rowBytes())
	}
	if b.Err() != nil {
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
	b.For(d.begin, d.end, d.stride, d.attend, ptx.NoUnroll)
	b.If(d.several, d.combine)
	return b.Finish(ptx.MaxThreads(d.shape.threads), ptx.MinCTAs(d.shape.resident()))
}

// start copies the queries and the first page to shared memory. If no prior kernel writes that
// page, its copy starts before the wait for prior kernels. A CTA without a page ends. An appender
// replaces the copy of the queries.
func (d *decodeGenerator) start() {
	b := d.b
	if d.appender != nil {
		a := d.appender
		b.If(d.begin.Lt(d.end), d.fetchFirst)
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
	early := d.p.Fresh.Ne(b.U32(0)).And(d.begin.AddN(1).MulN(d.shape.kv.page).Add(d.p.Fresh).Le(d.length))
	b.If(early, d.fetchFirst)
	b.WaitForPrior()
	b.ReturnIf(d.begin.Ge(d.end))
	d.stageQueries()
	b.IfElse(early, func() { b.CopyWait(0) }, func() {
		d.fetchFirst()
		b.CopyWait(d.inFlight() + 1)
	})
}

func (d *decodeGenerator) fetchFirst() {
	d.fetchKeys(d.begin)
	d.b.CopyCommit()
	if !d.shape.oneBuffer {
		d.fetchValues(d.begin)
		d.b.CopyCommit()
	}
}

// inFlight returns how many groups of copies may still be in flight when attend continues: the
// values during the keys' turn, and the next keys during the values' turn.
func (d *decodeGenerator) inFlight() int {
	if d.shape.oneBuffer {
		return 0
	}
	return 1
}

// attend computes one page. As soon as a thread has loaded its keys (or values) into registers,
// it starts the copy of the next page's keys (or values) to the same shared memory.
func (d *decodeGenerator) attend(page ptx.U32) {
	b, next := d.b, page.Add(d.stride)
	more := next.Lt(d.end)
	nextKeys := func() { b.If(more, func() { d.fetchKeys(next) }) }
	afterKeys, afterValues := nextKeys, func() { b.If(more, func() { d.fetchValues(next) }) }
	if d.shape.oneBuffer {
		afterKeys, afterValues = func() { d.fetchValues(page) }, nextKeys
	}
	b.CopyWait(d.inFlight())
	if d.appender != nil {
		d.appender.putKey(page)
	}
	keys := d.unpackKeys()
	afterKeys()
	b.CopyCommit() // also without a copy, because inFlight counts the group
	d.scoreKeys(page, keys)
	b.Barrier()
	d.softmax(page)
	b.Barrier()
	b.CopyWait(d.inFlight())
	if d.appender != nil {
		d.appender.putValue(page)
	}
	values := d.unpackValues()
	afterValues()
	b.CopyCommit()
	d.addValues(page, values)
}

// open finds the pages of the CTA. It reads only data that no kernel writes, so it may run
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
	all, next := d.stride.EqN(1), d.begin.AddN(1)
	d.single, d.several = all.And(next.Eq(d.end)), all.And(next.Lt(d.end))
	again := before.Ne(b.U32(0)).And(d.begin.Lt(d.end))
	b.If(again, func() { ptx.Set(d.entry, d.table.At(d.begin, 4).LoadU32()) })
}

// layOut assigns addresses in shared memory.
func (d *decodeGenerator) layOut() {
	d.shared = d.b.DynamicShared(16)
	d.keyChunks = d.shared.At(d.b.ThreadX(), 16)
	d.valueChunks = d.keyChunks
	if !d.shape.oneBuffer {
		d.valueChunks = d.keyChunks.Plus(d.shape.keys * d.shape.laneChunks * d.shape.chunksBytes())
	}
	d.queries = d.shared.Plus(d.shape.bufferBytes() + d.shape.ownBytes())
	d.lines = d.queries.At(d.p.Group, 4*d.shape.kv.headDim)
	d.merged = d.lines.At(d.p.Group, d.shape.lineBytes())
}

// DecodeDepth returns how many additions follow one another, serially and in trees, in a
// score and in an output over length positions, including those of Combine.
func DecodeDepth(s Shape, length int) (score, output int) {
	d := newDecodeShape(s.decode())
	pages := host.CeilDiv(length, d.kv.page)
	score = d.laneChunks*d.kv.pack() + bits.Len(uint(d.lanes))
	return score, d.values + d.groups + host.CeilDiv(pages, combineSums) + combineSums
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
	// writing. A page without such positions is copied before the wait for prior kernels. If
	// Fresh is 0, no page is copied before that wait; see Append.
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
	d := newDecodeShape(s.decode())
	return CombineArgs{
		Scratch: a.Scratch, Lengths: a.KV.Lengths, Out: a.Out, Sequences: a.Sequences, Heads: a.Heads, OutStride: a.OutStride,
		MaxPages: a.KV.MaxPages, Page: d.kv.page, Scoring: a.Scoring,
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

// headParts returns how many CTAs share the query heads of a KV head: enough to use idle SMs, and so that a CTA takes at most
// shared bytes of dynamic shared memory, if that is not 0.
func (d decodeShape) headParts(a DecodeArgs, shared int) int {
	group, idle := a.Heads/a.KV.KVHeads, a.SMs/(d.ctas(a)*a.KV.KVHeads*a.Sequences)
	parts := 1
	for n := 2; n <= group; n++ {
		if group%n == 0 && (n <= idle || shared > 0 && d.sharedBytes(group/parts) > shared) {
			parts = n
		}
	}
	return parts
}

// sharedBytes returns the size of dynamic shared memory for a number of query heads per CTA.
func (d decodeShape) sharedBytes(heads int) int {
	return d.bufferBytes() + d.ownBytes() + heads*(4*d.kv.headDim+d.lineBytes()) + max(min(heads, d.heads)*d.mergedBytes(), d.rawBytes(heads))
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
	limit := a.Shared
	if limit > 0 {
		limit = k.MaxDynamic(limit)
	}
	parts := d.headParts(a, limit)
	group := a.Heads / a.KV.KVHeads / parts
	shared := d.sharedBytes(group)
	if err := host.Valid(k, host.Refuse(limit > 0 && shared > limit, "Shared", "%d bytes, but %d query heads per CTA take %d", a.Shared, group, shared)); err != nil {
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
	return k.Launch([3]uint32{uint32(d.ctas(a)), uint32(a.KV.KVHeads * parts), uint32(a.Sequences)}, d.threads, shared, params...)
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

// keyLane returns the index of the lane among the lanes of a row of K, and its first row.
func (d *decodeGenerator) keyLane() (lane, row ptx.U32) {
	t := d.b.ThreadX()
	return t.RemN(d.shape.lanes), t.DivN(d.shape.lanes)
}

// keyRows returns the number of rows of K that the CTA reads at a time.
func (d *decodeGenerator) keyRows() int { return d.shape.threads / d.shape.lanes }

// fetchKeys starts the copies of the thread's chunks of K. Positions that are not stored
// and chunks beyond the row become 0. It also loads the page number of the CTA's next page, so
// that the next call need not wait for it.
func (d *decodeGenerator) fetchKeys(page ptx.U32) {
	b := d.b
	b.Comment("K: %d lanes per row, %d rows per thread", d.shape.lanes, d.shape.keys)
	ptx.Set(d.row, d.entry.Mul(d.p.KVHeads).Add(d.kvHead))
	lane, row := d.keyLane()
	k := d.p.K.At(d.row, d.shape.kv.page*d.shape.kv.rowBytes()).At(row, d.shape.kv.rowBytes()).At(lane, 16)
	stored := d.stored(page)
	for r := range d.shape.keys {
		bytes := stored.bytes(b, row.AddN(r*d.keyRows()))
		for j := range d.shape.laneChunks {
			if have := d.shape.rowLanes(j); have < d.shape.lanes {
				bytes = ptx.Select(lane.LtN(have), bytes, b.U32(0))
			}
			from := k.Plus(r*d.keyRows()*d.shape.kv.rowBytes() + 16*d.shape.lanes*j)
			b.CopyAsyncZeroFill(d.keyChunks.Plus((r*d.shape.laneChunks+j)*d.shape.chunksBytes()), from, bytes)
		}
	}
	after := page.Add(d.stride).Min(d.end.AddN(-1))
	ptx.Set(d.entry, d.table.At(after, 4).LoadU32())
}

// unpackKeys returns the elements of the thread's rows of K: [row][chunk][element].
func (d *decodeGenerator) unpackKeys() [][][]ptx.F32 {
	keys := make([][][]ptx.F32, d.shape.keys)
	for r := range keys {
		for j := range d.shape.laneChunks {
			bits := d.keyChunks.Plus((r*d.shape.laneChunks + j) * d.shape.chunksBytes()).LoadU32x4()
			keys[r] = append(keys[r], unpackKV(d.shape.kv.format, bits))
		}
	}
	return keys
}

// valueLane returns the index of the thread's chunk in a row of V, and the index of its group
// of threads. The last group may be incomplete. Nothing reads what its threads load.
func (d *decodeGenerator) valueLane() (chunk, group ptx.U32) {
	t := d.b.ThreadX()
	return t.RemN(d.shape.kv.chunks()), t.DivN(d.shape.kv.chunks())
}

// fetchValues starts the copies of the thread's chunks of V, from the page whose keys were
// copied last. Positions that are not stored become 0: their weight is 0, but 0 times an
// infinity would be NaN.
func (d *decodeGenerator) fetchValues(page ptx.U32) {
	b := d.b
	b.Comment("V: %d threads per row, %d rows per thread", d.shape.kv.chunks(), d.shape.values)
	chunk, group := d.valueLane()
	first := group.MulN(d.shape.values)
	v := d.p.V.At(d.row, d.shape.kv.page*d.shape.kv.rowBytes()).At(first, d.shape.kv.rowBytes()).At(chunk, 16)
	stored := d.stored(page)
	for r := range d.shape.values {
		b.CopyAsyncZeroFill(d.valueChunks.Plus(r*d.shape.chunksBytes()), v.Plus(r*d.shape.kv.rowBytes()), stored.bytes(b, first.AddN(r)))
	}
}

// unpackValues returns the elements of the thread's rows of V: [row][element].
func (d *decodeGenerator) unpackValues() [][]ptx.F32 {
	values := make([][]ptx.F32, d.shape.values)
	for r := range values {
		values[r] = unpackKV(d.shape.kv.format, d.valueChunks.Plus(r*d.shape.chunksBytes()).LoadU32x4())
	}
	return values
}

// stageQueries copies the group's queries to shared memory, in planes. Copies complete in order,
// so a wait for later copies of keys also waits for the queries.
func (d *decodeGenerator) stageQueries() {
	b := d.b
	b.Comment("the queries of the group")
	source := d.p.Q.At(d.sequence.Mul(d.p.QStride), 4).Aligned(16).At(d.queryHead(b.U32(0)), 4*d.shape.kv.headDim)
	d.eachVec4(d.p.Group, func(head, slot, vec ptx.U32) {
		b.CopyAsync(d.queries.At(head, 4*d.shape.kv.headDim).At(slot, 16), source.At(head, 4*d.shape.kv.headDim).At(vec, 16))
	}, ptx.NoUnroll)
	b.CopyCommit()
}

// scoreKeys stores the scores of each head in shared memory, -Inf for positions that are not visible.
func (d *decodeGenerator) scoreKeys(page ptx.U32, keys [][][]ptx.F32) {
	b := d.b
	b.Comment("scores: serial sums over a lane's part of the row, then a tree over the lanes")
	lane, row := d.keyLane()
	tree := device.NewLaneSum(b, lane, d.shape.lanes, d.shape.keys)
	capped, seen := d.p.Softcap.Ne(b.F32(0)), d.visible(page)
	b.For(b.U32(0), d.p.Group, b.U32(1), func(head ptx.U32) {
		scores := tree.Add(d.products(d.queries.At(head, 4*d.shape.kv.headDim), lane, keys))
		line := d.line(head)
		for i, x := range scores {
			position := row.Add(tree.First.AddN(i).MulN(d.keyRows()))
			score := ptx.Var(x.Mul(d.p.Scale))
			b.If(capped, func() { ptx.Set(score, device.Softcap(b, score, d.p.Softcap)) })
			write := position.LtN(d.shape.kv.page)
			if tree.Shared {
				write = write.And(tree.Unique)
			}
			score = ptx.Select(seen.holds(position), score, minusInf(b))
			b.When(write, func() { line.At(position, 4).StoreF32(score) })
		}
	})
}

// products returns the lane's partial sums of q·K for each of its rows. A chunk of K beyond the
// row is 0, so any chunk of the query serves there.
func (d *decodeGenerator) products(query ptx.Shared, lane ptx.U32, keys [][][]ptx.F32) []ptx.F32 {
	sums := make([]ptx.F32, len(keys))
	for j := range d.shape.laneChunks {
		at := lane
		if have := d.shape.rowLanes(j); have < d.shape.lanes {
			at = lane.Min(d.b.N(have - 1))
		}
		from := query.At(at, 16)
		for plane := range d.shape.kv.pack() / 4 {
			q := from.Plus(16 * (plane*d.shape.kv.chunks() + j*d.shape.lanes)).LoadF32x4()
			for r := range keys {
				for i := range q {
					x := keys[r][j][4*plane+i]
					if j+plane+i == 0 {
						sums[r] = x.Mul(q[i])
					} else {
						sums[r] = x.FMA(q[i], sums[r])
					}
				}
			}
		}
	}
	return sums
}

// softmax replaces the scores by weights, one warp per head, and stores m and l.
func (d *decodeGenerator) softmax(page ptx.U32) {
	b := d.b
	b.Comment("weights exp(s - m), one warp per head; a lane has every 32nd position")
	lane, warp := b.Lane(), b.Warp()
	b.For(warp, d.p.Group, b.N(d.shape.threads/32), func(head ptx.U32) {
		line := d.line(head)
		var list []ptx.F32
		m := minusInf(b)
		for i := 0; i < d.shape.kv.page; i += 32 {
			x := line.At(lane.AddN(i).Min(b.N(d.shape.kv.page-1)), 4).LoadF32()
			if i+32 > d.shape.kv.page {
				x = ptx.Select(lane.LtN(d.shape.kv.page-i), x, minusInf(b))
			}
			list = append(list, x)
			m = x.Max(m)
		}
		m = ptx.WarpMax(m)
		base := finiteMax(b, m)
		b.WarpSync()
		sum := b.F32(0)
		for i := 0; i < d.shape.scores; i += 32 {
			w := b.F32(0)
			if i < d.shape.kv.page {
				w = list[i/32].Sub(base).MulN(math.Log2E).Ex2Approx()
				sum = w.Add(sum)
			}
			at := lane.AddN(i)
			b.When(at.LtN(d.shape.scores), func() { line.At(at, 4).StoreF32(w) })
		}
		sum = ptx.WarpSum(sum)
		out, top, l := d.results(head).sums.At(page, 8), d.top(head), d.sum(head)
		before := ptx.Var(m)
		b.When(lane.EqN(0).And(page.Ne(d.begin)), func() { ptx.Set(before, top.LoadF32()) })
		b.When(lane.EqN(0), func() {
			out.StoreF32x2([2]ptx.F32{m, sum})
			top.StoreF32(before.Max(m))
			l.StoreF32(sum)
		})
	})
}

// line returns the line of a head of the group, top its maximum over the pages so far, and sum
// its l of the page.
func (d *decodeGenerator) line(head ptx.U32) ptx.Shared { return d.lines.At(head, d.shape.lineBytes()) }
func (d *decodeGenerator) top(head ptx.U32) ptx.Shared  { return d.line(head).Plus(4 * d.shape.scores) }
func (d *decodeGenerator) sum(head ptx.U32) ptx.Shared  { return d.top(head).Plus(4) }

// results returns where the results of a head of the group are stored.
func (d *decodeGenerator) results(head ptx.U32) pageResults {
	row, dim := d.head.Add(head).Mul(d.p.MaxPages), d.shape.kv.headDim
	return pageResults{d.p.Sums.At(row, 8), d.p.Parts.At(row, 4*dim), dim}
}

// out returns where the output of a head of the group is stored.
func (d *decodeGenerator) out(head ptx.U32) ptx.Global {
	row := d.p.Out.At(d.sequence.Mul(d.p.OutStride), 4).Aligned(16)
	return row.At(d.queryHead(head), 4*d.shape.kv.headDim)
}

// queryHead returns the index in the model of a head of the CTA, and sink its sink.
func (d *decodeGenerator) queryHead(head ptx.U32) ptx.U32 {
	return d.b.BlockY().Mul(d.p.Group).Add(head)
}
func (d *decodeGenerator) sink(head ptx.U32) headSink {
	return headSink{d.p.Sinks, d.queryHead(head)}
}

// addValues adds the weighted values: each thread over its consecutive positions, then the
// groups of threads in order.
func (d *decodeGenerator) addValues(page ptx.U32, values [][]ptx.F32) {
	b := d.b
	b.Comment("values: serial sums over a thread's positions, of %d heads at a time", d.shape.heads)
	d.eachHeads(func(first, heads ptx.U32) {
		b.If(first.Ne(b.U32(0)), b.Barrier) // the sums of the previous heads have been read
		d.storeSums(first, heads, values)
		b.Barrier()
		d.storeOutputs(page, first, heads)
	})
}

// storeSums stores the thread's sums for heads first, first+1, … in shared memory.
func (d *decodeGenerator) storeSums(first, heads ptx.U32, values [][]ptx.F32) {
	b := d.b
	chunk, group := d.valueLane()
	whole := group.LtN(d.shape.groups)
	b.For(b.U32(0), heads, b.U32(1), func(i ptx.U32) {
		sums := d.weighted(d.line(first.Add(i)).At(group, 4*d.shape.values), values)
		to := d.merged.At(i, d.shape.mergedBytes()).At(group, 4*d.shape.kv.headDim).At(chunk, 16)
		b.When(whole, func() {
			for p := range d.shape.kv.pack() / 4 {
				to.Plus(16 * p * d.shape.kv.chunks()).StoreF32x4([4]ptx.F32(sums[4*p:]))
			}
		})
	})
}

// weighted returns Σ w[r]·V[r] over the thread's rows, for the elements of its chunk.
func (d *decodeGenerator) weighted(weights ptx.Shared, values [][]ptx.F32) []ptx.F32 {
	sums := make([]ptx.F32, d.shape.kv.pack())
	var four [4]ptx.F32
	for r := range values {
		w := four[r%4]
		switch {
		case d.shape.values%4 != 0:
			w = weights.Plus(4 * r).LoadF32()
		case r%4 == 0:
			four = weights.Plus(4 * r).LoadF32x4()
			w = four[0]
		}
		for i, x := range values[r] {
			if r == 0 {
				sums[i] = w.Mul(x)
			} else {
				sums[i] = w.FMA(x, sums[i])
			}
		}
	}
	return sums
}

// storeOutputs adds the sums of all groups, for heads first, first+1, …. If one CTA has
// all pages and only this one is visible, it stores the output, else o in scratch memory.
func (d *decodeGenerator) storeOutputs(page, first, heads ptx.U32) {
	b := d.b
	b.Comment("o: the sums of %d groups of threads, in order", d.shape.groups)
	d.eachVec4(heads, func(i, slot, vec ptx.U32) {
		from := d.merged.At(i, d.shape.mergedBytes()).At(slot, 16)
		sum := from.LoadF32x4()
		for g := 1; g < d.shape.groups; g++ {
			x := from.Plus(4 * d.shape.kv.headDim * g).LoadF32x4()
			for j := range sum {
				sum[j] = sum[j].Add(x[j])
			}
		}
		head := first.Add(i)
		b.IfElse(d.single, func() {
			all := newPageSum(b)
			all.merge(pageSum{sum, d.sum(head).LoadF32()}) // the only page has the weight 1
			d.out(head).At(vec, 16).StoreF32x4(all.quotient(b, d.top(head).LoadF32(), d.sink(head)))
		}, func() { d.results(head).parts.At(page, 4*d.shape.kv.headDim).At(vec, 16).StoreF32x4(sum) })
	})
}

// combine merges the results of all pages. They are in scratch memory until then: rescaling sums whenever the maximum grows
// would round differently from Combine. A thread loads the elements of o that it stored in storeOutputs. The barriers after
// softmax order what it loads of m, l and the maximum.
func (d *decodeGenerator) combine() {
	b := d.b
	b.Comment("out: the pages in the order of Combine")
	d.eachHeads(func(first, heads ptx.U32) {
		d.eachVec4(heads, func(i, _, vec ptx.U32) {
			head := first.Add(i)
			d.out(head).At(vec, 16).StoreF32x4(combineInOrder(b, d.results(head), d.begin, d.end, vec, d.top(head).LoadF32(), d.sink(head)))
		}, ptx.NoUnroll)
	})
}

// slotOf returns the slot of element i of a head, in 16 bytes: see eachVec4.
func (d *decodeGenerator) slotOf(i ptx.U32) ptx.U32 {
	pack := d.shape.kv.pack()
	return i.RemN(pack).DivN(4).MulN(d.shape.kv.chunks()).Add(i.DivN(pack))
}

// eachHeads calls do for the heads of the group, decodeShape.heads at a time.
func (d *decodeGenerator) eachHeads(do func(first, heads ptx.U32)) {
	b := d.b
	b.For(b.U32(0), d.p.Group, b.N(d.shape.heads), func(first ptx.U32) {
		do(first, d.p.Group.Sub(first).Min(b.N(d.shape.heads)))
	}, ptx.NoUnroll)
}

// eachVec4 calls do for the thread's share of heads·headDim elements: elements 4·vec to 4·vec+3
// of a head, at 16·slot bytes in a float32 row in shared memory.
//
// A chunk of the cache may hold more than four elements. So the row is stored as planes: the
// first four elements of all chunks, then the second four. Neighboring threads then access
// neighboring 16 bytes, without bank conflicts.
func (d *decodeGenerator) eachVec4(heads ptx.U32, do func(head, slot, vec ptx.U32), options ...ptx.LoopOption) {
	b, vec4s, chunks := d.b, d.shape.kv.headDim/4, d.shape.kv.chunks()
	b.For(b.ThreadX(), heads.MulN(vec4s), b.N(d.shape.threads), func(i ptx.U32) {
		head, slot := i.DivN(vec4s), i.RemN(vec4s)
		vec := slot
		if vec4s > chunks {
			vec = slot.MulN(2).Sub(ptx.Select(slot.LtN(chunks), b.U32(0), b.N(2*chunks-1)))
		}
		do(head, slot, vec)
	}, options...)
}
