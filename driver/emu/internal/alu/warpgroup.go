package alu

// WGMMAS8 adds to d a warp's part of wgmma.mma_async.m64n64k32.s32.s8.s8, or with unsigned of
// .u8.s8: the product of 16 rows of A, in the registers of MMA16832S8, and the 64 columns of B,
// each of 32 bytes. With g = lane/4 and t = lane%4, d[lane][i] is row g (+8 if i%4 ≥ 2), column
// 8(i/4) + 2t + i%2. Sums wrap.
func WGMMAS8(d *[32][32]int32, a *[32][4]uint32, b *[64][32]byte, unsigned bool) {
	f := bytesFactors{unsigned: unsigned}
	for lane := range a {
		f.set(lane, a[lane][:], nil)
	}
	var columns [64][32]int32
	for n := range b {
		for k, v := range b[n] {
			columns[n][k] = int32(int8(v))
		}
	}
	for lane := range d {
		g, t := lane>>2, lane&3
		for i := range d[lane] {
			sum := d[lane][i]
			column := &columns[i>>2*8+2*t+i&1]
			for k, x := range f.rows[g+i>>1&1*8] {
				sum += x * column[k]
			}
			d[lane][i] = sum
		}
	}
}
