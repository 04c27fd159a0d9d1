package alu

import (
	"math/rand/v2"
	"testing"
)

func TestLdMatrixAgainstDefinition(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		for _, trans := range []bool{false, true} {
			// Element [row][col] of matrix i is 256·i + 16·row + col.
			next := 0
			out := LdMatrix(func(lane int) (row [16]byte) {
				if lane != next {
					t.Fatalf("x%d asked for lane %d, want %d", n, lane, next)
				}
				next++
				for col := range 8 {
					row[2*col] = byte(16*(lane%8) + col)
					row[2*col+1] = byte(lane / 8)
				}
				return row
			}, n, trans)
			if next != 8*n {
				t.Errorf("x%d asked for %d rows, want %d", n, next, 8*n)
			}
			for lane := range 32 {
				for i := range 4 {
					var want uint32
					if i < n {
						low, high := 16*(lane/4)+lane%4*2, 16*(lane/4)+lane%4*2+1
						if trans {
							low, high = 16*(lane%4*2)+lane/4, 16*(lane%4*2+1)+lane/4
						}
						want = uint32(256*i+low) | uint32(256*i+high)<<16
					}
					if out[lane][i] != want {
						t.Fatalf("x%d, trans %v: lane %d register %d = %#08x, want %#08x", n, trans, lane, i, out[lane][i], want)
					}
				}
			}
		}
	}
}

// Kernels load A with x4 and B with x2.trans from row-major tiles. The results must be the operands
// of mma.
func TestLdMatrixFeedsMMA(t *testing.T) {
	w := normalWarp(rand.New(rand.NewPCG(39, 40)), false)
	put := func(row *[16]byte, k int, v float64) {
		h := F32ToF16(float32(v))
		row[2*k], row[2*k+1] = byte(h), byte(h>>8)
	}
	a := LdMatrix(func(lane int) (row [16]byte) {
		for k := range 8 {
			put(&row, k, w.matA[lane%16][lane/16*8+k])
		}
		return row
	}, 4, false)
	b := LdMatrix(func(lane int) (row [16]byte) {
		for k := range 8 {
			put(&row, k, w.matB[lane][k])
		}
		return row
	}, 2, true)
	if a != w.a {
		t.Error("A by ldmatrix.x4 differs from its fragments")
	}
	for lane := range b {
		if [2]uint32(b[lane][:2]) != w.b[lane] {
			t.Fatalf("B by ldmatrix.x2.trans differs in lane %d", lane)
		}
	}
}
