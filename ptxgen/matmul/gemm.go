package matmul

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// GEMM multiplies many rows of activations by a matrix of weights on tensor cores, as prefill
// does:
//
//	y[m,n] = act(scale[m] * sum over k of x[m,k]*round(w[n,k]) + bias[n]) + residual[m,n]
//
// x is [M, elementwise.PaddedWidth(K)] in Input, as elementwise.Cast writes it. The weights are
// packed (see Packing), decoded to float32 and rounded to nearest even to Input. A weight of
// 65520 or more becomes infinite in f16.
//
// Order of additions: one chain of mma.sync m16n8k16 for each element of y, k ascending, 16
// products at a time, into a float32. Tile sizes and the number of rows do not change it, so a
// row has the same bits in every shape. The tensor core aligns the terms of a step to the
// largest and truncates.
//
// A CTA computes BlockM x BlockN elements of y, BlockK of k at a time. x streams into a ring of
// Stages tiles in shared memory. Weights that need no conversion stream with it; the others
// are loaded Ahead iterations early into registers, and decoded into one of two tiles while
// the tensor cores work on the other.
type GEMM struct {
	Format quant.Format // of the weights
	Input  quant.Format // F16 or BF16

	BlockM, BlockN, BlockK int
	Stages                 int // of the ring in shared memory
	WarpsM, WarpsN         int // warps along M and N
	CTAs                   int // per SM that registers leave room for, and that hide the latency of memory; 0: 1
	Ahead                  int // iterations between load and decoding of a weight: 1 or 2; 0: 1
}

// gemmShapes are the tile sizes that kernels are made for, from large to small.
var gemmShapes = []GEMM{
	{BlockM: 256, BlockN: 128, BlockK: 64, Stages: 3, WarpsM: 4, WarpsN: 2, CTAs: 1},
	{BlockM: 128, BlockN: 128, BlockK: 64, Stages: 3, WarpsM: 4, WarpsN: 2, CTAs: 1},
	{BlockM: 128, BlockN: 64, BlockK: 128, Stages: 3, WarpsM: 2, WarpsN: 2, CTAs: 1},
	{BlockM: 64, BlockN: 32, BlockK: 128, Stages: 4, WarpsM: 2, WarpsN: 2, CTAs: 2},
	{BlockM: 32, BlockN: 32, BlockK: 128, Stages: 4, WarpsM: 2, WarpsN: 2, CTAs: 4, Ahead: 2},
}

// as returns the shape for two formats.
func (s GEMM) as(format, input quant.Format) GEMM {
	s.Format, s.Input = format, input
	if format == quant.F32 { // a unit fills 32 registers, so fewer CTAs fit, and weights load one step ahead
		s.CTAs, s.Ahead = max(1, s.CTAs-1), 1
	}
	return s
}

// InputFormat returns the format that activations are rounded to for weights of a format.
func InputFormat(weights quant.Format) quant.Format {
	if weights == quant.BF16 {
		return quant.BF16
	}
	return quant.F16
}

func gemmSpecs() []kernel.Spec {
	var all []kernel.Spec
	for _, shape := range gemmShapes {
		for _, f := range Formats() {
			all = append(all, shape.as(f, InputFormat(f)))
		}
	}
	return all
}

// gemmNames caches the names of GEMM kernels: engines ask for them with each launch.
var gemmNames sync.Map // GEMM: string

// Name implements Spec.
func (s GEMM) Name() string {
	if name, ok := gemmNames.Load(s); ok {
		return name.(string)
	}
	name := strings.ToLower(fmt.Sprintf("gemm_%v_%v_%dx%dx%d_s%d_w%dx%d_a%d",
		s.Format, s.Input, s.BlockM, s.BlockN, s.BlockK, s.Stages, s.WarpsM, s.WarpsN, cmp.Or(s.Ahead, 1)))
	gemmNames.Store(s, name)
	return name
}

// The sizes that follow from the parameters. Both tiles hold 16-bit numbers.

func (s GEMM) threads() int  { return 32 * s.WarpsM * s.WarpsN }
func (s GEMM) rowBytes() int { return 2 * s.BlockK }
func (s GEMM) warpM() int    { return s.BlockM / s.WarpsM }
func (s GEMM) warpN() int    { return s.BlockN / s.WarpsN }
func (s GEMM) xTile() int    { return s.BlockM * s.rowBytes() }
func (s GEMM) wTile() int    { return s.BlockN * s.rowBytes() }

// direct reports whether the weights are copied as they are.
func (s GEMM) direct() bool { return s.Format == s.Input }

// stage is the size of a stage of the ring.
func (s GEMM) stage() int {
	if s.direct() {
		return s.xTile() + s.wTile()
	}
	return s.xTile()
}

// slabStride is the length of a row of the sums that a warp leaves in shared memory, in
// float32: 8 more than a row has, so that neither writing pairs nor reading quads meets
// bank conflicts.
func (s GEMM) slabStride() int { return s.warpN() + 8 }

// dynamic is how many bytes of dynamic shared memory a CTA takes: the ring and the two
// decoded tiles, or, afterwards, the sums.
func (s GEMM) dynamic() int {
	ring := s.Stages * s.stage()
	if !s.direct() {
		ring += 2 * s.wTile()
	}
	return max(ring, s.BlockM*s.WarpsN*s.slabStride()*4)
}

// shared is how many bytes of shared memory a CTA takes.
func (s GEMM) shared() int { return s.dynamic() + (sourceBytes+resultBytes)*s.BlockM }

// check holds the parameters to what the generator can do.
func (s GEMM) check() error {
	powersOfTwo := func(list ...int) bool {
		return !slices.ContainsFunc(list, func(n int) bool { return n < 1 || n&(n-1) != 0 })
	}
	_, packed := layouts[s.Format]
	for _, c := range []struct {
		broken bool
		rule   string
	}{
		{!packed, "Format is one that Packing knows"},
		{s.Input != quant.F16 && s.Input != quant.BF16, "Input is F16 or BF16"},
		{!powersOfTwo(s.BlockM, s.BlockN, s.BlockK, s.WarpsM, s.WarpsN), "blocks and warps are powers of two"},
		{s.BlockK < unitLen, "BlockK holds a unit"},
		{s.Stages < 2, "Stages is 2 or more"},
		{s.Ahead < 0 || s.Ahead > 2, "Ahead is 1 or 2"},
		{s.WarpsM*s.WarpsN > 32, "a CTA has 32 warps at most"},
		{s.BlockM < 16*s.WarpsM || s.BlockN < 16*s.WarpsN, "a warp has 16 rows and columns at least"},
		{s.BlockN > 128*s.WarpsN, "a warp has 128 columns at most"},
		{s.threads() < s.BlockK, "all threads together copy 8 rows at least"},
		{s.threads() > s.BlockM*s.chunks() || s.threads() > s.BlockN*s.BlockK/unitLen, "each thread copies a chunk and decodes a unit at least"},
	} {
		if c.broken {
			return fmt.Errorf("ptxgen: %s: not so: %s", s.Name(), c.rule)
		}
	}
	return nil
}

// Build implements Spec.
func (s GEMM) Build() (*ptx.Kernel, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.Input == quant.BF16 {
		return buildGEMM[ptx.BF16x2](s)
	}
	return buildGEMM[ptx.F16x2](s)
}

func buildGEMM[T ptx.Half2](s GEMM) (*ptx.Kernel, error) {
	b := begin(s.Name())
	b.Doc("y[m,n] = act(scale[m] * sum over k of x[m,k]*round(w[n,k]) + bias[n]) + residual[m,n]\nx in %v, w in packed rows of %v", s.Input, s.Format)
	g := newGemm(b, s)
	g.tabulate()
	b.Barrier()
	g.prepare()
	p := newGemmProduct[T](g)

	b.Comment("fill the ring but for one stage")
	for range s.Stages - 1 {
		g.fetch()
	}
	g.decodeFirst()
	p.first()
	b.For(b.U32(0), g.steps, b.U32(1), func(ptx.U32) { p.step() }, ptx.NoUnroll)
	b.CopyWait(0)
	b.Barrier()
	p.store()
	return b.Finish(ptx.MaxThreads(s.threads()), ptx.MinCTAs(cmp.Or(s.CTAs, 1)))
}
