package alu

import (
	"encoding/binary"
	"math"
)

// wgmma.mma_async.m64nNk16 of f16 or bf16, and .m64nNk32 of bytes, multiply A [64, K] by B [K, N].
// Each warp computes 16 rows of D. The functions below take 32 bytes, which is all of K, per row of
// A and per column of B. With g = lane/4 and t = lane%4,
//
//	d[i][lane]  row g (+8 if i%4 ≥ 2)  column 8(i/4) + 2t + i%2
//
// holds the bits of an element of D. d has N/2 elements.

// WGMMARows returns the rows of A [16, 32 bytes] from the registers of each lane. Register r of a
// lane has bytes 4t to 4t+3 (+16 if r ≥ 2) of row g (+8 if r is odd).
func WGMMARows(a *[32][4]uint32) (rows [16][32]byte) {
	for lane := range a {
		g, t := lane>>2, lane&3
		for r, v := range a[lane] {
			binary.LittleEndian.PutUint32(rows[g+r&1*8][4*t+r>>1*16:], v)
		}
	}
	return rows
}

// WGMMA16 adds the product of f16 or bf16 matrices to d, f32. The sums have the same bits as those
// of MMA16816.
func (m Accumulate) WGMMA16(d [][32]uint32, a *[16][32]byte, b [][32]byte, bf16 bool) {
	m.check()
	n := &binary16
	if bf16 {
		n = &bfloat16
	}
	var rows [16]mmaVector
	special := false
	for i := range rows {
		special = rows[i].load(n, &a[i]) || special
	}
	for i := range b {
		var column mmaVector
		special := column.load(n, &b[i]) || special
		for row := range rows {
			sum := &d[i>>3*4+row>>3*2+i&1][row&7*4+i&7>>1]
			*sum = math.Float32bits(m.add(&rows[row], &column, math.Float32frombits(*sum), special))
		}
	}
}

// load decodes 16 numbers. It reports whether one is infinite or NaN.
func (v *mmaVector) load(n *format16, data *[32]byte) (special bool) {
	for k := 0; k < 16; k += 2 {
		special = v.set(n, k, binary.LittleEndian.Uint32(data[2*k:])) || special
	}
	return special
}

// WGMMAS8 adds the product of matrices of signed bytes to d, s32. If unsigned is set, the bytes of A
// are unsigned. Sums wrap.
func WGMMAS8(d [][32]uint32, a *[16][32]byte, b [][32]byte, unsigned bool) {
	var rows [16][32]int32
	for i := range rows {
		for k, v := range a[i] {
			if rows[i][k] = int32(int8(v)); unsigned {
				rows[i][k] = int32(v)
			}
		}
	}
	for i := range b {
		var column [32]int32
		for k, v := range b[i] {
			column[k] = int32(int8(v))
		}
		for row := range rows {
			sum := int32(0)
			for k, x := range rows[row] {
				sum += x * column[k]
			}
			d[i>>3*4+row>>3*2+i&1][row&7*4+i&7>>1] += uint32(sum)
		}
	}
}
