package ptxgen

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// AttentionDecode is attention of one query a sequence over its cache, split into
// pages. CTA (i, h, s) computes, for every query head g that reads KV head h of
// sequence s, over the visible positions j of page i
//
//	m = max_j s[g][j]      s as Scoring says
//	l = Σ_j exp(s[g][j] − m)
//	o = Σ_j exp(s[g][j] − m) · V[j]
//
// into scratch memory; AttentionCombine makes the output of that. The query's
// position is Lengths[s] − 1. All heads of a group share one read of K and V, all
// of which is under way before the first byte is used. Pages beyond the length or
// before the window end at once. Everything is float32.
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
	scores         int // of a head in shared memory, the page and what is read beyond it
}

const (
	decodeBytes = 128 // of K, and as many of V, that a thread loads about
	decodeLanes = 8   // at most share a row of K
	decodeHeads = 8   // whose values are added at a time
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
	return d
}

// Name implements Spec.
func (s AttentionDecode) Name() string {
	name := fmt.Sprintf("attention_decode_%s_d%d", strings.ToLower(s.KV.String()), s.HeadDim)
	if s.Page != 0 && s.Page != defaultPage {
		name += fmt.Sprintf("_p%d", s.Page)
	}
	return name
}

// decoding is the kernel while it is generated.
type decoding struct {
	decodeShape
	b *ptx.Builder

	q, keyCache, valueCache         ptx.Global
	table, lengths                  ptx.Global
	sums, parts                     ptx.Global // [sequences][heads][maxPages] (m, l), and o
	stride, group, maxPages, window ptx.U32
	scale, cap                      ptx.F32

	split, kvHead, kvHeads, sequence ptx.U32
	head                             ptx.U32 // the first of the group, among all sequences'
	start, length                    ptx.U32 // visible positions
	from, to                         ptx.U32 // of them those within the page
	queries, weights, merged         ptx.Shared
}

// Build implements Spec.
func (s AttentionDecode) Build() (*ptx.Kernel, error) {
	d := decoding{decodeShape: s.shape(), b: begin(s)}
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
	row := d.open().Mul(d.kvHeads).Add(d.kvHead)
	k := d.loadKeys(d.keyCache.At(row, d.page*d.rowBytes()))
	v := d.loadValues(d.valueCache.At(row, d.page*d.rowBytes()))
	d.queries = b.DynamicShared(16)
	d.weights = d.queries.At(d.group, 4*d.headDim)
	d.merged = d.weights.At(d.group, 4*d.scores)
	d.stageQueries()
	b.Barrier()
	d.scoreKeys(k)
	b.Barrier()
	d.softmax()
	b.Barrier()
	d.addValues(v)
	return b.Finish(ptx.MaxThreads(d.threads))
}

// declare takes the parameters.
func (d *decoding) declare() {
	b := d.b
	b.Doc("For each query head of KV head ctaid.y of sequence ctaid.z, over the visible\n"+
		"positions j of its page ctaid.x: m = max s[j], l = sum exp(s[j]-m),\n"+
		"o = sum exp(s[j]-m) * V[j], where s[j] = softcap(scale * q.K[j]), head dim %d.", d.headDim)
	d.q, d.keyCache, d.valueCache = b.Global("q", 16), b.Global("k", 16), b.Global("v", 16)
	d.table, d.lengths = b.Global("table", 4), b.Global("lengths", 4)
	d.sums, d.parts = b.Global("sums", 16), b.Global("parts", 16)
	d.stride, d.group = b.ParamU32("q_stride"), b.ParamU32("group")
	d.maxPages, d.window = b.ParamU32("max_pages"), b.ParamU32("window")
	d.scale, d.cap = b.ParamF32("scale"), b.ParamF32("softcap")
}

// open finds the CTA's page and the visible positions in it, and gives the page's
// place in memory. A CTA without any ends.
func (d *decoding) open() ptx.U32 {
	b := d.b
	d.split, d.kvHead, d.sequence, d.kvHeads = b.BlockX(), b.BlockY(), b.BlockZ(), b.GridY()
	d.head = d.sequence.Mul(d.kvHeads).Add(d.kvHead).Mul(d.group)
	d.length = d.lengths.At(d.sequence, 4).LoadU32()
	// Volatile, so that it does not move behind the returns, to wait for the length.
	page := d.table.At(d.sequence.Mul(d.maxPages).Add(d.split), 4).LoadU32(ptx.Volatile)
	base := d.split.MulN(d.page)
	d.start = windowStart(b, d.length, d.window)
	b.Comment("this page is beyond the length or before the window: for all threads alike")
	b.ReturnIf(base.Ge(d.length))
	b.ReturnIf(base.AddN(d.page).Le(d.start))
	d.from, d.to = d.start.Max(base).Sub(base), d.length.Sub(base).Min(b.N(d.page))
	return page
}

// AttentionDecodeArgs are a launch's arguments.
type AttentionDecodeArgs struct {
	Q       Address // f32 [Sequences] rows of [Heads][HeadDim], QStride apart
	Scratch Address // ScratchBytes, 16-byte aligned; AttentionCombine reads it
	PagedKV
	Scoring
	Sequences, Heads int
	QStride          int // in elements, a multiple of 4
	Pages            int // that the longest sequence has, or more up to MaxPages; 0: MaxPages
}

// ScratchBytes is the size of what AttentionDecode leaves to AttentionCombine.
func (s AttentionDecode) ScratchBytes(sequences, heads, maxPages int) int64 {
	return scratchSums(sequences, heads, maxPages) + 4*int64(s.HeadDim)*int64(sequences)*int64(heads)*int64(maxPages)
}

// scratchSums is the size of the part that holds (m, l) of each page of each head
// of each sequence; the part with o follows.
func scratchSums(sequences, heads, maxPages int) int64 {
	return (8*int64(sequences)*int64(heads)*int64(maxPages) + 15) / 16 * 16
}

// Launch makes a launch.
func (s AttentionDecode) Launch(k *ptx.Kernel, a AttentionDecodeArgs) (ptx.Launch, error) {
	d, pages := s.shape(), orElse(a.Pages, a.MaxPages)
	longest := maxSize / max(a.Sequences, 1) // stride, for rows to be counted in 32 bits
	if err := firstError(a.PagedKV.check(k, a.Sequences, a.Heads, d.page), a.Scoring.check(k),
		checkStride(k, "QStride", a.QStride, a.Heads*s.HeadDim, longest), checkBounds(k, bound{"Pages", pages, 1, a.MaxPages}),
		checkPointers(k, pointer{"Q", a.Q}, pointer{"Scratch", a.Scratch})); err != nil {
		return ptx.Launch{}, err
	}
	group := a.Heads / a.KVHeads
	shared := 4*group*(d.headDim+d.scores) + 4*min(group, decodeHeads)*d.groups*d.headDim
	args := []ptx.Arg{
		ptx.Addr(a.Q), ptx.Addr(a.K), ptx.Addr(a.V), ptx.Addr(a.Table), ptx.Addr(a.Lengths),
		ptx.Addr(a.Scratch), ptx.Addr(a.Scratch + uint64(scratchSums(a.Sequences, a.Heads, a.MaxPages))),
		ptx.Uint(a.QStride), ptx.Uint(group), ptx.Uint(a.MaxPages), ptx.Uint(a.Window),
		ptx.Float(a.Scale), ptx.Float(a.Softcap),
	}
	return k.Launch([3]uint32{uint32(pages), uint32(a.KVHeads), uint32(a.Sequences)}, d.threads, shared, args...)
}

// Depth is how many additions follow one another, serially and in trees, in a score
// and in an output over length positions, AttentionCombine's included.
func (s AttentionDecode) Depth(length int) (score, output int) {
	d := s.shape()
	pages := ceilDiv(length, d.page)
	score = d.slices*d.pack() + bits.Len(uint(d.lanes))
	return score, d.values + d.groups + ceilDiv(pages, combineSums) + combineSums
}
