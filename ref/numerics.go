package ref

import (
	"cmp"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// Numerics says where the engine rounds on purpose. An accelerator that keeps its cache
// in f16 or multiplies in bf16 computes another function than the published model. Under
// the same Numerics the reference computes that function too, so that comparisons can be
// tight. The zero value is the published model with an f32 cache.
type Numerics struct {
	// KV is the format of the keys and values in the cache; the zero value is f32.
	KV model.KVFormat
	// F16Products multiplies all weight matrices as package product defines, with sums in float64. An RMS
	// norm before a product is part of it, and embeddings are weights that it rounds.
	F16Products bool
	// FlashBlock, if not 0, rounds attention as FlashAttention does. It is the number of keys per block, and two
	// blocks are a split, both counted from position 0. The format is bf16 if KV is bf16, else f16.
	// These are rounded:
	//
	//   - queries. In f16 they are first scaled, each row by a power of two that brings its largest finite
	//     element into [2^14, 2^15), so that none overflows;
	//   - keys and values;
	//   - the softmax weights e^(s−m) that multiply the values, where m is the largest
	//     score of the key's split up to the end of its block. Their sum, the divisor, adds the
	//     weights before rounding.
	FlashBlock int
}

// Rounding is a precision to which float64 values are rounded, to nearest even. The
// 16-bit formats are rounded from float32, as on a device that computes in float32.
type Rounding int

const (
	Exact  Rounding = iota // no rounding
	ToF32                  // float32
	ToF16                  // float16 (IEEE binary16)
	ToBF16                 // bfloat16
)

func (n Numerics) check() error {
	if !n.KV.Valid() {
		return fmt.Errorf("ref: Numerics.KV: %v, want f32, f16 or bf16", n.KV)
	}
	if n.FlashBlock < 0 {
		return fmt.Errorf("ref: Numerics.FlashBlock: %d, want at least 0", n.FlashBlock)
	}
	return nil
}

// flash is the rounding of attention's operands.
func (n *Numerics) flash() Rounding {
	switch {
	case n.FlashBlock == 0:
		return Exact
	case n.KV == model.KVBF16:
		return ToBF16
	}
	return ToF16
}

// cache is the rounding of the keys and values in the cache.
func (n *Numerics) cache() Rounding {
	formats := map[quant.Format]Rounding{quant.F32: ToF32, quant.F16: ToF16, quant.BF16: ToBF16}
	return cmp.Or(n.flash(), formats[n.KV.Format(quant.F32)])
}

// round rounds one value.
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

// roundRows rounds a copy of x, each row scaled as Numerics.FlashBlock says. With Exact it
// returns x itself.
func (r Rounding) roundRows(x tensor) tensor {
	if r == Exact {
		return x
	}
	y := newTensor(x.rows, x.cols)
	for p := range x.rows {
		scale, dst := 1.0, y.row(p)
		if r == ToF16 {
			scale = f16Scale(x.row(p))
		}
		for i, v := range x.row(p) {
			dst[i] = r.round(v/scale) * scale
		}
	}
	return y
}

// f16Scale returns the power of two that divides a row before it is rounded to f16.
func f16Scale(row []float64) float64 {
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
