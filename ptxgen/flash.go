package ptxgen

import (
	"fmt"
	"math"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// FlashAttention is attention of many queries a sequence over its cache, which
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
type FlashAttention struct {
	KV      quant.Format // F32, F16 or BF16
	HeadDim int          // a multiple of 8 up to 256
	Page    int          // positions, a power of two; 0: 64
	BlockQ  int          // queries a CTA, a power of two from 16; 0: 128, or 64 for a head dim above 128
	BlockK  int          // keys a step, from 16, divides Page; 0: 64, or 32 for a head dim above 128
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

func (s FlashAttention) shape() flashShape {
	queries, keys := 128, 64
	if s.HeadDim > 128 {
		queries, keys = 64, 32
	}
	page := orElse(s.Page, defaultPage)
	f := flashShape{
		kvShape: kvShape{s.KV, s.HeadDim, page}, tiles: 1,
		blockQ: orElse(s.BlockQ, queries), blockK: orElse(s.BlockK, min(keys, page)),
	}
	if f.blockQ >= 128 && s.HeadDim <= 128 {
		f.tiles = 2 // what a warp loads of K and V is used twice
	}
	f.threads = f.blockQ / 16 / f.tiles * 32
	f.width = ceilDiv(s.HeadDim, 16) * 16
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

// Name implements Spec.
func (s FlashAttention) Name() string {
	name := fmt.Sprintf("flash_attention_%s_d%d", strings.ToLower(s.KV.String()), s.HeadDim)
	f, d := s.shape(), FlashAttention{KV: s.KV, HeadDim: s.HeadDim}.shape()
	if f.page != d.page || f.blockQ != d.blockQ || f.blockK != d.blockK {
		name += fmt.Sprintf("_p%d_q%d_k%d", f.page, f.blockQ, f.blockK)
	}
	return name
}

// Build implements Spec.
func (s FlashAttention) Build() (*ptx.Kernel, error) {
	f := s.shape()
	b := begin(s)
	if err := f.check(); err != nil {
		b.Failf("%v", err)
		return b.Finish()
	}
	if s.KV == quant.BF16 {
		generateFlash(b, f, tensorType[ptx.BF16x2]{ptx.PackBF16, ptx.BF16x2.Bits, 0})
	} else {
		generateFlash(b, f, tensorType[ptx.F16x2]{ptx.PackF16, ptx.F16x2.Bits, 14})
	}
	return b.Finish(ptx.MaxThreads(f.threads))
}

// FlashAttentionArgs are a launch's arguments.
type FlashAttentionArgs struct {
	Q      Address // f32 [queries] rows of [Heads][HeadDim], QStride apart
	Out    Address // f32 [queries] rows of [Heads][HeadDim], OutStride apart
	Starts Address // u32 [Sequences+1]: the first query of each sequence, and how many there are
	PagedKV
	Scoring
	Sequences, Heads   int
	QStride, OutStride int // in elements, multiples of 4
	MaxQueries         int // of a sequence, at least
}

// Launch makes a launch.
func (s FlashAttention) Launch(k *ptx.Kernel, a FlashAttentionArgs) (ptx.Launch, error) {
	f := s.shape()
	if err := firstError(a.PagedKV.check(k, a.Sequences, a.Heads, f.page), a.Scoring.check(k),
		checkStride(k, "QStride", a.QStride, a.Heads*s.HeadDim, maxSize), checkStride(k, "OutStride", a.OutStride, a.Heads*s.HeadDim, maxSize),
		checkBounds(k, bound{"MaxQueries", a.MaxQueries, 1, 65535 * f.blockQ}),
		checkPointers(k, pointer{"Q", a.Q}, pointer{"Out", a.Out}, pointer{"Starts", a.Starts})); err != nil {
		return ptx.Launch{}, err
	}
	tiles := ceilDiv(a.MaxQueries, f.blockQ)
	return k.Launch([3]uint32{uint32(a.Heads), uint32(tiles), uint32(a.Sequences)}, f.threads, f.sharedBytes(),
		ptx.Addr(a.Q), ptx.Addr(a.K), ptx.Addr(a.V), ptx.Addr(a.Out), ptx.Addr(a.Table), ptx.Addr(a.Lengths),
		ptx.Addr(a.Starts), ptx.Uint(a.QStride), ptx.Uint(a.OutStride), ptx.Uint(a.KVHeads), ptx.Uint(a.Heads/a.KVHeads),
		ptx.Uint(a.MaxPages), ptx.Uint(a.Window), ptx.Float(float32(float64(a.Scale)*math.Log2E)), ptx.Float(a.Scale), ptx.Float(a.Softcap))
}

// Depth is how many steps of a tensor core, of eight products each, follow one
// another in a score and in an output over length positions.
func (s FlashAttention) Depth(length int) (score, output int) {
	return s.shape().width / 8, ceilDiv(length, 8)
}
