package emu

import (
	"math"
	"strings"
	"testing"
)

// half returns the f16 of a small integer.
func half(v int) uint32 {
	if v == 0 {
		return 0
	}
	f := math.Float32bits(float32(v))
	return f>>16&0x8000 | (f>>13&0x3ff | (f>>23-112)&0x1f<<10)
}

// TestMatrixProduct multiplies A [16, 16] and B [16, 8] by way of shared memory and ldmatrix.
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
			out, err := kernelRun{opts: Options{Async: mode, Schedule: s}, ptx: k.faulty(), args: []any{128, in}}.run(t)
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
	// Each row of A is 1+2−1+1 = 3, or with unsigned bytes 1+2+255+1 = 259, four or eight times.
	runScalar(t, sm80, []scalarCase{
		{"s8", body, func(i uint32) uint32 { return 2 * (24 + i) }},
		{"u8", strings.Replace(body, "s32.s8", "s32.u8", 1), func(i uint32) uint32 { return 2 * (8*259 + i) }},
		{"s8, 16 columns", short, func(i uint32) uint32 { return 2 * (12 + i) }},
		{"u8, 16 columns", strings.Replace(short, "s32.s8", "s32.u8", 1), func(i uint32) uint32 { return 2 * (4*259 + i) }},
	})
}
