package sampling

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var (
	nan    = float32(math.NaN())
	inf    = float32(math.Inf(1))
	negInf = float32(math.Inf(-1))
)

// request is one choice with everything that it depends on.
type request struct {
	p                 Params
	logits            []float32
	prompt, generated []int
	mask              []uint32
	position          int
}

func (q *request) choose() Choice {
	s := New(&q.p, len(q.logits))
	for _, id := range q.prompt {
		s.Add(id, false)
	}
	for _, id := range q.generated {
		s.Add(id, true)
	}
	return s.Choose(q.logits, q.position, q.mask)
}

// The definition with sorted lists, big integers and rational numbers.

func (q *request) adjusted(id int) float32 {
	x := q.logits[id]
	if b, ok := q.p.Bias[id]; ok {
		x += b
	}
	n := 0
	for _, g := range q.generated {
		if g == id {
			n++
		}
	}
	if r := float32(q.p.RepeatPenalty); r != 0 && r != 1 && (n > 0 || slices.Contains(q.prompt, id)) {
		if x > 0 {
			x = float32(x * (1 / r))
		} else {
			x = float32(x * r)
		}
	}
	if n > 0 {
		x -= float32(float32(n) * float32(q.p.FrequencyPenalty))
		x -= float32(q.p.PresencePenalty)
	}
	if q.mask != nil && q.mask[id/32]&(1<<(id%32)) == 0 {
		return negInf
	}
	return x
}

func isCandidate(x float32) bool { return x == x && x != negInf }

func rational(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }

// weight returns the weight of a logit.
func weight(x, most float32, scale float64) uint64 {
	var weights [1]uint64
	return weigh(weights[:], []uint32{key(x)}, key(most), scale)
}

// ceiling returns ceil(x).
func ceiling(x *big.Rat) *big.Int {
	n := new(big.Int).Add(x.Num(), x.Denom())
	return n.Div(n.Sub(n, big.NewInt(1)), x.Denom())
}

// ranked returns the candidates of a list of logits in their order.
func ranked(logits []float32) []int {
	var ids []int
	for id, x := range logits {
		if isCandidate(x) {
			ids = append(ids, id)
		}
	}
	slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	return ids
}

func sumOf(ids []int, weights []*big.Int) *big.Int {
	sum := new(big.Int)
	for _, id := range ids {
		sum.Add(sum, weights[id])
	}
	return sum
}

// defined returns the choice of the definition.
func (q *request) defined() Choice {
	p, x := &q.p, make([]float32, len(q.logits))
	for id := range x {
		x[id] = q.adjusted(id)
	}
	ids := ranked(x)
	if len(ids) == 0 {
		return Choice{Token: -1}
	}
	c := Choice{Token: ids[0]}
	if p.Temperature != 0 && p.TopK != 1 {
		c.Token = q.definedDraw(x, ids)
	}
	raw, sum := ranked(q.logits), uint64(0)
	most := q.logits[raw[0]]
	for _, id := range raw {
		sum += weight(q.logits[id], most, math.Log2E)
	}
	if p.LogProb {
		c.LogProb = LogProbOf(q.logits[c.Token], most, sum)
	}
	for _, id := range raw[:min(p.TopLogProbs, len(raw))] {
		c.Top = append(c.Top, LogProb{id, LogProbOf(q.logits[id], most, sum)})
	}
	return c
}

func (q *request) definedDraw(x []float32, ids []int) int {
	p, weights := &q.p, make([]*big.Int, len(x))
	scale := min(math.Log2E/p.Temperature, math.MaxFloat64)
	for _, id := range ids {
		weights[id] = new(big.Int).SetUint64(weight(x[id], x[ids[0]], scale))
	}
	if p.TopK > 0 {
		ids = ids[:min(p.TopK, len(ids))]
	}
	two64 := new(big.Int).Lsh(big.NewInt(1), 64)
	if p.TopP > 0 && p.TopP < 1 {
		share := ceiling(new(big.Rat).Mul(rational(p.TopP), new(big.Rat).SetInt(two64)))
		need := ceiling(new(big.Rat).SetFrac(new(big.Int).Mul(share, sumOf(ids, weights)), two64))
		n := 1
		for sumOf(ids[:n], weights).Cmp(need) < 0 {
			n++
		}
		ids = ids[:n]
	}
	least := ceiling(new(big.Rat).Mul(rational(p.MinP), rational(0x1p44)))
	ids = slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return weights[id].Cmp(least) < 0 })
	slices.Sort(ids)
	r := new(big.Int).SetUint64(p.random(q.position))
	r.Rsh(r.Mul(r, sumOf(ids, weights)), 64)
	for n := range ids {
		if sumOf(ids[:n+1], weights).Cmp(r) > 0 {
			return ids[n]
		}
	}
	panic("no token")
}

// randomRequest draws parameters and logits of many kinds.
func randomRequest(r *rand.Rand) *request {
	pick := func(list ...float64) float64 { return list[r.IntN(len(list))] }
	n := 1 + r.IntN(1<<r.IntN(9))
	q := &request{position: r.IntN(1 << 20), logits: make([]float32, n)}
	spread, offset, few := pick(1e-30, 0.1, 1, 3, 10, 1e4, 1e37), pick(0, 0, 20, -50), r.IntN(3) == 0
	for i := range q.logits {
		x := r.NormFloat64()
		if few {
			x = float64(r.IntN(4))
		}
		q.logits[i] = float32(x*spread + offset)
		if special := r.IntN(40); special < 5 {
			q.logits[i] = []float32{nan, negInf, 0, float32(math.Copysign(0, -1)), inf}[special]
		}
	}
	q.p = Params{
		Temperature: pick(0, 0.01, 0.7, 1, 1, 2, 1000, math.SmallestNonzeroFloat64, math.MaxFloat64),
		TopK:        int(pick(0, 0, 1, 2, 3, 5, 40, 1000)),
		TopP:        pick(0, 0, 1, 0.5, 0.25, 0.95, math.Nextafter(1, 0), math.Nextafter(0.5, 1), math.SmallestNonzeroFloat64),
		MinP:        pick(0, 0, 1, 0.05, 0.5, 1e-9),
		Seed:        r.Uint64(), Choice: uint32(r.IntN(3)), LogProb: r.IntN(2) == 0, TopLogProbs: int(pick(0, 0, 1, 5, MaxTopLogProbs)),
	}
	if r.IntN(3) == 0 {
		q.p.RepeatPenalty, q.p.PresencePenalty, q.p.FrequencyPenalty = pick(0, 1, 1.1, 0.5, 1e30), pick(0, 0.5, -1, 1e38), pick(0, 0.1, -0.3, 1e38)
		for range r.IntN(2 * n) {
			q.prompt, q.generated = append(q.prompt, r.IntN(n)), append(q.generated, r.IntN(n))
		}
	}
	if r.IntN(3) == 0 {
		q.p.Bias = map[int]float32{}
		for range r.IntN(n + 1) {
			q.p.Bias[r.IntN(n)] = float32(pick(0, 1, -2, 5, math.Inf(-1), math.MaxFloat32))
		}
	}
	if r.IntN(3) == 0 {
		for range (n + 31) / 32 {
			q.mask = append(q.mask, r.Uint32()|r.Uint32()&uint32(-r.IntN(2)))
		}
	}
	return q
}

func equal(a, b Choice) bool {
	same := func(x, y LogProb) bool { return x.Token == y.Token && sameBits(x.LogProb, y.LogProb) }
	return a.Token == b.Token && sameBits(a.LogProb, b.LogProb) && slices.EqualFunc(a.Top, b.Top, same)
}

func sameBits(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }

func TestAgainstSortedLists(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[int]bool{}
	for i := range 5000 {
		q := randomRequest(r)
		if err := q.p.Check(len(q.logits)); err != nil {
			t.Fatal(err)
		}
		got, want := q.choose(), q.defined()
		if seen[got.Token] = true; !equal(got, want) {
			t.Fatalf("request %d: %+v, want %+v: %+v", i, got, want, q)
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d different choices", len(seen))
	}
}

func FuzzChoose(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		q := randomRequest(rand.New(rand.NewPCG(a, b)))
		if got, want := q.choose(), q.defined(); !equal(got, want) {
			t.Errorf("%+v, want %+v: %+v", got, want, q)
		}
	})
}

// TestLargeVocabulary: the thresholds of a large vocabulary agree with those of sorted lists, for
// logits that fill many histogram bins or one.
func TestLargeVocabulary(t *testing.T) {
	const vocab = 20000
	r := rand.New(rand.NewPCG(5, 6))
	for _, distinct := range []int{1, 7, 1000, vocab} {
		q := &request{logits: make([]float32, vocab), position: 9}
		for i := range q.logits {
			q.logits[i] = 5 + float32(r.IntN(distinct))*0x1p-16
		}
		for _, q.p = range []Params{
			{Temperature: 1, TopK: 1000, TopP: 0.5}, {Temperature: 1e-4, TopP: 0.999}, {Temperature: 1e-4, TopK: 19999, MinP: 0.3}, {Temperature: 1, TopP: 1e-6},
		} {
			if got, want := q.choose().Token, q.sortedDraw(); got != want {
				t.Errorf("%d distinct logits, %+v: token %d, want %d", distinct, q.p, got, want)
			}
		}
	}
}

// sortedDraw is definedDraw of unadjusted logits with integers of 64 bits, for large vocabularies.
func (q *request) sortedDraw() int {
	p, x, ids := &q.p, q.logits, ranked(q.logits)
	if p.TopK > 0 {
		ids = ids[:min(p.TopK, len(ids))]
	}
	weightOf := func(id int) uint64 { return weight(x[id], x[ids[0]], math.Log2E/p.Temperature) }
	sum := func(list []int) (s uint64) {
		for _, id := range list {
			s += weightOf(id)
		}
		return s
	}
	if p.TopP > 0 {
		need, n, s := ceil64(uint64(math.Ceil(p.TopP*0x1p64)), sum(ids)), 0, uint64(0)
		for ; s < need; n++ {
			s += weightOf(ids[n])
		}
		ids = ids[:n]
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return float64(weightOf(id)) < p.MinP*0x1p44 })
	slices.Sort(ids)
	r := high64(p.random(q.position), sum(ids))
	for _, id := range ids {
		if weightOf(id) > r {
			return id
		}
		r -= weightOf(id)
	}
	return -1
}

// choices returns the set of tokens that are chosen at many positions.
func (q *request) choices() []int {
	var ids []int
	for q.position = range 1000 {
		ids = append(ids, q.choose().Token)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func TestChoices(t *testing.T) {
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	four := []float32{ln(0.1), ln(0.4), ln(0.2), ln(0.3)}
	equal := []float32{1, 1, 1, 1}
	for _, tt := range []struct {
		name, reason string
		request
		want []int
	}{
		{"temperature 0", "greedy", request{logits: four}, []int{1}},
		{"temperature 0 with filters", "greedy", request{p: Params{TopK: 3, TopP: 0.9, MinP: 0.1}, logits: four}, []int{1}},
		{"all", "every token has its chance", request{p: Params{Temperature: 1}, logits: four}, []int{0, 1, 2, 3}},
		{"tiny temperature", "only the best is left", request{p: Params{Temperature: math.SmallestNonzeroFloat64}, logits: four}, []int{1}},
		{"tiny temperature and a tie", "all of the best are left", request{p: Params{Temperature: math.SmallestNonzeroFloat64}, logits: []float32{1, 2, 2}}, []int{1, 2}},
		{"huge temperature", "every token has its chance", request{p: Params{Temperature: math.MaxFloat64}, logits: []float32{-50, 50, 0}}, []int{0, 1, 2}},

		{"greedy tie", "the lowest id wins", request{logits: []float32{1, 2, 2}}, []int{1}},
		{"greedy zeros", "-0 equals 0", request{logits: []float32{-1, float32(math.Copysign(0, -1)), 0}}, []int{1}},
		{"top-k 1", "greedy at any temperature", request{p: Params{Temperature: 9, TopK: 1}, logits: []float32{1, 2, 2}}, []int{1}},
		{"top-k 2", "the two best", request{p: Params{Temperature: 1, TopK: 2}, logits: four}, []int{1, 3}},
		{"top-k of the vocabulary", "all", request{p: Params{Temperature: 1, TopK: 4}, logits: four}, []int{0, 1, 2, 3}},
		{"top-k beyond the vocabulary", "all", request{p: Params{Temperature: 1, TopK: 99}, logits: four}, []int{0, 1, 2, 3}},
		{"top-k tie", "the lower ids are kept", request{p: Params{Temperature: 1, TopK: 2}, logits: equal}, []int{0, 1}},
		{"top-k tie at the limit", "the better ones and the lowest id of the others", request{p: Params{Temperature: 1, TopK: 3}, logits: []float32{1, 2, 1, 2, 1}}, []int{0, 1, 3}},
		{"top-k of few candidates", "others do not count", request{p: Params{Temperature: 1, TopK: 3}, logits: []float32{nan, 1, negInf, 1, 1}}, []int{1, 3, 4}},

		{"top-p", "the fewest that reach p", request{p: Params{Temperature: 1, TopP: 0.65}, logits: four}, []int{1, 3}},
		{"top-p reached exactly by one", "the first is enough", request{p: Params{Temperature: 1, TopP: 0.25}, logits: equal}, []int{0}},
		{"top-p reached exactly by two", "no third token", request{p: Params{Temperature: 1, TopP: 0.5}, logits: equal}, []int{0, 1}},
		{"top-p just above two", "a third token is needed", request{p: Params{Temperature: 1, TopP: math.Nextafter(0.5, 1)}, logits: equal}, []int{0, 1, 2}},
		{"top-p just below two", "two tokens are needed", request{p: Params{Temperature: 1, TopP: math.Nextafter(0.5, 0)}, logits: equal}, []int{0, 1}},
		{"top-p tiny", "at least one is left", request{p: Params{Temperature: 1, TopP: math.SmallestNonzeroFloat64}, logits: four}, []int{1}},
		{"top-p 1", "no restriction", request{p: Params{Temperature: 1e3, TopP: 1}, logits: []float32{0, -50}}, []int{0, 1}},
		{"top-p after temperature", "a hot draw widens it", request{p: Params{Temperature: 1e3, TopP: 0.65}, logits: four}, []int{1, 2, 3}},
		{"top-k before top-p", "p is of what is left", request{p: Params{Temperature: 1, TopK: 2, TopP: 0.55}, logits: four}, []int{1}},
		{"top-p before min-p", "p is of all", request{p: Params{Temperature: 1, TopP: 0.75, MinP: 0.49}, logits: four}, []int{1, 2, 3}},

		{"min-p", "half as likely as the best", request{p: Params{Temperature: 1, MinP: 0.49}, logits: four}, []int{1, 2, 3}},
		{"min-p just above", "half as likely is not enough", request{p: Params{Temperature: 1, MinP: 0.51}, logits: four}, []int{1, 3}},
		{"min-p 1", "only the best", request{p: Params{Temperature: 1, MinP: 1}, logits: []float32{2, 1, 2}}, []int{0, 2}},
		{"min-p after temperature", "a hot draw widens it", request{p: Params{Temperature: 1e3, MinP: 0.49}, logits: four}, []int{0, 1, 2, 3}},

		{"bias", "bias comes before greed", request{p: Params{Bias: map[int]float32{0: 5}}, logits: four}, []int{0}},
		{"ban", "a banned token is never drawn", request{p: Params{Temperature: 1, Bias: map[int]float32{1: negInf}}, logits: four}, []int{0, 2, 3}},
		{"ban of +Inf", "banned too", request{p: Params{Temperature: 1, Bias: map[int]float32{0: negInf}}, logits: []float32{inf, 1, 1}}, []int{1, 2}},
		{"mask", "a token without its bit is never drawn", request{p: Params{Temperature: 1}, logits: four, mask: []uint32{0b1001}}, []int{0, 3}},
		{"greedy mask", "the best of what is permitted", request{logits: four, mask: []uint32{0b101}}, []int{2}},
		{"NaN", "never drawn", request{p: Params{Temperature: 1}, logits: []float32{nan, 1, 1, nan}}, []int{1, 2}},
		{"+Inf", "the only ones with a chance", request{p: Params{Temperature: 1, TopP: 0.9, MinP: 0.1}, logits: []float32{inf, 1, inf, 9}}, []int{0, 2}},
		{"nothing", "no candidates", request{p: Params{Temperature: 1, TopK: 2, TopP: 0.5, MinP: 0.1, LogProb: true}, logits: []float32{negInf, nan}}, []int{-1}},
		{"nothing, greedy", "no candidates", request{logits: []float32{nan, nan}}, []int{-1}},
		{"all banned", "bias can leave nothing", request{p: Params{Bias: map[int]float32{0: negInf, 1: negInf}}, logits: []float32{1, 2}}, []int{-1}},

		{"repeat positive", "a positive logit is divided", request{p: Params{RepeatPenalty: 3}, logits: []float32{2, 1}, generated: []int{0}}, []int{1}},
		{"repeat negative", "a negative logit is multiplied", request{p: Params{RepeatPenalty: 3}, logits: []float32{-1, -2}, generated: []int{0}}, []int{1}},
		{"repeat of the prompt", "its tokens count", request{p: Params{RepeatPenalty: 3}, logits: []float32{2, 1}, prompt: []int{0}}, []int{1}},
		{"repeat 1", "no penalty", request{p: Params{RepeatPenalty: 1}, logits: []float32{2, 1}, generated: []int{0}}, []int{0}},
		{"repeat twice", "once, however often it occurs", request{p: Params{RepeatPenalty: 2}, logits: []float32{3, 1}, prompt: []int{0}, generated: []int{0, 0}}, []int{0}},
		{"repeat before presence", "divided, then subtracted", request{p: Params{RepeatPenalty: 2, PresencePenalty: 1}, logits: []float32{4, 1.2}, generated: []int{0}}, []int{1}},
		{"presence", "once, however often it occurs", request{p: Params{PresencePenalty: 0.5}, logits: []float32{2, 1}, generated: []int{0, 0, 0}}, []int{0}},
		{"presence of the prompt", "its tokens do not count", request{p: Params{PresencePenalty: 5, FrequencyPenalty: 5}, logits: []float32{2, 1}, prompt: []int{0, 0}}, []int{0}},
		{"frequency", "once for each time", request{p: Params{FrequencyPenalty: 0.5}, logits: []float32{2, 1}, generated: []int{0, 0, 0}}, []int{1}},
		{"frequency not enough", "once for each time", request{p: Params{FrequencyPenalty: 0.4}, logits: []float32{2, 1}, generated: []int{0, 0}}, []int{0}},
		{"negative presence", "what was said is favored", request{p: Params{PresencePenalty: -2}, logits: []float32{2, 1}, generated: []int{1}}, []int{1}},
		{"bias before penalty", "the penalty sees the biased logit",
			request{p: Params{Bias: map[int]float32{0: 10}, RepeatPenalty: 100}, logits: []float32{-9, 0.5}, generated: []int{0}}, []int{1}},
		{"penalty before top-k", "the best of the penalized", request{p: Params{Temperature: 1, TopK: 2, PresencePenalty: 9}, logits: []float32{3, 2, 1}, generated: []int{0}}, []int{1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.choices(); !slices.Equal(got, tt.want) {
				t.Errorf("%s: tokens %v, want %v", tt.reason, got, tt.want)
			}
		})
	}
}

// TestDistribution: draws follow the probabilities of the tokens that are left, over positions,
// seeds and completions.
func TestDistribution(t *testing.T) {
	probs := []float64{0.05, 0.5, 0.15, 0.3}
	logits := make([]float32, len(probs))
	for i, p := range probs {
		logits[i] = float32(2 * math.Log(p)) // temperature 2 undoes the factor
	}
	two := []float64{0, 0.5 / 0.8, 0, 0.3 / 0.8}
	for _, tt := range []struct {
		name string
		p    Params
		want []float64
	}{
		{"plain", Params{}, probs},
		{"weak filters", Params{TopK: 4, TopP: 0.9999999, MinP: 1e-9}, probs},
		{"top-k", Params{TopK: 2}, two},
		{"top-p", Params{TopP: 0.7}, two},
		{"min-p", Params{MinP: 0.5}, two},
		{"bias", Params{Bias: map[int]float32{0: negInf, 2: negInf}}, two},
	} {
		for name, vary := range map[string]func(q *request, i int){
			"positions":   func(q *request, i int) { q.position = i },
			"seeds":       func(q *request, i int) { q.p.Seed = uint64(i) },
			"completions": func(q *request, i int) { q.p.Choice = uint32(i) },
		} {
			const n = 10000
			counts := make([]float64, len(probs))
			q := request{p: tt.p, logits: logits}
			q.p.Temperature = 2
			for i := range n {
				vary(&q, i)
				counts[q.choose().Token]++
			}
			for i, p := range tt.want {
				// A correct sampler deviates by five standard deviations once in a million times.
				if got, slack := counts[i]/n, 5*math.Sqrt(p*(1-p)/n); !(math.Abs(got-p) <= slack) {
					t.Errorf("%s over %s: token %d drawn with frequency %.4f, want %.4f ± %.4f", tt.name, name, i, got, p, slack)
				}
			}
		}
	}
}

// TestWeight compares weights with powers of two in higher precision.
func TestWeight(t *testing.T) {
	if w := weight(0, 0, 1); w != 1<<44 {
		t.Errorf("the weight of the largest logit is %d, want 2^44", w)
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 100000 {
		y := -r.Float64() * 50
		whole := math.Floor(y)
		want := new(big.Float).SetMantExp(big.NewFloat(math.Exp2(y-whole)), 44+int(whole)) // 1 ulp
		got := new(big.Float).SetUint64(weight(-1, 0, -y))
		diff, _ := new(big.Float).Sub(want, got).Float64()
		size, _ := want.Float64()
		if slack := size*0x1p-33 + 1; diff < -size*0x1p-33 || diff > slack {
			t.Fatalf("weight of 2^%v: %v, want %v", y, got, want)
		}
	}
	for _, y := range []float64{-44.6, -64, -64.1, -1e9, -1e300, math.Inf(-1)} {
		if w := weight(-1, 0, -y); w != 0 {
			t.Errorf("the weight of 2^%v is %d, want 0", y, w)
		}
	}
}

// The test vectors are those of the Random123 distribution.
func TestPhilox(t *testing.T) {
	for _, tt := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, [2]uint32{0xffffffff, 0xffffffff}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(tt.counter, tt.key); got != tt.want {
			t.Errorf("philox(%x, %x) = %x, want %x", tt.counter, tt.key, got, tt.want)
		}
	}
}

// TestLogProb: the probabilities of all tokens add up to 1, whatever the parameters are.
func TestLogProb(t *testing.T) {
	logits := []float32{0, 1, 2, 3, negInf, nan, 3}
	s := New(&Params{Temperature: 0.3, TopK: 2, LogProb: true, TopLogProbs: 20, Bias: map[int]float32{3: negInf}}, len(logits))
	c := s.Choose(logits, 0, nil)
	total := 0.0
	var order []int
	for _, l := range c.Top {
		total += math.Exp(float64(l.LogProb))
		order = append(order, l.Token)
	}
	if math.Abs(total-1) > 1e-6 || !slices.Equal(order, []int{3, 6, 2, 1, 0}) {
		t.Errorf("the probabilities of tokens %v add up to %v", order, total)
	}
	if c.Token != 6 || !sameBits(c.LogProb, c.Top[1].LogProb) {
		t.Errorf("token %d with log-probability %v, want 6 with %v", c.Token, c.LogProb, c.Top[1].LogProb)
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		want  string
		p     Params
		vocab int
	}{
		{"", Params{}, 1},
		{"", Params{Temperature: 2, TopK: 5, TopP: 1, MinP: 1, RepeatPenalty: 1.1, PresencePenalty: -2, FrequencyPenalty: 2, TopLogProbs: 20}, MaxVocab},
		{"vocabulary", Params{}, 0},
		{"vocabulary", Params{}, MaxVocab + 1},
		{"Temperature", Params{Temperature: -1}, 9},
		{"Temperature", Params{Temperature: math.NaN()}, 9},
		{"Temperature", Params{Temperature: math.Inf(1)}, 9},
		{"TopK", Params{TopK: -1}, 9},
		{"TopP", Params{TopP: 1.1}, 9},
		{"MinP", Params{MinP: -0.1}, 9},
		{"RepeatPenalty", Params{RepeatPenalty: -1}, 9},
		{"RepeatPenalty", Params{RepeatPenalty: 1e-300}, 9},
		{"RepeatPenalty", Params{RepeatPenalty: 1e-40}, 9},
		{"PresencePenalty", Params{PresencePenalty: 1e300}, 9},
		{"FrequencyPenalty", Params{FrequencyPenalty: math.NaN()}, 9},
		{"TopLogProbs", Params{TopLogProbs: 21}, 9},
		{"Bias: token 9", Params{Bias: map[int]float32{9: 1}}, 9},
		{"Bias: token -1", Params{Bias: map[int]float32{-1: 1}}, 9},
		{"Bias: token 3", Params{Bias: map[int]float32{3: nan}}, 9},
		{"Bias: token 3", Params{Bias: map[int]float32{3: inf}}, 9},
	} {
		err := tt.p.Check(tt.vocab)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %q", tt.p, err, tt.want)
		}
	}
}

// TestChoicesAreFrozen: choices and log-probabilities have the same bits on every machine.
func TestChoicesAreFrozen(t *testing.T) {
	r, h := rand.New(rand.NewPCG(3, 4)), fnv.New64a()
	for range 2000 {
		c := randomRequest(r).choose()
		fmt.Fprintf(h, "%d %x", c.Token, math.Float32bits(c.LogProb))
		for _, l := range c.Top {
			fmt.Fprintf(h, " %d %x", l.Token, math.Float32bits(l.LogProb))
		}
	}
	const want = 0xdfd0f33d97fbea0d
	if got := h.Sum64(); got != want {
		t.Errorf("hash of the choices %#x, want %#x", got, uint64(want))
	}
}

// vocabulary is the size of the benchmarks' vocabulary.
const vocabulary = 128256

func gaussian() []float32 {
	r, logits := rand.New(rand.NewPCG(1, 1)), make([]float32, vocabulary)
	for i := range logits {
		logits[i] = float32(3 * r.NormFloat64())
	}
	return logits
}

var settings = []struct {
	name string
	p    Params
}{
	{"greedy", Params{}},
	{"temperature", Params{Temperature: 1}},
	{"top-k and top-p", Params{Temperature: 0.7, TopK: 40, TopP: 0.95}},
	{"top-p", Params{Temperature: 0.7, TopP: 0.95}},
	{"all", Params{
		Temperature: 0.7, TopK: 1000, TopP: 0.95, MinP: 0.01, RepeatPenalty: 1.1, PresencePenalty: 0.5, FrequencyPenalty: 0.5,
		Bias: map[int]float32{5: 1, 7: negInf}, LogProb: true, TopLogProbs: 5,
	}},
}

// TestAllocations: a choice allocates nothing but Top.
func TestAllocations(t *testing.T) {
	logits := gaussian()
	for _, c := range settings {
		s := New(&c.p, vocabulary)
		want := float64(min(c.p.TopLogProbs, 1))
		if n := testing.AllocsPerRun(10, func() { s.Choose(logits, 3, nil) }); n > want {
			t.Errorf("%s: %v allocations, want %v", c.name, n, want)
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	logits := gaussian()
	for _, c := range settings {
		b.Run(c.name, func(b *testing.B) {
			s := New(&c.p, vocabulary)
			for i := range 1000 {
				s.Add(i*101, i%2 == 0)
			}
			for b.Loop() {
				s.Choose(logits, 3, nil)
			}
		})
	}
}
