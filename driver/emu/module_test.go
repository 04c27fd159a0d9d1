package emu

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// TestRejected checks part of the message of each refusal.
func TestRejected(t *testing.T) {
	body := func(s string) string { return perThread(sm80, "", "mov.u32 %r0, 0;\n"+s) }
	for _, c := range []struct{ name, text, want string }{
		{"no version", ".target sm_80\n", `".version" is expected`},
		{"not ASCII", sm80 + "// é", "ASCII"},
		{"NUL", sm80 + "\x00", "ASCII"},
		{"version too new", strings.Replace(sm80, "7.4", "8.6", 1), "newer"},
		{"version too old for the target", strings.Replace(sm80, "sm_80", "sm_90", 1), ".target sm_90 needs .version 7.8"},
		{"unknown target", strings.Replace(sm80, "sm_80", "sm_81", 1), "unknown .target"},
		{"32-bit addresses", strings.Replace(sm80, "64", "32", 1), `"64" is expected`},
		{"unknown instruction", body("frob.u32 %r0, %r1;"), "unknown instruction frob.u32: frob.u32 %r0, %r1;"},
		{"contraction", body("add.f32 %f1, %f1, %f1;"), "unknown instruction add.f32"},
		{"an arrival without a count", body("bar.arrive 1;"), "1 operands where bar.arrive takes 2"},
		{"an arrival of some lanes", body("barrier.arrive 1, 64;"), "unknown instruction"},
		{"flushed denormals", body("rsqrt.approx.ftz.f32 %f1, %f1;"), "unknown instruction"},
		{"qualifiers out of order", body("ld.global.nc.L2::128B.L1::no_allocate.u32 %r0, [%rd1];"), "unknown instruction"},
		{"undeclared register", body("mov.u32 %r0, %r99;"), "undeclared register %r99"},
		{"register too small", body("mov.u64 %rd0, %r1;"), "register %r1 of type .b32 where .u64"},
		{"float in an integer register's place", body("add.u32 %r0, %f1, %r1;"), "register %f1 of type .f32"},
		{"integer for a float", body("add.rn.f32 %f1, %f2, 1;"), "number where .f32"},
		{"number too large", body("add.u32 %r0, %r1, 0x100000000;"), "does not fit"},
		{"predicate as a number", body("mov.u32 %r0, %p1;"), "%p1"},
		{"guard that is no predicate", body("@%r1 mov.u32 %r0, 1;"), "where a predicate is expected"},
		{"missing operand", body("add.u32 %r0, %r1;"), "2 operands where add.u32 takes 3"},
		{"missing semicolon", body("add.u32 %r0, %r1, %r1"), `"," is expected`},
		{"unknown label", body("bra NOWHERE;"), "is not a label"},
		{"label twice", body("A: A:"), "declared twice"},
		{"shared name in a global access", perThread(sm80, ".shared .b8 buf[4];", "mov.u32 %r0, 0; ld.global.u32 %r0, [buf];"), "shared memory"},
		{"! within a vector", body("st.global.v2.u32 [%rd1], {!%r0, %r1};"), "! before an operand"},
		{"more static shared memory than ptxas gives", perThread(sm80, ".shared .b8 big[49153];", "mov.u32 %r0, 0;"), "at most 49152"},
		{"offset after a minus", body("ld.global.u32 %r0, [%rd1-4];"), `"]" is expected`},
		{"address of 32 bits", body("ld.global.u32 %r0, [%r1];"), "cannot hold the address"},
		{"vector too long", body("ld.global.v4.u64 {%rd2,%rd3,%rd4,%rd5}, [%rd1];"), "more than 16 bytes"},
		{"no such parameter", body("ld.param.u32 %r0, [in];"), "no parameter in"},
		{"past a parameter", body("ld.param.u64 %rd2, [out+8];"), "parameter out of 8 bytes"},
		{"copy of a size that does not exist", body("cp.async.cg.shared.global [%r1], [%rd1], 8;"), "does not copy that number of bytes"},
		{"atomic sum of floats", body("atom.global.add.f32 %f1, [%rd1], %f2;"), "unknown instruction"},
		{"both bounds on the block", strings.Replace(body(""), ")\n{", ") .maxntid 32,1,1 .reqntid 32,1,1\n{", 1), "exclude"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := kernelRun{ptx: c.text}.run(t)
			if !errors.Is(err, driver.ErrPTXRejected) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want a rejection with %q, got %v", c.want, err)
			}
		})
	}
}

// Instructions are refused below the .version and .target that they need, and accepted from there
// on.
func TestRequirements(t *testing.T) {
	for _, c := range []struct{ op, version, target, below, belowTarget string }{
		{"redux.sync.add.u32 %r0, %r1, -1;", "7.0", "80", "6.5", "75"},
		{"cp.async.commit_group;", "7.0", "80", "6.5", "75"},
		{"ld.global.nc.L2::128B.u32 %r2, [%rd1];", "7.4", "75", "7.3", "75"},
		{"ld.global.nc.L2::256B.u32 %r2, [%rd1];", "7.4", "80", "7.4", "75"},
		{"tanh.approx.f32 %f1, 0f00000000;", "7.0", "75", "6.5", "75"},
		{"cvt.rn.f16x2.f32 %r0, 0f00000000, 0f00000000;", "7.0", "80", "7.0", "75"},
		{"dp4a.u32.u32 %r0, %r1, %r1, %r1;", "5.0", "61", "5.0", "60"},
		{"mbarrier.arrive.shared.b64 %rd2, [%r1], 2;", "7.8", "90", "7.8", "80"},
		{"mbarrier.arrive.shared.b64 _, [%r1];", "7.1", "80", "7.0", "80"},
		{"griddepcontrol.wait;", "7.8", "90", "7.8", "80"},
		{"fence.proxy.async;", "8.0", "90", "7.8", "90"},
	} {
		header := func(v, sm string) string { return ".version " + v + "\n.target sm_" + sm + "\n.address_size 64\n" }
		d, err := Open(Options{})
		if err != nil {
			t.Fatal(err)
		}
		text := perThread(header(c.version, c.target), "", "mov.u32 %r0, 0;\n"+c.op)
		if _, err := d.Load([]byte(text)); err != nil {
			t.Errorf("%s with %s and sm_%s: %v", c.op, c.version, c.target, err)
		}
		text = perThread(header(c.below, c.belowTarget), "", "mov.u32 %r0, 0;\n"+c.op)
		_, err = d.Load([]byte(text))
		if !errors.Is(err, driver.ErrPTXRejected) || !strings.Contains(err.Error(), "needs .version") {
			t.Errorf("%s with %s and sm_%s: want a rejection, got %v", c.op, c.below, c.belowTarget, err)
		}
	}
	d, err := Open(Options{ComputeCapability: 80})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load([]byte(sm90)); !errors.Is(err, driver.ErrPTXRejected) {
		t.Errorf("sm_90 on a device of sm_80: %v", err)
	}
}

// Devices that share a cache run the same program in their own memory. Each device still refuses
// what it does not support.
func TestCache(t *testing.T) {
	cache := new(Cache)
	a, b := newFixture(t, Options{Cache: cache}), newFixture(t, Options{Cache: cache})
	if a.f.(*function).prog != b.f.(*function).prog {
		t.Error("the second device parsed the text again")
	}
	if err := errors.Join(a.s.Launch(a.add(3)), a.s.Synchronize()); err != nil {
		t.Fatal(err)
	}
	a.wantWords(t, 3)
	b.wantWords(t, 0)
	onlyHopper := []byte(sm90 + strings.TrimPrefix(addOne, sm80))
	old, err := Open(Options{Cache: cache, ComputeCapability: 80})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Load(onlyHopper); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Load(onlyHopper); !errors.Is(err, driver.ErrPTXRejected) {
		t.Errorf("a text for sm_90 on sm_80: %v", err)
	}
}

// The cache does not turn a refused text into an accepted one.
func TestCacheKeepsNoErrors(t *testing.T) {
	d, err := Open(Options{Cache: new(Cache)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := d.Load([]byte(addOne + "x")); !errors.Is(err, driver.ErrPTXRejected) {
			t.Errorf("no PTX: %v", err)
		}
	}
}

// FuzzLoad checks that no text makes the parser or the decoder panic.
func FuzzLoad(f *testing.F) {
	f.Add(perThread(sm80, ".shared .align 4 .b8 buf[64];", "mov.b32 {%h1, %h2}, %r1; @!%p1 bra A; A: ld.shared.u32 %r0, [buf+4];"))
	f.Add(sm90 + bulkBody)
	f.Add(".version 7.4\n.target sm_80\n.address_size 64\n/* c */ .visible .entry k(.param .u32 n) .maxntid 32 { ret; }")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Open(Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := d.Load([]byte(text)); (m == nil) != (err != nil) {
			t.Errorf("module %v with error %v", m, err)
		}
	})
}
