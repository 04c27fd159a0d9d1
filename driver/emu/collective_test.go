package emu

import (
	"fmt"
	"testing"
)

func TestCollectives(t *testing.T) {
	runScalar(t, sm80, []scalarCase{
		{"butterfly", "shfl.sync.bfly.b32 %r0, %r1, 5, 31, -1;", func(i uint32) uint32 { return i ^ 5 }},
		{"index", "shfl.sync.idx.b32 %r0, %r1, 9, 31, -1;", always(9)},
		{"down keeps the lane's own value at the end", "shfl.sync.down.b32 %r0|%p1, %r1, 4, 31, -1; @!%p1 add.u32 %r0, %r0, 100;",
			func(i uint32) uint32 {
				if i < 28 {
					return i + 4
				}
				return i + 100
			}},
		{"up", "shfl.sync.up.b32 %r0, %r1, 1, 0, -1;", func(i uint32) uint32 { return max(i, 1) - 1 }},
		{"segments of eight", "shfl.sync.idx.b32 %r0, %r1, 2, 0x181f, -1;", func(i uint32) uint32 { return i&^7 + 2 }},
		{"ballot", "setp.lt.u32 %p1, %r1, 5; vote.sync.ballot.b32 %r0, %p1, -1;", always(31)},
		{"ballot of the opposite", "setp.lt.u32 %p1, %r1, 5; vote.sync.ballot.b32 %r0, !%p1, -1;", always(^uint32(31))},
		{"any and all", "setp.lt.u32 %p1, %r1, 5; vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; selp.u32 %r0, 1, 0, %p2; @%p3 add.u32 %r0, %r0, 2;", always(1)},
		{"redux", "redux.sync.add.u32 %r2, %r1, -1; redux.sync.max.s32 %r3, %r1, -1; redux.sync.xor.b32 %r4, %r1, -1; add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r4;", always(496 + 31)},
		{"signed redux", "sub.s32 %r2, %r1, 9; redux.sync.min.s32 %r0, %r2, -1;", always(^uint32(8))},
		{"divergent halves with masks of their own", `setp.lt.u32 %p1, %r1, 16; selp.u32 %r3, 0xffff, 0xffff0000, %p1;
	redux.sync.add.u32 %r0, %r1, %r3;`, func(i uint32) uint32 {
			if i < 16 {
				return 120
			}
			return 376
		}},
		{"active lanes", "setp.lt.u32 %p1, %r1, 3; activemask.b32 %r0; @%p1 activemask.b32 %r0;", func(i uint32) uint32 {
			if i < 3 {
				return 7
			}
			return 0xffffffff
		}},
	})
}

// Diverged lanes converge in any schedule.
func TestReconvergence(t *testing.T) {
	body := `
	setp.lt.u32 %p1, %r1, 10;
	mov.u32 %r0, 0;
	mov.u32 %r3, 0;
LOOP:
	add.u32 %r3, %r3, 1;
	setp.le.u32 %p2, %r3, %r1;
	@%p2 bra LOOP;
	@%p1 bra THEN;
	add.u32 %r0, %r3, 100;
	bra JOIN;
THEN:
	add.u32 %r0, %r3, 200;
JOIN:
	bar.warp.sync -1;
	shfl.sync.bfly.b32 %r0, %r0, 31, 31, -1;`
	want := func(i uint32) uint32 {
		if i < 10 {
			return i + 201
		}
		return i + 101
	}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			out, err := kernelRun{opts: Options{Schedule: Schedule{seed > 0, seed}}, ptx: perThread(sm80, "", body), args: []any{32}}.run(t)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range out[0] {
				if got != want(uint32(i)^31) {
					t.Fatalf("lane %d: got %d, want %d", i, got, want(uint32(i)^31))
				}
			}
		})
	}
}

func TestCollectiveTraps(t *testing.T) {
	half := "mov.u32 %r0, 0; setp.lt.u32 %p1, %r1, 16;\n"
	runTraps(t, []trapCase{
		{name: "lane outside its mask", kind: TrapLane, lane: 16, body: "shfl.sync.bfly.b32 %r0, %r1, 1, 31, 0xffff; // BUG",
			fixed: "shfl.sync.bfly.b32 %r0, %r1, 1, 31, -1;"},
		{name: "mask names a lane that has exited", kind: TrapLane, lane: 16,
			body: half + "@%p1 exit;\nshfl.sync.bfly.b32 %r0, %r1, 1, 31, -1; // BUG", fixed: "shfl.sync.bfly.b32 %r0, %r1, 1, 31, 0xffff0000;"},
		{name: "lanes that never come", kind: TrapLane, lane: 0,
			body:  half + "@%p1 bra A;\nvote.sync.ballot.b32 %r0, %p1, 0xffff0000; bra B;\nA: vote.sync.ballot.b32 %r0, %p1, -1; // BUG\nB:",
			fixed: "A: vote.sync.ballot.b32 %r0, %p1, 0xffff;", where: "// BUG"},
		{name: "read from outside the mask", kind: TrapLane, lane: 0,
			body: half + "@%p1 shfl.sync.bfly.b32 %r0, %r1, 16, 31, 0xffff; // BUG", fixed: "shfl.sync.bfly.b32 %r0, %r1, 16, 31, -1;"},
		{name: "redux without the lanes it names", kind: TrapLane, lane: 0,
			body: half + "@%p1 redux.sync.add.u32 %r0, %r1, -1; // BUG", fixed: "@%p1 redux.sync.add.u32 %r0, %r1, 0xffff;"},
		{name: "aligned barrier by half a warp", kind: TrapDivergence, lane: 0, body: half + "@%p1 bar.sync 0; // BUG", fixed: "bar.sync 0;"},
		{name: "barrier after an early exit", kind: TrapBarrier, lane: 0, block: 64,
			body: "mov.u32 %r0, 0; setp.lt.u32 %p1, %r1, 32;\n@%p1 exit;\nbar.sync 0; // BUG", fixed: "bar.sync 0, 32;"},
		{name: "exit while others wait", kind: TrapBarrier, lane: 0, block: 64, where: "exit; // HERE",
			body: "mov.u32 %r0, 0; setp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 0; // BUG\n@!%p1 exit; // HERE", fixed: "bar.sync 0;"},
		{name: "count that is no multiple of 32", kind: TrapBarrier, lane: 0, block: 64, body: "mov.u32 %r0, 0; mov.u32 %r2, 48;\nbar.sync 1, %r2; // BUG", fixed: "bar.sync 1, 64;"},
		{name: "counts that differ", kind: TrapBarrier, lane: 0, block: 96,
			body:  "mov.u32 %r0, 0; setp.lt.u32 %p1, %r1, 32; selp.u32 %r2, 64, 96, %p1;\nbar.sync 1, %r2; // BUG",
			fixed: "bar.sync 1, 96;"},
		{name: "a seventeenth barrier", kind: TrapBarrier, lane: 0, body: "mov.u32 %r0, 0; mov.u32 %r2, 16;\nbar.sync %r2; // BUG", fixed: "bar.sync 15;"},
		{name: "lanes at different barriers", kind: TrapBarrier, lane: 16, body: half + "selp.u32 %r2, 1, 2, %p1;\nbar.sync %r2; // BUG", fixed: "bar.sync 1;"},
		{name: "more threads than the barrier is for", kind: TrapBarrier, lane: 0, block: 64,
			body:  "mov.u32 %r0, 0; setp.ge.u32 %p1, %r1, 16;\n@%p1 barrier.sync 1, 32; // BUG",
			fixed: "barrier.sync 1, 32;"},
		{name: "deadlock of two barriers", kind: TrapDeadlock, lane: 0, block: 64,
			body:  "mov.u32 %r0, 0; setp.lt.u32 %p1, %r1, 32; selp.u32 %r2, 1, 2, %p1;\nbar.sync %r2, 64; // BUG",
			fixed: "bar.sync 1, 64;"},
		{name: "divergent bra.uni", kind: TrapInvalidBranch, lane: 16, body: half + "@%p1 bra.uni A; // BUG\nA:", fixed: "@%p1 bra A;"},
		{name: "runaway", kind: TrapRunaway, lane: 0, opts: Options{MaxInstructions: 100000}, body: "mov.u32 %r0, 0;\nA: bra A; // BUG", fixed: ""},
		{name: "mma by half a warp", kind: TrapDivergence, lane: 0,
			body:  half + "mov.f32 %f1, 0f00000000;\n@%p1 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2,%f3,%f4,%f5}, {%r0,%r0,%r0,%r0}, {%r0,%r0}, {%f1,%f1,%f1,%f1}; // BUG",
			fixed: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2,%f3,%f4,%f5}, {%r0,%r0,%r0,%r0}, {%r0,%r0}, {%f1,%f1,%f1,%f1};"},
	})
}
