package kernelcases

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/quant"
)

// combineCase runs the combine kernel alone on random results of decode kernels, so that
// long sequences are cheap.
type combineCase struct {
	name, reason string
	headDim      int
	lengths      []int
	window       int
}

func combineCases() []harness.Case {
	var all []harness.Case
	for _, c := range []combineCase{
		{"pages=1", "a single page is copied", 32, []int{64, 1}, 0},
		{"pages=16", "as many pages as partial sums, and one page less", 64, []int{16 * attention.PageTokens, 15*attention.PageTokens - 1}, 0},
		{"pages=50", "groups of four pages and a remainder, unequal for the partial sums", 128, []int{50*attention.PageTokens - 3, 49 * attention.PageTokens, 48*attention.PageTokens + 1}, 0},
		{"pages=150", "each lane reads several pages for the maximum", 64, []int{150 * attention.PageTokens, 97 * attention.PageTokens}, 0},
		{"window", "pages before the window are not read", 96, []int{140 * attention.PageTokens, 70}, 70*attention.PageTokens + 7},
		{"not active", "a sequence without positions is not written", 256, []int{0, 20 * attention.PageTokens}, 0},
	} {
		all = append(all, harness.Case{
			Operation: "attention combine", Format: "F32", Name: c.name, Reason: c.reason,
			Run: func(r *harness.Fixture) { checkAttentionCombine(r, c) },
		})
	}
	return all
}

// pages returns the visible pages of a sequence.
func (c combineCase) pages(sequence int) (from, to int) {
	length := c.lengths[sequence]
	if c.window > 0 && length > c.window {
		from = (length - c.window) / attention.PageTokens
	}
	return from, (length + attention.PageTokens - 1) / attention.PageTokens
}

func checkAttentionCombine(r *harness.Fixture, c combineCase) {
	const heads = 2
	maxPages, sequences := 0, len(c.lengths)
	for s := range c.lengths {
		_, to := c.pages(s)
		maxPages = max(maxPages, to+1)
	}
	spec := attention.Combine(c.headDim)
	scratch := r.Input("scratch", int(attention.ScratchBytes(c.headDim, sequences, heads, maxPages)))
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
			parts := make([]splitResult, to-from)
			for i := range parts {
				parts[i] = splitResult{most: 8 * r.Vector(harness.Gaussian, 1)[0], sum: 1 + float32(r.Rand().IntN(63)), o: r.Vector(harness.Gaussian, c.headDim)}
				at := row*maxPages + from + i
				scratch.SetF32s(8*at, []float32{parts[i].most, parts[i].sum}).SetF32s(sums+4*c.headDim*at, parts[i].o)
			}
			want[row], bound[row] = combineReference(parts, c.headDim)
		}
	}
	r.Launch(spec.Launch(r.Kernel(spec), attention.CombineArgs{
		Scratch: scratch.Addr(), Lengths: r.U32s("lengths", lengths).Addr(), Out: out.Addr(),
		Sequences: sequences, Heads: heads, OutStride: stride, MaxPages: maxPages, Window: c.window,
	}))
	for row := range want {
		at := 4 * (row/heads*stride + row%heads*c.headDim)
		if c.lengths[row/heads] == 0 {
			out.Untouched(at, 4*c.headDim)
			continue
		}
		r.Within(fmt.Sprintf("row %d", row), out.FloatsAt(quant.F32, at, c.headDim), want[row], bound[row])
	}
}

// splitResult is the result of a decode kernel for one page and head: maximum, sum of
// weights and unnormalized output.
type splitResult struct {
	most, sum float32
	o         []float32
}

// combineReference returns the combined output and its error bound, in unit roundoffs: 4
// per weight for the exponential, 2|d|·log2(e) for its argument d, and 1 per addition.
func combineReference(parts []splitResult, headDim int) (want, bound []float64) {
	want, bound = make([]float64, headDim), make([]float64, headDim)
	most, total, slack := math.Inf(-1), 0.0, 0.0
	for _, p := range parts {
		most = max(most, float64(p.most))
	}
	for _, p := range parts {
		d := float64(p.most) - most
		w := math.Exp(d)
		roundoffs := 4 + 2*math.Abs(d)*math.Log2E + float64(len(parts)/16+17)
		total += w * float64(p.sum)
		slack += float64(w*float64(p.sum)) * roundoffs
		for i, x := range p.o {
			want[i] += w * float64(x)
			bound[i] += float64(w*math.Abs(float64(x))) * roundoffs
		}
	}
	for i := range want {
		want[i] /= total
		bound[i] = harness.UnitRoundoff * (bound[i]/total + math.Abs(want[i])*(slack/total+2))
	}
	return want, bound
}
