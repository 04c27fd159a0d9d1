package kernelcases

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// choiceCase is rows of logits to choose from.
type choiceCase struct {
	name, reason string
	rows, vocab  int
	stride       int             // 0 means vocab
	levels       int             // logits take so many values; 0: Gaussian
	plant        map[int]float32 // logits put in
	fill         *float32        // what all others are
	ks           []int           // of top-k
	tiny         bool            // logits differ by less than the last place of 1
	below        bool            // all logits are negative
	everywhere   bool            // the largest of a row is at one of placesOfSlices
	long         bool
}

// placesOfSlices are the first and last elements of what a thread, a round and a
// slice of the kernels take.
var placesOfSlices = []int{0, 3, 4, 15, 16, 1023, 1024, 1027, 1028, 2047, 2048, 3071, 3072, 4095, 4096, 4099, 4999}

func choiceTable() []choiceCase {
	inf, nan, zero, lowest := float32(math.Inf(1)), float32(math.NaN()), float32(0), float32(-3e38)
	minus, minusZero := -inf, float32(math.Copysign(0, -1))
	rows := []choiceCase{
		{name: "ties", reason: "the lowest index wins, within a thread, a warp, a CTA and between slices", rows: 3, vocab: 5000, levels: 3, ks: []int{1, 40, 256}},
		{name: "all equal", reason: "the lowest indices in order", rows: 1, vocab: 9000, fill: &zero, ks: []int{40}},
		{name: "zeros", reason: "-0 and 0 are equal", rows: 1, vocab: 300, fill: &minusZero, plant: map[int]float32{77: 0, 5: -1}, ks: []int{3}},
		{name: "NaN", reason: "NaN is never chosen, of either sign, at either end", rows: 2, vocab: 300,
			plant: map[int]float32{0: nan, 299: float32(math.Copysign(float64(nan), -1)), 300: nan, 5: nan}, ks: []int{40}},
		{name: "infinite", reason: "Inf wins, the first of two; -Inf is not chosen", rows: 2, vocab: 300,
			plant: map[int]float32{200: inf, 7: -inf, 250: inf, 301: -inf}, ks: []int{9}},
		{name: "nothing", reason: "rows without a number above -Inf have no choice", rows: 3, vocab: 70, fill: &minus, plant: map[int]float32{1: nan, 75: -3}, ks: []int{5}},
		{name: "negative", reason: "the order of negative numbers is not that of their bits", rows: 1, vocab: 200, fill: &minus,
			plant: map[int]float32{3: -5, 190: -1e-42, 191: -math.MaxFloat32, 100: -2}, ks: []int{4, 6}},
		{name: "lowest", reason: "numbers below -2^127 are more than -Inf", rows: 1, vocab: 90, fill: &lowest, ks: []int{64}},
		{name: "below", reason: "negative numbers at every place of a thread are chosen, in their order", rows: 2, vocab: 90, below: true, ks: []int{64}},
		{name: "tiny", reason: "numbers far smaller than 1 keep their order, within a slice and between slices", rows: 4, vocab: 9000, tiny: true, ks: []int{20}},
		{name: "everywhere", reason: "no element at a border is left out", rows: len(placesOfSlices), vocab: 5000, everywhere: true, ks: []int{2}},
		{name: "stride", reason: "rows inside a wider buffer", rows: 3, vocab: 50, stride: 53, ks: []int{7}},
		{name: "largest numbers", reason: "the last index wins if it is the largest", rows: 1, vocab: 4099, plant: map[int]float32{4098: math.MaxFloat32}, ks: []int{2}},
	}
	for _, n := range []int{1, 2, 31, 33, 2047, 2049, 4097} {
		rows = append(rows, choiceCase{name: fmt.Sprintf("vocab=%d", n), reason: "around a warp and a slice", rows: 2, vocab: n, ks: []int{1, 17}})
	}
	return append(rows,
		choiceCase{name: "vocab=32000", reason: "a whole vocabulary, several slices", rows: 1, vocab: 32000, ks: []int{40}},
		choiceCase{name: "vocab=128256", reason: "a whole vocabulary", rows: 2, vocab: 128256, ks: []int{40, 256}, long: true},
		choiceCase{name: "vocab=262147", reason: "more than 256 CTAs of 1024 cover", rows: 1, vocab: 262147, plant: map[int]float32{262146: 50, 262145: 49}, ks: []int{40}, long: true},
		choiceCase{name: "beyond 262144", reason: "the largest lies behind what 256 CTAs of 1024 cover", rows: 1, vocab: 270000, fill: &zero, plant: map[int]float32{269999: 1, 263000: 1}},
	)
}

func (c choiceCase) logits(r *harness.Fixture) [][]float32 {
	rows := make([][]float32, c.rows)
	for i := range rows {
		rows[i] = r.Vector(harness.Gaussian, c.vocab)
		for j := range rows[i] {
			switch {
			case c.fill != nil:
				rows[i][j] = *c.fill
			case c.levels > 0:
				rows[i][j] = float32(r.Rand().IntN(c.levels))
			case c.tiny:
				rows[i][j] *= 0x1p-60
			case c.below:
				rows[i][j] -= 10
			}
		}
		if c.everywhere {
			rows[i][placesOfSlices[i]] = 10
		}
	}
	for at, v := range c.plant {
		rows[at/c.vocab][at%c.vocab] = v
	}
	return rows
}

// buffer holds rows of logits, with poison between them where there is a stride.
func (c choiceCase) buffer(r *harness.Fixture, rows [][]float32) (*harness.Buffer, int) {
	stride := max(c.stride, c.vocab)
	return r.Rows("logits", slices.Concat(rows...), c.vocab, stride), stride
}

func argmaxCases() []harness.Case {
	var all []harness.Case
	for _, c := range choiceTable() {
		all = append(all, harness.Case{Operation: "argmax", Format: "F32", Name: c.name, Reason: c.reason, Long: c.long, Run: func(r *harness.Fixture) { checkArgmax(r, c) }})
	}
	return append(all, harness.Case{
		Operation: "argmax", Format: "F32", Name: "many slices", Reason: "the second step goes round more than once for more than 256 slices",
		Run: checkArgmaxMerge,
	})
}

// checkArgmaxMerge gives the second step alone what the first would of 700 slices: the
// best is among those of its first, its second and its last round, once before and
// once behind its equal.
func checkArgmaxMerge(r *harness.Fixture) {
	const slices, rows = 700, 6
	spec := ptxgen.Argmax{Merge: true}
	var best, want []uint32
	for row := range rows {
		places := []int{5, 300, 699, 256, 5, 513}
		for i := range slices {
			value := 1<<31 + uint32(r.Rand().IntN(1000))
			if i == places[row] || row > 3 && i == places[row]+256*(5-row)+1 {
				value = 1<<31 + 2000
			}
			best = append(best, value, uint32(2048*i+r.Rand().IntN(2048)))
		}
		want = append(want, best[2*(slices*row+places[row])+1], untouched)
	}
	token := tokens(r, rows)
	r.Launch(spec.Launch(r.Kernel(spec), ptxgen.ArgmaxArgs{
		Logits: token.Addr(), Best: r.U32s("best", best).Addr(), Token: token.Addr(), Rows: rows, Vocab: 2048 * slices,
	}))
	harness.Exact(r, "token", token.U32s(), want)
}

func checkArgmax(r *harness.Fixture, c choiceCase) {
	rows := c.logits(r)
	in, stride := c.buffer(r, rows)
	slice, merge := ptxgen.Argmax{}, ptxgen.Argmax{Merge: true}
	next := r.Output("next", 4*c.rows).SetU32s(0, slices.Repeat([]uint32{untouched}, c.rows))
	token := tokens(r, c.rows)
	position, length, wantPosition, wantLength := c.sequences(r)
	a := ptxgen.ArgmaxArgs{
		Logits: in.Addr(), Best: r.Output("best", 8*c.rows*slice.Slices(c.vocab)).Addr(), Token: token.Addr(), Next: next.Addr(),
		Rows: c.rows, Vocab: c.vocab, Stride: stride, Positions: position.Addr(), Lengths: length.Addr(),
	}
	r.Launch(slice.Launch(r.Kernel(slice), a))
	r.Launch(merge.Launch(r.Kernel(merge), a))
	want := slices.Repeat([]uint32{untouched}, 2*c.rows)
	var wantNext []uint32
	for i, row := range rows {
		chosen, next := uint32(ptxgen.NoIndex), uint32(untouched)
		if best := model.Argmax(row); best >= 0 {
			chosen, next = uint32(best), uint32(best)
		}
		want[2*i+int(wantPosition[i]%2)] = chosen // the position to come is the length of this step
		wantNext = append(wantNext, next)
	}
	harness.Exact(r, "token", token.U32s(), want)
	harness.Exact(r, "next", next.U32s(), wantNext)
	harness.Exact(r, "position", position.U32s(), wantPosition)
	harness.Exact(r, "length", length.U32s(), wantLength)
}

// untouched is what outputs hold that may not be written.
const untouched = 12345

// tokens is room for two tokens a row.
func tokens(r *harness.Fixture, rows int) *harness.Buffer {
	return r.Output("token", 8*rows).SetU32s(0, slices.Repeat([]uint32{untouched}, 2*rows))
}

// sequences are what the rows are of, of different lengths and every third of none; and
// how they go on.
func (c choiceCase) sequences(r *harness.Fixture) (position, length *harness.Buffer, wantPosition, wantLength []uint32) {
	var positions, lengths []uint32
	for i := range uint32(c.rows) {
		n := (i + 1) % 3 * (70 + i)
		before := n - min(n, 1)
		positions, lengths = append(positions, before), append(lengths, n)
		wantPosition, wantLength = append(wantPosition, n), append(wantLength, n+min(n, 1))
	}
	position = r.Output("position", 4*c.rows).SetU32s(0, positions)
	length = r.Output("length", 4*c.rows).SetU32s(0, lengths)
	return position, length, wantPosition, wantLength
}

func topKCases() []harness.Case {
	var all []harness.Case
	for _, c := range choiceTable() {
		for _, k := range c.ks {
			all = append(all, harness.Case{
				Operation: "top-k", Format: "F32", Name: fmt.Sprintf("%s/k=%d", c.name, k), Reason: c.reason, Long: c.long,
				Run: func(r *harness.Fixture) { checkTopK(r, c, k) },
			})
		}
	}
	return all
}

func checkTopK(r *harness.Fixture, c choiceCase, k int) {
	rows := c.logits(r)
	in, stride := c.buffer(r, rows)
	values, indices := in.Addr(), ptxgen.Address(0)
	var outValues, outIndices *harness.Buffer
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
	harness.Exact(r, "values", outValues.F32s(), wantValues)
	harness.Exact(r, "indices", outIndices.U32s(), wantIndices)
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
