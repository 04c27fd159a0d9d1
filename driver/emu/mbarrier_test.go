package emu

import (
	"fmt"
	"strings"
	"testing"
)

func TestMbarrierPhases(t *testing.T) {
	body := `
	mov.u32 %r2, bar; setp.eq.u32 %p1, %r1, 0; mov.u32 %r0, 0;
	@%p1 mbarrier.init.shared.b64 [%r2], 32;
	bar.warp.sync -1;
	mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 1;
	@%p2 add.u32 %r0, %r0, 1;
	bar.warp.sync -1;
	mbarrier.arrive.shared.b64 %rd4, [%r2];
	bar.warp.sync -1;
	mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
	@%p2 add.u32 %r0, %r0, 2;
	mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 1;
	@%p2 add.u32 %r0, %r0, 4;
	bar.warp.sync -1;
	@%p1 mbarrier.inval.shared.b64 [%r2];
	@%p1 mbarrier.init.shared.b64 [%r2], 1;
	@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r2], 16;
	@%p1 mbarrier.arrive.shared.b64 _, [%r2];
	bar.warp.sync -1;
	mbarrier.test_wait.parity.shared.b64 %p2, [%r2], 0;
	@%p2 add.u32 %r0, %r0, 8;`
	k := trapCase{header: sm90, decls: ".shared .align 8 .b8 bar[8];", body: body}
	out, err := kernelRun{ptx: k.faulty(), args: []any{32}}.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprint(same(32, 3)); fmt.Sprint(out[0]) != want {
		t.Errorf("got %v, want %v", out[0], want)
	}
}

// TestMbarrierTraps plants bugs in the use of mbarriers and bulk copies.
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
		{name: "lanes that arrive in several phases", kind: TrapBarrier, lane: 1,
			body:  start + "mbarrier.arrive.shared.b64 _, [%r2]; // BUG",
			fixed: "@%p1 mbarrier.arrive.shared.b64 _, [%r2];"},
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
		cases[i].header, cases[i].decls, cases[i].args = sm90, decls, []any{same(32, 1)}
		if cases[i].kind == TrapMemory {
			cases[i].args = []any{64}
			cases[i].body = strings.Replace(cases[i].body, "bar.sync 0;", "@%p1 st.global.v4.u32 [%rd2], {%r0, %r0, %r0, %r0};\n"+
				"@%p1 st.global.v4.u32 [%rd2+16], {%r0, %r0, %r0, %r0};\nbar.sync 0;", 1)
		}
	}
	runTraps(t, cases)
}
