package emu

import "testing"

func TestCounters(t *testing.T) {
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
		want Work // beyond what the frame of perThread does
	}{
		{"coalesced", global("4") + "ld.global.u32 %r0, [%rd2];", Work{LoadBytes: 128, LoadSectors: 4}},
		{"strided", global("32") + "ld.global.u32 %r0, [%rd2];", Work{LoadBytes: 128, LoadSectors: 32}},
		{"the same word", global("0") + "ld.global.u32 %r0, [%rd2];", Work{LoadBytes: 128, LoadSectors: 1}},
		{"vectors", global("16") + "ld.global.v4.u32 {%r0, %r2, %r3, %r4}, [%rd2];", Work{LoadBytes: 512, LoadSectors: 16}},
		{"copies, half of them of zeros", global("16") + at("16") + "setp.lt.u32 %p1, %r1, 16; selp.u32 %r4, 16, 0, %p1; cp.async.cg.shared.global [%r2], [%rd2], 16, %r4; cp.async.wait_all;",
			Work{LoadBytes: 256, LoadSectors: 8}},
		{"half the lanes", global("4") + "mov.u32 %r0, 0; setp.lt.u32 %p1, %r1, 16; @%p1 ld.global.u32 %r0, [%rd2];", Work{LoadBytes: 64, LoadSectors: 2}},
		{"no conflict", at("4") + "st.shared.u32 [%r2], %r1;", Work{Wavefronts: 1}},
		{"broadcast", at("0") + "st.shared.u32 [%r2], %r0;", Work{Wavefronts: 1}},
		{"two-way conflict", at("8") + "st.shared.u32 [%r2], %r1;", Work{Wavefronts: 2, Conflicts: 1}},
		{"all in one bank", at("128") + "st.shared.u32 [%r2], %r1;", Work{Wavefronts: 32, Conflicts: 31}},
		{"a padded row", at("132") + "@%p1 st.shared.u32 [%r2], %r1;", Work{}},
		{"vectors in a row", at("16") + "st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};", Work{Wavefronts: 4}},
		{"bytes", at("1") + "st.shared.u8 [%r2], %r1;", Work{Wavefronts: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := c.body
			if c.name == "a padded row" { // 132·31 is past the end for the last lane
				body = "setp.lt.u32 %p1, %r1, 31;\n" + body
				c.want = Work{Wavefronts: 1}
			}
			k := trapCase{args: []any{1}, decls: shared, body: body}
			_, d, err := bench{ptx: k.faulty(), args: []any{32, make([]uint32, 256)}}.runOn(t)
			if err != nil {
				t.Fatal(err)
			}
			got := d.Counters()["k"]
			if got.StoreBytes != 128 || got.StoreSectors != 4 || got.Launches != 1 || got.CTAs != 1 {
				t.Errorf("the store at the end: %+v", got)
			}
			if got.LoadBytes != c.want.LoadBytes || got.LoadSectors != c.want.LoadSectors ||
				got.Wavefronts != c.want.Wavefronts || got.Conflicts != c.want.Conflicts {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			d.ResetCounters()
			if len(d.Counters()) != 0 {
				t.Error("counters after a reset")
			}
		})
	}
}

func TestInstructionCounts(t *testing.T) {
	// The frame is 4 instructions before the body and 2 after it.
	body := `
	mov.u32 %r0, 0;
	setp.lt.u32 %p1, %r1, 8;
LOOP:
	add.u32 %r0, %r0, 1;
	setp.lt.u32 %p2, %r0, 5;
	@%p2 bra LOOP;
	@%p1 add.u32 %r0, %r0, 1;`
	for _, workers := range []int{1, 2} {
		_, d, err := bench{opts: Options{Workers: workers}, ptx: perThread(header, "", body), block: 64, args: []any{64}}.runOn(t)
		if err != nil {
			t.Fatal(err)
		}
		got := d.Counters()["k"]
		if want := uint64(2 * (6 + 2 + 15 + 1)); got.WarpInstructions != want {
			t.Errorf("%d warp instructions, want %d", got.WarpInstructions, want)
		}
		// The last branch is taken by no lane, and the last addition by eight.
		if want := uint64(64*(6+2+14) + 8); got.LaneInstructions != want {
			t.Errorf("%d lane instructions, want %d", got.LaneInstructions, want)
		}
		if got.Classes[ClassGlobalStore] != 2 || got.Classes[ClassControl] != 2*6 {
			t.Errorf("classes %v", got.Classes)
		}
	}
}
