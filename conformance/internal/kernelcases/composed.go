package kernelcases

import (
	"fmt"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/quant"
)

// composedCases compare kernels with each other bit for bit: a fused kernel with the
// kernels that it replaces, and a row of a batch with the row alone.
func composedCases() []harness.Case {
	return []harness.Case{
		{Operation: "rope and append", Format: "F16", Name: "fused/norm, rope, append", Reason: "one launch gives the same bits as three", Run: checkFusedRope},
		{Operation: "rmsnorm", Format: "F32", Name: "fused/residual", Reason: "one launch gives the same bits as two", Run: checkFusedResidual},
		{Operation: "rmsnorm", Format: "F32", Name: "alone", Reason: "a row does not depend on other rows", Run: checkNormAlone},
	}
}

func checkFusedRope(r *harness.Fixture) {
	const tokens, heads, kvHeads, dim, row = 3, 4, 2, 128, (4 + 2*2) * 128
	qkv := r.Vector(harness.Gaussian, tokens*row)
	positions := r.U32s("positions", []uint32{70, 71, 72})
	table := r.U32s("table", []uint32{1, 0})
	freq := r.F64s("freq", ropeFrequencies(ropeCase{rot: dim}))
	q, k := r.F32s("q norm", r.Vector(harness.Gaussian, dim)), r.F32s("k norm", r.Vector(harness.Gaussian, dim))
	var results [2][][]byte
	for i, fused := range []bool{true, false} {
		name := func(s string) string { return fmt.Sprintf("%s %d", s, i) }
		buffer := r.Scratch(name("qkv"), 4*len(qkv)).SetF32s(0, qkv) // only the queries are compared
		kCache, vCache := r.Output(name("k cache"), 2*2*kvHeads*attention.PageTokens*dim), r.Output(name("v cache"), 2*2*kvHeads*attention.PageTokens*dim)
		a := rope.AppendArgs{
			Q: buffer.Addr(), Key: buffer.At(4 * heads * dim), Value: buffer.At(4 * (heads + kvHeads) * dim),
			QStride: row, KStride: row, VStride: row, Freq: freq.Addr(), Positions: positions.Addr(), Table: table.Addr(),
			KCache: kCache.Addr(), VCache: vCache.Addr(), Tokens: tokens, Heads: heads, KVHeads: kvHeads, HeadDim: dim,
			Rot: dim, NeoX: true, MaxPages: 2, Eps: 1e-6,
		}
		fusedRope := rope.Append(quant.F16, attention.PageTokens)
		if fused {
			a.QNorm, a.KNorm = q.Addr(), k.Addr()
			r.Launch(fusedRope.Launch(r.Kernel(fusedRope), a))
		} else {
			unfusedRope(r, a, q, k)
		}
		for h := range kvHeads {
			from, bytes := 2*(h*attention.PageTokens+70%attention.PageTokens)*dim, 2*tokens*dim // in page 0
			results[i] = append(results[i], kCache.Range(from, bytes), vCache.Range(from, bytes))
		}
		for t := range tokens {
			results[i] = append(results[i], buffer.Range(4*t*row, 4*heads*dim))
		}
	}
	for i := range results[0] {
		harness.Exact(r, fmt.Sprintf("part %d", i), results[0][i], results[1][i])
	}
}

// unfusedRope launches the kernels that one rope.Append with norms replaces: both norms,
// RoPE of queries and of keys in place, and an append.
func unfusedRope(r *harness.Fixture, a rope.AppendArgs, q, k *harness.Buffer) {
	rmsNorm, appendRope := norm.Rows(norm.RMS, quant.F32), rope.Append(quant.F16, attention.PageTokens)
	for _, n := range []norm.RowsArgs{
		{X: a.Q, Weight: q.Addr(), Heads: a.Heads, XStride: a.QStride}, {X: a.Key, Weight: k.Addr(), Heads: a.KVHeads, XStride: a.KStride},
	} {
		n.Y, n.YStride, n.Tokens, n.Width, n.Eps = n.X, n.XStride, a.Tokens, a.HeadDim, a.Eps
		r.Launch(rmsNorm.Launch(r.Kernel(rmsNorm), n))
	}
	onlyQ, onlyK, add := a, a, a
	onlyQ.KVHeads = 0
	onlyK.Q, onlyK.Heads, onlyK.KVHeads = a.Key, a.KVHeads, 0
	add.Heads, add.Rot = 0, 0
	for _, l := range []rope.AppendArgs{onlyQ, onlyK, add} {
		r.Launch(appendRope.Launch(r.Kernel(appendRope), l))
	}
}

func checkFusedResidual(r *harness.Fixture) {
	const tokens, width = 2, 100
	x, w := r.F32s("x", r.Vector(harness.Gaussian, tokens*width)), r.F32s("weight", r.Vector(harness.Gaussian, width))
	residual := r.F32s("residual", r.Vector(harness.Gaussian, tokens*width))
	fused, y := r.Output("fused", 4*tokens*width), r.Output("y", 4*tokens*width)
	rmsNorm, add := norm.Rows(norm.RMS, quant.F32), elementwise.Fused()
	a := norm.RowsArgs{X: x.Addr(), Weight: w.Addr(), Y: y.Addr(), Tokens: tokens, Width: width, Eps: 1e-5}
	r.Launch(rmsNorm.Launch(r.Kernel(rmsNorm), a))
	r.Launch(add.Launch(r.Kernel(add), elementwise.FusedArgs{X: y.Addr(), Residual: residual.Addr(), Y: y.Addr(), Rows: tokens, Width: width}))
	a.Residual, a.Y = residual.Addr(), fused.Addr()
	r.Launch(rmsNorm.Launch(r.Kernel(rmsNorm), a))
	harness.Exact(r, "y", fused.F32s(), y.F32s())
}

func checkNormAlone(r *harness.Fixture) {
	const tokens, width = 5, 260
	x, w := r.F32s("x", r.Vector(harness.Outliers, tokens*width)), r.F32s("weight", r.Vector(harness.Gaussian, width))
	checkAlone(r, tokens, width, func(y *harness.Buffer, first, n int) {
		spec := norm.Rows(norm.RMS, quant.F32)
		r.Launch(spec.Launch(r.Kernel(spec), norm.RowsArgs{
			X: x.At(4 * first * width), Weight: w.Addr(), Y: y.At(4 * first * width), Tokens: n, Width: width, Eps: 1e-5,
		}))
	})
}

// checkAlone launches all rows together and then each row alone, and demands the same bits.
func checkAlone(r *harness.Fixture, rows, width int, launch func(y *harness.Buffer, first, n int)) {
	together, alone := r.Output("together", 4*rows*width), r.Output("alone", 4*rows*width)
	launch(together, 0, rows)
	for i := range rows {
		launch(alone, i, 1)
	}
	harness.Exact(r, "rows", alone.F32s(), together.F32s())
}
