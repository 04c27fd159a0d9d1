package ref

import (
	"cmp"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// Numerics says where the computation deliberately rounds. An accelerator that
// keeps its cache in f16 or feeds its tensor cores bf16 computes another function;
// the reference computes the same one under the same Numerics, so that the
// comparison stays tight. The zero value is the model as published: an F32 cache,
// nothing else rounded.
type Numerics struct {
	// KV is the format of the keys and values in the cache; the zero value is f32.
	KV model.KVFormat
	// Input rounds the vectors that a layer's weight matrices, also a router's and the
	// experts', are multiplied with. To ToF16 each is divided by a power of two first, and
	// the product multiplied with it, so that its largest finite number lies between 2^14
	// and 2^15: none overflows. The output's matrix is multiplied with what there is.
	Input Rounding
	// Weights rounds the weights of a layer's matrices, each after it is decoded. Those
	// of the embedding and the output, biases and norms stay as they are.
	Weights Rounding
	// FlashBlock, if not 0, rounds what attention multiplies, to ToBF16 if KV is BF16,
	// else to ToF16: each head's query, as Input is; keys and values, as the cache has
	// them; and the numerators e^(s−m) of softmax in the sum of values, but not in the sum
	// that divides it. There m is the largest score up to the end of the key's block, of
	// so many positions counted from 0.
	FlashBlock int
}

// Rounding is a precision that float64 values are rounded to, to nearest even: to
// float32 first, from there to the halves, as a device that holds float32 would.
type Rounding int

const (
	Exact Rounding = iota // float64 as it is
	ToF32
	ToF16
	ToBF16
	// To16 is ToBF16 for what is multiplied with weights in BF16 and for these, else ToF16.
	To16
)

func (n Numerics) check() error {
	if !n.KV.Valid() {
		return fmt.Errorf("ref: Numerics.KV is %v; it can be f32, f16 or bf16", n.KV)
	}
	for _, r := range []struct {
		field string
		value Rounding
	}{{"Input", n.Input}, {"Weights", n.Weights}} {
		if r.value < Exact || r.value > To16 {
			return fmt.Errorf("ref: Numerics.%s is %d; it can be %d to %d", r.field, r.value, Exact, To16)
		}
	}
	if n.FlashBlock < 0 {
		return fmt.Errorf("ref: Numerics.FlashBlock is %d", n.FlashBlock)
	}
	return nil
}

// flash is what attention rounds to.
func (n *Numerics) flash() Rounding {
	if n.FlashBlock == 0 {
		return Exact
	}
	return To16.beside(n.KV.Format(quant.F32))
}

// cached is what keys and values are rounded to.
func (n *Numerics) cached() Rounding { return cmp.Or(n.flash(), kvRounding[n.KV.Format(quant.F32)]) }

// beside is r for products with a format.
func (r Rounding) beside(f quant.Format) Rounding {
	switch {
	case r != To16:
		return r
	case f == quant.BF16:
		return ToBF16
	}
	return ToF16
}

var kvRounding = map[quant.Format]Rounding{quant.F32: ToF32, quant.F16: ToF16, quant.BF16: ToBF16}

// round gives x in the precision r.
func (r Rounding) round(x float64) float64 {
	switch r {
	case ToF32:
		return float64(float32(x))
	case ToF16:
		return float64(float16.RoundF16(float32(x)))
	case ToBF16:
		return float64(float16.RoundBF16(float32(x)))
	default:
		return x
	}
}

// rounded is x with rows in the precision r, scaled as Numerics.Input says: x itself
// when nothing is rounded, else a copy.
func (r Rounding) rounded(x tensor) tensor {
	if r == Exact {
		return x
	}
	y := newTensor(x.rows, x.cols)
	for p := range x.rows {
		scale, dst := 1.0, y.row(p)
		if r == ToF16 {
			scale = halfScale(x.row(p))
		}
		for i, v := range x.row(p) {
			dst[i] = r.round(v/scale) * scale
		}
	}
	return y
}

// halfScale is the power of two that a row is divided by before it is rounded to halves.
func halfScale(row []float64) float64 {
	top := 0.0
	for _, v := range row {
		if size := math.Abs(v); size <= math.MaxFloat32 {
			top = max(top, size)
		}
	}
	if top < math.SmallestNonzeroFloat32 {
		return 1
	}
	_, exponent := math.Frexp(top)
	return math.Ldexp(1, exponent-15)
}
