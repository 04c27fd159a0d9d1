package matmul_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/quant"
)

var (
	goodShape = matmul.GEMM{Format: quant.Q4_K, Input: quant.F16, BlockM: 64, BlockN: 32, BlockK: 64, Stages: 3, WarpsM: 2, WarpsN: 1}
	goodGEMM  = matmul.GEMMArgs{X: 16, W: 32, Y: 48, M: 65, N: 97, K: 512}
)

// A launch covers rows and columns with tiles, and every expert has a layer of them.
func TestGEMMLaunches(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*matmul.GEMMArgs)
		grid   [3]uint32
	}{
		{"tiles that are not full", nil, [3]uint32{2, 4, 1}},
		{"full tiles", func(a *matmul.GEMMArgs) { a.M, a.N = 64, 64 }, [3]uint32{1, 2, 1}},
		{"experts", func(a *matmul.GEMMArgs) { a.Experts, a.Offsets, a.Order, a.ExpertBytes = 60, 64, 80, 1024 }, [3]uint32{2, 4, 60}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := goodGEMM
			if c.change != nil {
				c.change(&a)
			}
			l, err := goodShape.Launch(build(t, goodShape), a)
			if err != nil {
				t.Fatal(err)
			}
			if l.Grid != c.grid || l.Block != [3]uint32{64, 1, 1} {
				t.Errorf("a grid of %v CTAs of %v, want %v of 64", l.Grid, l.Block, c.grid)
			}
			// The ring of x and two tiles of weights, and the tables of the tile's rows.
			if want := 3*64*64*2 + 2*32*64*2; int(l.Shared) != want || l.Kernel.Static != 12*64 {
				t.Errorf("%d bytes of dynamic and %d of static shared memory, want %d and %d", l.Shared, l.Kernel.Static, want, 12*64)
			}
		})
	}
}

func TestGEMMLaunchErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*matmul.GEMMArgs)
		field  string
	}{
		{"no rows", func(a *matmul.GEMMArgs) { a.M = 0 }, "M"},
		{"no columns", func(a *matmul.GEMMArgs) { a.N = 0 }, "N"},
		{"more columns than a grid has tiles", func(a *matmul.GEMMArgs) { a.N = 32*65535 + 1 }, "N"},
		{"half a block", func(a *matmul.GEMMArgs) { a.K = 384 }, "K"},
		{"rows of y that overlap", func(a *matmul.GEMMArgs) { a.YStride = 96 }, "YStride"},
		{"an unknown activation", func(a *matmul.GEMMArgs) { a.Activation = 3 }, "Activation"},
		{"no x", func(a *matmul.GEMMArgs) { a.X = 0 }, "X"},
		{"no weights", func(a *matmul.GEMMArgs) { a.W = 0 }, "W"},
		{"no y", func(a *matmul.GEMMArgs) { a.Y = 0 }, "Y"},
		{"misaligned x", func(a *matmul.GEMMArgs) { a.X = 24 }, "parameter x"},
		{"experts without ranges", func(a *matmul.GEMMArgs) { a.Experts = 2 }, "Offsets"},
		{"ranges of nothing", func(a *matmul.GEMMArgs) { a.Offsets = 64 }, "Order"},
		{"matrices that no load can read", func(a *matmul.GEMMArgs) { a.ExpertBytes = 1000 }, "ExpertBytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := goodGEMM
			c.change(&a)
			_, err := goodShape.Launch(build(t, goodShape), a)
			if err == nil || !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("error %v, want one about %s", err, c.field)
			}
		})
	}
}

// A shape that the generator cannot make is refused with the rule that it breaks.
func TestGEMMBuildErrors(t *testing.T) {
	for _, c := range []struct {
		rule   string
		change func(*matmul.GEMM)
	}{
		{"Format", func(s *matmul.GEMM) { s.Format = 255 }},
		{"Input", func(s *matmul.GEMM) { s.Input = quant.F32 }},
		{"powers of two", func(s *matmul.GEMM) { s.BlockM = 96 }},
		{"powers of two", func(s *matmul.GEMM) { s.WarpsN = 0 }},
		{"BlockK", func(s *matmul.GEMM) { s.BlockK = 16 }},
		{"Stages", func(s *matmul.GEMM) { s.Stages = 1 }},
		{"32 warps", func(s *matmul.GEMM) { s.WarpsM, s.BlockM = 64, 1024 }},
		{"16 rows", func(s *matmul.GEMM) { s.BlockM = 16 }},
		{"128 columns", func(s *matmul.GEMM) { s.BlockN = 256 }},
		{"8 rows", func(s *matmul.GEMM) { s.BlockK = 128 }},
		{"decodes a unit", func(s *matmul.GEMM) { s.BlockK, s.BlockN, s.WarpsM = 32, 32, 4 }},
	} {
		s := goodShape
		c.change(&s)
		if _, err := s.Build(); err == nil || !strings.Contains(err.Error(), c.rule) {
			t.Errorf("%s: error %v, want one about %q", s.Name(), err, c.rule)
		}
	}
}

// The choice follows the number of rows, and what the device has room for.
func TestGEMMFor(t *testing.T) {
	const h200, ada = 227 << 10, 99 << 10
	for _, c := range []struct {
		name         string
		m, n, shared int
		blockM       int
	}{
		{"a whole prompt", 2048, 4096, h200, 256},
		{"half of one", 1024, 4096, h200, 256},
		{"few tiles for many SMs", 300, 4096, h200, 128},
		{"a wide matrix", 512, 28672, h200, 256},
		{"a batch", 17, 4096, h200, 64},
		{"one row of a wide matrix", 1, 14336, h200, 32},
		{"no room for the largest", 2048, 4096, ada, 128},
		{"no room at all", 2048, 4096, 0, 32},
	} {
		s := matmul.GEMMFor(quant.Q4_K, quant.F16, c.m, c.n, 132, c.shared)
		if s.BlockM != c.blockM || s.Format != quant.Q4_K || s.Input != quant.F16 {
			t.Errorf("%s: %s, want tiles of %d rows", c.name, s.Name(), c.blockM)
		}
	}
	if s := matmul.GEMMFor(quant.Q4_K, quant.F16, 2048, 4096, 0, h200); s.BlockM != 256 {
		t.Errorf("%s for a device of which the SMs are not known", s.Name())
	}
	for _, f := range []quant.Format{quant.F16, quant.Q6_K} {
		s := matmul.GEMMFor(f, quant.F16, 4096, 4096, 100, ada)
		a := goodGEMM
		a.M, a.N, a.K, a.YStride = 4096, 4096, 4096, 0
		l, err := s.Launch(build(t, s), a)
		if err != nil {
			t.Fatal(err)
		}
		if bytes := int(l.Shared) + l.Kernel.Static; bytes > ada {
			t.Errorf("%s takes %d bytes of shared memory of %d", s.Name(), bytes, ada)
		}
	}
}

// Every shape that a choice may give is a reachable kernel.
func TestGEMMReachable(t *testing.T) {
	names := map[string]bool{}
	for _, s := range ptxgen.Reachable() {
		names[s.Name()] = true
	}
	for _, f := range matmul.Formats() {
		for m := 1; m < 5000; m *= 2 {
			if s := matmul.GEMMFor(f, matmul.InputFormat(f), m, 4096, 132, 227<<10); !names[s.Name()] {
				t.Errorf("%d rows of %v take %s, which is not reachable", m, f, s.Name())
			}
		}
	}
}
