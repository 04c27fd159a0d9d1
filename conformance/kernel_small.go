package conformance

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// smallCases hold the kernels for devices with little shared memory to the others, bit
// by bit.
func smallCases() []KernelCase {
	var all []KernelCase
	for _, f := range quant.Formats() {
		if f.BlockLen() == 1 {
			continue
		}
		for _, gated := range []bool{false, true} {
			all = append(all, KernelCase{
				Operation: "gemv", Format: f.String(), Name: fmt.Sprintf("%v/small, gated=%v", f, gated),
				Reason: "a kernel for less shared memory gives the same bits, normed or not",
				Run:    func(r *KernelRig) { checkGemvSmall(r, f, gated) },
			})
		}
	}
	return all
}

func checkGemvSmall(r *KernelRig, f quant.Format, gated bool) {
	const smallShared = 99 << 10 // of an RTX 3090 or 4090
	k := 5 * 256
	c := gemvCase{rows: 21, k: k, columns: 1, ctas: 1}
	x, weight := r.F32s("x", r.Vector(Gaussian, k)), r.F32s("weight", r.Vector(Gaussian, k))
	w, _ := r.packed("w", f, c.rows, k)
	up, _ := r.packed("up", f, c.rows, k)
	for _, norm := range []ptxgen.NormKind{ptxgen.NoNorm, ptxgen.RMSNorm, ptxgen.LayerNorm} {
		var results [2][]float32
		for i, shared := range []int{gemvShared, smallShared} {
			s := ptxgen.Gemv{Format: f, Columns: 1, Gated: gated, Small: i == 1}
			y := r.Output(fmt.Sprintf("y%d of norm %d", i, norm), 4*c.rows)
			a := c.args(x, w, y)
			a.Norm, a.Eps, a.Shared = norm, 1e-5, shared
			if norm != ptxgen.NoNorm {
				a.NormWeight = weight.Addr()
			}
			if gated {
				a.Up, a.Activation = up.Addr(), ptxgen.SiLU
			}
			launchGemv(r, s, a)
			results[i] = y.F32s()
		}
		Exact(r, fmt.Sprintf("norm %d", norm), results[1], results[0])
	}
}
