package conformance

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// gemmInputs is what a product is made of, rounded as the kernel's inputs are.
type gemmInputs struct {
	gemmCase
	x      []float32 // [m, k]: cells times scale
	cells  []float32 // [m, padded]
	scale  []float32 // [m], powers of two; nil for BF16
	packed []byte    // [n, RowBytes]
	w      []float32 // [n, k]
	bias   []float32 // [n], zeros if there is none

	residual []float32 // [m, n], zeros if there is none
}

func newGEMMInputs(r *KernelRig, c gemmCase) *gemmInputs {
	in := &gemmInputs{gemmCase: c, bias: make([]float32, c.n), residual: make([]float32, c.m*c.n)}
	in.setX(r.Vector(c.dist, c.m*c.k))
	weights := c.dist
	if c.dist == Subnormal && c.spec.Format.BlockLen() == 1 {
		weights = Gaussian // a product of two such numbers is nothing
	}
	in.setWeights(r.Weights(c.spec.Format, weights, c.n, c.k))
	if c.bias {
		in.bias = r.Vector(Gaussian, c.n)
	}
	if c.residual {
		in.residual = r.Vector(Gaussian, c.m*c.n)
	}
	return in
}

// setX rounds rows to Input, over a power of two if it is F16, and pads them.
func (in *gemmInputs) setX(x []float32) {
	padded := (in.k + ptxgen.UnitLen - 1) / ptxgen.UnitLen * ptxgen.UnitLen
	in.cells, in.x = make([]float32, in.m*padded), make([]float32, in.m*in.k)
	for i := range in.m {
		row, scale := x[i*in.k:][:in.k], float32(1)
		if in.spec.Input == quant.F16 {
			scale = narrowScale(row)
			in.scale = append(in.scale, scale)
		}
		for j, v := range row {
			v = float32(rounded(in.spec.Input, float64(v)/float64(scale)))
			in.cells[i*padded+j] = v
			in.x[i*in.k+j] = v * scale
		}
	}
}

func (in *gemmInputs) setWeights(src []byte) {
	p := ptxgen.Packing{Format: in.spec.Format, K: in.k}
	in.packed = make([]byte, p.Bytes(in.n))
	p.Pack(in.packed, src, in.n)
	in.w = make([]float32, in.n*in.k)
	quant.Decode(in.spec.Format, in.w, src)
	for i, v := range in.w {
		in.w[i] = float32(rounded(in.spec.Input, float64(v)))
	}
}

// sums are the references of all products, [m, n].
func (in *gemmInputs) sums() []Ref {
	var list []Ref
	for i := range in.m {
		for j := range in.n {
			list = append(list, DotRef(in.w[j*in.k:][:in.k], in.x[i*in.k:][:in.k]))
		}
	}
	return list
}

// run gives y without what lies between its rows.
func (in *gemmInputs) run(r *KernelRig, spec ptxgen.GEMM) []float32 {
	r.Helper()
	stride := in.n + in.gap
	y := r.Output("y", 4*(in.m*stride-in.gap))
	a := ptxgen.GEMMArgs{
		X: r.Floats("x", spec.Input, in.cells).Addr(), W: r.Bytes("w", in.packed).Addr(), Y: y.Addr(),
		M: in.m, N: in.n, K: in.k, YStride: stride, Activation: in.act,
	}
	if in.scale != nil {
		a.Scale = r.F32s("scale", in.scale).Addr()
	}
	if in.gemmCase.bias {
		a.Bias = r.F32s("bias", in.bias).Addr()
	}
	if in.gemmCase.residual {
		for i := range in.m {
			y.SetF32s(4*i*stride, in.residual[i*in.n:][:in.n])
		}
		a.Residual = y.Addr()
	}
	r.Launch(spec.Launch(r.Kernel(spec), a))
	var got []float32
	for i := range in.m {
		got = append(got, decodeFloats(quant.F32, y.Range(4*i*stride, 4*in.n))...)
		if i+1 < in.m && in.gap > 0 {
			y.Untouched(4*(i*stride+in.n), 4*in.gap)
		}
	}
	return got
}

// rows keeps some rows of x.
func (in *gemmInputs) rows(which ...int) *gemmInputs {
	out := *in
	out.m, out.cells, out.x, out.scale, out.residual = len(which), nil, nil, nil, nil
	padded := len(in.cells) / in.m
	for _, i := range which {
		out.cells = append(out.cells, in.cells[i*padded:][:padded]...)
		out.x = append(out.x, in.x[i*in.k:][:in.k]...)
		out.residual = append(out.residual, in.residual[i*in.n:][:in.n]...)
		if in.scale != nil {
			out.scale = append(out.scale, in.scale[i])
		}
	}
	return &out
}

// checkGEMMShapes holds a kernel of any shape to the bits of the smallest reachable one,
// and that one to the reference.
func checkGEMMShapes(r *KernelRig, c gemmCase) {
	in := newGEMMInputs(r, c)
	small := in.run(r, gemmShape(c.spec.Format, c.spec.Input, 1))
	Exact(r, "y of two shapes", in.run(r, c.spec), small)
	r.Close("y", small, in.sums(), c.n, c.tolerance(r))
}

// checkGEMMAlone holds rows that come alone, or in another order, to the bits that they
// have among all.
func checkGEMMAlone(r *KernelRig, c gemmCase) {
	in := newGEMMInputs(r, c)
	all := in.run(r, c.spec)
	for _, which := range [][]int{{0}, {c.m - 1}, {7, 2, 11}} {
		var want []float32
		for _, i := range which {
			want = append(want, all[i*c.n:][:c.n]...)
		}
		Exact(r, "rows by themselves", in.rows(which...).run(r, c.spec), want)
	}
	r.Close("y", all, in.sums(), c.n, c.tolerance(r))
}

// checkGEMMNotNumbers puts NaN and infinities into single rows and columns.
func checkGEMMNotNumbers(r *KernelRig, c gemmCase) {
	in := newGEMMInputs(r, c)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	x, w := r.Vector(Gaussian, c.m*c.k), r.Vector(Gaussian, c.n*c.k)
	x[1*c.k+69], x[3*c.k], x[4*c.k+40], x[6*c.k+9] = nan, inf, -inf, 3e37
	// An infinity in a row's last unit meets the zeros that fill the step, if it is read.
	w[2*c.k+69], w[5*c.k+1], w[6*c.k+68], w[8*c.k+33] = nan, -inf, inf, 70000
	in.scale = nil
	in.setX(x)
	src := make([]byte, 4*len(w))
	if err := quant.F32.Encode(src, w); err != nil {
		r.Fatalf("weights: %v", err)
	}
	in.setWeights(src)
	want := make([]float64, c.m*c.n)
	bound := make([]float64, len(want))
	for i, ref := range in.sums() {
		want[i], bound[i] = ref.Y, float64(c.spec.Depth(c.k))*gemmStep(r)*ref.S
	}
	r.Within("y", in.run(r, c.spec), want, bound)
}
