package ptxgen_test

import (
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// TestGemvWideRefuses holds a launch's error to name the argument that is wrong.
func TestGemvWideRefuses(t *testing.T) {
	plain, gated := ptxgen.GemvWide{Format: quant.Q4_K}, ptxgen.GemvWide{Format: quant.Q4_K, Gated: true}
	good := ptxgen.GemvBatchArgs{Digits: 16, W: 16, Y: 16, Workspace: 16, Rows: 5, K: 512, Columns: 3, SMs: 2, Shared: 227 << 10}
	if _, err := plain.Launch(build(t, plain), good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, field string
		spec        ptxgen.GemvWide
		change      func(a *ptxgen.GemvBatchArgs)
	}{
		{"part of a block", "K", plain, func(a *ptxgen.GemvBatchArgs) { a.K = 300 }},
		{"no rows", "Rows", plain, func(a *ptxgen.GemvBatchArgs) { a.Rows = 0 }},
		{"no columns", "Columns", plain, func(a *ptxgen.GemvBatchArgs) { a.Columns = 0 }},
		{"more sums than are counted", "Columns", plain, func(a *ptxgen.GemvBatchArgs) { a.Columns, a.Rows, a.SMs = 65535, 80000, 1<<30 }},
		{"overlapping results", "YStride", plain, func(a *ptxgen.GemvBatchArgs) { a.YStride = 4 }},
		{"no digits", "Digits", plain, func(a *ptxgen.GemvBatchArgs) { a.Digits = 0 }},
		{"a matrix that is not aligned", "parameter w", plain, func(a *ptxgen.GemvBatchArgs) { a.W = 8 }},
		{"no place for results", "Y", plain, func(a *ptxgen.GemvBatchArgs) { a.Y = 0 }},
		{"nowhere to meet", "Workspace", plain, func(a *ptxgen.GemvBatchArgs) { a.Workspace = 0 }},
		{"a second matrix", "Up", plain, func(a *ptxgen.GemvBatchArgs) { a.Up = 16 }},
		{"one matrix of two", "Up", gated, func(a *ptxgen.GemvBatchArgs) {}},
		{"an unknown activation", "Activation", plain, func(a *ptxgen.GemvBatchArgs) { a.Activation = 99 }},
		{"an infinite cap", "Softcap", plain, func(a *ptxgen.GemvBatchArgs) { a.Softcap = float32(math.Inf(1)) }},
		{"fewer than no SMs", "SMs", plain, func(a *ptxgen.GemvBatchArgs) { a.SMs = -1 }},
		{"too little shared memory", "Shared", plain, func(a *ptxgen.GemvBatchArgs) { a.Shared = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := good
			c.change(&a)
			if _, err := c.spec.Launch(build(t, c.spec), a); err == nil || !strings.Contains(err.Error(), c.field+":") && !strings.Contains(err.Error(), c.field+" ") {
				t.Errorf("error %v, want one that names %s", err, c.field)
			}
		})
	}
	if _, err := (ptxgen.GemvWide{Format: quant.Q8_0}).Build(); err == nil || !strings.Contains(err.Error(), "Q8_0") {
		t.Errorf("error %v, want one that names the format", err)
	}
}

// TestGemvWideSlices: rows are cut for all SMs to have work, and no further.
func TestGemvWideSlices(t *testing.T) {
	for _, c := range []struct {
		name                          string
		gated                         bool
		rows, k, columns, sms, slices int
		ctas                          int // of all slices and sets
	}{
		{"as many SMs as there may be", false, 4096, 14336, 64, 0, 1, 64},
		{"slices for all SMs", false, 4096, 14336, 64, 132, 2, 128},
		{"no more slices than parts", false, 64, 512, 16, 132, 2, 2},
		{"more tiles than SMs", true, 14336, 4096, 64, 132, 1, 128},
		{"a set alone", true, 14336, 4096, 16, 132, 1, 112},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := ptxgen.GemvWide{Format: quant.Q6_K, Gated: c.gated}
			a := ptxgen.GemvBatchArgs{Digits: 16, W: 16, Y: 16, Workspace: 16, Rows: c.rows, K: c.k, Columns: c.columns, SMs: c.sms, Shared: 227 << 10}
			if c.gated {
				a.Up = 16
			}
			k := build(t, spec)
			l, err := spec.Launch(k, a)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Grid; int(got[2]) != c.slices || int(got[0]*got[2]) != c.ctas {
				t.Errorf("a grid of %v, want %d slices and %d CTAs", got, c.slices, c.ctas)
			}
			if n, err := spec.Workspace(k, a); err != nil || (n > 0) != (c.slices > 1) {
				t.Errorf("%d bytes of workspace for %d slices, error %v", n, c.slices, err)
			}
		})
	}
}

// TestGemvBatchForWarpgroups: many vectors are multiplied by warpgroups where a device has
// the instructions, a driver knows them, and there is room.
func TestGemvBatchForWarpgroups(t *testing.T) {
	hopper := ptx.Target{Version: 84, SM: 90, Arch: true}
	for _, c := range []struct {
		name       string
		format     quant.Format
		columns, k int
		most       ptx.Target
		shared     int
		wide       bool
	}{
		{"two sets", quant.Q4_K, 17, 4096, hopper, 227 << 10, true},
		{"long rows", quant.Q6_K, 64, 28672, hopper, 227 << 10, true},
		{"one set, of which warps make do", quant.Q4_K, 16, 4096, hopper, 227 << 10, false},
		{"a format with scales a unit", quant.Q8_0, 64, 4096, hopper, 227 << 10, false},
		{"an older device", quant.Q4_K, 64, 4096, ptx.Target{Version: 84, SM: 89, Arch: true}, 227 << 10, false},
		{"a newer device", quant.Q4_K, 64, 4096, ptx.Target{Version: 87, SM: 100, Arch: true}, 227 << 10, false},
		{"an older driver", quant.Q4_K, 64, 4096, ptx.Target{Version: 83, SM: 90, Arch: true}, 227 << 10, false},
		{"little shared memory", quant.Q4_K, 64, 4096, hopper, 163 << 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ptxgen.GemvBatchFor(c.format, c.columns, true, c.k, c.most, c.shared)
			if err != nil {
				t.Fatal(err)
			}
			if _, wide := s.(ptxgen.GemvWide); wide != c.wide || s.Digits().Wide != c.wide {
				t.Errorf("%s, of %s, want wide %v", s.Name(), s.Digits().Name(), c.wide)
			}
		})
	}
}
