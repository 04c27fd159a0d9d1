package ptxgen

import (
	"fmt"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Gemv multiplies a matrix by a few vectors, reading each weight once:
//
//	y[c][r] = act(cap(sum over k of W[r][k]*n(x[c])[k] + bias[r])) * up + residual[c][r]
//	up      = 1, or of Gated the sum over k of Up[r][k]*n(x[c])[k]
//
// where n is RMSNorm, LayerNorm or nothing. A row is taken in groups of 1024 weights,
// a unit of 32 a lane. The order of additions is the same for every row and column
// and depends on the format and K alone: within a unit in order, a lane's units in
// order (each warp of a row takes every split-th group), the lanes by a butterfly,
// the warps in order.
//
// The vectors lie in shared memory as the lanes read them, scaled. Of quantised
// weights only the stored quants are multiplied, as subnormal numbers (see decoder),
// and each unit's sum is put right afterwards:
//
//	sum of (scale*(q - centre) - min)*x = scale*(I + sum of +-q*x) - min*X
//
// with X and I = sums of multiples of x, computed once for all rows. Stored quants are
// positive, so for an x that does not change sign the partial sums would grow far
// beyond the result and lose bits; therefore of four quants two enter as top - q,
// with -x, which costs nothing. Each unit of x is scaled to about 1, so that neither
// the smallest x is lost nor the largest overflows. An infinite x gives NaN.
type Gemv struct {
	Format  quant.Format
	Columns int  // at most that many vectors: 1, 2, 4, 8 or 16; 0 means 1
	Gated   bool // two matrices
}

// gemvColumns are the numbers of vectors that kernels are made for.
var gemvColumns = []int{1, 2, 4, 8, 16}

func gemvSpecs() []Spec {
	var all []Spec
	for _, f := range quant.Formats() {
		for _, c := range gemvColumns {
			all = append(all, Gemv{f, c, false}, Gemv{f, c, true})
		}
	}
	return all
}

const (
	gemvThreads = 256 // of a CTA; a norm's order of additions depends on it
	gemvWarps   = gemvThreads / 32
	groupLen    = 32 * UnitLen
	groupQuads  = groupLen / 4
)

// columns is at most how many vectors the kernel takes.
func (s Gemv) columns() int { return orElse(s.Columns, 1) }

// streams is how many rows of weights a warp reads at a time, rows how many of the
// result it computes from them.
func (s Gemv) streams() int {
	n := 4
	if s.columns() > 2 || !decoderOf(s.Format).quantised() {
		n = 2
	}
	if !s.Gated && (s.columns() > 8 || s.Format == quant.F32) {
		n = 1
	}
	return n
}

func (s Gemv) rows() int {
	if s.Gated {
		return s.streams() / 2
	}
	return s.streams()
}

// Name implements Spec.
func (s Gemv) Name() string {
	kind := "gemv"
	if s.Gated {
		kind = "gemv_gated"
	}
	return fmt.Sprintf("%s_%s_c%d", kind, strings.ToLower(s.Format.String()), s.columns())
}

// splitOf is how many warps share a row of so many groups.
func splitOf(groups int) int {
	switch {
	case groups >= 8:
		return 4
	case groups >= 2:
		return 2
	}
	return 1
}

// Depth is the longest serial accumulation and the depth of the trees over rows of k
// weights, for the bound of the rounding error.
func (s Gemv) Depth(k int) int {
	groups := (k + groupLen - 1) / groupLen
	split := splitOf(groups)
	return UnitLen/2 + 5 + (groups+split-1)/split + 5 + split
}

// Build implements Spec.
func (s Gemv) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	if c := s.columns(); c < 1 || c > 16 || c&(c-1) != 0 {
		b.Failf("%d columns, want 1, 2, 4, 8 or 16", c)
		return nil, b.Err()
	}
	b.Doc("y[c][r] = epilogue of the sum over k of W[r][k] * n(x[c])[k], W in packed rows of %v", s.Format)
	g := newGemv(b, s)
	b.Comment("the weights of the first step are under way while x is staged")
	g.point(g.tile)
	for i := range g.units {
		g.fetch(i)
	}
	g.moments()
	b.While(func() ptx.Pred { return g.tile.Lt(g.tiles) }, func() {
		for i := range g.sums {
			ptx.Set(g.sums[i], b.F32(0))
		}
		first := ptx.Var(b.U32(0))
		b.While(func() ptx.Pred { return first.Lt(g.groups) }, func() {
			fresh := g.chunk.Lt(g.groups).Or(g.tile.Eq(b.BlockX()))
			b.If(fresh, func() {
				b.Barrier()
				g.stage(first)
				b.Barrier()
			})
			end := first.Add(g.chunk).Min(g.groups)
			b.While(func() ptx.Pred { return g.step.Lt(end) }, func() { g.accumulate(first) }, ptx.NoUnroll)
			ptx.Set(first, end)
		}, ptx.NoUnroll)
		g.finish()
		ptx.Set(g.tile, g.tile.Add(b.GridX()))
		ptx.Set(g.step, g.part)
	}, ptx.NoUnroll)
	resident := 2 // CTAs an SM, which leaves a thread 128 registers
	if s.columns() > 4 || s.Gated && s.Format == quant.F32 {
		resident = 1
	}
	return b.Finish(ptx.MaxThreads(gemvThreads), ptx.MinCTAs(resident))
}
