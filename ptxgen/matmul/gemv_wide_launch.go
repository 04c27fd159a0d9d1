package matmul

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// digitsAt is where in a set begins what the format takes of it.
func (s wideKernel) digitsAt() int {
	if decoderOf(s.Format).halves() {
		return wideDigits
	}
	return wideMeans
}

// digitsBytes is how much that is.
func (s wideKernel) digitsBytes() int {
	if decoderOf(s.Format).halves() {
		return wideSums - wideDigits
	}
	return wideMeans16 - wideMeans
}

// meansAt is where the means are in that.
func (s wideKernel) meansAt() int {
	if decoderOf(s.Format).halves() {
		return wideMeans16 - wideDigits
	}
	return wideMeans
}

// widePlan is how a launch is cut up.
type widePlan struct {
	parts     int // of a row
	slices    int // of a row
	sets      int // of vectors
	ctas      int // of a set and slice
	share     int // tiles of a CTA
	shared    int
	workspace int
}

// planned cuts a launch up: a row into slices as long as there are SMs for them.
func (s wideKernel) planned(k *ptx.Kernel, a GemvBatchArgs) (p widePlan, err error) {
	if err := s.batch().checkSizes(k, a); err != nil {
		return p, err
	}
	p = widePlan{parts: partsOf(Packing{s.Format, a.K}.blocks()), slices: 1, sets: host.CeilDiv(a.Columns, wideVectors)}
	tiles := host.CeilDiv(a.Rows, wideRows)
	p.ctas = host.CeilDiv(tiles, s.teams()) // with a round each
	for p.slices < p.parts && 2*p.slices*p.ctas*p.sets <= a.SMs {
		p.slices *= 2
	}
	if a.SMs > 0 {
		p.ctas = min(p.ctas, max(1, a.SMs/(p.sets*p.slices)))
	}
	p.share = host.CeilDiv(tiles, p.ctas)
	p.ctas = host.CeilDiv(tiles, p.share)
	p.shared = s.sharedBytes(p.parts / p.slices)
	if shared := k.MaxDynamic(cmp.Or(a.Shared, 99<<10)); p.shared > shared {
		return p, host.Errorf(k, "Shared", "%d bytes are too few for rows of %d weights, which take %d", shared, a.K, p.shared)
	}
	pairs := p.slices - 1 // that meet
	p.workspace = 4 * a.Columns * tiles * pairs * wideRows * s.batch().matrices()
	if p.workspace > 4*mostSums {
		return p, host.Errorf(k, "Columns", "%d of %d rows in %d slices leave more sums than are counted in 32 bits", a.Columns, a.Rows, p.slices)
	}
	return p, nil
}

// fits reports whether there is such a kernel, and room for its longest slices.
func (s wideKernel) fits(k, shared int) bool {
	if !slices.Contains(wideFormats, s.Format) || wholeBlocks(s.Format, k) != nil {
		return false
	}
	return s.sharedBytes(partsOf(Packing{s.Format, k}.blocks())) <= shared-staticLimit
}

// sharedBytes is the shared memory for slices of so many parts.
func (s wideKernel) sharedBytes(parts int) int {
	levels := max(1, bits.TrailingZeros(uint(parts)))
	return wideStages*s.digitsBytes() + wideWarps*s.ringBytes() + levels*wideLevel
}

// ringBytes is the size of a warp's ring.
func (s wideKernel) ringBytes() int { return wideRing * decoderOf(s.Format).blockBytes() }

// Digits implements BatchKernel.
func (s wideKernel) Digits() Digits { return Digits{Wide: true} }

// Workspace implements BatchKernel.
func (s wideKernel) Workspace(k *ptx.Kernel, a GemvBatchArgs) (int, error) {
	a.YStride = cmp.Or(a.YStride, a.Rows)
	p, err := s.planned(k, a)
	return p.workspace, err
}

// Launch implements BatchKernel.
func (s wideKernel) Launch(k *ptx.Kernel, a GemvBatchArgs) (ptx.Launch, error) {
	a.YStride = cmp.Or(a.YStride, a.Rows)
	p, err := s.planned(k, a)
	if err == nil {
		err = s.batch().check(k, a)
	}
	if err != nil {
		return ptx.Launch{}, err
	}
	if a.Softcap != 0 && math.Abs(float64(a.Softcap)) < 0x1p-126 {
		return ptx.Launch{}, host.Errorf(k, "Softcap", "%g is too small to divide by, want 0 or at least 2^-126", a.Softcap)
	}
	if p.workspace > 0 && a.Workspace == 0 {
		return ptx.Launch{}, host.Errorf(k, "Workspace", "no address, where %d bytes are needed", p.workspace)
	}
	params := append(s.batch().params(a, p.parts, p.share, p.sets), &wideParams{Parts: ptx.Uint(p.parts / p.slices), Workspace: ptx.Addr(a.Workspace)})
	return k.Launch([3]uint32{uint32(p.ctas * p.sets), 1, uint32(p.slices)}, 32*wideWarps, p.shared, params...)
}
