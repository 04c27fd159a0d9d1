package peak

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const (
	mmaThreads = 256 // per CTA
	mmaChains  = 8   // independent accumulators per warp
	mmaFLOP    = 2 * 16 * 8 * 16
)

// MMA multiplies matrices of ones in registers with mma.sync, bf16 with float32
// accumulators. Each thread t of the grid writes
//
//	out[t] = Iterations * 16 * 8
func MMA() kernel.Typed[MMAArgs] { return kernel.New("peak_mma", buildMMA, launchMMA) }

type mmaParams struct {
	Out        ptx.Global
	Iterations ptx.U32
}

func buildMMA(b *ptx.Builder) (*ptx.Kernel, error) {
	b.Doc("out[t] = iterations * 16 * %d, by mma.sync on ones", mmaChains)
	var p mmaParams
	ptx.Declare(b, &p)
	one := ptx.Var(b.U32(0x3F803F80)).AsBF16x2()
	var acc [mmaChains][4]ptx.F32
	for i := range acc {
		for j := range acc[i] {
			acc[i][j] = ptx.Var(b.F32(0))
		}
	}
	b.For(b.U32(0), p.Iterations, b.U32(1), func(ptx.U32) {
		for i := range acc {
			ptx.MMA(acc[i], [4]ptx.BF16x2{one, one, one, one}, [2]ptx.BF16x2{one, one})
		}
	})
	sum := acc[0][0]
	for i := 1; i < mmaChains; i++ {
		sum = sum.Add(acc[i][i%4])
	}
	p.Out.At(b.BlockX().MulN(mmaThreads).Add(b.ThreadX()), 4).StoreF32(sum)
	return b.Finish(ptx.MaxThreads(mmaThreads))
}

// MMAArgs are the arguments of a launch of MMA.
type MMAArgs struct {
	Out        ptx.Address // f32 [CTAs*256], written
	Iterations int         // each warp does 8 mma.sync per iteration
	CTAs       int         // at most 65536
}

// FLOP returns the number of floating-point operations of a launch.
func (a MMAArgs) FLOP() float64 {
	return float64(a.CTAs) * (mmaThreads / 32) * float64(a.Iterations) * mmaChains * mmaFLOP
}

func launchMMA(k *ptx.Kernel, a MMAArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("CTAs", a.CTAs, 1, maxCTAs), host.Bound("Iterations", a.Iterations, 0, host.MaxSize),
		host.NonNil("Out", a.Out)); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.CTAs), 1, 1}, mmaThreads, 0, &mmaParams{Out: ptx.Addr(a.Out), Iterations: ptx.Uint(a.Iterations)})
}
