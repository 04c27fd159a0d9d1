package ref

import (
	"fmt"

	"github.com/lockstep-go/lockstep/quant"
)

// Numerics says where the computation deliberately rounds. An accelerator that
// keeps its cache in f16 or feeds its tensor cores bf16 computes another function;
// the reference computes the same one under the same Numerics, so that the
// comparison stays tight. The zero value is the model as published: an F32 cache,
// nothing else rounded.
type Numerics struct {
	// KV is the format of the keys and values in the cache: F32, F16 or BF16.
	KV quant.Format
	// Input rounds the vector that each weight matrix is multiplied with.
	Input Rounding
	// GELU rounds the argument and the result of GELU for |x| < 10, as engines do that
	// look it up in a table of halves.
	GELU Rounding
}

// Rounding is a precision that float64 values are rounded to, to nearest even: to
// float32 first, from there to the halves, as a device that holds float32 would.
type Rounding int

const (
	Exact Rounding = iota // float64 as it is
	ToF32
	ToF16
	ToBF16
)

func (n Numerics) check() error {
	if _, ok := kvRounding[n.KV]; !ok {
		return fmt.Errorf("ref: Numerics.KV is %v; it can be F32, F16 or BF16", n.KV)
	}
	for _, r := range []struct {
		field string
		value Rounding
	}{{"Input", n.Input}, {"GELU", n.GELU}} {
		if r.value < Exact || r.value > ToBF16 {
			return fmt.Errorf("ref: Numerics.%s is %d; it can be %d to %d", r.field, r.value, Exact, ToBF16)
		}
	}
	return nil
}

var kvRounding = map[quant.Format]Rounding{quant.F32: ToF32, quant.F16: ToF16, quant.BF16: ToBF16}

// round gives x in the precision r.
func (r Rounding) round(x float64) float64 {
	switch r {
	case ToF32:
		return float64(float32(x))
	case ToF16:
		return float64(quant.F16ToF32(quant.F32ToF16(float32(x))))
	case ToBF16:
		return float64(quant.BF16ToF32(quant.F32ToBF16(float32(x))))
	default:
		return x
	}
}

// rounded is x in the precision r: x itself when nothing is rounded, else a copy.
func (r Rounding) rounded(x tensor) tensor {
	if r == Exact {
		return x
	}
	y := newTensor(x.rows, x.cols)
	for i, v := range x.data {
		y.data[i] = r.round(v)
	}
	return y
}
