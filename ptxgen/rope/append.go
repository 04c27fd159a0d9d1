// Package rope holds the kernel that rotates queries and keys by their positions (RoPE) and
// appends keys and values to the KV cache.
package rope

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/heads"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Append normalizes and rotates queries in place. It normalizes and rotates keys, normalizes values, and appends
// both to the KV cache. For a token at position p and each head's
// vector x of HeadDim elements, of which the first Rot are rotated, it computes
//
//	x    = x / sqrt(mean(x^2) + eps) * w   only with QNorm, KNorm or VNorm, as RMSNorm
//	a, b = a*cos - b*sin, a*sin + b*cos    angle p*Freq[j], for each pair j < Rot/2
//
// A pair is elements (2j, 2j+1), or with NeoX (j, j+Rot/2). Angles are computed and reduced
// in float64. Sine and cosine are multiplied by Factor. Values are not rotated. With QScales, rotated queries are multiplied by
// QScales[(p+QScaleOffset)/QScaleBlock]. The cache holds pages of page
// positions in format, F16 or BF16, rounded to nearest even:
//
//	cache[Table[sequence][p/page]][KV head][p mod page][i]
//
// page is a power of two. A launch leaves out what it does not need: without KVHeads it is
// RoPE alone, without Heads it only appends, with Rot = 0 it does not rotate. It skips
// tokens whose sequence has length 0. A head's result does not depend on other heads. The
// same operations of package ref are newRotation, apply and cacheLayer.append.
func Append(format quant.Format, page int) kernel.Typed[AppendArgs] {
	return kernel.New(fmt.Sprintf("rope_append_%s_p%d", host.FormatName(format), page),
		func(b *ptx.Builder) (*ptx.Kernel, error) { return build(b, format, page) },
		func(k *ptx.Kernel, a AppendArgs) (ptx.Launch, error) { return launch(k, a, page) })
}

// warps is the number of warps per CTA. Each takes heads in turn.
const warps = 8

// appendParams are the kernel parameters of Append beside those of Heads.
type appendParams struct {
	Q                                    ptx.Global
	Positions, Sequences, Lengths, Table ptx.Global
	KCache, VCache                       ptx.Global
	Heads, KVHeads                       ptx.U32
	HeadDim, ValueDim                    ptx.U32
	QStride, MaxPages                    ptx.U32
}

// generator is the state of the kernel while it is generated.
type generator struct {
	p        appendParams
	heads    *heads.Heads
	b        *ptx.Builder
	format   quant.Format // of the cache
	page     int          // positions per page
	token    ptx.U32
	position ptx.U32
	pageID   ptx.U32 // of the page that holds the position
}

func build(b *ptx.Builder, format quant.Format, page int) (*ptx.Kernel, error) {
	if format != quant.F16 && format != quant.BF16 {
		b.Failf("cache of %v: want F16 or BF16", format)
	}
	if page < 1 || page&(page-1) != 0 {
		b.Failf("a page of %d positions, which is no power of two", page)
	}
	if b.Err() != nil {
		return b.Finish()
	}
	b.Doc("q = rope(norm(q)) in place; cache[page][kv head][position mod %d] = rope(norm(k)) and norm(v)", page)
	g := generator{p: appendParams{KCache: ptx.AlignedTo(2), VCache: ptx.AlignedTo(2)}, b: b, format: format, page: page}
	p := &g.p
	g.token = b.BlockX()
	ptx.Declare(b, p)
	g.heads = heads.New(b, heads.MaxPairs, 32*warps)

	b.LaunchDependents()
	b.Comment("loads of what no kernel writes, before the wait")
	g.position = p.Positions.At(g.token, 4).LoadU32()
	sequence, active := g.sequence()
	g.pageID = ptx.Var(b.U32(0))
	b.If(active.And(p.KVHeads.Ne(b.U32(0))), func() {
		at := sequence.Mul(p.MaxPages).Add(g.position.DivN(page))
		ptx.Set(g.pageID, p.Table.At(at, 4).LoadU32())
	})
	g.heads.Load(g.position)
	g.heads.ComputeAngles()
	b.Barrier()
	b.WaitForPrior()
	b.ReturnIf(active.Not())
	b.Comment("a warp takes one query head, key head or value head at a time")
	first := b.BlockY().MulN(warps).Add(b.Warp())
	b.For(first, p.Heads.Add(p.KVHeads).Add(p.KVHeads), b.GridY().MulN(warps), func(item ptx.U32) {
		b.IfElse(item.Lt(p.Heads), func() {
			x := heads.Vector(p.Q, g.token, p.QStride, item, p.HeadDim)
			g.heads.Query(x, p.HeadDim, func(i ptx.U32, y ptx.F32) { x.At(i, 4).StoreF32(y) })
		}, func() { g.appendHead(item.Sub(p.Heads)) })
	}, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(32 * warps))
}

// sequence returns the token's sequence, and whether it is active.
func (g *generator) sequence() (sequence ptx.U32, active ptx.Pred) {
	b := g.b
	sequence, length := ptx.Var(b.U32(0)), ptx.Var(b.U32(1))
	b.If(device.NonNil(b, g.p.Sequences), func() { ptx.Set(sequence, g.p.Sequences.At(g.token, 4).LoadU32()) })
	b.If(device.NonNil(b, g.p.Lengths), func() { ptx.Set(length, g.p.Lengths.At(sequence, 4).LoadU32()) })
	return sequence, length.Ne(b.U32(0))
}

// appendHead appends a key head, or, from KVHeads on, a value head to its cache.
func (g *generator) appendHead(head ptx.U32) {
	p := &g.p
	// to returns a function that stores an element of the token's vector in a cache.
	to := func(cache ptx.Global, head, dim ptx.U32) func(i ptx.U32, y ptx.F32) {
		line := g.pageID.Mul(p.KVHeads).Add(head).MulN(g.page).Add(g.position.RemN(g.page))
		to := cache.AtBytes(line.MulWide(dim).Mul(g.b.U64(2))).Aligned(2)
		return func(i ptx.U32, y ptx.F32) { device.StoreAs(g.format, to.At(i, 2), y) }
	}
	g.b.IfElse(head.Lt(p.KVHeads), func() {
		g.heads.Key(g.heads.KeyAt(g.token, head, p.HeadDim), p.HeadDim, to(p.KCache, head, p.HeadDim))
	}, func() {
		head := head.Sub(p.KVHeads)
		g.heads.Value(g.heads.ValueAt(g.token, head, p.ValueDim), p.ValueDim, to(p.VCache, head, p.ValueDim))
	})
}

// AppendArgs are the arguments of a launch of Append.
type AppendArgs = heads.AppendArgs

func launch(k *ptx.Kernel, a AppendArgs, page int) (ptx.Launch, error) {
	a = a.Filled()
	if err := host.Valid(k, a.Checks(page)...); err != nil {
		return ptx.Launch{}, err
	}
	// Few tokens are spread over more CTAs, each of which computes the angles.
	parts := 1
	if a.Tokens <= 64 {
		parts = min(host.CeilDiv(a.Heads+2*a.KVHeads, warps), 65535)
	}
	return k.Launch([3]uint32{uint32(a.Tokens), uint32(parts), 1}, 32*warps, 0, &appendParams{
		Q: ptx.Addr(a.Q), QStride: ptx.Uint(a.QStride),
		Positions: ptx.Addr(a.Positions), Sequences: ptx.Addr(a.Sequences), Lengths: ptx.Addr(a.Lengths), Table: ptx.Addr(a.Table),
		KCache: ptx.Addr(a.KCache), VCache: ptx.Addr(a.VCache), MaxPages: ptx.Uint(a.MaxPages),
		Heads: ptx.Uint(a.Heads), KVHeads: ptx.Uint(a.KVHeads), HeadDim: ptx.Uint(a.HeadDim), ValueDim: ptx.Uint(a.ValueDim),
	}, a.Params())
}
