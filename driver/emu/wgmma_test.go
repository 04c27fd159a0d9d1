package emu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// sm90a is the sm80 of kernels with wgmma.
const sm90a = ".version 8.4\n.target sm_90a\n.address_size 64\n"

// regsD and regsA are the operands D and A.
const (
	regsD = "{%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7, %c8, %c9, %c10, %c11, %c12, %c13, %c14, %c15, " +
		"%c16, %c17, %c18, %c19, %c20, %c21, %c22, %c23, %c24, %c25, %c26, %c27, %c28, %c29, %c30, %c31}"
	regsA = "{%a0, %a1, %a2, %a3}"
)

const wgmmaDecls = "\t.reg .b32 %c<32>; .reg .b32 %a<4>; .shared .align 128 .b8 b[2048];"

// wgmmaBody multiplies twice into the same D without a wait between, with two layouts of B. The
// input holds 16 bytes of A per thread and then B.
const wgmmaBody = `
.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p<4>; .reg .b32 %c<32>; .reg .b32 %a<4>;
	.shared .align 128 .b8 b[2048];
	ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x; mov.u32 %r2, b; mad.wide.u32 %rd2, %r1, 16, %rd0; and.b32 %r3, %r1, 127; mad.lo.u32 %r4, %r3, 16, %r2;
	setp.lt.u32 %p1, %r1, 128;
	@%p1 cp.async.cg.shared.global [%r4], [%rd2+4096], 16;
	cp.async.wait_all;
	fence.proxy.async;
	bar.sync 0;
	ld.global.v4.u32 {%a0, %a1, %a2, %a3}, [%rd2];
	shr.u32 %r5, %r2, 4; cvt.u64.u32 %rd3, %r5;
	or.b64 %rd4, %rd3, 0x1000080000;
	or.b64 %rd5, %rd3, 0x800400000;
	setp.ne.u32 %p2, 0, 0; setp.eq.u32 %p3, 0, 0;
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 ` + regsD + `, ` + regsA + `, %rd4, %p2;
	wgmma.commit_group.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 ` + regsD + `, ` + regsA + `, %rd5, %p3;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 1;
	wgmma.wait_group.sync.aligned 0;
	mad.wide.u32 %rd6, %r1, 128, %rd1;
`

// TestWGMMA checks the product of two warpgroups, element by element.
func TestWGMMA(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	in := make([]uint32, 256*4+512)
	for i := range in {
		in[i] = random.Uint32()
	}
	at := func(i int) byte { return byte(in[i/4] >> (i % 4 * 8)) }
	signed := wgmmaBody
	for i := range 32 {
		signed += fmt.Sprintf("\tst.global.u32 [%%rd6+%d], %%c%d;\n", 4*i, i)
	}
	signed += "\tret;\n}\n"
	unsigned := strings.ReplaceAll(signed, "m64n64k32.s32.s8.s8", "m64n64k32.s32.u8.s8")
	for _, c := range []struct {
		name, text string
		a          func(byte) int32
		opts       Options
	}{
		{"signed", signed, func(b byte) int32 { return int32(int8(b)) }, Options{}},
		{"unsigned", unsigned, func(b byte) int32 { return int32(b) }, Options{}},
		{"in any order", signed, func(b byte) int32 { return int32(int8(b)) }, Options{Async: Late, Schedule: Adversarial(3)}},
	} {
		out, err := kernelRun{opts: c.opts, ptx: sm90a + c.text, block: 256, args: []any{in, 256 * 32}}.run(t)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for i, got := range out[1] {
			thread, r := i/32, i%32
			lane := thread % 32
			row, column := lane/4+r%4/2*8, r/4*8+lane%4*2+r%2
			var want int32
			for k := range 32 {
				a := at(thread/32*512 + (row%8*4+k%16/4)*16 + (row/8+k/16*2)*4 + k%4)
				b := func(leading, stride int) int32 {
					return int32(int8(at(4096 + k/16*leading + column/8*stride + column%8*16 + k%16)))
				}
				want += c.a(a) * (b(128, 256) + b(1024, 128))
			}
			if int32(got) != want {
				t.Fatalf("%s: thread %d, register %d: %d, want %d", c.name, thread, r, int32(got), want)
			}
		}
	}
}

// TestWGMMARejected checks the requirements and the operands.
func TestWGMMARejected(t *testing.T) {
	good := "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 " + regsD + ", " + regsA + ", %rd1, %p1;"
	half := "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " + regsD + ", " + regsA + ", %rd1, %p1, 1, 1, 0;"
	shared := strings.Replace(half, regsA, "%rd2", 1)
	plain := strings.Replace(sm90a, "sm_90a", "sm_90", 1)
	for _, c := range []struct{ name, header, text, want string }{
		{"as it should be", sm90a, good, ""},
		{"another target", plain, "wgmma.fence.sync.aligned;", "needs .target sm_90a"},
		{"mma_async for another target", plain, good, "needs .target sm_90a"},
		{"u8 before PTX 8.4", strings.Replace(sm90a, "8.4", "8.3", 1), strings.Replace(good, "s8.s8", "u8.s8", 1), "needs .version 8.4"},
		{"too few registers of D", sm90a, strings.Replace(good, "%c0, ", "", 1), "want a vector of 32"},
		{"a register of D twice", sm90a, strings.Replace(good, "%c0, ", "%c1, ", 1), "d has %c1 twice"},
		{"too few registers of A", sm90a, strings.Replace(good, "%a0, ", "", 1), "want a vector of 4"},
		{"a narrow descriptor", sm90a, strings.Replace(good, "%rd1", "%r1", 1), "the descriptor"},
		{"no predicate", sm90a, strings.Replace(good, "%p1", "%r1", 1), "where a predicate is expected"},
		{"f16", sm90a, half, ""},
		{"bf16", sm90a, strings.ReplaceAll(half, ".f16", ".bf16"), ""},
		{"f16 and bf16", sm90a, strings.Replace(half, "f16.f16", "f16.bf16", 1), "unknown instruction"},
		{"sums in f16", sm90a, strings.Replace(half, "f32.f16", "f16.f16", 1), "unknown instruction"},
		{"12 columns", sm90a, strings.Replace(half, "n64", "n12", 1), "unknown instruction"},
		{"264 columns", sm90a, strings.Replace(half, "n64", "n264", 1), "unknown instruction"},
		{"f16 for another target", plain, half, "needs .target sm_90a"},
		{"registers for 56 columns", sm90a, strings.Replace(half, "n64", "n56", 1), "want a vector of 28"},
		{"A in shared memory, one transposition", sm90a, shared, "7 operands where"},
		{"A in shared memory", sm90a, strings.Replace(shared, ", 0;", ", 0, 1;", 1), ""},
		{"A in registers transposed", sm90a, strings.Replace(half, ", 0;", ", 1, 0;", 1), "8 operands where"},
		{"no transposition", sm90a, strings.Replace(half, ", 0;", ";", 1), "6 operands where"},
		{"a transposition of 2", sm90a, strings.Replace(half, ", 0;", ", 2;", 1), "imm-trans is not a number from 0 to 1"},
		{"a negated A", sm90a, strings.Replace(half, "1, 1, 0", "-1, 1, 0", 1), "imm-scale-a is not 1"},
		{"a negated B", sm90a, strings.Replace(half, "1, 1, 0", "1, -1, 0", 1), "imm-scale-b is not 1"},
		{"a narrow descriptor of A", sm90a, strings.NewReplacer("%rd2", "%r2", ", 0;", ", 0, 0;").Replace(shared), "a: register %r2"},
		{"transposed bytes", sm90a, strings.Replace(good, ";", ", 1;", 1), "5 operands where"},
		{"no number of groups", sm90a, "wgmma.wait_group.sync.aligned %r1;", "is not a number"},
	} {
		d, err := Open(Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Load([]byte(perThread(c.header, wgmmaDecls, "mov.u32 %r0, 0;\n"+c.text)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// The statements of the kernels below.
const (
	wgSetup = `
	mov.u32 %r0, 0; mov.u32 %r2, b; and.b32 %r3, %r1, 127; mad.lo.u32 %r3, %r3, 16, %r2; setp.lt.u32 %p3, %r1, 128;
	shr.u32 %r4, %r2, 4; cvt.u64.u32 %rd2, %r4; or.b64 %rd2, %rd2, 0x1000080000; setp.ne.u32 %p1, 0, 0;
	mov.u32 %a0, %r1; mov.u32 %a1, 1; mov.u32 %a2, 2; mov.u32 %a3, 3;
`
	wgStore      = "\t@%p3 st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};\n"
	wgProxyFence = "\tfence.proxy.async.shared::cta;\n\tbar.sync 0;\n"
	wgFence      = "\twgmma.fence.sync.aligned;\n"
	wgMMA        = "\twgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 " + regsD + ", " + regsA + ", %rd2, %p1;\n"
	wgCommit     = "\twgmma.commit_group.sync.aligned;\n"
	wgWait       = "\twgmma.wait_group.sync.aligned 0;\n"
	wgResult     = "\tmov.u32 %r0, %c5; // HERE\n"

	wgPrologue = wgSetup + wgStore + wgProxyFence + wgFence
)

// Products of f16 in the same registers: of 8 columns, with A in registers and in shared memory, and
// of 64 columns.
const (
	wgSmall       = "\twgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0, %c1, %c2, %c3}, {%a0, %a1, %a2, %a3}, %rd2, %p1, 1, 1, 0;\n"
	wgSmallShared = "\twgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%c0, %c1, %c2, %c3}, %rd2, %rd2, %p1, 1, 1, 0, 0;\n"
	wgHalf        = "\twgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " + regsD + ", {%a0, %a1, %a2, %a3}, %rd2, %p1, 1, 1, 0;\n"
)

// The bits of a descriptor of 64 columns without swizzling, and with lines of 32 bytes.
const unswizzledBits, swizzledBits = "0x1000080000", "0xC000001000010000"

const wgEpilogue = wgCommit + wgWait + "\tmov.u32 %r0, %c5;\n"

// here marks a statement as the one that traps.
func here(statement string) string { return strings.TrimSuffix(statement, "\n") + " // HERE\n" }

func runWGMMATraps(t *testing.T, cases []trapCase) {
	for i := range cases {
		c := &cases[i]
		c.header, c.decls = sm90a, wgmmaDecls
		if c.block == 0 {
			c.block = 128
		}
		if strings.Contains(c.body, "// HERE") {
			c.where = "// HERE"
		}
		if c.name == "no proxy fence after cp.async" {
			c.args = []any{same(1024, 1)}
		}
	}
	runTraps(t, cases)
	// In any schedule the bug traps, and the corrected kernel does not.
	for _, c := range cases {
		b := kernelRun{opts: Options{Async: Late}, block: c.block, args: append([]any{c.block}, c.args...)}
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

// TestWGMMARegisterTraps plants bugs in the use of the registers of D and A.
func TestWGMMARegisterTraps(t *testing.T) {
	inFlight := wgPrologue + wgMMA + wgCommit
	runWGMMATraps(t, []trapCase{
		{name: "D read in flight", kind: TrapWarpgroup, body: inFlight + "mov.u32 %r0, %c5; // BUG\n" + wgWait},
		{name: "D written in flight", kind: TrapWarpgroup, body: inFlight + "mov.u32 %c31, 0; // BUG\n" + wgWait},
		{name: "A written in flight", kind: TrapWarpgroup, body: inFlight + "add.u32 %a0, %r1, 1; // BUG\n" + wgWait},
		{name: "A read in flight", kind: TrapWarpgroup, body: inFlight + "add.u32 %r5, %a3, 1; // BUG\n" + wgWait},
		{name: "A loaded in flight", kind: TrapWarpgroup, body: inFlight + "ld.shared.v2.u32 {%r5, %a1}, [%r3]; // BUG\n" + wgWait},
		{name: "D read in flight by one lane", kind: TrapWarpgroup, lane: 7,
			body: inFlight + "setp.eq.u32 %p2, %r1, 7;\n@%p2 mov.u32 %r0, %c5; // BUG\n" + wgWait},
		{name: "a wait for an earlier group", kind: TrapWarpgroup,
			body: inFlight + "wgmma.wait_group.sync.aligned 1; // BUG\n" + wgResult + wgWait, fixed: wgWait},
		{name: "a wait for no group", kind: TrapWarpgroup, body: wgPrologue + wgMMA + "// BUG\n" + wgWait + wgResult, fixed: wgCommit},
		{name: "no wait", kind: TrapWarpgroup, body: inFlight + "// BUG\n" + "st.global.u32 [%rd1], %r0;\n" + here("ret;") + "\n", fixed: wgWait},
		{name: "no fence", kind: TrapWarpgroup, body: wgSetup + wgStore + wgProxyFence + "// BUG\n" + here(wgMMA) + wgCommit + wgWait, fixed: wgFence},
		{name: "no fence after a write to A", kind: TrapWarpgroup,
			body: inFlight + wgWait + "add.u32 %a0, %a0, 1;\n// BUG\n" + here(wgMMA) + wgCommit + wgWait, fixed: wgFence},
		{name: "no fence after a read of D", kind: TrapWarpgroup,
			body: inFlight + wgWait + "mov.u32 %r0, %c1;\n// BUG\n" + here(wgMMA) + wgCommit + wgWait, fixed: wgFence},
		{name: "D of one instruction as A of another", kind: TrapWarpgroup, body: inFlight + "// BUG\n" +
			"wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%a0, %a1, %a2, %a3" + strings.TrimPrefix(regsD, "{%c0, %c1, %c2, %c3") +
			", {%c0, %c1, %c2, %c3}, %rd2, %p1; // HERE\n" + wgCommit + wgWait, fixed: wgWait + wgFence},
		{name: "D in flight in another shape", kind: TrapWarpgroup, body: wgPrologue + wgHalf + wgCommit + "// BUG\n" + wgFence + here(wgSmall) + wgCommit + wgWait, fixed: wgWait},
		{name: "no fence after D of another shape", kind: TrapWarpgroup,
			body: wgPrologue + wgHalf + wgCommit + wgWait + "// BUG\n" + here(wgSmall) + wgCommit + wgWait, fixed: wgFence},
		{name: "D of f16 read in flight", kind: TrapWarpgroup, body: wgPrologue + wgHalf + wgHalf + wgCommit + "mov.u32 %r0, %c5; // BUG\n" + wgWait},
		{name: "accumulation into undefined D", kind: TrapRegister, body: wgPrologue + "setp.eq.u32 %p1, 0, 0; // BUG\n" + here(wgMMA) + wgEpilogue},
	})
}

// TestWGMMAMemoryTraps plants bugs in the use of B.
func TestWGMMAMemoryTraps(t *testing.T) {
	multiply := here(wgMMA) + wgEpilogue
	runWGMMATraps(t, []trapCase{
		{name: "no proxy fence", kind: TrapRace,
			body: wgSetup + wgStore + "// BUG\n\tbar.sync 0;\n" + wgFence + multiply, fixed: "fence.proxy.async.shared::cta;"},
		{name: "proxy fence after the barrier", kind: TrapRace,
			body:  wgSetup + wgStore + "bar.sync 0; fence.proxy.async.shared::cta; // BUG\n" + wgFence + multiply,
			fixed: "fence.proxy.async.shared::cta; bar.sync 0;"},
		{name: "proxy fence before the write", kind: TrapRace,
			body:  wgSetup + "fence.proxy.async.shared::cta;\n" + wgStore + "// BUG\n\tbar.sync 0;\n" + wgFence + multiply,
			fixed: "fence.proxy.async;"},
		{name: "proxy fence of global memory", kind: TrapRace,
			body:  wgSetup + wgStore + "fence.proxy.async.global; // BUG\n\tbar.sync 0;\n" + wgFence + multiply,
			fixed: "fence.proxy.async;"},
		{name: "proxy fence by other threads", kind: TrapRace,
			body:  wgSetup + wgStore + "setp.ne.u32 %p2, %r1, 9;\n@%p2 fence.proxy.async.shared::cta; // BUG\n\tbar.sync 0;\n" + wgFence + multiply,
			fixed: "fence.proxy.async.shared::cta;"},
		{name: "no proxy fence after cp.async", kind: TrapRace,
			body: wgSetup + "ld.param.u64 %rd3, [in]; mad.wide.u32 %rd3, %r1, 16, %rd3;\ncp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.wait_all;\n" +
				"// BUG\n\tbar.sync 0;\n" + wgFence + multiply, fixed: "fence.proxy.async.shared::cta;"},
		{name: "no barrier", kind: TrapRace,
			body:  wgSetup + wgStore + wgProxyFence + here(wgStore) + "fence.proxy.async.shared::cta; // BUG\nbar.warp.sync -1;\n" + wgFence + wgMMA + wgEpilogue,
			fixed: "fence.proxy.async.shared::cta; bar.sync 0;"},
		{name: "written in flight", kind: TrapRace,
			body: wgPrologue + wgMMA + wgCommit + "@%p3 st.shared.u32 [%r3], %r1; // BUG\n" + wgWait},
		{name: "written by a warp that does not wait", kind: TrapRace, block: 160,
			body: wgSetup + wgStore + wgProxyFence + "@!%p3 bra SYNC;\n" + wgFence + here(wgMMA) + wgCommit + wgWait +
				"SYNC:\n// BUG\n@!%p3 st.shared.u32 [%r3], %r1;\n", fixed: "bar.sync 0;"},
		{name: "written after issue", kind: TrapRace, block: 160,
			body: wgSetup + wgStore + wgProxyFence + "@!%p3 bra SYNC;\n" + wgFence + wgMMA + wgCommit +
				"// BUG\nSYNC:\nbar.sync 0;\n@!%p3 st.shared.u32 [%r3], %r1; // HERE\n@%p3 wgmma.wait_group.sync.aligned 0;\n", fixed: wgWait},
		{name: "written between barriers", kind: TrapRace, block: 160, // ordered after the beginning and before the end
			body: wgSetup + wgStore + wgProxyFence + "@!%p3 bra SYNC;\n" + wgFence + wgMMA + wgCommit +
				"// BUG\nSYNC:\nbar.sync 0;\n@!%p3 st.shared.u32 [%r3], %r1; // HERE\nbar.sync 0;\n@%p3 wgmma.wait_group.sync.aligned 0;\n", fixed: wgWait},
		{name: "the last chunk of a swizzled B written in flight", kind: TrapRace, lane: 31,
			body: strings.Replace(wgPrologue, unswizzledBits, swizzledBits, 1) + wgMMA + wgCommit + "setp.eq.u32 %p2, %r1, 127;\n@%p2 st.shared.u32 [%r3], %r1; // BUG\n" + wgWait},
		{name: "the last chunk of a swizzled B never written", kind: TrapMemory,
			body: strings.Replace(wgSetup, unswizzledBits, swizzledBits, 1) + "setp.lt.u32 %p3, %r1, 127; // BUG\n" + wgStore + wgProxyFence + wgFence + multiply},
		{name: "a transposed B written in flight", kind: TrapRace, lane: 31,
			body: wgPrologue + strings.Replace(wgHalf, "1, 1, 0;", "1, 1, 1;", 1) + wgCommit + "setp.eq.u32 %p2, %r1, 127;\n@%p2 st.shared.u32 [%r3], %r1; // BUG\n" + wgWait},
		{name: "A written in flight", kind: TrapRace, lane: 0,
			body: wgPrologue + wgSmallShared + wgCommit + "setp.ge.u32 %p2, %r1, 96;\n@%p2 st.shared.u32 [%r3], %r1; // BUG\n" + wgWait},
		{name: "A never written", kind: TrapMemory,
			body: wgSetup + "setp.lt.u32 %p3, %r1, 120; // BUG\n" + wgStore + wgProxyFence + wgFence + here(wgSmallShared) + wgCommit + wgWait},
		{name: "no proxy fence for A", kind: TrapRace,
			body:  wgSetup + wgStore + "setp.lt.u32 %p2, %r1, 96;\n@%p2 fence.proxy.async.shared::cta; // BUG\n\tbar.sync 0;\n" + wgFence + here(wgSmallShared) + wgCommit + wgWait,
			fixed: "fence.proxy.async.shared::cta;"},
		{name: "never written", kind: TrapMemory,
			body: wgSetup + "setp.lt.u32 %p3, %r1, 120; // BUG\n" + wgStore + wgProxyFence + wgFence + multiply},
		{name: "past the end", kind: TrapBounds,
			body: wgPrologue + "or.b64 %rd2, %rd2, 0x2000000000; // BUG\n" + multiply},
	})
}

// TestWarpgroupTraps plants differences between the warps of a warpgroup.
func TestWarpgroupTraps(t *testing.T) {
	multiply := here(wgMMA) + wgEpilogue
	swizzled := strings.Replace(wgPrologue, unswizzledBits, swizzledBits, 1)
	runWGMMATraps(t, []trapCase{
		{name: "a leading offset in a swizzled descriptor", kind: TrapWarpgroup, body: swizzled + "or.b64 %rd2, %rd2, 0x20000; // BUG\n" + multiply},
		{name: "a swizzled matrix that begins between atoms", kind: TrapWarpgroup, body: swizzled + "add.u64 %rd2, %rd2, 8; // BUG\n" + multiply},
		{name: "a swizzled matrix that begins within 32 bytes", kind: TrapWarpgroup, body: swizzled + "add.u64 %rd2, %rd2, 1; // BUG\n" + multiply},
		{name: "a stride of a part of an atom", kind: TrapWarpgroup, body: swizzled + "sub.u64 %rd2, %rd2, 0x100000000; // BUG\n" + multiply},
		{name: "transposed columns that do not fill a line", kind: TrapWarpgroup,
			body:  swizzled + "// BUG\n" + strings.Replace(here(wgSmall), "1, 1, 0;", "1, 1, 1;", 1) + wgCommit + wgWait,
			fixed: "sub.u64 %rd2, %rd2, 0xC000000000000000;"},
		{name: "a base offset in the descriptor", kind: TrapWarpgroup, body: wgPrologue + "or.b64 %rd2, %rd2, 0x2000000000000; // BUG\n" + multiply},
		{name: "a descriptor per lane", kind: TrapWarpgroup, lane: 1,
			body: wgPrologue + "cvt.u64.u32 %rd3, %r1; add.u64 %rd2, %rd2, %rd3; // BUG\n" + multiply},
		{name: "a descriptor per warp", kind: TrapWarpgroup,
			body: wgPrologue + "setp.ge.u32 %p2, %r1, 96;\n@%p2 sub.u64 %rd2, %rd2, 0x800000000; // BUG\n" + multiply},
		{name: "scale-d that differs between lanes", kind: TrapWarpgroup, lane: 3, body: wgPrologue + wgMMA +
			"setp.lt.u32 %p1, %r1, 3; // BUG\n" + multiply},
		{name: "a warp that skips an instruction", kind: TrapWarpgroup,
			body: wgPrologue + "setp.ge.u32 %p2, %r1, 96;\n@%p2 bra SKIP; // BUG\n" + here(wgMMA) + "SKIP:\n" + wgCommit + wgWait},
		{name: "a warp that has ended", kind: TrapWarpgroup,
			body: wgPrologue + wgMMA + wgCommit + wgWait + "setp.ge.u32 %p2, %r1, 96;\n@%p2 bra SKIP; // BUG\n" + here(wgFence) + "SKIP:\n"},
		{name: "a warp that does not come", kind: TrapWarpgroup,
			body: wgPrologue + wgMMA + wgCommit + wgWait + "setp.lt.u32 %p2, %r1, 32;\n@%p2 bra SKIP; // BUG\n" + wgFence +
				"SKIP:\n" + "st.global.u32 [%rd1], %r0;\n" + here("ret;") + "\n"},
		{name: "lanes that do not come", kind: TrapDivergence,
			body: wgSetup + wgStore + wgProxyFence + "setp.eq.u32 %p2, %r1, 5;\n@%p2 bra SKIP; // BUG\n" + here(wgFence) + "SKIP:\n"},
		{name: "too few warps", kind: TrapWarpgroup, block: 96, body: wgSetup + "wgmma.fence.sync.aligned; // BUG\n"},
	})
}

// wgmma sees what a bulk copy writes without a proxy fence, but not what a thread writes over it.
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
		c := trapCase{header: sm90a, decls: wgmmaDecls + ".shared .align 8 .b8 bar[8];", args: []any{1}}
		b := kernelRun{opts: Options{Async: mode}, block: 128, args: []any{128, same(512, 0x01010101)}}
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
