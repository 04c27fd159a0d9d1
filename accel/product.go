package accel

import (
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// product is
//
//	y = act(cap(W·norm(x) + bias)) ⊙ (Up·norm(x)) + y
//
// for each row of x, of which a use leaves out what it does not need. Rows of x are as
// wide as W, those of y are yStride apart.
type product struct {
	w, up    *matrix // up may be nil
	x, y     ptxgen.Address
	yStride  int // 0: as wide as W has rows
	norm     norm
	act      ptxgen.Activation
	cap      float32
	residual bool
	rows     int  // of x; 0: those of the pass
	shared   bool // of a mixture: one row of x serves all experts of a token; else each has its own
}

// product computes as the pass does: a few rows by reading weights once, prompts on
// tensor cores.
func (b *planner) product(op string, p product) {
	if p.rows == 0 {
		p.rows = b.rows()
	}
	if p.up != nil && (b.fast || p.up.format != p.w.format || p.up.bias != 0) {
		b.gatedApart(op, p)
		return
	}
	if b.fast {
		b.gemm(op, p)
	} else {
		b.gemv(op, p)
	}
}

// gatedApart is a gated product by two, and a multiplication.
func (b *planner) gatedApart(op string, p product) {
	gate, up := p, p
	gate.up, up.up = nil, nil
	up.w, up.y, up.act = p.up, b.up, ptxgen.Identity
	b.product(op+" gate", gate)
	b.product(op+" up", up)
	add(b, op+" gate·up", ptxgen.Elementwise{}, ptxgen.ElementwiseArgs{X: p.y, Up: b.up, Y: p.y, Rows: b.entries(p), Width: p.w.rows})
}

// entries is how many rows y has.
func (b *planner) entries(p product) int {
	if p.w.experts > 0 {
		return b.rows() * b.cfg.ExpertsUsed
	}
	return p.rows
}

func (b *planner) gemv(op string, p product) {
	if p.batched() {
		b.gemvBatch(op, p)
		return
	}
	s, err := b.gemvFor(p)
	if err != nil {
		b.fail(op, err)
		return
	}
	a := b.gemvArgs(p)
	if p.w.experts > 0 {
		a.Experts, a.Slots, a.SlotsPerX, a.ExpertBytes = b.chosen, b.entries(p), 1, p.w.expertBytes
		if p.shared {
			a.SlotsPerX = b.cfg.ExpertsUsed
		}
		add(b, op, s, a)
		return
	}
	for left := p.rows; left > 0; left -= s.Columns {
		a.Columns = min(left, s.Columns)
		add(b, op, s, a)
		a.X += ptxgen.Address(4 * s.Columns * a.K)
		a.Y += ptxgen.Address(4 * s.Columns * a.YStride)
		if a.Residual != 0 {
			a.Residual = a.Y
		}
	}
}

// mostColumns is how many rows a launch of Gemv takes, of weights that are numbers.
const mostColumns = 16

func (b *planner) gemvFor(p product) (ptxgen.Gemv, error) {
	columns := min(p.rows, mostColumns)
	if p.w.experts > 0 {
		columns = 1
	}
	return ptxgen.GemvFor(p.w.format, columns, p.up != nil, p.w.k, b.props.SharedPerCTA)
}

func (b *planner) gemvArgs(p product) ptxgen.GemvArgs {
	a := ptxgen.GemvArgs{
		X: p.x, W: p.w.at, Y: p.y, Rows: p.w.rows, K: p.w.k, Columns: 1, YStride: p.yStride,
		Norm: p.norm.kind, NormWeight: p.norm.weight, NormBias: p.norm.bias, Eps: b.cfg.NormEps,
		Bias: p.w.bias, Softcap: p.cap, Activation: p.act,
		Workspace: b.workspace, SMs: b.props.SMs, Shared: b.props.SharedPerCTA,
	}
	if a.YStride == 0 {
		a.YStride = a.Rows
	}
	if p.up != nil {
		a.Up = p.up.at
	}
	if p.residual {
		a.Residual = p.y
	}
	return a
}

// inputOf is what activations are rounded to for a product with such weights.
func inputOf(f quant.Format) quant.Format {
	if f == quant.BF16 {
		return quant.BF16
	}
	return quant.F16
}

func (b *planner) gemm(op string, p product) {
	input, rows := inputOf(p.w.format), p.rows
	scale := b.round(op, p, input)
	a := ptxgen.GEMMArgs{
		X: b.narrow, Scale: scale, W: p.w.at, Y: p.y, M: rows, N: p.w.rows, K: p.w.k, YStride: p.yStride,
		Bias: p.w.bias, Activation: p.act,
	}
	if p.residual {
		a.Residual = p.y
	}
	n := p.w.rows
	if p.w.experts > 0 {
		// A token takes an expert once, so none has more rows than there are tokens.
		a.M, a.Experts, a.ExpertBytes, a.Offsets, a.Order, a.RowsPerX = b.rows(), p.w.experts, p.w.expertBytes, b.offsets, b.order, 1
		if p.shared {
			a.RowsPerX = b.cfg.ExpertsUsed
		}
		rows, n = ceilDiv(b.entries(p), p.w.experts), n*p.w.experts
	}
	// A power of two, so that prompts of all lengths share few kernels.
	s := ptxgen.GEMMFor(p.w.format, input, ceilPow2(rows), n, b.props.SMs, b.props.SharedPerCTA)
	add(b, op, s, a)
}

// narrowed says what the narrow rows are: x of so many rows, normalized, rounded.
type narrowed struct {
	x     ptxgen.Address
	norm  norm
	to    quant.Format
	layer int
	scale ptxgen.Address
}

// round rounds the rows of a product to 16 bits, unless that is what the buffer holds,
// and gives the address of their scales.
func (b *planner) round(op string, p product, to quant.Format) (scale ptxgen.Address) {
	n := ptxgen.Narrow{To: to}
	normed := p.norm.kind != ptxgen.NoNorm
	// Norm can round by itself, but neither pads nor scales. What is normalized is small
	// enough for halves.
	direct := normed && n.Padded(p.w.k) == p.w.k
	want := narrowed{x: p.x, norm: p.norm, to: to, layer: b.layer}
	if !direct && to == quant.F16 {
		want.scale = b.scale
	}
	if want == b.narrowed {
		return want.scale
	}
	b.narrowed = want
	x := p.x
	if normed {
		spec := ptxgen.Norm{Layer: p.norm.kind == ptxgen.LayerNorm}
		a := ptxgen.NormArgs{X: x, Weight: p.norm.weight, Bias: p.norm.bias, Y: b.out, Tokens: p.rows, Width: p.w.k, Eps: b.cfg.NormEps}
		if x = b.out; direct {
			spec.To, a.Y = to, b.narrow
		}
		add(b, op+" norm", spec, a)
	}
	if !direct {
		add(b, op+" rounding", n, ptxgen.NarrowArgs{X: x, Y: b.narrow, Scale: b.scale, Rows: p.rows, Width: p.w.k})
	}
	return want.scale
}

// gemvWorkspace is how many bytes of workspace a product of the pass's rows needs, and how
// many its digits take.
func (b *planner) gemvWorkspace(p product) (workspace, digits int64, err error) {
	if p.rows = b.rows(); p.batched() {
		return b.batchWorkspace(p)
	}
	s, err := b.gemvFor(p)
	if err != nil {
		return 0, 0, err
	}
	k, err := kernelOf(s)
	if err != nil {
		return 0, 0, err
	}
	a := b.gemvArgs(p)
	if a.Columns = min(p.rows, s.Columns); p.w.experts > 0 {
		// All rows are slots of one launch.
		a.Slots = b.stepRows * b.cfg.ExpertsUsed
	}
	n, err := s.Workspace(k, a)
	return int64(n), 0, err
}
