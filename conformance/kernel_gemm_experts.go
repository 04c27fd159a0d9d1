package conformance

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// gemmExpertCases is products of tokens with the matrices of their experts.
func gemmExpertCases() []KernelCase {
	var all []KernelCase
	for _, c := range []struct {
		name, reason string
		counts       []int // choices of each expert
		share        int
	}{
		{"tokens", "each row of x serves its token's choices", []int{5, 40, 0, 33}, 2},
		{"choices", "the second product of an expert reads a row of its own for each choice", []int{0, 0, 7, 1}, 1},
		{"one expert", "all choose one, the others have nothing to do", []int{0, 34, 0}, 1},
	} {
		for _, f := range []quant.Format{quant.Q4_K, quant.F16} {
			all = append(all, KernelCase{
				Operation: "gemm", Format: f.String(), Name: fmt.Sprintf("%v/F16/experts, %s", f, c.name), Reason: c.reason,
				Run: func(r *KernelRig) { checkGEMMExperts(r, f, c.counts, c.share) },
			})
		}
	}
	return all
}

func checkGEMMExperts(r *KernelRig, f quant.Format, counts []int, share int) {
	const n, k = 37, 256
	rows, offsets := 0, []uint32{0}
	for _, c := range counts {
		rows += c
		offsets = append(offsets, uint32(rows))
	}
	var order []uint32
	for _, i := range r.Rand().Perm(rows) {
		order = append(order, uint32(i))
	}
	spec := gemmShape(f, quant.F16, 1)
	tokens := newGEMMInputs(r, gemmCase{spec: spec, m: rows / share, n: 1, k: k})
	var packed []byte
	var experts []*gemmInputs
	for range counts {
		e := newGEMMInputs(r, gemmCase{spec: spec, m: 1, n: n, k: k})
		experts, packed = append(experts, e), append(packed, e.packed...)
	}
	bias := r.Vector(Gaussian, len(counts)*n)
	y := r.Output("y", 4*rows*n)
	r.Launch(spec.Launch(r.Kernel(spec), ptxgen.GEMMArgs{
		X: r.Floats("x", spec.Input, tokens.cells).Addr(), Scale: r.F32s("scale", tokens.scale).Addr(),
		W: r.Bytes("w", packed).Addr(), Y: y.Addr(), Bias: r.F32s("bias", bias).Addr(),
		M: rows, N: n, K: k, Experts: len(counts), ExpertBytes: len(experts[0].packed), RowsPerX: share,
		Offsets: r.U32s("offsets", offsets).Addr(), Order: r.U32s("order", order).Addr(),
	}))
	want := make([]Ref, rows*n)
	for e, in := range experts {
		for _, row := range order[offsets[e]:offsets[e+1]] {
			x := tokens.x[int(row)/share*k:][:k]
			for j := range n {
				want[int(row)*n+j] = DotRef(in.w[j*k:][:k], x).Plus(float64(bias[e*n+j]))
			}
		}
	}
	r.Close("y", y.F32s(), want, n, Tolerance{L: spec.Depth(k) + 1, U: gemmStep(r), Correlated: true})
}
