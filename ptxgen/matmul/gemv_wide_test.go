package matmul_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/matmul"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

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
			spec := matmul.GemvWide(quant.Q6_K, c.gated)
			a := matmul.GemvBatchArgs{Digits: 16, W: 16, Y: 16, Workspace: 16, Rows: c.rows, K: c.k, Columns: c.columns, SMs: c.sms, Shared: 227 << 10}
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
			s, err := matmul.GemvBatchFor(c.format, c.columns, true, c.k, c.most, c.shared)
			if err != nil {
				t.Fatal(err)
			}
			if wide := s.Name() == matmul.GemvWide(c.format, true).Name(); wide != c.wide || s.Digits().Wide != c.wide {
				t.Errorf("%s, of %s, want wide %v", s.Name(), s.Digits().Name(), c.wide)
			}
		})
	}
}
