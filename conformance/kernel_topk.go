package conformance

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen"
)

func topKCases() []KernelCase {
	var all []KernelCase
	for _, c := range choiceTable() {
		for _, k := range c.ks {
			all = append(all, KernelCase{
				Operation: "top-k", Format: "F32", Name: fmt.Sprintf("%s/k=%d", c.name, k), Reason: c.reason, Long: c.long,
				Run: func(r *KernelRig) { checkTopK(r, c, k) },
			})
		}
	}
	return all
}

func checkTopK(r *KernelRig, c choiceCase, k int) {
	rows := c.logits(r)
	in, stride := c.buffer(r, rows)
	values, indices := in.Addr(), ptxgen.Address(0)
	var outValues, outIndices *Mem
	for n, stage := c.vocab, 0; ; stage++ {
		spec := ptxgen.TopK{Merge: stage > 0}
		parts := spec.Slices(n)
		outValues = r.Output(fmt.Sprintf("values %d", stage), 4*c.rows*parts*k)
		outIndices = r.Output(fmt.Sprintf("indices %d", stage), 4*c.rows*parts*k)
		r.Launch(spec.Launch(r.Kernel(spec), ptxgen.TopKArgs{
			Values: values, Indices: indices, OutValues: outValues.Addr(), OutIndices: outIndices.Addr(),
			Rows: c.rows, N: n, Stride: stride, K: k,
		}))
		values, indices, n, stride = outValues.Addr(), outIndices.Addr(), k*parts, k*parts
		if parts == 1 {
			break
		}
	}
	var wantValues []float32
	var wantIndices []uint32
	for _, row := range rows {
		v, i := topKRef(row, k)
		wantValues, wantIndices = append(wantValues, v...), append(wantIndices, i...)
	}
	Exact(r, "values", outValues.F32s(), wantValues)
	Exact(r, "indices", outIndices.U32s(), wantIndices)
}

// topKRef is the first k of the order: larger values first, then lower indices.
func topKRef(row []float32, k int) (values []float32, indices []uint32) {
	var order []uint32
	for i, x := range row {
		if float64(x) > math.Inf(-1) {
			order = append(order, uint32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(row[b], row[a]) })
	for i := range k {
		if i < len(order) {
			values, indices = append(values, row[order[i]]), append(indices, order[i])
		} else {
			values, indices = append(values, float32(math.Inf(-1))), append(indices, ptxgen.NoIndex)
		}
	}
	return values, indices
}
