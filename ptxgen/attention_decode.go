package ptxgen

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// AttentionDecode is attention of one query a sequence over its cache, split into
// pages. For every page i that the query sees, and every query head g that reads KV
// head h of sequence s, it computes, over the visible positions j of the page
//
//	m = max_j s[g][j]      s as Scoring says
//	l = Σ_j exp(s[g][j] − m)
//	o = Σ_j exp(s[g][j] − m) · V[j]
//
// into scratch memory; AttentionCombine makes the output of that. The query's
// position is Lengths[s] − 1. CTA (c, h, s) takes every gridDim.x-th visible page,
// from the c-th on, while it copies K and V of the next one to shared memory. All heads of
// a group share one read of K and V. Everything is float32.
//
// A score is the sum over the lanes that share a row of K, in a tree, of serial
// sums; l and o are the sums over the page, and then of the pages in AttentionCombine,
// in an order that the position alone decides: not the batch, the table or the group.
type AttentionDecode struct {
	KV      quant.Format // F32, F16 or BF16
	HeadDim int          // a multiple of 8 up to 256
	Page    int          // positions, a power of two; 0: 64
}

// How the threads of a CTA share the page of one KV head.
type decodeShape struct {
	kvShape
	threads int
	// Products: lanes, a power of two, share a row of K, of which each has slices
	// times 16 bytes; a thread has keys rows.
	lanes, slices, keys int
	// Values: thread t has 16 bytes of each of values consecutive rows; there are
	// groups of threads that cover whole rows.
	values, groups int
	scores         int  // of a head in shared memory, the page and what is read beyond it
	heads          int  // whose values are added at a time
	oneBuffer      bool // for K and V in turn
}

const (
	decodeBytes  = 128      // of K, and as many of V, of a page that a thread copies about
	decodeLanes  = 8        // at most share a row of K
	decodeHeads  = 8        // at most have their values added at a time
	decodeMerged = 16 << 10 // bytes of their sums, if they are several
	decodeBuffer = 64 << 10 // bytes of K and V that an SM with little memory has room for
)

func (s AttentionDecode) shape() decodeShape {
	k := kvShape{s.KV, s.HeadDim, orElse(s.Page, defaultPage)}
	if k.check() != nil {
		return decodeShape{kvShape: k}
	}
	d := decodeShape{kvShape: k, threads: max(32, ceilDiv(k.page*k.rowBytes()/decodeBytes, 32)*32), lanes: 1}
	for d.lanes < decodeLanes && d.chunks()%(2*d.lanes) == 0 {
		d.lanes *= 2
	}
	d.slices = d.chunks() / d.lanes
	d.keys = ceilDiv(d.page, d.threads/d.lanes)
	d.groups = d.threads / d.chunks()
	d.values = ceilDiv(d.page, d.groups)
	d.scores = ceilDiv(max(d.page, ceilDiv(d.threads, d.chunks())*d.values), 4) * 4
	d.heads = max(1, min(decodeHeads, decodeMerged/d.mergedBytes()))
	d.oneBuffer = (d.keys*d.slices+d.values)*d.slotBytes() > decodeBuffer
	return d
}

// mergedBytes is what the sums of a head take until they are merged, slotBytes what 16
// bytes for each thread do, bufferBytes what the copies of K and V do.
func (d decodeShape) mergedBytes() int { return 4 * d.groups * d.headDim }
func (d decodeShape) slotBytes() int   { return 16 * d.threads }
func (d decodeShape) bufferBytes() int {
	if d.oneBuffer {
		return max(d.keys*d.slices, d.values) * d.slotBytes()
	}
	return (d.keys*d.slices + d.values) * d.slotBytes()
}

// Name implements Spec.
func (s AttentionDecode) Name() string {
	name := fmt.Sprintf("attention_decode_%s_d%d", strings.ToLower(s.KV.String()), s.HeadDim)
	if s.Page != 0 && s.Page != defaultPage {
		name += fmt.Sprintf("_p%d", s.Page)
	}
	return name
}

// resident is how many CTAs an SM runs at a time, each thread with 128 registers.
func (d decodeShape) resident() int { return max(1, 512/d.threads) }

// decoding is the kernel while it is generated.
type decoding struct {
	decodeShape
	b *ptx.Builder

	q, keyCache, valueCache         ptx.Global
	table, lengths                  ptx.Global
	sums, parts                     ptx.Global // [sequences][heads][maxPages] (m, l), and o
	stride, group, maxPages, window ptx.U32
	fresh                           ptx.U32
	scale, cap                      ptx.F32

	kvHead, kvHeads, sequence ptx.U32
	head                      ptx.U32    // the first of the group, among all sequences'
	first, length             ptx.U32    // visible positions
	begin, end, step          ptx.U32    // of the CTA's pages
	entry                     ptx.U32    // where the page lies whose keys are copied next
	row                       ptx.U32    // the KV head in the page whose keys were copied last
	keySlots, valueSlots      ptx.Shared // the thread's, slotBytes apart
	queries, weights, merged  ptx.Shared
}

// Build implements Spec.
func (s AttentionDecode) Build() (*ptx.Kernel, error) {
	d := decoding{decodeShape: s.shape(), b: ptx.New(s.Name())}
	b := d.b
	if err := d.check(); err != nil {
		b.Failf("%v", err)
	} else if d.threads > 512 {
		b.Failf("a page of %d bytes is more than 512 threads read", d.page*d.rowBytes())
	}
	if b.Err() != nil {
		return b.Finish()
	}
	d.declare()
	d.open()
	d.share()
	d.start()
	b.Barrier()
	b.For(d.begin, d.end, d.step, d.attend, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(d.threads), ptx.MinCTAs(d.resident()))
}

// start stages the queries and has the first page under way, before the kernel waits for
// those before it if none of them writes there. A CTA without a page ends.
func (d *decoding) start() {
	b := d.b
	early := d.fresh.Ne(b.U32(0)).And(d.begin.AddN(1).MulN(d.page).Add(d.fresh).Le(d.length))
	b.If(early, d.fetchFirst)
	b.WaitForPrior()
	b.ReturnIf(d.begin.Ge(d.end))
	d.stageQueries()
	b.IfElse(early, func() { b.CopyWait(0) }, func() {
		d.fetchFirst()
		b.CopyWait(d.underWay() + 1)
	})
}

func (d *decoding) fetchFirst() {
	d.fetchKeys(d.begin)
	d.b.CopyCommit()
	if !d.oneBuffer {
		d.fetchValues(d.begin)
		d.b.CopyCommit()
	}
}

// underWay is how many groups of copies there are behind the one that is waited for.
func (d *decoding) underWay() int {
	if d.oneBuffer {
		return 0
	}
	return 1
}

// attend is what a CTA does for a page. As soon as a thread has its part of the keys, or
// of the values, in registers, the memory is for what comes next.
func (d *decoding) attend(page ptx.U32) {
	b, next := d.b, page.Add(d.step)
	more := next.Lt(d.end)
	nextKeys := func() { b.If(more, func() { d.fetchKeys(next) }) }
	afterKeys, afterValues := nextKeys, func() { b.If(more, func() { d.fetchValues(next) }) }
	if d.oneBuffer {
		afterKeys, afterValues = func() { d.fetchValues(page) }, nextKeys
	}
	b.CopyWait(d.underWay())
	keys := d.unpackKeys()
	afterKeys()
	b.CopyCommit() // an empty group, too, counts
	d.scoreKeys(page, keys)
	b.Barrier()
	d.softmax(page)
	b.Barrier()
	b.CopyWait(d.underWay())
	values := d.unpackValues()
	afterValues()
	b.CopyCommit()
	d.addValues(page, values)
}

// declare takes the parameters.
func (d *decoding) declare() {
	b := d.b
	b.Doc("For each query head of KV head ctaid.y of sequence ctaid.z, over the visible\n"+
		"positions j of its pages, every nctaid.x-th: m = max s[j], l = sum exp(s[j]-m),\n"+
		"o = sum exp(s[j]-m) * V[j], where s[j] = softcap(scale * q.K[j]), head dim %d.", d.headDim)
	d.q, d.keyCache, d.valueCache = b.Global("q", 16), b.Global("k", 16), b.Global("v", 16)
	d.table, d.lengths = b.Global("table", 4), b.Global("lengths", 4)
	d.sums, d.parts = b.Global("sums", 16), b.Global("parts", 16)
	d.stride, d.group = b.ParamU32("q_stride"), b.ParamU32("group")
	d.maxPages, d.window, d.fresh = b.ParamU32("max_pages"), b.ParamU32("window"), b.ParamU32("fresh")
	d.scale, d.cap = b.ParamF32("scale"), b.ParamF32("softcap")
}

// open finds the CTA's pages, by what no kernel writes.
func (d *decoding) open() {
	b := d.b
	b.LaunchDependents()
	d.kvHead, d.sequence, d.kvHeads, d.step = b.BlockY(), b.BlockZ(), b.GridY(), b.GridX()
	d.head = d.sequence.Mul(d.kvHeads).Add(d.kvHead).Mul(d.group)
	d.table = d.table.At(d.sequence.Mul(d.maxPages), 4)
	d.length = d.lengths.At(d.sequence, 4).LoadU32()
	// Volatile, so that it does not move behind a branch, to wait for the length.
	d.entry = ptx.Var(d.table.At(b.BlockX(), 4).LoadU32(ptx.Volatile))
	d.row = ptx.Var(b.U32(0))
	d.first = windowStart(b, d.length, d.window)
	before := d.first.DivN(d.page)
	d.begin, d.end = before.Add(b.BlockX()), d.length.CeilDivN(d.page)
	again := before.Ne(b.U32(0)).And(d.begin.Lt(d.end))
	b.If(again, func() { ptx.Set(d.entry, d.table.At(d.begin, 4).LoadU32()) })
}

// share lays the shared memory out.
func (d *decoding) share() {
	all := d.b.DynamicShared(16)
	d.keySlots = all.At(d.b.ThreadX(), 16)
	d.valueSlots = d.keySlots
	if !d.oneBuffer {
		d.valueSlots = d.keySlots.Plus(d.keys * d.slices * d.slotBytes())
	}
	d.queries = all.Plus(d.bufferBytes())
	d.weights = d.queries.At(d.group, 4*d.headDim)
	d.merged = d.weights.At(d.group, 4*d.scores)
}

// Depth is how many additions follow one another, serially and in trees, in a score
// and in an output over length positions, AttentionCombine's included.
func (s AttentionDecode) Depth(length int) (score, output int) {
	d := s.shape()
	pages := ceilDiv(length, d.page)
	score = d.slices*d.pack() + bits.Len(uint(d.lanes))
	return score, d.values + d.groups + ceilDiv(pages, combineSums) + combineSums
}
