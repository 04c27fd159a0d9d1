package alu

import (
	"math/rand/v2"
	"testing"
)

func TestWGMMAS8AgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(39, 40))
	for _, unsigned := range []bool{false, true} {
		var matA [16][32]int32
		var a [32][4]uint32
		var b [64][32]byte
		var d, want [32][32]int32
		for lane := range 32 {
			for i := range 16 {
				v := byte(rng.Uint32())
				row, col := placeA8(lane, i)
				if matA[row][col] = int32(int8(v)); unsigned {
					matA[row][col] = int32(v)
				}
				a[lane][i/4] |= uint32(v) << (8 * (i % 4))
			}
			for i := range want[lane] {
				want[lane][i] = int32(rng.Uint32())
			}
		}
		for n := range b {
			for k := range b[n] {
				b[n][k] = byte(rng.Uint32())
			}
		}
		d = want
		WGMMAS8(&d, &a, &b, unsigned)
		for lane := range want {
			for i := range want[lane] {
				row, column := lane>>2+i%4/2*8, i/4*8+lane%4*2+i%2
				for k, x := range matA[row] {
					want[lane][i] += x * int32(int8(b[column][k]))
				}
			}
		}
		if d != want {
			t.Errorf("unsigned %v: a sum differs", unsigned)
		}
	}
}
