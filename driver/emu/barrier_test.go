package emu

import (
	"strings"
	"testing"
)

// handover passes eight words per lane from warp 0 to warp 1 through one buffer. Barrier 1 says that
// the buffer is full, barrier 2 that it is empty.
const handover = `
	mov.u32 %r2, buf; and.b32 %r3, %r1, 31; mad.lo.u32 %r3, %r3, 4, %r2; mov.u32 %r0, 0; mov.u32 %r4, 0;
	setp.ge.u32 %p1, %r1, 32;
LOOP:
	@!%p1 bar.sync 2, 64;
	@%p1 bar.arrive 2, 64;
	add.u32 %r5, %r4, %r1;
	@!%p1 st.shared.u32 [%r3], %r5;
	@!%p1 bar.arrive 1, 64;
	@%p1 bar.sync 1, 64;
	@%p1 ld.shared.u32 %r5, [%r3];
	add.u32 %r0, %r0, %r5;
	add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 8;
	@%p2 bra LOOP;
`

func TestNamedBarriers(t *testing.T) {
	k := trapCase{decls: ".shared .align 16 .b8 buf[128];", body: handover}
	for seed := range uint64(6) {
		opts := Options{}
		if seed > 0 {
			opts.Schedule = Adversarial(seed)
		}
		out, err := kernelRun{opts: opts, ptx: k.faulty(), block: 64, args: []any{64}}.run(t)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, got := range out[0] {
			if want := uint32(i%32*8 + 28); got != want {
				t.Errorf("seed %d: thread %d has %d, want %d", seed, i, got, want)
			}
		}
	}
}

func TestNamedBarrierTraps(t *testing.T) {
	change := func(old, new string) string {
		if !strings.Contains(handover, old) {
			t.Fatalf("no %q", old)
		}
		return strings.Replace(handover, old, new, 1)
	}
	buf := ".shared .align 16 .b8 buf[128];"
	runTraps(t, []trapCase{
		{name: "a write after the arrival", kind: TrapRace, lane: 0, block: 64, decls: buf, where: "ld.shared.u32",
			body: change("@!%p1 bar.arrive 1, 64;\n", "@!%p1 bar.arrive 1, 64;\n\t@!%p1 st.shared.u32 [%r3], %r5; // BUG\n")},
		{name: "an arrival that is missing", kind: TrapDeadlock, lane: 0, block: 64, decls: buf, where: "@!%p1 bar.sync 2",
			body: change("@%p1 bar.arrive 2, 64;", "// BUG"), fixed: "@%p1 bar.arrive 2, 64;"},
		{name: "two arrivals", kind: TrapBarrier, lane: 0, block: 96, body: "mov.u32 %r0, 0; setp.ge.u32 %p1, %r1, 32;\n" +
			"@!%p1 bar.arrive 1, 96;\n@!%p1 bar.arrive 1, 96; // BUG\n"},
		{name: "a wait after an arrival", kind: TrapBarrier, lane: 0, block: 64, body: "mov.u32 %r0, 0; setp.ge.u32 %p1, %r1, 32;\n" +
			"@!%p1 bar.arrive 1, 64;\n@!%p1 bar.sync 1, 64; // BUG\n@%p1 bar.sync 1, 64;\n"},
		{name: "an arrival of half a warp", kind: TrapDivergence, lane: 0, block: 64,
			body: "mov.u32 %r0, 0; setp.lt.u32 %p1, %r1, 16;\n@%p1 bar.arrive 1, 64; // BUG\n"},
		{name: "an arrival with another count", kind: TrapBarrier, lane: 0, block: 64,
			body:  "mov.u32 %r0, 0; setp.ge.u32 %p1, %r1, 32;\n@!%p1 bar.arrive 1, 32;\n@!%p1 bar.arrive 1, 64;\n@%p1 bar.sync 1, 32; // BUG\n",
			fixed: "@%p1 barrier.arrive.aligned 1, 64;"},
	})
}
