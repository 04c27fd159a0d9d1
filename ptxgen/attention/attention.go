// Package attention holds the kernels of causal attention over a paged KV cache.
//
// Decode computes one query per sequence with the precision of float32, split by pages. If several CTAs share a
// sequence, Combine merges the splits. Prefill computes many queries per sequence on tensor cores (FlashAttention).
package attention

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// PageTokens is the number of positions in a page of the KV cache of an engine.
const PageTokens = 64

// PagedKV holds the keys and values of one layer. K and V are each
//
//	[pages][KVHeads][page][head dim]
//
// in the format of the kernel. Position p of sequence s is in page Table[s][p/page]. A
// sequence of length 0 is an inactive batch slot: nothing is read or written for it. Decode and
// Combine read Table and Lengths before they wait for prior kernels
// (ptx.Builder.WaitForPrior), so no kernel may write them that may still run when these start.
type PagedKV struct {
	K, V     ptx.Address
	Table    ptx.Address // u32 [sequences][MaxPages], page numbers
	Lengths  ptx.Address // u32 [sequences], positions in the cache, including those of the queries
	KVHeads  int
	MaxPages int // pages per sequence in Table
}

// Scoring says how scores follow from queries and keys:
//
//	s = Scale · q·K[j], then Softcap·tanh(s/Softcap) unless Softcap is 0
//
// A query at position p sees the positions j ≤ p; with a Window, only j > p − Window, or with Chunks only those with
// ⌊j/Window⌋ = ⌊p/Window⌋. The sink of a head is one more
// score, whose value is 0 in every element. So it only adds exp(sink − M) to the sum that outputs are divided
// by, where M is the largest score of a position.
type Scoring struct {
	Scale   float32     // positive
	Softcap float32     // 0: none
	Window  int         // in positions, including the query's own; 0: none
	Chunks  bool        // Window is the size of chunks, a power of two
	Sinks   ptx.Address // f32 [heads]; 0: none
}

// Shape selects a kernel of Decode, Prefill or PrefillWGMMA.
type Shape struct {
	KV      quant.Format // F32, F16 or BF16
	HeadDim int          // a multiple of 8 up to 256, or of 32 up to 512
	Page    int          // positions per page, a power of two from 16 to 1024; 0: PageTokens
	Append  bool         // Decode rotates queries and appends keys and values
	// BlockQ is the number of queries per CTA. Prefill takes a power of two from 16 to 128; 0: 128, 64 for a
	// head dim above 128, or 32 above 256. PrefillWGMMA takes 128, or 192 for a head dim up to 128; 0: 128. Decode has none.
	BlockQ int
	// BlockK is the number of keys between two updates of the maximum in a prefill, at least 16. It divides Page; 0:
	// 64, or 32 for a head dim above 128.
	BlockK int
}

// kvShape is the layout of the cache.
type kvShape struct {
	format  quant.Format
	headDim int
	page    int // positions
}

func (s kvShape) check() error {
	switch {
	case s.format != quant.F32 && s.format != quant.F16 && s.format != quant.BF16:
		return fmt.Errorf("cache of %v: want F32, F16 or BF16", s.format)
	case checkHeadDim(s.headDim) != nil:
		return checkHeadDim(s.headDim)
	case s.page < 16 || s.page > 1024 || s.page&(s.page-1) != 0:
		return fmt.Errorf("page of %d positions: no power of two from 16 to 1024", s.page)
	}
	return nil
}

// Prefill divides heads of more than largeHead elements among CTAs.
const largeHead, maxHeadDim = 256, 512

func checkHeadDim(n int) error {
	if n < 8 || n%8 != 0 || n > largeHead && n%32 != 0 || n > maxHeadDim {
		return fmt.Errorf("head dim %d is no multiple of 8 up to %d, or of 32 up to %d", n, largeHead, maxHeadDim)
	}
	return nil
}

// chunks is the number of 16-byte chunks in a row.
func (s kvShape) chunks() int   { return s.rowBytes() / 16 }
func (s kvShape) rowBytes() int { return s.headDim * s.format.BlockBytes() }

// span returns the kernel parameters of Window and Chunks: the largest number of positions that a query sees, and chunkMask.
// position & chunkMask is the first position of the query's chunk, or 0 without Chunks.
func (s Scoring) span() (window, chunkMask ptx.U32) {
	chunkMask = ptx.Uint(0)
	if s.Chunks {
		chunkMask = ptx.Uint(-uint32(s.Window))
	}
	if s.Window == 0 {
		return ptx.Uint(uint32(math.MaxUint32)), chunkMask
	}
	return ptx.Uint(s.Window), chunkMask
}

// windowStart returns the first position that a query at position length-1 sees: see Scoring.span.
func windowStart(length, window, chunkMask ptx.U32) ptx.U32 {
	return length.Sub(length.Min(window)).Max(length.AddN(-1).And(chunkMask))
}

// pages returns how many pages a query sees at most.
func (s Scoring) pages(page int) int {
	switch {
	case s.Window == 0:
		return math.MaxInt
	case s.Chunks:
		return host.CeilDiv(s.Window, page)
	}
	return host.CeilDiv(s.Window-1, page) + 1
}

// addSink returns sum plus the weight of a head's sink, if there are sinks. weight returns it from the sink.
func addSink(b *ptx.Builder, sum ptx.F32, sinks ptx.Global, head ptx.U32, weight func(sink ptx.F32) ptx.F32) ptx.F32 {
	all := ptx.Var(sum)
	b.If(device.NonNil(b, sinks), func() { ptx.Set(all, all.Add(weight(sinks.At(head, 4).LoadF32()))) })
	return all
}

// finiteMax returns x, or 0 if x is -Inf, the maximum of scores that are all masked. So the
// difference of a masked score from it is -Inf, not NaN, and its weight is 0.
func finiteMax(b *ptx.Builder, x ptx.F32) ptx.F32 {
	return ptx.Select(x.Eq(minusInf(b)), b.F32(0), x)
}

func minusInf(b *ptx.Builder) ptx.F32 { return b.F32(float32(math.Inf(-1))) }

func (kv PagedKV) checks(sequences, heads, page int) []host.Check {
	return []host.Check{
		host.Bound("Sequences", sequences, 1, 65535), host.Bound("Heads", heads, 1, 65535), host.Bound("KVHeads", kv.KVHeads, 1, heads),
		checkPages(sequences, kv.MaxPages, page),
		host.Refuse(heads%max(kv.KVHeads, 1) != 0, "KVHeads", "%d do not divide %d heads", kv.KVHeads, heads),
		host.NonNil("K", kv.K), host.NonNil("V", kv.V), host.NonNil("Table", kv.Table), host.NonNil("Lengths", kv.Lengths),
	}
}

func (s Scoring) checks() []host.Check {
	return []host.Check{
		host.Refuse(s.Scale == 0, "Scale", "0 is not positive"), host.Number("Scale", s.Scale), host.Number("Softcap", s.Softcap),
		host.Bound("Window", s.Window, 0, host.MaxSize),
		host.Refuse(s.Chunks && s.Window&(s.Window-1) != 0, "Window", "chunks of %d: no power of two", s.Window),
		host.Refuse(s.Chunks && s.Window == 0, "Chunks", "there is no Window"),
	}
}

// checkPages checks that positions of a sequence, and entries of Table, fit 32 bits.
func checkPages(sequences, maxPages, page int) host.Check {
	return host.Bound("MaxPages", maxPages, 1, host.MaxSize/max(page, sequences, 1))
}

// checkStride checks the distance between float32 rows: vector accesses need a multiple of 4.
func checkStride(name string, stride, width, most int) []host.Check {
	return []host.Check{
		host.Refuse(stride%4 != 0, name, "%d is no multiple of 4", stride),
		host.Bound(name, stride, width, most),
	}
}

// Specs returns the kernels of a head dim for every format of the cache.
func Specs(headDim int) []kernel.Spec {
	list := []kernel.Spec{Combine(headDim)}
	for _, f := range []quant.Format{quant.F32, quant.F16, quant.BF16} {
		s := Shape{KV: f, HeadDim: headDim}
		list = append(list, Prefill(s))
		for _, s.Append = range []bool{true, false} {
			list = append(list, Decode(s))
		}
		for _, s.BlockQ = range []int{leastQueries, mostQueries} {
			if newWarpgroupShape(s).check() == nil {
				list = append(list, PrefillWGMMA(s))
			}
		}
	}
	return list
}
