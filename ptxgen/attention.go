package ptxgen

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// PagedKV is one layer's keys and values as a launch finds them. K and V are each
//
//	[pages][KVHeads][page][head dim]
//
// of the kernel's format. Position p of sequence s lies in page Table[s·MaxPages +
// p/page]. A sequence of length 0 is an inactive slot: nothing is read or written
// for it. AttentionDecode and AttentionCombine read Table and Lengths early
// (ptx.Builder.WaitForPrior): no kernel that may still run may write them.
type PagedKV struct {
	K, V     Address
	Table    Address // u32 [sequences][MaxPages]
	Lengths  Address // u32 [sequences]: positions that are there, those computed now included
	KVHeads  int
	MaxPages int
}

// Scoring is what becomes of the products of queries and keys:
//
//	s = Scale · q·K[j], then Softcap·tanh(s/Softcap) unless it is 0
//
// where a query at position p sees the positions j ≤ p, with a Window those above
// p − Window only.
type Scoring struct {
	Scale   float32 // positive
	Softcap float32 // 0: none
	Window  int     // in positions, the query's own included; 0: none
}

// kvShape is what attention kernels are generated for.
type kvShape struct {
	format  quant.Format
	headDim int
	page    int // positions
}

const defaultPage = 64

func (s kvShape) check() error {
	switch {
	case s.format != quant.F32 && s.format != quant.F16 && s.format != quant.BF16:
		return fmt.Errorf("KV: %v, want F32, F16 or BF16", s.format)
	case s.headDim < 8 || s.headDim > 256 || s.headDim%8 != 0:
		return fmt.Errorf("HeadDim: %d is no multiple of 8 up to 256", s.headDim)
	case s.page < 16 || s.page > 1024 || s.page&(s.page-1) != 0:
		return fmt.Errorf("Page: %d is no power of two from 16 to 1024", s.page)
	}
	return nil
}

// pack is how many elements 16 bytes hold, chunks how many times 16 bytes a row is.
func (s kvShape) pack() int     { return 16 / s.format.BlockBytes() }
func (s kvShape) chunks() int   { return s.headDim / s.pack() }
func (s kvShape) rowBytes() int { return s.headDim * s.format.BlockBytes() }

// unpackKV gives the elements of 16 bytes, exactly.
func unpackKV(f quant.Format, v [4]ptx.U32) []ptx.F32 {
	var list []ptx.F32
	for _, w := range v {
		switch f {
		case quant.F32:
			list = append(list, w.AsF32())
		case quant.F16:
			lo, hi := w.AsF16x2().F32()
			list = append(list, lo, hi)
		default:
			lo, hi := w.AsBF16x2().F32()
			list = append(list, lo, hi)
		}
	}
	return list
}

// windowStart is the first position that a query at position length-1 sees.
func windowStart(b *ptx.Builder, length, window ptx.U32) ptx.U32 {
	cut := window.Ne(b.U32(0)).And(length.Gt(window))
	return ptx.Select(cut, length.Sub(window), b.U32(0))
}

// numberOrZero is x, but 0 where x is -Inf: the maximum of scores of which none
// counts. A difference from it is then -Inf, whose power is 0, and not NaN.
func numberOrZero(b *ptx.Builder, x ptx.F32) ptx.F32 {
	return ptx.Select(x.Eq(minusInf(b)), b.F32(0), x)
}

func minusInf(b *ptx.Builder) ptx.F32 { return b.F32(float32(math.Inf(-1))) }

// check holds the arguments that every attention launch has to what they may be.
func (kv PagedKV) check(k *ptx.Kernel, sequences, heads, page int) error {
	if err := checkBounds(k, bound{"Sequences", sequences, 1, 65535}, bound{"Heads", heads, 1, 65535},
		bound{"KVHeads", kv.KVHeads, 1, heads}); err != nil {
		return err
	}
	if err := checkPages(k, sequences, kv.MaxPages, page); err != nil {
		return err
	}
	if heads%kv.KVHeads != 0 {
		return argumentError(k, "KVHeads", "%d do not divide %d heads", kv.KVHeads, heads)
	}
	return checkPointers(k, pointer{"K", kv.K}, pointer{"V", kv.V}, pointer{"Table", kv.Table}, pointer{"Lengths", kv.Lengths})
}

func (s Scoring) check(k *ptx.Kernel) error {
	if s.Scale == 0 {
		return argumentError(k, "Scale", "0 is not positive")
	}
	return firstError(checkNumbers(k, number{"Scale", s.Scale}, number{"Softcap", s.Softcap}),
		checkBounds(k, bound{"Window", s.Window, 0, maxSize}))
}

// checkPages holds a sequence's pages to what lets positions, and places in the table,
// be counted in 32 bits.
func checkPages(k *ptx.Kernel, sequences, maxPages, page int) error {
	return checkBounds(k, bound{"MaxPages", maxPages, 1, maxSize / max(page, sequences)})
}

// checkStride holds the distance between rows of f32 to what 16-byte accesses need.
func checkStride(k *ptx.Kernel, name string, stride, width, most int) error {
	if stride%4 != 0 {
		return argumentError(k, name, "%d is no multiple of 4", stride)
	}
	return checkBounds(k, bound{name, stride, width, most})
}

// attentionHeadDims are those of the architectures that the engine knows: GPT-2,
// Llama, Qwen, Mistral and Gemma 2 (64, 128), Phi-2 (80), Phi-3 (96), Gemma (256).
var attentionHeadDims = []int{64, 80, 96, 128, 256}

var kvFormats = []quant.Format{quant.F32, quant.F16, quant.BF16}

func attentionSpecs() []Spec {
	var list []Spec
	for _, d := range attentionHeadDims {
		list = append(list, AttentionCombine{HeadDim: d})
		for _, f := range kvFormats {
			list = append(list, AttentionDecode{KV: f, HeadDim: d}, FlashAttention{KV: f, HeadDim: d})
		}
	}
	return list
}
