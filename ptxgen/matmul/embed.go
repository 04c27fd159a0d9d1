package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

const embedThreads = 128 // per CTA; each decodes 32 weights

// Embed decodes rows of a packed matrix, the embeddings of tokens:
//
//	out[i][k] = W[tokens[i]][k]*scale + residual[i][k]
//
// Without Tokens, row i is decoded. Weights have the bits that quant.Decode gives; product
// and sum are rounded separately.
func Embed(format quant.Format) kernel.Typed[EmbedArgs] {
	return kernel.New("embed_"+host.FormatName(format),
		func(b *ptx.Builder) (*ptx.Kernel, error) { return buildEmbed(b, format) },
		func(k *ptx.Kernel, a EmbedArgs) (ptx.Launch, error) { return launchEmbed(k, a, format) })
}

type embedParams struct {
	W                     ptx.Global `align:"16"`
	Tokens, Residual, Out ptx.Global
	K                     ptx.U32
	Units                 ptx.U32 // groups of 32 weights per row
	TileBytes             ptx.U32
	Scale                 ptx.F32
}

func buildEmbed(b *ptx.Builder, format quant.Format) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("out[i][k] = W[tokens[i]][k]*scale + residual[i][k], W packed, of %v", format)
	var p embedParams
	ptx.Declare(b, &p)
	i, index := b.BlockX(), b.BlockY().MulN(embedThreads).Add(b.ThreadX())
	b.ReturnIf(index.Ge(p.Units))

	token := ptx.Var(i)
	b.If(device.NonNil(b, p.Tokens), func() { ptx.Set(token, p.Tokens.At(i, 4).LoadU32()) })
	weights := decoderOf(format).rowOf(p.W, token, p.TileBytes, p.Units).load(b, index).weights()

	start := i.MulWide(p.K).Mul(b.U64(4))
	to := device.RowAt(b, quant.F32, p.Out.AtBytes(start).Aligned(4), p.K)
	residual := device.RowAt(b, quant.F32, p.Residual.AtBytes(start).Aligned(4), p.K)
	hasResidual := device.NonNil(b, p.Residual)
	for j := range unitLen / 4 {
		at := index.MulN(unitLen / 4).AddN(j)
		b.If(at.Lt(to.Vec4s()), func() {
			var v device.Vec4
			for n := range v {
				v[n] = ptx.Var(weights[4*j+n].Mul(p.Scale))
			}
			b.If(hasResidual, func() {
				for n, r := range residual.Load(at, 0) {
					ptx.Set(v[n], v[n].Add(r))
				}
			})
			to.Store(at, v)
		})
	}
	return b.Finish(ptx.MaxThreads(embedThreads))
}

// EmbedArgs are the arguments of a launch of Embed.
type EmbedArgs struct {
	W        ptx.Address // packed rows of K weights
	Tokens   ptx.Address // u32 [Count], row numbers; 0: rows 0 to Count-1
	Residual ptx.Address // f32 [Count, K]; 0: none
	Out      ptx.Address // f32 [Count, K]; may be Residual
	Count, K int
	Scale    float32 // 0: 1
}

func launchEmbed(k *ptx.Kernel, a EmbedArgs, format quant.Format) (ptx.Launch, error) {
	if a.Scale == 0 {
		a.Scale = 1
	}
	if err := host.Valid(k, checkK(format, a.K), host.Bound("Count", a.Count, 1, host.MaxSize), host.NonNil("W", a.W), host.NonNil("Out", a.Out)); err != nil {
		return ptx.Launch{}, err
	}
	p := Packing{format, a.K}
	grid := [3]uint32{uint32(a.Count), uint32(host.CeilDiv(p.units(), embedThreads)), 1}
	return k.Launch(grid, embedThreads, 0, &embedParams{
		W: ptx.Addr(a.W), Tokens: ptx.Addr(a.Tokens), Residual: ptx.Addr(a.Residual), Out: ptx.Addr(a.Out),
		K: ptx.Uint(a.K), Units: ptx.Uint(p.units()), TileBytes: ptx.Uint(p.tileBytes()), Scale: ptx.Float(a.Scale),
	})
}
