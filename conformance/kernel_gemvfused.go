package conformance

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// addGemvFused adds cases of what a product does beside the product.
func addGemvFused(add addGemv, f quant.Format) {
	add("gemv fused", gemvCase{
		name: "norms", reason: "a norm while the vector is staged is that of a kernel of its own",
		spec: ptxgen.Gemv{Format: f}, dist: Outliers, rows: 21, k: fewBlocks(f, 3),
	}, checkGemvNorms)
	if !slices.Contains(gemvKinds, f) {
		return
	}
	for _, c := range []struct {
		gemvCase
		run func(r *KernelRig, c gemvCase)
	}{
		{gemvCase{name: "gated", reason: "a gated product is that of two kernels", rows: 21, k: fewBlocks(f, 17)}, checkGemvGated},
		{gemvCase{name: "gated, slices", reason: "the epilogue is that of the slice that comes last", rows: 21, k: fewBlocks(f, 17), slices: 16}, checkGemvGated},
		{gemvCase{name: "gated, many CTAs", reason: "each of which may come last for some rows", rows: 300, k: fewBlocks(f, 5), slices: 2, ctas: 4}, checkGemvGated},
		{gemvCase{name: "gated, rounds", reason: "the results of two matrices take turns", rows: 151, k: 8 * gemvBlock(f), ctas: 1}, checkGemvGated},
		{gemvCase{name: "gated, RMSNorm", reason: "before two matrices", rows: 5, k: fewBlocks(f, 9), norm: ptxgen.RMSNorm}, checkGemvGated},
		{gemvCase{name: "gated, LayerNorm", reason: "before two matrices", rows: 5, k: fewBlocks(f, 3), norm: ptxgen.LayerNorm}, checkGemvGated},
		{gemvCase{name: "epilogue", reason: "bias, cap, activation and residual at a row's end are those of a kernel of their own", rows: 21, k: fewBlocks(f, 1)}, checkGemvEpilogue},
		{gemvCase{name: "epilogue, slices", reason: "the slice that comes last has it, too", rows: 21, k: fewBlocks(f, 2), slices: 16}, checkGemvEpilogue},
		{gemvCase{name: "norms, slices", reason: "of which each takes the norm of the whole vector", rows: 5, k: fewBlocks(f, 3), slices: 16}, checkGemvNorms},
		{gemvCase{name: "norms, a long row", reason: "of which a thread has many elements", rows: 1, k: 8704}, checkGemvNorms},
		{gemvCase{name: "RMSNorm, a long row", reason: "the same, cheap enough for mutants", rows: 1, k: 8704, norm: ptxgen.RMSNorm}, checkGemvNorms},
		{gemvCase{name: "norms, squares overflow", reason: "a norm that is taken at another scale", dist: NearOverflow, rows: 5, k: fewBlocks(f, 3)}, checkGemvNorms},
		{gemvCase{name: "norms, squares vanish", reason: "a norm that is taken at another scale", dist: Subnormal, rows: 5, k: fewBlocks(f, 3)}, checkGemvNorms},
		{gemvCase{name: "experts", reason: "an expert's product is that of its matrix alone", rows: 37, k: fewBlocks(f, 2)}, checkGemvExperts},
		{gemvCase{name: "experts, gated, slices", reason: "each slot has its own part of the workspace", spec: ptxgen.Gemv{Gated: true}, rows: 17, k: fewBlocks(f, 2), slices: 16}, checkGemvExperts},
	} {
		c.spec.Format = f
		if f.BlockLen() == 1 {
			c.rows = min(c.rows, 37)
		}
		add("gemv fused", c.gemvCase, c.run)
	}
}

// checkGemvGated compares a gated product with two products and a kernel that
// combines them, bit by bit.
func checkGemvGated(r *KernelRig, c gemvCase) {
	x := r.F32s("x", r.Vector(Gaussian, c.k))
	gate, _ := r.packed("gate", c.spec.Format, c.rows, c.k)
	up, _ := r.packed("up", c.spec.Format, c.rows, c.k)
	residual := r.F32s("residual", r.Vector(Gaussian, c.rows))
	normed := func(a ptxgen.GemvArgs) ptxgen.GemvArgs {
		a.Norm, a.Eps = c.norm, 1e-5
		return a
	}
	product := func(name string, w *Mem) *Mem {
		y := r.Output(name, 4*c.rows)
		c.launch(r, c.spec, normed(c.args(x, w, y)))
		return y
	}
	g, u := product("g", gate), product("u", up)
	both := c.spec
	both.Gated = true
	for _, act := range []ptxgen.Activation{ptxgen.SiLU, ptxgen.GELU} {
		fused, apart := r.Output("fused", 4*c.rows), r.Output("apart", 4*c.rows)
		a := normed(c.args(x, gate, fused))
		a.Up, a.Activation, a.Residual = up.Addr(), act, residual.Addr()
		c.launch(r, both, a)
		r.elementwise(ptxgen.ElementwiseArgs{
			X: g.Addr(), Up: u.Addr(), Residual: residual.Addr(), Y: apart.Addr(), Rows: 1, Width: c.rows, Activation: act,
		})
		Exact(r, fmt.Sprintf("activation %d", act), fused.F32s(), apart.F32s())
	}
}

func (r *KernelRig) elementwise(a ptxgen.ElementwiseArgs) {
	r.Helper()
	e := ptxgen.Elementwise{}
	r.Launch(e.Launch(r.Kernel(e), a))
}

// checkGemvEpilogue compares each part of the epilogue, and all of them, with the
// plain product and a kernel that does the rest, bit by bit. The residual is where
// the result goes.
func checkGemvEpilogue(r *KernelRig, c gemvCase) {
	x := r.F32s("x", r.Vector(Gaussian, c.k))
	w, _ := r.packed("w", c.spec.Format, c.rows, c.k)
	bias, data := r.F32s("bias", r.Vector(Gaussian, c.rows)), r.Vector(Gaussian, c.rows)
	plain := r.Output("plain", 4*c.rows)
	c.launch(r, c.spec, c.args(x, w, plain))
	for _, e := range []struct {
		name           string
		bias, residual bool
		cap            float32
		act            ptxgen.Activation
	}{
		{name: "bias", bias: true},
		{name: "residual", residual: true},
		{name: "cap", cap: 30},
		{name: "SiLU", act: ptxgen.SiLU},
		{name: "all", bias: true, residual: true, cap: 20, act: ptxgen.GELU},
	} {
		fused, apart := r.Output("fused", 4*c.rows), r.Output("apart", 4*c.rows)
		a := c.args(x, w, fused)
		b := ptxgen.ElementwiseArgs{X: plain.Addr(), Y: apart.Addr(), Rows: 1, Width: c.rows}
		a.Softcap, b.Cap, a.Activation, b.Activation = e.cap, e.cap, e.act, e.act
		if e.bias {
			a.Bias, b.Bias = bias.Addr(), bias.Addr()
		}
		if e.residual {
			fused.SetF32s(0, data)
			apart.SetF32s(0, data)
			a.Residual, b.Residual = fused.Addr(), apart.Addr()
		}
		c.launch(r, c.spec, a)
		r.elementwise(b)
		Exact(r, e.name, fused.F32s(), apart.F32s())
	}
}

// checkGemvNorms compares a product with a norm in front with the norm's own kernel,
// whose result is the reference's vector; a few units in its last places are allowed
// for.
func checkGemvNorms(r *KernelRig, c gemvCase) {
	x := r.Vector(c.dist, c.k)
	if c.dist != Subnormal {
		for i := range x {
			x[i] += 0.5
		}
	}
	in, weight, bias := r.Input("x", 4*c.k+4), r.F32s("weight", r.Vector(Gaussian, c.k)), r.F32s("bias", r.Vector(Gaussian, c.k))
	ones := r.F32s("ones", slices.Repeat([]float32{1}, c.k))
	w, file := r.packed("w", c.spec.Format, c.rows, c.k)
	for _, n := range []struct {
		name         string
		kind         ptxgen.NormKind
		weight, bias bool
		offset       int // of x, in bytes
	}{
		{"RMSNorm", ptxgen.RMSNorm, true, false, 0},
		{"RMSNorm, x not aligned", ptxgen.RMSNorm, true, false, 4},
		{"RMSNorm without a weight", ptxgen.RMSNorm, false, false, 0},
		{"RMSNorm with a bias", ptxgen.RMSNorm, true, true, 0},
		{"LayerNorm", ptxgen.LayerNorm, true, true, 0},
		{"LayerNorm without a weight", ptxgen.LayerNorm, false, false, 4},
	} {
		if c.norm != ptxgen.NoNorm && (n.kind != c.norm || !n.weight || n.bias || n.offset > 0) {
			continue
		}
		in.Poison(0, in.Len()).SetF32s(n.offset, x)
		norm := ptxgen.Norm{Layer: n.kind == ptxgen.LayerNorm}
		normal, y := r.Output("normal", 4*c.k), r.Output("y", 4*c.rows)
		a := c.args(in, w, y)
		a.X, a.Norm, a.Eps = in.At(n.offset), n.kind, 1e-5
		b := ptxgen.NormArgs{X: a.X, Y: normal.Addr(), Tokens: 1, Width: c.k, Eps: a.Eps}
		if b.Weight = ones.Addr(); n.weight {
			a.NormWeight, b.Weight = weight.Addr(), weight.Addr()
		}
		if n.bias {
			a.NormBias, b.Bias = bias.Addr(), bias.Addr()
		}
		r.Launch(norm.Launch(r.Kernel(norm), b))
		c.launch(r, c.spec, a)
		want := MatVecRef(c.spec.Format, file, c.rows, c.k, normal.F32s())
		r.Close(n.name, y.F32s(), want, c.rows, Tolerance{L: c.spec.Depth(c.k) + 4, Correlated: true})
	}
}

// checkGemvExperts compares the products of a few experts, in one launch, with those
// of each expert's matrices alone.
func checkGemvExperts(r *KernelRig, c gemvCase) {
	const experts, perX = 5, 2
	chosen := []uint32{4, 0, 2, 4}
	tokens := len(chosen) / perX
	x := r.F32s("x", r.Vector(Gaussian, tokens*c.k))
	size := (ptxgen.Packing{Format: c.spec.Format, K: c.k}).Bytes(c.rows)
	matrices := func(name string) *Mem {
		var all []byte
		for range experts {
			all = append(all, packedBytes(c.spec.Format, r.Weights(c.spec.Format, Gaussian, c.rows, c.k), c.rows, c.k)...)
		}
		return r.Bytes(name, all)
	}
	w := matrices("w")
	up := w
	list := r.U32s("experts", chosen)
	together, alone := r.Output("together", 4*len(chosen)*c.rows), r.Output("alone", 4*len(chosen)*c.rows)
	a := c.args(x, w, together)
	if c.spec.Gated {
		up = matrices("up")
		a.Up = up.Addr()
	}
	b := a
	a.Experts, a.Slots, a.SlotsPerX, a.ExpertBytes = list.Addr(), len(chosen), perX, size
	c.launch(r, c.spec, a)
	for i, e := range chosen {
		b.X, b.W, b.Y = x.At(4*(i/perX)*c.k), w.At(int(e)*size), alone.At(4*i*c.rows)
		if c.spec.Gated {
			b.Up = up.At(int(e) * size)
		}
		c.launch(r, c.spec, b)
	}
	Exact(r, "y", together.F32s(), alone.F32s())
}

// embedCase is a gather of rows of a packed matrix.
type embedCase struct {
	name, reason string
	format       quant.Format
	k            int
	random       bool // blocks of random bytes: scales may be NaN or infinite
	scale        float32
	residual     bool
}

func embedCases() []KernelCase {
	var rows []embedCase
	for _, f := range quant.Formats() {
		for _, k := range Widths(f) {
			if k <= 4096 {
				rows = append(rows, embedCase{name: fmt.Sprintf("k=%d", k), reason: WidthReason(k), format: f, k: k, scale: 1})
			}
		}
		if f.BlockLen() == 1 {
			rows = append(rows, embedCase{name: "k=90", reason: "two elements behind the last four", format: f, k: 90, scale: 1, residual: true})
		}
		rows = append(rows, embedCase{name: "any bytes", reason: "scales of any kind, NaN and infinite ones too", format: f, k: 2048, random: true, scale: 1},
			embedCase{name: "scaled", reason: "as Gemma's embedding is, with positions added as GPT-2's", format: f, k: 256, scale: 48, residual: true})
	}
	var all []KernelCase
	for _, c := range rows {
		all = append(all, KernelCase{
			Operation: "dequantize", Format: c.format.String(), Name: fmt.Sprintf("%v/%s", c.format, c.name), Reason: c.reason,
			Run: func(r *KernelRig) { checkEmbed(r, c) },
		})
	}
	return all
}

func checkEmbed(r *KernelRig, c embedCase) {
	const rows = 3
	tokens := []uint32{2, 0, 2, 1}
	file := r.Weights(c.format, Gaussian, rows, c.k)
	if c.random {
		for i := range file {
			file[i] = byte(r.Rand().Uint32())
		}
	}
	weights := make([]float32, rows*c.k)
	quant.Decode(c.format, weights, file)

	residual := r.Vector(Gaussian, len(tokens)*c.k)
	out := r.Output("out", 4*len(residual))
	a := ptxgen.EmbedArgs{
		W: r.Bytes("w", packedBytes(c.format, file, rows, c.k)).Addr(), Tokens: r.U32s("tokens", tokens).Addr(), Out: out.Addr(),
		Count: len(tokens), K: c.k, Scale: c.scale,
	}
	if c.residual {
		a.Residual = r.F32s("residual", residual).Addr()
	}
	var want []float32
	for i, token := range tokens {
		for j, w := range weights[int(token)*c.k : (int(token)+1)*c.k] {
			if c.scale != 1 {
				w *= c.scale
			}
			if c.residual {
				w = float32(w) + residual[i*c.k+j]
			}
			want = append(want, w)
		}
	}
	e := ptxgen.Embed{Format: c.format}
	r.Launch(e.Launch(r.Kernel(e), a))
	Exact(r, "out", out.F32s(), want)
	if !c.residual && c.scale == 1 {
		all := r.Output("all", 4*len(weights))
		a.Tokens, a.Count, a.Out = 0, rows, all.Addr()
		r.Launch(e.Launch(r.Kernel(e), a))
		Exact(r, "all", all.F32s(), weights)
	}
}
