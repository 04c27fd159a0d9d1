package plan

import (
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// product is a matrix product with what may be fused into it:
//
//	y = act(softcap(W·norm(x) + bias)) ⊙ (Up·norm(x)) + y
//
// for each row of x. A field that is zero leaves its operation out.
type product struct {
	w, up    *matrix     // up may be nil
	x        ptx.Address // f32 [rows, w.k]
	y        ptx.Address // f32, rows yStride apart
	yStride  int         // elements; 0: w.rows
	norm     normWeights
	act      elementwise.Activation
	softcap  float32
	residual bool
	rows     int  // of x; 0: the tokens of the forward pass
	sharedX  bool // of experts: all experts of a token have the same row of x
}

// product adds the launches of a matrix product. A prompt chunk uses the prefill kernels;
// anything else uses the decode kernels, which read the weights once for all rows.
func (p *planner) product(op string, q product) {
	if q.rows == 0 {
		q.rows = p.shape.Tokens
	}
	if q.up != nil && (p.shape.Prefill() || q.up.format != q.w.format || q.up.bias != 0) {
		p.unfusedGate(op, q)
		return
	}
	if p.shape.Prefill() {
		p.gemm(op, q)
	} else {
		p.gemv(op, q)
	}
}

// unfusedGate computes a gated product as two products and a multiplication.
func (p *planner) unfusedGate(op string, q product) {
	gate, up := q, q
	gate.up, up.up = nil, nil
	up.w, up.y, up.act = q.up, p.buf.up, elementwise.Identity
	p.product(op+" gate", gate)
	p.product(op+" up", up)
	add(p, op+" gate·up", elementwise.Fused(), elementwise.FusedArgs{X: q.y, Up: p.buf.up, Y: q.y, Rows: p.rowsOfY(q), Width: q.w.rows})
}

// rowsOfY returns the rows of y.
func (p *planner) rowsOfY(q product) int {
	if q.w.experts > 0 {
		return p.shape.Tokens * p.model.ExpertsUsed
	}
	return q.rows
}

// rowsPerX returns how many rows of y are computed from each row of x: with sharedX one per
// expert of the token, else one.
func (p *planner) rowsPerX(q product) int {
	if q.sharedX {
		return p.model.ExpertsUsed
	}
	return 1
}

func (p *planner) gemv(op string, q product) {
	if q.batched() {
		p.gemvBatch(op, q)
		return
	}
	s, err := p.gemvFor(q)
	if err != nil {
		p.fail(op, err)
		return
	}
	a := p.gemvArgs(q)
	if q.w.experts > 0 {
		a.Experts, a.Slots, a.SlotsPerX, a.ExpertBytes = p.buf.experts, p.rowsOfY(q), p.rowsPerX(q), q.w.expertBytes
		add(p, op, s, a)
		return
	}
	for left := q.rows; left > 0; left -= s.Columns {
		a.Columns = min(left, s.Columns)
		add(p, op, s, a)
		a.X += ptx.Address(4 * s.Columns * a.K)
		a.Y += ptx.Address(4 * s.Columns * a.YStride)
		if a.Residual != 0 {
			a.Residual = a.Y
		}
	}
}

// gemvColumns is the maximum number of rows of x per launch of Gemv.
const gemvColumns = 16

func (p *planner) gemvFor(q product) (matmul.Gemv, error) {
	columns := min(q.rows, gemvColumns)
	if q.w.experts > 0 {
		columns = 1
	}
	return matmul.GemvFor(q.w.format, columns, q.up != nil, q.w.k, p.layout.props.SharedPerCTA)
}

func (p *planner) gemvArgs(q product) matmul.GemvArgs {
	a := matmul.GemvArgs{
		X: q.x, W: q.w.at, Y: q.y, Rows: q.w.rows, K: q.w.k, Columns: 1, YStride: q.yStride,
		Norm: q.norm.kind, NormWeight: q.norm.weight, NormBias: q.norm.bias, Eps: p.model.NormEps,
		Bias: q.w.bias, Softcap: q.softcap, Activation: q.act,
		Workspace: p.buf.workspace, SMs: p.layout.props.SMs, Shared: p.layout.props.SharedPerCTA,
	}
	if a.YStride == 0 {
		a.YStride = a.Rows
	}
	if q.up != nil {
		a.Up = q.up.at
	}
	if q.residual {
		a.Residual = q.y
	}
	return a
}

// gemvWorkspace returns the bytes of workspace that a product needs for the tokens of the forward
// pass, and the bytes of its quantized activations.
func (p *planner) gemvWorkspace(q product) (workspace, quantized int64, err error) {
	if q.rows = p.shape.Tokens; q.batched() {
		return p.batchWorkspace(q)
	}
	s, err := p.gemvFor(q)
	if err != nil {
		return 0, 0, err
	}
	k, err := kernelOf(s)
	if err != nil {
		return 0, 0, err
	}
	a := p.gemvArgs(q)
	if a.Columns = min(q.rows, s.Columns); q.w.experts > 0 {
		a.Slots = p.layout.Slots * p.model.ExpertsUsed // one launch computes all of them
	}
	n, err := s.Workspace(k, a)
	return int64(n), 0, err
}

// batched reports whether a product has several rows of x and quantized weights. Its kernel
// takes quantized activations, which all matrices with the same x share.
func (q product) batched() bool {
	return q.rows > 1 && q.w.experts == 0 && q.w.format.BlockLen() > 1
}

// gemvBatch adds a product of several rows. Each row gets the same bits as in a product of
// one row.
func (p *planner) gemvBatch(op string, q product) {
	s, err := p.batchFor(q)
	if err != nil {
		p.fail(op, err)
		return
	}
	p.quantizeActivations(op, q, s.Digits())
	add(p, op, s, p.batchArgs(q))
}

func (p *planner) batchFor(q product) (matmul.BatchKernel, error) {
	return matmul.GemvBatchFor(q.w.format, q.rows, q.up != nil, q.w.k, kernelcache.MaxTarget(p.layout.props), p.layout.props.SharedPerCTA)
}

func (p *planner) batchArgs(q product) matmul.GemvBatchArgs {
	one := p.gemvArgs(q)
	return matmul.GemvBatchArgs{
		Digits: p.buf.quantized, W: one.W, Up: one.Up, Y: one.Y, Rows: one.Rows, K: one.K, Columns: q.rows, YStride: one.YStride,
		Bias: one.Bias, Softcap: one.Softcap, Activation: one.Activation, Residual: one.Residual,
		Workspace: one.Workspace, SMs: one.SMs, Shared: one.Shared,
	}
}

func (p *planner) batchWorkspace(q product) (workspace, quantized int64, err error) {
	s, err := p.batchFor(q)
	if err != nil {
		return 0, 0, err
	}
	k, err := kernelOf(s)
	if err != nil {
		return 0, 0, err
	}
	n, err := s.Workspace(k, p.batchArgs(q))
	return int64(n), s.Digits().Bytes(q.w.k, q.rows), err
}

// quantizedKey identifies the contents of the buffer of quantized activations.
type quantizedKey struct {
	x     ptx.Address
	norm  normWeights
	layer int
	rows  int
	width int
	spec  matmul.Digits
}

// quantizeActivations quantizes the rows of x, unless the buffer holds them already.
func (p *planner) quantizeActivations(op string, q product, s matmul.Digits) {
	want := quantizedKey{x: q.x, norm: q.norm, layer: p.layer, rows: q.rows, width: q.w.k, spec: s}
	if want == p.quantized {
		return
	}
	p.quantized = want
	add(p, op+" quantize", s, matmul.DigitsArgs{
		X: q.x, Out: p.buf.quantized, K: q.w.k, Vectors: q.rows,
		Norm: q.norm.kind, NormWeight: q.norm.weight, NormBias: q.norm.bias, Eps: p.model.NormEps,
	})
}

func (p *planner) gemm(op string, q product) {
	input, rows := matmul.InputFormat(q.w.format), q.rows
	scale := p.castActivations(op, q, input)
	a := matmul.GEMMArgs{
		X: p.buf.cast, Scale: scale, W: q.w.at, Y: q.y, M: rows, N: q.w.rows, K: q.w.k, YStride: q.yStride,
		Bias: q.w.bias, Activation: q.act,
	}
	if q.residual {
		a.Residual = q.y
	}
	n := q.w.rows
	if q.w.experts > 0 {
		// A token uses an expert at most once, so no expert has more rows than there are tokens.
		a.M, a.Experts, a.ExpertBytes, a.Offsets, a.Order, a.RowsPerX = p.shape.Tokens, q.w.experts, q.w.expertBytes, p.buf.expertOffsets, p.buf.expertRows, p.rowsPerX(q)
		rows, n = ceilDiv(p.rowsOfY(q), q.w.experts), n*q.w.experts
	}
	// Rows are rounded up to a power of two, so that prompts of all lengths share few kernels.
	s := matmul.GEMMFor(q.w.format, input, CeilPow2(rows), n, p.layout.props.SMs, p.layout.props.SharedPerCTA)
	add(p, op, s, a)
}

// castKey identifies the contents of the buffer of activations in 16 bits.
type castKey struct {
	x     ptx.Address
	norm  normWeights
	to    quant.Format
	layer int
	scale ptx.Address
}

// castActivations rounds the rows of x to 16 bits, unless the buffer holds them already. It
// returns the address of their scales, or 0.
func (p *planner) castActivations(op string, q product, to quant.Format) (scale ptx.Address) {
	normed := q.norm.kind != norm.None
	// If rows need no padding, norm.Rows writes 16-bit values directly into buf.cast. It
	// need not scale them: normalized values are small enough for f16.
	direct := normed && elementwise.PaddedWidth(q.w.k) == q.w.k
	want := castKey{x: q.x, norm: q.norm, to: to, layer: p.layer}
	if !direct && to == quant.F16 {
		want.scale = p.buf.scale
	}
	if want == p.cast {
		return want.scale
	}
	p.cast = want
	x := q.x
	if normed {
		format := quant.F32
		a := norm.RowsArgs{X: x, Weight: q.norm.weight, Bias: q.norm.bias, Y: p.buf.out, Tokens: q.rows, Width: q.w.k, Eps: p.model.NormEps}
		if x = p.buf.out; direct {
			format, a.Y = to, p.buf.cast
		}
		add(p, op+" norm", norm.Rows(q.norm.kind, format), a)
	}
	if !direct {
		add(p, op+" cast", elementwise.Cast(to), elementwise.CastArgs{X: x, Y: p.buf.cast, Scale: p.buf.scale, Rows: q.rows, Width: q.w.k})
	}
	return want.scale
}
