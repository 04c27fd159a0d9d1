package peak

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The product that each warpgroup of WGMMA computes per iteration.
const (
	wgmmaThreads = 256 // per CTA: two warpgroups
	wgmmaColumns = 256
	wgmmaDepth   = 64
	wgmmaFLOP    = 2 * ptx.WGMMARows * wgmmaColumns * wgmmaDepth
)

// wgmmaB is B in shared memory.
var wgmmaB = ptx.MatrixLayout{Rows: wgmmaColumns, Depth: wgmmaDepth, Line: 2 * wgmmaDepth}

// WGMMA multiplies the same matrices of float16 again and again with wgmma, with float32
// accumulators. A is in registers, B in shared memory. Each of two warpgroups of a CTA writes
//
//	Out = Iterations * A B^T
func WGMMA() kernel.Typed[WGMMAArgs] { return kernel.New("peak_wgmma", buildWGMMA, launchWGMMA) }

type wgmmaParams struct {
	A          ptx.Global `align:"4"`
	B          ptx.Global `align:"16"`
	Out        ptx.Global `align:"8"`
	Iterations ptx.U32
}

func buildWGMMA(b *ptx.Builder) (*ptx.Kernel, error) {
	b.Doc("out[warpgroup] = iterations * A B^T, where A is [%d, %d] and B is [%d, %d]", ptx.WGMMARows, wgmmaDepth, wgmmaColumns, wgmmaDepth)
	var p wgmmaParams
	ptx.Declare(b, &p)
	tile := b.DynamicShared(wgmmaB.Align())
	b.Comment("each thread copies one row of B")
	row := p.B.At(b.ThreadX(), 2*wgmmaDepth)
	for chunk := range wgmmaDepth / 8 {
		wgmmaB.Chunk(tile, b.ThreadX(), b.N(chunk)).StoreU32x4(row.Plus(16 * chunk).LoadU32x4())
	}
	b.FenceProxyAsync()
	b.Barrier()
	b.Comment("fragments of A")
	lane := b.Lane()
	first := b.Warp().MulN(16).Add(lane.ShrN(2)) // the thread's first row, counted over both warpgroups
	pair := lane.AndN(3)                         // its place in each group of four pairs of columns
	a := p.A.At(first.AndN(ptx.WGMMARows-1), 2*wgmmaDepth).At(pair, 4)
	var fragments [wgmmaDepth / 16][4]ptx.F16x2
	for k := range fragments {
		for i := range fragments[k] {
			fragments[k][i] = a.Plus(32*k + i%2*8*2*wgmmaDepth + i/2*16).LoadU32().AsF16x2()
		}
	}
	d := make([]ptx.F32, wgmmaColumns/2)
	for i := range d {
		d[i] = ptx.Var(b.F32(0))
	}
	matrix := ptx.NewSharedMatrix[ptx.F16x2](tile, wgmmaB)
	b.For(b.U32(0), p.Iterations, b.U32(1), func(ptx.U32) {
		b.WGMMAFence()
		for k := range fragments {
			ptx.WGMMA(d, fragments[k], matrix.Sub(0, 16*k), true)
		}
		b.WGMMACommit()
	}, ptx.NoUnroll)
	b.WGMMAWait(0)
	out := p.Out.At(b.BlockX().MulN(wgmmaThreads/128*ptx.WGMMARows).Add(first), 4*wgmmaColumns).At(pair, 8)
	for i := 0; i < len(d); i += 2 {
		out.Plus(i%4/2*8*4*wgmmaColumns + i/4*32).StoreF32x2([2]ptx.F32{d[i], d[i+1]})
	}
	return b.Finish(ptx.MaxThreads(wgmmaThreads))
}

// WGMMAArgs are the arguments of a launch of WGMMA.
type WGMMAArgs struct {
	A          ptx.Address // f16 [64, 64]
	B          ptx.Address // f16 [256, 64]
	Out        ptx.Address // f32 [CTAs, 2, 64, 256], written
	Iterations int
	CTAs       int // at most 65536
}

// FLOP returns the number of floating-point operations of a launch.
func (a WGMMAArgs) FLOP() float64 {
	return float64(a.CTAs) * (wgmmaThreads / 128) * float64(a.Iterations) * wgmmaFLOP
}

func launchWGMMA(k *ptx.Kernel, a WGMMAArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("CTAs", a.CTAs, 1, maxCTAs), host.Bound("Iterations", a.Iterations, 0, host.MaxSize),
		host.NonNil("A", a.A), host.NonNil("B", a.B), host.NonNil("Out", a.Out)); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.CTAs), 1, 1}, wgmmaThreads, wgmmaB.Bytes(), &wgmmaParams{
		A: ptx.Addr(a.A), B: ptx.Addr(a.B), Out: ptx.Addr(a.Out), Iterations: ptx.Uint(a.Iterations),
	})
}
