package conformance

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/isa"
	"github.com/lockstep-go/lockstep/conformance/internal/mutate"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const (
	specializedThreads = 2 * isa.Threads // a producer warpgroup and a consumer warpgroup
	specializedBlocks  = 5               // of 64 along K
	specializedBytes   = 36 * 4          // of output per thread
)

// specializedB is a block of B [64, 8].
var specializedB = ptx.MatrixLayout{Rows: 8, Depth: 64, Line: 128}

// specializedKernel multiplies A by B, both in p0 and p1 by blocks of K. One thread copies blocks of B to
// two stages of shared memory. A warpgroup multiplies and hands its first sum to the other warpgroup. At
// the end, a thread of each CTA reads such a sum of the other CTA.
func specializedKernel() (*ptx.Kernel, error) {
	b := ptx.New("form")
	arrays := formArrays(b)
	memory := b.Shared("memory", 2*specializedB.Bytes(), 1024)
	sumsAt, barriers := b.Shared("sums", 4*isa.Threads, 16), b.Shared("barriers", 32, 8)
	thread := b.ThreadX()
	b.When(thread.EqN(0), func() {
		for i, arrivals := range []int{1, 1, isa.Threads, isa.Threads} {
			b.NewMBarrier(barriers.Plus(8*i), b.N(arrivals))
		}
		b.FenceMBarrierInit()
	})
	b.Barrier()
	stage := func(i int) (full, empty ptx.MBarrier) {
		return ptx.MBarrierAt(barriers.Plus(8 * (i % 2))), ptx.MBarrierAt(barriers.Plus(16 + 8*(i%2)))
	}
	out := arrays["out"].At(b.BlockX().MulN(specializedThreads).Add(thread), specializedBytes)
	counter := arrays["p2"]
	b.IfElse(thread.LtN(isa.Threads), func() {
		b.DecreaseRegisters(24)
		b.If(thread.EqN(0), func() {
			policy := b.EvictFirst()
			for i := range specializedBlocks {
				full, empty := stage(i)
				empty.Wait(b.U32(uint32(i/2+1) % 2))
				full.ArriveExpectTx(b.N(specializedB.Bytes()))
				from := arrays["p1"].Plus(i * specializedB.Bytes())
				b.BulkLoad(memory.Plus(i%2*specializedB.Bytes()), from, b.N(specializedB.Bytes()), full, policy)
			}
		})
		b.NamedBarrier(b.U32(1), specializedThreads).Sync()
		out.StoreU32(sumsAt.At(thread, 4).LoadU32())
		b.NamedBarrier(b.U32(2), isa.Threads).Sync()
		b.If(thread.EqN(0), func() {
			counter.AddReleaseU32(b.U32(1))
			b.While(func() ptx.Pred { return counter.LoadAcquireU32().LtN(isa.CTAs) }, func() {})
			other := arrays["out"].At(b.U32(1).Sub(b.BlockX()).MulN(specializedThreads).AddN(77), specializedBytes)
			out.Plus(4).StoreU32(other.LoadU32())
		})
	}, func() {
		b.IncreaseRegisters(216)
		own := thread.AndN(isa.Threads - 1)
		sums := make([]ptx.F32, 4)
		for i := range sums {
			sums[i] = ptx.Undefined[ptx.F32](b)
		}
		matrix := ptx.NewSharedMatrix[ptx.F16x2](memory, specializedB)
		for i := range specializedBlocks {
			full, empty := stage(i)
			from := arrays["p0"].At(own, 16).Plus(8192 * i)
			var a [4][4]ptx.F16x2
			for k := range a {
				for j, x := range from.Plus(2048 * k).LoadU32x4() {
					a[k][j] = x.AsF16x2()
				}
			}
			full.Wait(b.U32(uint32(i/2) % 2))
			current := matrix.At(b.U32(uint32(i%2)), specializedB.Bytes())
			b.WGMMAFence()
			for k := range a {
				ptx.WGMMA(sums, a[k], current.Sub(0, 16*k), i+k > 0)
			}
			b.WGMMACommit()
			b.WGMMAWait(0)
			empty.Arrive()
		}
		sumsAt.At(own, 4).StoreF32(sums[0])
		b.NamedBarrier(b.U32(1), specializedThreads).Arrive()
		for i, x := range sums {
			out.Plus(4 * i).StoreF32(x)
		}
	})
	return b.Finish(ptx.MaxThreads(specializedThreads), ptx.MaxRegisters(120))
}

// specializedCase returns the inputs, small integers, and the output. p0 holds the registers of A.
func specializedCase() (in [][]byte, want []byte) {
	random := rand.New(rand.NewPCG(*kernelSeed, 10))
	in = [][]byte{make([]byte, 8192*specializedBlocks), make([]byte, specializedB.Bytes()*specializedBlocks), make([]byte, 16)}
	var sums [64][8]int
	put := func(to []byte, x int) { binary.LittleEndian.PutUint16(to, float16.ToF16(float32(x))) }
	for i := range specializedBlocks {
		for k := range specializedB.Depth {
			var column [8]int
			for n := range column {
				column[n] = random.IntN(17) - 8
				put(in[1][i*specializedB.Bytes()+specializedB.Offset(n, k):], column[n])
			}
			for row := range sums {
				x := random.IntN(17) - 8
				thread, register := row/16*32+row%8*4+k%8/2, row%16/8+k%16/8*2
				put(in[0][8192*i+k/16*2048+16*thread+4*register+k%2*2:], x)
				for n, y := range column {
					sums[row][n] += x * y
				}
			}
		}
	}
	want = make([]byte, isa.CTAs*specializedThreads*specializedBytes)
	element := func(thread, i int) uint32 {
		return math.Float32bits(float32(sums[thread/32*16+thread%32/4+i/2*8][thread%4*2+i%2]))
	}
	for cta := range isa.CTAs {
		for thread := range isa.Threads {
			at := want[(cta*specializedThreads+thread)*specializedBytes:]
			binary.LittleEndian.PutUint32(at, element(thread, 0))
			for i := range 4 {
				binary.LittleEndian.PutUint32(at[isa.Threads*specializedBytes+4*i:], element(thread, i))
			}
		}
		binary.LittleEndian.PutUint32(want[cta*specializedThreads*specializedBytes+4:], element(77, 0))
	}
	return in, want
}

// specializedOnly matches named barriers, setmaxnreg, and what orders the accesses of CTAs.
var specializedOnly = regexp.MustCompile(`^\t(bar\.\w+ [12],|setmaxnreg|ld\.acquire|red\.release)`)

// TestSpecialization runs a kernel with a producer and a consumer. It demands that each mutant of the
// instructions that only such kernels have traps or gives other results.
func TestSpecialization(t *testing.T) {
	k, err := specializedKernel()
	if err != nil {
		t.Fatal(err)
	}
	text, err := k.Text(harness.EmulatorTarget.For(k))
	if err != nil {
		t.Fatal(err)
	}
	in, want := specializedCase()
	for _, d := range formDevices(t) {
		if lack := d.Lacks(k.MinTarget); lack != "" {
			t.Logf("skipped: %s", lack)
			continue
		}
		got, err := d.Run(string(text), in, isa.CTAs, specializedThreads, len(want))
		if err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
		if i := harness.FirstDifferentByte(want, got); i >= 0 {
			t.Fatalf("%s: byte %d is %#x, want %#x", d.Name, i, got[i], want[i])
		}
	}
	skipIfShort(t)
	limited := newFormDevice(t, isa.Emulator, func() (driver.Device, error) {
		return emu.Open(emu.Options{Async: emu.Late, Schedule: emu.Adversarial(*kernelSeed), MaxInstructions: 1 << 17})
	})
	tried := map[string]int{}
	for _, m := range mutate.MutantsOf(k) {
		if !specializedOnly.MatchString(m.Old) {
			continue
		}
		tried[m.Mutator]++
		if got, err := limited.Run(string(m.Apply(k.Name, text)), in, isa.CTAs, specializedThreads, len(want)); err == nil && bytes.Equal(got, want) {
			t.Errorf("not detected: %v", m)
		}
	}
	for mutator, n := range map[string]int{"named barrier": 4, "registers": 2, "operation": 2, mutate.LeaveOutSync: 3} {
		if tried[mutator] != n {
			t.Errorf("%d mutants %q, want %d", tried[mutator], mutator, n)
		}
	}
}
