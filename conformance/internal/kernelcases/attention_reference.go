package kernelcases

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// attentionRef is the float64 result of attention on inputs rounded as the kernels round
// them, a bound of each element's error, and the result of a baseline in the kernels'
// precision.
type attentionRef struct {
	want, bound []float64
	baseline    []float32
}

// attentionErrors models the rounding of the kernels.
type attentionErrors struct {
	weight  float64 // relative error of a weight before it is multiplied with V
	tiny    float64 // absolute error of a weight there
	depth   func(length int) (score, output int)
	queries func([]float32) []float32 // rounding of the kernels
	keys    func([]float32) []float32
	block   int // keys per block
}

// reference computes all queries of a sequence: [queries][heads × headDim].
func (c attentionCase) reference(d attentionData, sequence int) attentionRef {
	var ref attentionRef
	u := c.errors()
	n, heads := c.lengths[sequence], c.heads()
	keys, values := u.keys(d.k[sequence]), u.keys(d.v[sequence])
	for i := range c.queries[sequence] {
		position := n - c.queries[sequence] + i
		from := c.seenFrom(position)
		for h := range heads {
			q := u.queries(d.q[sequence][(i*heads+h)*c.headDim:][:c.headDim])
			rows := func(x []float32) []float32 {
				return x[(h/c.group*n+from)*c.headDim : (h/c.group*n+position+1)*c.headDim]
			}
			sink := float32(math.Inf(-1))
			if d.sinks != nil {
				sink = d.sinks[h]
			}
			ref.query(c, q, rows(keys), rows(values), sink, u)
		}
	}
	return ref
}

// query appends the output of one query. keys and values are the rows that it sees. The
// bound is 8 standard deviations of the errors of weights and additions, plus the errors
// of rounding weights and the result.
func (ref *attentionRef) query(c attentionCase, q, keys, values []float32, sink float32, u attentionErrors) {
	n, dim := len(keys)/c.headDim, c.headDim
	scoreDepth, outDepth := u.depth(n)
	weights, errors := attentionWeights(c.scoring(), q, keys, sink, u, scoreDepth)
	values = slices.Concat(values, make([]float32, dim)) // of the sink
	sums := make([]valueSums, dim)
	for j, w := range weights {
		for e := range sums {
			v := float64(values[j*dim+e])
			s := &sums[e]
			s.y += float64(w * v)
			s.prefix = max(s.prefix, math.Abs(s.y))
			s.absolute += w * math.Abs(v)
			s.norm += square(w * v)
			s.tiny += math.Abs(v)
		}
	}
	for j, w := range weights {
		for e := range sums {
			sums[e].moved += square(w * errors[j] * (float64(values[j*dim+e]) - sums[e].y))
		}
	}
	largest := slices.Max(weights[:n]) // its weight before the division is 1
	first := len(ref.want)
	for _, s := range sums {
		norm := math.Sqrt(s.norm)
		bound := 8*math.Sqrt(s.moved) + 8*tensorCoreError*math.Sqrt(float64(outDepth))*max(norm, s.prefix) + 4*harness.UnitRoundoff*math.Abs(s.y)
		bound += min(3*u.weight*norm, u.weight*s.absolute) + u.tiny*s.tiny*largest
		ref.want, ref.bound = append(ref.want, s.y), append(ref.bound, bound)
	}
	sc := c.scoring()
	ref.baseline = append(ref.baseline, worstBaseline(ref.want[first:], func(random *rand.Rand) []float32 {
		return baselineAttention(q, keys, values, sink, sc.Scale, sc.Softcap, u, random)
	})...)
}

// valueSums holds the sums of one element over all positions. w is the weight of a
// position.
type valueSums struct {
	y        float64 // Σ w·v
	prefix   float64 // the largest partial sum
	absolute float64 // Σ |w·v|
	norm     float64 // Σ (w·v)²
	tiny     float64 // Σ |v|
	moved    float64 // Σ (w·ε·(v − y))², where ε is the relative error of a weight
}

// attentionWeights returns the softmax weights of all positions and of the sink, and their relative errors
// from the score, the softcap and the exponential. Without a sink, sink is -Inf.
func attentionWeights(sc attention.Scoring, q, keys []float32, sink float32, u attentionErrors, depth int) (weights, errors []float64) {
	dim, scale, cap := len(q), float64(sc.Scale), float64(sc.Softcap)
	most, total := math.Inf(-1), 0.0
	for at := 0; at < len(keys); at += dim {
		dot := harness.Dot(q, keys[at:at+dim])
		s := dot.Y * scale
		e := tensorCoreError*math.Sqrt(float64(depth))*dot.P*scale + harness.UnitRoundoff*math.Abs(s)
		if cap > 0 {
			s = cap * math.Tanh(s/cap)
			e += harness.UnitRoundoff * math.Abs(s)
		}
		weights, errors, most = append(weights, s), append(errors, e), max(most, s)
	}
	if s := float64(sink); s > math.Inf(-1) {
		weights, errors = append(weights, s), append(errors, harness.UnitRoundoff*math.Abs(s))
	}
	for j, s := range weights {
		weights[j] = math.Exp(s - most)
		errors[j] += harness.UnitRoundoff * (4 + math.Abs(s-most))
		total += weights[j]
	}
	for j := range weights {
		weights[j] /= total
	}
	return weights, errors
}

func square(x float64) float64 { return x * x }

// baselineRuns is the number of random orders of addition that the baseline tries.
const baselineRuns = 8

// worstBaseline returns, per element, the result that is farthest from want.
func worstBaseline(want []float64, run func(*rand.Rand) []float32) []float32 {
	random := newRand(1)
	worst := run(random)
	for range baselineRuns - 1 {
		for e, x := range run(random) {
			if math.Abs(float64(x)-want[e]) > math.Abs(float64(worst[e])-want[e]) {
				worst[e] = x
			}
		}
	}
	return worst
}

// baselineAttention computes one query in a random order, with sums as tensor cores and float32 have them. Its exponential is as
// accurate as a device's, and it rounds weights as the kernels do.
func baselineAttention(q, keys, values []float32, sink, scale, cap float32, u attentionErrors, random *rand.Rand) []float32 {
	dim := len(q)
	n, elements := len(keys)/dim, random.Perm(dim)
	scores := make([]float32, n)
	for j := range scores {
		s := tensorCoreDot(q, keys[j*dim:(j+1)*dim], elements) * scale
		if cap > 0 {
			s = cap * float32(math.Tanh(float64(s/cap)))
		}
		scores[j] = s
	}
	out, sum, most := make([]float32, dim), float32(0), float32(math.Inf(-1))
	for first := 0; first < n; first += splitBlocks * u.block {
		end := min(first+splitBlocks*u.block, n)
		o, l, m := make([]float32, dim), float32(0), float32(math.Inf(-1))
		for begin := first; begin < end; begin += u.block {
			part := scores[begin:min(begin+u.block, end)]
			top := max(m, slices.Max(part))
			shrink := float32(math.Exp(float64(m - top)))
			m, l = top, float32(l*shrink)
			for e := range o {
				o[e] *= shrink
			}
			var products [][]float64 // per element, of positions that a tensor core adds together
			for _, j := range random.Perm(len(part)) {
				w := float32(math.Exp(float64(part[j]-m)) * (1 + 0x1p-22*(2*random.Float64()-1)))
				l += w
				products = addTensorCore(o, products, roundWeight(w, u), values[(begin+j)*dim:(begin+j+1)*dim])
			}
			for e, x := range products {
				o[e] = tensorCoreSum(o[e], x)
			}
		}
		top := max(most, m)
		before, now := float32(math.Exp(float64(most-top))), float32(math.Exp(float64(m-top)))
		most, sum = top, float32(sum*before)+float32(now*l)
		for e := range out {
			out[e] = float32(out[e]*before) + float32(now*o[e])
		}
	}
	sum += float32(math.Exp(float64(sink - most)))
	for e := range out {
		out[e] /= sum
	}
	return out
}

// tensorCoreTerms is the number of products that a tensor core adds at a time.
const tensorCoreTerms = 16

// tensorCoreDot adds as a tensor core does, in the given order.
func tensorCoreDot(a, b []float32, order []int) (sum float32) {
	for group := range slices.Chunk(order, tensorCoreTerms) {
		var products []float64
		for _, e := range group {
			products = append(products, float64(a[e])*float64(b[e]))
		}
		sum = tensorCoreSum(sum, products)
	}
	return sum
}

// addTensorCore appends w·row to the products of each element. Once there are tensorCoreTerms of them, it adds them to out.
func addTensorCore(out []float32, products [][]float64, w float32, row []float32) [][]float64 {
	if products == nil {
		products = make([][]float64, len(row))
	}
	for e, v := range row {
		products[e] = append(products[e], float64(w)*float64(v))
		if len(products[e]) == tensorCoreTerms {
			out[e], products[e] = tensorCoreSum(out[e], products[e]), products[e][:0]
		}
	}
	return products
}

// tensorCoreSum returns sum plus the products. Each term loses what is below 25 bits from the largest one's first, and the result is
// rounded toward 0.
func tensorCoreSum(sum float32, products []float64) float32 {
	terms := append([]float64{float64(sum)}, products...)
	largest := 0.0
	for _, x := range terms {
		largest = max(largest, math.Abs(x))
	}
	if largest == 0 || math.IsInf(largest, 0) || math.IsNaN(largest) {
		return sum
	}
	unit, total := math.Ldexp(1, math.Ilogb(largest)-24), 0.0
	for _, x := range terms {
		total += math.Trunc(x/unit) * unit
	}
	y := float32(total)
	if math.Abs(float64(y)) > math.Abs(total) {
		y = math.Nextafter32(y, 0)
	}
	return y
}

func roundWeight(w float32, u attentionErrors) float32 {
	if u.tiny == 0 {
		return float16.RoundBF16(w)
	}
	return float16.RoundF16(w)
}

// tensorQuery rounds a query as FlashAttention does: to 16 bits, after scaling by the power
// of two that gives its largest element the exponent.
func tensorQuery(exponent int, round func(float32) float32) func([]float32) []float32 {
	return func(q []float32) []float32 {
		most := 0.0
		for _, x := range q {
			most = max(most, math.Abs(float64(x)))
		}
		shift := 0
		if most > 0 {
			shift = exponent - math.Ilogb(most)
		}
		out := make([]float32, len(q))
		for i, x := range q {
			out[i] = float32(math.Ldexp(float64(round(float32(math.Ldexp(float64(x), shift)))), -shift))
		}
		return out
	}
}
