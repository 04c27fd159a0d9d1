package conformance

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/internal/modules"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// wideFormats are those that GemvWide multiplies.
var wideFormats = []quant.Format{quant.Q4_K, quant.Q5_K, quant.Q6_K}

// wideCasesOf are products by warpgroups, which take 64 rows a tile.
func wideCasesOf(f quant.Format) []batchCase {
	if !slices.Contains(wideFormats, f) {
		return nil
	}
	one, two := ptxgen.GemvBatch{Format: f}, ptxgen.GemvBatch{Format: f, Gated: true}
	list := []batchCase{
		{name: "tiles", reason: "a tile, and one whose last warps have no rows", spec: one, rows: 85, k: fewBlocks(f, 5), columns: 16, norm: ptxgen.RMSNorm},
		{name: "sets", reason: "CTAs of several sets, of which the last is not full", spec: one, rows: 300, k: fewBlocks(f, 3), columns: 18, ctas: 3},
		{name: "gated", reason: "a warpgroup for each matrix, and a round of one pair", spec: two, rows: 150, k: fewBlocks(f, 4), columns: 15, ctas: 1},
		{name: "slices", reason: "four CTAs of several parts meet, for each tile and set", spec: one, rows: 70, k: fewBlocks(f, 19), columns: 18, ctas: 8},
		{name: "a slice for each part", reason: "as many CTAs as there may be meet, of two matrices", spec: two, rows: 20, k: fewBlocks(f, 19), columns: 3, ctas: 16},
		{name: "one block", reason: "nothing to wait for, nothing to add up", spec: one, rows: 64, k: fewBlocks(f, 1), columns: 1},
		{name: "rounds", reason: "blocks of digits once more for the next round, sums on all levels", spec: two, rows: 280, k: fewBlocks(f, 18), columns: 3, ctas: 1, long: true},
	}
	for i := range list {
		list[i].wide = true
		list[i].long = list[i].long || f == quant.Q5_K && i > 2 // whose steps are Q4_K's, but for a bit
	}
	return list
}

// takesWarpgroups reports whether the device knows products of warpgroups.
func takesWarpgroups(r *KernelRig) bool { return modules.Most(r.Properties()).Warpgroups() }

// needs skips a case that the device has no instructions for.
func (c batchCase) needs(r *KernelRig) {
	if c.wide && !takesWarpgroups(r) {
		r.Skip("products of warpgroups are for sm_90 alone, and begin with PTX 8.4")
	}
}

// checkWideDigits compares digits with those that other kernels of several vectors take,
// which lie elsewhere: see ptxgen.Digits.
func checkWideDigits(r *KernelRig, wide *Mem, a ptxgen.DigitsArgs) {
	const vectors, block = 16, 1232 // of a set; bytes of a vector's block
	narrow := ptxgen.Digits{}
	digits := r.Output("other digits", int(narrow.Bytes(a.K, a.Vectors)))
	a.Out = digits.Addr()
	r.Launch(narrow.Launch(r.Kernel(narrow), a))
	bytes := int(narrow.Bytes(a.K, a.Vectors))
	got, want := wide.Range(0, bytes), make([]byte, bytes)
	other := digits.Range(0, bytes)
	blocks := bytes / block / vectors * vectors
	for i := range blocks {
		vector, set, from := i%vectors, want[i/vectors*vectors*block:], other[i*block:]
		wideOrder(vector, func(to, at, n int) { copy(set[to:to+n], from[at:]) })
	}
	copy(want[blocks*block:], other[blocks*block:])
	Exact(r, fmt.Sprintf("digits of %d vectors", a.Vectors), got, want)
}

// wideOrder says where in a set the bytes of a vector's block go, and where they are from.
func wideOrder(vector int, move func(to, from, n int)) {
	const vectors, means, power, digits = 16, 64, 16, 1024
	for unit := range 8 {
		for half := range 2 {
			for digit := range 4 {
				core := ((unit*2+half)*4+vector/4)*2 + digit/2
				column := vector%4*2 + digit%2
				for quad := range 4 {
					move(vectors*means+core*128+column*16+4*quad, unit/2*256+digit*64+quad*16+unit%2*8+half*4, 4)
				}
			}
		}
	}
	behind := vectors * (means + digits)
	move(vector*means, digits, means)
	move(behind+vector*power, digits+means, power)
	move(behind+vectors*power+vector*means, digits+means+power, means)
	move(behind+vectors*(power+means)+vector*means, digits+2*means+power, means)
}
