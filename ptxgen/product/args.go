package product

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Args are the arguments of a launch of Stream or Tile.
type Args struct {
	X               ptx.Address // f32 [Tokens, K]; for Tile as Tile.Round rounds them
	W               ptx.Address // packed [Rows, K]: see Packing
	Y               ptx.Address // f32 [Tokens, Rows], or if Gated [Tokens, Rows/2]
	YStride         int         // elements from token to token of Y and Residual; 0: the columns of Y
	Bias            ptx.Address // f32 [Rows]; 0: none
	Residual        ptx.Address // f32, in the shape of Y; may be Y; 0: none
	Tokens, Rows, K int         // Tokens of a Tile of experts: Tile.PaddedSlots
	CTAs            int         // of the grid, at most; but at least one per slot

	NormWeight ptx.Address // f32 [K], with Epilogue.Norm; for Tile an argument of Tile.Round
	Eps        float32     // of the norm
	Scale      float32     // 0 without Epilogue.Scaled
	Softcap    float32     // 0 without Epilogue.Softcap

	// The matrix of expert e begins at W + e·ExpertBytes. Bias is f32 [experts, Rows]. Experts is u32 [Slots] of
	// Stream, the expert of each slot, and RoundArgs.Routes of Tile.
	Experts     ptx.Address // 0 without experts
	ExpertBytes int
	Slots       int // of Stream: pairs of a token and an expert
	SlotsPerX   int // of Stream: slots that share a row of X
	// SlotFactors of a Stream with a norm is f32 [Slots], which multiplies f. 0: all 1. For Tile it is an argument of
	// Tile.Round.
	SlotFactors ptx.Address
}

// productParams are the parameters that Stream and Tile share.
type productParams struct {
	X              ptx.Global // aligned to 16 bytes for Tile, and for Stream if K is a multiple of 4
	W              ptx.Global `align:"16"`
	Y              ptx.Global
	Bias, Residual ptx.Global
	Scales         ptx.Global // of rows: see Packing
	Tokens         ptx.U32
	Columns        ptx.U32 // of Y
	YStride        ptx.U32
	Segments       ptx.U32
}

// epilogueParams are the parameters of parts of an epilogue.
type epilogueParams struct {
	scale struct{ Scale ptx.F32 }
	cap   struct{ Softcap ptx.F32 }
}

// declare declares the parameters of the parts that e has.
func (p *epilogueParams) declare(b *ptx.Builder, e Epilogue) {
	if e.Scaled {
		ptx.Declare(b, &p.scale)
	}
	if e.Softcap {
		ptx.Declare(b, &p.cap)
	}
}

// normParams are parameters of kernels with a norm.
type normParams struct {
	NormWeight ptx.Global `align:"16"`
	Eps        ptx.F32
}

// paramsOf returns productParams and those of epilogueParams that e has. a.YStride is not 0.
func paramsOf(f quant.Format, e Epilogue, a Args) []any {
	p := Packing{f, a.K}
	params := []any{&productParams{
		X: ptx.Addr(a.X), W: ptx.Addr(a.W), Y: ptx.Addr(a.Y), Bias: ptx.Addr(a.Bias), Residual: ptx.Addr(a.Residual),
		Scales: ptx.Addr(p.scales(a.W, a.Rows)), Tokens: ptx.Uint(a.Tokens), Columns: ptx.Uint(e.columns(a.Rows)),
		YStride: ptx.Uint(a.YStride), Segments: ptx.Uint(p.segments()),
	}}
	var own epilogueParams
	if e.Scaled {
		own.scale.Scale = ptx.Float(a.Scale)
		params = append(params, &own.scale)
	}
	if e.Softcap {
		own.cap.Softcap = ptx.Float(a.Softcap)
		params = append(params, &own.cap)
	}
	return params
}

// expertName is the part of a kernel's name.
func expertName(experts bool) string {
	if experts {
		return "_experts"
	}
	return ""
}

// expertChecks returns the checks of the arguments of experts that Stream and Tile share.
func expertChecks(experts bool, a Args) []host.Check {
	return []host.Check{
		host.Refuse(experts != (a.Experts != 0), "Experts", "a kernel of experts needs it, and no other takes it"),
		host.Bound("ExpertBytes", a.ExpertBytes, 0, math.MaxInt),
		host.Refuse(a.ExpertBytes%16 != 0, "ExpertBytes", "%d is no multiple of 16", a.ExpertBytes),
	}
}

// slotParams are parameters of experts with a norm.
type slotParams struct {
	SlotFactors ptx.Global
}

// scale multiplies f by the factor of a slot, if there are factors.
func (p slotParams) scale(b *ptx.Builder, f ptx.F32, slot ptx.U32) ptx.F32 {
	factor := ptx.Var(b.F32(1))
	b.If(device.NonNil(b, p.SlotFactors), func() { ptx.Set(factor, p.SlotFactors.At(slot, 4).LoadF32()) })
	return f.Mul(factor)
}

// slotCheck checks the factors of slots.
func slotCheck(experts, norm bool, factors ptx.Address) host.Check {
	return host.Refuse(factors != 0 && !(experts && norm), "SlotFactors", "only kernels of experts with a norm take it")
}

// wholeBlocks checks that a row holds whole blocks of its format.
func wholeBlocks(f quant.Format, k int) host.Check {
	return host.Refuse(k%f.BlockLen() != 0, "K", "%d weights are no whole blocks of %v", k, f)
}

// maxRows is the largest number of rows of a launch.
const maxRows = 1 << 24
