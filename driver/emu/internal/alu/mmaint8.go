package alu

// MMA16832S8 is mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 for one warp, or with unsigned that
// of .u8.s8: D = A·B + C, with A [16, 32] and B [32, 8] of bytes, and C and D [16, 8]. Sums wrap.
//
// The arguments have the registers of each lane. dst may be c. With g = lane/4 and t = lane%4,
// element i of a lane is
//
//	A  row g (+8 for i in 4–7, 12–15)  column 4t + i%4 (+16 for i ≥ 8)
//	B  row 4t + i%4 (+16 for i ≥ 4)    column g
//	C  row g (+8 for i ≥ 2)            column 2t + i%2
//
// and register r of A and B has elements 4r, in the lowest byte, to 4r+3. m16n8k16 has the elements
// below 8 of A and below 4 of B; with the other registers zero it is this product.
func MMA16832S8(dst *[32][4]int32, a *[32][4]uint32, b *[32][2]uint32, c *[32][4]int32, unsigned bool) {
	var rows [16][32]int32
	unpackRows(&rows, a, unsigned)
	var columns [8][32]int32
	for lane := range b {
		g, t := lane>>2, lane&3
		for r, v := range b[lane] {
			unpackInt8(columns[g][4*t+r*16:], v)
		}
	}
	for lane := range dst {
		g, t := lane>>2, lane&3
		for i := range dst[lane] {
			sum := c[lane][i]
			column := &columns[2*t+i&1]
			for k, x := range rows[g+i>>1*8] {
				sum += x * column[k]
			}
			dst[lane][i] = sum
		}
	}
}

// unpackRows writes the rows of A.
func unpackRows(rows *[16][32]int32, a *[32][4]uint32, unsigned bool) {
	for lane := range a {
		g, t := lane>>2, lane&3
		for r, v := range a[lane] {
			row := rows[g+r&1*8][4*t+r>>1*16:]
			unpackInt8(row, v)
			for i := range row[:4] {
				if unsigned {
					row[i] &= 255
				}
			}
		}
	}
}

// unpackInt8 writes the four signed bytes of v, lowest first.
func unpackInt8(dst []int32, v uint32) {
	for i := range dst[:4] {
		dst[i] = int32(int8(v >> (8 * i)))
	}
}
