package matmul_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// TestGemvRefuses holds a launch's error to name the argument that is wrong.
func TestGemvRefuses(t *testing.T) {
	good := matmul.GemvArgs{X: 16, W: 16, Y: 16, Rows: 5, K: 512, Shared: 160 << 10}
	gated := matmul.Gemv{Format: quant.Q4_K, Gated: true}
	plain := matmul.Gemv{Format: quant.Q4_K}
	for _, c := range []struct {
		name, field string
		spec        matmul.Gemv
		change      func(a *matmul.GemvArgs)
	}{
		{"part of a block", "K", plain, func(a *matmul.GemvArgs) { a.K = 300 }},
		{"no rows", "Rows", plain, func(a *matmul.GemvArgs) { a.Rows = 0 }},
		{"two vectors of a quantized format", "Columns", plain, func(a *matmul.GemvArgs) { a.Columns = 2 }},
		{"more columns than any kernel has", "Columns", matmul.Gemv{Format: quant.F32}, func(a *matmul.GemvArgs) { a.Columns = 17 }},
		{"overlapping vectors", "XStride", plain, func(a *matmul.GemvArgs) { a.XStride = 511 }},
		{"overlapping results", "YStride", plain, func(a *matmul.GemvArgs) { a.YStride = 4 }},
		{"no vector", "X", plain, func(a *matmul.GemvArgs) { a.X = 0 }},
		{"no matrix", "W", plain, func(a *matmul.GemvArgs) { a.W = 0 }},
		{"a matrix that is not aligned", "parameter w", plain, func(a *matmul.GemvArgs) { a.W = 8 }},
		{"a second matrix", "Up", plain, func(a *matmul.GemvArgs) { a.Up = 16 }},
		{"one matrix of two", "Up", gated, func(a *matmul.GemvArgs) {}},
		{"slots without experts", "Slots", plain, func(a *matmul.GemvArgs) { a.Slots = 2 }},
		{"experts that are not aligned", "ExpertBytes", plain, func(a *matmul.GemvArgs) { a.Experts, a.ExpertBytes = 16, 8 }},
		{"a norm's weight without a norm", "Norm", plain, func(a *matmul.GemvArgs) { a.NormWeight = 16 }},
		{"an unknown norm", "Norm", plain, func(a *matmul.GemvArgs) { a.Norm = 3 }},
		{"an unknown activation", "Activation", plain, func(a *matmul.GemvArgs) { a.Activation = 99 }},
		{"a negative cap", "Softcap", plain, func(a *matmul.GemvArgs) { a.Softcap = -1 }},
		{"an infinite cap", "Softcap", plain, func(a *matmul.GemvArgs) { a.Softcap = float32(math.Inf(1)) }},
		{"a negative eps", "Eps", plain, func(a *matmul.GemvArgs) { a.Eps = -1 }},
		{"fewer than no SMs", "SMs", plain, func(a *matmul.GemvArgs) { a.SMs = -1 }},
		{"more sums of slices than are counted in 32 bits", "Slots", plain, func(a *matmul.GemvArgs) {
			a.Rows, a.K, a.Shared, a.Experts, a.Slots, a.Workspace = 1<<20, 1<<17, 227<<10, 16, 65535, 16
		}},
		{"no workspace", "Workspace", plain, func(a *matmul.GemvArgs) { a.K, a.Shared = 1<<17, 227<<10 }},
		{"too little shared memory", "Shared", plain, func(a *matmul.GemvArgs) { a.Shared = 4096 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := build(t, c.spec)
			a := good
			c.change(&a)
			if _, err := c.spec.Launch(k, a); err == nil || !strings.Contains(err.Error(), c.field) {
				t.Errorf("error %v, want one that names %s", err, c.field)
			}
		})
	}
}

// TestGemvLaunch holds the shape of a launch: enough CTAs for the rows, no more than
// asked for, and slices of a row where it does not fit.
func TestGemvLaunch(t *testing.T) {
	const (
		tile  = 16
		large = 227 << 10
	)
	integer, float := matmul.Gemv{Format: quant.Q4_K}, matmul.Gemv{Format: quant.F16}
	for _, c := range []struct {
		name string
		spec matmul.Gemv
		args matmul.GemvArgs
		grid [3]uint32
	}{
		{"a warp a tile: 16 tiles a CTA", integer, matmul.GemvArgs{Rows: 33 * tile, K: 256, Shared: large}, [3]uint32{3, 1, 1}},
		{"16 warps a tile", integer, matmul.GemvArgs{Rows: 33 * tile, K: 4096, Shared: large}, [3]uint32{33, 1, 1}},
		{"an SM's share of the tiles, rounded up", integer, matmul.GemvArgs{Rows: 33 * tile, K: 4096, SMs: 10, Shared: large}, [3]uint32{9, 1, 1}},
		{"slices that fit, with a norm", integer, matmul.GemvArgs{Rows: tile, K: 65536, Shared: large, Workspace: 16, Norm: norm.RMS}, [3]uint32{1, 1, 4}},
		{"slices of 14 blocks: four tiles a CTA", integer, matmul.GemvArgs{Rows: 33 * tile, K: 14336, Shared: large, Workspace: 16}, [3]uint32{9, 1, 4}},
		{"slices share the SMs", integer, matmul.GemvArgs{Rows: 256 * tile, K: 14336, SMs: 132, Shared: large, Workspace: 16}, [3]uint32{32, 1, 4}},
		{"a slice for each part of the longest rows", integer, matmul.GemvArgs{Rows: tile, K: 1 << 17, Shared: large, Workspace: 16}, [3]uint32{1, 1, 16}},
		{"slots", integer, matmul.GemvArgs{Rows: 8 * tile, K: 4096, Shared: large, Experts: 16, Slots: 4, SMs: 8}, [3]uint32{2, 4, 1}},
		{"a warp a row", float, matmul.GemvArgs{Rows: 33, K: 1024}, [3]uint32{3, 1, 1}},
		{"two warps share rows", float, matmul.GemvArgs{Rows: 33, K: 4096}, [3]uint32{5, 1, 1}},
		{"no more than two CTAs an SM", float, matmul.GemvArgs{Rows: 1000, K: 1024, SMs: 3}, [3]uint32{6, 1, 1}},
		{"more vectors than columns", matmul.Gemv{Format: quant.F16, Columns: 4}, matmul.GemvArgs{Rows: 33, K: 1024, Columns: 9}, [3]uint32{3, 1, 3}},
		{"one where two do not fit", float, matmul.GemvArgs{Rows: 1000, K: 14336, SMs: 3}, [3]uint32{3, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.args.X, c.args.W, c.args.Y = 16, 16, 16
			l, err := c.spec.Launch(build(t, c.spec), c.args)
			if err != nil {
				t.Fatal(err)
			}
			if l.Grid != c.grid {
				t.Errorf("a grid of %v, want %v", l.Grid, c.grid)
			}
		})
	}
}

// TestGemvFor holds the choice to the smallest kernel that fits.
func TestGemvFor(t *testing.T) {
	for _, c := range []struct {
		name                       string
		format                     quant.Format
		columns, k, shared, choice int
	}{
		{"one vector", quant.Q6_K, 1, 4096, 227 << 10, 1},
		{"a small device", quant.Q6_K, 1, 4096, 99 << 10, 1},
		{"too small", quant.Q6_K, 1, 4096, 20 << 10, 0},
		{"two of a quantized format", quant.Q6_K, 2, 4096, 227 << 10, 0},
		{"none", quant.Q6_K, 0, 4096, 227 << 10, 0},
		{"numbers: between two kernels", quant.F16, 5, 4096, 227 << 10, 8},
		{"numbers: too many", quant.F16, 17, 4096, 227 << 10, 0},
		{"numbers: two at a time fit", quant.F16, 5, 14336, 227 << 10, 2},
		{"numbers: none fits whole", quant.F16, 5, 14336, 48 << 10, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := matmul.GemvFor(c.format, c.columns, true, c.k, c.shared)
			if s.Columns != c.choice || (err == nil) != (c.choice > 0) {
				t.Errorf("%d columns, %v, want %d", s.Columns, err, c.choice)
			}
		})
	}
}

// TestGemvForSmall: little shared memory is for x rather than for large rings.
func TestGemvForSmall(t *testing.T) {
	for _, c := range []struct {
		name      string
		format    quant.Format
		k, shared int
		small     bool
	}{
		{"one slice either way", quant.Q4_0, 4096, 163 << 10, false},
		{"one slice instead of four", quant.Q8_0, 14336, 163 << 10, true},
		{"one slice instead of two", quant.Q4_0, 4096, 99 << 10, true},
		{"numbers have no small kernel", quant.F16, 14336, 99 << 10, false},
		{"room for a large ring", quant.Q8_0, 14336, 227 << 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if s, err := matmul.GemvFor(c.format, 1, false, c.k, c.shared); err != nil || s.Small != c.small {
				t.Errorf("small is %v, error %v, want %v", s.Small, err, c.small)
			}
		})
	}
}

// TestGemvForEveryDevice: from an RTX 3090 to an H200 there is a kernel for every product
// of a model.
func TestGemvForEveryDevice(t *testing.T) {
	for _, f := range matmul.Formats() {
		for _, k := range []int{256, 2048, 4096, 14336, 28672} {
			for _, columns := range []int{1, 4, 16} {
				for _, shared := range []int{99 << 10, 163 << 10, 227 << 10} {
					for _, gated := range []bool{false, true} {
						if err := kernelFor(f, columns, gated, k, shared); err != nil {
							t.Errorf("%v, %d columns of %d, gated %v, %d KiB: %v", f, columns, k, gated, shared>>10, err)
						}
					}
				}
			}
		}
	}
}

// kernelFor chooses as an engine does.
func kernelFor(f quant.Format, columns int, gated bool, k, shared int) error {
	if columns > 1 && f.BlockLen() > 1 {
		_, err := matmul.GemvBatchFor(f, columns, gated, k, ptx.Target{SM: 80}, shared)
		return err
	}
	s, err := matmul.GemvFor(f, columns, gated, k, shared)
	if s.Columns > columns || s.Small && shared > 163<<10 {
		return fmt.Errorf("the choice is %+v", s)
	}
	return err
}

// TestGemvWorkspaceOfNorm: what is planned for products without a norm is enough for those
// with one.
func TestGemvWorkspaceOfNorm(t *testing.T) {
	spec := matmul.Gemv{Format: quant.Q8_0, Gated: true}
	k := build(t, spec)
	for _, width := range []int{4096, 4352, 5120, 14336, 28672, 1 << 17} {
		for _, rows := range []int{1, 17, 4096, 5000} {
			var need [2]int
			for i, kind := range []norm.Kind{norm.None, norm.Layer} {
				bytes, err := spec.Workspace(k, matmul.GemvArgs{Rows: rows, K: width, Norm: kind, Shared: 227 << 10})
				if err != nil {
					t.Fatal(err)
				}
				need[i] = bytes
			}
			if need[1] > need[0] || width > 4096 && need[0] == 0 {
				t.Errorf("%d rows of %d weights: %d bytes without a norm, %d with one", rows, width, need[0], need[1])
			}
		}
	}
}

// TestGemvWorkspaceRefuses: what a launch refuses for its sizes has no workspace, either.
func TestGemvWorkspaceRefuses(t *testing.T) {
	spec := matmul.Gemv{Format: quant.Q4_K}
	k := build(t, spec)
	for field, a := range map[string]matmul.GemvArgs{
		"K":      {Rows: 5, K: 300, Shared: 160 << 10},
		"Rows":   {K: 512, Shared: 160 << 10},
		"Shared": {Rows: 5, K: 512, Shared: 4096},
	} {
		if _, err := spec.Workspace(k, a); err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("error %v, want one about %s", err, field)
		}
	}
	for _, n := range []int{0, 300} {
		if _, err := matmul.GemvFor(quant.Q4_K, 1, false, n, 160<<10); err == nil {
			t.Errorf("a kernel for rows of %d weights", n)
		}
	}
}

// TestEmbedScale: a scale that is left out changes nothing.
func TestEmbedScale(t *testing.T) {
	spec, a := matmul.Embed(quant.Q8_0), matmul.EmbedArgs{W: 16, Out: 16, Count: 1, K: 64}
	k := build(t, spec)
	without, err := spec.Launch(k, a)
	if err != nil {
		t.Fatal(err)
	}
	a.Scale = 1
	if with, err := spec.Launch(k, a); err != nil || !bytes.Equal(with.Params, without.Params) {
		t.Errorf("parameters %x, and %x with a scale of 1, error %v", without.Params, with.Params, err)
	}
}

func TestEmbedRefuses(t *testing.T) {
	spec := matmul.Embed(quant.Q8_0)
	k := build(t, spec)
	good := matmul.EmbedArgs{W: 16, Out: 16, Count: 1, K: 64, Scale: 1}
	for field, change := range map[string]func(a *matmul.EmbedArgs){
		"K":     func(a *matmul.EmbedArgs) { a.K = 33 },
		"Count": func(a *matmul.EmbedArgs) { a.Count = 0 },
		"W":     func(a *matmul.EmbedArgs) { a.W = 0 },
		"Out":   func(a *matmul.EmbedArgs) { a.Out = 0 },
	} {
		a := good
		change(&a)
		if _, err := spec.Launch(k, a); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v, want one that names %s", err, field)
		}
	}
}
