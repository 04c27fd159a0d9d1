package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
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

func embedSpecs() []kernel.Spec {
	var all []kernel.Spec
	for _, f := range Formats() {
		all = append(all, Embed{f})
	}
	return all
}

// Name implements Spec.
func (s Embed) Name() string { return "embed_" + host.FormatName(s.Format) }

type embedParams struct {
	W                     ptx.Global `align:"16"`
	Tokens, Residual, Out ptx.Global
	K, Units, TileBytes   ptx.U32
	Scale                 ptx.F32
}

// Build implements Spec.
func (s Embed) Build() (*ptx.Kernel, error) {
	b := begin(s.Name())
	b.Doc("out[i][k] = W[tokens[i]][k]*scale + residual[i][k], W packed, of %v", s.Format)
	var p embedParams
	ptx.Declare(b, &p)
	i, index := b.BlockX(), b.BlockY().MulN(embedThreads).Add(b.ThreadX())
	b.ReturnIf(index.Ge(p.Units))

	token := ptx.Var(i)
	b.If(device.NonNil(b, p.Tokens), func() { ptx.Set(token, p.Tokens.At(i, 4).LoadU32()) })
	weights := decoderOf(s.Format).rowOf(p.W, token, p.TileBytes, p.Units).load(b, index).weights()

	start := i.MulWide(p.K).Mul(b.U64(4))
	to := device.RowAt(b, quant.F32, p.Out.AtBytes(start).Aligned(4), p.K)
	add := device.RowAt(b, quant.F32, p.Residual.AtBytes(start).Aligned(4), p.K)
	hasResidual := device.NonNil(b, p.Residual)
	for j := range UnitLen / 4 {
		at := index.MulN(UnitLen / 4).AddN(j)
		b.If(at.Lt(to.Vec4s()), func() {
			var v device.Vec4
			for n := range v {
				v[n] = ptx.Var(weights[4*j+n].Mul(p.Scale))
			}
			b.If(hasResidual, func() {
				for n, r := range add.Load(at, 0) {
					ptx.Set(v[n], v[n].Add(r))
				}
			})
			to.Store(at, v)
		})
	}
	return b.Finish(ptx.MaxThreads(embedThreads))
}

// EmbedArgs are a launch's arguments.
type EmbedArgs struct {
	W        ptx.Address // packed rows of K weights
	Tokens   ptx.Address // u32 [Count], each the number of a row; or 0: rows 0 to Count-1
	Residual ptx.Address // f32 [Count, K], or 0: added last
	Out      ptx.Address // f32 [Count, K]; may be Residual
	Count, K int
	Scale    float32 // 0 means 1
}

// Launch makes a launch.
func (s Embed) Launch(k *ptx.Kernel, a EmbedArgs) (ptx.Launch, error) {
	if a.Scale == 0 {
		a.Scale = 1
	}
	if err := host.Valid(k, checkK(s.Format, a.K), host.Bound("Count", a.Count, 1, host.MaxSize),
		host.Given("W", a.W), host.Given("Out", a.Out)); err != nil {
		return ptx.Launch{}, err
	}
	p := Packing{s.Format, a.K}
	grid := [3]uint32{uint32(a.Count), uint32(host.CeilDiv(p.Units(), embedThreads)), 1}
	return k.Launch(grid, embedThreads, 0, &embedParams{
		W: ptx.Addr(a.W), Tokens: ptx.Addr(a.Tokens), Residual: ptx.Addr(a.Residual), Out: ptx.Addr(a.Out),
		K: ptx.Uint(a.K), Units: ptx.Uint(p.Units()), TileBytes: ptx.Uint(p.tileBytes()), Scale: ptx.Float(a.Scale),
	})
}
