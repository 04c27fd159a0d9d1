// Package attention holds the kernels of causal attention over a paged KV cache.
//
// Decode computes one query per sequence. If several CTAs share a sequence, Combine merges their results. Prefill and
// PrefillWGMMA compute many queries per sequence (FlashAttention). All do the same operations in the same order, so a
// query has the same bits by each of them, whatever other queries a launch has.
//
// # Definition
//
// Keys are divided into blocks of Shape.BlockK, and two blocks are a split, both counted from position 0. Let ⌊x⌉ be x
// rounded to the format of the cache, f16 or bf16. 2^a is a power of two per query. In f16 it brings the largest
// element of q to [2^14, 2^15), so that none overflows and few are subnormal; in bf16 to [1, 2).
//
//	x[j] = ⌊2^a·q⌉ · K[j]                    steps of 16 elements one after another
//	e[j] = x[j] · Scale·log2(e)·2^-a         or softcapped, as Scoring says
//
// The blocks of a split are added one after another. m' is the value of m before the block:
//
//	m    = max(m', max_j e[j])               over the visible positions j of the block
//	w[j] = 2^(e[j] − m)
//	l    = Σ_j w[j] + 2^(m' − m)·l
//	o    = Σ_j ⌊w[j]⌉·V[j] + 2^(m' − m)·o    steps of 16 positions one after another
//
// The splits are added one after another. M' is the value of M before the split:
//
//	M   = max(M', m)
//	L   = 2^(m − M)·l + 2^(M' − M)·L
//	O   = 2^(m − M)·o + 2^(M' − M)·O
//	out = O · 1/(L + 2^(sink·log2(e) − M))
//
// A sum x·a + y·b is one multiplication, y·b, and one fused multiply-add. Lane t of four adds the weights of keys 8i + 2t
// and 8i + 2t + 1 of each block; the lanes are added when the split ends.
//
// Products run on tensor cores with float32 accumulators, everything else in float32.
package attention

import (
	"cmp"
	"fmt"
	"math"

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
	KV      quant.Format // F16 or BF16
	HeadDim int          // a multiple of 8 up to 128, or of 32 up to 512
	Page    int          // positions per page, a power of two from 16 to 1024; 0: PageTokens
	Append  bool         // Decode rotates queries and appends keys and values
	// BlockQ is the number of queries per CTA. Prefill takes a power of two from 16 to 128; 0: 128, 64 for a
	// head dim above 128, or 32 above 256. PrefillWGMMA takes 128, or 192 for a head dim up to 64; 0: 128. Decode has none.
	BlockQ int
	// BlockK is the number of keys per block, at least 16. It divides Page; 0: the smaller of Page and 64, or 32 for a head dim above
	// 128.
	BlockK int
}

// splitBlocks is the number of blocks per split.
const splitBlocks = 2

// layout returns the layout of the cache, and the number of keys per block.
func (s Shape) layout() (kv kvShape, blockK int) {
	kv = kvShape{s.KV, s.HeadDim, cmp.Or(s.Page, PageTokens)}
	most := 64
	if s.HeadDim > 128 {
		most = 32
	}
	return kv, cmp.Or(s.BlockK, min(most, kv.page))
}

// kvShape is the layout of the cache.
type kvShape struct {
	format  quant.Format
	headDim int
	page    int // positions
}

func (s kvShape) check() error {
	switch {
	case s.format != quant.F16 && s.format != quant.BF16:
		return fmt.Errorf("cache of %v: want F16 or BF16", s.format)
	case checkHeadDim(s.headDim) != nil:
		return checkHeadDim(s.headDim)
	case s.page < 16 || s.page > 1024 || s.page&(s.page-1) != 0:
		return fmt.Errorf("page of %d positions: no power of two from 16 to 1024", s.page)
	}
	return nil
}

// checkBlock checks a number of keys per block.
func checkBlock(s kvShape, blockK int) error {
	if blockK < 16 || s.page%blockK != 0 {
		return fmt.Errorf("BlockK: %d is less than 16, or does not divide a page of %d", blockK, s.page)
	}
	return nil
}

const maxHeadDim = 512

func checkHeadDim(n int) error {
	if n < 8 || n%8 != 0 || n > partDim && n%32 != 0 || n > maxHeadDim {
		return fmt.Errorf("head dim %d is no multiple of 8 up to %d, or of 32 up to %d", n, partDim, maxHeadDim)
	}
	return nil
}

// chunks is the number of 16-byte chunks in a row.
func (s kvShape) chunks() int   { return s.rowBytes() / 16 }
func (s kvShape) rowBytes() int { return 2 * s.headDim }

// splits returns how many splits of some keys a query sees at most.
func (s Scoring) splits(keys int) int {
	switch {
	case s.Window == 0:
		return math.MaxInt
	case s.Chunks:
		return host.CeilDiv(s.Window, keys)
	}
	return host.CeilDiv(s.Window-1, keys) + 1
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
		host.Refuse(s.Scale == 0, "Scale", "0 is not positive"), host.NonNegative("Scale", s.Scale), host.NonNegative("Softcap", s.Softcap),
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
	for _, f := range []quant.Format{quant.F16, quant.BF16} {
		s := Shape{KV: f, HeadDim: headDim}
		list = append(list, Prefill(s))
		if small := s.onLittleShared(); small != s {
			list = append(list, Prefill(small))
		}
		for _, s.Append = range []bool{true, false} {
			list = append(list, Decode(s))
		}
		for _, s.BlockQ = range []int{twoWarpgroupQueries, threeWarpgroupQueries} {
			if newWarpgroupShape(s).check() == nil {
				list = append(list, PrefillWGMMA(s))
			}
		}
	}
	return list
}
