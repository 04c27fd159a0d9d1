package alu

import (
	"math/rand/v2"
	"testing"
)

// placeA8 is the row and column in A of element i of a lane, for m16n8k32, from the PTX ISA. placeB8
// is that in B.
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
