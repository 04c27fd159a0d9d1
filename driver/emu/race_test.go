package emu

import "testing"

// exchange makes every thread store its number in shared memory, and computes in %r5 the address of
// the word of the thread at the other end of the CTA.
const exchange = `
	mov.u32 %r2, buf; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3;
	mov.u32 %r5, %ntid.x; sub.u32 %r5, %r5, 1; sub.u32 %r5, %r5, %r1; shl.b32 %r5, %r5, 2; add.u32 %r5, %r2, %r5;
	st.shared.u32 [%r4], %r1;
`

func TestSharedRaces(t *testing.T) {
	buf := ".shared .align 16 .b8 buf[512];"
	runTraps(t, []trapCase{
		{name: "missing barrier", kind: TrapRace, lane: 0, block: 64, decls: buf, where: "// HERE",
			body: "setp.ge.u32 %p1, %r1, 32; mov.u32 %r0, 0;" + exchange + "// BUG\n@%p1 ld.shared.u32 %r0, [%r5]; // HERE", fixed: "bar.sync 0;"},
		{name: "missing bar.warp.sync", kind: TrapRace, lane: 0, decls: buf, where: "// HERE",
			body: exchange + "// BUG\nld.shared.u32 %r0, [%r5]; // HERE", fixed: "bar.warp.sync -1;"},
		{name: "barrier of too few warps", kind: TrapRace, lane: 0, block: 64, decls: buf, where: "// HERE",
			body: "shr.u32 %r10, %r1, 5; add.u32 %r10, %r10, 1; setp.ge.u32 %p1, %r1, 32; mov.u32 %r0, 0;" + exchange +
				"bar.sync %r10, 32; // BUG\n@%p1 ld.shared.u32 %r0, [%r5]; // HERE", fixed: "bar.sync 1, 64;"},
		{name: "overwritten before all have read", kind: TrapRace, lane: 0, block: 64, decls: buf, where: "ld.shared.u32 %r0, [%r5]",
			body: exchange + "bar.sync 0; ld.shared.u32 %r0, [%r5];\n// BUG\nst.shared.u32 [%r4], %r0; // HERE", fixed: "bar.sync 0;"},
		{name: "lanes write different values", kind: TrapRace, lane: 1, decls: buf,
			body: "mov.u32 %r0, 0;\nst.shared.u32 [buf], %r1; // BUG", fixed: "st.shared.u32 [buf], %r0;"},
		{name: "strong reads hide no weak one", kind: TrapRace, lane: 0, block: 64, decls: buf, where: "@!%p1 st.volatile",
			body: "mov.u32 %r0, 0; setp.ge.u32 %p1, %r1, 32; @%p1 st.shared.u32 [buf], %r0; bar.sync 0;\n" +
				"@%p1 ld.shared.u32 %r2, [buf]; // BUG\n@%p1 ld.volatile.shared.u32 %r2, [buf];\n@!%p1 st.volatile.shared.u32 [buf], %r0;",
			fixed: "@%p1 ld.volatile.shared.u32 %r2, [buf];"},
		{name: "a strong read by one lane, a weak one by another", kind: TrapRace, lane: 0, block: 64, decls: buf, where: "@!%p1 st.volatile",
			body: "mov.u32 %r0, 0; setp.ge.u32 %p1, %r1, 32; setp.eq.u32 %p2, %r1, 33; @%p1 st.shared.u32 [buf], %r0; bar.sync 0;\n" +
				"@%p2 ld.shared.u32 %r2, [buf]; // BUG\n@%p1 ld.volatile.shared.u32 %r2, [buf];\n@!%p1 st.volatile.shared.u32 [buf], %r0;",
			fixed: "@%p2 ld.volatile.shared.u32 %r2, [buf];"},
		{name: "bytes of one word", kind: TrapRace, lane: 1, decls: buf,
			body:  "mov.u32 %r0, 0; mov.u32 %r2, buf; shr.u32 %r3, %r1, 1; add.u32 %r3, %r3, %r2;\nst.shared.u8 [%r3], %r1; // BUG",
			fixed: "add.u32 %r3, %r1, %r2; st.shared.u8 [%r3], %r1;"},
		{name: "sync of half a warp", kind: TrapRace, lane: 0, decls: buf, where: "// HERE",
			body:  exchange + "setp.lt.u32 %p1, %r1, 16; selp.u32 %r6, 0xffff, 0xffff0000, %p1;\nbar.warp.sync %r6; // BUG\nld.shared.u32 %r0, [%r5]; // HERE",
			fixed: "bar.warp.sync -1;"},
		{name: "atomics do not race, a plain store does", kind: TrapRace, lane: 0, decls: buf,
			body:  "setp.eq.u32 %p1, %r1, 0; mov.u32 %r0, 0;\n@%p1 st.shared.u32 [buf], %r0;\nbar.warp.sync -1;\natom.shared.add.u32 %r2, [buf], 1;\n@%p1 st.shared.u32 [buf], %r0; // BUG",
			fixed: "@%p1 atom.shared.exch.b32 %r2, [buf], %r0;", where: "// BUG"},
	})
}

// lastBlock makes each CTA store a word and count itself. The last CTA adds up the words.
const lastBlock = `
	ld.param.u64 %rd2, [in]; mov.u32 %r10, %ctaid.x; mov.u32 %r11, %nctaid.x; sub.u32 %r12, %r11, 1;
	mul.wide.u32 %rd3, %r10, 4; add.u64 %rd3, %rd2, %rd3;
	mul.wide.u32 %rd4, %r10, 128; add.u64 %rd1, %rd1, %rd4;
	setp.eq.u32 %p1, %r1, 0; mov.u32 %r0, 0;
	@!%p1 bra END;
	st.global.u32 [%rd3+16], %r10;
`

func TestGlobalRaces(t *testing.T) {
	finish := `
	setp.ne.u32 %p2, %r13, %r12;
	@%p2 bra END;
	ld.global.u32 %r14, [%rd2+16]; // HERE
	ld.global.u32 %r15, [%rd2+20];
	add.u32 %r0, %r14, %r15;
END:`
	in := append([]uint32{0, 0, 0, 0}, same(4, 9)...)
	runTraps(t, []trapCase{
		{name: "CTAs write the same word", kind: TrapRace, lane: 0, grid: 2, opts: Options{Workers: 1},
			body: "mov.u32 %r0, %ctaid.x;\nst.global.u32 [%rd1], %r0; // BUG\nmov.u32 %r10, %ctaid.x; mul.wide.u32 %rd4, %r10, 128; add.u64 %rd1, %rd1, %rd4;", fixed: ""},
		{name: "read-only load of what the kernel has written", kind: TrapRace, lane: 0,
			body: "st.global.u32 [%rd1], %r1;\nld.global.nc.u32 %r0, [%rd1]; // BUG", fixed: "ld.global.u32 %r0, [%rd1];"},
		{name: "write of what a read-only load has read", kind: TrapRace, lane: 0, where: "// HERE", args: []any{same(32, 9)},
			body:  "ld.param.u64 %rd2, [in]; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd2, %rd2, %rd3;\nld.global.nc.u32 %r0, [%rd2]; // BUG\nst.global.u32 [%rd2], %r1; // HERE",
			fixed: "ld.global.u32 %r0, [%rd2];"},
		{name: "last CTA without fences", kind: TrapRace, lane: 0, grid: 2, args: []any{in}, opts: Options{Workers: 1}, where: "// HERE",
			body:  lastBlock + "atom.global.inc.u32 %r13, [%rd2], %r12; // BUG\n" + finish,
			fixed: "membar.gl; atom.global.inc.u32 %r13, [%rd2], %r12; membar.gl;"},
		{name: "fence of the CTA only", kind: TrapRace, lane: 0, grid: 2, args: []any{in}, opts: Options{Workers: 1}, where: "// HERE",
			body:  lastBlock + "membar.cta; atom.global.inc.u32 %r13, [%rd2], %r12; membar.cta; // BUG\n" + finish,
			fixed: "atom.acq_rel.gpu.global.inc.u32 %r13, [%rd2], %r12;"},
	})
}

// Workers that access a buffer for the first time at the same time lose no access. The Go race
// detector finds a failure at once, this test by chance.
func TestHistoryOfParallelCTAs(t *testing.T) {
	const ctas, stride = 256, 1 << lockShift
	body := "mov.u32 %r0, %ctaid.x; mul.wide.u32 %rd2, %r0, 4096; add.u64 %rd1, %rd1, %rd2;"
	for range 8 {
		_, d, err := kernelRun{opts: Options{Workers: 4}, ptx: perThread(sm80, "", body), grid: ctas, args: []any{ctas * stride / 4}}.runOnDevice(t)
		if err != nil {
			t.Fatal(err)
		}
		for i := range ctas {
			if d.memory.allocations[0].history.pages[i*stride/shadowPageBytes] == nil {
				t.Errorf("the accesses of CTA %d were forgotten", i)
			}
		}
	}
}
