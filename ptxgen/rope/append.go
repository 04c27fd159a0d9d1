// Package rope holds the kernel that rotates queries and keys by their positions (RoPE) and
// appends keys and values to the KV cache.
package rope

import (
	"cmp"
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

const (
	warps    = 8   // per CTA; each takes heads in turn
	maxPairs = 256 // rotated pairs per head
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
// positions in format, F32, F16 or BF16, rounded to nearest even:
//
//	cache[Table[sequence][p/page]][KV head][p mod page][i]
//
// page is a power of two. A launch leaves out what it does not need: without KVHeads it is
// RoPE alone, without Heads it only appends, with Rot = 0 it does not rotate. It skips
// tokens whose sequence has length 0. A head's result does not depend on other heads. The
// same operations of package ref are newRotation, apply and cacheLayer.append.
func Append(format quant.Format, page int) kernel.Typed[AppendArgs] {
	name := "rope_append_" + host.FormatName(format)
	if page != attention.PageTokens {
		name += fmt.Sprintf("_p%d", page)
	}
	return kernel.New(name,
		func(b *ptx.Builder) (*ptx.Kernel, error) { return build(b, format, page) },
		func(k *ptx.Kernel, a AppendArgs) (ptx.Launch, error) { return launch(k, a, page) })
}

type params struct {
	Q, K, V                              ptx.Global
	QNorm, KNorm, VNorm                  ptx.Global
	Freq                                 ptx.Global `align:"8"`
	QScales                              ptx.Global
	Positions, Sequences, Lengths, Table ptx.Global
	KCache, VCache                       ptx.Global
	Heads, KVHeads                       ptx.U32
	HeadDim, ValueDim                    ptx.U32
	Half                                 ptx.U32 // rotated pairs
	Step                                 ptx.U32 // from the first element of a pair to that of the next
	Gap                                  ptx.U32 // from the first element of a pair to its second
	MaxPages                             ptx.U32
	QStride, KStride, VStride            ptx.U32
	QScaleBlock, QScaleOffset            ptx.U32
	Eps, Factor                          ptx.F32
}

// generator is the state of the kernel while it is generated.
type generator struct {
	p        params
	b        *ptx.Builder
	format   quant.Format // of the cache
	page     int          // positions per page
	token    ptx.U32
	position ptx.U32
	pageID   ptx.U32    // of the page that holds the position
	angles   ptx.Shared // [pair]: sine and cosine
}

func build(b *ptx.Builder, format quant.Format, page int) (*ptx.Kernel, error) {
	size := device.FloatBytes(b, format)
	if page < 1 || page&(page-1) != 0 {
		b.Failf("a page of %d positions, which is no power of two", page)
	}
	if b.Err() != nil {
		return b.Finish()
	}
	b.Doc("q = rope(norm(q)) in place; cache[page][kv head][position mod %d] = rope(norm(k)) and norm(v)", page)
	g := generator{p: params{KCache: ptx.AlignedTo(size), VCache: ptx.AlignedTo(size)}, b: b, format: format, page: page}
	p := &g.p
	g.token = b.BlockX()
	ptx.Declare(b, p)

	b.LaunchDependents()
	b.Comment("loads of what no kernel writes, before the wait")
	g.position = p.Positions.At(g.token, 4).LoadU32()
	sequence, active := g.sequence()
	g.pageID = ptx.Var(b.U32(0))
	b.If(active.And(p.KVHeads.Ne(b.U32(0))), func() {
		at := sequence.Mul(p.MaxPages).Add(g.position.DivN(page))
		ptx.Set(g.pageID, p.Table.At(at, 4).LoadU32())
	})
	scale := ptx.Var(b.F32(1))
	b.If(device.NonNil(b, p.QScales), func() {
		ptx.Set(scale, p.QScales.At(g.position.Add(p.QScaleOffset).Div(p.QScaleBlock), 4).LoadF32())
	})
	g.computeAngles()
	b.WaitForPrior()
	b.ReturnIf(active.Not())
	b.Comment("a warp takes one query head, key head or value head at a time")
	first := b.BlockY().MulN(warps).Add(b.Warp())
	b.For(first, p.Heads.Add(p.KVHeads).Add(p.KVHeads), b.GridY().MulN(warps), func(item ptx.U32) {
		b.IfElse(item.Lt(p.Heads), func() {
			x := g.vector(p.Q, p.QStride, item, p.HeadDim)
			g.rotateHead(x, p.QNorm, func(i ptx.U32, y ptx.F32) { x.At(i, 4).StoreF32(y.Mul(scale)) })
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

// computeAngles leaves the sine and cosine of each pair in shared memory, for all heads.
func (g *generator) computeAngles() {
	b := g.b
	g.angles = b.Shared("angles", 8*maxPairs, 8)
	b.For(b.ThreadX(), g.p.Half, b.ThreadsX(), func(j ptx.U32) {
		sc := newSincos(b, g.position.F64().Mul(g.p.Freq.At(j, 8).LoadF64()), g.p.Factor)
		g.angles.At(j, 8).StoreF32x2([2]ptx.F32{sc.sin, sc.cos})
	}, ptx.NoUnroll)
	b.Barrier()
}

// vector returns the address of the token's vector of a head in a float32 buffer.
func (g *generator) vector(p ptx.Global, stride, head, dim ptx.U32) ptx.Global {
	return p.AtBytes(g.token.MulWide(stride).Add(head.MulWide(dim)).ShlN(2)).Aligned(4)
}

// cached returns the address of the token's vector of a KV head in a cache.
func (g *generator) cached(cache ptx.Global, head, dim ptx.U32) ptx.Global {
	size := g.format.BlockBytes()
	line := g.pageID.Mul(g.p.KVHeads).Add(head).MulN(g.page).Add(g.position.RemN(g.page))
	return cache.AtBytes(line.MulWide(dim).Mul(g.b.U64(uint64(size)))).Aligned(size)
}

// appendHead appends a key head, or, from KVHeads on, a value head to its cache.
func (g *generator) appendHead(head ptx.U32) {
	p := &g.p
	g.b.IfElse(head.Lt(p.KVHeads), func() {
		to := g.cached(p.KCache, head, p.HeadDim)
		g.rotateHead(g.vector(p.K, p.KStride, head, p.HeadDim), p.KNorm, func(i ptx.U32, y ptx.F32) {
			device.StoreAs(g.format, to.At(i, g.format.BlockBytes()), y)
		})
	}, func() {
		head := head.Sub(p.KVHeads)
		g.appendValue(g.cached(p.VCache, head, p.ValueDim), g.vector(p.V, p.VStride, head, p.ValueDim))
	})
}

// appendValue normalizes a value vector if VNorm is not 0, and rounds it into the cache. Each lane has several loads in
// flight.
func (g *generator) appendValue(to, from ptx.Global) {
	b, dim, weight := g.b, g.p.ValueDim, g.p.VNorm
	m := g.moments(from, weight, dim)
	const loads = 4
	b.For(b.Lane(), dim, b.U32(32*loads), func(first ptx.U32) {
		var x [loads]ptx.F32
		for j := range x {
			x[j] = ptx.Var(from.At(first.AddN(32*j).Min(dim.AddN(-1)), 4).LoadF32())
		}
		for j := range x {
			i := first.AddN(32 * j)
			b.If(i.Lt(dim), func() {
				b.If(device.NonNil(b, weight), func() { ptx.Set(x[j], m.Normalize(x[j]).Mul(weight.At(i, 4).LoadF32())) })
				device.StoreAs(g.format, to.At(i, g.format.BlockBytes()), x[j])
			})
		}
	}, ptx.NoUnroll)
}

// rotateHead normalizes the vector x if weight is not 0, rotates its pairs, and calls store
// for every element. A lane loads and stores the same elements, so store may write to x.
func (g *generator) rotateHead(x, weight ptx.Global, store func(i ptx.U32, y ptx.F32)) {
	b := g.b
	m := g.moments(x, weight, g.p.HeadDim)
	pairs := g.p.HeadDim.ShrN(1)
	const loads = 2 // pairs that a lane has in flight
	b.For(b.Lane(), pairs, b.U32(32*loads), func(first ptx.U32) {
		var list [loads]pair
		for k := range list {
			index := first.AddN(32 * k)
			list[k] = g.loadPair(x, index, ptx.Select(index.Lt(pairs), index, first))
		}
		for _, p := range list {
			b.If(p.index.Lt(pairs), func() {
				g.rotatePair(p, m, weight)
				store(p.i, p.u)
				store(p.j, p.v)
			})
		}
	}, ptx.NoUnroll)
}

// moments returns the statistics of the norm of the vector x if weight is not 0.
func (g *generator) moments(x, weight ptx.Global, dim ptx.U32) device.Moments {
	b := g.b
	m := device.Moments{Scale: ptx.Var(b.F32(1)), Inverse: ptx.Var(b.F32(1))}
	b.If(device.NonNil(b, weight), func() {
		row := device.Warp(b).Cache(device.RowAt(b, quant.F32, x, dim), 0)
		st := row.Moments(false, g.p.Eps)
		ptx.Set(m.Scale, st.Scale)
		ptx.Set(m.Inverse, st.Inverse)
		b.WarpSync() // lanes must have read x before any lane stores to it
	})
	return m
}

// pair is a pair of elements u and v, at i and j of the vector.
type pair struct {
	index, i, j ptx.U32
	rotated     ptx.Pred
	u, v        ptx.F32 // variables
}

// loadPair loads pair p and returns it with an index. If index is a valid pair, p must equal
// it. Otherwise p is any valid pair, and the caller must not store the result.
func (g *generator) loadPair(x ptx.Global, index, p ptx.U32) pair {
	rotated := p.Lt(g.p.Half) // the other elements stay, in pairs of neighbors
	i := ptx.Select(rotated, p.Mul(g.p.Step), p.ShlN(1))
	j := i.Add(ptx.Select(rotated, g.p.Gap, g.b.U32(1)))
	return pair{index, i, j, rotated, ptx.Var(x.At(i, 4).LoadF32()), ptx.Var(x.At(j, 4).LoadF32())}
}

// rotatePair normalizes a pair if weight is not 0, and rotates it.
func (g *generator) rotatePair(p pair, m device.Moments, weight ptx.Global) {
	b := g.b
	b.If(device.NonNil(b, weight), func() {
		ptx.Set(p.u, m.Normalize(p.u).Mul(weight.At(p.i, 4).LoadF32()))
		ptx.Set(p.v, m.Normalize(p.v).Mul(weight.At(p.j, 4).LoadF32()))
	})
	b.If(p.rotated, func() {
		sc := g.angles.At(p.index, 8).LoadF32x2()
		u, v := sincos{sc[0], sc[1]}.rotate(p.u, p.v)
		ptx.Set(p.u, u)
		ptx.Set(p.v, v)
	})
}

// AppendArgs are the arguments of a launch of Append. The heads of a token lie side by side;
// Q, K and V may point into one fused buffer. The kernel reads Freq, Positions, Sequences,
// Lengths and Table before it waits for prior kernels (ptx.Builder.WaitForPrior), so none of
// these may write them.
type AppendArgs struct {
	Q         ptx.Address // f32 [Tokens, Heads, HeadDim], rotated in place
	K         ptx.Address // f32 [Tokens, KVHeads, HeadDim]
	V         ptx.Address // f32 [Tokens, KVHeads, ValueDim]
	QStride   int         // elements from token to token; 0: Heads*HeadDim
	KStride   int         // elements from token to token; 0: KVHeads*HeadDim
	VStride   int         // elements from token to token; 0: KVHeads*ValueDim
	QNorm     ptx.Address // f32 [HeadDim]; 0: no norm of the queries
	KNorm     ptx.Address // f32 [HeadDim]; 0: no norm of the keys
	VNorm     ptx.Address // f32 [ValueDim]; 0: no norm of the values
	Freq      ptx.Address // f64 [Rot/2], radians per position
	Positions ptx.Address // u32 [Tokens]
	Sequences ptx.Address // u32 [Tokens]; 0: all tokens are of sequence 0
	Lengths   ptx.Address // u32 [sequences], 0 for an inactive one; address 0: all are active
	Table     ptx.Address // u32 [sequences, MaxPages], page numbers
	KCache    ptx.Address // [pages, KVHeads, page, HeadDim]
	VCache    ptx.Address // [pages, KVHeads, page, ValueDim]
	Tokens    int
	Heads     int     // 0: no queries
	KVHeads   int     // 0: nothing to append
	HeadDim   int     // even
	ValueDim  int     // 0: HeadDim
	Rot       int     // even, at most HeadDim and 512; 0: no rotation
	NeoX      bool    // pairs are (j, j+Rot/2)
	MaxPages  int     // pages per sequence in Table
	Factor    float32 // of sine and cosine; 0: 1
	Eps       float32 // of the norms

	QScales      ptx.Address // f32, at least 1 + (p+QScaleOffset)/QScaleBlock for the last position p; 0: queries are not scaled
	QScaleBlock  int         // positions
	QScaleOffset int         // positions
}

func launch(k *ptx.Kernel, a AppendArgs, page int) (ptx.Launch, error) {
	a.ValueDim = cmp.Or(a.ValueDim, a.HeadDim)
	a.QStride, a.KStride, a.VStride = cmp.Or(a.QStride, a.Heads*a.HeadDim), cmp.Or(a.KStride, a.KVHeads*a.HeadDim), cmp.Or(a.VStride, a.KVHeads*a.ValueDim)
	if a.Factor == 0 {
		a.Factor = 1
	}
	if err := host.Valid(k, a.checks(page)...); err != nil {
		return ptx.Launch{}, err
	}
	if a.QScales == 0 {
		a.QScaleBlock, a.QScaleOffset = 1, 0
	}
	half, step, gap := a.Rot/2, 2, 1
	if a.NeoX {
		step, gap = 1, a.Rot/2
	}
	// Few tokens are spread over more CTAs, each of which computes the angles.
	parts := 1
	if a.Tokens <= 64 {
		parts = min(host.CeilDiv(a.Heads+2*a.KVHeads, warps), 65535)
	}
	return k.Launch([3]uint32{uint32(a.Tokens), uint32(parts), 1}, 32*warps, 0, &params{
		Q: ptx.Addr(a.Q), K: ptx.Addr(a.K), V: ptx.Addr(a.V), QNorm: ptx.Addr(a.QNorm), KNorm: ptx.Addr(a.KNorm), VNorm: ptx.Addr(a.VNorm), Freq: ptx.Addr(a.Freq),
		QScales: ptx.Addr(a.QScales), QScaleBlock: ptx.Uint(a.QScaleBlock), QScaleOffset: ptx.Uint(a.QScaleOffset),
		Positions: ptx.Addr(a.Positions), Sequences: ptx.Addr(a.Sequences), Lengths: ptx.Addr(a.Lengths), Table: ptx.Addr(a.Table),
		KCache: ptx.Addr(a.KCache), VCache: ptx.Addr(a.VCache),
		Heads: ptx.Uint(a.Heads), KVHeads: ptx.Uint(a.KVHeads), HeadDim: ptx.Uint(a.HeadDim), ValueDim: ptx.Uint(a.ValueDim),
		Half: ptx.Uint(half), Step: ptx.Uint(step), Gap: ptx.Uint(gap), MaxPages: ptx.Uint(a.MaxPages),
		QStride: ptx.Uint(a.QStride), KStride: ptx.Uint(a.KStride), VStride: ptx.Uint(a.VStride),
		Eps: ptx.Float(a.Eps), Factor: ptx.Float(a.Factor),
	})
}

// checks returns the checks of the arguments, defaults filled in.
func (a AppendArgs) checks(page int) []host.Check {
	const most = 1 << 14 // heads, and elements of a head
	list := []host.Check{
		host.Bound("Tokens", a.Tokens, 1, host.MaxSize), host.Bound("Heads", a.Heads, 0, most), host.Bound("KVHeads", a.KVHeads, 0, most),
		host.Bound("Heads + KVHeads", a.Heads+a.KVHeads, 1, 2*most),
		host.Bound("HeadDim", a.HeadDim, 2, most), host.Bound("ValueDim", a.ValueDim, 1, most), host.Bound("Rot", a.Rot, 0, min(a.HeadDim, 2*maxPairs)),
		host.Bound("QStride", a.QStride, a.Heads*a.HeadDim, host.MaxSize), host.Bound("KStride", a.KStride, a.KVHeads*a.HeadDim, host.MaxSize),
		host.Bound("VStride", a.VStride, a.KVHeads*a.ValueDim, host.MaxSize),
		host.Refuse(a.HeadDim%2 != 0, "HeadDim", "%d is odd, but elements are rotated in pairs", a.HeadDim),
		host.Refuse(a.Rot%2 != 0, "Rot", "%d is odd, but elements are rotated in pairs", a.Rot),
		host.Bound("MaxPages", a.MaxPages, min(a.KVHeads, 1), host.MaxSize/page), host.Number("Eps", a.Eps), host.NonNil("Positions", a.Positions),
	}
	if a.Heads > 0 {
		list = append(list, host.NonNil("Q", a.Q))
	}
	if a.QScales != 0 {
		list = append(list, host.Bound("QScaleBlock", a.QScaleBlock, 1, host.MaxSize), host.Bound("QScaleOffset", a.QScaleOffset, 0, host.MaxSize))
	}
	if a.Rot > 0 {
		list = append(list, host.NonNil("Freq", a.Freq))
	}
	if a.KVHeads > 0 {
		list = append(list, host.NonNil("K", a.K), host.NonNil("V", a.V), host.NonNil("Table", a.Table),
			host.NonNil("KCache", a.KCache), host.NonNil("VCache", a.VCache))
	}
	return list
}
