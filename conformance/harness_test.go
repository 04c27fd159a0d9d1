package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// fakeDevice runs kernels that are Go functions, so that tests can plant faults that a
// device would trap.
type fakeDevice struct {
	driver.Device // nil: unused methods panic
	memory        []byte
	free          int // address
	run           func(m fakeMemory, params []byte)
	lost          error
}

func newFakeDevice(run func(fakeMemory, []byte)) *fakeDevice {
	return &fakeDevice{memory: make([]byte, 1<<20), free: 4096, run: run}
}

type (
	fakeMemory   []byte
	fakeBuffer   struct{ at, bytes int }
	fakeModule   struct{ driver.Module }
	fakeFunction struct {
		driver.Function
		name string
	}
	fakeStream struct {
		driver.Stream
		d *fakeDevice
	}
)

func (d *fakeDevice) NewStream() (driver.Stream, error)         { return fakeStream{d: d}, nil }
func (d *fakeDevice) Err() error                                { return d.lost }
func (d *fakeDevice) Close() error                              { return nil }
func (d *fakeDevice) Load([]byte) (driver.Module, error)        { return fakeModule{}, nil }
func (b fakeBuffer) Address() driver.Address                    { return driver.Address(b.at) }
func (b fakeBuffer) Bytes() int64                               { return int64(b.bytes) }
func (b fakeBuffer) Close() error                               { return nil }
func (m fakeModule) Close() error                               { return nil }
func (f fakeFunction) Name() string                             { return f.name }
func (s fakeStream) Synchronize() error                         { return nil }
func (s fakeStream) Close() error                               { return nil }
func (d *fakeDevice) Properties() driver.Properties             { return driver.Properties{Name: "fake"} }
func (m fakeModule) Function(n string) (driver.Function, error) { return fakeFunction{name: n}, nil }

func (d *fakeDevice) Alloc(n int64) (driver.Buffer, error) {
	b := fakeBuffer{d.free, int(n)}
	d.free = (d.free + int(n) + 255) / 256 * 256
	if d.free > len(d.memory) {
		return nil, fmt.Errorf("fake: %w", driver.ErrOutOfMemory)
	}
	return b, nil
}

func (s fakeStream) Write(dst driver.Address, src []byte) error {
	copy(s.d.memory[dst:], src)
	return nil
}

func (s fakeStream) Read(dst []byte, src driver.Address) error {
	copy(dst, s.d.memory[src:])
	return nil
}

func (s fakeStream) Launch(list ...driver.Launch) error {
	for _, l := range list {
		s.d.run(s.d.memory, l.Params)
	}
	return nil
}

func (m fakeMemory) f32(at uint64) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(m[at:]))
}

func (m fakeMemory) setF32(at uint64, x float32) {
	binary.LittleEndian.PutUint32(m[at:], math.Float32bits(x))
}

// termCount is the number of products per sum.
const termCount = 16

// sums holds results and their references.
type sums struct {
	got  []float32
	want []harness.Ref
}

// serialSums adds n products in float32, for 512 elements.
func serialSums(r *harness.Fixture, n int) sums {
	var s sums
	for range 512 {
		w, x := r.Vector(harness.Gaussian, n), r.Vector(harness.Gaussian, n)
		var y float32
		for i := range w {
			y = float32(math.FMA(float64(w[i]), float64(x[i]), float64(y))) // nearly a fused multiply-add
		}
		s.got, s.want = append(s.got, y), append(s.want, harness.Dot(w, x))
	}
	return s
}

var sumFaults = []struct {
	name   string
	change func(i int, y float32, w harness.Ref) float32
	want   string // part of the failure message; "": no failure
}{
	{"correct", func(_ int, y float32, _ harness.Ref) float32 { return y }, ""},
	{"biased upward: one result in four is 1 ulp larger", func(i int, y float32, w harness.Ref) float32 {
		if i%4 == 0 {
			return float32(float64(y) + harness.Spacing(quant.F32, w.P))
		}
		return y
	}, "bias check"},
	{"biased toward zero: one result in four is 1 ulp smaller", func(i int, y float32, w harness.Ref) float32 {
		if i%4 == 0 {
			return float32(float64(y) - math.Copysign(harness.Spacing(quant.F32, w.P), w.Y))
		}
		return y
	}, "bias check"},
	{"one element of 512 is off by a hundredth of its terms", func(i int, y float32, w harness.Ref) float32 {
		if i == 100 {
			return y + float32(w.P)/100
		}
		return y
	}, "worst-case check: 1 failed"},
	{"one element exceeds only the probabilistic bound", func(i int, y float32, w harness.Ref) float32 {
		if i == 100 {
			return float32(w.Y + 9*harness.UnitRoundoff*math.Sqrt(termCount)*w.P)
		}
		return y
	}, "probabilistic check: 1 failed"},
	{"a row whose errors are all large, but within the probabilistic bound", func(i int, y float32, w harness.Ref) float32 {
		if i/64 == 3 {
			return float32(w.Y + float64(1-2*(i%2))*4*harness.UnitRoundoff*math.Sqrt(termCount)*w.P)
		}
		return y
	}, "row-rms check: 1 failed"},
	{"NaN", func(i int, y float32, _ harness.Ref) float32 {
		if i == 511 {
			return float32(math.NaN())
		}
		return y
	}, "class check: 1 failed"},
	{"sums rounded to float16", func(_ int, y float32, _ harness.Ref) float32 {
		return float16.RoundF16(y)
	}, "worst-case check"},
}

func TestCloseSeesFaults(t *testing.T) {
	for _, fault := range sumFaults {
		t.Run(fault.name, func(t *testing.T) {
			got := comparisonFailures(t, func(r *harness.Fixture) {
				s := serialSums(r, termCount)
				for i, y := range s.got {
					s.got[i] = fault.change(i, y, s.want[i])
				}
				r.Close("y", s.got, s.want, 64, harness.Tolerance{L: termCount})
			})
			expect(t, got, fault.want)
		})
	}
}

// expect demands a message that contains want, or no message if want is "".
func expect(t *testing.T, messages []string, want string) {
	t.Helper()
	all := strings.Join(messages, "\n")
	if want == "" && all != "" || !strings.Contains(all, want) {
		t.Errorf("failure messages:\n%s\nwant one with %q", all, want)
	}
}

// comparisonFailures runs comparisons in a case that launches a kernel, which writes nothing.
func comparisonFailures(t *testing.T, run func(r *harness.Fixture)) []string {
	t.Helper()
	return runOnFake(t, func(fakeMemory, uint64, uint64) {}, harness.Case{
		Operation: "comparisons", Name: "comparisons", Reason: "planted results", Run: func(r *harness.Fixture) {
			launchDouble(r, r.F32s("x", []float32{1}), r.Output("unused", 4))
			run(r)
		},
	})
}

var inf, nan = math.Inf(1), math.NaN()

// comparisons try each comparison on two numbers. The second one may be wrong.
var comparisons = []struct {
	name string
	run  func(r *harness.Fixture)
	want string
}{
	{"1 ulp of 2", func(r *harness.Fixture) {
		r.ULP("y", quant.F32, []float32{1, nextUp(3)}, []float64{1, 3}, 2)
	}, ""},
	{"3 ulp of 2", func(r *harness.Fixture) {
		r.ULP("y", quant.F32, []float32{1, nextUp(nextUp(nextUp(3)))}, []float64{1, 3}, 2)
	}, "ulp check: 1 failed"},
	{"subnormal, 3 ulp of 2", func(r *harness.Fixture) {
		r.ULP("y", quant.F32, []float32{1, 0x1p-149 * 8}, []float64{1, 0x1p-149 * 5}, 2)
	}, "ulp check: 1 failed"},
	{"float16, 1 ulp", func(r *harness.Fixture) { r.ULP("y", quant.F16, []float32{1, 1 + 0x1p-10}, []float64{1, 1}, 1) }, ""},
	{"float16, 2 ulp", func(r *harness.Fixture) { r.ULP("y", quant.F16, []float32{1, 1 + 0x1p-9}, []float64{1, 1}, 1) }, "ulp check"},
	{"float16 overflows to infinity", func(r *harness.Fixture) {
		r.ULP("y", quant.F16, []float32{1, float32(inf)}, []float64{1, 70000}, 1)
	}, ""},
	{"float32 does not overflow there", func(r *harness.Fixture) {
		r.ULP("y", quant.F32, []float32{1, float32(inf)}, []float64{1, 70000}, 1)
	}, "class check"},
	{"NaN for a number", func(r *harness.Fixture) {
		r.Within("y", []float32{1, float32(nan)}, []float64{1, 1}, []float64{inf, inf})
	}, "class check"},
	{"an infinite bound", func(r *harness.Fixture) { r.Within("y", []float32{1, 2}, []float64{1, 1}, []float64{0, inf}) }, "derived check: 1 failed"},
	{"a bound that zeros pass", func(r *harness.Fixture) { r.Within("y", []float32{1, 1}, []float64{1, 1}, []float64{2, 1}) }, "zeros are within all bounds"},
	{"zeros are expected", func(r *harness.Fixture) { r.Within("y", []float32{0, 0}, []float64{0, 0}, []float64{1, 1}) }, ""},
	{"zeros of a format are expected", func(r *harness.Fixture) { r.ULP("y", quant.F16, []float32{0, 0}, []float64{1e-20, 0}, 0.5) }, ""},
	{"only NaN", func(r *harness.Fixture) { r.ULP("y", quant.F32, []float32{float32(nan)}, []float64{nan}, 1) }, "no reference is finite"},
	{"no error is within a NaN bound", func(r *harness.Fixture) { r.Within("y", []float32{1, 2}, []float64{1, 1}, []float64{0, nan}) }, "derived check"},
	{"the wrong infinity", func(r *harness.Fixture) {
		r.Within("y", []float32{1, float32(-inf)}, []float64{1, inf}, []float64{1, 1})
	}, "class check"},
	{"within twice the baseline's error", func(r *harness.Fixture) {
		r.NoWorse("y", []float32{1, 1.2}, []float64{1, 1}, []float32{1, 1.1}, 2)
	}, ""},
	{"beyond twice the baseline's error", func(r *harness.Fixture) {
		r.NoWorse("y", []float32{1, 1.3}, []float64{1, 1}, []float32{1, 1.1}, 2)
	}, "derived check"},
	{"equal words", func(r *harness.Fixture) { harness.Exact(r, "y", []uint32{1, 2}, []uint32{1, 2}) }, ""},
	{"different words", func(r *harness.Fixture) { harness.Exact(r, "y", []uint32{1, 2}, []uint32{1, 3}) }, "1 of 2 differ"},
	{"-0 is not 0", func(r *harness.Fixture) {
		harness.Exact(r, "y", []float32{0, float32(math.Copysign(0, -1))}, []float32{0, 0})
	}, "1 of 2 differ"},
	{"NaN equals NaN", func(r *harness.Fixture) {
		harness.Exact(r, "y", []float32{0, float32(nan)}, []float32{0, float32(nan)})
	}, ""},
	{"a number is missing", func(r *harness.Fixture) { harness.Exact(r, "y", []uint32{1}, []uint32{1, 2}) }, "1 numbers, want 2"},
	{"empty slices", func(r *harness.Fixture) { harness.Exact(r, "y", []uint32{}, []uint32{}) }, "0 numbers"},
	{"no comparison", func(r *harness.Fixture) {}, "nothing was compared"},
}

func TestComparisons(t *testing.T) {
	for _, c := range comparisons {
		t.Run(c.name, func(t *testing.T) { expect(t, comparisonFailures(t, c.run), c.want) })
	}
}

const elementCount = 256

// kernelFunc reads x and writes y, at these addresses.
type kernelFunc func(m fakeMemory, x, y uint64)

func double(m fakeMemory, x, y uint64) {
	for i := range uint64(elementCount) {
		m.setF32(y+4*i, 2*m.f32(x+4*i))
	}
}

// then runs double and then fault.
func then(fault kernelFunc) kernelFunc {
	return func(m fakeMemory, x, y uint64) {
		double(m, x, y)
		fault(m, x, y)
	}
}

func nextUp(x float32) float32 { return math.Nextafter32(x, float32(math.Inf(1))) }

var faultyKernels = []struct {
	name string
	run  kernelFunc
	want string // part of the failure message; "": no failure
}{
	{"correct", double, ""},
	{"one wrong value", then(func(m fakeMemory, _, y uint64) { m.setF32(y+40, 1+m.f32(y+40)) }), "worst-case check: 1 failed"},
	{"one value off by 3 ulp", then(func(m fakeMemory, _, y uint64) {
		m.setF32(y+40, nextUp(nextUp(nextUp(m.f32(y+40)))))
	}), "worst-case check: 1 failed"},
	{"a NaN", then(func(m fakeMemory, _, y uint64) { m.setF32(y+40, float32(math.NaN())) }), "class check: 1 failed"},
	{"an infinity of the wrong sign", then(func(m fakeMemory, _, y uint64) { m.setF32(y, -m.f32(y)) }), "class check: 1 failed"},
	{"a number instead of NaN", then(func(m fakeMemory, _, y uint64) { m.setF32(y+4, 0) }), "class check: 1 failed"},
	{"a value before the output", then(func(m fakeMemory, _, y uint64) { m.setF32(y-8, 1) }), "wrote 8 bytes before y"},
	{"a value after the output", then(func(m fakeMemory, _, y uint64) { m.setF32(y+4*elementCount+8, 1) }), "wrote beyond y, 0 bytes after its end"},
	{"a value before the input", then(func(m fakeMemory, x, _ uint64) { m.setF32(x-4, 1) }), "wrote 4 bytes before x"},
	{"an input is changed", then(func(m fakeMemory, x, _ uint64) { m.setF32(x+8, 1) }), "changed its input x at byte"},
	{"the padding of an input is changed", then(func(m fakeMemory, x, _ uint64) { m.setF32(x+4*elementCount, 1) }), "changed its input x at byte"},
	{"the last output is not written", func(m fakeMemory, x, y uint64) {
		last := m.f32(y + 4*elementCount - 4)
		double(m, x, y)
		m.setF32(y+4*elementCount-4, last)
	}, "were not written, the first at 1020"},
	{"padding is read", then(func(m fakeMemory, x, y uint64) {
		m[y] = m[x+4*elementCount]
	}), "depend on uninitialized memory"},
	{"results vary", func() kernelFunc {
		calls := 0
		return then(func(m fakeMemory, _, y uint64) {
			if calls++; calls > 2 {
				m.setF32(y+12, nextUp(m.f32(y+12)))
			}
		})
	}(), "differs when the launch is repeated"},
	{"memory outside the output is written", then(func(m fakeMemory, _, y uint64) { m.setF32(y+4*elementCount+4, 1) }), "outside the kernel's output"},
}

// checkDoubling is the case for faultyKernels. x holds an infinity, a NaN and padding; y
// has padding that the kernel must not write.
func checkDoubling(r *harness.Fixture) {
	x := r.Vector(harness.Gaussian, elementCount)
	x[0], x[1] = float32(math.Inf(1)), float32(math.NaN())
	in := r.Input("x", 4*elementCount+4).SetF32s(0, x)
	const spare = 8
	out := r.Output("y", 4*elementCount+spare)
	launchDouble(r, in, out)
	want := make([]harness.Ref, elementCount)
	for i := range want {
		want[i] = harness.Dot(x[i:i+1], []float32{2})
	}
	got := make([]float32, elementCount)
	quant.Decode(quant.F32, got, out.Range(0, 4*elementCount))
	r.Close("y", got, want, 16, harness.Tolerance{L: 1})
	out.Untouched(4*elementCount, spare)
}

// launchDouble launches the kernel that a fake device runs in Go.
func launchDouble(r *harness.Fixture, in, out *harness.Buffer) {
	b := ptx.New("double")
	type params struct{ X, Y ptx.Global }
	ptx.Declare(b, &params{})
	k, err := b.Finish(ptx.MaxThreads(1))
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.Launch(k.Launch([3]uint32{1, 1, 1}, 1, 0, &params{X: ptx.Addr(in.Addr()), Y: ptx.Addr(out.Addr())}))
}

// emptyCases compare too little.
var emptyCases = []struct {
	name string
	run  func(r *harness.Fixture)
	want string
}{
	{"no kernel", func(r *harness.Fixture) { harness.Exact(r, "y", []uint32{1}, []uint32{1}) }, "no kernel was launched"},
	{"half of the output", func(r *harness.Fixture) {
		x := r.Vector(harness.Gaussian, elementCount)
		out := r.Output("y", 4*elementCount)
		launchDouble(r, r.F32s("x", x), out)
		r.ULP("y", quant.F32, out.FloatsAt(quant.F32, 0, elementCount/2), doubled(x[:elementCount/2]), 0)
	}, "y: byte 512 was written but not compared"},
	{"a launch after the comparison", func(r *harness.Fixture) {
		x := r.Vector(harness.Gaussian, elementCount)
		out := r.Output("y", 4*elementCount)
		launchDouble(r, r.F32s("x", x), out)
		r.ULP("y", quant.F32, out.F32s(), doubled(x), 0)
		launchDouble(r, r.F32s("other x", r.Vector(harness.Gaussian, elementCount)), out)
	}, "was written but not compared"},
	{"scratch memory", func(r *harness.Fixture) {
		x := r.Vector(harness.Gaussian, elementCount)
		half, out := r.Scratch("half", 4*elementCount), r.Output("y", 4*elementCount)
		launchDouble(r, r.F32s("x", x), half)
		launchDouble(r, half, out)
		r.ULP("y", quant.F32, out.F32s(), doubled(doubled32(x)), 0)
	}, ""},
}

func doubled(x []float32) (y []float64) {
	for _, v := range x {
		y = append(y, 2*float64(v))
	}
	return y
}

func doubled32(x []float32) (y []float32) {
	for _, v := range x {
		y = append(y, 2*v)
	}
	return y
}

func TestEmptyCases(t *testing.T) {
	for _, c := range emptyCases {
		t.Run(c.name, func(t *testing.T) {
			expect(t, runOnFake(t, double, harness.Case{Operation: "empty", Name: c.name, Reason: "a case that compares too little", Run: c.run}), c.want)
		})
	}
}

// runOnFake runs a case on a fake device and returns the failure messages.
func runOnFake(t *testing.T, run kernelFunc, c harness.Case) []string {
	t.Helper()
	s, err := harness.NewSuite(func() (driver.Device, error) {
		return newFakeDevice(func(m fakeMemory, params []byte) {
			run(m, binary.LittleEndian.Uint64(params), binary.LittleEndian.Uint64(params[8:]))
		}), nil
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.Repeats = 1
	rec := &harness.Recorder{}
	s.Run(rec, c)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return rec.Messages
}

// TestSuiteCannotReopen checks that cases fail with the driver's error if the device is lost and
// cannot be opened again.
func TestSuiteCannotReopen(t *testing.T) {
	opened := 0
	s, err := harness.NewSuite(func() (driver.Device, error) {
		if opened++; opened > 1 {
			return nil, errors.New("refused")
		}
		d := newFakeDevice(nil)
		d.lost = driver.ErrDeviceLost
		return d, nil
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		rec := &harness.Recorder{}
		s.Run(rec, harness.Case{Operation: "lost", Name: "any", Run: func(*harness.Fixture) { t.Error("the case ran") }})
		expect(t, rec.Messages, "opening the device: refused")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnordered repeats a launch that writes other bits to its output each time.
func TestUnordered(t *testing.T) {
	for want, out := range map[string]func(r *harness.Fixture) *harness.Buffer{
		"":                                    func(r *harness.Fixture) *harness.Buffer { return r.Scratch("y", 4*elementCount).Unordered() },
		"differs when the launch is repeated": func(r *harness.Fixture) *harness.Buffer { return r.Scratch("y", 4*elementCount) },
	} {
		calls := float32(0)
		varies := then(func(m fakeMemory, _, y uint64) {
			calls++
			m.setF32(y+12, calls*0x1p20)
		})
		got := runOnFake(t, varies, harness.Case{Operation: "unordered", Name: "y", Reason: "atomics order it", Run: func(r *harness.Fixture) {
			launchDouble(r, r.F32s("x", r.Vector(harness.Gaussian, elementCount)), out(r))
			harness.Exact(r, "x", []int{1}, []int{1})
		}})
		expect(t, got, want)
	}
}

func TestHarnessSeesFaults(t *testing.T) {
	for _, f := range faultyKernels {
		t.Run(f.name, func(t *testing.T) {
			c := harness.Case{Operation: "faults", Name: f.name, Reason: "a planted fault", Run: checkDoubling}
			got := runOnFake(t, f.run, c)
			expect(t, got, f.want)
		})
	}
}

type scale struct{}

func (scale) Name() string { return "scale" }

type scaleParams struct {
	X, Y ptx.Global
	N    ptx.U32
	C    ptx.F32
}

const scaleThreads = 128

func (s scale) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	var p scaleParams
	ptx.Declare(b, &p)
	i := b.BlockX().MulN(scaleThreads).Add(b.ThreadX())
	b.ReturnIf(i.Ge(p.N))
	p.Y.At(i, 4).StoreF32(p.X.At(i, 4).LoadF32().Mul(p.C))
	return b.Finish(ptx.MaxThreads(scaleThreads))
}

func checkScale(r *harness.Fixture, d harness.Distribution, n int) {
	x, c := r.Vector(d, n), float32(3)
	in, out := r.F32s("x", x), r.Output("y", 4*n)
	k := r.Kernel(scale{})
	r.Launch(k.Launch([3]uint32{uint32((n + scaleThreads - 1) / scaleThreads), 1, 1}, scaleThreads, 0,
		&scaleParams{X: ptx.Addr(in.Addr()), Y: ptx.Addr(out.Addr()), N: ptx.Uint(n), C: ptx.Float(c)}))
	want := make([]harness.Ref, n)
	for i := range want {
		want[i] = harness.Dot(x[i:i+1], []float32{c})
	}
	r.Close("y", out.F32s(), want, n, harness.Tolerance{L: 1})
}

func scaleCases() []harness.Case {
	var all []harness.Case
	for _, d := range harness.Distributions() {
		for _, n := range []int{1, 31, 33, 128, 300} {
			all = append(all, harness.Case{
				Operation: "scale", Format: "F32", Name: fmt.Sprintf("%v/n=%d", d, n), Reason: "around a warp and a CTA",
				Run: func(r *harness.Fixture) { checkScale(r, d, n) },
			})
		}
	}
	return all
}

func TestScale(t *testing.T) {
	s := kernelSuite(t)
	for _, c := range scaleCases() {
		t.Run(c.Name, func(t *testing.T) { s.Run(t, c) })
	}
}

// TestReferenceMatchesBLAS compares harness.MatMul with an independent float64 product.
// Both add k terms, in different orders, so they differ by at most 2·γ_k of the sum of
// magnitudes.
func TestReferenceMatchesBLAS(t *testing.T) {
	const rows, vectors = 7, 3
	for _, f := range product.Formats() {
		for _, d := range harness.Distributions() {
			comparisonFailures(t, func(r *harness.Fixture) {
				k := 4 * max(f.BlockLen(), 33)
				file, x := r.Weights(f, d, rows, k), r.Vector(d, vectors*k)
				want := blas64.General{Rows: vectors, Cols: rows, Stride: rows, Data: make([]float64, vectors*rows)}
				w, wide := make([]float64, rows*k), make([]float64, len(x))
				quant.Decode(f, w, file)
				for i, v := range x {
					wide[i] = float64(v)
				}
				blas64.Gemm(blas.NoTrans, blas.Trans, 1, blas64.General{Rows: vectors, Cols: k, Stride: k, Data: wide},
					blas64.General{Rows: rows, Cols: k, Stride: k, Data: w}, 0, want)
				gamma := float64(k) * 0x1p-53 / (1 - float64(k)*0x1p-53)
				for i, got := range harness.MatMul(f, file, rows, k, x) {
					if !(math.Abs(got.Y-want.Data[i]) <= 2*gamma*got.S) {
						t.Errorf("%v, %v: element %d is %v, BLAS computes %v", f, d, i, got.Y, want.Data[i])
					}
				}
			})
		}
	}
}
