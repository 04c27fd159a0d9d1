package emu

import (
	"errors"
	"strings"
	"testing"
)

// Statements of the kernels below, which multiply once unless they are changed.
const (
	wgSetup = `
	mov.u32 %r0, 0; mov.u32 %r2, b; and.b32 %r3, %r1, 127; mad.lo.u32 %r3, %r3, 16, %r2; setp.lt.u32 %p3, %r1, 128;
	shr.u32 %r4, %r2, 4; cvt.u64.u32 %rd2, %r4; or.b64 %rd2, %rd2, 0x1000080000; setp.ne.u32 %p1, 0, 0;
	mov.u32 %a0, %r1; mov.u32 %a1, 1; mov.u32 %a2, 2; mov.u32 %a3, 3;
`
	wgStore      = "\t@%p3 st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};\n"
	wgProxyFence = "\tfence.proxy.async.shared::cta;\n\tbar.sync 0;\n"
	wgFence      = "\twgmma.fence.sync.aligned;\n"
	wgMMA        = "\twgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 " + accumulator + ", " + factors + ", %rd2, %p1;\n"
	wgCommit     = "\twgmma.commit_group.sync.aligned;\n"
	wgWait       = "\twgmma.wait_group.sync.aligned 0;\n"
	wgResult     = "\tmov.u32 %r0, %c5; // HERE\n"

	wgPrologue = wgSetup + wgStore + wgProxyFence + wgFence
)

// here marks a statement as the one that traps.
func here(statement string) string { return strings.TrimSuffix(statement, "\n") + " // HERE\n" }

func runWGMMATraps(t *testing.T, cases []trapCase) {
	for i := range cases {
		c := &cases[i]
		c.head, c.decls = sm90a, wgmmaDecls
		if c.block == 0 {
			c.block = 128
		}
		if strings.Contains(c.body, "// HERE") {
			c.where = "// HERE"
		}
		if c.name == "copied and not shown" {
			c.args = []any{same(1024, 1)}
		}
	}
	runTraps(t, cases)
	// In any order something traps, and without the bug nothing does.
	for _, c := range cases {
		b := bench{opts: Options{Async: Late}, block: c.block, args: append([]any{c.block}, c.args...)}
		for seed := range uint64(4) {
			b.opts.Schedule = Adversarial(seed)
			b.ptx = c.faulty()
			var trap *Trap
			if _, err := b.run(t); !errors.As(err, &trap) {
				t.Errorf("%s, seed %d: want a trap, got %v", c.name, seed, err)
			}
			b.ptx = c.corrected()
			if _, err := b.run(t); err != nil {
				t.Errorf("%s, seed %d, without the bug: %v", c.name, seed, err)
			}
		}
	}
}

// Planted bugs with the registers of products under way.
func TestWGMMARegisterTraps(t *testing.T) {
	inFlight := wgPrologue + wgMMA + wgCommit
	runWGMMATraps(t, []trapCase{
		{name: "a sum read too early", kind: TrapWGMMA, body: inFlight + "mov.u32 %r0, %c5; // BUG\n" + wgWait},
		{name: "a sum written too early", kind: TrapWGMMA, body: inFlight + "mov.u32 %c31, 0; // BUG\n" + wgWait},
		{name: "a factor written too early", kind: TrapWGMMA, body: inFlight + "add.u32 %a0, %r1, 1; // BUG\n" + wgWait},
		{name: "a factor read too early", kind: TrapWGMMA, body: inFlight + "add.u32 %r5, %a3, 1; // BUG\n" + wgWait},
		{name: "a factor loaded too early", kind: TrapWGMMA, body: inFlight + "ld.shared.v2.u32 {%r5, %a1}, [%r3]; // BUG\n" + wgWait},
		{name: "a sum read too early by some lanes", kind: TrapWGMMA, lane: 7,
			body: inFlight + "setp.eq.u32 %p2, %r1, 7;\n@%p2 mov.u32 %r0, %c5; // BUG\n" + wgWait},
		{name: "a wait for an earlier group", kind: TrapWGMMA,
			body: inFlight + "wgmma.wait_group.sync.aligned 1; // BUG\n" + wgResult + wgWait, fixed: wgWait},
		{name: "a wait for no group", kind: TrapWGMMA, body: wgPrologue + wgMMA + "// BUG\n" + wgWait + wgResult, fixed: wgCommit},
		{name: "no wait", kind: TrapWGMMA, body: inFlight + "// BUG\n" + "st.global.u32 [%rd1], %r0;\n" + here("ret;") + "\n", fixed: wgWait},
		{name: "no fence", kind: TrapWGMMA, body: wgSetup + wgStore + wgProxyFence + "// BUG\n" + here(wgMMA) + wgCommit + wgWait, fixed: wgFence},
		{name: "no fence after a change of a factor", kind: TrapWGMMA,
			body: inFlight + wgWait + "add.u32 %a0, %a0, 1;\n// BUG\n" + here(wgMMA) + wgCommit + wgWait, fixed: wgFence},
		{name: "no fence after a sum was read", kind: TrapWGMMA,
			body: inFlight + wgWait + "mov.u32 %r0, %c1;\n// BUG\n" + here(wgMMA) + wgCommit + wgWait, fixed: wgFence},
		{name: "a sum as a factor", kind: TrapWGMMA, body: inFlight + "// BUG\n" +
			"wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%a0, %a1, %a2, %a3" + strings.TrimPrefix(accumulator, "{%c0, %c1, %c2, %c3") +
			", {%c0, %c1, %c2, %c3}, %rd2, %p1; // HERE\n" + wgCommit + wgWait, fixed: wgWait + wgFence},
		{name: "added to nothing", kind: TrapRegister, body: wgPrologue + "setp.eq.u32 %p1, 0, 0; // BUG\n" + here(wgMMA) + wgEpilogue},
	})
}

const wgEpilogue = wgCommit + wgWait + "\tmov.u32 %r0, %c5;\n"

// Planted bugs with B in shared memory.
func TestWGMMAMemoryTraps(t *testing.T) {
	multiply := here(wgMMA) + wgEpilogue
	runWGMMATraps(t, []trapCase{
		{name: "not shown to products", kind: TrapRace,
			body: wgSetup + wgStore + "// BUG\n\tbar.sync 0;\n" + wgFence + multiply, fixed: "fence.proxy.async.shared::cta;"},
		{name: "shown too late", kind: TrapRace,
			body:  wgSetup + wgStore + "bar.sync 0; fence.proxy.async.shared::cta; // BUG\n" + wgFence + multiply,
			fixed: "fence.proxy.async.shared::cta; bar.sync 0;"},
		{name: "shown before it is written", kind: TrapRace,
			body:  wgSetup + "fence.proxy.async.shared::cta;\n" + wgStore + "// BUG\n\tbar.sync 0;\n" + wgFence + multiply,
			fixed: "fence.proxy.async;"},
		{name: "global memory shown", kind: TrapRace,
			body:  wgSetup + wgStore + "fence.proxy.async.global; // BUG\n\tbar.sync 0;\n" + wgFence + multiply,
			fixed: "fence.proxy.async;"},
		{name: "shown by others", kind: TrapRace,
			body:  wgSetup + wgStore + "setp.ne.u32 %p2, %r1, 9;\n@%p2 fence.proxy.async.shared::cta; // BUG\n\tbar.sync 0;\n" + wgFence + multiply,
			fixed: "fence.proxy.async.shared::cta;"},
		{name: "copied and not shown", kind: TrapRace,
			body: wgSetup + "ld.param.u64 %rd3, [in]; mad.wide.u32 %rd3, %r1, 16, %rd3;\ncp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.wait_all;\n" +
				"// BUG\n\tbar.sync 0;\n" + wgFence + multiply, fixed: "fence.proxy.async.shared::cta;"},
		{name: "no barrier", kind: TrapRace,
			body:  wgSetup + wgStore + wgProxyFence + here(wgStore) + "fence.proxy.async.shared::cta; // BUG\nbar.warp.sync -1;\n" + wgFence + wgMMA + wgEpilogue,
			fixed: "fence.proxy.async.shared::cta; bar.sync 0;"},
		{name: "written during a product", kind: TrapRace,
			body: wgPrologue + wgMMA + wgCommit + "@%p3 st.shared.u32 [%r3], %r1; // BUG\n" + wgWait},
		{name: "written by a warp that does not wait", kind: TrapRace, block: 160,
			body: wgSetup + wgStore + wgProxyFence + "@!%p3 bra SYNC;\n" + wgFence + here(wgMMA) + wgCommit + wgWait +
				"SYNC:\n// BUG\n@!%p3 st.shared.u32 [%r3], %r1;\n", fixed: "bar.sync 0;"},
		{name: "written after the beginning", kind: TrapRace, block: 160,
			body: wgSetup + wgStore + wgProxyFence + "@!%p3 bra SYNC;\n" + wgFence + wgMMA + wgCommit +
				"// BUG\nSYNC:\nbar.sync 0;\n@!%p3 st.shared.u32 [%r3], %r1; // HERE\n@%p3 wgmma.wait_group.sync.aligned 0;\n", fixed: wgWait},
		{name: "written between barriers", kind: TrapRace, block: 160, // ordered after the beginning and before the end
			body: wgSetup + wgStore + wgProxyFence + "@!%p3 bra SYNC;\n" + wgFence + wgMMA + wgCommit +
				"// BUG\nSYNC:\nbar.sync 0;\n@!%p3 st.shared.u32 [%r3], %r1; // HERE\nbar.sync 0;\n@%p3 wgmma.wait_group.sync.aligned 0;\n", fixed: wgWait},
		{name: "never written", kind: TrapMemory,
			body: wgSetup + "setp.lt.u32 %p3, %r1, 120; // BUG\n" + wgStore + wgProxyFence + wgFence + multiply},
		{name: "past the end", kind: TrapBounds,
			body: wgPrologue + "or.b64 %rd2, %rd2, 0x2000000000; // BUG\n" + multiply},
	})
}

// Planted bugs in how a warpgroup comes to its products.
func TestWarpgroupTraps(t *testing.T) {
	multiply := here(wgMMA) + wgEpilogue
	runWGMMATraps(t, []trapCase{
		{name: "bits of a swizzled descriptor", kind: TrapWGMMA, body: wgPrologue + "or.b64 %rd2, %rd2, 0x4000000000000000; // BUG\n" + multiply},
		{name: "an offset in a descriptor", kind: TrapWGMMA, body: wgPrologue + "or.b64 %rd2, %rd2, 0x2000000000000; // BUG\n" + multiply},
		{name: "a descriptor a lane", kind: TrapWGMMA, lane: 1,
			body: wgPrologue + "cvt.u64.u32 %rd3, %r1; add.u64 %rd2, %rd2, %rd3; // BUG\n" + multiply},
		{name: "a descriptor a warp", kind: TrapWGMMA,
			body: wgPrologue + "setp.ge.u32 %p2, %r1, 96;\n@%p2 sub.u64 %rd2, %rd2, 0x800000000; // BUG\n" + multiply},
		{name: "lanes that do not add", kind: TrapWGMMA, lane: 3, body: wgPrologue + wgMMA +
			"setp.lt.u32 %p1, %r1, 3; // BUG\n" + multiply},
		{name: "a warp that leaves a product out", kind: TrapWGMMA,
			body: wgPrologue + "setp.ge.u32 %p2, %r1, 96;\n@%p2 bra SKIP; // BUG\n" + here(wgMMA) + "SKIP:\n" + wgCommit + wgWait},
		{name: "a warp that has ended", kind: TrapWGMMA,
			body: wgPrologue + wgMMA + wgCommit + wgWait + "setp.ge.u32 %p2, %r1, 96;\n@%p2 bra SKIP; // BUG\n" + here(wgFence) + "SKIP:\n"},
		{name: "a warp that does not come", kind: TrapWGMMA,
			body: wgPrologue + wgMMA + wgCommit + wgWait + "setp.lt.u32 %p2, %r1, 32;\n@%p2 bra SKIP; // BUG\n" + wgFence +
				"SKIP:\n" + "st.global.u32 [%rd1], %r0;\n" + here("ret;") + "\n"},
		{name: "lanes that do not come", kind: TrapDivergence,
			body: wgSetup + wgStore + wgProxyFence + "setp.eq.u32 %p2, %r1, 5;\n@%p2 bra SKIP; // BUG\n" + here(wgFence) + "SKIP:\n"},
		{name: "too few warps", kind: TrapWGMMA, block: 96, body: wgSetup + "wgmma.fence.sync.aligned; // BUG\n"},
	})
}

// What the copy engine brings products see without a fence; what a thread writes over it they do not.
func TestWGMMAOfBulkCopy(t *testing.T) {
	body := wgSetup + `
	ld.param.u64 %rd3, [in]; mov.u32 %r5, bar; setp.eq.u32 %p2, %r1, 0;
	@%p2 mbarrier.init.shared.b64 [%r5], 1;
	bar.sync 0;
	@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 2048;
	@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd3], 2048, [%r5];
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p3, [%r5], 0;
	@!%p3 bra WAIT;
	OVER
	bar.sync 0;
` + wgFence + wgMMA + wgEpilogue
	for _, mode := range []Async{Eager, Late} {
		c := trapCase{head: sm90a, decls: wgmmaDecls + ".shared .align 8 .b8 bar[8];", args: []any{1}}
		b := bench{opts: Options{Async: mode}, block: 128, args: []any{128, same(512, 0x01010101)}}
		c.body = strings.Replace(body, "OVER", "", 1)
		b.ptx = c.faulty()
		if _, err := b.run(t); err != nil {
			t.Errorf("copied: %v", err)
		}
		c.body = strings.Replace(body, "OVER", "@%p2 st.shared.u8 [%r2+77], %r1;", 1)
		b.ptx = c.faulty()
		_, err := b.run(t)
		if trap := wantTrap(t, err, TrapRace, lineOf(t, b.ptx, "wgmma.mma_async"), 0); !strings.Contains(trap.Detail, "byte 77 ") {
			t.Errorf("%v, want the byte 77", trap)
		}
	}
}
