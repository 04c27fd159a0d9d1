package product

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Epilogue is what is fused with a product. With p for the total of a row and a token:
//
//	y[t,r] = act(softcap(scale·(f[t]·p[t,r] + bias[r]))) + residual[t,r]
//
// softcap(v) is cap·tanh(v/cap). A kernel has no code for what is off. Operations are rounded one by one.
type Epilogue struct {
	// Norm has an RMS norm before the product: x is multiplied by the weights of the norm before it is rounded, and
	// f[t] is 1/sqrt(mean(x[t]²) + eps). Args.SlotFactors, weights of a router, multiply f. Without Norm, there is no f.
	Norm       bool
	Scaled     bool // by Args.Scale
	Softcap    bool // of Args.Softcap
	Activation elementwise.Activation
	// Gated multiplies two matrices, gate and up, that have their rows in turn: eight of gate, then the same eight
	// of up. If their number is no multiple of eight, zeros fill up the last ones of each. y has half as many columns:
	//
	//	y[t,r] = act(softcap(scale·(f[t]·gate[t,r] + bias)))·(f[t]·up[t,r] + bias) + residual[t,r]
	//
	// ClampedSwiGLU changes the second factor, too.
	// The bias has the order of the rows of the matrix.
	Gated bool
}

// name is the part of a kernel's name.
func (e Epilogue) name() (name string) {
	for _, part := range []struct {
		on   bool
		name string
	}{
		{e.Norm, "_norm"}, {e.Scaled, "_scaled"}, {e.Softcap, "_cap"},
		{e.Activation == elementwise.SiLU, "_silu"}, {e.Activation == elementwise.GELU, "_gelu"},
		{e.Activation == elementwise.ClampedSwiGLU, "_clamped"}, {e.Gated, "_gated"},
	} {
		if part.on {
			name += part.name
		}
	}
	return name
}

// valid reports whether a kernel may have the epilogue.
func (e Epilogue) valid() bool {
	return e.Activation <= elementwise.GELU || e.Activation == elementwise.ClampedSwiGLU && e.Gated
}

// doc is the formula of a product with the epilogue.
func (e Epilogue) doc() string {
	act := map[elementwise.Activation]string{elementwise.SiLU: "silu", elementwise.GELU: "gelu", elementwise.ClampedSwiGLU: "clamped_silu"}[e.Activation]
	row := func(w string) string {
		product := "sum over k of " + w + "[r,k] * x[t,k]"
		if e.Norm {
			product = "f[t] * (sum over k of " + w + "[r,k] * n[k] * x[t,k])"
		}
		return product + " + bias[r]"
	}
	y := row("W")
	if e.Gated {
		y = row("gate")
	}
	if e.Scaled {
		y = "scale * (" + y + ")"
	}
	if e.Softcap {
		y = "cap * tanh((" + y + ") / cap)"
	}
	if act != "" || e.Gated {
		y = act + "(" + y + ")"
	}
	if e.Gated {
		up := row("up")
		if e.Activation == elementwise.ClampedSwiGLU {
			up = "1 + clamped(" + up + ")"
		}
		y += " * (" + up + ")"
	}
	y = "y[t,r] = " + y + " + residual[t,r]"
	if e.Norm {
		y += "\nf[t] = 1 / sqrt(mean over k of x[t,k]^2 + eps)"
	}
	return y
}

// tileColumns is the number of columns of y per row tile.
func (e Epilogue) tileColumns() int {
	if e.Gated {
		return tileRows / 2
	}
	return tileRows
}

// columns is the number of columns of y for rows rows of weights.
func (e Epilogue) columns(rows int) int {
	if e.Gated {
		return rows / 2
	}
	return rows
}

// biasOf returns the bias of an expert, if bias is not 0. There is one per row of weights, for columns columns of y.
func (e Epilogue) biasOf(b *ptx.Builder, bias ptx.Global, expert, columns ptx.U32) ptx.Global {
	first := expert.Mul(columns).MulN(tileRows / e.tileColumns())
	return bias.At(ptx.Select(device.NonNil(b, bias), first, b.U32(0)), 4)
}

// noResidual is −0, which changes no result when it is added.
var noResidual = float32(math.Copysign(0, -1))

// rowSum is the sum of a row of weights for a token, and what belongs to the row.
type rowSum struct {
	sum   ptx.F32
	scale ptx.F32 // D; unset in formats with a D per segment
	bias  ptx.F32
}

// result emits a result without its residual: of one row, or with Gated of a row of gate and one of up. factor is f.
func (e Epilogue) result(b *ptx.Builder, rows []rowSum, factor ptx.F32, p epilogueParams) ptx.F32 {
	values := make([]ptx.F32, len(rows))
	for i, r := range rows {
		values[i] = r.sum
		if r.scale != (ptx.F32{}) {
			values[i] = values[i].Mul(r.scale)
		}
		if e.Norm {
			values[i] = values[i].Mul(factor)
		}
		values[i] = values[i].Add(r.bias)
	}
	y := values[0]
	if e.Scaled {
		y = y.Mul(p.scale.Scale)
	}
	if e.Softcap {
		y = device.Softcap(b, y, p.cap.Softcap)
	}
	y = device.ActivateN(b, int(e.Activation), y)
	if e.Gated {
		y = y.Mul(device.UpFactor(b, int(e.Activation), values[1]))
	}
	return y
}

// normChecks returns the checks of the arguments of a norm, if the kernel has it.
func normChecks(norm bool, weight ptx.Address, eps float32) []host.Check {
	return []host.Check{
		host.Refuse(norm != (weight != 0), "NormWeight", "a kernel with a norm needs it, and no other takes it"),
		host.Refuse(!norm && eps != 0, "Eps", "%v: the kernel has no norm", eps),
		host.NonNegative("Eps", eps),
	}
}

// checks returns the checks of the other arguments that belong to the epilogue.
func (e Epilogue) checks(a Args) []host.Check {
	return []host.Check{
		host.Refuse(e.Gated && a.Rows%2 != 0, "Rows", "%d are not as many of gate as of up", a.Rows),
		host.Refuse(e.Scaled != (a.Scale != 0), "Scale", "%v: a kernel that scales needs one, and no other takes it", a.Scale),
		host.NonNegative("Scale", a.Scale),
		host.Refuse(e.Softcap != (a.Softcap != 0), "Softcap", "%v: the kernel with a softcap needs one, and no other takes it", a.Softcap),
		host.NonNegative("Softcap", a.Softcap),
	}
}
