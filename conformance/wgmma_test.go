package conformance

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/isa"
	"github.com/lockstep-go/lockstep/conformance/internal/mutate"
	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// formArrays declares the parameters of a test kernel and returns the arrays among them.
func formArrays(b *ptx.Builder) map[string]ptx.Global {
	arrays := map[string]ptx.Global{}
	for _, name := range isa.Parameters {
		if name == "p3" || name == "p4" { // not arrays
			b.ParamU64(name)
			continue
		}
		arrays[name] = b.Global(name, 16)
	}
	return arrays
}

// halfProduct is a product of f16 or bf16 in a kernel of package ptx: A [64, 64] by the last 64 columns
// of B. If a.Line is 0, A is in registers.
type halfProduct struct{ a, b ptx.MatrixLayout }

// lines calls f with the row and the k of each element of a matrix, in the order of its lines.
func lines(l ptx.MatrixLayout, f func(row, k int)) {
	for i := range l.Rows * l.Depth {
		if l.Transposed {
			f(i%l.Rows, i/l.Rows)
		} else {
			f(i/l.Depth, i%l.Depth)
		}
	}
}

// copyMatrix stores lines of global memory as a matrix in shared memory.
func copyMatrix(b *ptx.Builder, to ptx.Shared, from ptx.Global, l ptx.MatrixLayout) {
	chunks := l.Depth / 8 // per line
	if l.Transposed {
		chunks = l.Rows / 8
	}
	for at := 0; at < l.Rows*l.Depth/8; at += isa.Threads {
		i := b.ThreadX().AddN(at)
		l.Chunk(to, i.DivN(chunks), i.RemN(chunks)).StoreU32x4(from.At(i, 16).LoadU32x4())
	}
}

// halfKernel builds the kernel of a product. p0 and p1 hold the lines of A and B.
func halfKernel[T ptx.Half2](p halfProduct) (*ptx.Kernel, error) {
	b := ptx.New("form")
	arrays := formArrays(b)
	sharedA, sharedB := b.Shared("a", 8192, 1024), b.Shared("b", p.b.Bytes(), 1024)
	copyMatrix(b, sharedB, arrays["p1"], p.b)
	if p.a.Line > 0 {
		copyMatrix(b, sharedA, arrays["p0"], p.a)
	}
	b.FenceProxyAsync()
	b.Barrier()
	sums := make([]ptx.F32, 32)
	for i := range sums {
		sums[i] = ptx.Undefined[ptx.F32](b)
	}
	var fragments [4][4]T
	if p.a.Line == 0 {
		row := b.Warp().MulN(16).Add(b.ThreadX().Field(2, 3))
		from := arrays["p0"].At(row, 128).At(b.Lane().AndN(3), 4)
		for k := range fragments {
			for i := range 4 {
				fragments[k][i] = T(from.Plus(i%2*8*128 + 32*k + i/2*16).LoadU32())
			}
		}
	}
	matrixB := ptx.NewSharedMatrix[T](sharedB, p.b)
	matrixA := matrixB
	if p.a.Line > 0 {
		matrixA = ptx.NewSharedMatrix[T](sharedA, p.a)
	}
	b.WGMMAFence()
	for k := range 4 {
		if part := matrixB.Sub(p.b.Rows-64, 16*k); p.a.Line > 0 {
			ptx.WGMMAShared(sums, matrixA.Sub(0, 16*k), part, k > 0)
		} else {
			ptx.WGMMA(sums, fragments[k], part, k > 0)
		}
	}
	b.WGMMACommit()
	b.WGMMAWait(0)
	out := arrays["out"].At(b.BlockX().MulN(isa.Threads).Add(b.ThreadX()), 128)
	for i, x := range sums {
		out.Plus(4 * i).StoreF32(x)
	}
	return b.Finish(ptx.MaxThreads(isa.Threads))
}

// run returns random inputs of small integers, as code encodes them, and the output.
func (p halfProduct) run(code func(x float32) uint16) (in [][]byte, want []byte) {
	random := rand.New(rand.NewPCG(*kernelSeed, 9))
	matrices := [2][][]int{}
	for m, l := range []ptx.MatrixLayout{p.a, p.b} {
		if l.Line == 0 {
			l = ptx.MatrixLayout{Rows: 64, Depth: 64}
		}
		matrices[m] = make([][]int, l.Rows)
		for row := range l.Rows {
			matrices[m][row] = make([]int, l.Depth)
		}
		var data []byte
		lines(l, func(row, k int) {
			x := random.IntN(17) - 8
			matrices[m][row][k] = x
			data = binary.LittleEndian.AppendUint16(data, code(float32(x)))
		})
		in = append(in, data)
	}
	in = append(in, make([]byte, 16))
	for i := range isa.CTAs * isa.Threads {
		warp, g, t := i%isa.Threads/32, i%32/4, i%4
		for r := range 32 {
			sum := 0
			for k, x := range matrices[0][16*warp+g+r%4/2*8] {
				sum += x * matrices[1][p.b.Rows-64+r/4*8+2*t+r%2][k]
			}
			want = binary.LittleEndian.AppendUint32(want, math.Float32bits(float32(sum)))
		}
	}
	return in, want
}

// kernel builds the kernel for f16, or for bf16 if set, and returns how it encodes numbers.
func (p halfProduct) kernel(bf16 bool) (*ptx.Kernel, func(float32) uint16, error) {
	if bf16 {
		k, err := halfKernel[ptx.BF16x2](p)
		return k, float16.ToBF16, err
	}
	k, err := halfKernel[ptx.F16x2](p)
	return k, float16.ToF16, err
}

// TestBuilderSharedMatrix multiplies matrices in each layout, written by MatrixLayout.Chunk, on the
// emulator and, with -gpu, on the GPU.
func TestBuilderSharedMatrix(t *testing.T) {
	var layouts []ptx.MatrixLayout
	for _, line := range []int{16, 32, 64, 128} {
		for _, transposed := range []bool{false, true} {
			layouts = append(layouts, ptx.MatrixLayout{Depth: 64, Line: line, Transposed: transposed})
		}
	}
	devices := formDevices(t)
	for i, b := range layouts {
		b.Rows = 128
		for j, a := range append(layouts, ptx.MatrixLayout{}) {
			if a.Line > 0 {
				a.Rows = 64
			}
			p := halfProduct{a, b}
			k, code, err := p.kernel((i+j)%2 == 1)
			if err != nil {
				t.Fatal(err)
			}
			text, err := k.Text(ptx.Target{})
			if err != nil {
				t.Fatal(err)
			}
			in, want := p.run(code)
			for _, d := range devices {
				if lack := d.Lacks(k.MinTarget); lack != "" {
					t.Logf("skipped: %s", lack)
					continue
				}
				got, err := d.Run(string(text), in, isa.CTAs, isa.Threads, len(want))
				if err != nil {
					t.Fatalf("%+v on %s: %v", p, d.Name, err)
				}
				if i := harness.FirstDifferentByte(want, got); i >= 0 {
					t.Errorf("%+v on %s: byte %d is %#x, want %#x", p, d.Name, i, got[i], want[i])
				}
			}
		}
	}
}

// TestWGMMAMutants demands that each mutant of kernels with wgmma traps or gives other sums.
func TestWGMMAMutants(t *testing.T) {
	skipIfShort(t)
	inRegisters := halfProduct{b: ptx.MatrixLayout{Rows: 64, Depth: 64, Line: 64}}
	inMemory := halfProduct{ptx.MatrixLayout{Rows: 64, Depth: 64, Line: 128}, ptx.MatrixLayout{Rows: 64, Depth: 64, Line: 64, Transposed: true}}
	inHalves, wantHalves := inRegisters.run(float16.ToF16)
	inBF16, wantBF16 := inMemory.run(float16.ToBF16)
	for _, c := range []struct {
		name     string
		kernel   func() (*ptx.Kernel, error)
		in       [][]byte
		want     []byte
		leftOut  int // synchronizations
		matrices int // changes of what is read from shared memory
	}{
		{"f16 in registers", func() (*ptx.Kernel, error) { return halfKernel[ptx.F16x2](inRegisters) }, inHalves, wantHalves, 5, 11},
		{"bf16 in shared memory", func() (*ptx.Kernel, error) { return halfKernel[ptx.BF16x2](inMemory) }, inBF16, wantBF16, 5, 18},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, err := c.kernel()
			if err != nil {
				t.Fatal(err)
			}
			text, err := k.Text(harness.EmulatorTarget.For(k))
			if err != nil {
				t.Fatal(err)
			}
			d := formDevices(t)[0]
			tried := map[string]int{}
			for _, m := range mutate.MutantsOf(k) {
				tried[m.Mutator]++
				if got, err := d.Run(string(m.Apply(k.Name, text)), c.in, isa.CTAs, isa.Threads, len(c.want)); err == nil && bytes.Equal(got, c.want) {
					t.Errorf("not detected: %v", m)
				}
			}
			if tried[mutate.LeaveOutSync] != c.leftOut || tried["matrix"] != c.matrices {
				t.Errorf("%d mutants that leave out a synchronization and %d of matrices, want %d and %d", tried[mutate.LeaveOutSync], tried["matrix"], c.leftOut, c.matrices)
			}
		})
	}
}
