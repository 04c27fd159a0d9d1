package emu

import (
	"errors"
	"strings"
	"testing"
)

// Planted bugs around mbarriers and what fills shared memory by way of them.
func TestMbarrierTraps(t *testing.T) {
	decls := ".shared .align 8 .b8 bar[8]; .shared .align 16 .b8 buf[64];"
	one := "mov.u32 %r0, 0; mov.u32 %r2, bar; mov.u32 %r3, buf; ld.param.u64 %rd2, [in]; setp.eq.u32 %p1, %r1, 0;\n"
	start := one + "@%p1 mbarrier.init.shared.b64 [%r2], 1;\nbar.sync 0;\n"
	wait := "\nWAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; // HERE\n@!%p2 bra WAIT;"
	bulk := func(size string) string {
		return "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2], " + size + ", [%r2];"
	}
	cases := []trapCase{
		{name: "an arrival that never comes", kind: TrapDeadlock, where: "// HERE", block: 64,
			body:  one + "@%p1 mbarrier.init.shared.b64 [%r2], 2; // BUG\nbar.sync 0;\n@%p1 mbarrier.arrive.shared.b64 _, [%r2];" + wait,
			fixed: "@%p1 mbarrier.init.shared.b64 [%r2], 1;"},
		{name: "bytes that never come", kind: TrapDeadlock, where: "// HERE",
			body:  start + "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64; // BUG\n" + bulk("32") + wait,
			fixed: "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 32;"},
		{name: "more arrivals than it waits for", kind: TrapBarrier,
			body:  start + "@%p1 mbarrier.arrive.shared.b64 _, [%r2], 2; // BUG",
			fixed: "@%p1 mbarrier.arrive.shared.b64 _, [%r2], 1;"},
		{name: "for no arrivals", kind: TrapBarrier, body: one + "@%p1 mbarrier.init.shared.b64 [%r2], 0; // BUG",
			fixed: "@%p1 mbarrier.init.shared.b64 [%r2], 1;"},
		{name: "initialized twice", kind: TrapBarrier, body: start + "@%p1 mbarrier.init.shared.b64 [%r2], 1; // BUG",
			fixed: "@%p1 mbarrier.inval.shared.b64 [%r2]; @%p1 mbarrier.init.shared.b64 [%r2], 1;"},
		{name: "more bytes than it can count", kind: TrapBarrier,
			body:  start + "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r2], 0x100000; // BUG",
			fixed: "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r2], 0xfffff;"},
		{name: "invalidated while others look", kind: TrapRace, body: start + "mbarrier.test_wait.parity.shared.b64 %p2, [%r2], 1;\n" +
			"@%p1 mbarrier.inval.shared.b64 [%r2]; // BUG", fixed: "bar.warp.sync -1; @%p1 mbarrier.inval.shared.b64 [%r2];"},
		{name: "a bulk copy of odd size", kind: TrapAlignment,
			body:  start + "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 32;\n" + bulk("24") + " // BUG" + wait,
			fixed: bulk("32")},
		{name: "a bulk copy past its destination", kind: TrapBounds,
			body:  start + "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 32; add.u32 %r3, %r3, 48;\n" + bulk("32") + " // BUG" + wait,
			fixed: "sub.u32 %r3, %r3, 16; " + bulk("32")},
		{name: "a bulk copy of undefined memory", kind: TrapMemory,
			body:  start + "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 32; add.u64 %rd2, %rd2, 128;\n" + bulk("32") + " // BUG" + wait,
			fixed: "sub.u64 %rd2, %rd2, 128; " + bulk("32")},
	}
	for i := range cases {
		cases[i].head, cases[i].decls, cases[i].args = hopper, decls, []any{same(32, 1)}
		if cases[i].kind == TrapMemory {
			cases[i].args = []any{64}
			cases[i].body = strings.Replace(cases[i].body, "bar.sync 0;", "@%p1 st.global.v4.u32 [%rd2], {%r0, %r0, %r0, %r0};\n"+
				"@%p1 st.global.v4.u32 [%rd2+16], {%r0, %r0, %r0, %r0};\nbar.sync 0;", 1)
		}
	}
	runTraps(t, cases)
}

// Waiting for a slow warp is not a deadlock, however many lanes wait.
func TestSlowWarpIsNoDeadlock(t *testing.T) {
	body := `
	mov.u32 %r0, 0; mov.u32 %r2, bar; setp.eq.u32 %p1, %r1, 0;
	@%p1 mbarrier.init.shared.b64 [%r2], 1;
	bar.sync 0;
	@!%p1 bra WAIT;
SLOW:
	add.u32 %r0, %r0, 1;
	setp.lt.u32 %p3, %r0, 60000;
	@%p3 bra SLOW;
	mbarrier.arrive.shared.b64 _, [%r2];
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
	@!%p2 bra WAIT;`
	k := trapCase{head: hopper, decls: ".shared .align 8 .b8 bar[8];", body: body}
	if _, err := (bench{opts: Options{IgnoreRaces: true}, ptx: k.faulty(), block: 256, args: []any{256}}).run(t); err != nil {
		t.Error(err)
	}
}

// In any order of warps and lanes a deadlock comes to light.
func TestDeadlockInAnyOrder(t *testing.T) {
	body := `
	mov.u32 %r0, 0; mov.u32 %r2, bar; setp.eq.u32 %p1, %r1, 0;
	@%p1 mbarrier.init.shared.b64 [%r2], 2;
	bar.sync 0;
	@%p1 mbarrier.arrive.shared.b64 _, [%r2];
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
	@!%p2 bra WAIT;`
	k := trapCase{head: hopper, decls: ".shared .align 8 .b8 bar[8];", body: body}
	for seed := range uint64(4) {
		opts := Options{Schedule: Schedule{seed > 0, seed}, MaxInstructions: 1 << 22}
		_, err := bench{opts: opts, ptx: k.faulty(), block: 96, args: []any{96}}.run(t)
		var trap *Trap
		if !errors.As(err, &trap) || trap.Kind != TrapDeadlock {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}
