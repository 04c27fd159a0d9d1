package kernelcases

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/peak"
	"github.com/lockstep-go/lockstep/quant"
)

// peakCases test the kernels that measure a device. A measurement is valid only if the
// kernel does all of its work.
func peakCases() []harness.Case {
	var all []harness.Case
	for _, vectors := range []int{1, 255, 512*7 + 100, 512*8 - 1, 512 * 8, 512*17 + 3} {
		all = append(all, harness.Case{
			Operation: "read", Format: "U32", Name: fmt.Sprintf("plain/vec4=%d", vectors),
			Reason: "around a CTA's loads in flight, with a remainder",
			Run:    func(r *harness.Fixture) { checkReadPlain(r, vectors) },
		})
	}
	for _, chunks := range []int{1, 3, 4, 6, 13} {
		all = append(all, harness.Case{
			Operation: "read", Format: "U32", Name: fmt.Sprintf("bulk/chunks=%d", chunks),
			Reason: "each stage of the ring is last once, and the ring wraps",
			Run:    func(r *harness.Fixture) { checkReadBulk(r, chunks) },
		})
	}
	for _, iterations := range []int{0, 1, 5} {
		all = append(all, harness.Case{
			Operation: "mma.sync rate", Format: "BF16", Name: fmt.Sprintf("iterations=%d", iterations),
			Reason: "all products are computed",
			Run:    func(r *harness.Fixture) { checkMMARate(r, iterations) },
		}, harness.Case{
			Operation: "wgmma rate", Format: "F16", Name: fmt.Sprintf("iterations=%d", iterations),
			Reason: "all products of integers are computed, exactly",
			Run:    func(r *harness.Fixture) { checkWGMMARate(r, iterations) },
		})
	}
	return all
}

func checkReadPlain(r *harness.Fixture, vectors int) {
	const ctas = 2
	data := randomBytes(r, 16*vectors)
	spec := peak.Read()
	in, out := r.Bytes("in", data), r.Output("out", 4*256*ctas)
	r.Launch(spec.Launch(r.Kernel(spec), peak.ReadArgs{In: in.Addr(), Out: out.Addr(), Bytes: int64(len(data)), CTAs: ctas}))
	want := make([]uint32, 256*ctas)
	for i := range 4 * vectors {
		want[i/4%len(want)] ^= binary.LittleEndian.Uint32(data[4*i:])
	}
	harness.Exact(r, "out", out.U32s(), want)
}

func checkReadBulk(r *harness.Fixture, chunks int) {
	const ctas = 2
	spec := peak.BulkRead()
	if r.Properties().ComputeCapability < 90 {
		r.Skip("the copy engine begins with sm_90")
	}
	data := randomBytes(r, peak.BulkChunkBytes*chunks)
	in, out := r.Bytes("in", data), r.Output("out", 4*ctas)
	r.Launch(spec.Launch(r.Kernel(spec), peak.BulkReadArgs{In: in.Addr(), Out: out.Addr(), Chunks: chunks, CTAs: ctas}))
	want := make([]uint32, ctas)
	for i := range chunks {
		want[i%ctas] ^= binary.LittleEndian.Uint32(data[i*peak.BulkChunkBytes:])
	}
	harness.Exact(r, "out", out.U32s(), want)
}

func randomBytes(r *harness.Fixture, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Rand().Uint32())
	}
	return data
}

func checkMMARate(r *harness.Fixture, iterations int) {
	spec := peak.MMA()
	const threads = 256
	args := peak.MMAArgs{Iterations: iterations, CTAs: 2}
	out := r.Output("out", 4*threads*args.CTAs)
	args.Out = out.Addr()
	r.Launch(spec.Launch(r.Kernel(spec), args))
	// Each warp's products of 16×8×16 add 1 to each sum. Each lane of the warp stores the
	// total of a chain.
	want := make([]float32, threads*args.CTAs)
	for i := range want {
		want[i] = float32(args.FLOP() / 2 / (16 * 8) / float64(args.CTAs*threads/32))
	}
	harness.Exact(r, "out", out.F32s(), want)
}

// takesWarpgroups reports whether the device knows products of warpgroups.
func takesWarpgroups(r *harness.Fixture) bool {
	return kernelcache.MaxTarget(r.Properties()).HasWGMMA()
}

func checkWGMMARate(r *harness.Fixture, iterations int) {
	if !takesWarpgroups(r) {
		r.Skip("the device has no wgmma")
	}
	const rows, columns, depth, warpgroups = 64, 256, 64, 4
	integers := func(n int) []float32 { // float16 holds them, and float32 their sums of products
		list := make([]float32, n)
		for i := range list {
			list[i] = float32(r.Rand().IntN(63) - 31)
		}
		return list
	}
	a, b := integers(rows*depth), integers(columns*depth)
	spec := peak.WGMMA()
	args := peak.WGMMAArgs{Iterations: iterations, CTAs: warpgroups / 2}
	out := r.Output("out", 4*warpgroups*rows*columns)
	args.A, args.B, args.Out = r.Floats("a", quant.F16, a).Addr(), r.Floats("b", quant.F16, b).Addr(), out.Addr()
	r.Launch(spec.Launch(r.Kernel(spec), args))
	var want []float32
	for row := range rows {
		for column := range columns {
			sum := float32(0)
			for k := range depth {
				sum += float32(a[row*depth+k] * b[column*depth+k])
			}
			want = append(want, float32(iterations)*sum+0) // 0 and not -0 without iterations
		}
	}
	harness.Exact(r, "out", out.F32s(), slices.Repeat(want, warpgroups))
}
