package ptxgen_test

import (
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// TestDigitsRefuses holds a launch's error to name the argument that is wrong.
func TestDigitsRefuses(t *testing.T) {
	var spec ptxgen.Digits
	k := build(t, spec)
	good := ptxgen.DigitsArgs{X: 16, Out: 16, K: 512, Vectors: 3}
	if _, err := spec.Launch(k, good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, field string
		change      func(a *ptxgen.DigitsArgs)
	}{
		{"no numbers", "K", func(a *ptxgen.DigitsArgs) { a.K = 0 }},
		{"more squares than fit", "K", func(a *ptxgen.DigitsArgs) { a.K = 2 << 20 }},
		{"no vectors", "Vectors", func(a *ptxgen.DigitsArgs) { a.Vectors = 0 }},
		{"overlapping vectors", "XStride", func(a *ptxgen.DigitsArgs) { a.XStride = 511 }},
		{"no vector's address", "X", func(a *ptxgen.DigitsArgs) { a.X = 0 }},
		{"no place for digits", "Out", func(a *ptxgen.DigitsArgs) { a.Out = 0 }},
		{"digits that are not aligned", "parameter out", func(a *ptxgen.DigitsArgs) { a.Out = 8 }},
		{"an unknown norm", "Norm", func(a *ptxgen.DigitsArgs) { a.Norm = 3 }},
		{"a norm's weight without a norm", "Norm", func(a *ptxgen.DigitsArgs) { a.NormWeight = 16 }},
		{"a norm's bias without a norm", "Norm", func(a *ptxgen.DigitsArgs) { a.NormBias = 16 }},
		{"a negative eps", "Eps", func(a *ptxgen.DigitsArgs) { a.Eps = -1 }},
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

// TestGemvBatchRefuses holds a launch's error to name the argument that is wrong.
func TestGemvBatchRefuses(t *testing.T) {
	plain, gated := ptxgen.GemvBatch{Format: quant.Q4_K, Columns: 4}, ptxgen.GemvBatch{Format: quant.Q4_K, Columns: 4, Gated: true}
	good := ptxgen.GemvBatchArgs{Digits: 16, W: 16, Y: 16, Rows: 5, K: 512, Columns: 3, Shared: 160 << 10}
	if _, err := plain.Launch(build(t, plain), good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, field string
		spec        ptxgen.GemvBatch
		change      func(a *ptxgen.GemvBatchArgs)
	}{
		{"part of a block", "K", plain, func(a *ptxgen.GemvBatchArgs) { a.K = 300 }},
		{"no rows", "Rows", plain, func(a *ptxgen.GemvBatchArgs) { a.Rows = 0 }},
		{"no columns", "Columns", plain, func(a *ptxgen.GemvBatchArgs) { a.Columns = 0 }},
		{"overlapping results", "YStride", plain, func(a *ptxgen.GemvBatchArgs) { a.YStride = 4 }},
		{"no digits", "Digits", plain, func(a *ptxgen.GemvBatchArgs) { a.Digits = 0 }},
		{"digits that are not aligned", "parameter digits", plain, func(a *ptxgen.GemvBatchArgs) { a.Digits = 8 }},
		{"no matrix", "W", plain, func(a *ptxgen.GemvBatchArgs) { a.W = 0 }},
		{"a matrix that is not aligned", "parameter w", plain, func(a *ptxgen.GemvBatchArgs) { a.W = 8 }},
		{"no place for results", "Y", plain, func(a *ptxgen.GemvBatchArgs) { a.Y = 0 }},
		{"a second matrix", "Up", plain, func(a *ptxgen.GemvBatchArgs) { a.Up = 16 }},
		{"one matrix of two", "Up", gated, func(a *ptxgen.GemvBatchArgs) {}},
		{"an unknown activation", "Activation", plain, func(a *ptxgen.GemvBatchArgs) { a.Activation = 99 }},
		{"an infinite cap", "Softcap", plain, func(a *ptxgen.GemvBatchArgs) { a.Softcap = float32(math.Inf(1)) }},
		{"fewer than no SMs", "SMs", plain, func(a *ptxgen.GemvBatchArgs) { a.SMs = -1 }},
		{"too little shared memory", "Shared", plain, func(a *ptxgen.GemvBatchArgs) { a.Shared = 4096 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := good
			c.change(&a)
			if _, err := c.spec.Launch(build(t, c.spec), a); err == nil || !strings.Contains(err.Error(), c.field+":") && !strings.Contains(err.Error(), c.field+" ") {
				t.Errorf("error %v, want one that names %s", err, c.field)
			}
		})
	}
}

// TestGemvBuildRefuses: there are no kernels for other numbers of vectors, or for formats
// that are multiplied in another way.
func TestGemvBuildRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spec       ptxgen.Spec
	}{
		{"two columns of a quantised format", "GemvBatch is for more", ptxgen.Gemv{Format: quant.Q4_K, Columns: 2}},
		{"columns between kernels", "3 columns", ptxgen.Gemv{Format: quant.F16, Columns: 3}},
		{"a small kernel of numbers", "small", ptxgen.Gemv{Format: quant.F16, Small: true}},
		{"a set of two", "2 columns", ptxgen.GemvBatch{Format: quant.Q4_K, Columns: 2}},
		{"a set between kernels", "12 columns", ptxgen.GemvBatch{Format: quant.Q4_K, Columns: 12}},
		{"digits by numbers", "F16", ptxgen.GemvBatch{Format: quant.F16, Columns: 4}},
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
			s, err := ptxgen.GemvBatchFor(c.format, c.columns, true, c.k, ptx.Target{SM: 80}, c.shared)
			if got, _ := s.(ptxgen.GemvBatch); got.Columns != c.choice || (err == nil) != (c.choice > 0) {
				t.Errorf("%v, %v, want %d columns", s, err, c.choice)
			}
		})
	}
}
