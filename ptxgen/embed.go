package ptxgen

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Embed takes rows of a packed matrix as float32, each weight with the bits that
// quant.Decode gives:
//
//	out[i][k] = W[tokens[i]][k]*scale + residual[i][k]
//
// Without tokens, i is the row. A scale of 1 changes no bit; else there is one
// rounding, and one more where there is a residual. A thread takes a unit.
type Embed struct{ Format quant.Format }

const embedThreads = 128

func embedSpecs() []Spec {
	var all []Spec
	for _, f := range quant.Formats() {
		all = append(all, Embed{f})
	}
	return all
}

// Name implements Spec.
func (s Embed) Name() string { return "embed_" + formatName(s.Format) }

// Build implements Spec.
func (s Embed) Build() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("out[i][k] = W[tokens[i]][k]*scale + residual[i][k], W packed, of %v", s.Format)
	w, tokens, residual, out := b.Global("w", rowAlign), b.Global("tokens", 4), b.Global("residual", 4), b.Global("out", 4)
	k, units, tileBytes, scale := b.ParamU32("k"), b.ParamU32("units"), b.ParamU32("tile_bytes"), b.ParamF32("scale")
	i, index := b.BlockX(), b.BlockY().MulN(embedThreads).Add(b.ThreadX())
	b.ReturnIf(index.Ge(units))

	token := ptx.Var(i)
	b.If(given(b, tokens), func() { ptx.Set(token, tokens.At(i, 4).LoadU32()) })
	weights := decoderOf(s.Format).rowOf(w, token, tileBytes, units).load(b, index).weights()

	start := i.MulWide(k).Mul(b.U64(4))
	to := rowAt(b, quant.F32, out.AtBytes(start).Aligned(4), k)
	add := rowAt(b, quant.F32, residual.AtBytes(start).Aligned(4), k)
	hasResidual := given(b, residual)
	for j := range UnitLen / 4 {
		at := index.MulN(UnitLen / 4).AddN(j)
		b.If(at.Lt(to.quads()), func() {
			var v quad
			for n := range v {
				v[n] = ptx.Var(weights[4*j+n].Mul(scale))
			}
			b.If(hasResidual, func() {
				for n, r := range add.load(at, 0) {
					ptx.Set(v[n], v[n].Add(r))
				}
			})
			to.store(at, v)
		})
	}
	return b.Finish(ptx.MaxThreads(embedThreads))
}

// EmbedArgs are a launch's arguments.
type EmbedArgs struct {
	W        Address // packed rows of K weights
	Tokens   Address // u32 [Count], each the number of a row; or 0: rows 0 to Count-1
	Residual Address // f32 [Count, K], or 0: added last
	Out      Address // f32 [Count, K]; may be Residual
	Count, K int
	Scale    float32 // 0 means 1
}

// Launch makes a launch.
func (s Embed) Launch(k *ptx.Kernel, a EmbedArgs) (ptx.Launch, error) {
	if a.Scale == 0 {
		a.Scale = 1
	}
	if err := firstError(checkK(k, s.Format, a.K), checkBounds(k, bound{"Count", a.Count, 1, maxSize}),
		checkPointers(k, pointer{"W", a.W}, pointer{"Out", a.Out})); err != nil {
		return ptx.Launch{}, err
	}
	p := Packing{s.Format, a.K}
	grid := [3]uint32{uint32(a.Count), uint32(ceilDiv(p.Units(), embedThreads)), 1}
	return k.Launch(grid, embedThreads, 0, ptx.Addr(a.W), ptx.Addr(a.Tokens), ptx.Addr(a.Residual), ptx.Addr(a.Out),
		ptx.Uint(a.K), ptx.Uint(p.Units()), ptx.Uint(p.tileBytes()), ptx.Float(a.Scale))
}
