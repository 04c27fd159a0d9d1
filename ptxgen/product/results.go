package product

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// results are a lane's results of a tile of weights. Of each eight tokens, a lane has two. It has rows r and r+8 of the weights, which are
// two columns of y, or with Gated a row of gate and the same one of up, for one column.
type results struct {
	n       *tile
	tile    ptx.U32 // of results
	i       int     // the warp's tile of weights
	tokens  laneTokens
	factors []ptx.F32 // {token}: f
	columns []resultColumn
}

// resultColumn is a column of y.
type resultColumn struct {
	column    ptx.U32
	sums      []int     // index of the first sum of each row of weights: 0 for row r, 2 for row r+8
	rows      []rowSum  // bias and scale of each of these rows
	residuals []ptx.F32 // {token}
}

// newResults returns the results of the warp's tile i of weights. It emits nothing.
func (n *tile) newResults(tile ptx.U32, i int) *results { return &results{n: n, tile: tile, i: i} }

// loadAll loads all that results need besides sums, so that the lane waits for memory once.
func (r *results) loadAll() {
	r.loadRowsAndFactors()
	for i := range r.columns {
		r.loadResiduals(&r.columns[i])
	}
}

// loadRowsAndFactors loads what results need besides sums and residuals.
func (r *results) loadRowsAndFactors() {
	n := r.n
	block, above := n.place(r.tile)
	r.tokens, r.factors = n.tokensOf(block, n.lane.AndN(3).MulN(2)), make([]ptx.F32, n.spec.Tokens/4)
	own, first := above.MulN(n.spec.weightTiles()).AddN(r.i*n.spec.consumers()).Add(n.warp), n.lane.ShrN(2)
	row := own.MulN(tileRows).Add(first)
	if n.spec.Epilogue.Gated {
		r.columns = []resultColumn{{column: own.MulN(tileRows / 2).Add(first), sums: []int{0, 2}}}
	} else {
		r.columns = []resultColumn{{column: row, sums: []int{0}}, {column: row.AddN(8), sums: []int{2}}}
	}
	scales, bias := n.rowsOf(block)
	for i := range r.columns {
		r.loadRows(&r.columns[i], row, scales, bias)
	}
	if n.spec.Epilogue.Norm {
		from := r.tokens.factors()
		for i := 0; i < len(r.factors); i += 2 {
			pair := from.Plus(16 * i).Aligned(8).LoadF32x2()
			copy(r.factors[i:], pair[:])
		}
	}
}

// loadResiduals loads the residuals of a column.
func (r *results) loadResiduals(c *resultColumn) {
	n, b := r.n, r.n.b
	for range r.factors {
		c.residuals = append(c.residuals, ptx.Var(b.F32(noResidual)))
	}
	b.If(r.live(*c).And(device.NonNil(b, n.p.Residual)), func() {
		r.eachToken(*c, func(t int, live ptx.Pred, at ptx.U32) {
			from := n.p.Residual.At(at, 4)
			b.When(live, func() { ptx.Set(c.residuals[t], from.LoadF32()) })
		})
	})
}

// loadRows loads the bias and the scale of the rows of a column. row is the lane's first one.
func (r *results) loadRows(c *resultColumn, row ptx.U32, scales, bias ptx.Global) {
	n, b := r.n, r.n.b
	load := func(from ptx.Global, at ptx.U32, none float32) ptx.F32 {
		v := ptx.Var(b.F32(none))
		b.If(r.live(*c).And(device.NonNil(b, from)), func() { ptx.Set(v, from.At(at, 4).LoadF32()) })
		return v
	}
	for _, sum := range c.sums {
		at := row.AddN(4 * sum)
		w := rowSum{bias: load(bias, at, 0)}
		if scaled(n.spec.Format) {
			w.scale = load(scales, at, 1)
		}
		c.rows = append(c.rows, w)
	}
}

// live reports whether y has the column.
func (r *results) live(c resultColumn) ptx.Pred { return c.column.Lt(r.n.p.Columns) }

// eachToken calls do with the number of each token of the lane, whether y has it, and the index in y of its result in the column.
func (r *results) eachToken(c resultColumn, do func(i int, live ptx.Pred, at ptx.U32)) {
	for i := range r.n.spec.Tokens / 4 {
		row, live := r.tokens.rowOfY(i)
		do(i, live, row.Mul(r.n.p.YStride).Add(c.column))
	}
}

// store computes the results from sums, four for each eight tokens, and stores them. Without loadAll before, it loads what it
// needs when it needs it, which takes fewer registers.
func (r *results) store(sums []ptx.F32) {
	n, b := r.n, r.n.b
	if r.columns == nil {
		r.loadRowsAndFactors()
	}
	for _, c := range r.columns {
		values := make([]ptx.F32, len(r.factors))
		for t, factor := range r.factors {
			for j, sum := range c.sums {
				c.rows[j].sum = sums[t/2*4+t%2+sum]
			}
			values[t] = n.spec.Epilogue.result(b, c.rows, factor, n.epi)
		}
		if c.residuals == nil {
			r.loadResiduals(&c)
		}
		b.If(r.live(c), func() {
			r.eachToken(c, func(t int, live ptx.Pred, at ptx.U32) {
				v, to := values[t].Add(c.residuals[t]), n.p.Y.At(at, 4)
				b.When(live, func() { to.StoreF32(v) })
			})
		})
	}
}
