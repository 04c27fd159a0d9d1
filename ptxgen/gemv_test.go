package ptxgen_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// TestGemvRefuses holds a launch's error to name the argument that is wrong.
func TestGemvRefuses(t *testing.T) {
	good := ptxgen.GemvArgs{X: 16, W: 16, Y: 16, Rows: 5, K: 512}
	gated := ptxgen.Gemv{Format: quant.Q4_K, Gated: true}
	plain := ptxgen.Gemv{Format: quant.Q4_K}
	for _, c := range []struct {
		name, field string
		spec        ptxgen.Gemv
		change      func(a *ptxgen.GemvArgs)
	}{
		{"part of a block", "K", plain, func(a *ptxgen.GemvArgs) { a.K = 300 }},
		{"no rows", "Rows", plain, func(a *ptxgen.GemvArgs) { a.Rows = 0 }},
		{"more columns than the kernel has", "Columns", plain, func(a *ptxgen.GemvArgs) { a.Columns = 2 }},
		{"overlapping vectors", "XStride", plain, func(a *ptxgen.GemvArgs) { a.XStride = 511 }},
		{"overlapping results", "YStride", plain, func(a *ptxgen.GemvArgs) { a.YStride = 4 }},
		{"no vector", "X", plain, func(a *ptxgen.GemvArgs) { a.X = 0 }},
		{"no matrix", "W", plain, func(a *ptxgen.GemvArgs) { a.W = 0 }},
		{"a matrix that is not aligned", "parameter w", plain, func(a *ptxgen.GemvArgs) { a.W = 8 }},
		{"a second matrix", "Up", plain, func(a *ptxgen.GemvArgs) { a.Up = 16 }},
		{"one matrix of two", "Up", gated, func(a *ptxgen.GemvArgs) {}},
		{"slots without experts", "Slots", plain, func(a *ptxgen.GemvArgs) { a.Slots = 2 }},
		{"experts that are not aligned", "ExpertBytes", plain, func(a *ptxgen.GemvArgs) { a.Experts, a.ExpertBytes = 16, 8 }},
		{"a norm's weight without a norm", "Norm", plain, func(a *ptxgen.GemvArgs) { a.NormWeight = 16 }},
		{"an unknown norm", "Norm", plain, func(a *ptxgen.GemvArgs) { a.Norm = 3 }},
		{"an unknown activation", "Activation", plain, func(a *ptxgen.GemvArgs) { a.Activation = 99 }},
		{"a negative cap", "Softcap", plain, func(a *ptxgen.GemvArgs) { a.Softcap = -1 }},
		{"too little shared memory", "Shared", plain, func(a *ptxgen.GemvArgs) { a.Shared = 4096 }},
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
// asked for, and shared memory for the whole vector where it fits.
func TestGemvLaunch(t *testing.T) {
	spec := ptxgen.Gemv{Format: quant.Q4_K}
	k := build(t, spec)
	const group = 4*1024 + 5*4*32 // of staged numbers, with their sums
	for _, c := range []struct {
		name         string
		args         ptxgen.GemvArgs
		grid, shared int
	}{
		{"one group, a warp a row", ptxgen.GemvArgs{Rows: 33, K: 1024}, 2, group},
		{"two warps share rows", ptxgen.GemvArgs{Rows: 33, K: 4096, Shared: 160 << 10}, 3, 4 * group},
		{"four warps share rows", ptxgen.GemvArgs{Rows: 33, K: 14336, Shared: 160 << 10}, 5, 14 * group},
		{"no more than two CTAs an SM", ptxgen.GemvArgs{Rows: 1000, K: 1024, SMs: 3}, 6, group},
		{"one where two do not fit", ptxgen.GemvArgs{Rows: 1000, K: 14336, SMs: 3, Shared: 100 << 10}, 3, 14 * group},
		{"parts of a vector that does not fit", ptxgen.GemvArgs{Rows: 8, K: 14336}, 1, 8 * group},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.args.X, c.args.W, c.args.Y = 16, 16, 16
			l, err := spec.Launch(k, c.args)
			if err != nil {
				t.Fatal(err)
			}
			if int(l.Grid[0]) != c.grid || int(l.Shared) != c.shared {
				t.Errorf("%d CTAs of %d bytes, want %d of %d", l.Grid[0], l.Shared, c.grid, c.shared)
			}
		})
	}
}

func TestEmbedRefuses(t *testing.T) {
	spec := ptxgen.Embed{Format: quant.Q8_0}
	k := build(t, spec)
	good := ptxgen.EmbedArgs{W: 16, Out: 16, Count: 1, K: 64, Scale: 1}
	for field, change := range map[string]func(a *ptxgen.EmbedArgs){
		"K":     func(a *ptxgen.EmbedArgs) { a.K = 33 },
		"Count": func(a *ptxgen.EmbedArgs) { a.Count = 0 },
		"W":     func(a *ptxgen.EmbedArgs) { a.W = 0 },
		"Out":   func(a *ptxgen.EmbedArgs) { a.Out = 0 },
	} {
		a := good
		change(&a)
		if _, err := spec.Launch(k, a); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v, want one that names %s", err, field)
		}
	}
}
