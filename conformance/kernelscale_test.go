package conformance

import (
	"fmt"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The rig end to end, on a kernel small enough to be seen right: y[i] = c·x[i].

type scale struct{}

func (scale) Name() string { return "scale" }

const scaleThreads = 128

func (s scale) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	x, y, n, c := b.Global("x", 4), b.Global("y", 4), b.ParamU32("n"), b.ParamF32("c")
	i := b.BlockX().MulN(scaleThreads).Add(b.ThreadX())
	b.ReturnIf(i.Ge(n))
	y.At(i, 4).StoreF32(x.At(i, 4).LoadF32().Mul(c))
	return b.Finish(ptx.MaxThreads(scaleThreads))
}

func checkScale(r *KernelRig, d Distribution, n int) {
	x, c := r.Vector(d, n), float32(3)
	in, out := r.F32s("x", x), r.Output("y", 4*n)
	k := r.Kernel(scale{})
	r.Launch(k.Launch([3]uint32{uint32((n + scaleThreads - 1) / scaleThreads), 1, 1}, scaleThreads, 0,
		ptx.Addr(in.Addr()), ptx.Addr(out.Addr()), ptx.Uint(n), ptx.Float(c)))
	want := make([]Ref, n)
	for i := range want {
		want[i] = DotRef(x[i:i+1], []float32{c})
	}
	r.Close("y", out.F32s(), want, n, Tolerance{L: 1})
}

func scaleCases() []KernelCase {
	var all []KernelCase
	for _, d := range Distributions() {
		for _, n := range []int{1, 31, 33, 128, 300} {
			all = append(all, KernelCase{
				Operation: "scale", Format: "F32", Name: fmt.Sprintf("%v/n=%d", d, n), Reason: "around a warp and a CTA",
				Run: func(r *KernelRig) { checkScale(r, d, n) },
			})
		}
	}
	return all
}

func TestScale(t *testing.T) {
	s := kernelSuite(t)
	for _, c := range scaleCases() {
		t.Run(c.Name, func(t *testing.T) { s.Run(t, c) })
	}
}
