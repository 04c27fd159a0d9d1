package emu

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// half is a small integer as an f16.
func half(v int) uint32 {
	if v == 0 {
		return 0
	}
	f := math.Float32bits(float32(v))
	return f>>16&0x8000 | (f>>13&0x3ff | (f>>23-112)&0x1f<<10)
}

// The product of two matrices, with both factors through shared memory and
// ldmatrix: A [16,16] by rows, B [16,8] by rows and so transposed on the way.
func TestMatrixProduct(t *testing.T) {
	a := func(row, col int) int { return (row*3+col*5)%7 - 3 }
	b := func(row, col int) int { return (row*2+col)%5 - 2 }
	var in []uint32
	for i := 0; i < 256; i += 2 {
		in = append(in, half(a(i/16, i%16))|half(a(i/16, i%16+1))<<16)
	}
	for i := 0; i < 128; i += 2 {
		in = append(in, half(b(i/8, i%8))|half(b(i/8, i%8+1))<<16)
	}
	body := `
	ld.param.u64 %rd2, [in]; mul.wide.u32 %rd3, %r1, 16; add.u64 %rd2, %rd2, %rd3;
	mov.u32 %r2, buf; shl.b32 %r3, %r1, 4; add.u32 %r4, %r2, %r3;
	cp.async.cg.shared.global [%r4], [%rd2], 16;
	setp.lt.u32 %p1, %r1, 16;
	@%p1 cp.async.ca.shared.global [%r4+512], [%rd2+512], 16;
	cp.async.commit_group;
	cp.async.wait_group 0;
	bar.sync 0;
	and.b32 %r5, %r1, 15; shl.b32 %r5, %r5, 5; shr.u32 %r6, %r1, 4; shl.b32 %r6, %r6, 4;
	add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r2;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];
	and.b32 %r7, %r1, 15; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r2;
	ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r14, %r15}, [%r7+512];
	mov.f32 %f1, 0f00000000;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f1, %f1, %f1, %f1};
	ld.param.u64 %rd5, [out]; add.u64 %rd5, %rd5, %rd3;
	st.global.v4.f32 [%rd5], {%f2, %f3, %f4, %f5};
	bar.warp.sync -1;
	ld.global.u32 %r0, [%rd1];`
	k := trapCase{args: []any{1}, decls: ".shared .align 16 .b8 buf[768];", body: body}
	for _, mode := range []Async{Eager, Late} {
		for _, s := range []Schedule{InOrder, Adversarial(7)} {
			out, err := bench{opts: Options{Async: mode, Schedule: s}, ptx: k.faulty(), args: []any{128, in}}.run(t)
			if err != nil {
				t.Fatal(err)
			}
			for lane := range 32 {
				for i := range 4 {
					row, col := lane>>2+i>>1*8, 2*(lane&3)+i&1
					want := 0
					for k := range 16 {
						want += a(row, k) * b(k, col)
					}
					if got := math.Float32frombits(out[0][4*lane+i]); got != float32(want) {
						t.Fatalf("row %d column %d: got %v, want %d", row, col, got, want)
					}
				}
			}
		}
	}
}

func TestIntegerMatrixProduct(t *testing.T) {
	body := `
	mov.u32 %r2, 0x01ff0201; mov.u32 %r3, 0x01010101; mov.u32 %r4, %r1;
	mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r5, %r6, %r7, %r8}, {%r2, %r2, %r2, %r2}, {%r3, %r3}, {%r4, %r4, %r4, %r4};
	add.u32 %r0, %r5, %r8;`
	short := `
	mov.u32 %r2, 0x01ff0201; mov.u32 %r3, 0x01010101; mov.u32 %r4, %r1;
	mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%r5, %r6, %r7, %r8}, {%r2, %r2}, {%r3}, {%r4, %r4, %r4, %r4};
	add.u32 %r0, %r5, %r8;`
	// Each row of A is 1+2−1+1 = 3, or with unsigned bytes 1+2+255+1 = 259, eight or four times over.
	runScalar(t, header, []scalarCase{
		{"s8", body, func(i uint32) uint32 { return 2 * (24 + i) }},
		{"u8", strings.Replace(body, "s32.s8", "s32.u8", 1), func(i uint32) uint32 { return 2 * (8*259 + i) }},
		{"s8, 16 columns", short, func(i uint32) uint32 { return 2 * (12 + i) }},
		{"u8, 16 columns", strings.Replace(short, "s32.s8", "s32.u8", 1), func(i uint32) uint32 { return 2 * (4*259 + i) }},
	})
}

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
		out, err := bench{opts: Options{Async: mode}, ptx: k.faulty(), args: []any{32, []uint32{1, 10, 100, 1000}}}.run(t)
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

// bulkCopy brings 512 bytes to shared memory by one thread and an mbarrier; every
// thread of 64 then reads what another one would.
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
	k := trapCase{head: hopper, decls: decls, args: []any{1}, body: bulkBody}
	for _, mode := range []Async{Eager, Late} {
		for seed := range uint64(4) {
			out, err := bench{opts: Options{Async: mode, Schedule: Schedule{seed > 0, seed}}, ptx: k.faulty(), block: 64, args: []any{64, in}}.run(t)
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
			fixed: "mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;", head: hopper, decls: decls, block: 32, args: []any{in}},
		{name: "no wait and late data", kind: TrapMemory, lane: 0, where: "// READ", body: replace("// LOOP", "// BUG"), fixed: "@!%p2 bra WAIT;",
			opts: Options{Async: Late, IgnoreRaces: true}, head: hopper, decls: decls, block: 64, args: []any{in}},
		{name: "end before the data have come", kind: TrapAsync, lane: 0, where: "ret;", opts: Options{Async: Late},
			body:  replaceLine(replaceLine(replace("// LOOP", ""), "// POLL", "// BUG"), "ld.shared", "mov.u32 %r0, 0;"),
			fixed: "mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;", head: hopper, decls: decls, block: 64, args: []any{in}},
		{name: "use before initialization", kind: TrapBarrier, lane: 0, where: "// POLL", body: replace("@%p1 mbarrier.init", "// BUG"),
			fixed: "@%p1 mbarrier.init.shared.b64 [%r2], 1; bar.sync 0;", head: hopper, decls: decls, block: 64, args: []any{in},
			opts: Options{Schedule: InOrder}},
		{name: "initialization races with use", kind: TrapRace, lane: 1, where: "// POLL", body: replace("// INIT", "// BUG"), fixed: "bar.sync 0;",
			head: hopper, decls: decls, block: 32, args: []any{in}},
	})
}

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
	k := trapCase{head: hopper, decls: ".shared .align 8 .b8 bar[8];", body: body}
	out, err := bench{ptx: k.faulty(), args: []any{32}}.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprint(same(32, 3)); fmt.Sprint(out[0]) != want {
		t.Errorf("got %v, want %v", out[0], want)
	}
}
