// Package peak holds the kernels that measure the peak rates of a device. Only benchmarks
// launch them. Each computes something that can be checked, so no compiler can drop its work.
package peak

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// maxCTAs keeps the number of threads of a grid within 32 bits.
const maxCTAs = 1 << 16

const readThreads = 256 // per CTA

// Read reads memory with 16-byte loads. Thread t of all threads of the grid writes
//
//	out[t] = xor of the words of in[t], in[t+threads], in[t+2*threads], …
//
// where in is an array of vectors of 16 bytes.
func Read() kernel.Typed[ReadArgs] { return kernel.New("peak_read", buildRead, launchRead) }

type readParams struct {
	In      ptx.Global `align:"16"`
	Out     ptx.Global
	Vectors ptx.U32 // of 16 bytes
}

func buildRead(b *ptx.Builder) (*ptx.Kernel, error) {
	b.Doc("out[t] = xor of the words of in[t + j*threads], in vectors of 16 bytes")
	const unroll = 8 // loads in flight per thread
	var p readParams
	ptx.Declare(b, &p)
	t := b.BlockX().MulN(readThreads).Add(b.ThreadX())
	threads := b.GridX().MulN(readThreads)
	sum := ptx.Var(b.U32(0))
	fold := func(v [4]ptx.U32) {
		ptx.Set(sum, sum.Xor(v[0]).Xor(v[1]).Xor(v[2]).Xor(v[3]))
	}
	i := ptx.Var(t)
	b.Comment("%d loads before the first is used", unroll)
	ahead := threads.MulN(unroll - 1)
	b.While(func() ptx.Pred { return i.Add(ahead).Lt(p.Vectors) }, func() {
		var v [unroll][4]ptx.U32
		for j := range v {
			v[j] = p.In.At(i, 16).LoadU32x4(ptx.ReadOnce)
			ptx.Set(i, i.Add(threads))
		}
		for j := range v {
			fold(v[j])
		}
	})
	b.For(b.U32(0), b.U32(unroll-1), b.U32(1), func(ptx.U32) { // a thread has at most unroll-1 vectors left
		b.If(i.Lt(p.Vectors), func() {
			fold(p.In.At(i, 16).LoadU32x4(ptx.ReadOnce))
			ptx.Set(i, i.Add(threads))
		})
	}, ptx.NoUnroll)
	p.Out.At(t, 4).StoreU32(sum)
	return b.Finish(ptx.MaxThreads(readThreads))
}

// ReadArgs are the arguments of a launch of Read.
type ReadArgs struct {
	In    ptx.Address // Bytes bytes
	Out   ptx.Address // u32 [CTAs*256], written
	Bytes int64       // a multiple of 16 below 32 GiB
	CTAs  int         // at most 65536
}

func launchRead(k *ptx.Kernel, a ReadArgs) (ptx.Launch, error) {
	if err := host.Valid(k,
		host.Refuse(a.Bytes < 0 || a.Bytes%16 != 0 || a.Bytes/16 > math.MaxInt32, "Bytes", "%d is no multiple of 16 below 32 GiB", a.Bytes),
		host.Bound("CTAs", a.CTAs, 1, maxCTAs), host.NonNil("In", a.In), host.NonNil("Out", a.Out)); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.CTAs), 1, 1}, readThreads, 0, &readParams{
		In: ptx.Addr(a.In), Out: ptx.Addr(a.Out), Vectors: ptx.Uint(int(a.Bytes / 16)),
	})
}

// BulkChunkBytes is the size of a chunk that BulkRead reads with one copy.
const BulkChunkBytes = 32 << 10

const bulkStages = 4 // of the ring, a power of two

// BulkRead reads memory with bulk copies (cp.async.bulk) into a ring in shared memory. CTA i
// of n reads chunks i, i+n, i+2n, … and writes
//
//	out[i] = xor of the first words of its chunks
func BulkRead() kernel.Typed[BulkReadArgs] {
	return kernel.New("peak_bulk_read", buildBulkRead, launchBulkRead)
}

type bulkReadParams struct {
	In     ptx.Global `align:"16"`
	Out    ptx.Global
	Chunks ptx.U32
}

func buildBulkRead(b *ptx.Builder) (*ptx.Kernel, error) {
	b.Doc("out[cta] = xor of the first word of each chunk of %d bytes that the CTA reads", BulkChunkBytes)
	var p bulkReadParams
	ptx.Declare(b, &p)
	ring := b.DynamicShared(16)
	bars := b.Shared("bars", 128, 128) // so large that drivers place the ring at a multiple of 128
	b.ReturnIf(b.ThreadX().Ne(b.U32(0)))
	for i := range bulkStages {
		b.NewMBarrier(bars.Plus(8*i), b.N(1))
	}
	b.FenceMBarrierInit()
	cta, ctas := b.BlockX(), b.GridX()
	fetch := func(stage, chunk ptx.U32) {
		bar := ptx.MBarrierAt(bars.At(stage, 8))
		b.If(chunk.Lt(p.Chunks), func() {
			bar.ArriveExpectTx(b.N(BulkChunkBytes))
			b.BulkLoad(ring.At(stage, BulkChunkBytes), p.In.At(chunk, BulkChunkBytes), b.N(BulkChunkBytes), bar)
		})
	}
	next := ptx.Var(cta)
	for i := range bulkStages {
		fetch(b.N(i), next)
		ptx.Set(next, next.Add(ctas))
	}
	sum, stage, parity := ptx.Var(b.U32(0)), ptx.Var(b.U32(0)), ptx.Var(b.U32(0))
	b.For(cta, p.Chunks, ctas, func(chunk ptx.U32) {
		ptx.MBarrierAt(bars.At(stage, 8)).Wait(parity)
		ptx.Set(sum, sum.Xor(ring.At(stage, BulkChunkBytes).LoadU32()))
		fetch(stage, next)
		ptx.Set(next, next.Add(ctas))
		ptx.Set(stage, stage.AddN(1).AndN(uint32(bulkStages-1)))
		ptx.Set(parity, ptx.Select(stage.EqN(0), parity.Xor(b.U32(1)), parity))
	})
	p.Out.At(cta, 4).StoreU32(sum)
	return b.Finish(ptx.MaxThreads(32))
}

// BulkReadArgs are the arguments of a launch of BulkRead.
type BulkReadArgs struct {
	In     ptx.Address // Chunks * BulkChunkBytes bytes
	Out    ptx.Address // u32 [CTAs], written
	Chunks int
	CTAs   int // at most 65536
}

func launchBulkRead(k *ptx.Kernel, a BulkReadArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("CTAs", a.CTAs, 1, maxCTAs), host.Bound("Chunks", a.Chunks, 0, host.MaxSize-bulkStages*a.CTAs),
		host.NonNil("In", a.In), host.NonNil("Out", a.Out)); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.CTAs), 1, 1}, 32, BulkChunkBytes*bulkStages, &bulkReadParams{
		In: ptx.Addr(a.In), Out: ptx.Addr(a.Out), Chunks: ptx.Uint(a.Chunks),
	})
}
