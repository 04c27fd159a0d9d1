package emu

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// trapCase is a planted bug and its twin without it. The faulty line is the one
// with the comment BUG; in the twin that line is replaced by fixed.
type trapCase struct {
	name  string
	kind  TrapKind
	lane  int
	decls string
	body  string
	fixed string
	block int
	grid  int
	opts  Options
	args  []any // beyond out, which has as many words as threads
	head  string
	where string // part of the line that traps, if it is not the one marked BUG
}

// faulty and whole are the kernel with the bug and without it.
func (c trapCase) faulty() string { return c.kernel(c.body) }

func (c trapCase) corrected() string {
	lines := strings.Split(c.body, "\n")
	for i, line := range lines {
		if strings.Contains(line, "// BUG") {
			lines[i] = c.fixed
		}
	}
	return c.kernel(strings.Join(lines, "\n"))
}

func (c trapCase) kernel(body string) string {
	head := c.head
	if head == "" {
		head = header
	}
	text := perThread(head, c.decls, body)
	for range c.args {
		text = strings.Replace(text, "align 16 out)", "align 16 out, .param .u64 .ptr .global .align 16 in)", 1)
	}
	return text
}

func runTraps(t *testing.T, cases []trapCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := max(c.block, 32) * max(c.grid, 1)
			b := bench{opts: c.opts, ptx: c.faulty(), block: c.block, grid: c.grid, args: append([]any{n}, c.args...)}
			where := c.where
			if where == "" {
				where = "// BUG"
			}
			_, d, err := b.runOnDevice(t)
			wantTrap(t, err, c.kind, lineOf(t, b.ptx, where), c.lane)
			if !errors.Is(d.Err(), driver.ErrDeviceLost) {
				t.Errorf("the fault is not sticky: %v", d.Err())
			}
			if _, err := d.Alloc(1); !errors.Is(err, driver.ErrDeviceLost) {
				t.Errorf("the device still works after a fault: %v", err)
			}
			b.ptx = c.corrected()
			if _, err := b.run(t); err != nil {
				t.Errorf("without the bug: %v", err)
			}
		})
	}
}

func TestMemoryTraps(t *testing.T) {
	const (
		tile = ".shared .align 16 .b8 buf[512];"
		rows = "mov.u32 %r2, buf; shl.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3; st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1}; bar.warp.sync -1;\n"
	)
	runTraps(t, []trapCase{
		{name: "load past the end", kind: TrapBounds, lane: 31, args: []any{same(32, 1)},
			body:  "ld.param.u64 %rd2, [in]; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd2, %rd2, %rd3;\nld.global.u32 %r0, [%rd2+4]; // BUG",
			fixed: "ld.global.u32 %r0, [%rd2];"},
		{name: "store below the start", kind: TrapBounds, lane: 0,
			body: "mov.u32 %r0, 0;\nst.global.u32 [%rd1+-4], %r0; // BUG", fixed: ""},
		{name: "null pointer", kind: TrapBounds, lane: 0,
			body: "mov.u64 %rd2, 0; mov.u32 %r0, 0;\nld.global.u32 %r0, [%rd2]; // BUG", fixed: ""},
		{name: "past the end of shared memory", kind: TrapBounds, lane: 16, decls: ".shared .align 4 .b8 buf[64];",
			body: "mov.u32 %r2, buf; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3; mov.u32 %r0, 0;\nst.shared.u32 [%r2], %r1; // BUG", fixed: ""},
		{name: "misaligned", kind: TrapAlignment, lane: 0,
			body: "mov.u32 %r0, 0;\nst.global.u32 [%rd1+2], %r0; // BUG", fixed: ""},
		{name: "misaligned vector", kind: TrapAlignment, lane: 1, args: []any{same(64, 1)},
			body:  "ld.param.u64 %rd2, [in]; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd2, %rd2, %rd3;\nld.global.v2.u32 {%r0, %r2}, [%rd2]; // BUG",
			fixed: "add.u64 %rd2, %rd2, %rd3; ld.global.v2.u32 {%r0, %r2}, [%rd2];"},
		{name: "undefined buffer", kind: TrapMemory, lane: 0, args: []any{32},
			body: "ld.param.u64 %rd2, [in]; mov.u32 %r0, 0;\nld.global.u32 %r0, [%rd2]; // BUG", fixed: ""},
		{name: "undefined shared memory", kind: TrapMemory, lane: 0, decls: ".shared .align 4 .b8 buf[128];",
			body: "mov.u32 %r0, 0;\nld.shared.u32 %r0, [buf]; // BUG", fixed: ""},
		{name: "one undefined byte", kind: TrapMemory, lane: 0, decls: ".shared .align 4 .b8 buf[4];",
			body:  "setp.eq.u32 %p1, %r1, 0; mov.u32 %r0, 0;\n@%p1 st.shared.u8 [buf+1], %r1; @%p1 st.shared.u16 [buf+2], %r1;\n\n@%p1 ld.shared.u32 %r0, [buf]; // BUG",
			fixed: "@%p1 st.shared.u8 [buf], %r1; @%p1 ld.shared.u32 %r0, [buf];"},
		{name: "undefined register", kind: TrapRegister, lane: 0, body: "add.u32 %r0, %r2, 1; // BUG", fixed: "mov.u32 %r0, 1;"},
		{name: "register undefined in one lane", kind: TrapRegister, lane: 7,
			body: "setp.ne.u32 %p1, %r1, 7;\n@%p1 mov.u32 %r2, 1;\nadd.u32 %r0, %r2, 1; // BUG", fixed: "mov.u32 %r0, 1;"},
		{name: "undefined predicate", kind: TrapRegister, lane: 0, body: "mov.u32 %r0, 1;\n@%p2 mov.u32 %r0, 2; // BUG", fixed: ""},
		{name: "misaligned in shared memory", kind: TrapAlignment, lane: 1, decls: ".shared .align 8 .b8 buf[128];",
			body: "mov.u32 %r0, 0; mov.u32 %r2, buf; shl.b32 %r3, %r1, 1; add.u32 %r2, %r2, %r3;\nst.shared.u32 [%r2], %r1; // BUG", fixed: ""},
		{name: "ldmatrix of a misaligned row", kind: TrapAlignment, lane: 3, decls: tile,
			body:  rows + "setp.eq.u32 %p1, %r1, 3; @%p1 add.u32 %r2, %r2, 8;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r2]; // BUG",
			fixed: "@%p1 sub.u32 %r2, %r2, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r2];"},
		{name: "ldmatrix past the end", kind: TrapBounds, lane: 7, decls: tile,
			body:  rows + "add.u32 %r2, %r2, 400;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r2]; // BUG",
			fixed: "sub.u32 %r2, %r2, 400; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r2];"},
		{name: "ldmatrix of an undefined row", kind: TrapMemory, lane: 5, decls: tile,
			body: strings.Replace(rows, "st.shared.v4", "setp.ne.u32 %p1, %r1, 5; @%p1 st.shared.v4", 1) +
				"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r2]; // BUG",
			fixed: "@!%p1 st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1}; bar.warp.sync -1; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r2];"},
		{name: "atomic past the end", kind: TrapBounds, lane: 0, body: "mov.u32 %r0, 0;\natom.global.add.u32 %r2, [%rd1+128], 1; // BUG", fixed: ""},
		{name: "atomic on undefined memory", kind: TrapMemory, lane: 0, decls: ".shared .align 4 .b8 buf[4];",
			body:  "mov.u32 %r0, 0; setp.eq.u32 %p1, %r1, 0;\natom.shared.add.u32 %r2, [buf], 1; // BUG",
			fixed: "@%p1 st.shared.u32 [buf], %r0; bar.warp.sync -1; atom.shared.add.u32 %r2, [buf], 1;"},
		{name: "copy from past the end", kind: TrapBounds, lane: 0, args: []any{same(32, 1)}, decls: ".shared .align 16 .b8 buf[16];",
			body:  "ld.param.u64 %rd2, [in]; mov.u32 %r0, 0; setp.eq.u32 %p1, %r1, 0;\n@%p1 cp.async.cg.shared.global [buf], [%rd2+128], 16; // BUG",
			fixed: "@%p1 cp.async.cg.shared.global [buf], [%rd2+112], 16;"},
		{name: "misaligned copy", kind: TrapAlignment, lane: 0, args: []any{same(32, 1)}, decls: ".shared .align 16 .b8 buf[32];",
			body:  "ld.param.u64 %rd2, [in]; mov.u32 %r0, 0; setp.eq.u32 %p1, %r1, 0;\n@%p1 cp.async.cg.shared.global [buf+8], [%rd2], 16; // BUG",
			fixed: "@%p1 cp.async.ca.shared.global [buf+8], [%rd2], 8;"},
		{name: "copy of undefined memory", kind: TrapMemory, lane: 0, args: []any{32}, decls: ".shared .align 16 .b8 buf[16];",
			body:  "ld.param.u64 %rd2, [in]; mov.u32 %r0, 0; setp.eq.u32 %p1, %r1, 0;\n@%p1 cp.async.cg.shared.global [buf], [%rd2], 16; // BUG",
			fixed: "@%p1 cp.async.cg.shared.global [buf], [%rd2], 16, 0;"},
		{name: "undefined cache policy of a load", kind: TrapRegister, lane: 0, args: []any{same(32, 1)},
			body:  "ld.param.u64 %rd2, [in];\nld.global.L2::cache_hint.u32 %r0, [%rd2], %rd9; // BUG",
			fixed: "createpolicy.fractional.L2::evict_first.b64 %rd9; ld.global.L2::cache_hint.u32 %r0, [%rd2], %rd9;"},
		{name: "undefined cache policy of a store", kind: TrapRegister, lane: 0,
			body: "mov.u32 %r0, 0;\nst.global.L2::cache_hint.u32 [%rd1], %r0, %rd9; // BUG", fixed: ""},
		{name: "undefined cache policy of a copy", kind: TrapRegister, lane: 0, args: []any{same(32, 1)}, decls: ".shared .align 16 .b8 buf[16];",
			body:  "ld.param.u64 %rd2, [in]; mov.u32 %r0, 0; setp.eq.u32 %p1, %r1, 0;\n@%p1 cp.async.cg.shared.global.L2::cache_hint [buf], [%rd2], 16, %rd9; // BUG",
			fixed: "@%p1 cp.async.cg.shared.global.L2::cache_hint [buf], [%rd2], 16, 16, %rd1;"},
		{name: "undefined value stored", kind: TrapRegister, lane: 0, body: "mov.u32 %r0, 1;\nst.global.u32 [%rd1], %r9; // BUG", fixed: ""},
		{name: "division by zero", kind: TrapDivision, lane: 0, body: "div.u32 %r0, 7, %r1; // BUG",
			fixed: "add.u32 %r2, %r1, 1; div.u32 %r0, 7, %r2;"},
		{name: "explicit trap", kind: TrapExplicit, lane: 3, body: "mov.u32 %r0, 0; setp.eq.u32 %p1, %r1, 3;\n@%p1 trap; // BUG", fixed: ""},
	})
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
