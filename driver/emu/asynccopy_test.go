package emu

import "testing"

func TestAsyncZeroFill(t *testing.T) {
	body := `
	ld.param.u64 %rd2, [in]; mov.u32 %r2, buf; shl.b32 %r3, %r1, 4; add.u32 %r4, %r2, %r3;
	and.b32 %r5, %r1, 3; shl.b32 %r5, %r5, 2;
	cp.async.cg.shared.global [%r4], [%rd2], 16, %r5;
	cp.async.wait_all;
	ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r4];
	add.u32 %r0, %r6, %r7; add.u32 %r0, %r0, %r8; add.u32 %r0, %r0, %r9;`
	k := trapCase{args: []any{1}, decls: ".shared .align 16 .b8 buf[512];", body: body}
	for _, mode := range []Async{Eager, Late} {
		out, err := kernelRun{opts: Options{Async: mode}, ptx: k.faulty(), args: []any{32, []uint32{1, 10, 100, 1000}}}.run(t)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range out[0] {
			if want := []uint32{0, 1, 11, 111}[i&3]; got != want {
				t.Fatalf("thread %d: got %d, want %d", i, got, want)
			}
		}
	}
}

func TestAsyncCopyTraps(t *testing.T) {
	buf := ".shared .align 16 .b8 buf[512];"
	late := Options{Async: Late}
	start := "ld.param.u64 %rd2, [in]; mul.wide.u32 %rd3, %r1, 16; add.u64 %rd2, %rd2, %rd3; mov.u32 %r2, buf; shl.b32 %r3, %r1, 4; add.u32 %r4, %r2, %r3;\n" +
		"cp.async.cg.shared.global [%r4], [%rd2], 16;\ncp.async.commit_group;\n"
	runTraps(t, []trapCase{
		{name: "no wait", kind: TrapMemory, lane: 0, decls: buf, opts: late, args: []any{same(128, 5)}, where: "// HERE",
			body: start + "// BUG\nld.shared.u32 %r0, [%r4]; // HERE", fixed: "cp.async.wait_group 0;"},
		{name: "one group too few", kind: TrapMemory, lane: 0, decls: buf, opts: late, args: []any{same(128, 5)}, where: "// HERE",
			body: start + "cp.async.wait_group 1; // BUG\nld.shared.u32 %r0, [%r4]; // HERE", fixed: "cp.async.wait_all;"},
		{name: "more bytes of source than of destination", kind: TrapAsync, lane: 0, decls: buf, args: []any{same(128, 5)},
			body:  start + "mov.u32 %r0, 17;\ncp.async.cg.shared.global [%r4], [%rd2], 16, %r0; // BUG\ncp.async.wait_all;",
			fixed: "cp.async.cg.shared.global [%r4], [%rd2], 16, 16;"},
		{name: "no barrier after the wait", kind: TrapRace, lane: 0, decls: buf, opts: late, args: []any{same(128, 5)}, where: "// HERE",
			body: start + "cp.async.wait_all;\n// BUG\nxor.b32 %r4, %r4, 16; ld.shared.u32 %r0, [%r4]; // HERE", fixed: "bar.sync 0;"},
		{name: "barrier before the wait", kind: TrapRace, lane: 0, decls: buf, opts: late, args: []any{same(128, 5)}, where: "// HERE",
			body: start + "bar.sync 0; cp.async.wait_all; // BUG\nxor.b32 %r4, %r4, 16; ld.shared.u32 %r0, [%r4]; // HERE", fixed: "cp.async.wait_all; bar.sync 0;"},
	})
}

// bulkBody copies 256 bytes with one thread and an mbarrier. Then each thread reads one word.
const bulkBody = `
	ld.param.u64 %rd2, [in]; mov.u32 %r2, bar; mov.u32 %r3, buf; setp.eq.u32 %p1, %r1, 0;
	@%p1 mbarrier.init.shared.b64 [%r2], 1;
	@%p1 fence.mbarrier_init.release.cluster;
	bar.sync 0; // INIT
	@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r2], 256;
	@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2], 256, [%r2];
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; // POLL
	@!%p2 bra WAIT; // LOOP
	shl.b32 %r4, %r1, 2; add.u32 %r4, %r4, %r3;
	ld.shared.u32 %r0, [%r4]; // READ`

func TestBulkCopy(t *testing.T) {
	decls := ".shared .align 128 .b8 buf[256]; .shared .align 8 .b8 bar[8];"
	in := make([]uint32, 64)
	for i := range in {
		in[i] = uint32(i * i)
	}
	k := trapCase{header: sm90, decls: decls, args: []any{1}, body: bulkBody}
	for _, mode := range []Async{Eager, Late} {
		for seed := range uint64(4) {
			out, err := kernelRun{opts: Options{Async: mode, Schedule: Schedule{seed > 0, seed}}, ptx: k.faulty(), block: 64, args: []any{64, in}}.run(t)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range out[0] {
				if got != in[i] {
					t.Fatalf("%v: word %d: got %d, want %d", mode, i, got, in[i])
				}
			}
		}
	}
	replace := func(mark, with string) string { return replaceLine(bulkBody, mark, with) }
	runTraps(t, []trapCase{
		{name: "no wait", kind: TrapRace, lane: 1, where: "// READ", body: replaceLine(replace("// LOOP", ""), "// POLL", "// BUG"),
			fixed: "mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;", header: sm90, decls: decls, block: 32, args: []any{in}},
		{name: "no wait and late data", kind: TrapMemory, lane: 0, where: "// READ", body: replace("// LOOP", "// BUG"), fixed: "@!%p2 bra WAIT;",
			opts: Options{Async: Late, IgnoreRaces: true}, header: sm90, decls: decls, block: 64, args: []any{in}},
		{name: "until the wait fails", kind: TrapMemory, lane: 0, where: "// READ", body: replace("// LOOP", "@%p2 bra WAIT; // BUG"), fixed: "@!%p2 bra WAIT;",
			opts: Options{Async: Late, IgnoreRaces: true}, header: sm90, decls: decls, block: 1, args: []any{in}},
		{name: "end before the data have come", kind: TrapAsync, lane: 0, where: "ret;", opts: Options{Async: Late},
			body:  replaceLine(replaceLine(replace("// LOOP", ""), "// POLL", "// BUG"), "ld.shared", "mov.u32 %r0, 0;"),
			fixed: "mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;", header: sm90, decls: decls, block: 64, args: []any{in}},
		{name: "use before initialization", kind: TrapBarrier, lane: 0, where: "// POLL", body: replace("@%p1 mbarrier.init", "// BUG"),
			fixed: "@%p1 mbarrier.init.shared.b64 [%r2], 1; bar.sync 0;", header: sm90, decls: decls, block: 64, args: []any{in},
			opts: Options{Schedule: InOrder}},
		{name: "initialization races with use", kind: TrapRace, lane: 1, where: "// POLL", body: replace("// INIT", "// BUG"), fixed: "bar.sync 0;",
			header: sm90, decls: decls, block: 32, args: []any{in}},
	})
}

// TestBulkCopiesEndInAnyOrder polls the barriers of two bulk copies by turns. Under some adversarial schedules the second copy
// must end before the first, and under some the first.
func TestBulkCopiesEndInAnyOrder(t *testing.T) {
	k := trapCase{header: sm90, decls: ".shared .align 16 .b8 buf[32]; .shared .align 8 .b8 bar[16];", args: []any{1}, body: `
	ld.param.u64 %rd2, [in]; mov.u32 %r2, bar; mov.u32 %r3, buf;
	mbarrier.init.shared.b64 [%r2], 1; mbarrier.init.shared.b64 [%r2+8], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r2], 16;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2], 16, [%r2];
	mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r2+8], 16;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3+16], [%rd2], 16, [%r2+8];
	mov.u32 %r0, 1;
FIRST:
	mbarrier.test_wait.parity.shared.b64 %p1, [%r2], 0;
	@%p1 bra LAST;
	mbarrier.test_wait.parity.shared.b64 %p2, [%r2+8], 0;
	@!%p2 bra FIRST;
	mov.u32 %r0, 2;
OTHER:
	mbarrier.test_wait.parity.shared.b64 %p1, [%r2], 0;
	@!%p1 bra OTHER;
LAST:
	mbarrier.test_wait.parity.shared.b64 %p2, [%r2+8], 0;
	@!%p2 bra LAST;`}
	ended := map[uint32]int{} // by the copy that ended first
	for seed := range uint64(64) {
		out, err := kernelRun{opts: Options{Async: Late, Schedule: Adversarial(seed)}, ptx: k.faulty(), block: 1, args: []any{1, same(8, 5)}}.run(t)
		if err != nil {
			t.Fatal(err)
		}
		ended[out[0][0]]++
	}
	if ended[1] == 0 || ended[2] == 0 {
		t.Errorf("how often each copy ended first: %v", ended)
	}
}
