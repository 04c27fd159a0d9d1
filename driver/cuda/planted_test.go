package cuda

import (
	"flag"
	"testing"
)

var planted = flag.String("planted", "", "run a kernel with a fault for this tool of compute-sanitizer: memcheck, racecheck, initcheck or synccheck")

// plantedKernels has a kernel per tool, with the fault that it reports.
const plantedKernels = `.version 7.4
.target sm_80
.address_size 64

// Stores past the end of out.
.visible .entry memcheck(.param .u64 out)
{
	.reg .b64 %o;
	.reg .b32 %x;
	ld.param.u64 %o, [out];
	mov.u32 %x, %tid.x;
	st.global.u32 [%o+1048576], %x;
	ret;
}

// Every thread writes one shared word and thread 0 reads it, without a barrier.
.visible .entry racecheck(.param .u64 out)
{
	.reg .pred %p;
	.reg .b64 %o;
	.reg .b32 %x, %a;
	.shared .align 4 .b8 word[4];
	ld.param.u64 %o, [out];
	mov.u32 %x, %tid.x;
	mov.u32 %a, word;
	st.shared.u32 [%a], %x;
	setp.eq.u32 %p, %x, 0;
	@%p ld.shared.u32 %x, [%a];
	@%p st.global.u32 [%o], %x;
	ret;
}

// Reads uninitialized memory.
.visible .entry initcheck(.param .u64 out)
{
	.reg .b64 %o;
	.reg .b32 %x;
	ld.param.u64 %o, [out];
	ld.global.u32 %x, [%o+128];
	st.global.u32 [%o], %x;
	ret;
}

// The two halves of a warp execute different barriers.
.visible .entry synccheck(.param .u64 out)
{
	.reg .pred %p;
	.reg .b64 %o;
	.reg .b32 %x;
	ld.param.u64 %o, [out];
	mov.u32 %x, %laneid;
	setp.lt.u32 %p, %x, 16;
	@%p bra $low;
	bar.sync 0;
	bra $end;
$low:
	st.global.u32 [%o], %x;
	bar.sync 0;
$end:
	ret;
}
`

// TestPlantedFault runs under each tool of compute-sanitizer, and tools/gpu checks that the tool
// reports the fault. This shows that the tools see kernels of a program without cgo. The test
// itself checks nothing.
func TestPlantedFault(t *testing.T) {
	if *planted == "" {
		t.Skip("runs under compute-sanitizer: see tools/gpu")
	}
	d := must(openWith(0, options{noCache: true}))(t)
	m := must(d.Load([]byte(plantedKernels)))(t)
	f := must(m.Function(*planted))(t)
	s := must(d.NewStream())(t)
	out := must(d.Alloc(256))(t)
	ok(t, s.Launch(launchOf(f, 64, 64, pack(out.Address()))))
	t.Logf("%s: %v", *planted, s.Synchronize())
}
