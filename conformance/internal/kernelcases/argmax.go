package kernelcases

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
)

// logitsCase is rows of logits to choose tokens from.
type logitsCase struct {
	name, reason string
	rows, vocab  int
	stride       int             // 0: vocab
	distinct     int             // number of distinct logits; 0: Gaussian logits
	plant        map[int]float32 // index to value
	fill         *float32        // value of all other logits
	tiny         bool            // logits differ by less than the spacing around 1
	negative     bool            // all logits are negative
	blank        []int           // slices of row 0 without a number: of NaN if the index is even, else of -Inf
	boundaries   bool            // the largest logit of row i is at boundaryIndices[i]
	long         bool
}

// boundaryIndices are the first and last indices that a thread, an iteration or a slice of
// the kernels reads.
var boundaryIndices = []int{0, 3, 4, 15, 16, 1023, 1024, 1027, 1028, 2047, 2048, 3071, 3072, 4095, 4096, 4099, 4999}

func logitsTable() []logitsCase {
	inf, nan, zero, lowest := float32(math.Inf(1)), float32(math.NaN()), float32(0), float32(-3e38)
	one, above := float32(1), math.Nextafter32(1, 2)
	minus, minusZero := -inf, float32(math.Copysign(0, -1))
	rows := []logitsCase{
		{name: "ties", reason: "the lowest index wins ties within a thread, a warp, a CTA and between slices", rows: 3, vocab: 5000, distinct: 3},
		{name: "all equal", reason: "the lowest index wins if all logits are equal", rows: 1, vocab: 9000, fill: &zero},
		{name: "zeros", reason: "-0 and 0 are a tie", rows: 1, vocab: 300, fill: &minusZero, plant: map[int]float32{77: 0, 5: -1}},
		{name: "NaN", reason: "NaN of either sign is never chosen", rows: 2, vocab: 300,
			plant: map[int]float32{0: nan, 299: float32(math.Copysign(float64(nan), -1)), 300: nan, 5: nan}},
		{name: "infinite", reason: "the first Inf wins; -Inf is not chosen", rows: 2, vocab: 300,
			plant: map[int]float32{200: inf, 7: -inf, 250: inf, 301: -inf}},
		{name: "no choice", reason: "rows without a number above -Inf give no token", rows: 3, vocab: 70, fill: &minus, plant: map[int]float32{1: nan, 75: -3}},
		{name: "negative", reason: "negative numbers are not ordered like their bits", rows: 1, vocab: 200, fill: &minus,
			plant: map[int]float32{3: -5, 190: -1e-42, 191: -math.MaxFloat32, 100: -2}},
		{name: "lowest", reason: "numbers below -2^127 are larger than -Inf", rows: 1, vocab: 90, fill: &lowest},
		{name: "all negative", reason: "negative numbers in each element of a thread", rows: 2, vocab: 90, negative: true},
		{name: "tiny", reason: "tiny numbers are ordered, within a slice and between slices", rows: 4, vocab: 9000, tiny: true},
		{name: "boundaries", reason: "the maximum at each boundary of threads and slices", rows: len(boundaryIndices), vocab: 5000, boundaries: true},
		{name: "stride", reason: "rows in a wider buffer, of whole Vec4s at unaligned addresses", rows: 3, vocab: 52, stride: 53},
		{name: "neighbors", reason: "numbers that differ in the last bit are ordered between threads and between slices", rows: 2, vocab: 5000, fill: &one,
			plant: map[int]float32{2500: above, 9999: above}},
		{name: "blank slices", reason: "slices of NaN or -Inf lose to the lowest number", rows: 2, vocab: 9000, fill: &lowest, blank: []int{0, 1, 4}},
		{name: "infinite slices", reason: "the first Inf wins between slices", rows: 1, vocab: 9000, blank: []int{0, 3}, plant: map[int]float32{2100: minus, 4100: inf, 8200: inf}},
		{name: "no slice", reason: "slices of NaN and -Inf give no token", rows: 1, vocab: 6000, blank: []int{0, 1, 2}},
		{name: "largest numbers", reason: "the maximum at the last index", rows: 1, vocab: 4099, plant: map[int]float32{4098: math.MaxFloat32}},
	}
	for _, n := range []int{1, 2, 31, 33, 2047, 2049, 4097} {
		rows = append(rows, logitsCase{name: fmt.Sprintf("vocab=%d", n), reason: "vocabularies around a warp and a slice", rows: 2, vocab: n})
	}
	for n := 5; n <= 8; n++ {
		rows = append(rows, logitsCase{name: fmt.Sprintf("last of %d", n), reason: "the maximum at the last index, in each element of a Vec4", rows: 1, vocab: n, plant: map[int]float32{n - 1: 10}})
	}
	return append(rows,
		logitsCase{name: "vocab=32000", reason: "a vocabulary of several slices", rows: 1, vocab: 32000},
		logitsCase{name: "vocab=128256", reason: "the vocabulary of a large model", rows: 2, vocab: 128256, long: true},
		logitsCase{name: "vocab=262147", reason: "more logits than 256 CTAs of 1024 threads", rows: 1, vocab: 262147, plant: map[int]float32{262146: 50, 262145: 49}, long: true},
		logitsCase{name: "beyond 262144", reason: "the maximum beyond 256 CTAs of 1024 threads", rows: 1, vocab: 270000, fill: &zero, plant: map[int]float32{269999: 1, 263000: 1}},
		logitsCase{name: "ties beyond 524288", reason: "the lowest index wins ties between slices that one thread merges", rows: 1, vocab: 2048*257 - 3, fill: &zero,
			plant: map[int]float32{2048*256 + 7: 1, 1500: 1}},
	)
}

func (c logitsCase) logits(r *harness.Fixture) [][]float32 {
	rows := make([][]float32, c.rows)
	for i := range rows {
		rows[i] = r.Vector(harness.Gaussian, c.vocab)
		for j := range rows[i] {
			switch {
			case c.fill != nil:
				rows[i][j] = *c.fill
			case c.distinct > 0:
				rows[i][j] = float32(r.Rand().IntN(c.distinct))
			case c.tiny:
				rows[i][j] *= 0x1p-60
			case c.negative:
				rows[i][j] -= 10
			}
		}
		if i == 0 {
			for _, slice := range c.blank {
				fill := float32(math.NaN())
				if slice%2 != 0 {
					fill = float32(math.Inf(-1))
				}
				for j := 2048 * slice; j < min(2048*(slice+1), c.vocab); j++ {
					rows[i][j] = fill
				}
			}
		}
		if c.boundaries {
			rows[i][boundaryIndices[i]] = 10
		}
	}
	for at, v := range c.plant {
		rows[at/c.vocab][at%c.vocab] = v
	}
	return rows
}

// buffer stores rows of logits, with uninitialized gaps if there is a stride.
func (c logitsCase) buffer(r *harness.Fixture, rows [][]float32) (*harness.Buffer, int) {
	stride := max(c.stride, c.vocab)
	return r.Rows("logits", slices.Concat(rows...), c.vocab, stride), stride
}

func argmaxCases() []harness.Case {
	var all []harness.Case
	for _, c := range logitsTable() {
		all = append(all, harness.Case{Operation: "argmax", Format: "F32", Name: c.name, Reason: c.reason, Long: c.long, Run: func(r *harness.Fixture) { checkArgmax(r, c) }})
	}
	return append(all, harness.Case{
		Operation: "argmax", Format: "F32", Name: "many slices", Reason: "more than 256 slices take several iterations of the second kernel",
		Run: checkArgmaxMerge,
	})
}

// checkArgmaxMerge runs the second kernel alone on the results of 700 slices, 256 of which its
// threads read at a time. Each row has one best slice, or several equal ones, of which the first
// wins: read by one thread in different iterations, or by different threads. Slices without a
// number lose to the lowest number.
func checkArgmaxMerge(r *harness.Fixture) {
	const count, blank = 700, blankSlice
	rows := [][]int{{5}, {300}, {699}, {256}, {513}, {5, 261}, {261, 517}, {0, 256, 512}, {5, 262}, {262, 517}, {256, 699}, {44, 300, 301}}
	spec := sample.ArgmaxMerge()
	var best, want []uint32
	for row, places := range rows {
		for i := range count {
			value, index := 1<<31+uint32(r.Rand().IntN(1000)), uint32(2048*i+r.Rand().IntN(2048))
			switch {
			case places[0] == i:
				want = append(want, index, untouched)
				fallthrough
			case slices.Contains(places, i):
				value = 1<<31 + 2000
				if row%2 != 0 {
					value = blank + 1
				}
			case row%2 != 0:
				value, index = blank, sample.NoIndex
			}
			best = append(best, value, index)
		}
	}
	token := tokens(r, len(rows))
	r.Launch(spec.Launch(r.Kernel(spec), sample.ArgmaxMergeArgs{
		Best: r.U32s("best", best).Addr(), Token: token.Addr(), Rows: len(rows), Vocab: 2048 * count,
	}))
	harness.Exact(r, "token", token.U32s(), want)
}

// blankSlice is the ordered bits of -Inf, the value of a slice without a number above it.
const blankSlice = 0x007FFFFF

// bestOfSlices returns the pair of ordered bits and index of each slice of 2048 logits.
func bestOfSlices(rows [][]float32) (want []uint32) {
	for _, row := range rows {
		for begin := 0; begin < len(row); begin += 2048 {
			value, index := uint32(blankSlice), uint32(sample.NoIndex)
			if best := model.Argmax(row[begin:min(begin+2048, len(row))]); best >= 0 {
				value, index = math.Float32bits(row[begin+best]+0), uint32(begin+best) // -0 counts as 0
				if value>>31 != 0 {
					value = ^value
				} else {
					value |= 1 << 31
				}
			}
			want = append(want, value, index)
		}
	}
	return want
}

func checkArgmax(r *harness.Fixture, c logitsCase) {
	rows := c.logits(r)
	in, stride := c.buffer(r, rows)
	slice, merge := sample.Argmax(), sample.ArgmaxMerge()
	next := r.Output("next", 4*c.rows).SetU32s(0, slices.Repeat([]uint32{untouched}, c.rows))
	token := tokens(r, c.rows)
	position, length, wantPosition, wantLength := c.sequences(r)
	best := r.Scratch("best", 8*c.rows*sample.Slices(c.vocab))
	r.Launch(slice.Launch(r.Kernel(slice), sample.ArgmaxArgs{Logits: in.Addr(), Best: best.Addr(), Rows: c.rows, Vocab: c.vocab, Stride: stride}))
	harness.Exact(r, "best of each slice", best.U32s(), bestOfSlices(rows))
	r.Launch(merge.Launch(r.Kernel(merge), sample.ArgmaxMergeArgs{
		Best: best.Addr(), Token: token.Addr(), Next: next.Addr(), Rows: c.rows, Vocab: c.vocab, Positions: position.Addr(), Lengths: length.Addr(),
	}))
	want := slices.Repeat([]uint32{untouched}, 2*c.rows)
	var wantNext []uint32
	for i, row := range rows {
		chosen, next := uint32(sample.NoIndex), uint32(untouched)
		if best := model.Argmax(row); best >= 0 {
			chosen, next = uint32(best), uint32(best)
		}
		want[2*i+int(wantPosition[i]%2)] = chosen // the next position is the length after this step
		wantNext = append(wantNext, next)
	}
	harness.Exact(r, "token", token.U32s(), want)
	harness.Exact(r, "next", next.U32s(), wantNext)
	harness.Exact(r, "position", position.U32s(), wantPosition)
	harness.Exact(r, "length", length.U32s(), wantLength)
}

// untouched fills outputs that must not change.
const untouched = 12345

// tokens returns an output of two tokens per row.
func tokens(r *harness.Fixture, rows int) *harness.Buffer {
	return r.Output("token", 8*rows).SetU32s(0, slices.Repeat([]uint32{untouched}, 2*rows))
}

// sequences returns positions and lengths of the rows, every third of length 0, and their
// values after the step.
func (c logitsCase) sequences(r *harness.Fixture) (position, length *harness.Buffer, wantPosition, wantLength []uint32) {
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
