package product

import (
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// TestChosenKernels builds the kernels that are chosen for an H200, and checks that they fit.
func TestChosenKernels(t *testing.T) {
	const sms, shared = 132, 227 << 10
	hopper := ptx.Target{Version: 88, SM: 90, Arch: true}
	built := map[string]bool{}
	build := func(s kernel.Spec, bytes int) {
		t.Helper()
		if bytes > shared-staticShared {
			t.Errorf("%s: %d bytes of shared memory", s.Name(), bytes)
		}
		if built[s.Name()] {
			return
		}
		built[s.Name()] = true
		if _, err := s.Build(); err != nil {
			t.Error(err)
		}
	}
	for _, f := range Formats() {
		for _, tokens := range []int{1, 2, 3, 4} {
			for _, k := range []int{f.BlockLen(), 4096, 14336} {
				s, ok := StreamFor(f, Epilogue{Norm: true}, tokens, k, hopper, shared)
				if !ok && f == quant.F32 && k > 4096 {
					continue // two planes of weights leave room for fewer activations
				}
				if !ok {
					t.Errorf("%v: no kernel for %d tokens of %d columns", f, tokens, k)
					continue
				}
				build(s.Kernel(), s.shared(Packing{f, k}.segments()))
			}
		}
		for _, tokens := range []int{1, 9, 32, 33, 64, 65, 128, 256, 4096} {
			for _, rows := range []int{16, 4096, 28672} {
				s := tileFor(f, Tile{Epilogue: Epilogue{Norm: true}}, tokens, rows, hopper, sms, shared)
				build(s.Kernel(), s.shared())
			}
		}
	}
	for _, c := range []struct{ tokens, k, shared int }{{5, 4096, shared}, {1, 1 << 20, shared}, {1, 4096, 16 << 10}} {
		if s, ok := StreamFor(quant.Q8_0, Epilogue{}, c.tokens, c.k, hopper, c.shared); ok {
			t.Errorf("%d tokens of %d columns in %d bytes have %+v", c.tokens, c.k, c.shared, s)
		}
	}
	for rows, chosen := range map[int]map[int]Tile{ // by tokens
		28672: {
			16:   {Tokens: 16, Warps: 16, Sets: 1},
			40:   {Tokens: 48, Warps: 16, Sets: 1},
			64:   {Tokens: 64, Warps: 16, Sets: 1},
			96:   {Tokens: 96, Warpgroups: 2},
			128:  {Tokens: 128, Warpgroups: 2},
			192:  {Tokens: 96, Warpgroups: 2, TwoRowTiles: true},
			4096: {Tokens: 128, Warpgroups: 2, TwoRowTiles: true},
		},
		14336: {
			16: {Tokens: 16, Warps: 7, Sets: 2},
		},
		4096: {
			16:   {Tokens: 16, Warps: 2, Sets: 8},
			40:   {Tokens: 24, Warps: 4, Sets: 6},
			64:   {Tokens: 32, Warps: 4, Sets: 5},
			128:  {Tokens: 32, Warps: 8, Sets: 3},
			192:  {Tokens: 48, Warpgroups: 2},
			256:  {Tokens: 64, Warpgroups: 2},
			384:  {Tokens: 128, Warpgroups: 2},
			1536: {Tokens: 128, Warpgroups: 2},
			4096: {Tokens: 128, Warpgroups: 2, TwoRowTiles: true},
		},
	} {
		for tokens, want := range chosen {
			s := tileFor(quant.Q4_K, Tile{}, tokens, rows, hopper, sms, shared)
			if s.Tokens != want.Tokens || s.Warpgroups != want.Warpgroups || s.TwoRowTiles != want.TwoRowTiles || s.Warps != want.Warps || s.Sets != want.Sets {
				t.Errorf("%d tokens, %d rows: %+v, want %+v", tokens, rows, s, want)
			}
		}
	}
	if s, want := tileFor(quant.Q2_K, Tile{}, 4096, 4096, hopper, sms, shared), (Tile{Format: quant.Q2_K, Tokens: 128, Warpgroups: 2, Ring: 4, RingX: 2}); s != want {
		t.Errorf("Q2_K, for which registers do not suffice for two row tiles: %+v, want %+v", s, want)
	}
	for _, sm := range []int{80, 89} {
		s := tileFor(quant.F32, Tile{}, 4096, 4096, ptx.Target{Version: 88, SM: sm}, sms, 99<<10)
		if s.Warps == 0 {
			t.Errorf("sm_%d: %+v, want warps", sm, s)
		}
		build(s.Kernel(), s.shared()+shared-(99<<10))
	}
}
