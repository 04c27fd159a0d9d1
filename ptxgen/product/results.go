package product

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// results are a lane's results of a row tile of an output tile. Of each eight tokens, a lane has two. It has rows r and r+8 of the
// row tile, which are two columns of y, or with Gated a row of gate and the same one of up, for one column.
type results struct {
	n       *tile
	out     ptx.U32 // the output tile
	i       int     // which row tile of the warp
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

// newResults returns the results of the warp's row tile i of an output tile. It emits nothing.
func (n *tile) newResults(out ptx.U32, i int) *results { return &results{n: n, out: out, i: i} }

// loadAll loads all that results need besides totals, so that the lane waits for memory once.
func (r *results) loadAll() {
	r.loadRowsAndFactors()
	for i := range r.columns {
		r.loadResiduals(&r.columns[i])
	}
}

// loadRowsAndFactors loads what results need besides totals and residuals.
func (r *results) loadRowsAndFactors() {
	n := r.n
	tokenTile, rowGroup := n.coords(r.out)
	r.tokens, r.factors = n.tokensOf(tokenTile, n.lane.AndN(3).MulN(2)), make([]ptx.F32, n.spec.Tokens/4)
	rowTile, first := rowGroup.MulN(n.spec.rowTilesPerOutput()).AddN(r.i*n.spec.warpsPerSegment()).Add(n.warp), n.lane.ShrN(2)
	row := rowTile.MulN(tileRows).Add(first)
	if n.spec.Epilogue.Gated {
		r.columns = []resultColumn{{column: rowTile.MulN(tileRows / 2).Add(first), sums: []int{0, 2}}}
	} else {
		r.columns = []resultColumn{{column: row, sums: []int{0}}, {column: row.AddN(8), sums: []int{2}}}
	}
	scales, bias := n.rowsOf(tokenTile)
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
		if hasRowScale(n.spec.Format) {
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

// store computes the results from totals, four for each eight tokens, and stores them. Without loadAll before, it loads what it
// needs when it needs it, which takes fewer registers.
func (r *results) store(totals []ptx.F32) {
	n, b := r.n, r.n.b
	if r.columns == nil {
		r.loadRowsAndFactors()
	}
	for _, c := range r.columns {
		values := make([]ptx.F32, len(r.factors))
		for t, factor := range r.factors {
			for j, sum := range c.sums {
				c.rows[j].sum = totals[t/2*4+t%2+sum]
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

// laneTokens are a lane's tokens of a token tile: two of each eight, from the first one on.
type laneTokens struct {
	n     *tile
	token ptx.U32    // the first one
	slots ptx.Global // with experts: address of the slot of the first position
}

// tokensOf returns a lane's tokens of a token tile, from a position of the token tile on.
func (n *tile) tokensOf(tokenTile, position ptx.U32) laneTokens {
	if n.spec.Experts {
		return laneTokens{n: n, slots: routes{n.spec.round()}.slot(n.routeOf(tokenTile), position)}
	}
	return laneTokens{n: n, token: tokenTile.MulN(n.spec.Tokens).Add(position)}
}

// rowOfY returns the row of y of the lane's token i, and whether there is one.
func (c laneTokens) rowOfY(i int) (row ptx.U32, live ptx.Pred) {
	distance := i/2*8 + i%2 // from the first token
	if c.n.spec.Experts {
		row = c.slots.Plus(4 * distance).LoadU32()
		return row, row.Ne(c.n.b.U32(noSlot))
	}
	row = c.token.AddN(distance)
	return row, row.Lt(c.n.p.Tokens)
}

// factors returns the address of the factors of a norm.
func (c laneTokens) factors() ptx.Global {
	if c.n.spec.Experts {
		return c.slots.Plus(4 * c.n.spec.Tokens)
	}
	return c.n.norm.Factors.At(c.token, 4)
}
