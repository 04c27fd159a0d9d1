// Package elementwise holds the kernels that compute each element of their result from the
// same element of their inputs.
package elementwise

import "github.com/lockstep-go/lockstep/ptxgen/internal/device"

// Activation is an activation function. It is an argument of launches.
type Activation uint32

// The activation functions.
const (
	Identity Activation = device.Identity // x
	SiLU     Activation = device.SiLU     // x / (1 + e^-x)
	GELU     Activation = device.GELU     // x/2 * (1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3)))

	// ClampedSwiGLU takes two inputs, gate and up: x / (1 + e^(-1.702*x)) * (1 + min(max(up, -7), 7)) with
	// x = min(gate, 7). The first factor alone is its activation.
	ClampedSwiGLU Activation = device.ClampedSwiGLU

	Sigmoid Activation = device.Logistic // 1 / (1 + e^-x)
)
