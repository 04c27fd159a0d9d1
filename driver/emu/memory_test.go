package emu

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestLoadsAndStores(t *testing.T) {
	in := "ld.param.u64 %rd2, [in]; mul.wide.u32 %rd3, %r1, 16; add.u64 %rd2, %rd2, %rd3;"
	var data []uint32
	for i := range uint32(128) {
		data = append(data, 0x80818283+i*0x01010101)
	}
	word := func(i, k uint32) uint32 { return data[4*i+k] }
	for _, c := range []scalarCase{
		{"plain", "ld.global.u32 %r0, [%rd2+4];", func(i uint32) uint32 { return word(i, 1) }},
		{"signed byte", "ld.global.s8 %r0, [%rd2];", func(i uint32) uint32 { return uint32(int32(int8(word(i, 0)))) }},
		{"unsigned half", "ld.global.u16 %r0, [%rd2+2];", func(i uint32) uint32 { return word(i, 0) >> 16 }},
		{"half register", "ld.global.b16 %h1, [%rd2]; mov.b32 %r0, {%h1, %h1};", func(i uint32) uint32 { return word(i, 0) & 0xffff * 0x10001 }},
		{"byte to 64 bits", "ld.global.s8 %rd4, [%rd2]; shr.u64 %rd4, %rd4, 32; cvt.u32.u64 %r0, %rd4;",
			func(i uint32) uint32 { return uint32(int32(int8(word(i, 0))) >> 31) }},
		{"vector of four", "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd2]; add.u32 %r0, %r2, %r5;", func(i uint32) uint32 { return word(i, 0) + word(i, 3) }},
		{"vector of words", "ld.global.v2.b64 {%rd4, %rd5}, [%rd2]; xor.b64 %rd4, %rd4, %rd5; cvt.u32.u64 %r0, %rd4;", func(i uint32) uint32 { return word(i, 0) ^ word(i, 2) }},
		{"read-only with hints", "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r2, %r3, %r4, %r0}, [%rd2];", func(i uint32) uint32 { return word(i, 3) }},
		{"policy", "createpolicy.fractional.L2::evict_first.b64 %rd5; ld.global.L2::cache_hint.u32 %r0, [%rd2], %rd5;", func(i uint32) uint32 { return word(i, 0) }},
		{"strong", "prefetch.global.L2 [%rd2]; ld.acquire.gpu.global.u32 %r0, [%rd2]; ld.volatile.global.u32 %r2, [%rd2]; xor.b32 %r0, %r0, %r2;", always(0)},
		{"store bytes", "st.shared.u8 [%r10], %r1; st.shared.u8 [%r10+1], 255; st.shared.u16 [%r10+2], 258; ld.shared.u32 %r0, [%r10];",
			func(i uint32) uint32 { return 258<<16 | 255<<8 | i }},
		{"store vector", "st.shared.v2.u32 [%r10], {%r1, 3}; ld.shared.v2.u32 {%r2, %r3}, [%r10]; mul.lo.u32 %r0, %r2, %r3;", func(i uint32) uint32 { return 3 * i }},
		{"dynamic shared memory", "mov.u32 %r11, dyn; shl.b32 %r12, %r1, 2; add.u32 %r11, %r11, %r12; st.shared.u32 [%r11], %r1; ld.shared.u32 %r0, [%r11];",
			func(i uint32) uint32 { return i }},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := trapCase{args: []any{data}, decls: ".shared .align 8 .b8 buf[256];",
				body: in + "mov.u32 %r10, buf; shl.b32 %r9, %r1, 3; add.u32 %r10, %r10, %r9;" + c.body}
			out, err := kernelRun{ptx: k.faulty(), shared: 128, args: []any{32, data}}.run(t)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range out[0] {
				if want := c.want(uint32(i)); got != want {
					t.Fatalf("thread %d: got %#08x, want %#08x", i, got, want)
				}
			}
		})
	}
}

func TestAtomics(t *testing.T) {
	for _, c := range []struct {
		name, op     string
		start, after uint32
	}{
		{"add", "atom.global.add.u32 %r0, [%rd2], 2;", 5, 5 + 64},
		{"relaxed add", "atom.relaxed.gpu.global.add.u32 %r0, [%rd2], 1;", 0, 32},
		{"inc wraps", "atom.acq_rel.gpu.global.inc.u32 %r0, [%rd2], 9;", 0, 2},
		{"signed min", "sub.s32 %r2, 3, %r1; atom.global.min.s32 %r0, [%rd2], %r2;", 0, 0xffffffe4},
		{"unsigned max", "atom.global.max.u32 %r0, [%rd2], %r1;", 0, 31},
		{"exchange", "atom.global.exch.b32 %r0, [%rd2], 77;", 0, 77},
		{"compare and swap", "add.u32 %r2, %r1, 1; atom.global.cas.b32 %r0, [%rd2], 0, 9;", 0, 9},
		{"and", "not.b32 %r2, %r1; atom.global.and.b32 %r0, [%rd2], %r2;", 0xff, 0xe0},
		{"or by red", "red.global.or.b32 [%rd2], %r1; mov.u32 %r0, 0;", 0x100, 0x11f},
		{"64 bits", "mov.u64 %rd3, 0x100000000; atom.global.add.u64 %rd4, [%rd2], %rd3; mov.u32 %r0, 0;", 7, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := trapCase{args: []any{1}, body: "ld.param.u64 %rd2, [in];\n" + c.op}
			out, err := kernelRun{ptx: k.faulty(), args: []any{32, []uint32{c.start, 0}}}.run(t)
			if err != nil {
				t.Fatal(err)
			}
			if out[1][0] != c.after {
				t.Errorf("got %#x, want %#x", out[1][0], c.after)
			}
			if c.name == "64 bits" && out[1][1] != 32 {
				t.Errorf("the high half is %d, want 32", out[1][1])
			}
		})
	}
}

// Each parameter is aligned to its size.
func TestParameters(t *testing.T) {
	text := strings.Replace(perThread(sm80, "", `
	ld.param.u8 %r2, [a]; ld.param.s16 %r3, [b]; ld.param.f32 %f1, [c]; ld.param.u64 %rd2, [d]; ld.param.u32 %r4, [e+4];
	cvt.u32.u64 %r5, %rd2; mov.b32 %r6, %f1;
	add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r6; add.u32 %r0, %r0, %r5; add.u32 %r0, %r0, %r4;`),
		"out)", "out, .param .u8 a, .param .s16 b, .param .f32 c, .param .u64 d, .param .align 4 .b8 e[8])", 1)
	const filler = 0xee // between a and b, and in the first half of e
	tail := []any{32, uint32(7 | filler<<8 | 0xfffe<<16), uint32(1000), uint64(100000), uint32(0xeeeeeeee), uint32(5)}
	out, err := kernelRun{ptx: text, args: tail}.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if want := same(32, 7-2+1000+100000+5); !slices.Equal(out[0], want) {
		t.Errorf("got %v, want %v", out[0], want)
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
			fixed: "createpolicy.fractional.L2::evict_first.b64 %rd9; @%p1 cp.async.cg.shared.global.L2::cache_hint [buf], [%rd2], 16, 16, %rd9;"},
		{name: "a number as the cache policy of a load", kind: TrapPolicy, lane: 0, args: []any{same(32, 1)},
			body:  "ld.param.u64 %rd2, [in]; mov.u64 %rd9, 7;\nld.global.L2::cache_hint.u32 %r0, [%rd2], %rd9; // BUG",
			fixed: "createpolicy.fractional.L2::evict_first.b64 %rd9; ld.global.L2::cache_hint.u32 %r0, [%rd2], %rd9;"},
		{name: "a number as the cache policy of a store", kind: TrapPolicy, lane: 3,
			body:  "mov.u32 %r0, 0; createpolicy.fractional.L2::evict_last.b64 %rd9; setp.eq.u32 %p1, %r1, 3; @%p1 mov.u64 %rd9, 0;\nst.global.L2::cache_hint.u32 [%rd1], %r0, %rd9; // BUG",
			fixed: "@!%p1 st.global.L2::cache_hint.u32 [%rd1], %r0, %rd9;"},
		{name: "a number as the cache policy of a copy", kind: TrapPolicy, lane: 0, args: []any{same(32, 1)}, decls: ".shared .align 16 .b8 buf[16];",
			body:  "ld.param.u64 %rd2, [in]; mov.u32 %r0, 0; setp.eq.u32 %p1, %r1, 0;\n@%p1 cp.async.cg.shared.global.L2::cache_hint [buf], [%rd2], 16, %rd2; // BUG",
			fixed: "createpolicy.fractional.L2::evict_first.b64 %rd9; @%p1 cp.async.cg.shared.global.L2::cache_hint [buf], [%rd2], 16, %rd9;"},
		{name: "undefined value stored", kind: TrapRegister, lane: 0, body: "mov.u32 %r0, 1;\nst.global.u32 [%rd1], %r9; // BUG", fixed: ""},
		{name: "division by zero", kind: TrapDivision, lane: 0, body: "div.u32 %r0, 7, %r1; // BUG",
			fixed: "add.u32 %r2, %r1, 1; div.u32 %r0, 7, %r2;"},
		{name: "explicit trap", kind: TrapExplicit, lane: 3, body: "mov.u32 %r0, 0; setp.eq.u32 %p1, %r1, 3;\n@%p1 trap; // BUG", fixed: ""},
	})
}

// TestDynamicAlign checks that dynamic shared memory follows the static one at an address that is a
// multiple of 16 and of no more, whatever the text declares, and that the bytes skipped for this do
// not count.
func TestDynamicAlign(t *testing.T) {
	for _, align := range []string{"16", "1024"} {
		for _, static := range []int{1, 80, 96, 1024} {
			decls := fmt.Sprintf(".shared .align 16 .b8 fixed[%d];", static)
			text := strings.Replace(perThread(sm80, decls, "mov.u32 %r0, dyn; st.shared.u8 [%r0+1023], %r0;"), ".align 16 .b8 dyn", ".align "+align+" .b8 dyn", 1)
			out, err := kernelRun{ptx: text, shared: 1024, args: []any{32}}.run(t)
			if err != nil {
				t.Fatal(err)
			}
			if at := int(out[0][0]); at%32 != 16 || at < sharedBase+static {
				t.Errorf("aligned to %s, after %d bytes: the address is %#x", align, static, at)
			}
			most := 227<<10 - (static+15)/16*16
			for over := range 2 {
				_, err := kernelRun{ptx: text, shared: uint32(most + over), args: []any{32}}.run(t)
				if (err != nil) != (over > 0) {
					t.Errorf("%d bytes after %d: %v", most+over, static, err)
				}
			}
		}
	}
}
