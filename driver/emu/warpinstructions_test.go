package emu

import "testing"

func TestWarpInstructions(t *testing.T) {
	// perThread adds 4 instructions before the body and 2 after it.
	body := `
	mov.u32 %r0, 0;
	setp.lt.u32 %p1, %r1, 8;
LOOP:
	add.u32 %r0, %r0, 1;
	setp.lt.u32 %p2, %r0, 5;
	@%p2 bra LOOP;
	@%p1 add.u32 %r0, %r0, 1;`
	for _, workers := range []int{1, 2} {
		_, d, err := kernelRun{opts: Options{Workers: workers}, ptx: perThread(sm80, "", body), block: 64, args: []any{64}}.runOnDevice(t)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := d.WarpInstructions()["k"], uint64(2*(6+2+15+1)); got != want {
			t.Errorf("%d warp instructions, want %d", got, want)
		}
		d.ResetWarpInstructions()
		if got := d.WarpInstructions(); len(got) != 0 {
			t.Errorf("after a reset: %v", got)
		}
	}
}
