package matmul_test

import (
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// TestDigitsRefuses holds a launch's error to name the argument that is wrong.
func TestDigitsRefuses(t *testing.T) {
	var spec matmul.Digits
	k := build(t, spec)
	good := matmul.DigitsArgs{X: 16, Out: 16, K: 512, Vectors: 3}
	if _, err := spec.Launch(k, good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, field string
		change      func(a *matmul.DigitsArgs)
	}{
		{"no numbers", "K", func(a *matmul.DigitsArgs) { a.K = 0 }},
		{"more squares than fit", "K", func(a *matmul.DigitsArgs) { a.K = 2 << 20 }},
		{"no vectors", "Vectors", func(a *matmul.DigitsArgs) { a.Vectors = 0 }},
		{"overlapping vectors", "XStride", func(a *matmul.DigitsArgs) { a.XStride = 511 }},
		{"no vector's address", "X", func(a *matmul.DigitsArgs) { a.X = 0 }},
		{"no place for digits", "Out", func(a *matmul.DigitsArgs) { a.Out = 0 }},
		{"digits that are not aligned", "parameter out", func(a *matmul.DigitsArgs) { a.Out = 8 }},
		{"an unknown norm", "Norm", func(a *matmul.DigitsArgs) { a.Norm = 3 }},
		{"a norm's weight without a norm", "Norm", func(a *matmul.DigitsArgs) { a.NormWeight = 16 }},
		{"a norm's bias without a norm", "Norm", func(a *matmul.DigitsArgs) { a.NormBias = 16 }},
		{"a negative eps", "Eps", func(a *matmul.DigitsArgs) { a.Eps = -1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := good
			c.change(&a)
			if _, err := spec.Launch(k, a); err == nil || !strings.Contains(err.Error(), c.field) {
				t.Errorf("error %v, want one that names %s", err, c.field)
			}
		})
	}
}

// TestGemvBatchRefuses holds a launch's error to name the argument that is wrong, of either
// kernel for several vectors.
func TestGemvBatchRefuses(t *testing.T) {
	both := []matmul.BatchKernel{matmul.GemvBatch{Format: quant.Q4_K, Columns: 4}, matmul.GemvWide(quant.Q4_K, false)}
	gated := []matmul.BatchKernel{matmul.GemvBatch{Format: quant.Q4_K, Columns: 4, Gated: true}, matmul.GemvWide(quant.Q4_K, true)}
	good := matmul.GemvBatchArgs{Digits: 16, W: 16, Y: 16, Workspace: 16, Rows: 5, K: 512, Columns: 3, SMs: 2, Shared: 227 << 10}
	for _, spec := range both {
		if _, err := spec.Launch(build(t, spec), good); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, field string
		specs       []matmul.BatchKernel
		change      func(a *matmul.GemvBatchArgs)
	}{
		{"part of a block", "K", both, func(a *matmul.GemvBatchArgs) { a.K = 300 }},
		{"no rows", "Rows", both, func(a *matmul.GemvBatchArgs) { a.Rows = 0 }},
		{"no columns", "Columns", both, func(a *matmul.GemvBatchArgs) { a.Columns = 0 }},
		{"more sums than are counted", "Columns", both[1:], func(a *matmul.GemvBatchArgs) { a.Columns, a.Rows, a.SMs = 65535, 80000, 1<<30 }},
		{"overlapping results", "YStride", both, func(a *matmul.GemvBatchArgs) { a.YStride = 4 }},
		{"no digits", "Digits", both, func(a *matmul.GemvBatchArgs) { a.Digits = 0 }},
		{"digits that are not aligned", "parameter digits", both, func(a *matmul.GemvBatchArgs) { a.Digits = 8 }},
		{"no matrix", "W", both, func(a *matmul.GemvBatchArgs) { a.W = 0 }},
		{"a matrix that is not aligned", "parameter w", both, func(a *matmul.GemvBatchArgs) { a.W = 8 }},
		{"no place for results", "Y", both, func(a *matmul.GemvBatchArgs) { a.Y = 0 }},
		{"nowhere to meet", "Workspace", both[1:], func(a *matmul.GemvBatchArgs) { a.Workspace = 0 }},
		{"a second matrix", "Up", both, func(a *matmul.GemvBatchArgs) { a.Up = 16 }},
		{"one matrix of two", "Up", gated, func(a *matmul.GemvBatchArgs) {}},
		{"an unknown activation", "Activation", both, func(a *matmul.GemvBatchArgs) { a.Activation = 99 }},
		{"an infinite cap", "Softcap", both, func(a *matmul.GemvBatchArgs) { a.Softcap = float32(math.Inf(1)) }},
		{"a cap that is subnormal", "Softcap", both[1:], func(a *matmul.GemvBatchArgs) { a.Softcap = 0x1p-127 }},
		{"fewer than no SMs", "SMs", both, func(a *matmul.GemvBatchArgs) { a.SMs = -1 }},
		{"too little shared memory", "Shared", both, func(a *matmul.GemvBatchArgs) { a.Shared = 4096 }},
	} {
		for _, spec := range c.specs {
			t.Run(c.name+"/"+spec.Name(), func(t *testing.T) {
				a := good
				c.change(&a)
				if _, err := spec.Launch(build(t, spec), a); err == nil || !strings.Contains(err.Error(), c.field+":") && !strings.Contains(err.Error(), c.field+" ") {
					t.Errorf("error %v, want one that names %s", err, c.field)
				}
			})
		}
	}
}

// TestGemvBuildRefuses: there are no kernels for other numbers of vectors, or for formats
// that are multiplied in another way.
func TestGemvBuildRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spec       kernel.Spec
	}{
		{"two columns of a quantized format", "GemvBatch is for more", matmul.Gemv{Format: quant.Q4_K, Columns: 2}},
		{"columns between kernels", "3 columns", matmul.Gemv{Format: quant.F16, Columns: 3}},
		{"a small kernel of numbers", "small", matmul.Gemv{Format: quant.F16, Small: true}},
		{"a set of two", "2 columns", matmul.GemvBatch{Format: quant.Q4_K, Columns: 2}},
		{"a set between kernels", "12 columns", matmul.GemvBatch{Format: quant.Q4_K, Columns: 12}},
		{"digits by numbers", "F16", matmul.GemvBatch{Format: quant.F16, Columns: 4}},
		{"warpgroups with scales a unit", "Q8_0", matmul.GemvWide(quant.Q8_0, false)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.spec.Build(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
}

// TestGemvBatchFor holds the choice to the smallest set that takes all vectors, or one that
// fits.
func TestGemvBatchFor(t *testing.T) {
	for _, c := range []struct {
		name                       string
		format                     quant.Format
		columns, k, shared, choice int
	}{
		{"two", quant.Q6_K, 2, 4096, 227 << 10, 4},
		{"between two kernels", quant.Q6_K, 5, 4096, 227 << 10, 8},
		{"more than a set", quant.Q6_K, 64, 4096, 227 << 10, 16},
		{"a format without sets of 16", quant.Q2_K, 16, 4096, 227 << 10, 8},
		{"a small device: fewer warps", quant.Q6_K, 4, 4096, 99 << 10, 8},
		{"a small device: fewer sums", quant.Q6_K, 16, 14336, 99 << 10, 8},
		{"too small", quant.Q6_K, 5, 4096, 20 << 10, 0},
		{"none", quant.Q6_K, 0, 4096, 227 << 10, 0},
		{"part of a block", quant.Q6_K, 5, 300, 227 << 10, 0},
		{"numbers", quant.F16, 5, 4096, 227 << 10, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := matmul.GemvBatchFor(c.format, c.columns, true, c.k, ptx.Target{SM: 80}, c.shared)
			if got, _ := s.(matmul.GemvBatch); got.Columns != c.choice || (err == nil) != (c.choice > 0) {
				t.Errorf("%v, %v, want %d columns", s, err, c.choice)
			}
		})
	}
}
