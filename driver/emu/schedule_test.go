package emu

import (
	"slices"
	"testing"
)

// CTAs that wait for each other give the same words in any schedule, with any number of workers.
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
			out, err := kernelRun{opts: Options{Schedule: s, Workers: workers}, ptx: k.faulty(), grid: 4, args: []any{128, make([]uint32, 8)}}.run(t)
			if err != nil {
				t.Fatalf("%+v with %d workers: %v", s, workers, err)
			}
			if !slices.Equal(out[0], want) {
				t.Errorf("%+v with %d workers: got %v", s, workers, out[0])
			}
		}
	}
}

// Without race detection, most adversarial schedules show a missing barrier.
func TestAdversarialOrderShowsMissingBarrier(t *testing.T) {
	k := trapCase{decls: ".shared .align 16 .b8 buf[512];", body: exchange + "// BUG\nld.shared.u32 %r0, [%r5];", fixed: "bar.sync 0;"}
	shown := 0
	for seed := range uint64(10) {
		opts := Options{Schedule: Adversarial(seed), IgnoreRaces: true}
		if _, err := (kernelRun{opts: opts, ptx: k.faulty(), block: 128, args: []any{128}}).run(t); err != nil {
			shown++
		}
		if _, err := (kernelRun{opts: opts, ptx: k.corrected(), block: 128, args: []any{128}}).run(t); err != nil {
			t.Errorf("seed %d, with the barrier: %v", seed, err)
		}
	}
	if shown < 8 {
		t.Errorf("only %d of 10 orders show it", shown)
	}
}

// Most adversarial schedules show a missing bar.warp.sync.
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
			out, err := kernelRun{opts: opts, ptx: text, args: []any{32}}.run(t)
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
