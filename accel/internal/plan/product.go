package plan

import (
	"cmp"

	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/internal/sizeclass"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// matrixProduct is a matrix product with what may be fused into it:
//
//	y = act(softcap(scale·(W·norm(x) + bias))) + y
//
// for each row of x, or if W is gate and up interleaved, y = act(gate·norm(x) + bias) ⊙ (up·norm(x) + bias). A field
// that is zero leaves its operation out.
type matrixProduct struct {
	w        *matrix
	x        ptx.Address // f32 [rows, w.k]
	y        ptx.Address // f32, rows yStride apart
	yStride  int         // elements; 0: the columns of y
	norm     normWeights
	act      elementwise.Activation
	scale    float32 // 0 or 1: none
	softcap  float32
	residual bool
	rows     int  // of x; 0: the tokens of the forward pass
	sharedX  bool // of experts: all experts of a token have the same row of x

	slotFactors ptx.Address // f32 [slots], of experts: factors of the rows of norm(x); 0: all 1
}

// product adds the launch of matrix products that differ in w and y alone. The number of rows of x decides between Stream and
// Tile, which give equal bits.
func (p *planner) product(op string, parts ...matrixProduct) {
	q := parts[0]
	tokens := cmp.Or(q.rows, p.shape.Tokens)
	x := q.x
	if q.norm.kind == norm.Layer {
		x = p.layerNorm(op, q, tokens)
	}
	args := make([]product.Args, len(parts))
	for i, q := range parts {
		args[i] = product.Args{
			X: x, W: q.w.at, Y: q.y, YStride: q.yStride, Bias: q.w.bias, Tokens: tokens, Rows: q.w.rows, K: q.w.k,
			CTAs: p.layout.props.SMs, Softcap: q.softcap, ExpertBytes: q.w.expertBytes,
		}
		if q.scaled() {
			args[i].Scale = q.scale
		}
		if q.residual {
			args[i].Residual = q.y
		}
	}
	if streams, ok := p.streamsFor(parts, tokens); ok {
		for i := range args {
			a := &args[i]
			if q.w.experts > 0 {
				a.Tokens, a.Experts, a.Slots, a.SlotsPerX = 1, p.buf.experts, p.slots(), p.slotsPerX(q)
			}
			if q.norm.kind == norm.RMS {
				a.NormWeight, a.Eps, a.SlotFactors = q.norm.weight, p.model.NormEps, q.slotFactors
			}
			a.CTAs *= streams[0].CTAs
		}
		add(p, op, product.Beside(streams...), args)
		return
	}
	tiles := p.tilesFor(parts, tokens)
	t, r := tiles[0], product.RoundArgs{X: x, Tokens: tokens, K: q.w.k}
	if t.Experts {
		r.Tokens, r.Experts, r.SlotsPerX = p.slots(), q.w.experts, p.slotsPerX(q)
		r.Offsets, r.Order, r.Routes = p.buf.expertOffsets, p.buf.expertOrder, p.buf.expertRoutes
		args[0].Tokens, args[0].Experts = t.PaddedSlots(r.Tokens, r.Experts), r.Routes
	}
	p.round(op, q, t, r)
	for i := range args {
		args[i].X = p.buf.rounded
	}
	add(p, op, product.Beside(tiles...), args)
}

func (q matrixProduct) scaled() bool { return q.scale != 0 && q.scale != 1 }

// gateThenUp computes act(gate·norm(x)) ⊙ (up·norm(x)) of matrices that are not interleaved. A sparsity above 0 changes
// gate·norm(x) before act: see norm.Sparsify.
func (p *planner) gateThenUp(op string, gate matrixProduct, up *matrix, sparsity float32) {
	q := gate
	q.w, q.y = up, p.buf.up
	act := gate.act
	gate.act, q.act = elementwise.Identity, elementwise.Identity
	p.product(op+" gate", gate)
	p.product(op+" up", q)
	rows := p.shape.Tokens
	if up.experts > 0 {
		rows = p.slots()
	}
	if sparsity > 0 {
		add(p, op+" sparsity", norm.Sparsify(), norm.SparsifyArgs{X: gate.y, Rows: rows, Width: up.rows, Sparsity: sparsity})
	}
	add(p, op+" gate·up", elementwise.Fused(), elementwise.FusedArgs{X: gate.y, Up: q.y, Y: gate.y, Rows: rows, Width: up.rows, Activation: act})
}

// slots returns the number of pairs of a token and one of its experts.
func (p *planner) slots() int { return p.shape.Tokens * p.model.ExpertsUsed }

// slotsPerX returns how many slots share a row of x: with sharedX all of a token, else each has its own.
func (p *planner) slotsPerX(q matrixProduct) int {
	if q.sharedX {
		return p.model.ExpertsUsed
	}
	return 1
}

func (p *planner) epilogue(q matrixProduct) product.Epilogue {
	return product.Epilogue{Norm: q.norm.kind == norm.RMS, Scaled: q.scaled(), Softcap: q.softcap != 0, Activation: q.act, Gated: q.w.interleaved}
}

// streamsFor returns the Streams of products. ok is false if Tiles compute them. Stream reads the matrix of an
// expert for each slot, so a Tile is faster where slots outnumber experts.
func (p *planner) streamsFor(parts []matrixProduct, tokens int) (list []product.Stream, ok bool) {
	props := p.layout.props
	for _, q := range parts {
		if q.w.experts > 0 {
			if p.slots() > q.w.experts {
				return nil, false
			}
			tokens = 1
		}
		s, ok := product.StreamFor(q.w.format, p.epilogue(q), tokens, q.w.k, kernelcache.MaxTarget(props), props.SharedPerCTA)
		if !ok {
			return nil, false
		}
		s.Experts = q.w.experts > 0
		list = append(list, s)
	}
	return list, true
}

// tiled reports whether a Tile multiplies by the experts of w, so that their slots must be sorted.
func (p *planner) tiled(w *matrix, n normWeights) bool {
	if w.empty() {
		return false
	}
	_, ok := p.streamsFor([]matrixProduct{{w: w, norm: n}}, p.shape.Tokens)
	return !ok
}

// tilesFor returns the Tiles of products, which multiply the same activations.
func (p *planner) tilesFor(parts []matrixProduct, tokens int) []product.Tile {
	var formats []quant.Format
	rows := 0
	for _, q := range parts {
		formats, rows = append(formats, q.w.format), rows+q.w.rows
	}
	q, props := parts[0], p.layout.props
	if q.w.experts > 0 {
		// The same for all tokens of a size class, so that roundedBytes grows with the tokens.
		tokens, rows = ceilDiv(sizeclass.Of(p.shape.Tokens)*p.model.ExpertsUsed, q.w.experts), rows*q.w.experts
	}
	like := product.Tile{Experts: q.w.experts > 0, Epilogue: p.epilogue(q)}
	return product.TilesFor(formats, like, tokens, rows, kernelcache.MaxTarget(props), props.SMs, props.SharedPerCTA)
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
		a.NormWeight, a.Eps, a.SlotFactors = q.norm.weight, p.model.NormEps, q.slotFactors
	}
	add(p, op+" round", k, a)
}

// roundedBytes returns the sizes of the rounded activations of products that differ in w and y alone, and of their
// routes. p.shape has the number of tokens.
func (p *planner) roundedBytes(parts ...matrixProduct) (rounded, routes int) {
	tokens := p.shape.Tokens
	if _, ok := p.streamsFor(parts, tokens); ok {
		return 0, 0
	}
	t, w := p.tilesFor(parts, tokens)[0], parts[0].w
	if t.Experts {
		tokens, routes = t.PaddedSlots(p.slots(), w.experts), t.RouteBytes(p.slots(), w.experts)
	}
	return t.RoundedBytes(tokens, w.k), routes
}
