package kernelcases

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// mergeCase is AttentionCombine alone, on what AttentionDecode leaves of so many
// pages: long sequences, whose pages would take long to compute.
type mergeCase struct {
	name, reason string
	headDim      int
	lengths      []int
	window       int
}

const mergePage = 64

func mergeCases() []harness.Case {
	var all []harness.Case
	for _, c := range []mergeCase{
		{"pages=1", "one page is what it is", 32, []int{64, 1}, 0},
		{"pages=16", "as many pages as there are sums, and one less", 64, []int{16 * mergePage, 15*mergePage - 1}, 0},
		{"pages=50", "rounds of four pages and what is left, of sums that have more and fewer", 128, []int{50*mergePage - 3, 49 * mergePage, 48*mergePage + 1}, 0},
		{"pages=150", "every lane has several pages for the maximum", 64, []int{150 * mergePage, 97 * mergePage}, 0},
		{"window", "pages before the window are not read", 96, []int{140 * mergePage, 70}, 70*mergePage + 7},
		{"not active", "a sequence without positions is left alone", 256, []int{0, 20 * mergePage}, 0},
	} {
		all = append(all, harness.Case{
			Operation: "attention combine", Format: "F32", Name: c.name, Reason: c.reason,
			Run: func(r *harness.Fixture) { checkMerge(r, c) },
		})
	}
	return all
}

// pages are the visible ones of a sequence.
func (c mergeCase) pages(sequence int) (from, to int) {
	length := c.lengths[sequence]
	if c.window > 0 && length > c.window {
		from = (length - c.window) / mergePage
	}
	return from, (length + mergePage - 1) / mergePage
}

func checkMerge(r *harness.Fixture, c mergeCase) {
	const heads = 2
	maxPages, sequences := 0, len(c.lengths)
	for s := range c.lengths {
		_, to := c.pages(s)
		maxPages = max(maxPages, to+1)
	}
	spec := ptxgen.AttentionCombine{HeadDim: c.headDim}
	decode := ptxgen.AttentionDecode{KV: quant.F32, HeadDim: c.headDim}
	scratch := r.Input("scratch", int(decode.ScratchBytes(sequences, heads, maxPages)))
	sums := (8*sequences*heads*maxPages + 15) / 16 * 16
	stride := heads*c.headDim + 4
	out := r.Output("out", 4*sequences*stride)
	lengths := make([]uint32, sequences)
	want, bound := make([][]float64, sequences*heads), make([][]float64, sequences*heads)
	for s, n := range c.lengths {
		lengths[s] = uint32(n)
		for h := range heads {
			row := s*heads + h
			from, to := c.pages(s)
			parts := make([]attentionPage, to-from)
			for i := range parts {
				parts[i] = attentionPage{most: 8 * r.Vector(harness.Gaussian, 1)[0], sum: 1 + float32(r.Rand().IntN(63)), o: r.Vector(harness.Gaussian, c.headDim)}
				at := row*maxPages + from + i
				scratch.SetF32s(8*at, []float32{parts[i].most, parts[i].sum}).SetF32s(sums+4*c.headDim*at, parts[i].o)
			}
			want[row], bound[row] = mergeRef(parts, c.headDim)
		}
	}
	r.Launch(spec.Launch(r.Kernel(spec), ptxgen.AttentionCombineArgs{
		Scratch: scratch.Addr(), Lengths: r.U32s("lengths", lengths).Addr(), Out: out.Addr(),
		Sequences: sequences, Heads: heads, OutStride: stride, MaxPages: maxPages, Window: c.window,
	}))
	for row := range want {
		at := 4 * (row/heads*stride + row%heads*c.headDim)
		if c.lengths[row/heads] == 0 {
			out.Untouched(at, 4*c.headDim)
			continue
		}
		r.Within(fmt.Sprintf("row %d", row), decodeFloats(quant.F32, out.Range(at, 4*c.headDim)), want[row], bound[row])
	}
}

// attentionPage is what AttentionDecode leaves of a page of one head.
type attentionPage struct {
	most, sum float32
	o         []float32
}

// mergeRef is the merged output, and a bound: each weight is off by two units for the
// power and by one for each unit of its exponent, each sum by one an addition.
func mergeRef(parts []attentionPage, headDim int) (want, bound []float64) {
	want, bound = make([]float64, headDim), make([]float64, headDim)
	most, total, slack := math.Inf(-1), 0.0, 0.0
	for _, p := range parts {
		most = max(most, float64(p.most))
	}
	for _, p := range parts {
		d := float64(p.most) - most
		w := math.Exp(d)
		units := 4 + 2*math.Abs(d)*math.Log2E + float64(len(parts)/16+17)
		total += w * float64(p.sum)
		slack += float64(w*float64(p.sum)) * units
		for i, x := range p.o {
			want[i] += w * float64(x)
			bound[i] += float64(w*math.Abs(float64(x))) * units
		}
	}
	for i := range want {
		want[i] /= total
		bound[i] = harness.UnitRoundoff * (bound[i]/total + math.Abs(want[i])*(slack/total+2))
	}
	return want, bound
}
