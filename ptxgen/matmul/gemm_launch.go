package matmul

import (
	"cmp"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// GEMMArgs are the arguments of a launch of GEMM.
//
// With Offsets, W holds one matrix for each expert, ExpertBytes apart, and expert e takes
// entries Offsets[e] to Offsets[e+1] of Order, at most M. Entry i reads row Order[i]/RowsPerX
// of X and writes row Order[i] of Y. Bias has a row for each expert.
type GEMMArgs struct {
	X     ptx.Address // [rows, elementwise.PaddedWidth(K)], as elementwise.Cast writes it
	Scale ptx.Address // f32, a power of two for each row of X; 0: all are 1
	W     ptx.Address // packed [N, K]
	Y     ptx.Address // f32 [rows, N], rows YStride apart

	M, N, K int
	YStride int // elements; 0: N

	Bias       ptx.Address // f32 [N], added before the activation; 0: none
	Activation elementwise.Activation
	Residual   ptx.Address // f32, with the stride of Y; may be Y; 0: none

	Offsets     ptx.Address // u32 [Experts+1]; 0: no experts
	Order       ptx.Address // u32 [Offsets[Experts]]; only with Offsets
	Experts     int         // 0: 1
	RowsPerX    int         // entries that share a row of X; 0: 1
	ExpertBytes int
}

// maxTiles is the largest number of CTAs of a grid along y and z.
const maxTiles = 65535

// Launch makes a launch.
func (s GEMM) Launch(k *ptx.Kernel, a GEMMArgs) (ptx.Launch, error) {
	a.YStride, a.Experts, a.RowsPerX = cmp.Or(a.YStride, a.N), cmp.Or(a.Experts, 1), cmp.Or(a.RowsPerX, 1)
	if err := s.checkArgs(k, a); err != nil {
		return ptx.Launch{}, err
	}
	p := Packing{s.Format, a.K}
	grid := [3]uint32{uint32(host.CeilDiv(a.M, s.BlockM)), uint32(host.CeilDiv(a.N, s.BlockN)), uint32(a.Experts)}
	return k.Launch(grid, s.threads(), s.dynamic(), &gemmParams{
		X: ptx.Addr(a.X), Scale: ptx.Addr(a.Scale), W: ptx.Addr(a.W), Y: ptx.Addr(a.Y), Bias: ptx.Addr(a.Bias), Residual: ptx.Addr(a.Residual),
		M: ptx.Uint(a.M), N: ptx.Uint(a.N), Units: ptx.Uint(p.units()), TileBytes: ptx.Uint(p.tileBytes()),
		YStride: ptx.Uint(a.YStride), Activation: ptx.Uint(uint32(a.Activation)),
		Offsets: ptx.Addr(a.Offsets), Order: ptx.Addr(a.Order), RowsPerX: ptx.Uint(a.RowsPerX), ExpertBytes: ptx.Uint64(uint64(a.ExpertBytes)),
	})
}

func (s GEMM) checkArgs(k *ptx.Kernel, a GEMMArgs) error {
	if err := host.Valid(k, checkK(s.Format, a.K), host.Bound("M", a.M, 1, host.MaxSize-s.BlockM),
		host.Bound("N", a.N, 1, s.BlockN*maxTiles), host.Bound("YStride", a.YStride, a.N, host.MaxSize),
		host.Bound("Activation", int(a.Activation), 0, int(elementwise.GELU)), host.Bound("Experts", a.Experts, 1, maxTiles),
		host.Bound("RowsPerX", a.RowsPerX, 1, host.MaxSize), host.Bound("ExpertBytes", a.ExpertBytes, 0, math.MaxInt)); err != nil {
		return err
	}
	if err := host.Valid(k, host.NonNil("X", a.X), host.NonNil("W", a.W), host.NonNil("Y", a.Y)); err != nil {
		return err
	}
	switch {
	case a.Experts > 1 && a.Offsets == 0:
		return host.Errorf(k, "Offsets", "no address, for %d experts", a.Experts)
	case a.Offsets != 0 && a.Order == 0:
		return host.Errorf(k, "Order", "no address, though there are Offsets")
	case a.ExpertBytes%rowAlign != 0:
		return host.Errorf(k, "ExpertBytes", "%d is no multiple of %d", a.ExpertBytes, rowAlign)
	}
	return nil
}

// GEMMFor returns the kernel with the least estimated time for a product of m rows with n columns, on a
// device with sms SMs and shared bytes of shared memory per CTA. With experts, m is the rows of one and
// n the columns of all. The choice does not change a bit of the results.
//
// In the estimate an SM computes its tiles one after another. A tile costs its area, plus 64 for each
// row and column that it loads. Fewer tiles than GEMM.CTAs cost as much as CTAs.
func GEMMFor(format, input quant.Format, m, n, sms, shared int) GEMM {
	best, least := gemmShapes[len(gemmShapes)-1].as(format, input), math.Inf(1)
	for _, s := range gemmShapes {
		if s = s.as(format, input); s.shared() > shared {
			continue
		}
		tiles := host.CeilDiv(m, s.BlockM) * host.CeilDiv(n, s.BlockN)
		area := float64(s.BlockM * s.BlockN)
		read := float64(s.BlockM+s.BlockN) * 64
		if time := float64(max(host.CeilDiv(tiles, max(sms, 1)), s.CTAs)) * (area + read); time < least {
			best, least = s, time
		}
	}
	return best
}
