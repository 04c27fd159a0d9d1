package emu

import (
	"fmt"
	"testing"
)

// BenchmarkWarpInstructions reports warp instructions per second of loops with one kind of
// instruction.
func BenchmarkWarpInstructions(b *testing.B) {
	for _, c := range []struct{ name, body string }{
		{"integer", "add.u32 %r3, %r3, %r1; xor.b32 %r4, %r3, %r1; mad.lo.u32 %r5, %r4, %r3, %r1; shr.u32 %r6, %r5, 3;"},
		{"fma", "fma.rn.f32 %f2, %f1, %f1, %f1; fma.rn.f32 %f3, %f1, %f1, %f2; fma.rn.f32 %f4, %f1, %f3, %f1; fma.rn.f32 %f5, %f4, %f1, %f1;"},
		{"shared", "ld.shared.u32 %r3, [%r10]; st.shared.u32 [%r10], %r3; ld.shared.u32 %r4, [%r10]; st.shared.u32 [%r10], %r4;"},
		{"global", "ld.global.nc.v4.u32 {%r3, %r4, %r5, %r6}, [%rd2]; ld.global.nc.u32 %r3, [%rd2];"},
		{"shuffle", "shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1; shfl.sync.bfly.b32 %r4, %r3, 2, 31, -1;"},
	} {
		for _, races := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/races=%v", c.name, races), func(b *testing.B) {
				body := `
	ld.param.u64 %rd2, [in]; mul.wide.u32 %rd3, %r1, 16; add.u64 %rd2, %rd2, %rd3;
	mov.u32 %r10, buf; shl.b32 %r9, %r1, 2; add.u32 %r10, %r10, %r9; st.shared.u32 [%r10], %r1;
	mov.u32 %r0, 0; mov.u32 %r3, 0; mov.f32 %f1, 0f3F800001;
LOOP:
` + c.body + `
	add.u32 %r0, %r0, 1;
	setp.lt.u32 %p1, %r0, 20000;
	@%p1 bra LOOP;`
				k := trapCase{args: []any{1}, decls: ".shared .align 8 .b8 buf[128];", body: body}
				total := uint64(0)
				for b.Loop() {
					_, d, err := kernelRun{opts: Options{Workers: 1, IgnoreRaces: !races}, ptx: k.faulty(), args: []any{32, same(128, 1)}}.runOnDevice(b)
					if err != nil {
						b.Fatal(err)
					}
					total += d.WarpInstructions()["k"]
				}
				b.ReportMetric(float64(total)/b.Elapsed().Seconds()/1e6, "Mwarp/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
