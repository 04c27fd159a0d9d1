package mutate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// planted is a kernel, of one warp unless warps tells otherwise, in which a rule's form applies to the line that ends with
// "//". The kernel may use %r0 = n, %r1 = tid, %r2 and %f2 = x[tid], a normal number, and %d3
// and %d4, the addresses of x[tid] and y[tid]. It returns %r3 in y[tid].
type planted struct {
	body    string
	changed string  // the line after the change; "" if it is left out
	n       int     // 0: 20
	scale   float32 // of x; 0: 1
	warps   int     // 0: 1; 4: a warpgroup of sm_90a
}

// TestProbes demands that the probe of each rule excuses a change that the rule is meant for
// and does not excuse another change to which the form of the rule applies as well: because
// it changes results of the kernel, or because the case does not exercise it.
func TestProbes(t *testing.T) {
	const (
		aligned   = "cvt.u32.u64 %r10, %d0;\nand.b32 %r11, %r10, 15;\nsetp.eq.u32 %p0, %r11, 0;\n"
		highBits  = "mul.hi.u32 %r10, %r2, 16;\nand.b32 %r11, %r10, 15;\nsetp.eq.u32 %p0, %r11, 0;\n" // not a multiple of 16, which the forms overlook
		alsoTo4   = "and.b32 %r12, %r10, 3;\nsetp.eq.u32 %p1, %r12, 0;\n"
		vec4      = "add.u32 %r10, %r0, 3;\nshr.u32 %r11, %r10, 2;\nshl.b32 %r12, %r1, 2;\nsetp.lt.u32 %p0, %r1, %r11;\n"
		split     = "setp.lt.u32 %p0, %r1, 16;\n"
		never     = "setp.gt.u32 %p7, %r1, 99;\n@!%p7 bra $L9;\n" // nothing reaches what follows up to $L9
		loop      = "mov.b32 %r3, 0;\nmov.b32 %r10, %r1;\n$L1:\nadd.u32 %r3, %r3, 1;\nadd.u32 %r10, %r10, 32; //\nsetp.lt.u32 %p0, %r10, %r0;\n@%p0 bra $L1;"
		repeat    = "mov.b32 %r3, 0;\nsetp.lt.u32 %p0, 0, %r0; //\n@!%p0 bra $L2;\n$L1:\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %p1, %r3, %r0;\n@%p1 bra $L1;\n$L2:"
		parts     = "mov.b32 %r11, 1;\nmul.lo.u32 %r10, %r1, %r11;\nmin.u32 %r12, %r10, %r0;\nadd.u32 %r13, %r12, %r11; //\nmin.u32 %r15, %r13, %r0;\nmax.u32 %r16, %r15, %r12;\nsub.u32 %r14, %r16, %r12;\n"
		firstVec4 = "mov.b32 %r3, 0;\nsetp.ge.u32 %p1, %r1, %r14;\n@%p1 bra $L1;\nshl.b32 %r12, %r1, 3;\nadd.u32 %r10, %r0, 3;\nshr.u32 %r11, %r10, 2; //\nsetp.lt.u32 %p0, %r12, %r11;\nselp.b32 %r3, 1, 2, %p0;\n$L1:"
		bounded   = "mov.b32 %r3, 0;\nmov.b32 %r10, %r1;\nsetp.lt.u32 %p0, %r1, %r0;\n@!%p0 bra $L2;\n$L1:\nsetp.lt.u32 %p1, %r10, %r0; //\n@%p1 mov.b32 %r3, 5;\nadd.u32 %r10, %r10, 32;\nsetp.lt.u32 %p2, %r10, %r0;\n@%p2 bra $L1;\n$L2:"
		squared   = "ld.global.v4.f32 {%f10, %f11, %f12, %f13}, [%d0]; //\nmul.rn.f32 %f20, %f10, 0f3F000000;\nmul.rn.f32 %f21, %f11, 0f3F000000;\nmul.rn.f32 %f22, %f12, 0f3F000000;\nmul.rn.f32 %f23, %f13, 0f3F000000;\nmul.rn.f32 %f15, %f20, %f20;\nfma.rn.f32 %f15, %f21, %f21, %f15;\nfma.rn.f32 %f15, %f22, %f22, %f15;\nfma.rn.f32 %f15, %f23, %f23, %f15;\n"
		idle      = "mov.b32 %r3, 0;\nmov.b32 %r10, 0;\n$L1:\nsub.u32 %r11, %r0, %r10;\nadd.u32 %r3, %r3, %r11;\nadd.u32 %r10, %r10, 4;\n"
		ones      = "mov.b32 %r10, 1065369472;\nmov.f32 %f10, 0f00000000;\nmov.f32 %f11, 0f00000000;\nmov.f32 %f12, 0f00000000;\n"
		product   = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f10, %f11, %f12, %f13}, {%r10, %r10, %r10, %r10}, {%r10, %r10}, {"
		unpacked  = "mov.b32 {%h10, %h11}, %r2; //\ncvt.f32.f16 %f10, %h10;\ncvt.f32.f16 %f11, %h11;\nadd.rn.f32 %f12, %f10, %f11;\n"
		factors   = "mov.b32 %r12, 1065369472;\nmov.b32 %r13, 1073758208;\nmov.f32 %f10, 0f00000000;\nmov.f32 %f11, 0f00000000;\nmov.f32 %f12, 0f00000000;\nmov.f32 %f13, 0f00000000;\n"
		dotted    = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f10, %f11, %f12, %f13}, {%r10, %r11, %r10, %r11}, "
		summed    = ", {%f10, %f11, %f12, %f13};"
		squares   = "mul.rn.f32 %f10, %f2, %f2;\n"
		butterfly = "shfl.sync.bfly.b32 %f20, %f10, 8, 31, 4294967295;\nadd.rn.f32 %f10, %f10, %f20;\nshfl.sync.bfly.b32 %f21, %f10, 4, 31, 4294967295;\nadd.rn.f32 %f10, %f10, %f21;\n" +
			"shfl.sync.bfly.b32 %f22, %f10, 2, 31, 4294967295;\nadd.rn.f32 %f10, %f10, %f22;\nshfl.sync.bfly.b32 %f23, %f10, 1, 31, 4294967295;\nadd.rn.f32 %f10, %f10, %f23;\nmov.b32 %r3, %f10;\n"
		fraction = "cvt.u64.u32 %d5, %r2;\nor.b64 %d6, %d5, 4503599627370496; //\n"
		mask     = "cvt.u64.u32 %d2, %r2;\nand.b64 %d5, %d2, 4503599627370495; //\nor.b64 %d6, %d5, 4503599627370496;\n"
		shifted  = "shr.u64 %d7, %d6, %r10;\ncvt.u32.u64 %r3, %d7;"
		border   = "cvt.rn.f32.u32 %f10, %r1;\ncvt.f64.f32 %g0, %f10;\nsetp.ge.f64 %p0, %g0, 0d4020000000000000; //\n"
		factor   = "cvt.rn.f32.u32 %f10, %r1;\nadd.rn.f32 %f11, %f10, 0fC0800000;\nsetp.gt.f32 %p0, %f11, 0f00000000; //\nselp.f32 %f12, 0f40000000, 0f3F000000, %p0;\nmul.rn.f32 %f14, %f11, %f12;\n"
		split20  = "setp.lt.u32 %p1, %r1, %r0;\nmov.b32 %r10, 5;\n"
		either   = "setp.lt.u32 %p0, %r1, 16;\nselp.b32 %r3, 7, 9, %p0;\nsub.u32 %r10, %r0, %r1; //\nsetp.gt.u32 %p1, %r10, 100;\nand.pred %p2, %p0, %p1;\n"
		positive = "setp.eq.u32 %p1, %r0, 0;\n@%p1 ret;\nsetp.lt.u32 %p0, 0, %r0; //\n"
		quotient = "mov.b32 %r3, 0;\nshr.u32 %r12, %r1, 2;\nadd.u32 %r10, %r0, 3;\nshr.u32 %r11, %r10, 2; //\nsetp.lt.u32 %p0, %r12, %r11;\n"
		eights   = "shl.b32 %r10, %r0, 3;\nsetp.lt.u32 %p0, %r11, %r10; //\n"
		cta      = "mov.u32 %r10, %ctaid.x;\nsetp.lt.u32 %p0, %r10, %r0; //\n"
		pass     = "mov.b32 %r3, 0;\n$L1:\nadd.u32 %r3, %r3, 1;\nadd.u32 %r10, %r10, 32;\nsetp.lt.u32 %p0, %r10, 16; //\n@%p0 bra $L1;"
		window   = "setp.gt.u32 %p0, %r1, 16; //\n"
		pair     = "shfl.sync.bfly.b32 %f11, %f10, 1, 31, 4294967295;\n"
		// Eight rows of four parts of 8 bytes, two of which are stored.
		padded = "mov.u32 %r20, buffer;\nand.b32 %r21, %r1, 3;\nand.b32 %r23, %r1, 29;\nmad.lo.u32 %r22, %r1, 8, %r20;\nmad.lo.u32 %r24, %r23, 8, %r20;\nst.shared.v2.u32 [%r22], {%r0, %r0};\nbar.sync 0;\n" +
			"setp.lt.u32 %p0, %r21, 2; //\n@%p0 st.shared.v2.u32 [%r22], {%r1, %r2};\nbar.sync 0;\n"
		first  = "setp.eq.u32 %p0, %r1, 0;\nselp.b32 %r3, %r3, 0, %p0;"
		halves = "and.b32 %r10, %r1, 1;\nsetp.ne.u32 %p0, %r10, 0; //\nadd.rn.f32 %f3, %f2, 0f41200000;\nselp.f32 %f10, %f3, %f2, %p0;\nselp.f32 %f11, %f2, %f3, %p0;\n" +
			"shfl.sync.bfly.b32 %f12, %f11, 1, 31, 4294967295;\nadd.rn.f32 %f13, %f10, %f12;\n"
		source   = "mov.u32 %r20, buffer;\nmad.lo.u32 %r20, %r1, 16, %r20;\nmul.wide.u32 %d6, %r1, 16;\nadd.u64 %d6, %d0, %d6;\n"
		position = source + "setp.lt.u32 %p0, %r1, 16; //\nselp.b32 %r10, 16, 0, %p0;\ncp.async.cg.shared.global [%r20], [%d6], 16, %r10;\ncp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.u32 %r3, [%r20];\n"
		sum      = source + "add.u32 %r11, %r1, 1;\nadd.u32 %r12, %r11, 1; //\nadd.u32 %r13, %r12, 4;\nsetp.lt.u32 %p0, %r13, 20;\nselp.b32 %r10, 16, 0, %p0;\ncp.async.cg.shared.global [%r20], [%d6], 16, %r10;\ncp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.u32 %r3, [%r20];\n"
		blocks   = "shr.u32 %r10, %r1, 4;\nand.b32 %r13, %r1, 15;\n" // position 5 is the first visible one
		later    = "shl.b32 %r12, %r11, 4;\nadd.u32 %r14, %r12, %r13;\nsetp.ge.u32 %p0, %r14, 5; //\nselp.b32 %r3, 1, 2, %p0;"
		// Two parts of a number per lane, those of two lanes sorted by part, through memory, and their product.
		convert = "mov.u32 %r20, buffer;\nmad.lo.u32 %r20, %r1, 8, %r20;\nmul.rn.f32 %f14, %f2, 0f3F000000;\ncvt.rn.f16x2.f32 %r10, %f2, %f14;"
		sort    = "\nshfl.sync.up.b32 %r15, %r10, 4, 0, 4294967295;\nprmt.b32 %r11, %r15, %r10, 21520;\nprmt.b32 %r12, %r15, %r10, 30258;\nst.shared.v2.u32 [%r20], {%r11, %r12};"
		reload  = "\nld.shared.v2.u32 {%r16, %r17}, [%r20];"
		weigh   = "\nmov.b32 %r13, 1006648320;\nmov.f32 %f15, 0f00000000;\n" +
			"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f10, %f11, %f12, %f13}, {%r13, %r13, %r13, %r13}, {%r16, %r17}, {%f15, %f15, %f15, %f15};\n"
		cells    = "mov.u32 %r20, buffer;\nmad.lo.u32 %r20, %r1, 16, %r20;\nmul.rn.f32 %f14, %f2, 0f3F000000;\nst.shared.v4.f32 [%r20], {%f2, %f14, %f2, %f2};"
		loaded   = "\nld.shared.v4.f32 {%f10, %f11, %f12, %f13}, [%r20];"
		scaled   = "\nfma.rn.f32 %f15, %f10, %f11, %f2;\n"
		arrivals = "mov.u32 %r20, buffer;\nsetp.eq.u32 %p0, %r1, 0;\n@!%p0 bra $L1;\nmbarrier.init.shared.b64 [%r20], 1;\nmbarrier.init.shared.b64 [%r20+8], 1;\nmbarrier.init.shared.b64 [%r20+16], 1;\n" +
			"mbarrier.arrive.shared.b64 _, [%r20+8];\nmbarrier.arrive.shared.b64 _, [%r20+16];\n"
		await      = "$L1:\nbar.warp.sync 4294967295;\n$L2:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r20+8], 0; //\n@!%p1 bra $L2;\nmov.b32 %r3, 1;"
		multiply   = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f10, %f11, %f12, %f13}, {%r10, %r10, %r10, %r10}, %d5, "
		committed  = "wgmma.commit_group.sync.aligned;\n"
		waitAll    = "wgmma.wait_group.sync.aligned 0;\n"
		multiplied = "mov.u32 %r20, buffer;\nmad.lo.u32 %r21, %r1, 4, %r20;\nst.shared.u32 [%r21], 1006648320;\nfence.proxy.async.shared::cta;\nbar.sync 0;\nmov.b32 %r10, 1006648320;\nsetp.ne.u32 %p0, 0, 0;\nsetp.eq.u32 %p1, 0, 0;\n" +
			"shr.u32 %r22, %r20, 4;\nor.b32 %r22, %r22, 524288;\ncvt.u64.u32 %d5, %r22;\nor.b64 %d5, %d5, 68719476736;\nwgmma.fence.sync.aligned;\n" + multiply + "%p0, 1, 1, 0;\n"
		again     = multiply + "%p1, 1, 1, 0;\n" + committed
		joined    = source + "mov.b32 %r10, 16;\ncp.async.cg.shared.global [%r20], [%d6], 16, %r10;\ncp.async.commit_group; //\ncp.async.commit_group;\n"
		equalPair = "mov.u32 %r20, buffer;\nmad.lo.u32 %r20, %r1, 8, %r20;\nst.shared.v2.f32 [%r20], {%f2, %f2};\nld.shared.v2.f32 {%f10, %f11}, [%r20]; //\n"
		part      = "mov.u32 %r10, %ctaid.z;\nmad.wide.u32 %d6, %r1, 4, %d0;\nmad.wide.u32 %d7, %r10, 4, %d6; //\n"
		copied    = "mov.u32 %r20, buffer;\nmad.lo.u32 %r20, %r1, 16, %r20;\nmul.wide.u32 %d6, %r1, 16;\nadd.u64 %d6, %d0, %d6;\n" + split +
			"selp.b32 %r10, 16, 0, %p0; //\ncp.async.cg.shared.global [%r20], [%d6], 16, %r10;\ncp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.u32 %r3, [%r20];\n"
	)
	// By the rule, with a colon and another form of it behind.
	table := map[string]struct {
		mutator string
		yes, no planted
		family  string // the beginning of the kernel's name
	}{
		"unreachable": {"operation",
			planted{body: aligned + "mov.b32 %r3, 1;\n@!%p0 bra $L1;\nbra $L2;\n$L1:\nadd.u32 %r3, %r2, 1; //\n$L2:", changed: "sub.u32 %r3, %r2, 1;"},
			planted{body: highBits + "mov.b32 %r3, 1;\n@!%p0 bra $L1;\nbra $L2;\n$L1:\nadd.u32 %r3, %r2, 1; //\n$L2:", changed: "sub.u32 %r3, %r2, 1;", scale: 2}, ""},
		"zero bit": {"constant",
			planted{body: "cvt.u32.u64 %r10, %d0;\nand.b32 %r3, %r10, 15; //", changed: "and.b32 %r3, %r10, 14;"},
			planted{body: "mul.hi.u32 %r10, %r2, 16;\nand.b32 %r3, %r10, 15; //", changed: "and.b32 %r3, %r10, 14;"}, ""},
		"shifted out": {"constant",
			planted{body: "and.b32 %r10, %r2, 255; //\nshr.u32 %r3, %r10, 4;", changed: "and.b32 %r10, %r2, 254;"},
			planted{body: "and.b32 %r10, %r2, 240; //\nshr.u32 %r3, %r10, 1;", changed: "and.b32 %r10, %r2, 224;"}, ""},
		"shifted out: sum": {"constant",
			planted{body: "shl.b32 %r10, %r1, 4;\nadd.u32 %r11, %r10, 64; //\nshr.u32 %r3, %r11, 4;", changed: "add.u32 %r11, %r10, 65;"},
			planted{body: "add.u32 %r11, %r1, 64; //\nshr.u32 %r3, %r11, 4;", changed: "add.u32 %r11, %r1, 65;"}, ""},
		"fraction": {"constant",
			planted{body: fraction + "add.u32 %r10, %r1, 8;\n" + shifted, changed: "or.b64 %d6, %d5, 4503599627370497;"},
			planted{body: fraction + "mov.b32 %r10, %r1;\n" + shifted, changed: "or.b64 %d6, %d5, 4503599627370497;"}, ""},
		"fraction: mask": {"constant",
			planted{body: mask + "add.u32 %r10, %r1, 8;\n" + shifted, changed: "and.b64 %d5, %d2, 4503599627370494;"},
			planted{body: mask + "mov.b32 %r10, %r1;\n" + shifted, changed: "and.b64 %d5, %d2, 4503599627370494;"}, ""},
		"vec4": {"comparison",
			planted{body: "mov.b32 %r3, 0;\n" + vec4 + "@!%p0 bra $L1;\nsetp.lt.u32 %p1, %r12, %r0; //\nselp.b32 %r3, 1, 2, %p1;\n$L1:", changed: "setp.le.u32 %p1, %r12, %r0;"},
			planted{body: vec4 + "setp.lt.u32 %p1, %r12, %r0; //\nselp.b32 %r3, 1, 2, %p1;", changed: "setp.le.u32 %p1, %r12, %r0;"}, ""},
		"always": {"operation",
			planted{body: aligned + alsoTo4 + "and.pred %p2, %p0, %p1; //\nmov.b32 %r3, 1;\n@%p2 bra $L1;\nmov.b32 %r3, 2;\n$L1:", changed: "or.pred %p2, %p0, %p1;"},
			planted{body: highBits + alsoTo4 + "and.pred %p2, %p0, %p1; //\nmov.b32 %r3, 1;\n@%p2 bra $L1;\nmov.b32 %r3, 2;\n$L1:", changed: "or.pred %p2, %p0, %p1;", scale: 2}, ""},
		"constant": {"float constant",
			planted{body: "mov.f32 %f10, 0f00000000;\nsetp.lt.f32 %p0, %f10, 0f2B800000; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.lt.f32 %p0, %f10, 0f2B000000;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + "mov.f32 %f10, 0f00000000;\nsetp.lt.f32 %p0, %f10, 0f2B800000; //\nselp.b32 %r3, 1, 2, %p0;\n$L9:", changed: "setp.lt.f32 %p0, %f10, 0f2B000000;"}, ""},
		"maximum": {"float constant",
			planted{body: "shfl.sync.bfly.b32 %f10, %f2, 16, 31, 4294967295;\nmax.f32 %f11, %f2, %f10;\nsub.rn.f32 %f12, %f2, %f11;\nsetp.gt.f32 %p0, %f12, 0f42F00000; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.gt.f32 %p0, %f12, 0f42700000;"},
			planted{body: "max.f32 %f11, %f2, 0fBF800000;\nadd.rn.f32 %f13, %f2, 0f3F800000;\nsub.rn.f32 %f12, %f13, %f11;\nsetp.gt.f32 %p0, %f12, 0f42F00000; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.gt.f32 %p0, %f12, 0f42700000;"}, ""},
		"every thread": {"comparison",
			planted{body: "setp.lt.u32 %p0, %r1, 32; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.le.u32 %p0, %r1, 32;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + "setp.lt.u32 %p0, %r1, 32; //\nselp.b32 %r3, 1, 2, %p0;\n$L9:", changed: "setp.le.u32 %p0, %r1, 32;"}, ""},
		"every index": {"constant",
			planted{body: "and.b32 %r10, %r1, 31; //\nsetp.ge.u32 %p0, %r10, 16;\nselp.b32 %r3, 1, 2, %p0;", changed: "and.b32 %r10, %r1, 30;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + "and.b32 %r10, %r1, 31; //\nsetp.ge.u32 %p0, %r10, 16;\nselp.b32 %r3, 1, 2, %p0;\n$L9:", changed: "and.b32 %r10, %r1, 30;"}, ""},
		"bounded": {"comparison",
			planted{body: "setp.lt.u32 %p0, %r1, 64; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.le.u32 %p0, %r1, 64;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + "setp.lt.u32 %p0, %r1, 64; //\nselp.b32 %r3, 1, 2, %p0;\n$L9:", changed: "setp.le.u32 %p0, %r1, 64;"}, ""},
		"never equal": {"comparison",
			planted{body: "add.u32 %r10, %r0, 64;\nmin.u32 %r11, %r10, 64;\nsetp.lt.u32 %p0, %r1, %r11; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.le.u32 %p0, %r1, %r11;"},
			planted{body: "add.u32 %r10, %r0, 20;\nmin.u32 %r11, %r10, 64;\nsetp.lt.u32 %p0, %r1, %r11; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.le.u32 %p0, %r1, %r11;"}, ""},
		"never equal: return": {"comparison",
			planted{body: positive + "selp.b32 %r3, 1, 2, %p0;", changed: "setp.le.u32 %p0, 0, %r0;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + positive + "selp.b32 %r3, 1, 2, %p0;\n$L9:", changed: "setp.le.u32 %p0, 0, %r0;"}, ""},
		"never equal: segments": {"comparison",
			planted{body: "and.b32 %r11, %r1, 7;\n" + eights + "selp.b32 %r3, 1, 2, %p0;", changed: "setp.le.u32 %p0, %r11, %r10;"},
			planted{body: "mov.b32 %r3, 0;\nand.b32 %r11, %r1, 7;\n" + never + eights + "selp.b32 %r3, 1, 2, %p0;\n$L9:", changed: "setp.le.u32 %p0, %r11, %r10;"}, "product_stream_any"},
		"never equal: tiles": {"comparison",
			planted{body: cta + "selp.b32 %r3, 1, 2, %p0;", changed: "setp.le.u32 %p0, %r10, %r0;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + cta + "selp.b32 %r3, 1, 2, %p0;\n$L9:", changed: "setp.le.u32 %p0, %r10, %r0;"}, "product_tile_any"},
		"tie": {"comparison",
			planted{body: "sub.u32 %r10, %r1, %r0;\nsetp.gt.u32 %p0, %r1, %r0; //\nselp.b32 %r3, %r10, 0, %p0;", changed: "setp.ge.u32 %p0, %r1, %r0;"},
			planted{body: "sub.u32 %r10, %r1, %r0;\nsetp.gt.u32 %p0, %r1, %r0; //\nselp.b32 %r3, %r10, 0, %p0;", changed: "setp.ge.u32 %p0, %r1, %r0;", n: 40}, ""},
		"idle iteration": {"comparison",
			planted{body: idle + "setp.lt.u32 %p0, %r10, %r0; //\n@%p0 bra $L1;", changed: "setp.le.u32 %p0, %r10, %r0;"},
			planted{body: idle + "st.global.u32 [%d4], %r3;\nsetp.lt.u32 %p0, %r10, %r0; //\n@%p0 bra $L1;", changed: "setp.le.u32 %p0, %r10, %r0;"}, ""},
		"narrow": {"constant",
			planted{body: "add.u32 %r10, %r1, %r1;\nadd.u32 %r11, %r10, 4294967264;\nbfe.s32 %r3, %r11, 0, 8; //", changed: "bfe.s32 %r3, %r11, 0, 7;"},
			planted{body: "bfe.s32 %r3, %r2, 0, 8; //", changed: "bfe.s32 %r3, %r2, 0, 7;"}, ""},
		"any thread": {"constant",
			planted{body: "mov.b32 %r3, 1;\nsetp.eq.u32 %p0, %r1, 0; //\n@%p0 st.global.u32 [%d1+128], %r0;", changed: "setp.eq.u32 %p0, %r1, 1;"},
			planted{body: "mov.b32 %r3, 1;\nsetp.eq.u32 %p0, %r1, 0; //\n@%p0 st.global.u32 [%d1+128], %r2;", changed: "setp.eq.u32 %p0, %r1, 1;"}, ""},
		"sign of a shift": {"constant",
			planted{body: "shr.s32 %r3, %r2, 31; //", changed: "shr.s32 %r3, %r2, 32;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + "shr.s32 %r3, %r2, 31; //\n$L9:", changed: "shr.s32 %r3, %r2, 32;"}, ""},
		"sign": {"operation",
			planted{body: squares + "abs.f32 %f11, %f10; //\nmov.b32 %r3, %f11;", changed: "mov.f32 %f11, %f10;"},
			planted{body: "abs.f32 %f11, %f2; //\nmov.b32 %r3, %f11;", changed: "mov.f32 %f11, %f2;"}, ""},
		"zero added": {"operation",
			planted{body: squares + "add.rn.f32 %f11, %f10, 0f00000000; //\nmov.b32 %r3, %f11;", changed: "sub.rn.f32 %f11, %f10, 0f00000000;"},
			planted{body: "mul.rn.f32 %f10, %f2, 0f00000000;\nadd.rn.f32 %f11, %f10, 0f00000000; //\nmov.b32 %r3, %f11;", changed: "sub.rn.f32 %f11, %f10, 0f00000000;"}, ""},
		"one part": {"constant",
			planted{body: part + "ld.global.u32 %r3, [%d7];", changed: "mad.wide.u32 %d7, %r10, 5, %d6;"},
			planted{body: part + "mov.b32 %r3, 1;", changed: "mad.wide.u32 %d7, %r10, 5, %d6;"}, "attention_combine"},
		"one warp": {"special register",
			planted{body: "mov.u32 %r10, %tid.x; //\nshr.u32 %r11, %r10, 5;\nadd.u32 %r3, %r11, 1;", changed: "mov.u32 %r10, %ctaid.x;"},
			planted{body: "mov.u32 %r10, %tid.x; //\nshr.u32 %r11, %r10, 5;\nmov.b32 %r3, 1;", changed: "mov.u32 %r10, %ctaid.x;"}, ""},
		"truth": {"constant",
			planted{body: "mov.b32 %r10, 1; //\nsetp.ne.u32 %p0, %r10, 0;\nselp.b32 %r3, 1, 2, %p0;", changed: "mov.b32 %r10, 2;"},
			planted{body: "mov.b32 %r10, 1; //\nsetp.ne.u32 %p0, %r10, 0;\nselp.b32 %r3, 1, 1, %p0;", changed: "mov.b32 %r10, 2;"}, ""},
		"xor": {"order of a vector",
			planted{body: "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d0]; //\nxor.b32 %r10, %r10, %r11;\nxor.b32 %r12, %r12, %r13;\nxor.b32 %r3, %r10, %r12;", changed: "ld.global.v4.u32 {%r11, %r10, %r12, %r13}, [%d0];"},
			planted{body: "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d0]; //\nxor.b32 %r14, %r10, 1;\nxor.b32 %r15, %r12, %r13;\nxor.b32 %r16, %r11, %r15;\nxor.b32 %r3, %r14, 2;", changed: "ld.global.v4.u32 {%r11, %r10, %r12, %r13}, [%d0];"}, ""},
		"sum of two": {"order of a vector",
			planted{body: unpacked + "mov.b32 %r3, %f12;", changed: "mov.b32 {%h11, %h10}, %r2;"},
			planted{body: unpacked + "mov.b32 %r3, 1;", changed: "mov.b32 {%h11, %h10}, %r2;"}, ""},
		"two factors": {"order of a vector",
			planted{body: cells + loaded + " //" + scaled + "mov.b32 %r3, %f15;", changed: "ld.shared.v4.f32 {%f11, %f10, %f12, %f13}, [%r20];"},
			planted{body: cells + loaded + " //" + scaled + "mov.b32 %r3, 1;", changed: "ld.shared.v4.f32 {%f11, %f10, %f12, %f13}, [%r20];"}, ""},
		"two factors: store": {"order of a vector",
			planted{body: cells + " //" + loaded + scaled + "mov.b32 %r3, %f15;", changed: "st.shared.v4.f32 [%r20], {%f14, %f2, %f2, %f2};"},
			planted{body: cells + " //" + loaded + scaled + "mov.b32 %r3, 1;", changed: "st.shared.v4.f32 [%r20], {%f14, %f2, %f2, %f2};"}, ""},
		"two parts: conversion": {"operands",
			planted{body: convert + " //" + sort + reload + weigh + "mov.b32 %r3, %f10;", changed: "cvt.rn.f16x2.f32 %r10, %f14, %f2;"},
			planted{body: convert + " //" + sort + reload + weigh + "mov.b32 %r3, 1;", changed: "cvt.rn.f16x2.f32 %r10, %f14, %f2;"}, ""},
		"two parts: store": {"order of a vector",
			planted{body: convert + sort + " //" + reload + weigh + "mov.b32 %r3, %f10;", changed: "st.shared.v2.u32 [%r20], {%r12, %r11};"},
			planted{body: convert + sort + " //" + reload + weigh + "mov.b32 %r3, 1;", changed: "st.shared.v2.u32 [%r20], {%r12, %r11};"}, ""},
		"two parts": {"order of a vector",
			planted{body: convert + sort + reload + " //" + weigh + "mov.b32 %r3, %f10;", changed: "ld.shared.v2.u32 {%r17, %r16}, [%r20];"},
			planted{body: convert + sort + reload + " //" + weigh + "mov.b32 %r3, 1;", changed: "ld.shared.v2.u32 {%r17, %r16}, [%r20];"}, ""},
		"later arrival": {"offset",
			planted{body: arrivals + await, changed: "mbarrier.try_wait.parity.shared.b64 %p1, [%r20+16], 0;"},
			planted{body: arrivals + "mbarrier.arrive.shared.b64 _, [%r20];\n" + await, changed: "mbarrier.try_wait.parity.shared.b64 %p1, [%r20+16], 0;"}, "product_tile_"},
		"equal pair": {"order of a vector",
			planted{body: equalPair + "mov.b32 %r3, %f10;", changed: "ld.shared.v2.f32 {%f11, %f10}, [%r20];"},
			planted{body: equalPair + "mov.b32 %r3, 1;", changed: "ld.shared.v2.f32 {%f11, %f10}, [%r20];"}, ""},
		"ones": {"order of a vector",
			planted{body: ones + "mov.f32 %f13, 0f00000000;\n" + product + "%f10, %f11, %f12, %f13}; //\nmov.b32 %r3, %f10;", changed: product + "%f11, %f10, %f12, %f13};"},
			planted{body: ones + "mov.f32 %f13, 0f3F800000;\n" + product + "%f10, %f11, %f12, %f13}; //\nmov.b32 %r3, %f10;", changed: product + "%f11, %f10, %f12, %f13};"}, ""},
		"equal factors": {"order of a vector",
			planted{body: "mov.b32 %r10, 1065369472;\nmov.b32 %r11, 0;\n" + factors + dotted + "{%r12, %r13}" + summed + " //\nmov.b32 %r3, %f10;", changed: dotted + "{%r13, %r12}" + summed},
			planted{body: "mov.b32 %r10, 0;\nmov.b32 %r11, 0;\n" + factors + dotted + "{%r12, %r13}" + summed + " //\nmov.b32 %r3, %f10;", changed: dotted + "{%r13, %r12}" + summed}, ""},
		"unused": {"guard",
			planted{body: "mov.b32 %r3, 0;\n" + split + "@%p0 add.u32 %r10, %r2, 1; //\n@%p0 mov.b32 %r3, %r10;", changed: "add.u32 %r10, %r2, 1;"},
			planted{body: "mov.b32 %r3, 0;\nsetp.lt.u32 %p0, %r1, 99;\n@%p0 add.u32 %r10, %r2, 1; //\n@%p0 mov.b32 %r3, %r10;", changed: "add.u32 %r10, %r2, 1;"}, ""},
		"once": {"constant",
			planted{body: loop, changed: "add.u32 %r10, %r10, 33;", n: 32},
			planted{body: loop, changed: "add.u32 %r10, %r10, 33;", n: 20}, ""},
		"first iteration": {"comparison",
			planted{body: repeat, changed: "setp.le.u32 %p0, 0, %r0;", n: 1},
			planted{body: repeat, changed: "setp.le.u32 %p0, 0, %r0;", n: 2}, "moe_any"},
		"finite sum": {"comparison",
			planted{body: "mov.f32 %f10, 0f44000000;\nsetp.lt.f32 %p0, %f10, 0f7F800000; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.le.f32 %p0, %f10, 0f7F800000;"},
			planted{body: "mov.f32 %f10, 0f44800000;\nsetp.lt.f32 %p0, %f10, 0f7F800000; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.le.f32 %p0, %f10, 0f7F800000;"}, "moe_route"},
		"division": {"operation",
			planted{body: parts + "redux.sync.add.s32 %r3, %r14, 4294967295;", changed: "sub.u32 %r13, %r12, %r11;"},
			planted{body: parts + "mov.b32 %r3, %r14;", changed: "sub.u32 %r13, %r12, %r11;"}, ""},
		"first vec4": {"operation",
			planted{body: "add.u32 %r13, %r0, 31;\nshr.u32 %r14, %r13, 5;\n" + firstVec4, changed: "shl.b32 %r11, %r10, 2;"},
			planted{body: "add.u32 %r13, %r0, 3;\nshr.u32 %r14, %r13, 2;\n" + firstVec4, changed: "shl.b32 %r11, %r10, 2;"}, ""},
		"one pass": {"constant",
			planted{body: "mov.b32 %r10, %r1;\n" + pass, changed: "setp.lt.u32 %p0, %r10, 17;"},
			planted{body: "add.u32 %r10, %r1, 4294967264;\n" + pass, changed: "setp.lt.u32 %p0, %r10, 17;"}, ""},
		"equal operands": {"comparison",
			planted{body: window + "sub.u32 %r10, %r1, 16;\nselp.b32 %r3, %r10, 0, %p0;", changed: "setp.ge.u32 %p0, %r1, 16;"},
			planted{body: window + "sub.u32 %r10, %r1, 15;\nselp.b32 %r3, %r10, 0, %p0;", changed: "setp.ge.u32 %p0, %r1, 16;"}, ""},
		"factor of zero": {"comparison",
			planted{body: factor + "mov.b32 %r3, %f14;", changed: "setp.ge.f32 %p0, %f11, 0f00000000;"},
			planted{body: strings.Replace(factor, "0f40000000", "0f7F800000", 1) + "mov.b32 %r3, %f14;", changed: "setp.ge.f32 %p0, %f11, 0f00000000;"}, ""},
		"choice": {"comparison",
			planted{body: "setp.lt.u32 %p0, %r1, 16; //\nmov.b32 %r3, 7;\n@%p0 bra $L1;\nshr.u32 %r3, 15, 1;\n$L1:", changed: "setp.le.u32 %p0, %r1, 16;"},
			planted{body: "setp.lt.u32 %p0, %r1, 99; //\nmov.b32 %r3, 7;\n@%p0 bra $L1;\nmov.b32 %r3, 8;\n$L1:", changed: "setp.le.u32 %p0, %r1, 99;"}, ""},
		"choice: comparison": {"operands",
			planted{body: either + "@!%p2 bra $L1;\nmov.b32 %r3, 7;\n$L1:", changed: "sub.u32 %r10, %r1, %r0;"},
			planted{body: either + "@!%p2 bra $L1;\nmov.b32 %r3, 8;\n$L1:", changed: "sub.u32 %r10, %r1, %r0;"}, ""},
		"loop bound": {"comparison",
			planted{body: bounded, changed: "setp.le.u32 %p1, %r10, %r0;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + bounded + "\n$L9:", changed: "setp.le.u32 %p1, %r10, %r0;"}, ""},
		"loop bound: 0": {"comparison",
			planted{body: "mov.b32 %r3, 0;\n" + split20 + "@!%p1 bra $L1;\nsetp.lt.u32 %p0, 0, %r0; //\nselp.b32 %r3, 1, 2, %p0;\n$L1:", changed: "setp.le.u32 %p0, 0, %r0;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + split20 + "@!%p1 bra $L1;\nsetp.lt.u32 %p0, 0, %r0; //\nselp.b32 %r3, 1, 2, %p0;\n$L1:\n$L9:", changed: "setp.le.u32 %p0, 0, %r0;"}, ""},
		"even": {"comparison",
			planted{body: "add.u32 %r10, %r1, %r1;\nsub.u32 %r11, %r10, 4;\nsetp.gt.u32 %p0, %r11, 3; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.ge.u32 %p0, %r11, 3;"},
			planted{body: "sub.u32 %r11, %r1, 4;\nsetp.gt.u32 %p0, %r11, 3; //\nselp.b32 %r3, 1, 2, %p0;", changed: "setp.ge.u32 %p0, %r11, 3;"}, "rope_append"},
		"squares": {"order of a vector",
			planted{body: squared + "mov.b32 %r3, %f15;", changed: "ld.global.v4.f32 {%f11, %f10, %f12, %f13}, [%d0];"},
			planted{body: squared + "mov.b32 %r3, 1;", changed: "ld.global.v4.f32 {%f11, %f10, %f12, %f13}, [%d0];"}, ""},
		"edge": {"comparison",
			planted{body: "mov.b32 %r3, 0;\nsetp.lt.u32 %p0, %r1, %r0; //\n@!%p0 bra $L1;\nsetp.lt.u32 %p1, %r1, %r0;\n@%p1 mov.b32 %r3, 5;\n$L1:", changed: "setp.le.u32 %p0, %r1, %r0;"},
			planted{body: "mov.b32 %r3, 0;\nsetp.lt.u32 %p0, %r1, %r0; //\n@!%p0 bra $L1;\nmax.u32 %r10, %r1, %r0;\nsub.u32 %r3, %r10, %r0;\n$L1:", changed: "setp.le.u32 %p0, %r1, %r0;"}, ""},
		"edge: quotient": {"operation",
			planted{body: quotient + "setp.lt.u32 %p1, %r1, %r0;\nand.pred %p2, %p0, %p1;\n@%p2 mov.b32 %r3, 5;", changed: "shl.b32 %r11, %r10, 2;"},
			planted{body: quotient + "@%p0 mov.b32 %r3, 5;", changed: "shl.b32 %r11, %r10, 2;"}, ""},
		"clamp": {"operation",
			planted{body: "add.u32 %r10, %r0, 4294967295; //\nmin.u32 %r11, %r1, 19;\nmin.u32 %r3, %r11, %r10;", changed: "sub.u32 %r10, %r0, 4294967295;"},
			planted{body: "add.u32 %r10, %r0, 4294967295; //\nmin.u32 %r3, %r1, %r10;", changed: "sub.u32 %r10, %r0, 4294967295;"}, ""},
		"padding": {"comparison",
			planted{body: padded + "ld.shared.u32 %r3, [%r24];", changed: "setp.le.u32 %p0, %r21, 2;"},
			planted{body: padded + "ld.shared.u32 %r3, [%r22];", changed: "setp.le.u32 %p0, %r21, 2;"}, ""},
		"fill": {"float constant",
			planted{body: "mov.f32 %f10, 0f00000000; //\n" + split + "@%p0 mov.f32 %f10, %f2;\nadd.rn.f32 %f11, %f10, 0f3F800000;\nselp.f32 %f12, %f11, 0f3F800000, %p0;\nmov.b32 %r3, %f12;", changed: "mov.f32 %f10, 0f3F800000;"},
			planted{body: "mov.f32 %f10, 0f00000000; //\nsetp.lt.u32 %p0, %r1, 99;\n@%p0 mov.f32 %f10, %f2;\nadd.rn.f32 %f11, %f10, 0f3F800000;\nmov.b32 %r3, %f11;", changed: "mov.f32 %f10, 0f3F800000;"}, ""},
		"fill: 64 bits": {"constant",
			planted{body: "mov.b64 %d5, 0; //\n" + split + "@%p0 cvt.u64.u32 %d5, %r2;\ncvt.u32.u64 %r10, %d5;\nselp.b32 %r3, %r10, 7, %p0;", changed: "mov.b64 %d5, 1;"},
			planted{body: "mov.b64 %d5, 0; //\nsetp.lt.u32 %p0, %r1, 99;\n@%p0 cvt.u64.u32 %d5, %r2;\ncvt.u32.u64 %r3, %d5;", changed: "mov.b64 %d5, 1;"}, ""},
		"start": {"constant",
			planted{body: "mov.b32 %r10, 0; //\nand.b32 %r11, %r2, 2147483647;\nmax.u32 %r3, %r11, %r10;", changed: "mov.b32 %r10, 1;"},
			planted{body: "mov.b32 %r10, 0; //\nadd.u32 %r11, %r1, 5;\nmax.u32 %r3, %r11, %r10;", changed: "mov.b32 %r10, 1;"}, ""},
		"low key": {"constant",
			planted{body: "add.u32 %r11, %r1, 40;\nadd.u32 %r12, %r0, 30;\nsetp.eq.u32 %p0, %r12, %r11;\nselp.b32 %r10, 0, %r2, %p0; //\nsetp.gt.u32 %p1, %r10, 1;\nselp.b32 %r3, 1, 2, %p1;", changed: "selp.b32 %r10, 1, %r2, %p0;"},
			planted{body: "add.u32 %r11, %r1, 40;\nsetp.eq.u32 %p0, %r0, %r11;\nselp.b32 %r10, 0, %r2, %p0; //\nsetp.gt.u32 %p1, %r10, 1;\nselp.b32 %r3, 1, 2, %p1;", changed: "selp.b32 %r10, 1, %r2, %p0;"}, "moe_route"},
		"finite": {"float constant",
			planted{body: split + "selp.f32 %f10, 0fFF800000, %f2, %p0;\nsetp.eq.f32 %p1, %f10, 0fFF800000;\nselp.f32 %f11, 0f00000000, %f10, %p1; //\nsub.rn.f32 %f12, %f10, %f11;\nex2.approx.ftz.f32 %f13, %f12;\nmov.b32 %r3, %f13;", changed: "selp.f32 %f11, 0f3F800000, %f10, %p1;"},
			planted{body: split + "selp.f32 %f10, 0fFF800000, %f2, %p0;\nsetp.eq.f32 %p1, %f10, 0fFF800000;\nselp.f32 %f11, 0f00000000, %f10, %p1; //\nmov.b32 %r3, %f11;", changed: "selp.f32 %f11, 0f3F800000, %f10, %p1;"}, ""},
		"saturation": {"float constant",
			planted{body: "min.f32 %f10, %f2, 0f41800000; //\nsetp.gt.f32 %p0, %f10, 0f40800000;\nselp.b32 %r3, 1, 2, %p0;", changed: "min.f32 %f10, %f2, 0f41000000;", scale: 100},
			planted{body: "min.f32 %f10, %f2, 0f41800000; //\nmov.b32 %r3, %f10;", changed: "min.f32 %f10, %f2, 0f41000000;"}, ""},
		"power of two": {"float constant",
			planted{body: "mov.f32 %f10, 0f3F800000; //\nmul.rn.f32 %f11, %f2, %f10;\ndiv.rn.f32 %f12, %f11, %f10;\nmul.rn.f32 %f13, %f10, 0f3F8CCCCD;\ndiv.rn.f32 %f14, %f13, %f10;\nadd.rn.f32 %f15, %f12, %f14;\nmov.b32 %r3, %f15;", changed: "mov.f32 %f10, 0f3F000000;"},
			planted{body: "mov.f32 %f10, 0f3F800000; //\nmul.rn.f32 %f11, %f2, %f10;\nmov.b32 %r3, %f2;", changed: "mov.f32 %f10, 0f3F000000;"}, ""},
		"handover": {"comparison",
			planted{body: "mul.rn.f32 %f10, %f2, 0f3F800010;\nsetp.lt.f32 %p0, %f2, 0f3F000000; //\nselp.f32 %f11, %f2, %f10, %p0;\nmov.b32 %r3, %f11;", changed: "setp.le.f32 %p0, %f2, 0f3F000000;"},
			planted{body: "mul.rn.f32 %f10, %f2, 0f40000000;\nsetp.lt.f32 %p0, %f2, 0f3F000000; //\nselp.f32 %f11, %f2, %f10, %p0;\nmov.b32 %r3, %f11;", changed: "setp.le.f32 %p0, %f2, 0f3F000000;"}, ""},
		"handover: float64": {"comparison",
			planted{body: border + "mov.b32 %r3, 0;\n@%p0 mov.b32 %r3, 0;", changed: "setp.gt.f64 %p0, %g0, 0d4020000000000000;"},
			planted{body: border + "selp.b32 %r3, 1, 2, %p0;", changed: "setp.gt.f64 %p0, %g0, 0d4020000000000000;"}, ""},
		"rounding": {"operation",
			planted{body: "mul.rn.f32 %f10, %f2, 0f35800000;\nadd.rn.f32 %f11, %f2, %f10; //\nmov.b32 %r3, %f11;", changed: "sub.rn.f32 %f11, %f2, %f10;"},
			planted{body: "mul.rn.f32 %f10, %f2, 0f399D4952;\nadd.rn.f32 %f11, %f2, %f10; //\nmov.b32 %r3, %f11;", changed: "sub.rn.f32 %f11, %f2, %f10;"}, ""},
		"butterfly": {"constant",
			planted{body: squares + "shfl.sync.bfly.b32 %f19, %f10, 16, 31, 4294967295; //\nadd.rn.f32 %f10, %f10, %f19;\n" + butterfly, changed: "shfl.sync.bfly.b32 %f19, %f10, 17, 31, 4294967295;"},
			planted{body: "mov.f32 %f10, 0f3F800000;\nshfl.sync.bfly.b32 %f19, %f10, 16, 31, 4294967295; //\nadd.rn.f32 %f10, %f10, %f19;\n" + butterfly, changed: "shfl.sync.bfly.b32 %f19, %f10, 17, 31, 4294967295;"}, ""},
		"pairs": {"constant",
			planted{body: squares + pair + "add.rn.f32 %f12, %f10, %f11;\nshfl.sync.bfly.b32 %f13, %f12, 2, 31, 4294967295; //\nadd.rn.f32 %f14, %f12, %f13;\nmov.b32 %r3, %f14;", changed: "shfl.sync.bfly.b32 %f13, %f12, 3, 31, 4294967295;"},
			planted{body: squares + pair + "add.rn.f32 %f12, %f2, %f11;\nshfl.sync.bfly.b32 %f13, %f12, 2, 31, 4294967295; //\nadd.rn.f32 %f14, %f12, %f13;\nmov.b32 %r3, %f14;", changed: "shfl.sync.bfly.b32 %f13, %f12, 3, 31, 4294967295;"}, ""},
		"mirrored": {"comparison",
			planted{body: halves + "selp.b32 %r11, 1, 0, %p0;\nxor.b32 %r12, %r11, %r10;\nxor.b32 %r13, %r12, %r1;\nshfl.sync.idx.b32 %r3, %f13, %r13, 31, 4294967295;", changed: "setp.eq.u32 %p0, %r10, 0;"},
			planted{body: halves + "mov.b32 %r3, %r1;", changed: "setp.eq.u32 %p0, %r10, 0;"}, ""},
		"one lane": {"operation",
			planted{body: squares + "shfl.sync.bfly.b32 %f19, %f10, 16, 31, 4294967295; //\nadd.rn.f32 %f10, %f10, %f19;\n" + butterfly + first, changed: "shfl.sync.down.b32 %f19, %f10, 16, 31, 4294967295;"},
			planted{body: squares + "shfl.sync.bfly.b32 %f19, %f10, 16, 31, 4294967295; //\nadd.rn.f32 %f10, %f10, %f19;\nmov.b32 %r3, %f10;", changed: "shfl.sync.down.b32 %f19, %f10, 16, 31, 4294967295;"}, ""},
		"barrier": {LeaveOutSync,
			planted{body: "st.global.u32 [%d4], %r1;\nbar.sync 0;\nbar.sync 0; //\nxor.b32 %r10, %r1, 1;\nmul.wide.u32 %d6, %r10, 4;\nadd.u64 %d6, %d1, %d6;\nld.global.u32 %r3, [%d6];\nbar.sync 0;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + "bar.sync 0;\nbar.sync 0; //\nbar.sync 0;\n$L9:"}, ""},
		"joined copies": {LeaveOutSync,
			planted{body: joined + "cp.async.wait_group 0;\nld.shared.u32 %r3, [%r20];"},
			planted{body: joined + "cp.async.wait_group 0;\ncp.async.wait_group 0;\nld.shared.u32 %r3, [%r20];"}, ""},
		"joined products: commit": {LeaveOutSync,
			planted{body: multiplied + "wgmma.commit_group.sync.aligned; //\n" + again + waitAll + "mov.b32 %r3, %f10;", warps: 4},
			planted{body: multiplied + "wgmma.commit_group.sync.aligned; //\n" + again + waitAll + waitAll + "mov.b32 %r3, %f10;", warps: 4}, ""},
		"joined products: wait for fewer": {"constant",
			planted{body: multiplied + committed + again + "wgmma.wait_group.sync.aligned 1; //\n" + waitAll + "mov.b32 %r3, %f10;", changed: "wgmma.wait_group.sync.aligned 2;", warps: 4},
			planted{body: multiplied + committed + again + "wgmma.wait_group.sync.aligned 1; //\n" + waitAll + waitAll + "mov.b32 %r3, %f10;", changed: "wgmma.wait_group.sync.aligned 2;", warps: 4}, ""},
		"joined products": {LeaveOutSync,
			planted{body: multiplied + committed + again + "wgmma.wait_group.sync.aligned 1; //\n" + waitAll + "mov.b32 %r3, %f10;", warps: 4},
			planted{body: multiplied + committed + again + "wgmma.wait_group.sync.aligned 1; //\n" + waitAll + waitAll + "mov.b32 %r3, %f10;", warps: 4}, ""},
		"masked copy": {"constant",
			planted{body: copied + "selp.b32 %r3, %r3, 0, %p0;", changed: "selp.b32 %r10, 16, 4, %p0;"},
			planted{body: copied, changed: "selp.b32 %r10, 16, 4, %p0;"}, ""},
		"masked position": {"comparison",
			planted{body: position + "setp.lt.u32 %p1, %r1, 16;\nselp.b32 %r3, %r3, 0, %p1;", changed: "setp.le.u32 %p0, %r1, 16;"},
			planted{body: position, changed: "setp.le.u32 %p0, %r1, 16;"}, ""},
		"zero bit: byte": {"constant",
			planted{body: "prmt.b32 %r3, %r2, 0, 13348; //", changed: "prmt.b32 %r3, %r2, 0, 13349;"},
			planted{body: "mov.b32 %r3, 0;\n" + never + "prmt.b32 %r3, %r2, 0, 13348; //\n$L9:", changed: "prmt.b32 %r3, %r2, 0, 13349;"}, ""},
		"zero bit: factor": {"constant",
			planted{body: "shl.b32 %r10, %r2, 4;\nand.b32 %r11, %r10, 15;\nmad.lo.u32 %r3, %r11, 4, %r1; //", changed: "mad.lo.u32 %r3, %r11, 5, %r1;"},
			planted{body: "mul.hi.u32 %r10, %r2, 16;\nand.b32 %r11, %r10, 15;\nmad.lo.u32 %r3, %r11, 4, %r1; //", changed: "mad.lo.u32 %r3, %r11, 5, %r1;"}, ""},
		"masked position: difference": {"operation",
			planted{body: sum + "setp.lt.u32 %p1, %r1, 14;\nselp.b32 %r3, %r3, 0, %p1;", changed: "sub.u32 %r12, %r11, 1;"},
			planted{body: sum, changed: "sub.u32 %r12, %r11, 1;"}, ""},
		"later block": {"comparison",
			planted{body: blocks + "add.u32 %r11, %r10, 1;\n" + later, changed: "setp.gt.u32 %p0, %r14, 5;"},
			planted{body: blocks + "add.u32 %r9, %r10, 4294967295;\nadd.u32 %r11, %r9, 1;\n" + later, changed: "setp.gt.u32 %p0, %r14, 5;"}, "flash_attention"},
		"masked": {"constant",
			planted{body: "shr.u32 %r10, %r2, 4; //\nsetp.ge.u32 %p0, %r10, 0;\nselp.b32 %r3, 1, 2, %p0;", changed: "shr.u32 %r10, %r2, 5;"},
			planted{body: "shr.u32 %r3, %r2, 4; //", changed: "shr.u32 %r3, %r2, 5;"}, "flash_attention"},
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if _, ok := table[r.name]; !ok {
				t.Fatal("no planted mutant")
			}
			for name, c := range table {
				if name != r.name && !strings.HasPrefix(name, r.name+": ") {
					continue
				}
				for want, p := range map[bool]planted{true: c.yes, false: c.no} {
					q := p.survivor(t, c.family, c.mutator)
					q.fate = r.fates[0]
					if !r.applies(q) {
						t.Errorf("%s: the form does not apply to\n%s", name, p.body)
					} else if got := r.probe(q); got != want {
						t.Errorf("%s: the probe excuses the change: %v, want %v, in\n%s", name, got, want, p.body)
					}
				}
			}
		})
	}
}

// survivor builds the kernel and a runner with one case, which fails if a result is more than
// 0.1% away from that of the unchanged kernel.
func (p planted) survivor(t *testing.T, family, mutator string) survivor {
	t.Helper()
	b := ptx.New(cmp.Or(family, "any") + "_planted")
	params := struct {
		X, Y ptx.Global `align:"16"`
		N    ptx.U32
	}{}
	ptx.Declare(b, &params)
	params.Y.StoreU32(params.X.LoadU32())
	b.Shared("buffer", 1024, 16)
	k, err := b.Finish(ptx.MaxThreads(p.threads()))
	if err != nil {
		t.Fatal(err)
	}
	lines := linesOf(k)
	for i, line := range lines {
		switch {
		case p.warps < 4:
		case strings.HasPrefix(line, ".version "):
			lines[i] = ".version 8.0"
		case strings.HasPrefix(line, ".target "):
			lines[i] = ".target sm_90a"
		}
	}
	at := slices.Index(lines, "{")
	text := strings.Join(lines[:at+1], "\n") + `
	.reg .pred %p<8>;
	.reg .b32 %r<32>;
	.reg .b16 %h<16>;
	.reg .b64 %d<8>;
	.reg .f32 %f<32>;
	.reg .f64 %g<8>;
	.shared .align 16 .b8 buffer[1024];
	ld.param.u64 %d0, [x];
	ld.param.u64 %d1, [y];
	ld.param.u32 %r0, [n];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %d2, %r1, 4;
	add.u64 %d3, %d0, %d2;
	add.u64 %d4, %d1, %d2;
	ld.global.u32 %r2, [%d3];
	mov.b32 %f2, %r2;
`
	for line := range strings.Lines(p.body + "\n") {
		if line = strings.TrimSpace(line); line != "" {
			text += strings.TrimPrefix("\t"+line, map[bool]string{true: "\t"}[line[0] == '$']) + "\n"
		}
	}
	text += "\tst.global.u32 [%d4], %r3;\n\tret;\n}\n"
	lines = strings.Split(text, "\n")
	line := slices.IndexFunc(lines, func(s string) bool { return strings.HasSuffix(s, " //") })
	lines[line] = strings.TrimSuffix(lines[line], " //")
	kernelLines.Store(k, lines)

	kernels := map[string]*ptx.Kernel{k.Name: k}
	c := harness.Case{Operation: "planted", Format: "F32", Name: t.Name(), Reason: "a planted mutant", Run: p.check(k)}
	open := func(int64) (driver.Device, error) {
		return emu.Open(emu.Options{Workers: 1, Async: emu.Late, MaxInstructions: 1 << 16})
	}
	m := &Runner{kernels: kernels, options: Options{Seed: 1, Budget: 1e9, Open: open}}
	s, err := m.suite(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if m, err = New(kernels, []harness.Result{s.Run(t, c)}, m.options); err != nil {
		t.Fatal(err)
	}
	q := survivor{m: m, mutant: Mutant{Kernel: k.Name, Mutator: mutator, line: line, Old: lines[line]}}
	if p.changed != "" {
		q.mutant.New = "\t" + p.changed
	}
	q.was, _ = ptxtext.Parse(q.mutant.Old)
	q.is, _ = ptxtext.Parse(q.mutant.New)
	return q
}

// threads is the number of threads of the kernel.
func (p planted) threads() int { return 32 * max(p.warps, 1) }

// check returns the case of a planted mutant. Its first run per input is the reference.
func (p planted) check(k *ptx.Kernel) func(r *harness.Fixture) {
	var mu sync.Mutex
	want := map[string][]float32{}
	return func(r *harness.Fixture) {
		x := r.Vector(harness.Gaussian, 4*32)
		for i := range x {
			if p.scale != 0 {
				x[i] *= p.scale
			}
		}
		n := p.n
		if n == 0 {
			n = 20
		}
		in, out := r.F32s("x", x), r.Output("y", 4*(p.threads()+1))
		r.Launch(k.Launch([3]uint32{1, 1, 1}, p.threads(), 0, &struct {
			X, Y ptx.Global `align:"16"`
			N    ptx.U32
		}{ptx.Addr(in.Addr()), ptx.Addr(out.Addr()), ptx.Uint(n)}))
		got := out.FloatsAt(quant.F32, 0, p.threads()+1)
		mu.Lock()
		defer mu.Unlock()
		key := fmt.Sprint(x)
		if want[key] == nil {
			want[key] = got
		}
		bad := 0
		for i, w := range want[key] {
			same := math.Float32bits(got[i]) == math.Float32bits(w)
			if !same && !(math.Abs(float64(got[i])-float64(w)) <= 1e-3*math.Abs(float64(w))) {
				bad++
			}
		}
		harness.Exact(r, "wrong results", []uint32{uint32(bad)}, []uint32{0})
	}
}

// TestRuleWithoutProbe demands that a rule without a probe is an error.
func TestRuleWithoutProbe(t *testing.T) {
	if err := complete(rules); err != nil {
		t.Error(err)
	}
	list := slices.Clone(rules)
	list[3].probe = nil
	if err := complete(list); err == nil || !strings.Contains(err.Error(), list[3].name) {
		t.Errorf("a rule without a probe: error %v", err)
	}
}

func TestGeneratorOf(t *testing.T) {
	for kernel, want := range map[string]string{
		"attention_combine_d64": "attention_combine", "attention_decode_bf16_d128": "attention_decode", "argmax_slice": "argmax_slice",
		"embed_iq4_xs": "embed", "embed_q4_k": "embed", "rope_append_f16_p16": "rope_append", "peak_bulk_read": "peak_bulk_read", "layernorm": "layernorm",
	} {
		if got := generatorOf(kernel); got != want {
			t.Errorf("%s comes from %s, want %s", kernel, got, want)
		}
	}
}
