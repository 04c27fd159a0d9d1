// Package elementwise holds the kernels that compute each element of their result from the
// same element of their inputs.
package elementwise

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Activation is an activation function. It is an argument of launches.
type Activation uint32

// The activation functions.
const (
	Identity Activation = iota // x
	SiLU                       // x / (1 + e^-x)
	GELU                       // x/2 * (1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3)))
)

// Activate emits the activation act, an Activation, of x. act must be the same in all lanes
// of a warp. The error is at most 8 ulp.
func Activate(b *ptx.Builder, act ptx.U32, x ptx.F32) ptx.F32 {
	y := ptx.Var(x)
	b.If(act.EqN(int(SiLU)), func() { ptx.Set(y, device.SiLU(b, x)) })
	b.If(act.EqN(int(GELU)), func() { ptx.Set(y, device.GELU(b, x)) })
	return y
}
