package kernelcases

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
)

// logProbs is the flag of log-probabilities in the first word of sample.Args.Params.
const logProbs = 4

// sampledRow is a row of logits with everything that its token depends on.
type sampledRow struct {
	p                 sampling.Params
	logits            []float32
	prompt, generated []int
	mask              []uint32
	position          int // 0: the row is inactive
}

// want returns the token of model/sampling.
func (q *sampledRow) want() sampling.Choice {
	s := sampling.New(&q.p, len(q.logits))
	for _, id := range q.prompt {
		s.Add(id, false)
	}
	for _, id := range q.generated {
		s.Add(id, true)
	}
	return s.Choose(q.logits, q.position, q.mask)
}

func sampleCases() []harness.Case {
	var all []harness.Case
	add := func(name, reason string, long bool, rows func(r *rand.Rand) []sampledRow) {
		all = append(all, harness.Case{Operation: "sample", Format: "F32", Name: name, Reason: reason, Long: long, Run: func(r *harness.Fixture) {
			checkSample(r, rows(r.Rand()))
		}})
	}
	for _, vocab := range []int{1, 2, 31, 33, 300, 2047, 2048, 2049, 5000} {
		add(fmt.Sprintf("vocab=%d", vocab), "each parameter alone, around a warp and a slice", true, func(r *rand.Rand) []sampledRow { return eachParameter(r, vocab) })
	}
	for _, vocab := range []int{32000, 128256, 262144, 1<<19 - 1} {
		add(fmt.Sprintf("vocab=%d", vocab), "the vocabularies of models, and the largest", true, func(r *rand.Rand) []sampledRow { return eachParameter(r, vocab)[:24] })
	}
	for i := range 500 {
		add(fmt.Sprintf("random %d", i), "random parameters and logits", i >= 10, func(r *rand.Rand) []sampledRow {
			vocab, rows := 1+r.IntN(1<<r.IntN(9)), make([]sampledRow, 1+r.IntN(3))
			if i >= 10 {
				vocab, rows = 1+r.IntN(1<<r.IntN(13)), make([]sampledRow, 1+r.IntN(16))
			}
			for i := range rows {
				rows[i] = randomRow(r, vocab)
			}
			return rows
		})
	}
	for _, c := range smallSamples() {
		add(c.name, c.reason, false, func(*rand.Rand) []sampledRow { return c.rows })
	}
	add("64 rows", "a full batch", true, func(r *rand.Rand) []sampledRow {
		rows := make([]sampledRow, 64)
		for i := range rows {
			rows[i] = randomRow(r, 100)
		}
		return rows
	})
	add("a full list", "a bin with as many candidates as the list holds, and with one more; of equal logits the lower ids stay", false, func(r *rand.Rand) []sampledRow {
		rows := []sampledRow{
			{p: sampling.Params{Temperature: 1, TopP: 0.7, TopLogProbs: 1}, logits: make([]float32, 4096)},
			{p: sampling.Params{Temperature: 1, TopK: 2000, TopP: 0.9, TopLogProbs: 1}, logits: make([]float32, 4097)},
		}
		for i := range rows {
			q := &rows[i]
			q.position, q.p.Seed = lastDraw.position, lastDraw.p.Seed
			for id := range q.logits {
				q.logits[id] = 3 + float32(r.IntN(3))*0x1p-20
			}
			// The second row's is in the third slice, and it is the token. It comes after the end of the list, so it
			// must not be stored: it would replace the first row's, which is smaller.
			q.logits[len(q.logits)-1] = 3.02 + 0.01*float32(i)
			for len(q.logits) < 4100 {
				q.logits = append(q.logits, float32(math.Inf(-1)))
			}
		}
		return rows
	})
	add("more equal candidates than the list holds", "the whole row is searched; of equal logits the lower ids stay", false, func(*rand.Rand) []sampledRow {
		q := lastDraw // the token is the last candidate that stays
		q.p.TopK, q.p.TopP, q.logits = 2000, 0.9, make([]float32, 1000+4097)
		for i := range 1000 { // these are not listed
			q.logits[i] = -50
		}
		return []sampledRow{q}
	})
	all = append(all, harness.Case{Operation: "sample", Format: "F32", Name: "inactive rows", Reason: "nothing reads the state of an inactive row", Run: func(r *harness.Fixture) {
		rows := []sampledRow{lastDraw, lastDraw, lastDraw}
		for i := range rows {
			rows[i].logits, rows[i].p.TopK = []float32{2, 1, 3, 0}, 2
		}
		rows[0].position, rows[2].position = 0, 0
		s := newSampleBuffers(r, rows, 4, true)
		launchSample(r, s.args, sample.Kernels())
		s.check(r, rows)
	}})
	all = append(all, harness.Case{Operation: "sample", Format: "F32", Name: "rows without work", Reason: "a kernel leaves rows alone that do not need it", Run: func(r *harness.Fixture) {
		for _, c := range []struct {
			p       sampling.Params
			kernels []kernel.Typed[sample.Args]
		}{{sampling.Params{}, sample.Kernels()[1:4]}, {sampling.Params{TopK: 3, TopP: 0.5}, sample.Kernels()[1:4]}, {sampling.Params{Temperature: 1}, sample.Kernels()[2:4]}} {
			s := newSampleBuffers(r, []sampledRow{{p: c.p, logits: []float32{2, 1, 3, 0}, position: 1}}, 4, false)
			launchSample(r, s.args, c.kernels)
			s.scratch.Untouched(0, s.scratch.Len())
			harness.Exact(r, "length", s.lengths.U32s(), s.wantLength)
		}
	}})
	add("two slices", "candidates in two slices", false, func(r *rand.Rand) []sampledRow {
		all, top := lastDraw, sampledRow{p: sampling.Params{Temperature: 1, TopP: 0.9, LogProb: true, TopLogProbs: 5}, position: 1, logits: make([]float32, 2060)}
		all.logits, all.p.TopK = all.logits[:len(top.logits)], len(top.logits)
		for i := range top.logits {
			top.logits[i] = float32(r.NormFloat64())
		}
		for i := range 5 { // the last ones are the most likely
			top.logits[len(top.logits)-1-i*i] += 10
		}
		return []sampledRow{all, top}
	})
	add("33 slices", "more slices than lanes", false, func(*rand.Rand) []sampledRow {
		return []sampledRow{exactSlice(sampling.Params{}, 32)}
	})
	return append(all, harness.Case{Operation: "sample", Format: "F32", Name: "buffers", Reason: "states, no list of biases, no masks, no next token, a stride", Run: checkSampleBuffers})
}

// lastDraw is a seed and a position whose random number is close to the largest, so that the token
// is one of the last. A sum of weights that is too small or too large then changes the token.
var lastDraw = func() (q sampledRow) {
	q = sampledRow{p: sampling.Params{Temperature: 1}, logits: make([]float32, 5000), position: 5}
	for q.want().Token < 4997 {
		q.p.Seed++
	}
	return q
}()

// exactDraw returns a row. The token that it chooses has weight 1, or 2 with MinP. An error of that size
// in an earlier weight, or in the sum of all weights, chooses another token. logits are at most 0. The
// row has each of them plus 4.
func exactDraw(p sampling.Params, apart int, logits []float32) sampledRow {
	powers := 45 // of 2, from 2^44 down: each is the weight of a token before or after the chosen one
	if p.MinP > 0 {
		powers--
	}
	n := len(logits)
	q := sampledRow{p: p, position: 1}
	q.p.Temperature = math.Log2E // a weight is 2^(40 + logit)
	at := func(i int) *float32 { return &q.logits[i*apart] }
	chosen := n + powers
	for {
		q.logits = spread(apart, slices.Concat(logits, slices.Repeat([]float32{float32(math.Inf(-1))}, 2*powers+1)))
		*at(chosen) = float32(1 - powers)
		for i := range powers {
			*at(chosen + 1 + i) = float32(-i)
		}
		for i := range q.logits {
			q.logits[i] += 4
		}
		for i := range powers {
			before, after := at(n+i), at(chosen+1+i)
			*before, *after = *after, *before
			if q.want().Token < chosen*apart {
				*before, *after = *after, *before
			}
		}
		if q.want().Token == chosen*apart {
			return q
		}
		q.p.Seed++
	}
}

// droppedWeights returns a row like that of exactDraw, with 20 weights of 1 that MinP drops and one
// of 0. If those at one element of a thread's vectors counted, another token would be chosen.
func droppedWeights(p sampling.Params, apart int, logits []float32) sampledRow {
	first := len(logits) * apart // the first weight that is dropped
	logits = slices.Concat(logits, slices.Repeat([]float32{-44}, 20), []float32{-50})
	for {
		q, seen := exactDraw(p, apart, logits), 0
		for element := range 4 {
			counted := q
			counted.p.MinP, counted.logits = 0, slices.Clone(q.logits)
			for id := first; id < first+20*apart; id += apart {
				if id%4 != element {
					counted.logits[id] = float32(math.Inf(-1))
				}
			}
			if counted.want().Token != q.want().Token {
				seen++
			}
		}
		if seen == 4 {
			return q
		}
		p.Seed = q.p.Seed + 1
	}
}

// exactSlice returns a row with six candidates, all in the first bin. Three are at the beginning of the
// row, and three at the beginning of another slice. The row chooses the first of the other slice. It
// finds none if the sum of the first slice is 1 too large, and another one if the sum of all is too small.
func exactSlice(p sampling.Params, slice int) sampledRow {
	const lowest = 1. / 17
	q := sampledRow{p: p, position: 1, logits: []float32{0, 0, 0, -lowest / 2, -lowest / 2, -lowest / 2}}
	q.p.Temperature = math.Log2E // a weight is 2^(44 + logit)
	isSecond := func(id int, logit float32) bool {
		q.logits[id] = logit
		return q.want().Token >= 3
	}
	// set finds the largest logit of a token, down to -limit, at which the second slice has the token.
	set := func(id int, limit float32) {
		n := sort.Search(int(math.Float32bits(limit)), func(bits int) bool { return isSecond(id, -math.Float32frombits(uint32(bits))) })
		q.logits[id] = -math.Float32frombits(uint32(n))
	}
	const fine = 0x1p-28 // more than the spacing of the weights of token 1
	for q.logits[2] = -fine; isSecond(1, 0) || !isSecond(1, -lowest); {
		q.p.Seed++
	}
	set(1, lowest)
	set(2, fine)
	few := q.logits
	q.logits = slices.Repeat([]float32{float32(math.Inf(-1))}, 2048*slice+12)
	copy(q.logits, few[:3])
	copy(q.logits[2048*slice:], few[3:])
	return q
}

// spread returns a row with logit i at id i·apart. All other logits are -Inf.
func spread(apart int, logits []float32) []float32 {
	row := slices.Repeat([]float32{float32(math.Inf(-1))}, len(logits)*apart)
	for i, x := range logits {
		row[i*apart] = x
	}
	return row
}

// smallSample is a case of few rows with a short vocabulary.
type smallSample struct {
	name, reason string
	rows         []sampledRow
}

// smallSamples are cases in which a small change of a kernel changes the token.
func smallSamples() []smallSample {
	inf := float32(math.Inf(1))
	row := func(p sampling.Params, logits ...float32) sampledRow {
		p.Seed = lastDraw.p.Seed
		return sampledRow{p: p, logits: logits, position: lastDraw.position}
	}
	filled := func(n int, x float32) []float32 { return slices.Repeat([]float32{x}, n) }
	top := sampling.Params{LogProb: true, TopLogProbs: sampling.MaxTopLogProbs}
	all := []smallSample{
		{"greedy tie", "the lowest id wins within a thread and between threads", []sampledRow{row(top, slices.Concat(filled(18, 2), filled(2, -inf))...)}},
		{"no candidate", "a greedy row without a candidate", []sampledRow{row(sampling.Params{LogProb: true, TopLogProbs: 2}, filled(9, -inf)...)}},
		{"no candidate, sampled", "a sampled row without a candidate", []sampledRow{row(sampling.Params{Temperature: 1, TopK: 3, TopP: 0.5, LogProb: true}, filled(9, -inf)...)}},
	}
	elements := []int{0, 1, 2, 3, 1028, 1029, 1030, 1031} // of two threads, in both of their vectors
	var lowest []sampledRow
	for _, id := range elements {
		logits := filled(elements[len(elements)-1]+2, -inf)
		logits[id] = -math.MaxFloat32
		lowest = append(lowest, row(sampling.Params{LogProb: true, TopLogProbs: 2}, logits...))
	}
	all = append(all, smallSample{"lowest", "the lowest number is larger than -Inf, for each of a thread's elements", lowest})
	var zeros []sampledRow
	for _, id := range elements[2:6] {
		logits := filled(elements[len(elements)-1], -1)
		logits[id], logits[id+1] = float32(math.Copysign(0, -1)), 0
		zeros = append(zeros, row(sampling.Params{TopLogProbs: 2}, logits...))
	}
	all = append(all, smallSample{"zeros", "-0 equals 0, so the lower id wins", zeros})
	rising := filled(2048, 0)
	for id := range rising {
		rising[id] = float32(id * 1021 % 2048)
	}
	all = append(all, smallSample{"top of a slice", "the most likely tokens are anywhere in a slice", []sampledRow{row(top, rising...)}})

	inWarp := filled(1024, 0)
	for i := range 32 {
		inWarp[992+i] = 1 + float32(i*5%32)
	}
	all = append(all, smallSample{"top of a warp", "the most likely tokens are those of the last warp", []sampledRow{row(top, inWarp...)}})

	elements = elements[2:6]
	// Each adjustment changes the first candidate, for each element of a thread's vectors.
	for _, c := range []struct {
		name          string
		p             sampling.Params
		special, rest float32 // logits
		prompt, times int     // occurrences of the special token
		masked        bool
	}{
		{"repeat of a small logit", sampling.Params{RepeatPenalty: 2}, 0.9, 0.6, 0, 1, false},
		{"repeat of the prompt", sampling.Params{RepeatPenalty: 2}, 0.9, 0.6, 1, 0, false},
		{"repeat of a negative logit", sampling.Params{RepeatPenalty: 2}, -0.6, -0.9, 1, 2, false},
		{"repeat of zero", sampling.Params{RepeatPenalty: 2}, 0, -1, 0, 1, false},
		{"repeat below 1", sampling.Params{RepeatPenalty: 0.5}, 0.5, 0.7, 1, 2, false},
		{"presence", sampling.Params{PresencePenalty: 0.5}, 1, 0.6, 1, 1, false},
		{"presence of the prompt", sampling.Params{PresencePenalty: 0.5}, 1, 0.6, 1, 0, false},
		{"frequency", sampling.Params{FrequencyPenalty: 0.3}, 1, 0.6, 1, 2, false},
		{"frequency, once", sampling.Params{FrequencyPenalty: 0.3}, 1, 0.6, 1, 1, false},
		{"bias", sampling.Params{}, 0, 0.5, 0, 0, false},
		{"mask", sampling.Params{}, 1, 0.5, 0, 0, true},
	} {
		var rows []sampledRow
		for _, id := range elements {
			p := c.p
			if c.name == "bias" {
				p.Bias = map[int]float32{id: 0.75}
			}
			q := row(p, filled(elements[len(elements)-1]+2, c.rest)...)
			q.logits[id] = c.special
			q.prompt, q.generated = slices.Repeat([]int{id}, c.prompt), slices.Repeat([]int{id}, c.times)
			if c.masked {
				q.mask = slices.Repeat([]uint32{math.MaxUint32}, (len(q.logits)+31)/32)
				q.mask[id/32] &^= 1 << (id % 32)
			}
			rows = append(rows, q)
		}
		all = append(all, smallSample{c.name, c.name + " decides, for each element of a vector", rows})
	}

	// One candidate in a bin, far apart, with nearly equal weights: TopK keeps the first ids. Their
	// warps need different steps of a scan.
	for _, k := range []int{2, 3, 4} {
		all = append(all, smallSample{fmt.Sprintf("top-k %d of far bins", k), "empty bins count nothing", []sampledRow{
			row(sampling.Params{Temperature: 1e5, TopK: k}, 0, -16.5, -36, -56, -60),
		}})
	}
	all = append(all, smallSample{"half of the weights", "a share of the weights is rounded up by less than 1", []sampledRow{
		row(sampling.Params{Temperature: math.Log2E, TopP: 0.5}, 0, -1, -1),
	}})
	all = append(all, smallSample{"just above half of the weights", "a share of the weights is rounded up by less than 1", []sampledRow{
		row(sampling.Params{Temperature: math.Log2E, TopP: math.Nextafter(0.5, 1)}, 0, -1, -1),
		row(sampling.Params{Temperature: math.Log2E, TopP: math.Nextafter(0.5, 1)}, 0, 0, -inf),
	}})
	all = append(all, smallSample{"just below half of the weights", "a share of the weights is rounded up by less than 1", []sampledRow{
		row(sampling.Params{Temperature: math.Log2E, TopP: math.Nextafter(0.5, 0)}, 0, -1, -1),
	}})
	all = append(all, smallSample{"the least top-p", "any top-p keeps the first candidate", []sampledRow{
		row(sampling.Params{Temperature: 1, TopP: math.SmallestNonzeroFloat64}, filled(9, 0)...),
	}})
	all = append(all, smallSample{"top-p of far bins", "the weights of all warps count", []sampledRow{
		row(sampling.Params{Temperature: 1e5, TopP: 0.7}, 0, -20, -36, -52, -60),
	}})
	// Logits of weights that are no powers of 2, two in a bin, and some of weight 0.
	fractions := func(n int) []float32 {
		list := make([]float32, n)
		for i := range list {
			list[i] = -float32(i/2*(i/2))*0.66 - float32(i%2)*0.01
		}
		return list
	}
	const apart = 31 // odd, so that all elements of a thread's vectors have logits
	var exact, dropped []sampledRow
	for _, p := range []sampling.Params{{}, {TopK: 22 + 46}, {TopP: math.Nextafter(1, 0)}} {
		exact = append(exact, exactDraw(p, apart, fractions(22))) // the first candidate of the second slice
	}
	for _, p := range []sampling.Params{{}, {TopK: 41 + 45}, {TopP: math.Nextafter(1, 0)}} {
		p.MinP = 0x1p-43
		dropped = append(dropped, droppedWeights(p, apart, fractions(20)))
	}
	all = append(all, smallSample{"exact weights", "each weight is exact", exact})
	all = append(all, smallSample{"exact weights of the first bin", "each weight is exact", []sampledRow{exactSlice(sampling.Params{TopK: 6}, 1)}})
	all = append(all, smallSample{"exact weights with min-p", "no weight below MinP counts", dropped})
	for n := range 4 {
		all = append(all, smallSample{fmt.Sprintf("exact weights after %d", n), "the first candidate and the token are any element of a thread's vector", []sampledRow{
			exactDraw(sampling.Params{}, 1, slices.Concat(filled(n, -inf), fractions(22))),
		}})
	}
	// The first has many small weights, the second many large ones.
	var sums []sampledRow
	for _, first := range []float32{20, 0} {
		logits := make([]float32, 120)
		for i := range logits {
			logits[i] = -first - float32(i)*0.083
		}
		logits[len(logits)/2] = 0
		sums = append(sums, row(sampling.Params{LogProb: true}, spread(apart, logits)...))
	}
	all = append(all, smallSample{"exact sum of weights", "each weight counts in log-probabilities", sums})
	// Logits in all bins, with nearly equal weights: a candidate more or less changes the token.
	mixed := filled(300, 0)
	for id := range mixed {
		mixed[id] = -float32(id*77%300) * 0.21
	}
	for _, k := range []int{33, 299} {
		all = append(all, smallSample{fmt.Sprintf("top-k %d of all bins", k), "each bin counts", []sampledRow{row(sampling.Params{Temperature: 1e5, TopK: k}, mixed...)}})
	}
	for _, p := range []float64{0.37, 0.93} {
		all = append(all, smallSample{fmt.Sprintf("top-p %v of all bins", p), "each bin counts", []sampledRow{
			row(sampling.Params{Temperature: 1e5, TopP: p}, mixed...), row(sampling.Params{Temperature: 1e5, TopK: 200, TopP: p}, mixed...),
		}})
	}
	// One candidate in each bin, in the order of ids, with nearly equal weights: the token is the
	// last candidate that stays. Those of TopK and TopP are in warps and lanes at which each step
	// of a scan matters.
	falling := filled(1024, 0)
	for id := range falling {
		falling[id] = -float32(id) / 16
	}
	var steps []sampledRow
	for n := 16; n > 0; n /= 2 {
		k := 32*n + n + 1
		steps = append(steps, row(sampling.Params{Temperature: 1e5, TopK: k, TopP: (float64(k/2+1) - 0.5) / float64(k)}, falling...))
	}
	all = append(all, smallSample{"each step of a scan", "the last candidates are in bins of different warps and lanes", steps})
	// More candidates in a bin than are compared with each other, in the order of ids and with equal
	// weights: the token is the last candidate that stays.
	var many []sampledRow
	for _, c := range []struct {
		ties, k int
		p       float64
		last    bool // all but the first are in the last bin
	}{
		{1, 150, 0, false}, {1, 0, 0.5, false}, {1, 150, 0.5, false}, {32, 63, 0, false}, {32, 0, 63. / 256, false}, {32, 159, 0.5, false},
		{256, 0, math.Nextafter(0.5, 1), false}, {32, 63, 0, true}, {32, 159, 0.5, true},
	} {
		logits := make([]float32, 256)
		for id := range logits { // of both signs, so that their keys differ in all bytes
			logits[id] = 0.03 - float32(id/c.ties)*0.0002
		}
		if c.last {
			logits[0] = 100
		}
		many = append(many, row(sampling.Params{Temperature: math.MaxFloat64, TopK: c.k, TopP: c.p}, logits...))
	}
	all = append(all, smallSample{"many in a bin", "thresholds reached exactly by many candidates of a bin", many})
	// Of 255 equal candidates TopP drops one. Their logits are so low that with other bits they are near 0.
	low := filled(256, -1e30)
	low[0] = 0
	all = append(all, smallSample{"many of a low logit", "of equal logits the lower ids stay", []sampledRow{
		row(sampling.Params{Temperature: 1e30, TopP: (1 + 253.5/math.E) / (1 + 255/math.E)}, low...),
	}})
	// The first bin has eight candidates, and TopP keeps just these.
	first := make([]float32, 12)
	inFirst, rest := 0.0, 0.0
	for i := range first {
		first[i] = -float32(i) * 0.005
		if i >= 8 {
			first[i] -= 1
			rest += math.Exp(float64(first[i]))
		} else {
			inFirst += math.Exp(float64(first[i]))
		}
	}
	all = append(all, smallSample{"a whole bin", "a bin's sum of weights of more than 32 bits", []sampledRow{
		row(sampling.Params{Temperature: 1, TopP: inFirst / (inFirst + rest) * (1 - 1e-9)}, first...),
	}})
	// All logits below -64 are in the last bin, and the lower halves of their weights add up to 2^32-1.
	// A carry too much would keep the second candidate.
	full := []float32{0, 0}
	for i := range 32 {
		full = append(full, -float32(13+i)*8)
	}
	all = append(all, smallSample{"a full half", "the largest sum of lower halves of weights", []sampledRow{
		row(sampling.Params{Temperature: 8 * math.Log2E, TopP: math.Nextafter(0x1p44/(0x1p45+0x1p32-1), 0)}, full...),
	}})
	// Groups of equal logits in different bins. TopP keeps all but one of the second group.
	groups, kept, sum := make([]float32, 256), 0.0, 0.0
	for id := range groups {
		groups[id] = 0.0001 - float32(id/32)*0.0002
		if id == 63 {
			kept = sum
		}
		if id < 250 {
			sum += math.Exp((float64(groups[id]) - float64(groups[0])) / 0.0005)
		}
	}
	all = append(all, smallSample{"many in bins", "a threshold reached by many candidates of different weights", []sampledRow{
		row(sampling.Params{Temperature: 0.0005, TopK: 250, TopP: kept / sum * (1 - 1e-6)}, groups...),
	}})
	few := []sampledRow{row(sampling.Params{Temperature: math.MaxFloat64, TopK: 100}, filled(128, 1)...), row(sampling.Params{Temperature: math.MaxFloat64, TopK: 100}, filled(129, 1)...)}
	few[0].logits = append(few[0].logits, -inf)
	all = append(all, smallSample{"few in a bin", "the largest number of candidates that are compared with each other, and one more", few})
	// Without its bias, or with one that it does not have, a token is the first candidate.
	biased := row(sampling.Params{Bias: map[int]float32{}}, filled(2060, -0.75)...)
	for id := range 300 {
		biased.logits[id], biased.p.Bias[id] = 0, -1
	}
	biased.p.Bias[299], biased.p.Bias[2048] = -0.5, 0 // the second is the first of a slice
	biased.logits[2050], biased.p.Bias[2050] = 1, -3
	all = append(all, smallSample{"many biases", "more biases than threads", []sampledRow{biased}})
	var masked []sampledRow
	for id := range 2 {
		q := row(sampling.Params{}, filled(64, 0.5)...)
		q.logits[id], q.mask = 1, []uint32{math.MaxUint32 &^ (1 << id), math.MaxUint32}
		masked = append(masked, q)
	}
	all = append(all, smallSample{"masks of whole words", "each state has its own mask", masked})
	// The end of the last state's counts is the end of the buffer.
	for vocab := 32; vocab < 36; vocab++ {
		q := row(sampling.Params{PresencePenalty: 1}, filled(vocab, 1)...)
		q.generated = []int{0}
		all = append(all, smallSample{fmt.Sprintf("penalties of %d tokens", vocab), "no count after the last token is read", []sampledRow{q}})
	}
	all = append(all, smallSample{"top-p of ties that top-k cuts", "TopP keeps no tie that TopK dropped", []sampledRow{
		row(sampling.Params{Temperature: 1, TopK: 3, TopP: 0.999}, filled(9, 4)...), row(sampling.Params{Temperature: 1, TopK: 3, TopP: 0.6}, filled(9, 4)...),
		row(sampling.Params{Temperature: 1, TopK: 5}, 4, 4, 4, 4, 4, 4, 5, 5, 5), // two of the six ties stay, and larger logits with higher ids
		row(sampling.Params{Temperature: 1, TopK: 3}, filled(9, -4)...),          // unwritten scratch has keys above these
	}})
	// Weights are powers of 2, and sums reach the thresholds exactly.
	for _, c := range []struct {
		name string
		k    int
		p, m float64
	}{{"top-k", 2, 0, 0}, {"top-k", 4, 0, 0}, {"top-p", 0, 0.5, 0}, {"top-p", 0, 0.75, 0}, {"top-k and top-p", 3, 0.5, 0}, {"top-p and min-p", 0, 0.75, 0.5}, {"min-p", 0, 0, 0.25}} {
		p := sampling.Params{Temperature: math.Log2E, TopK: c.k, TopP: c.p, MinP: c.m}
		all = append(all, smallSample{fmt.Sprintf("exact %s %d %v %v", c.name, c.k, c.p, c.m), c.name + " reached exactly", []sampledRow{
			row(p, 0, -1, -1, -2, -2, -2, -2, -9), row(p, -2, -1, 0, -1, 0, -2, -2, -3),
		}})
	}
	return all
}

// eachParameter returns rows with Gaussian logits: each parameter alone, some together, and
// special logits.
func eachParameter(r *rand.Rand, vocab int) []sampledRow {
	hot := sampling.Params{Temperature: 1}
	with := func(change func(p *sampling.Params)) sampling.Params {
		p := hot
		change(&p)
		return p
	}
	list := []sampling.Params{
		{}, hot, {Temperature: 0.2}, {Temperature: 50}, {Temperature: math.SmallestNonzeroFloat64}, {Temperature: math.MaxFloat64},
		with(func(p *sampling.Params) { p.TopK = 1 }), with(func(p *sampling.Params) { p.TopK = 2 }), with(func(p *sampling.Params) { p.TopK = 40 }), with(func(p *sampling.Params) { p.TopK = 1500 }),
		with(func(p *sampling.Params) { p.TopP = 0.5 }), with(func(p *sampling.Params) { p.TopP = 0.95 }), with(func(p *sampling.Params) { p.TopP = 1e-9 }), with(func(p *sampling.Params) { p.TopP = math.Nextafter(1, 0) }),
		with(func(p *sampling.Params) { p.MinP = 0.3 }), with(func(p *sampling.Params) { p.MinP = 1 }),
		with(func(p *sampling.Params) { p.TopK, p.TopP = 40, 0.95 }), with(func(p *sampling.Params) { p.TopK, p.TopP, p.MinP = 1500, 0.9, 0.1 }),
		{Temperature: 30, TopK: 100, TopP: 0.6}, {Temperature: 1e6, TopK: 77, TopP: 0.999}, {Temperature: 0.02, TopK: 50, TopP: 0.9999999},
		{LogProb: true, TopLogProbs: sampling.MaxTopLogProbs}, with(func(p *sampling.Params) { p.LogProb = true }), with(func(p *sampling.Params) { p.TopP, p.LogProb, p.TopLogProbs = 0.9, true, 3 }),
		{RepeatPenalty: 1.5}, {PresencePenalty: 2}, {FrequencyPenalty: 0.7}, with(func(p *sampling.Params) { p.RepeatPenalty, p.PresencePenalty, p.FrequencyPenalty = 1.3, -0.5, 0.2 }),
		{Bias: map[int]float32{r.IntN(vocab): 9, r.IntN(vocab): -2, vocab - 1: 3}}, with(func(p *sampling.Params) { p.Bias = map[int]float32{0: float32(math.Inf(-1))} }),
	}
	rows := make([]sampledRow, len(list)+3)
	for i := range rows {
		q := &rows[i]
		q.p = list[i%len(list)]
		q.p.Seed, q.p.Choice, q.position = r.Uint64(), r.Uint32(), 1+r.IntN(1<<20)
		q.logits = make([]float32, vocab)
		for j := range q.logits {
			q.logits[j] = float32(3*r.NormFloat64() + 5)
		}
		for range 8 {
			q.prompt, q.generated = append(q.prompt, r.IntN(vocab)), append(q.generated, r.IntN(vocab))
		}
	}
	special := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	for i, x := range special { // the last rows: NaN, Inf and -Inf among the logits
		q := &rows[len(list)+i]
		q.p = hot
		for j := range q.logits {
			if r.IntN(3) == 0 {
				q.logits[j] = x
			}
		}
	}
	return rows
}

// randomRow draws parameters and logits of many kinds.
func randomRow(r *rand.Rand, vocab int) sampledRow {
	pick := func(list ...float64) float64 { return list[r.IntN(len(list))] }
	q := sampledRow{position: 1 + r.IntN(1<<20), logits: make([]float32, vocab)}
	spread, offset, few := pick(1e-30, 0.1, 1, 3, 10, 1e4, 1e37), pick(0, 0, 20, -50), r.IntN(3) == 0
	for i := range q.logits {
		x := r.NormFloat64()
		if few {
			x = float64(r.IntN(4))
		}
		q.logits[i] = float32(x*spread + offset)
		if special := r.IntN(60); special < 5 {
			q.logits[i] = []float32{float32(math.NaN()), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), float32(math.Inf(1))}[special]
		}
	}
	q.p = sampling.Params{
		Temperature: pick(0, 0.01, 0.7, 1, 1, 2, 1000, math.SmallestNonzeroFloat64, math.MaxFloat64),
		TopK:        int(pick(0, 0, 1, 2, 3, 5, 40, 1000)),
		TopP:        pick(0, 0, 1, 0.5, 0.25, 0.95, math.Nextafter(1, 0), math.Nextafter(0.5, 1), math.SmallestNonzeroFloat64),
		MinP:        pick(0, 0, 1, 0.05, 0.5, 1e-9),
		Seed:        r.Uint64(), Choice: uint32(r.IntN(3)), LogProb: r.IntN(2) == 0, TopLogProbs: int(pick(0, 0, 1, 5, sampling.MaxTopLogProbs)),
	}
	if r.IntN(3) == 0 {
		q.p.RepeatPenalty, q.p.PresencePenalty, q.p.FrequencyPenalty = pick(0, 1, 1.1, 0.5, 1e30), pick(0, 0.5, -1, 1e38), pick(0, 0.1, -0.3, 1e38)
		for range r.IntN(2 * vocab) {
			q.prompt, q.generated = append(q.prompt, r.IntN(vocab)), append(q.generated, r.IntN(vocab))
		}
	}
	if r.IntN(3) == 0 {
		q.p.Bias = map[int]float32{}
		for range r.IntN(min(vocab, 300) + 1) {
			q.p.Bias[r.IntN(vocab)] = float32(pick(0, 1, -2, 5, math.Inf(-1), math.MaxFloat32))
		}
	}
	if r.IntN(3) == 0 {
		for range sampling.MaskLen(vocab) {
			q.mask = append(q.mask, r.Uint32())
		}
	}
	if r.IntN(20) == 0 {
		q.position = 0
	}
	return q
}

// sampleBuffers are the buffers of a launch, with the contents that they must have after it.
type sampleBuffers struct {
	rows                                                      int
	reverse                                                   bool // states are in reverse order
	args                                                      sample.Args
	scratch                                                   *harness.Buffer
	token, results, next, positions, lengths, counts          *harness.Buffer
	wantToken, wantNext, wantPosition, wantLength, wantCounts []uint32
}

// state returns the state of a row.
func (s *sampleBuffers) state(row int) int {
	if s.reverse {
		return s.rows - 1 - row
	}
	return row
}

// newSampleBuffers fills buffers for rows. With reverse, their states are in reverse order.
func newSampleBuffers(r *harness.Fixture, rows []sampledRow, stride int, reverse bool) *sampleBuffers {
	n, vocab := len(rows), len(rows[0].logits)
	s := &sampleBuffers{rows: n, reverse: reverse}
	maxBiases := 0
	for _, q := range rows {
		maxBiases = max(maxBiases, len(q.p.Bias))
	}
	var states, lengths, positions, logits []uint32
	params, biases := make([]uint32, n*sample.ParamWords), make([]uint32, 2*n*maxBiases)
	masks, counts := make([]uint32, n*sampling.MaskLen(vocab)), make([]uint32, n*vocab)
	for i, q := range rows {
		state := s.state(i)
		words := q.p.Words()
		if !q.p.Penalizes() { // nothing may read the penalties
			for j := 4; j < 8; j++ {
				words[j] = untouched
			}
		}
		if q.mask != nil {
			words[0] |= sample.Masked
			copy(masks[state*sampling.MaskLen(vocab):], q.mask)
		}
		copy(params[state*sample.ParamWords:], words[:])
		at := 2 * state * maxBiases
		for id, b := range q.p.Bias {
			biases[at], biases[at+1] = uint32(id), math.Float32bits(b)
			at += 2
		}
		for _, id := range q.generated {
			counts[state*vocab+id]++
		}
		for _, id := range q.prompt {
			counts[state*vocab+id] |= sample.InPrompt
		}
		for _, x := range q.logits {
			logits = append(logits, math.Float32bits(x))
		}
		if q.position == 0 {
			state = untouched // nothing may read it
		}
		states, lengths, positions = append(states, uint32(state)), append(lengths, uint32(q.position)), append(positions, 7)
	}
	output := func(name string, data []uint32) *harness.Buffer { return r.Output(name, 4*len(data)).SetU32s(0, data) }
	same := func(n int) []uint32 { return slices.Repeat([]uint32{untouched}, n) }
	*s = sampleBuffers{
		rows: n, reverse: reverse, token: output("token", same(2*n)), results: output("results", same(2*n*sample.ResultWords)), next: output("next", same(n)),
		positions: output("positions", positions), lengths: output("lengths", lengths), counts: output("counts", counts),
		wantToken: same(2 * n), wantNext: same(n), wantPosition: positions, wantLength: lengths, wantCounts: slices.Clone(counts),
	}
	for i, q := range rows { // states without penalties have no counts
		if state := s.state(i); !q.p.Penalizes() {
			s.counts.Poison(4*state*vocab, 4*vocab)
		}
	}
	s.scratch = r.Scratch("scratch", int(sample.ScratchBytes(n, vocab))).Unordered()
	in := r.Input("logits", 4*n*stride)
	for i := range rows {
		in.SetU32s(4*i*stride, logits[i*vocab:(i+1)*vocab])
	}
	s.args = sample.Args{
		Logits: in.Addr(), Params: r.U32s("params", params).Addr(), Counts: s.counts.Addr(), Masks: r.U32s("masks", masks).Addr(),
		Scratch: s.scratch.Addr(), Token: s.token.Addr(), Results: s.results.Addr(), Next: s.next.Addr(),
		Positions: s.positions.Addr(), Lengths: s.lengths.Addr(), Rows: n, Vocab: vocab, Stride: stride, MaxBiases: maxBiases,
	}
	if maxBiases > 0 {
		s.args.Biases = r.U32s("biases", biases).Addr()
	}
	if reverse {
		s.args.States = r.U32s("states", states).Addr()
	}
	return s
}

// launchSample launches kernels in a row.
func launchSample(r *harness.Fixture, a sample.Args, kernels []kernel.Typed[sample.Args]) {
	var list []ptx.Launch
	for _, spec := range kernels {
		l, err := spec.Launch(r.Kernel(spec), a)
		if err != nil {
			r.Fatalf("launch: %v", err)
		}
		list = append(list, l)
	}
	r.LaunchInTurn(list...)
}

// checkSample compares tokens and log-probabilities with those of model/sampling, to the bit.
func checkSample(r *harness.Fixture, rows []sampledRow) {
	s := newSampleBuffers(r, rows, len(rows[0].logits), false)
	launchSample(r, s.args, sample.Kernels())
	s.check(r, rows)
}

func (s *sampleBuffers) check(r *harness.Fixture, rows []sampledRow) {
	vocab, results := s.args.Vocab, s.results.U32s()
	var got, want []sampling.LogProb
	for i, q := range rows {
		at := 2*i + q.position%2
		result := results[at*sample.ResultWords:][:sample.ResultWords]
		if q.position == 0 {
			harness.Exact(r, fmt.Sprintf("result of inactive row %d", i), result, slices.Repeat([]uint32{untouched}, len(result)))
			continue
		}
		used := 0 // words of the result
		if q.p.Words()[0]&logProbs != 0 {
			used = 4 + 2*q.p.TopLogProbs
		}
		if unused := result[used:]; len(unused) > 0 {
			harness.Exact(r, "unused words of a result", unused, slices.Repeat([]uint32{untouched}, len(unused)))
		}
		c := q.want()
		s.wantToken[at] = uint32(c.Token)
		if c.Token >= 0 {
			if s.args.Next != 0 {
				s.wantNext[i] = uint32(c.Token)
			}
			s.wantCounts[s.state(i)*vocab+c.Token]++
		}
		s.wantPosition[i], s.wantLength[i] = uint32(q.position), uint32(q.position)+1
		if c.Token < 0 {
			if q.p.Words()[0]&logProbs != 0 && !slices.ContainsFunc(q.logits, func(x float32) bool { return x > float32(math.Inf(-1)) }) {
				harness.Exact(r, "result without a logit", result[:4], []uint32{0, math.MaxUint32, 0, 0})
			}
			continue
		}
		most, sum := math.Float32frombits(result[1]), uint64(result[2])|uint64(result[3])<<32
		logProb := func(token, bits uint32) sampling.LogProb {
			return sampling.LogProb{Token: int(token), LogProb: sampling.LogProbOf(math.Float32frombits(bits), most, sum)}
		}
		if q.p.LogProb {
			got, want = append(got, logProb(uint32(c.Token), result[0])), append(want, sampling.LogProb{Token: c.Token, LogProb: c.LogProb})
		}
		for j := range q.p.TopLogProbs {
			top := result[4+2*j:]
			if j < len(c.Top) {
				got, want = append(got, logProb(top[0], top[1])), append(want, c.Top[j])
			} else {
				got, want = append(got, sampling.LogProb{Token: int(int32(top[0])), LogProb: float32(int32(top[1]))}), append(want, sampling.LogProb{Token: -1, LogProb: -1})
			}
		}
	}
	harness.Exact(r, "token", s.token.U32s(), s.wantToken)
	harness.Exact(r, "next", s.next.U32s(), s.wantNext)
	harness.Exact(r, "position", s.positions.U32s(), s.wantPosition)
	harness.Exact(r, "length", s.lengths.U32s(), s.wantLength)
	for i, q := range rows {
		at := s.state(i) * vocab
		if !q.p.Penalizes() {
			s.counts.Untouched(4*at, 4*vocab)
			continue
		}
		harness.Exact(r, "counts", s.counts.Range(4*at, 4*vocab), appendU32s(nil, s.wantCounts[at:at+vocab]))
	}
	if len(want) > 0 {
		harness.Exact(r, "log-probabilities", got, want)
	}
}

// checkSampleBuffers leaves out optional buffers and reverses the states.
func checkSampleBuffers(r *harness.Fixture) {
	rows := eachParameter(r.Rand(), 300)[22:27] // some without biases
	s := newSampleBuffers(r, rows, 305, true)
	s.args.Masks, s.args.Next = 0, 0
	launchSample(r, s.args, sample.Kernels())
	s.check(r, rows)
}

func appendU32s(b []byte, list []uint32) []byte {
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}
