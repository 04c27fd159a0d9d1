package conformance

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// The rig's own proof: a kernel that doubles 256 numbers, right but for one fault,
// must be complained of in the words that name the fault.

const redCount = 256

// doubling is the kernel's work on x and y at these addresses.
type doubling func(m fakeMemory, x, y uint64)

func double(m fakeMemory, x, y uint64) {
	for i := range uint64(redCount) {
		m.setF32(y+4*i, 2*m.f32(x+4*i))
	}
}

// after is double, and then something else.
func after(fault doubling) doubling {
	return func(m fakeMemory, x, y uint64) {
		double(m, x, y)
		fault(m, x, y)
	}
}

func nextUp(x float32) float32 { return math.Nextafter32(x, float32(math.Inf(1))) }

var redKernels = []struct {
	name string
	run  doubling
	want string // part of the complaint; "": none
}{
	{"right", double, ""},
	{"one wrong value", after(func(m fakeMemory, _, y uint64) { m.setF32(y+40, 1+m.f32(y+40)) }), "hard gate: 1 beyond"},
	{"one value off by 3 ulp", after(func(m fakeMemory, _, y uint64) {
		m.setF32(y+40, nextUp(nextUp(nextUp(m.f32(y+40)))))
	}), "hard gate: 1 beyond"},
	{"a NaN", after(func(m fakeMemory, _, y uint64) { m.setF32(y+40, float32(math.NaN())) }), "class gate: 1 beyond"},
	{"an infinity of the wrong sign", after(func(m fakeMemory, _, y uint64) { m.setF32(y, -m.f32(y)) }), "class gate: 1 beyond"},
	{"a number for a NaN", after(func(m fakeMemory, _, y uint64) { m.setF32(y+4, 0) }), "class gate: 1 beyond"},
	{"a value before the output", after(func(m fakeMemory, _, y uint64) { m.setF32(y-8, 1) }), "wrote 8 bytes before y"},
	{"a value after the output", after(func(m fakeMemory, _, y uint64) { m.setF32(y+4*redCount+8, 1) }), "wrote beyond y, 0 bytes after its end"},
	{"a value before the input", after(func(m fakeMemory, x, _ uint64) { m.setF32(x-4, 1) }), "wrote 4 bytes before x"},
	{"an input changed", after(func(m fakeMemory, x, _ uint64) { m.setF32(x+8, 1) }), "changed its input x at byte"},
	{"the padding of an input changed", after(func(m fakeMemory, x, _ uint64) { m.setF32(x+4*redCount, 1) }), "changed its input x at byte"},
	{"the last output not written", func(m fakeMemory, x, y uint64) {
		last := m.f32(y + 4*redCount - 4)
		double(m, x, y)
		m.setF32(y+4*redCount-4, last)
	}, "were not written, the first at 1020"},
	{"padding read", after(func(m fakeMemory, x, y uint64) {
		m[y] = m[x+4*redCount]
	}), "depend on what was never set"},
	{"another result each time", func() doubling {
		calls := 0
		return after(func(m fakeMemory, _, y uint64) {
			if calls++; calls > 2 {
				m.setF32(y+12, nextUp(m.f32(y+12)))
			}
		})
	}(), "is not the same when launched again"},
	{"a neighbor's memory written", after(func(m fakeMemory, _, y uint64) { m.setF32(y+4*redCount+4, 1) }), "which is not the kernel's"},
}

// checkDoubling is the case: x has an infinity, a NaN, and padding after its end; y
// has room that is not the kernel's.
func checkDoubling(r *KernelRig) {
	x := r.Vector(Gaussian, redCount)
	x[0], x[1] = float32(math.Inf(1)), float32(math.NaN())
	in := r.Input("x", 4*redCount+4).SetF32s(0, x)
	const spare = 8
	out := r.Output("y", 4*redCount+spare)
	b := ptx.New("double")
	b.Global("x", 4)
	b.Global("y", 4)
	k, err := b.Finish(ptx.MaxThreads(1))
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.Launch(k.Launch([3]uint32{1, 1, 1}, 1, 0, ptx.Addr(in.Addr()), ptx.Addr(out.Addr())))
	want := make([]Ref, redCount)
	for i := range want {
		want[i] = DotRef(x[i:i+1], []float32{2})
	}
	got := make([]float32, redCount)
	quant.Decode(quant.F32, got, out.Range(0, 4*redCount))
	r.Close("y", got, want, 16, Tolerance{L: 1})
	out.Untouched(4*redCount, spare)
}

// redComplaints runs a case on a fake device and returns what the rig said.
func redComplaints(t *testing.T, run doubling, c KernelCase) []string {
	t.Helper()
	s, err := NewKernelSuite(func() (driver.Device, error) {
		return newFakeDevice(func(m fakeMemory, params []byte) {
			run(m, binary.LittleEndian.Uint64(params), binary.LittleEndian.Uint64(params[8:]))
		}), nil
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.Repeats = 1
	rec := &recorder{}
	s.Run(rec, c)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return rec.all
}

func TestRigSeesFaults(t *testing.T) {
	for _, red := range redKernels {
		t.Run(red.name, func(t *testing.T) {
			c := KernelCase{Operation: "red", Name: red.name, Reason: "a planted fault", Run: checkDoubling}
			got := redComplaints(t, red.run, c)
			expect(t, got, red.want)
		})
	}
}
