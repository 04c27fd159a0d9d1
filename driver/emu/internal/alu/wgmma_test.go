package alu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// placeD is the row and column in D of element i of a lane, from the PTX ISA.
func placeD(lane, i int) (row, col int) {
	return lane>>2 + i%4/2*8, i/4*8 + lane%4*2 + i%2
}

func TestWGMMAS8AgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(39, 40))
	for _, unsigned := range []bool{false, true} {
		for _, columns := range []int{8, 64, 256} {
			var matA [16][32]int32
			var a [32][4]uint32
			b, d := make([][32]byte, columns), make([][32]uint32, columns/2)
			for lane := range 32 {
				for i := range 16 {
					v := byte(rng.Uint32())
					row, col := placeA8(lane, i)
					if matA[row][col] = int32(int8(v)); unsigned {
						matA[row][col] = int32(v)
					}
					a[lane][i/4] |= uint32(v) << (8 * (i % 4))
				}
				for i := range d {
					d[i][lane] = rng.Uint32()
				}
			}
			for n := range b {
				for k := range b[n] {
					b[n][k] = byte(rng.Uint32())
				}
			}
			want := append([][32]uint32(nil), d...)
			rows := WGMMARows(&a)
			WGMMAS8(d, &rows, b, unsigned)
			for i := range want {
				for lane := range want[i] {
					row, column := placeD(lane, i)
					for k, x := range matA[row] {
						want[i][lane] += uint32(x * int32(int8(b[column][k])))
					}
					if d[i][lane] != want[i][lane] {
						t.Fatalf("unsigned %v, %d columns: D[%d][%d] = %#x, want %#x", unsigned, columns, row, column, d[i][lane], want[i][lane])
					}
				}
			}
		}
	}
}

// TestWGMMA16IsMMA16816 checks that each eight columns of a product have the bits of MMA16816. The
// operands are normal numbers, and codes of all kinds with infinities and NaN.
func TestWGMMA16IsMMA16816(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	const columns = 24
	for _, m := range []Accumulate{Hopper, Ampere, Exact} {
		for _, bf16 := range []bool{false, true} {
			for round := range 20 {
				var parts [columns / 8]*warp
				b, d := make([][32]byte, columns), make([][32]uint32, columns/2)
				parts[0] = normalWarp(rng, bf16)
				if round%4 == 3 { // all codes
					for lane := range 32 {
						parts[0].a[lane] = [4]uint32{rng.Uint32(), rng.Uint32(), rng.Uint32(), rng.Uint32()}
					}
				}
				for part := range parts {
					w := parts[0]
					if part > 0 {
						w = normalWarp(rng, bf16)
						w.a = parts[0].a
					}
					parts[part] = w
					for lane := range 32 {
						for i := range 4 {
							if round%2 == 1 { // all codes
								w.b[lane][i/2] = rng.Uint32()
							}
							d[4*part+i][lane] = math.Float32bits(w.c[lane][i])
						}
						for i := range 4 {
							k, n := placeB(lane, i)
							binary.LittleEndian.PutUint16(b[8*part+n][2*k:], uint16(w.b[lane][i/2]>>(16*(i%2))))
						}
					}
				}
				rows := WGMMARows(&parts[0].a)
				m.WGMMA16(d, &rows, b, bf16)
				for part, w := range parts {
					var want [32][4]float32
					m.MMA16816(&want, &w.a, &w.b, &w.c, bf16)
					for lane := range want {
						for i, x := range want[lane] {
							if got := d[4*part+i][lane]; got != math.Float32bits(x) {
								row, column := placeD(lane, 4*part+i)
								t.Fatalf("%+v, bf16 %v: D[%d][%d] = %#x, want %#x", m, bf16, row, column, got, math.Float32bits(x))
							}
						}
					}
				}
			}
		}
	}
}
