package alu

// LdMatrix is ldmatrix.sync.aligned.m8n8.xN.shared.b16 for one warp, with .trans if trans is set. n
// is 1, 2 or 4.
//
// row returns the 16 bytes at the address of a lane, and is called for lanes 0 to 8n−1 in order.
// Lane 8i+j has row j of matrix i. Register i of a lane holds two elements of matrix i. With g =
// lane/4 and t = lane%4 these are [g][2t] in the low half and [g][2t+1], or transposed [2t][g] and
// [2t+1][g]. Registers from n on are zero.
func LdMatrix(row func(lane int) [16]byte, n int, trans bool) [32][4]uint32 {
	var out [32][4]uint32
	for i := range n {
		var m [8][8]uint32
		for j := range m {
			bytes := row(8*i + j)
			for k := range m[j] {
				m[j][k] = uint32(bytes[2*k]) | uint32(bytes[2*k+1])<<8
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
