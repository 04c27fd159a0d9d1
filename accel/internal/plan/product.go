package plan

import (
	"cmp"

	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// matrixProduct is a matrix product with what may be fused into it:
//
//	y = act(softcap(W·norm(x) + bias)) + y
//
// for each row of x, or if W is gated, y = act(gate·norm(x) + bias) ⊙ (up·norm(x) + bias). A field
// that is zero leaves its operation out.
type matrixProduct struct {
	w        *matrix
	x        ptx.Address // f32 [rows, w.k]
	y        ptx.Address // f32, rows yStride apart
	yStride  int         // elements; 0: the columns of y
	norm     normWeights
	act      elementwise.Activation
	softcap  float32
	residual bool
	rows     int  // of x; 0: the tokens of the forward pass
	sharedX  bool // of experts: all experts of a token have the same row of x
}

// product adds the launches of a matrix product. The number of rows of x decides between Stream and Tile,
// which give equal bits.
func (p *planner) product(op string, q matrixProduct) {
	tokens := cmp.Or(q.rows, p.shape.Tokens)
	a := product.Args{
		X: q.x, W: q.w.at, Y: q.y, YStride: q.yStride, Bias: q.w.bias, Tokens: tokens, Rows: q.w.rows, K: q.w.k,
		CTAs: p.layout.props.SMs, Softcap: q.softcap,
	}
	if q.residual {
		a.Residual = q.y
	}
	if q.norm.kind == norm.Layer {
		a.X = p.layerNorm(op, q, tokens)
	}
	if s, ok := p.streamFor(q, tokens); ok {
		if q.w.experts > 0 {
			a.Tokens, a.Experts, a.ExpertBytes = 1, p.buf.experts, q.w.expertBytes
			a.Slots, a.SlotsPerX = p.shape.Tokens*p.model.ExpertsUsed, p.rowsPerX(q)
		}
		if s.Epilogue.Norm {
			a.NormWeight, a.Eps = q.norm.weight, p.model.NormEps
		}
		a.CTAs *= s.CTAs
		add(p, op, s.Kernel(), a)
		return
	}
	t := p.tileFor(q, tokens)
	p.round(op, q, t, product.RoundArgs{X: a.X, Tokens: tokens, K: a.K})
	a.X = p.buf.rounded
	add(p, op, t.Kernel(), a)
}

// gated computes act(gate·norm(x)) ⊙ (up·norm(x)) of matrices that are not one gated matrix.
func (p *planner) gated(op string, gate matrixProduct, up *matrix) {
	q := gate
	q.w, q.y, q.act = up, p.buf.up, elementwise.Identity
	p.product(op+" gate", gate)
	p.product(op+" up", q)
	rows := p.shape.Tokens
	if up.experts > 0 {
		rows *= p.model.ExpertsUsed
	}
	add(p, op+" gate·up", elementwise.Fused(), elementwise.FusedArgs{X: gate.y, Up: q.y, Y: gate.y, Rows: rows, Width: up.rows})
}

// rowsPerX returns how many rows of y are computed from each row of x: with sharedX one per
// expert of the token, else one.
func (p *planner) rowsPerX(q matrixProduct) int {
	if q.sharedX {
		return p.model.ExpertsUsed
	}
	return 1
}

func (p *planner) epilogue(q matrixProduct) product.Epilogue {
	return product.Epilogue{Norm: q.norm.kind == norm.RMS, Softcap: q.softcap != 0, Activation: q.act, Gated: q.w.gated}
}

func (p *planner) streamFor(q matrixProduct, tokens int) (product.Stream, bool) {
	if q.w.experts > 0 {
		tokens = 1
	}
	props := p.layout.props
	s, ok := product.StreamFor(q.w.format, p.epilogue(q), tokens, q.w.k, kernelcache.MaxTarget(props), props.SharedPerCTA)
	s.Experts = q.w.experts > 0
	return s, ok
}

func (p *planner) tileFor(q matrixProduct, tokens int) product.Tile {
	props := p.layout.props
	return product.TileFor(q.w.format, p.epilogue(q), tokens, q.w.rows, kernelcache.MaxTarget(props), props.SMs, props.SharedPerCTA)
}

// activations identifies the contents of a buffer of activations that several products share.
type activations struct {
	x      ptx.Address
	norm   normWeights
	layer  int
	kernel string // that wrote the buffer
}

// layerNorm normalizes rows of q.x into Buffers.out, unless it has them already, and returns its address.
func (p *planner) layerNorm(op string, q matrixProduct, rows int) ptx.Address {
	want := activations{x: q.x, norm: q.norm, layer: p.layer}
	if want != p.normed {
		p.normed = want
		add(p, op+" norm", norm.Rows(norm.Layer, quant.F32), norm.RowsArgs{
			X: q.x, Weight: q.norm.weight, Bias: q.norm.bias, Y: p.buf.out, Tokens: rows, Width: q.w.k, Eps: p.model.NormEps,
		})
	}
	return p.buf.out
}

// round rounds activations for a Tile into Buffers.rounded, unless it has them already.
func (p *planner) round(op string, q matrixProduct, t product.Tile, a product.RoundArgs) {
	k := t.Round()
	want := activations{x: q.x, norm: q.norm, layer: p.layer, kernel: k.Name()}
	if want == p.rounded {
		return
	}
	p.rounded = want
	a.Y = p.buf.rounded
	if t.Epilogue.Norm {
		a.NormWeight, a.Eps = q.norm.weight, p.model.NormEps
	}
	add(p, op+" round", k, a)
}

// roundedBytes returns the size of the rounded activations of a product for a number of tokens.
func (p *planner) roundedBytes(q matrixProduct, tokens int) int {
	if _, ok := p.streamFor(q, tokens); ok {
		return 0
	}
	return p.tileFor(q, tokens).RoundedBytes(tokens, q.w.k)
}
