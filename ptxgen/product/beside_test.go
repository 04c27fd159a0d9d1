package product

import (
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// TestShare demands that the busiest CTA has as little to do as possible.
func TestShare(t *testing.T) {
	streams := beside{Stream{Format: quant.Q4_K}, Stream{Format: quant.Q6_K}}
	tiles := beside{Tile{Tokens: 128, Warpgroups: 2}, Tile{Tokens: 128, Warpgroups: 2}}
	for _, c := range []struct {
		name       string
		products   beside
		rows       [2]int
		tokens     int
		ctas, most int // cost of the busiest CTA
	}{
		{"Q, K and V of 8B", streams, [2]int{5120, 1024}, 1, 132, 4 * 2304},
		{"as many CTAs as products", streams, [2]int{5120, 1024}, 1, 2, 320 * 2304},
		{"fewer CTAs than products", streams, [2]int{5120, 1024}, 1, 1, 320 * 2304},
		{"fewer tiles than CTAs", streams, [2]int{16, 32}, 1, 99, 3360},
		{"tiles of a prompt", tiles, [2]int{5120, 1024}, 1024, 132, 3},
	} {
		list := make([]Args, 2)
		for i := range list {
			list[i] = Args{Rows: c.rows[i], Tokens: c.tokens, CTAs: c.ctas}
		}
		got, most := c.products.share(list), 0
		for i, g := range c.products {
			tasks, cost := g.work(list[i])
			most = max(most, (tasks+got[i]-1)/got[i]*cost)
		}
		if most != c.most || got[0]+got[1] > max(c.ctas, 2) {
			t.Errorf("%s: %v CTAs, the busiest costs %d, want %d", c.name, got, most, c.most)
		}
	}
}

// TestTilesFor demands that Tiles of several formats multiply the same activations.
func TestTilesFor(t *testing.T) {
	for _, formats := range [][]quant.Format{
		{quant.Q4_K, quant.Q6_K}, {quant.F32, quant.Q2_K, quant.BF16}, {quant.Q4_K, quant.Q5_1}, {quant.Q4_K, quant.Q2_K, quant.Q6_K},
	} {
		for _, target := range []ptx.Target{hopper, ampere} {
			for _, tokens := range []int{8, 64, 1024} {
				list := TilesFor(formats, Tile{}, tokens, 6144, target, chosenSMs, chosenShared)
				if len(list) != len(formats) {
					t.Errorf("%v: %v", formats, list)
				}
				for i, s := range list {
					if s.Format != formats[i] || s.round() != list[0].round() || s.threads() != list[0].threads() || s.shared() > chosenShared-staticShared {
						t.Errorf("%v, %d tokens: %+v beside %+v", formats, tokens, s, list[0])
					}
				}
			}
		}
	}
	if one := tileFor(quant.Q4_K, Tile{}, 8, 64, hopper, chosenSMs, chosenShared); one.XSumLayouts != 0 {
		t.Errorf("%+v is for activations of another format", one)
	}
}
