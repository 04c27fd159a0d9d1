package alu

// MMA16832S8 is mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 for one warp, or where
// A is unsigned that of .u8.s8: D = A·B + C with A 16×32 and B 32×8 of bytes, C and D
// 16×8, wrapping. Every argument has the registers of each lane; dst may be c. With
// g = lane/4 and t = lane%4, element i of a lane is
//
//	A  row g (+8 for i in 4–7, 12–15)  column 4t + i%4 (+16 for i ≥ 8)
//	B  row 4t + i%4 (+16 for i ≥ 4)    column g
//	C  row g (+8 for i ≥ 2)            column 2t + i%2
//
// and register r of A and B has elements 4r (lowest byte) to 4r+3.
func MMA16832S8(dst *[32][4]int32, a *[32][4]uint32, b *[32][2]uint32, c *[32][4]int32, unsigned bool) {
	f := bytesFactors{unsigned: unsigned}
	for lane := range a {
		f.set(lane, a[lane][:], b[lane][:])
	}
	f.product(dst, c)
}

// MMA16816S8 is that of m16n8k16: A is 16×16 and has elements 0 to 7 of those above, B
// 16×8 and has 0 to 3.
func MMA16816S8(dst *[32][4]int32, a *[32][2]uint32, b *[32]uint32, c *[32][4]int32, unsigned bool) {
	f := bytesFactors{unsigned: unsigned}
	for lane := range a {
		f.set(lane, a[lane][:], b[lane:lane+1])
	}
	f.product(dst, c)
}

// bytesFactors are A and B, with zeros where a shorter product has no elements.
type bytesFactors struct {
	unsigned bool // the bytes of A
	rows     [16][32]int32
	cols     [8][32]int32
}

// set takes the registers of a lane.
func (f *bytesFactors) set(lane int, a, b []uint32) {
	g, t := lane>>2, lane&3
	for r, v := range a {
		row := f.rows[g+r&1*8][4*t+r>>1*16:]
		unpack(row, v)
		for i := range row[:4] {
			if f.unsigned {
				row[i] &= 255
			}
		}
	}
	for r, v := range b {
		unpack(f.cols[g][4*t+r*16:], v)
	}
}

func (f *bytesFactors) product(dst, c *[32][4]int32) {
	for lane := range dst {
		g, t := lane>>2, lane&3
		for i := range dst[lane] {
			sum := c[lane][i]
			col := &f.cols[2*t+i&1]
			for k, x := range f.rows[g+i>>1*8] {
				sum += x * col[k]
			}
			dst[lane][i] = sum
		}
	}
}

// unpack writes the four signed bytes of v, lowest first.
func unpack(dst []int32, v uint32) {
	for i := range dst[:4] {
		dst[i] = int32(int8(v >> (8 * i)))
	}
}

// LdMatrix is ldmatrix.sync.aligned.m8n8.xN.shared.b16, with .trans if trans, for
// one warp; n is 1, 2 or 4. rows gives the 16 bytes at the address of a lane and is
// called for lanes 0 to 8n−1 in order: lane 8i+j has row j of matrix i. Register i of
// a lane is its part of matrix i: with g = lane/4 and t = lane%4 elements [g][2t] (low
// half) and [g][2t+1], transposed [2t][g] and [2t+1][g]. Registers from n up are zero.
func LdMatrix(rows func(lane int) [16]byte, n int, trans bool) [32][4]uint32 {
	if n != 1 && n != 2 && n != 4 {
		panic("alu: ldmatrix loads 1, 2 or 4 matrices")
	}
	var out [32][4]uint32
	for i := range n {
		var m [8][8]uint32
		for j := range m {
			row := rows(8*i + j)
			for k := range m[j] {
				m[j][k] = uint32(row[2*k]) | uint32(row[2*k+1])<<8
			}
		}
		for lane := range out {
			g, t := lane>>2, lane&3
			low, high := m[g][2*t], m[g][2*t+1]
			if trans {
				low, high = m[2*t][g], m[2*t+1][g]
			}
			out[lane][i] = high<<16 | low
		}
	}
	return out
}
