package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// GEMMArgs are a launch's arguments.
//
// With Offsets, W holds one matrix for each expert, ExpertBytes apart, and expert e takes
// entries Offsets[e] to Offsets[e+1] of Order: entry i is row Order[i]/RowsPerX of X and
// makes row Order[i] of Y. No expert may have more than M entries. Bias has a row for
// each expert.
type GEMMArgs struct {
	X     Address // Input [rows, Padded(K)], as Narrow makes it
	Scale Address // f32, a power of two for each row of X; or 0, for 1
	W     Address // packed [N, K]
	Y     Address // f32 [rows, N], rows YStride apart

	M, N, K int
	YStride int // elements; 0 means N

	Bias       Address    // f32 [N], or 0: added before the activation
	Activation Activation //
	Residual   Address    // f32, laid out as Y, which it may be; or 0

	Offsets     Address // u32 [Experts+1], or 0
	Order       Address // u32, or 0 without Offsets
	Experts     int     // 0 means 1
	RowsPerX    int     // entries that share a row of X; 0 means 1
	ExpertBytes int
}

// maxTiles is how many CTAs a grid has along y and z.
const maxTiles = 65535

// Launch makes a launch.
func (s GEMM) Launch(k *ptx.Kernel, a GEMMArgs) (ptx.Launch, error) {
	a.YStride, a.Experts, a.RowsPerX = orElse(a.YStride, a.N), orElse(a.Experts, 1), orElse(a.RowsPerX, 1)
	if err := s.checkArgs(k, a); err != nil {
		return ptx.Launch{}, err
	}
	p := Packing{s.Format, a.K}
	grid := [3]uint32{uint32(ceilDiv(a.M, s.BlockM)), uint32(ceilDiv(a.N, s.BlockN)), uint32(a.Experts)}
	return k.Launch(grid, s.threads(), s.dynamic(),
		ptx.Addr(a.X), ptx.Addr(a.Scale), ptx.Addr(a.W), ptx.Addr(a.Y), ptx.Addr(a.Bias), ptx.Addr(a.Residual),
		ptx.Uint(a.M), ptx.Uint(a.N), ptx.Uint(p.Units()), ptx.Uint(p.tileBytes()),
		ptx.Uint(a.YStride), ptx.Uint(uint32(a.Activation)),
		ptx.Addr(a.Offsets), ptx.Addr(a.Order), ptx.Uint(a.RowsPerX), ptx.Addr(Address(a.ExpertBytes)))
}

func (s GEMM) checkArgs(k *ptx.Kernel, a GEMMArgs) error {
	if err := firstError(checkK(k, s.Format, a.K), checkBounds(k, bound{"M", a.M, 1, maxSize - s.BlockM},
		bound{"N", a.N, 1, s.BlockN * maxTiles}, bound{"YStride", a.YStride, a.N, maxSize},
		bound{"Activation", int(a.Activation), 0, int(GELU)}, bound{"Experts", a.Experts, 1, maxTiles},
		bound{"RowsPerX", a.RowsPerX, 1, maxSize}, bound{"ExpertBytes", a.ExpertBytes, 0, math.MaxInt})); err != nil {
		return err
	}
	if err := checkPointers(k, pointer{"X", a.X}, pointer{"W", a.W}, pointer{"Y", a.Y}); err != nil {
		return err
	}
	switch {
	case a.Experts > 1 && a.Offsets == 0:
		return argumentError(k, "Offsets", "no address, for %d experts", a.Experts)
	case a.Offsets != 0 && a.Order == 0:
		return argumentError(k, "Order", "no address, though there are Offsets")
	case a.ExpertBytes%rowAlign != 0:
		return argumentError(k, "ExpertBytes", "%d is no multiple of %d", a.ExpertBytes, rowAlign)
	}
	return nil
}

// GEMMFor chooses the kernel for a product of m rows with n columns on a device of so
// many SMs, whose CTAs may have so many bytes of shared memory. The choice has no part
// in the results' bits.
//
// It compares times by a rough model: an SM works through its CTAs' tiles at a rate that
// grows with the size of the tile, since a larger one reads less for each product.
func GEMMFor(format, input quant.Format, m, n, sms, shared int) GEMM {
	best, least := gemmShapes[len(gemmShapes)-1], math.Inf(1)
	for _, s := range gemmShapes {
		if s.as(format, input).Shared() > shared {
			continue
		}
		tiles := ceilDiv(m, s.BlockM) * ceilDiv(n, s.BlockN)
		area := float64(s.BlockM * s.BlockN)
		read := float64(s.BlockM+s.BlockN) * 64 // as much time as so many products
		if time := float64(ceilDiv(tiles, max(sms, 1))) * (area + read); time < least {
			best, least = s, time
		}
	}
	return best.as(format, input)
}
