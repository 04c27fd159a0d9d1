package matmul

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Gemv multiplies a matrix by one vector, or by a few, reading each weight once:
//
//	y[c][r] = act(softcap(sum over k of W[r][k]*n(x[c])[k] + bias[r])) * up + residual[c][r]
//	up      = 1; if Gated, the sum over k of Up[r][k]*n(x[c])[k]
//
// where n is RMSNorm, LayerNorm or the identity. The order of additions is the same for every
// row and column and depends on Format and K alone.
//
// Quantized weights are multiplied as integers on tensor cores, with x rounded to 31-bit
// integers per block; an infinite x gives NaN. They take one vector; GemvBatch takes more.
// F32, F16 and BF16 weights are multiplied in float32.
type Gemv struct {
	Format  quant.Format
	Columns int  // maximum number of vectors: 1, or 2, 4, 8 or 16 for F32, F16 and BF16; 0: 1
	Gated   bool // with the matrix Up
	Small   bool // quantized weights only: less shared memory, by fewer warps and a shorter ring
}

// maxColumns is how many vectors a launch takes at most.
const maxColumns = 16

// gemvColumns are the numbers of vectors that kernels of numbers are made for.
var gemvColumns = []int{1, 2, 4, 8, 16}

func gemvSpecs() []kernel.Spec {
	var all []kernel.Spec
	for _, f := range Formats() {
		if decoderOf(f).quantized() {
			for _, small := range []bool{false, true} {
				all = append(all, Gemv{Format: f, Columns: 1, Small: small}, Gemv{Format: f, Columns: 1, Gated: true, Small: small})
			}
			continue
		}
		for _, c := range gemvColumns {
			all = append(all, Gemv{Format: f, Columns: c}, Gemv{Format: f, Columns: c, Gated: true})
		}
	}
	return all
}

// columns is at most how many vectors the kernel takes.
func (s Gemv) columns() int { return cmp.Or(s.Columns, 1) }

// Name implements Spec.
func (s Gemv) Name() string {
	kind := "gemv"
	if s.Gated {
		kind = "gemv_gated"
	}
	size := fmt.Sprintf("c%d", s.columns())
	if s.Small {
		size = "small"
	}
	return fmt.Sprintf("%s_%s_%s", kind, host.FormatName(s.Format), size)
}

// integer reports whether the weights are multiplied as integers.
func (s Gemv) integer() bool { return decoderOf(s.Format).quantized() }

// Depth returns the number of additions that follow one another, serially and in trees, in a sum
// over k weights, for the bound of the rounding error.
func (s Gemv) Depth(k int) int {
	if s.integer() {
		return s.integerDepth(k)
	}
	return s.floatDepth(k)
}

// Build implements Spec.
func (s Gemv) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	switch c := s.columns(); {
	case s.integer() && c != 1:
		b.Failf("%d columns of %v, want 1: GemvBatch is for more", c, s.Format)
	case !slices.Contains(gemvColumns, c):
		b.Failf("%d columns, want 1, 2, 4, 8 or 16", c)
	case s.Small && !s.integer():
		b.Failf("a small kernel is for quantized weights")
	}
	if b.Err() != nil {
		return nil, b.Err()
	}
	b.Doc("y[c][r] = epilogue of the sum over k of W[r][k] * n(x[c])[k], W packed, of %v", s.Format)
	g := newGemv(b, s)
	if s.integer() {
		return g.buildInteger()
	}
	return g.buildFloat()
}
