package conformance

import (
	"errors"
	"testing"
)

// A table that passes everything proves nothing. For every form one result, or one
// expectation, is inverted, and the table must notice; of those with a bound or
// another condition every second word, so that something goes beyond it.
func TestInstructionsTurnRed(t *testing.T) {
	heavy(t)
	devices := formDevices(t)[:1]
	forms := allForms(t)
	for _, f := range forms.sorted() {
		if untried[f.op] != "" {
			continue
		}
		bench := formBench{devices: devices, seed: *kernelSeed, combinations: 512}
		bounded := isBounded(f)
		devices[0].corrupt = func(out []byte) { invert(out[len(out)-resultBytes(f):]) }
		if bounded {
			devices[0].corrupt = invertOdd
		}
		if _, err := bench.try(f, forms[f]); err == nil {
			t.Errorf("%v: a wrong result was not noticed", f)
		}
		devices[0].corrupt = nil
		if bounded {
			continue
		}
		bench.plant = func(want []uint64) { want[len(want)-1] ^= 1<<(8*resultBytes(f)) - 1 }
		if _, err := bench.try(f, forms[f]); err == nil {
			t.Errorf("%v: a wrong expectation was not noticed", f)
		}
	}
}

// resultBytes is what is compared at once: a lane's result, or a byte.
func resultBytes(f form) int {
	if lane, ok := laneFormOf(f); ok {
		return lane.outBytes()
	}
	return 1
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

// isBounded tells whether a form's results are held to a bound.
func isBounded(f form) bool {
	if _, ok := approximations[f.op]; ok {
		return true
	}
	h, ok := handFormOf(f)
	return ok && h.check != nil
}

// What has no expectation fails: unknown instructions and known ones with a modifier
// that changes what they do.
func TestUnknownInstructionsFail(t *testing.T) {
	bench := formBench{devices: formDevices(t)[:1], seed: *kernelSeed, combinations: 512}
	for _, f := range []form{
		{op: "frob.u32"}, {op: "add.sat.s32"}, {op: "fma.rn.ftz.f32"}, {op: "fma.rn.relu.f16x2"}, {op: "prmt.b32.f5e"}, {op: "cvt.rn.sat.f16.f32"},
		{op: "cvt.rz.f16.f32"}, {op: "setp.lt.and.u32"}, {op: "shfl.sync.any.b32"}, {op: "redux.sync.mul.u32"}, {op: "atom.global.mul.u32"},
		{op: "atom.global.add.f32"}, {op: "sin.approx.f32"}, {op: "ex2.approx.f16x2"}, {op: "add.f32"},
		{op: "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"}, {op: "ldmatrix.sync.aligned.m8n8.x3.shared.b16"}, {op: "lop3.b32", args: "256"},
		{op: "setp.lt.u32", args: "pair"}, {op: "selp.b32", args: "negated"}, {op: "mov.u32", args: "r,%clock"}, {op: "bra.u"},
	} {
		if _, err := bench.try(f, use{}); !errors.Is(err, errUnmeasured) {
			t.Errorf("%v: %v; want that it is unmeasured", f, err)
		}
	}
	three := use{tuples: map[string]bool{"%,%,%": true}}
	if _, err := bench.try(form{op: "min.f32"}, three); !errors.Is(err, errUnmeasured) {
		t.Errorf("min.f32 of three operands: %v; want that it is unmeasured", err)
	}
}

// A device below what a form needs leaves the form out, and says why.
func TestFormsLeftOut(t *testing.T) {
	devices := formDevices(t)[:1]
	devices[0].properties.ComputeCapability = 80
	bench := formBench{devices: devices, seed: *kernelSeed, combinations: 512}
	for _, c := range []struct {
		form form
		out  bool
	}{
		{form{op: "griddepcontrol.wait"}, true},
		{form{op: "mbarrier.arrive.expect_tx.shared.b64", args: "3 operands,_"}, true},
		{form{op: "not.b32"}, false},
		{form{op: "bar.sync", args: "0"}, false},
	} {
		r, err := bench.try(c.form, use{})
		if err != nil || (r.without != "") != c.out || (r.compared == 0) != c.out {
			t.Errorf("%v on sm_80: left out because %q, %d compared, %v", c.form, r.without, r.compared, err)
		}
	}
}
