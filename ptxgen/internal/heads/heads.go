// Package heads normalizes and rotates the heads of a token, in kernels that are being built.
package heads

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Heads normalizes and rotates the heads of one token, for Append and other kernels that do what Append does.
type Heads struct {
	p        params
	b        *ptx.Builder
	pairs    int // the largest number
	threads  int // of the CTA
	position ptx.U32
	scale    ptx.F32    // of queries
	freq     ptx.F64    // of the thread's next pair
	angles   ptx.Shared // [pair]: sine and cosine
}

// MaxPairs is the largest number of rotated pairs per head.
const MaxPairs = 256

// params are the kernel parameters of Heads.
type params struct {
	Key, Value                ptx.Global
	QNorm, KNorm, VNorm       ptx.Global
	Freq                      ptx.Global `align:"8"`
	QScales                   ptx.Global
	Half                      ptx.U32 // rotated pairs
	Step                      ptx.U32 // from the first element of a pair to that of the next
	Gap                       ptx.U32 // from the first element of a pair to its second
	KStride, VStride          ptx.U32
	QScaleBlock, QScaleOffset ptx.U32
	Eps, Factor               ptx.F32
}

// New declares the kernel parameters, AppendArgs.Params, of heads with at most some rotated pairs, in CTAs of some threads.
func New(b *ptx.Builder, pairs, threads int) *Heads {
	h := &Heads{b: b, pairs: pairs, threads: threads}
	ptx.Declare(b, &h.p)
	return h
}

// Params returns the kernel parameters of Heads for a launch.
func (a AppendArgs) Params() any {
	a = a.Filled()
	half, step, gap := a.Rot/2, 2, 1
	if a.NeoX {
		step, gap = 1, a.Rot/2
	}
	return &params{
		Key: ptx.Addr(a.Key), Value: ptx.Addr(a.Value), QNorm: ptx.Addr(a.QNorm), KNorm: ptx.Addr(a.KNorm), VNorm: ptx.Addr(a.VNorm), Freq: ptx.Addr(a.Freq),
		QScales: ptx.Addr(a.QScales), QScaleBlock: ptx.Uint(a.QScaleBlock), QScaleOffset: ptx.Uint(a.QScaleOffset),
		Half: ptx.Uint(half), Step: ptx.Uint(step), Gap: ptx.Uint(gap), KStride: ptx.Uint(a.KStride), VStride: ptx.Uint(a.VStride),
		Eps: ptx.Float(a.Eps), Factor: ptx.Float(a.Factor),
	}
}

// Load loads what all heads at a position need. Kernels write none of it.
func (h *Heads) Load(position ptx.U32) {
	b, p := h.b, &h.p
	h.position, h.scale, h.freq = position, ptx.Var(b.F32(1)), ptx.Var(b.F64(0))
	h.loadFrequency(b.ThreadX())
	b.If(device.NonNil(b, p.QScales), func() {
		ptx.Set(h.scale, p.QScales.At(position.Add(p.QScaleOffset).Div(p.QScaleBlock), 4).LoadF32())
	})
}

// loadFrequency loads the frequency of a pair, if there is one.
func (h *Heads) loadFrequency(pair ptx.U32) {
	h.b.If(pair.Lt(h.p.Half), func() { ptx.Set(h.freq, h.p.Freq.At(pair, 8).LoadF64()) })
}

// ComputeAngles computes the sine and cosine of each pair, for all heads. All threads of the CTA take part, and a barrier
// must follow.
func (h *Heads) ComputeAngles() {
	b := h.b
	h.angles = b.Shared("angles", 8*h.pairs, 8)
	angle := func(j ptx.U32) {
		sc := newSincos(b, h.position.F64().Mul(h.freq), h.p.Factor)
		h.angles.At(j, 8).StoreF32x2([2]ptx.F32{sc.sin, sc.cos})
	}
	if h.pairs <= h.threads {
		b.If(b.ThreadX().Lt(h.p.Half), func() { angle(b.ThreadX()) })
		return
	}
	b.For(b.ThreadX(), h.p.Half, b.ThreadsX(), func(j ptx.U32) {
		angle(j)
		h.loadFrequency(j.Add(b.ThreadsX()))
	}, ptx.NoUnroll)
}

// Vector returns the address of a token's vector of a head in a float32 buffer.
func Vector(p ptx.Global, token, stride, head, dim ptx.U32) ptx.Global {
	return p.AtBytes(token.MulWide(stride).Add(head.MulWide(dim)).ShlN(2)).Aligned(4)
}

// KeyAt and ValueAt return the address of a token's key and value of a KV head, which has dim elements.
func (h *Heads) KeyAt(token, head, dim ptx.U32) ptx.Global {
	return Vector(h.p.Key, token, h.p.KStride, head, dim)
}
func (h *Heads) ValueAt(token, head, dim ptx.U32) ptx.Global {
	return Vector(h.p.Value, token, h.p.VStride, head, dim)
}

// Query calls store with each element of the query at x, which has dim elements. A lane of the warp loads and stores the same
// elements, so store may write to x.
func (h *Heads) Query(x ptx.Memory, dim ptx.U32, store func(i ptx.U32, y ptx.F32)) {
	h.rotate(x, h.p.QNorm, dim, func(i ptx.U32, y ptx.F32) { store(i, y.Mul(h.scale)) })
}

// Key does that with the key at x.
func (h *Heads) Key(x ptx.Memory, dim ptx.U32, store func(i ptx.U32, y ptx.F32)) {
	h.rotate(x, h.p.KNorm, dim, store)
}

// Value does that with the value at x. Each lane has several loads in flight.
func (h *Heads) Value(x ptx.Memory, dim ptx.U32, store func(i ptx.U32, y ptx.F32)) {
	b, from, weight := h.b, x.Untyped(), h.p.VNorm
	m := h.moments(from, weight, dim)
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
				store(i, x[j])
			})
		}
	}, ptx.NoUnroll)
}

// rotate normalizes the vector x if weight is not 0, rotates its pairs, and calls store for every element.
func (h *Heads) rotate(x ptx.Memory, weight ptx.Global, dim ptx.U32, store func(i ptx.U32, y ptx.F32)) {
	b := h.b
	m := h.moments(x, weight, dim)
	pairs := dim.ShrN(1)
	const loads = 2 // pairs that a lane has in flight
	b.For(b.Lane(), pairs, b.U32(32*loads), func(first ptx.U32) {
		var list [loads]pair
		for k := range list {
			index := first.AddN(32 * k)
			list[k] = h.loadPair(x, index, ptx.Select(index.Lt(pairs), index, first))
		}
		for _, p := range list {
			b.If(p.index.Lt(pairs), func() {
				h.rotatePair(p, m, weight)
				store(p.i, p.u)
				store(p.j, p.v)
			})
		}
	}, ptx.NoUnroll)
}

// moments returns the statistics of the norm of the vector x if weight is not 0.
func (h *Heads) moments(x ptx.Memory, weight ptx.Global, dim ptx.U32) device.Moments {
	b := h.b
	m := device.Moments{Scale: ptx.Var(b.F32(1)), InvStd: ptx.Var(b.F32(1))}
	b.If(device.NonNil(b, weight), func() {
		row := device.Warp(b).LoadRow(device.RowAt(b, quant.F32, x, dim), 0)
		st := row.Moments(false, h.p.Eps)
		ptx.Set(m.Scale, st.Scale)
		ptx.Set(m.InvStd, st.InvStd)
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
func (h *Heads) loadPair(x ptx.Memory, index, p ptx.U32) pair {
	from := x.Untyped()
	rotated := p.Lt(h.p.Half) // the other elements stay, in pairs of neighbors
	i := ptx.Select(rotated, p.Mul(h.p.Step), p.ShlN(1))
	j := i.Add(ptx.Select(rotated, h.p.Gap, h.b.U32(1)))
	return pair{index, i, j, rotated, ptx.Var(from.At(i, 4).LoadF32()), ptx.Var(from.At(j, 4).LoadF32())}
}

// rotatePair normalizes a pair if weight is not 0, and rotates it.
func (h *Heads) rotatePair(p pair, m device.Moments, weight ptx.Global) {
	b := h.b
	b.If(device.NonNil(b, weight), func() {
		ptx.Set(p.u, m.Normalize(p.u).Mul(weight.At(p.i, 4).LoadF32()))
		ptx.Set(p.v, m.Normalize(p.v).Mul(weight.At(p.j, 4).LoadF32()))
	})
	b.If(p.rotated, func() {
		sc := h.angles.At(p.index, 8).LoadF32x2()
		u, v := sincos{sc[0], sc[1]}.rotate(p.u, p.v)
		ptx.Set(p.u, u)
		ptx.Set(p.v, v)
	})
}
