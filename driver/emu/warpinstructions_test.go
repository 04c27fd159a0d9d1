package emu

import "testing"

func TestLoadBytes(t *testing.T) {
	shared := ".shared .align 16 .b8 buf[4096];"
	at := func(stride string) string {
		return "mov.u32 %r2, buf; mul.lo.u32 %r3, %r1, " + stride + "; add.u32 %r2, %r2, %r3; mov.u32 %r0, 0;\n"
	}
	global := func(stride string) string {
		return "ld.param.u64 %rd2, [in]; mul.wide.u32 %rd3, %r1, " + stride + "; add.u64 %rd2, %rd2, %rd3;\n"
	}
	for _, c := range []struct {
		name string
		body string
		want uint64
	}{
		{"one word per lane", global("4") + "ld.global.u32 %r0, [%rd2];", 128},
		{"the same word for all lanes", global("0") + "ld.global.u32 %r0, [%rd2];", 128},
		{"vectors", global("16") + "ld.global.v4.u32 {%r0, %r2, %r3, %r4}, [%rd2];", 512},
		{"copies of which half fill with zeros", global("16") + at("16") + "setp.lt.u32 %p1, %r1, 16; selp.u32 %r4, 16, 0, %p1; cp.async.cg.shared.global [%r2], [%rd2], 16, %r4; cp.async.wait_all;", 256},
		{"half the lanes", global("4") + "mov.u32 %r0, 0; setp.lt.u32 %p1, %r1, 16; @%p1 ld.global.u32 %r0, [%rd2];", 64},
		{"shared memory", at("4") + "st.shared.u32 [%r2], %r1; ld.shared.u32 %r0, [%r2];", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := trapCase{args: []any{1}, decls: shared, body: c.body}
			_, d, err := kernelRun{ptx: k.faulty(), args: []any{32, make([]uint32, 256)}}.runOnDevice(t)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.Counters()["k"]; got.LoadBytes != c.want || got.Launches != 1 {
				t.Errorf("got %+v, want %d bytes in 1 launch", got, c.want)
			}
			d.ResetCounters()
			if len(d.Counters()) != 0 {
				t.Error("counters after a reset")
			}
		})
	}
}

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
		if got, want := d.Counters()["k"].WarpInstructions, uint64(2*(6+2+15+1)); got != want {
			t.Errorf("%d warp instructions, want %d", got, want)
		}
	}
}
