package deltanet

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const inputsWarps = 4 // per CTA

// Inputs computes what Recur reads. Two parts run side by side: see ptx.Builder.Beside.
//
// The first part is the convolution. It computes the channels of each token, one warp per head:
//
//	y[t,c] = SiLU(w[0,c]*u[p-Taps+1,c] + … + w[Taps-1,c]*u[p,c])        u[p] is x at position p of the token's sequence
//
// and divides each head of queries and keys by max(|y|, Eps). A chain of fused multiply-adds computes the sum, from the
// oldest tap. |y|² is a chain of fused multiply-adds per lane, over the lane's channels l, l+32, …, then a butterfly
// over the lanes.
//
// The second part computes the two factors of each token and value head:
//
//	gates[t,h,0] = e^(a[h] * ln(1 + e^(alpha[t,h] + bias[h])))     the decay of S; a[h] is negative
//	gates[t,h,1] = 1 / (1 + e^-beta[t,h])                          β
func Inputs(dim int) kernel.Typed[InputsArgs] {
	return kernel.New(fmt.Sprintf("deltanet_inputs_d%d", dim), func(b *ptx.Builder) (*ptx.Kernel, error) {
		b.Doc("y = silu(causal convolution of x), heads of queries and keys divided by their length")
		b.Doc("gates[t,h] = (exp(a * log(1 + exp(alpha + bias))), sigmoid(beta))")
		b.Beside(func() { emitConvolve(b, dim) }, func() { emitGates(b) })
		// This bound leaves registers for all loads in flight. Without it, ptxas uses fewer and waits between loads.
		return b.Finish(ptx.MaxThreads(32*inputsWarps), ptx.MinCTAs(min(8, 1024/dim)))
	}, func(k *ptx.Kernel, a InputsArgs) (ptx.Launch, error) { return launchInputs(k, a, dim) })
}

// InputsArgs are the arguments of a launch of Inputs.
type InputsArgs struct {
	X           ptx.Address // f32: the channels of each token, queries, keys, then values
	Alpha, Beta ptx.Address // f32 [Tokens, value heads]
	XStride     int         // elements from token to token of X, Alpha and Beta
	W           ptx.Address // f32 [Taps, channels]
	A, Bias     ptx.Address // f32 [value heads]
	Y           ptx.Address // f32 [Tokens, channels]
	Gates       ptx.Address // f32 [Tokens, value heads, 2]
	Eps         float32
	Shape       Shape
	Batch       Batch
}

func launchInputs(k *ptx.Kernel, a InputsArgs, dim int) (ptx.Launch, error) {
	s := a.Shape
	if err := checkBoth(k, s, a.Batch); err != nil {
		return ptx.Launch{}, err
	}
	if err := host.Valid(k, host.Refuse(s.Dim != dim, "Dim", "%d, the kernel has %d", s.Dim, dim), host.Bound("XStride", a.XStride, s.channels(), host.MaxSize),
		host.NonNegative("Eps", a.Eps), host.Refuse(a.Eps == 0, "Eps", "it is 0"), host.NonNil("X", a.X), host.NonNil("Alpha", a.Alpha), host.NonNil("Beta", a.Beta),
		host.NonNil("W", a.W), host.NonNil("A", a.A), host.NonNil("Bias", a.Bias), host.NonNil("Sequence", a.Batch.Sequence),
		host.NonNil("Y", a.Y), host.NonNil("Gates", a.Gates)); err != nil {
		return ptx.Launch{}, err
	}
	return k.LaunchBeside(a.convolvePart(), a.gatesPart())
}

func checkBoth(k *ptx.Kernel, s Shape, a Batch) error {
	if err := s.check(k); err != nil {
		return err
	}
	return a.check(k, s)
}
