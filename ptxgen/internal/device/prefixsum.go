package device

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// PrefixSum returns the inclusive prefix sum of x over the lanes.
func PrefixSum(b *ptx.Builder, x ptx.U32) ptx.U32 {
	for n := 1; n < 32; n *= 2 {
		up := ptx.ShuffleUp(x, n)
		x = x.Add(ptx.Select(b.Lane().GeN(n), up, b.U32(0)))
	}
	return x
}
