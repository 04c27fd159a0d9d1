package conformance

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/isa"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/ptxas"
)

func newFormDevice(t *testing.T, name string, open func() (driver.Device, error)) *isa.Device {
	t.Helper()
	d, err := isa.OpenDevice(name, open)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// formDevices opens the emulator, the emulator with perturbed approximations and, with
// -gpu, the GPU.
func formDevices(t *testing.T) []*isa.Device {
	t.Helper()
	emulator := func(o emu.Options) func() (driver.Device, error) {
		return func() (driver.Device, error) { return emu.Open(o) }
	}
	all := []*isa.Device{
		newFormDevice(t, isa.Emulator, emulator(emu.Options{Async: emu.Late, Schedule: emu.Adversarial(*kernelSeed)})),
		newFormDevice(t, isa.Perturbed, emulator(emu.Options{Approx: emu.Perturbed(*kernelSeed)})),
	}
	if *onGPU {
		all = append(all, newFormDevice(t, isa.GPU, func() (driver.Device, error) { return cuda.Open(0) }))
	}
	return all
}

// TestInstructions runs each form of instruction of the kernels and of the emulator's tests
// in a small kernel. It compares the emulator and, with -gpu, the GPU with an
// implementation in Go, bit for bit. Approximate instructions and float matrix products
// have bounds instead. A form without an implementation fails.
func TestInstructions(t *testing.T) {
	slowParallel(t)
	bench := isa.Bench{Devices: formDevices(t), Seed: *kernelSeed, Combinations: 4096}
	if *longCases || *onGPU {
		bench.Combinations = 10240
	}
	forms := isa.AllForms(t)
	var results []isa.Result
	excluded := 0
	for _, f := range forms.Sorted() {
		if isa.Excluded[f.Op] != "" {
			excluded++
			continue
		}
		gone := false
		t.Run(f.String(), func(t *testing.T) {
			r, err := bench.Try(f, forms[f])
			gone = errors.Is(err, isa.ErrGone)
			if err != nil {
				t.Errorf("used by %s: %v", forms[f].Where, err)
			}
			if err == nil && r.Compared == 0 {
				t.Error("nothing was compared")
			}
			results = append(results, r)
		})
		if gone {
			t.Fatalf("%v lost a device for good: the forms that follow were not tried", f)
		}
	}
	isa.PrintTable(results)
	for op, reason := range isa.Excluded {
		fmt.Printf("excluded: %s: %s\n", op, reason)
		if !forms.HasOp(op) {
			t.Errorf("%s is excluded but no form has it", op)
		}
	}
	for _, d := range bench.Devices {
		fmt.Printf("on: %s, %s\n", d.Name, d.Properties.Name)
	}
	fmt.Printf("%d forms: %d tested, %d excluded\n\n", len(forms), len(results), excluded)
}

// TestGoneDevice checks that a device which cannot be opened again after a kernel's fault gives one
// error, then and later.
func TestGoneDevice(t *testing.T) {
	refusal := errors.New("refused")
	opened := 0
	d := newFormDevice(t, isa.Emulator, func() (driver.Device, error) {
		if opened++; opened > 1 {
			return (*emu.Device)(nil), refusal
		}
		return emu.Open(emu.Options{})
	})
	f := isa.Form{Op: "ld.global.u32"}
	bench := isa.Bench{Devices: []*isa.Device{d}, Seed: *kernelSeed}
	if _, err := bench.Try(f, isa.Use{}); err != nil {
		t.Fatal(err)
	}
	h, _ := isa.TestKernelFor(f)
	trap := strings.Replace(h.Text(f), "\tld.param", "\ttrap;\n\tld.param", 1)
	if _, err := d.Run(trap, nil, 1, 1, 4); !errors.Is(err, isa.ErrGone) || !errors.Is(err, driver.ErrDeviceLost) || !errors.Is(err, refusal) {
		t.Errorf("the fault gives %v", err)
	}
	if _, err := bench.Try(f, isa.Use{}); !errors.Is(err, isa.ErrGone) {
		t.Errorf("after it, a form gives %v", err)
	}
}

// TestLaneExpectations compares the Go implementations of instructions with results that
// were computed by hand.
func TestLaneExpectations(t *testing.T) {
	bits := func(x float32) uint64 { return uint64(math.Float32bits(x)) }
	nan, inf := uint64(0x7fc00000), bits(float32(math.Inf(1)))
	for _, c := range []struct {
		form isa.Form
		x    []uint64
		want uint64
		why  string
	}{
		{isa.Form{Op: "div.s32"}, []uint64{0xfffffff9, 2}, 0xfffffffd, "-7 / 2 is -3"},
		{isa.Form{Op: "rem.s32"}, []uint64{0xfffffff9, 2}, 0xffffffff, "-7 rem 2 is -1"},
		{isa.Form{Op: "mul.hi.s32"}, []uint64{0xffffffff, 1}, 0xffffffff, "sign-extended"},
		{isa.Form{Op: "mul.hi.u32"}, []uint64{0xffffffff, 1}, 0, "zero-extended"},
		{isa.Form{Op: "mad.wide.s32"}, []uint64{0xffffffff, 3, 1}, math.MaxUint64 - 1, "1 - 3 in 64 bits"},
		{isa.Form{Op: "shr.s32"}, []uint64{0x80000000, 99}, 0xffffffff, "shifts are clamped and keep the sign"},
		{isa.Form{Op: "shl.b32"}, []uint64{1, 32}, 0, "shifts are clamped"},
		{isa.Form{Op: "shf.l.wrap.b32"}, []uint64{0x80000000, 1, 33}, 3, "shifts wrap"},
		{isa.Form{Op: "clz.b32"}, []uint64{0}, 32, "no bit is set"},
		{isa.Form{Op: "brev.b32"}, []uint64{1}, 0x80000000, "the lowest bit becomes the highest"},
		{isa.Form{Op: "bfe.s32"}, []uint64{0x0000f000, 12, 4}, 0xffffffff, "the field's highest bit is its sign"},
		{isa.Form{Op: "bfe.s32"}, []uint64{0x80000000, 31, 9}, 0xffffffff, "beyond the operand, its highest bit is the sign"},
		{isa.Form{Op: "bfe.u32"}, []uint64{0xabcd1234, 8, 8}, 0x12, "eight bits from bit 8"},
		{isa.Form{Op: "bfi.b32"}, []uint64{0xff, 0, 28, 8}, 0xf0000000, "cut off at the end"},
		{isa.Form{Op: "lop3.b32", Args: "128"}, []uint64{0xf0, 0xcc, 0xaa}, 0x80, "a & b & c"},
		{isa.Form{Op: "lop3.b32", Args: "64"}, []uint64{0xf0, 0xcc, 0xaa}, 0x40, "a & b & ^c"},
		{isa.Form{Op: "lop3.b32", Args: "234"}, []uint64{0xf0, 0xcc, 0xaa}, 0xea, "a & b | c: the table itself"},
		{isa.Form{Op: "prmt.b32"}, []uint64{0x33221100, 0x77665544, 0x0123}, 0x00112233, "bytes reversed"},
		{isa.Form{Op: "prmt.b32"}, []uint64{0x33221100, 0x77665544, 0x7531}, 0x77553311, "odd bytes"},
		{isa.Form{Op: "prmt.b32"}, []uint64{0x00008000, 0, 0x0999}, 0x00ffffff, "bit 3 replicates the sign"},
		{isa.Form{Op: "prmt.b32.f4e"}, []uint64{0x33221100, 0x77665544, 5}, 0x44332211, "forward from byte 1: two bits count"},
		{isa.Form{Op: "prmt.b32.b4e"}, []uint64{0x33221100, 0x77665544, 1}, 0x66770011, "backward from byte 1"},
		{isa.Form{Op: "dp4a.s32.u32"}, []uint64{0xff01ff01, 0x02020280, 7}, 133, "128 - 2 + 2 - 2 + 7"},
		{isa.Form{Op: "setp.ne.f32"}, []uint64{nan, nan}, 0, "ne is false for NaN"},
		{isa.Form{Op: "setp.neu.f32"}, []uint64{nan, nan}, 1, "neu is true for NaN"},
		{isa.Form{Op: "setp.lt.s32"}, []uint64{0xffffffff, 0}, 1, "signed"},
		{isa.Form{Op: "setp.lo.u32"}, []uint64{0xffffffff, 0}, 0, "unsigned"},
		{isa.Form{Op: "cvt.rni.s32.f32"}, []uint64{bits(2.5)}, 2, "to even"},
		{isa.Form{Op: "cvt.rzi.u32.f32"}, []uint64{bits(-1)}, 0, "clamped"},
		{isa.Form{Op: "cvt.rzi.s32.f32"}, []uint64{bits(1e10)}, math.MaxInt32, "clamped"},
		{isa.Form{Op: "cvt.rzi.s32.f32"}, []uint64{nan}, 0, "NaN of float32"},
		{isa.Form{Op: "cvt.rzi.s32.f64"}, []uint64{math.Float64bits(math.NaN())}, 1 << 31, "NaN of float64"},
		{isa.Form{Op: "cvt.s32.s8"}, []uint64{0x1ff}, 0xffffffff, "only 8 bits count"},
		{isa.Form{Op: "cvt.rn.f16.f32"}, []uint64{bits(65519.996)}, 0x7bff, "below the tie"},
		{isa.Form{Op: "cvt.rn.f16.f32"}, []uint64{bits(65520)}, 0x7c00, "a tie rounds to infinity"},
		{isa.Form{Op: "cvt.rn.f16.f32"}, []uint64{bits(0x1p-25)}, 0, "a tie rounds to 0"},
		{isa.Form{Op: "cvt.rn.f16.f32"}, []uint64{bits(-0x1.8p-25)}, 0x8001, "above the tie"},
		{isa.Form{Op: "cvt.rn.bf16x2.f32"}, []uint64{bits(1), bits(2)}, 0x3f804000, "the first operand is the high half"},
		{isa.Form{Op: "add.rn.f16x2"}, []uint64{0x7bff3c00, 0x4c001400}, 0x7c003c01, "65504 + 16 and 1 + 2^-10"},
		{isa.Form{Op: "fma.rn.bf16x2"}, []uint64{0x3f804000, 0x40003f80, 0x3f800000}, 0x40404000, "1·2 + 1 and 2·1 + 0"},
		{isa.Form{Op: "fma.rn.f32"}, []uint64{0xbfc00000, 0x3f800001, 0x00800000}, 0xbfc00001, "a term far below a tie decides"},
		{isa.Form{Op: "mul.rn.f32"}, []uint64{inf, 0}, nan, "infinity times 0"},
		{isa.Form{Op: "mul.rn.f32"}, []uint64{0x80000000, bits(3)}, 0x80000000, "zero keeps its sign"},
		{isa.Form{Op: "add.rn.f32"}, []uint64{0x80000000, 0}, 0, "-0 + 0 is 0"},
		{isa.Form{Op: "min.f32"}, []uint64{0, 0x80000000}, 0x80000000, "-0 is less"},
		{isa.Form{Op: "max.f32"}, []uint64{nan, bits(1)}, bits(1), "a number wins over NaN"},
		{isa.Form{Op: "copysign.f32"}, []uint64{bits(-3), bits(2)}, bits(-2), "the sign of the first"},
	} {
		f, ok := isa.LaneFormOf(c.form)
		if !ok {
			t.Fatalf("%v has no signature", c.form)
		}
		if got := isa.LaneExpectation(f)(c.x); !isa.SameResult(f.Out, got, c.want) {
			t.Errorf("%v of %#x (%s): %#x, want %#x", c.form, c.x, c.why, got, c.want)
		}
	}
}

// TestInstructionFaults inverts one result, or one expected result, of each form and
// demands a failure. If results have a bound, it inverts every second word.
func TestInstructionFaults(t *testing.T) {
	slowParallel(t)
	devices := formDevices(t)[:1]
	forms := isa.AllForms(t)
	for _, f := range forms.Sorted() {
		if isa.Excluded[f.Op] != "" {
			continue
		}
		bench := isa.Bench{Devices: devices, Seed: *kernelSeed, Combinations: 512}
		bounded := isa.IsBounded(f)
		devices[0].Corrupt = func(out []byte) { invert(out[len(out)-isa.ResultBytes(f):]) }
		if bounded {
			devices[0].Corrupt = invertOdd
		}
		if _, err := bench.Try(f, forms[f]); err == nil {
			t.Errorf("%v: a wrong result was not detected", f)
		}
		devices[0].Corrupt = nil
		if bounded {
			continue
		}
		bench.Plant = func(want []uint64) { want[len(want)-1] ^= 1<<(8*isa.ResultBytes(f)) - 1 }
		if _, err := bench.Try(f, forms[f]); err == nil {
			t.Errorf("%v: a wrong expectation was not detected", f)
		}
	}
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// invertOdd inverts every second word.
func invertOdd(out []byte) {
	for i := 4; i+4 <= len(out); i += 8 {
		invert(out[i : i+4])
	}
}

// TestInstructionKernelsAssemble checks that NVIDIA's assembler accepts the test kernels of forms that
// are no function of a lane's operands, without spills and warnings.
func TestInstructionKernelsAssemble(t *testing.T) {
	slowParallel(t)
	assembler := ptxas.Need(t)
	forms := isa.AllForms(t)
	var names []isa.Form
	var jobs []ptxas.Job
	for _, f := range forms.Sorted() {
		if _, lane := isa.LaneFormOf(f); lane {
			continue
		}
		if h, ok := isa.TestKernelFor(f); ok {
			names = append(names, f)
			jobs = append(jobs, ptxas.Job{Text: []byte(h.Text(f)), Target: h.Needs(f).String()})
		}
	}
	for i, out := range assembler.AssembleAll(jobs) {
		if r := out.Reports["form"]; out.Err != nil || len(r.Warnings) > 0 || r.SpillStores > 0 {
			t.Errorf("%v: %v, %+v", names[i], out.Err, r)
		}
	}
}

// TestUnknownInstructionsFail demands an error for instructions without an implementation,
// and for known instructions with an unknown modifier.
func TestUnknownInstructionsFail(t *testing.T) {
	bench := isa.Bench{Devices: formDevices(t)[:1], Seed: *kernelSeed, Combinations: 512}
	for _, f := range []isa.Form{
		{Op: "frob.u32"}, {Op: "add.sat.s32"}, {Op: "fma.rn.ftz.f32"}, {Op: "fma.rn.relu.f16x2"}, {Op: "prmt.b32.f5e"}, {Op: "cvt.rn.sat.f16.f32"},
		{Op: "cvt.rz.f16.f32"}, {Op: "setp.lt.and.u32"}, {Op: "shfl.sync.any.b32"}, {Op: "redux.sync.mul.u32"}, {Op: "atom.global.mul.u32"},
		{Op: "atom.global.add.f32"}, {Op: "sin.approx.f32"}, {Op: "ex2.approx.f16x2"}, {Op: "add.f32"},
		{Op: "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"}, {Op: "ldmatrix.sync.aligned.m8n8.x3.shared.b16"}, {Op: "lop3.b32", Args: "256"},
		{Op: "setp.lt.u32", Args: "pair"}, {Op: "selp.b32", Args: "negated"}, {Op: "mov.u32", Args: "r,%clock"}, {Op: "bra.u"},
	} {
		if _, err := bench.Try(f, isa.Use{}); !errors.Is(err, isa.ErrNoExpectation) {
			t.Errorf("%v: error %v, want ErrNoExpectation", f, err)
		}
	}
	three := isa.Use{Tuples: map[string]bool{"%,%,%": true}}
	if _, err := bench.Try(isa.Form{Op: "min.f32"}, three); !errors.Is(err, isa.ErrNoExpectation) {
		t.Errorf("min.f32 of three operands: error %v, want ErrNoExpectation", err)
	}
}

// TestUnsupportedForms demands that a device skips forms that it lacks, with the reason.
func TestUnsupportedForms(t *testing.T) {
	devices := formDevices(t)[:1]
	devices[0].Properties.ComputeCapability = 80
	bench := isa.Bench{Devices: devices, Seed: *kernelSeed, Combinations: 512}
	for _, c := range []struct {
		form isa.Form
		skip bool
	}{
		{isa.Form{Op: "griddepcontrol.wait"}, true},
		{isa.Form{Op: "mbarrier.arrive.expect_tx.shared.b64", Args: "3 operands,_"}, true},
		{isa.Form{Op: "not.b32"}, false},
		{isa.Form{Op: "bar.sync", Args: "0"}, false},
	} {
		r, err := bench.Try(c.form, isa.Use{})
		if err != nil || (r.Skipped != "") != c.skip || (r.Compared == 0) != c.skip {
			t.Errorf("%v on sm_80: skipped because %q, %d compared, error %v", c.form, r.Skipped, r.Compared, err)
		}
	}
}
