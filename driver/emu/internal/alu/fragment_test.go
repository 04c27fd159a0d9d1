package alu

import (
	"math/rand/v2"
	"testing"
)

// Element i of a lane in m16n8k32, from the PTX ISA.
func placeA8(lane, i int) (row, col int) {
	row, col = lane>>2, lane&3*4+i&3
	if !(i < 4 || i >= 8 && i < 12) {
		row += 8
	}
	if i >= 8 {
		col += 16
	}
	return row, col
}

func placeB8(lane, i int) (row, col int) {
	row, col = lane&3*4+i&3, lane>>2
	if i >= 4 {
		row += 16
	}
	return row, col
}

func TestMMA16832S8AgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(37, 38))
	random := func() int32 { return int32(int8(rng.Uint32())) }
	for _, kind := range []struct {
		name     string
		a, b, c  func() int32
		unsigned bool
	}{
		{"any bytes", random, random, func() int32 { return int32(rng.Uint32()) }, false},
		{"the largest sum", func() int32 { return -128 }, func() int32 { return -128 }, func() int32 { return 0 }, false},
		{"wraps", func() int32 { return 127 }, func() int32 { return 127 }, func() int32 { return 1<<31 - 1 }, false},
		{"unsigned", func() int32 { return int32(uint8(rng.Uint32())) }, random, func() int32 { return int32(rng.Uint32()) }, true},
	} {
		t.Run(kind.name, func(t *testing.T) {
			var matA [16][32]int32
			var matB [32][8]int32
			var a [32][4]uint32
			var b [32][2]uint32
			var c [32][4]int32
			for lane := range 32 {
				for i := range 16 {
					row, col := placeA8(lane, i)
					matA[row][col] = kind.a()
					a[lane][i/4] |= uint32(uint8(matA[row][col])) << (8 * (i % 4))
				}
				for i := range 8 {
					row, col := placeB8(lane, i)
					matB[row][col] = kind.b()
					b[lane][i/4] |= uint32(uint8(matB[row][col])) << (8 * (i % 4))
				}
				for i := range 4 {
					c[lane][i] = kind.c()
				}
			}
			d := c
			MMA16832S8(&d, &a, &b, &d, kind.unsigned)
			for lane := range 32 {
				for i := range 4 {
					row, col := placeC(lane, i)
					want := int64(c[lane][i])
					for k := range 32 {
						want += int64(matA[row][k]) * int64(matB[k][col])
					}
					if d[lane][i] != int32(want) {
						t.Fatalf("D[%d][%d] = %d, want %d", row, col, d[lane][i], int32(want))
					}
				}
			}
		})
	}
}

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

// Kernels load A with x4 from four quarters of a row-major tile, and B with x2 and
// trans from a row-major tile: what comes out must be what mma takes.
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
