package ptxgen

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// RopeAppend prepares attention: it normalizes and rotates the queries in place, does
// the same to the keys on their way to the cache, and copies the values there. For a
// token at position p and head vectors of HeadDim numbers, of which Rot are rotated,
//
//	x    = norm(x)                             with QNorm or KNorm, RMSNorm a head
//	a, b = a*cos - b*sin, a*sin + b*cos        angle p*freq[j], for each pair j < Rot/2
//
// A pair is (2j, 2j+1), or in the NeoX style (j, j+Rot/2). Angles are computed and
// reduced in float64. Sine and cosine are multiplied by Factor. The cache holds pages
// of Page positions:
//
//	cache[page][kv head][p mod Page][i],  page = table[sequence][p / Page]
//
// A launch leaves out what it does not need: without KVHeads it is RoPE alone,
// without Heads an append, with a Rot of 0 it does not rotate. A token whose
// sequence has length 0 is passed over. Heads do not depend on each other. Its
// readable twins are newRotation, apply and cacheLayer.append in package ref.
type RopeAppend struct {
	Cache quant.Format // F32, F16 or BF16: rounded to nearest even, to infinity beyond the largest
	Page  int          // positions of a page, a power of two; 0 means 64
}

const (
	ropeWarps    = 8   // of a CTA; each takes heads in turn
	maxRopePairs = 256 // rotated pairs of a head
)

func ropeSpecs() []Spec {
	return []Spec{RopeAppend{Cache: quant.F32}, RopeAppend{Cache: quant.F16}, RopeAppend{Cache: quant.BF16}}
}

func (s RopeAppend) page() int { return orElse(s.Page, defaultPage) }

// Name implements Spec.
func (s RopeAppend) Name() string {
	name := "rope_append_" + formatName(s.Cache)
	if s.page() != defaultPage {
		name += fmt.Sprintf("_p%d", s.page())
	}
	return name
}

// ropeKernel is what the parts of the generator share: the entry's parameters and
// what a CTA knows of its token.
type ropeKernel struct {
	b              *ptx.Builder
	positions      int // of a page
	heads, kvHeads ptx.U32
	dim, valueDim  ptx.U32
	half           ptx.U32 // rotated pairs
	step           ptx.U32 // from a pair's first element to the next pair's
	gap            ptx.U32 // from a pair's first element to its second
	eps            ptx.F32
	angles         ptx.Shared // sine and cosine of each pair
	position       ptx.U32
	page           ptx.U32 // of the position
	cache          quant.Format
	token          ptx.U32
}

// Build implements Spec.
func (s RopeAppend) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	size := checkFormat(b, s.Cache)
	if p := s.page(); p < 1 || p&(p-1) != 0 {
		b.Failf("a page of %d positions, which is no power of two", p)
	}
	b.Doc("q = rope(norm(q)) in place; cache[page][kv head][position mod %d] = rope(norm(k)) and v", s.page())
	q, k, v := b.Global("q", 4), b.Global("k", 4), b.Global("v", 4)
	qNorm, kNorm, freq := b.Global("q_norm", 4), b.Global("k_norm", 4), b.Global("freq", 8)
	positions, sequences, lengths, table := b.Global("positions", 4), b.Global("sequences", 4), b.Global("lengths", 4), b.Global("table", 4)
	kCache, vCache := b.Global("k_cache", size), b.Global("v_cache", size)
	r := ropeKernel{
		b: b, positions: s.page(), cache: s.Cache, token: b.BlockX(),
		heads: b.ParamU32("heads"), kvHeads: b.ParamU32("kv_heads"), dim: b.ParamU32("head_dim"), valueDim: b.ParamU32("value_dim"),
		half: b.ParamU32("half"), step: b.ParamU32("step"), gap: b.ParamU32("gap"),
	}
	maxPages := b.ParamU32("max_pages")
	qStride, kStride, vStride := b.ParamU32("q_stride"), b.ParamU32("k_stride"), b.ParamU32("v_stride")
	r.eps = b.ParamF32("eps")
	factor := b.ParamF32("factor")

	b.LaunchDependents()
	b.Comment("all that no kernel writes")
	r.position = positions.At(r.token, 4).LoadU32()
	sequence, active := r.state(sequences, lengths)
	r.page = ptx.Var(b.U32(0))
	b.If(active.And(r.kvHeads.Ne(b.U32(0))), func() {
		at := sequence.Mul(maxPages).Add(r.position.DivN(s.page()))
		ptx.Set(r.page, table.At(at, 4).LoadU32())
	})
	r.prepare(freq, factor)
	b.WaitForPrior()
	b.ReturnIf(active.Not())
	keys, values := appended{k, kStride, kCache}, appended{v, vStride, vCache}
	b.Comment("a warp takes a query head, a key head or a value head at a time")
	first, heads := b.BlockY().MulN(ropeWarps).Add(b.Warp()), r.heads
	b.For(first, heads.Add(r.kvHeads).Add(r.kvHeads), b.GridY().MulN(ropeWarps), func(item ptx.U32) {
		b.IfElse(item.Lt(heads), func() {
			x := r.vector(q, qStride, item, r.dim)
			r.head(x, qNorm, func(i ptx.U32, y ptx.F32) { x.At(i, 4).StoreF32(y) })
		}, func() { r.append(item.Sub(heads), keys, values, kNorm) })
	}, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(32 * ropeWarps))
}

// state gives the token's sequence, and whether it is active.
func (r *ropeKernel) state(sequences, lengths ptx.Global) (sequence ptx.U32, active ptx.Pred) {
	b := r.b
	sequence, length := ptx.Var(b.U32(0)), ptx.Var(b.U32(1))
	b.If(given(b, sequences), func() { ptx.Set(sequence, sequences.At(r.token, 4).LoadU32()) })
	b.If(given(b, lengths), func() { ptx.Set(length, lengths.At(sequence, 4).LoadU32()) })
	return sequence, length.Ne(b.U32(0))
}

// prepare computes the angles, once for all heads.
func (r *ropeKernel) prepare(freq ptx.Global, factor ptx.F32) {
	b := r.b
	r.angles = b.Shared("angles", 8*maxRopePairs, 8)
	b.For(b.ThreadX(), r.half, b.ThreadsX(), func(j ptx.U32) {
		turn := rotate(b, r.position.F64().Mul(freq.At(j, 8).LoadF64()), factor)
		r.angles.At(j, 8).StoreF32x2([2]ptx.F32{turn.sin, turn.cos})
	}, ptx.NoUnroll)
	b.Barrier()
}

// vector is where a head's numbers begin in a buffer of float32 by tokens.
func (r *ropeKernel) vector(p ptx.Global, stride, head, dim ptx.U32) ptx.Global {
	return p.AtBytes(r.token.MulWide(stride).Add(head.MulWide(dim)).ShlN(2)).Aligned(4)
}

// slot is where the token's vector of a KV head belongs in a cache.
func (r *ropeKernel) slot(cache ptx.Global, head, dim ptx.U32) ptx.Global {
	size := r.cache.BlockBytes()
	line := r.page.Mul(r.kvHeads).Add(head).MulN(r.positions).Add(r.position.RemN(r.positions))
	return cache.AtBytes(line.MulWide(dim).Mul(r.b.U64(uint64(size)))).Aligned(size)
}

// appended are keys or values: where they come from and where they go.
type appended struct {
	from   ptx.Global
	stride ptx.U32
	cache  ptx.Global
}

// append takes a key head, or, counted after those, a value head to its cache.
func (r *ropeKernel) append(head ptx.U32, keys, values appended, norm ptx.Global) {
	r.b.IfElse(head.Lt(r.kvHeads), func() {
		to := r.slot(keys.cache, head, r.dim)
		r.head(r.vector(keys.from, keys.stride, head, r.dim), norm, func(i ptx.U32, y ptx.F32) {
			storeAs(r.cache, to.At(i, r.cache.BlockBytes()), y)
		})
	}, func() {
		head := head.Sub(r.kvHeads)
		r.copy(r.slot(values.cache, head, r.valueDim), r.vector(values.from, values.stride, head, r.valueDim))
	})
}

// copy rounds a vector of values into the cache, some of a lane's elements at a time so
// that their loads wait together.
func (r *ropeKernel) copy(to, from ptx.Global) {
	b := r.b
	const together = 4
	b.For(b.Lane(), r.valueDim, b.U32(32*together), func(first ptx.U32) {
		var x [together]ptx.F32
		for j := range x {
			x[j] = from.At(first.AddN(32*j).Min(r.valueDim.AddN(-1)), 4).LoadF32()
		}
		for j := range x {
			i := first.AddN(32 * j)
			b.If(i.Lt(r.valueDim), func() { storeAs(r.cache, to.At(i, r.cache.BlockBytes()), x[j]) })
		}
	}, ptx.NoUnroll)
}

// head normalizes the vector x if there are weights, rotates its pairs and stores
// every element. A lane reads and writes the same two elements, so store may write x.
func (r *ropeKernel) head(x, weight ptx.Global, store func(i ptx.U32, y ptx.F32)) {
	b := r.b
	normed := given(b, weight)
	m := moments{scale: ptx.Var(b.F32(1)), inverse: ptx.Var(b.F32(1))}
	b.If(normed, func() {
		st := Norm{}.statistics(warpTeam(b), rowAt(b, quant.F32, x, r.dim), r.eps)
		ptx.Set(m.scale, st.scale)
		ptx.Set(m.inverse, st.inverse)
		b.WarpSync() // other lanes have read what this one writes below
	})
	pairs := r.dim.ShrN(1)
	const together = 2 // pairs whose loads wait together
	b.For(b.Lane(), pairs, b.U32(32*together), func(first ptx.U32) {
		var list [together]ropePair
		for k := range list {
			index := first.AddN(32 * k)
			list[k] = r.pair(x, index, ptx.Select(index.Lt(pairs), index, first))
		}
		for _, p := range list {
			b.If(p.index.Lt(pairs), func() {
				r.turn(p, m, weight)
				store(p.i, p.u)
				store(p.j, p.v)
			})
		}
	}, ptx.NoUnroll)
}

// ropePair is a pair of elements: its number, where they are, and they.
type ropePair struct {
	index, i, j ptx.U32
	rotated     ptx.Pred
	u, v        ptx.F32
}

// pair loads pair p in the place of one that may be beyond the last.
func (r *ropeKernel) pair(x ptx.Global, index, p ptx.U32) ropePair {
	rotated := p.Lt(r.half) // beyond them pairs are neighbors and stay
	i := ptx.Select(rotated, p.Mul(r.step), p.ShlN(1))
	j := i.Add(ptx.Select(rotated, r.gap, r.b.U32(1)))
	return ropePair{index, i, j, rotated, ptx.Var(x.At(i, 4).LoadF32()), ptx.Var(x.At(j, 4).LoadF32())}
}

// turn normalizes a pair if there are weights, and rotates it.
func (r *ropeKernel) turn(p ropePair, m moments, weight ptx.Global) {
	b := r.b
	b.If(given(b, weight), func() {
		ptx.Set(p.u, m.normal(p.u).Mul(weight.At(p.i, 4).LoadF32()))
		ptx.Set(p.v, m.normal(p.v).Mul(weight.At(p.j, 4).LoadF32()))
	})
	b.If(p.rotated, func() {
		angle := r.angles.At(p.index, 8).LoadF32x2()
		y, z := rotation{angle[0], angle[1]}.apply(p.u, p.v)
		ptx.Set(p.u, y)
		ptx.Set(p.v, z)
	})
}
