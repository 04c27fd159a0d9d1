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
			out, err := bench{ptx: k.faulty(), shared: 128, args: []any{32, data}}.run(t)
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
			out, err := bench{ptx: k.faulty(), args: []any{32, []uint32{c.start, 0}}}.run(t)
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

func TestCollectives(t *testing.T) {
	runScalar(t, header, []scalarCase{
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

// Lanes that part come together again, in any order of lanes.
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
			out, err := bench{opts: Options{Schedule: Schedule{seed > 0, seed}}, ptx: perThread(header, "", body), args: []any{32}}.run(t)
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

// Warps that specialize by named barriers and CTAs that wait for one another give
// the same words whatever the schedule and the number of workers.
func TestSchedules(t *testing.T) {
	body := lastBlock + `
	membar.gl;
	atom.global.add.u32 %r13, [%rd2], 1;
WAIT:
	ld.acquire.gpu.global.u32 %r14, [%rd2];
	setp.lt.u32 %p2, %r14, %r11;
	@%p2 bra WAIT;
	ld.global.u32 %r14, [%rd2+16];
	ld.global.u32 %r15, [%rd2+28];
	add.u32 %r0, %r14, %r15;
END:
	bar.warp.sync -1;`
	k := trapCase{args: []any{1}, body: body}
	want := make([]uint32, 4*32)
	for cta := range 4 {
		want[32*cta] = 3
	}
	for _, s := range []Schedule{InOrder, Adversarial(1), Adversarial(2), Adversarial(3)} {
		for _, workers := range []int{1, 2, 4} {
			out, err := bench{opts: Options{Schedule: s, Workers: workers}, ptx: k.faulty(), grid: 4, args: []any{128, make([]uint32, 8)}}.run(t)
			if err != nil {
				t.Fatalf("%+v with %d workers: %v", s, workers, err)
			}
			if !slices.Equal(out[0], want) {
				t.Errorf("%+v with %d workers: got %v", s, workers, out[0])
			}
		}
	}
}

// Parameters lie one after the other, each at a multiple of its size.
func TestParameters(t *testing.T) {
	text := strings.Replace(perThread(header, "", `
	ld.param.u8 %r2, [a]; ld.param.s16 %r3, [b]; ld.param.f32 %f1, [c]; ld.param.u64 %rd2, [d]; ld.param.u32 %r4, [e+4];
	cvt.u32.u64 %r5, %rd2; mov.b32 %r6, %f1;
	add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r6; add.u32 %r0, %r0, %r5; add.u32 %r0, %r0, %r4;`),
		"out)", "out, .param .u8 a, .param .s16 b, .param .f32 c, .param .u64 d, .param .align 4 .b8 e[8])", 1)
	const filler = 0xee // between a and b, and in the first half of e
	tail := []any{32, uint32(7 | filler<<8 | 0xfffe<<16), uint32(1000), uint64(100000), uint32(0xeeeeeeee), uint32(5)}
	out, err := bench{ptx: text, args: tail}.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if want := same(32, 7-2+1000+100000+5); !slices.Equal(out[0], want) {
		t.Errorf("got %v, want %v", out[0], want)
	}
}

// Without the detection of races, some order of the warps still shows a missing barrier.
func TestAdversarialOrderShowsMissingBarrier(t *testing.T) {
	k := trapCase{decls: ".shared .align 16 .b8 buf[512];", body: exchange + "// BUG\nld.shared.u32 %r0, [%r5];", fixed: "bar.sync 0;"}
	shown := 0
	for seed := range uint64(10) {
		opts := Options{Schedule: Adversarial(seed), IgnoreRaces: true}
		if _, err := (bench{opts: opts, ptx: k.faulty(), block: 128, args: []any{128}}).run(t); err != nil {
			shown++
		}
		if _, err := (bench{opts: opts, ptx: k.corrected(), block: 128, args: []any{128}}).run(t); err != nil {
			t.Errorf("seed %d, with the barrier: %v", seed, err)
		}
	}
	if shown < 8 {
		t.Errorf("only %d of 10 orders show it", shown)
	}
}

// And some order of the lanes shows a missing bar.warp.sync.
func TestAdversarialOrderShowsMissingWarpSync(t *testing.T) {
	body := `
	mov.u32 %r2, buf; shl.b32 %r3, %r1, 2; add.u32 %r3, %r2, %r3; xor.b32 %r4, %r1, 17; shl.b32 %r4, %r4, 2; add.u32 %r4, %r2, %r4;
	mov.u32 %r0, 0; mov.u32 %r5, 0; st.shared.u32 [%r3], %r0; bar.warp.sync -1;
LOOP:
	st.shared.u32 [%r3], %r5;
	// BUG
	ld.shared.u32 %r6, [%r4];
	add.u32 %r0, %r0, %r6;
	bar.warp.sync -1;
	add.u32 %r5, %r5, 1;
	setp.lt.u32 %p1, %r5, 100;
	@%p1 bra LOOP;`
	k := trapCase{decls: ".shared .align 4 .b8 buf[128];", body: body, fixed: "bar.warp.sync -1;"}
	want, shown := same(32, 99*100/2), 0
	for seed := range uint64(10) {
		opts := Options{Schedule: Adversarial(seed), IgnoreRaces: true}
		for text, fixed := range map[string]bool{k.faulty(): false, k.corrected(): true} {
			out, err := bench{opts: opts, ptx: text, args: []any{32}}.run(t)
			if err != nil {
				t.Fatal(err)
			}
			if right := slices.Equal(out[0], want); fixed && !right {
				t.Errorf("seed %d, with the bar.warp.sync: %v", seed, out[0])
			} else if !right {
				shown++
			}
		}
	}
	if shown < 9 {
		t.Errorf("only %d of 10 orders show it", shown)
	}
}
