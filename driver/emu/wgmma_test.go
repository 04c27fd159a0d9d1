package emu

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// sm90a is the header for the matrix instruction of sm90a.
const sm90a = ".version 8.4\n.target sm_90a\n.address_size 64\n"

// accumulator and factors are the registers of D and A.
const (
	accumulator = "{%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7, %c8, %c9, %c10, %c11, %c12, %c13, %c14, %c15, " +
		"%c16, %c17, %c18, %c19, %c20, %c21, %c22, %c23, %c24, %c25, %c26, %c27, %c28, %c29, %c30, %c31}"
	factors = "{%a0, %a1, %a2, %a3}"
)

// wgmmaBody multiplies twice in the same accumulator, with B in two layouts, between which nothing
// waits: 16 bytes of A a thread, then B of all, then the place for D.
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
	wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 ` + accumulator + `, ` + factors + `, %rd4, %p2;
	wgmma.commit_group.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 ` + accumulator + `, ` + factors + `, %rd5, %p3;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 1;
	wgmma.wait_group.sync.aligned 0;
	mad.wide.u32 %rd6, %r1, 128, %rd1;
`

// The product of two matrices of bytes by two sm90a, element by element.
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
		out, err := bench{opts: c.opts, ptx: sm90a + c.text, block: 256, args: []any{in, 256 * 32}}.run(t)
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

// Instructions of sm90a are for one architecture and need what they are made of.
func TestWGMMARejected(t *testing.T) {
	good := "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 " + accumulator + ", " + factors + ", %rd1, %p1;"
	plain := strings.Replace(sm90a, "sm_90a", "sm_90", 1)
	for _, c := range []struct{ name, head, text, want string }{
		{"as it should be", sm90a, good, ""},
		{"another target", plain, "wgmma.fence.sync.aligned;", "needs .target sm_90a"},
		{"a product for another target", plain, good, "needs .target sm_90a"},
		{"two types too early", strings.Replace(sm90a, "8.4", "8.3", 1), strings.Replace(good, "s8.s8", "u8.s8", 1), "needs .version 8.4"},
		{"few sums", sm90a, strings.Replace(good, "%c0, ", "", 1), "want a vector of 32"},
		{"a sum twice", sm90a, strings.Replace(good, "%c0, ", "%c1, ", 1), "d has %c1 twice"},
		{"few factors", sm90a, strings.Replace(good, "%a0, ", "", 1), "want a vector of 4"},
		{"a narrow descriptor", sm90a, strings.Replace(good, "%rd1", "%r1", 1), "the descriptor"},
		{"no predicate", sm90a, strings.Replace(good, "%p1", "%r1", 1), "where a predicate is expected"},
		{"no number of groups", sm90a, "wgmma.wait_group.sync.aligned %r1;", "is not a number"},
	} {
		d, err := Open(Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Load([]byte(perThread(c.head, wgmmaDecls, "mov.u32 %r0, 0;\n"+c.text)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

const wgmmaDecls = "\t.reg .b32 %c<32>; .reg .b32 %a<4>; .shared .align 128 .b8 b[2048];"
