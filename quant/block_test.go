package quant

import "testing"

// TestUnpack computes weights from the integers of blocks. The Block held a block of another format before.
func TestUnpack(t *testing.T) {
	r := random(10)
	var b Block
	eachFormat(t, func(t *testing.T, f Format) {
		if f.BlockLen() == 1 {
			mustPanic(t, func() { b.Unpack(f, make([]byte, f.BlockBytes())) })
			return
		}
		mustPanic(t, func() { b.Unpack(f, make([]byte, 2*f.BlockBytes())) })
		for range 20 {
			b.Unpack(Q2_K, finiteBlocks(r, Q2_K, 1))
			src := finiteBlocks(r, f, 1)
			sub := b.Unpack(f, src)
			for i := range f.BlockLen() {
				d, m := b.D*float32(b.Scales[i/sub]), b.DMin*float32(b.Mins[i/sub])
				if got, want := float32(d*float32(int8(b.Quants[i])))-m, specs[f](src, i); !same(got, want) {
					t.Fatalf("weight %d is %v, want %v, of block %x", i, got, want, src)
				}
			}
		}
	})
}
