package attention

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// scoringParams are the kernel parameters that follow from Scoring.
type scoringParams struct {
	ScaleLog2e ptx.F32    // Scale·log2(e)
	CapLog2e   ptx.F32    // Softcap·log2(e)
	ScaleByCap ptx.F32    // Scale/Softcap, or 0
	Window     ptx.U32    // the largest number of positions that a query sees
	ChunkMask  ptx.U32    // position & ChunkMask is the first position of the query's chunk, or 0 without Chunks
	Sinks      ptx.Global // f32 [heads]; nil: none
}

func (s Scoring) params() *scoringParams {
	p := &scoringParams{
		ScaleLog2e: ptx.Float(log2e(s.Scale)), CapLog2e: ptx.Float(log2e(s.Softcap)), ScaleByCap: ptx.Float(0),
		Window: ptx.Uint(uint32(math.MaxUint32)), ChunkMask: ptx.Uint(0), Sinks: ptx.Addr(s.Sinks),
	}
	if s.Softcap != 0 {
		p.ScaleByCap = ptx.Float(s.Scale / s.Softcap)
	}
	if s.Window != 0 {
		p.Window = ptx.Uint(s.Window)
	}
	if s.Chunks {
		p.ChunkMask = ptx.Uint(-uint32(s.Window))
	}
	return p
}

func log2e(x float32) float32 { return float32(float64(x) * math.Log2E) }

// windowStart returns the first position that a query at position length-1 sees.
func (p *scoringParams) windowStart(length ptx.U32) ptx.U32 {
	return length.Sub(length.Min(p.Window)).Max(length.AddN(-1).And(p.ChunkMask))
}

// hasSoftcap reports whether Softcap is not 0.
func (p *scoringParams) hasSoftcap(b *ptx.Builder) ptx.Pred { return p.CapLog2e.Ne(b.F32(0)) }

// softcap replaces products of a query and keys by exponents of 2. unscale undoes the scaling of the query.
func (p *scoringParams) softcap(b *ptx.Builder, products []ptx.F32, unscale ptx.F32) {
	factor := p.ScaleByCap.Mul(unscale)
	for _, x := range products {
		ptx.Set(x, device.Tanh(b, x.Mul(factor)).Mul(p.CapLog2e))
	}
}

// factor returns what products of a query and keys are multiplied by to become exponents of 2: 1 if softcap has made them so. unscale undoes
// the scaling of the query. The factor must not underflow to 0: 0 times an infinite product would be NaN.
func (p *scoringParams) factor(b *ptx.Builder, unscale ptx.F32) ptx.F32 {
	return ptx.Select(p.hasSoftcap(b), b.F32(1), p.ScaleLog2e.Mul(unscale).Max(b.F32(math.SmallestNonzeroFloat32)))
}

// addSink returns a sum of weights relative to top plus the weight of a head's sink, if there are sinks.
func (p *scoringParams) addSink(b *ptx.Builder, sum ptx.F32, head ptx.U32, top ptx.F32) ptx.F32 {
	all := ptx.Var(sum)
	b.If(device.NonNil(b, p.Sinks), func() {
		sink := p.Sinks.At(head, 4).LoadF32()
		ptx.Set(all, all.Add(sink.FMA(b.F32(math.Log2E), top.Neg()).Ex2ApproxFTZ()))
	})
	return all
}
