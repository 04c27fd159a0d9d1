package ptxgen

import (
	"cmp"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Kernels that measure what a device can do: the denominators of every figure
// about the others. Each computes something checkable, so that none of its work
// can be left out.

// mostCTAs of a limit's kernel keep what it counts of threads within 32 bits.
const mostCTAs = 1 << 16

func limitSpecs() []Spec { return []Spec{ReadPlain{}, ReadBulk{}, MatrixRate{}} }

// ReadPlain reads memory with 16-byte loads and gives of each thread
//
//	out[t] = xor of the words of in[t], in[t+threads], in[t+2·threads], ...
//
// where in counts units of 16 bytes and t goes over all threads of the grid.
type ReadPlain struct{}

const readThreads = 256

// Name implements Spec.
func (ReadPlain) Name() string { return "read_plain" }

// Build implements Spec.
func (s ReadPlain) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	b.Doc("out[t] = xor of the words of in[t + j*threads], in units of 16 bytes")
	const unroll = 8 // loads in flight a thread
	in, out, units := b.Global("in", 16), b.Global("out", 4), b.ParamU32("units")
	t := b.BlockX().MulN(readThreads).Add(b.ThreadX())
	threads := b.GridX().MulN(readThreads)
	sum := ptx.Var(b.U32(0))
	fold := func(v [4]ptx.U32) {
		ptx.Set(sum, sum.Xor(v[0]).Xor(v[1]).Xor(v[2]).Xor(v[3]))
	}
	i := ptx.Var(t)
	b.Comment("%d loads before the first is used", unroll)
	ahead := threads.MulN(unroll - 1)
	b.While(func() ptx.Pred { return i.Add(ahead).Lt(units) }, func() {
		var v [unroll][4]ptx.U32
		for j := range v {
			v[j] = in.At(i, 16).LoadU32x4(ptx.Streamed)
			ptx.Set(i, i.Add(threads))
		}
		for j := range v {
			fold(v[j])
		}
	})
	b.While(func() ptx.Pred { return i.Lt(units) }, func() {
		fold(in.At(i, 16).LoadU32x4(ptx.Streamed))
		ptx.Set(i, i.Add(threads))
	})
	out.At(t, 4).StoreU32(sum)
	return b.Finish(ptx.MaxThreads(readThreads))
}

// ReadPlainArgs are a launch's arguments.
type ReadPlainArgs struct {
	In    Address // Bytes bytes
	Out   Address // u32 [CTAs · 256]
	Bytes int64   // a multiple of 16, under 2^31 units of 16 bytes
	CTAs  int     // at most 65536
}

// Launch makes a launch.
func (ReadPlain) Launch(k *ptx.Kernel, a ReadPlainArgs) (ptx.Launch, error) {
	if a.Bytes < 0 || a.Bytes%16 != 0 || a.Bytes/16 > math.MaxInt32 {
		return ptx.Launch{}, argumentError(k, "Bytes", "%d is no multiple of 16 under 32 GiB", a.Bytes)
	}
	if err := firstError(checkBounds(k, bound{"CTAs", a.CTAs, 1, mostCTAs}), checkPointers(k, pointer{"In", a.In}, pointer{"Out", a.Out})); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.CTAs), 1, 1}, readThreads, 0,
		ptx.Addr(a.In), ptx.Addr(a.Out), ptx.Uint(int(a.Bytes/16)))
}

// ReadBulk reads memory with the copy engine into a ring in shared memory, chunk c
// by CTA c mod CTAs, and gives
//
//	out[cta] = xor of the first word of each of its chunks
type ReadBulk struct {
	Chunk  int // bytes, a multiple of 16; 0: 32 KiB
	Stages int // of the ring, a power of two; 0: 4
}

func (s ReadBulk) chunk() int  { return cmp.Or(s.Chunk, 32<<10) }
func (s ReadBulk) stages() int { return cmp.Or(s.Stages, 4) }

// Name implements Spec.
func (s ReadBulk) Name() string {
	if s == (ReadBulk{}) {
		return "read_bulk"
	}
	return fmt.Sprintf("read_bulk_%dx%d", s.stages(), s.chunk())
}

// Build implements Spec.
func (s ReadBulk) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	bulkChunk, bulkStages := s.chunk(), s.stages()
	b.Doc("out[cta] = xor of the first word of each chunk of %d bytes that the CTA reads", bulkChunk)
	in, out, chunks := b.Global("in", 16), b.Global("out", 4), b.ParamU32("chunks")
	ring := b.DynamicShared(128)
	bars := b.Shared("bars", 8*bulkStages, 8)
	b.ReturnIf(b.ThreadX().Ne(b.U32(0)))
	for i := range bulkStages {
		b.NewMBarrier(bars.Plus(8*i), 1)
	}
	b.FenceMBarrierInit()
	cta, ctas := b.BlockX(), b.GridX()
	fetch := func(stage, chunk ptx.U32) {
		bar := ptx.MBarrierAt(bars.At(stage, 8))
		b.If(chunk.Lt(chunks), func() {
			bar.ArriveExpectTx(b.N(bulkChunk))
			b.BulkLoad(ring.At(stage, bulkChunk), in.At(chunk, bulkChunk), b.N(bulkChunk), bar)
		})
	}
	next := ptx.Var(cta)
	for i := range bulkStages {
		fetch(b.N(i), next)
		ptx.Set(next, next.Add(ctas))
	}
	sum, stage, parity := ptx.Var(b.U32(0)), ptx.Var(b.U32(0)), ptx.Var(b.U32(0))
	b.For(cta, chunks, ctas, func(chunk ptx.U32) {
		ptx.MBarrierAt(bars.At(stage, 8)).Wait(parity)
		ptx.Set(sum, sum.Xor(ring.At(stage, bulkChunk).LoadU32()))
		fetch(stage, next)
		ptx.Set(next, next.Add(ctas))
		ptx.Set(stage, stage.AddN(1).AndN(uint32(bulkStages-1)))
		ptx.Set(parity, ptx.Select(stage.EqN(0), parity.Xor(b.U32(1)), parity))
	})
	out.At(cta, 4).StoreU32(sum)
	return b.Finish(ptx.MaxThreads(32))
}

// ReadBulkArgs are a launch's arguments.
type ReadBulkArgs struct {
	In     Address // Chunks chunks
	Out    Address // u32 [CTAs]
	Chunks int
	CTAs   int // at most 65536
}

// Launch makes a launch.
func (s ReadBulk) Launch(k *ptx.Kernel, a ReadBulkArgs) (ptx.Launch, error) {
	if err := firstError(checkBounds(k, bound{"CTAs", a.CTAs, 1, mostCTAs}, bound{"Chunks", a.Chunks, 0, maxSize - s.stages()*a.CTAs}),
		checkPointers(k, pointer{"In", a.In}, pointer{"Out", a.Out})); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.CTAs), 1, 1}, 32, s.chunk()*s.stages(), ptx.Addr(a.In), ptx.Addr(a.Out), ptx.Uint(a.Chunks))
}

// ChunkBytes is the size of the chunks that ReadBulk reads.
func (s ReadBulk) ChunkBytes() int { return s.chunk() }

// MatrixRate multiplies matrices in registers, bf16 with float32 accumulation, on as
// many tensor cores as the grid fills, and gives
//
//	out[t] = rounds · 16 · matrixChains
//
// for each thread: every product is of ones.
type MatrixRate struct{}

const (
	matrixThreads = 256
	matrixChains  = 8 // independent accumulators a warp
)

// Name implements Spec.
func (MatrixRate) Name() string { return "matrix_rate" }

// Build implements Spec.
func (s MatrixRate) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	b.Doc("out[t] = rounds * 16 * %d, by mma.sync on ones", matrixChains)
	out, rounds := b.Global("out", 4), b.ParamU32("rounds")
	one := ptx.Var(b.U32(0x3F803F80)).AsBF16x2()
	var acc [matrixChains][4]ptx.F32
	for i := range acc {
		for j := range acc[i] {
			acc[i][j] = ptx.Var(b.F32(0))
		}
	}
	b.For(b.U32(0), rounds, b.U32(1), func(ptx.U32) {
		for i := range acc {
			ptx.MMA(acc[i], [4]ptx.BF16x2{one, one, one, one}, [2]ptx.BF16x2{one, one})
		}
	})
	sum := acc[0][0]
	for i := 1; i < matrixChains; i++ {
		sum = sum.Add(acc[i][i%4])
	}
	out.At(b.BlockX().MulN(matrixThreads).Add(b.ThreadX()), 4).StoreF32(sum)
	return b.Finish(ptx.MaxThreads(matrixThreads))
}

// MatrixRateArgs are a launch's arguments.
type MatrixRateArgs struct {
	Out    Address // f32 [CTAs · 256]
	Rounds int
	CTAs   int // at most 65536
}

// Launch makes a launch.
func (MatrixRate) Launch(k *ptx.Kernel, a MatrixRateArgs) (ptx.Launch, error) {
	if err := firstError(checkBounds(k, bound{"CTAs", a.CTAs, 1, mostCTAs}, bound{"Rounds", a.Rounds, 0, maxSize}),
		checkPointers(k, pointer{"Out", a.Out})); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.CTAs), 1, 1}, matrixThreads, 0, ptx.Addr(a.Out), ptx.Uint(a.Rounds))
}

// FLOP is the number of floating-point operations of a launch.
func (MatrixRate) FLOP(a MatrixRateArgs) float64 {
	const perMMA = 2 * 16 * 8 * 16
	return float64(a.CTAs) * (matrixThreads / 32) * float64(a.Rounds) * matrixChains * perMMA
}
