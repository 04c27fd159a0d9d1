package cuda

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/ptxlog/ptxlogtest"
)

func TestHardwareProperties(t *testing.T) {
	d := gpu(t)
	p := d.Properties()
	t.Logf("%+v uuid %s library %s", p, d.uuid, d.lib.path)
	if p.Name == "" || p.SMs < 1 || p.ComputeCapability < 50 || p.PTXVersion < 70 ||
		p.SharedPerCTA < 48<<10 || p.Memory < 1<<30 || p.L2 == 0 {
		t.Errorf("implausible: %+v", p)
	}
	free, total, err := d.Memory()
	if err != nil || free <= 0 || free > total {
		t.Errorf("memory: %d free of %d, %v; the device has %d", free, total, err, p.Memory)
	}
	for e := range entryCount {
		if d.lib.at[e] == 0 {
			t.Logf("this driver has no %s", e)
		}
	}
}

func TestHardwareAdd(t *testing.T) {
	d := gpu(t)
	f := kernel(t, d, "vector_add")
	s := must(d.NewStream())(t)
	// More than two staging slots, and a partial last slot.
	const n = (2*slotBytes+slotBytes/2)/4 + 3
	a, b := make([]byte, 4*n), make([]byte, 4*n)
	for i := range n {
		words(a)[i] = math.Float32bits(float32(i))
		words(b)[i] = math.Float32bits(float32(i) / 2)
	}
	var at [3]driver.Address
	for i := range at {
		at[i] = must(d.Alloc(4 * n))(t).Address()
		if at[i]%256 != 0 {
			t.Errorf("address %#x is not a multiple of 256", at[i])
		}
	}
	ok(t, s.Write(at[1], a))
	ok(t, s.Write(at[2], b))
	start, end := must(d.NewEvent())(t), must(d.NewEvent())(t)
	ok(t, s.Record(start))
	ok(t, s.Launch(launchOf(f, n, 256, pack(at[0], at[1], at[2], uint32(n)))))
	ok(t, s.Record(end))
	out := make([]byte, 4*n)
	ok(t, s.Read(out, at[0]))
	for i := range n {
		if got, want := math.Float32frombits(words(out)[i]), float32(i)+float32(i)/2; got != want {
			t.Fatalf("out[%d] = %v, want %v", i, got, want)
		}
	}
	took := must(end.Since(start))(t)
	if took <= 0 || took > time.Second {
		t.Errorf("the kernel took %v", took)
	}
	t.Logf("%d sums in %v", n, took)
}

func TestHardwareSharedAbove48K(t *testing.T) {
	d := gpu(t)
	f := kernel(t, d, "spread")
	s := must(d.NewStream())(t)
	out := must(d.Alloc(4 * 256))(t)
	most := d.Properties().SharedPerCTA
	for _, shared := range []int{16 << 10, 48 << 10, 48<<10 + 1024, 64 << 10, most} {
		far := shared / 256 &^ 3
		l := launchOf(f, 256, 256, pack(out.Address(), uint32(far)))
		l.Shared = uint32(shared)
		ok(t, s.Launch(l))
		got := make([]byte, 4*256)
		ok(t, s.Read(got, out.Address()))
		for i, v := range words(got) {
			if v != uint32(i) {
				t.Fatalf("%d bytes of shared memory: out[%d] = %d", shared, i, v)
			}
		}
	}
	l := launchOf(f, 256, 256, pack(out.Address(), uint32(4)))
	l.Shared = uint32(most + 1)
	err := s.Launch(l)
	t.Logf("one byte too many: %v", err)
	wantKind(t, err, driver.ErrInvalid)
	ok(t, s.Synchronize())
}

// placement is the text of a module. Its kernel writes two addresses: of 80 bytes of static shared memory,
// and of the dynamic shared memory after them, which is declared with the alignment %d.
const placement = `.version 7.4
.target sm_80
.address_size 64

.extern .shared .align %d .b8 sm[];

.visible .entry placement(.param .u64 out)
{
	.reg .b32 %%r<2>;
	.reg .b64 %%d;
	.shared .align 16 .b8 fixed[80];
	mov.u32 %%r0, fixed;
	mov.u32 %%r1, sm;
	st.shared.u32 [%%r0], %%r1;
	st.shared.u32 [%%r1], %%r0;
	ld.param.u64 %%d, [out];
	st.global.v2.u32 [%%d], {%%r0, %%r1};
	ret;
}
`

// TestHardwareDynamicShared checks that dynamic shared memory is aligned to 16 bytes, on which package
// ptx relies, if the driver's linker has compiled the kernel, if it comes from the cache, and if it is
// compiled without the linker. A larger alignment is logged: not all drivers heed it.
func TestHardwareDynamicShared(t *testing.T) {
	needGPU(t)
	dir := t.TempDir()
	for _, way := range []struct {
		name    string
		options options
	}{
		{"by the linker", options{cacheDir: dir}},
		{"from the cache", options{cacheDir: dir}},
		{"without the linker", options{noCache: true}},
	} {
		t.Run(way.name, func(t *testing.T) {
			d := openGPU(t, way.options)
			out, s := must(d.Alloc(8))(t), must(d.NewStream())(t)
			for _, align := range []int{16, 1024} {
				m := must(d.Load(fmt.Appendf(nil, placement, align)))(t)
				l := launchOf(must(m.Function("placement"))(t), 1, 1, pack(out.Address()))
				l.Shared = 4096
				ok(t, s.Launch(l))
				got := make([]byte, 8)
				ok(t, s.Read(got, out.Address()))
				fixed, dynamic := words(got)[0], words(got)[1]
				t.Logf("aligned to %d: static at %#x, dynamic at %#x, aligned as declared: %v", align, fixed, dynamic, dynamic%uint32(align) == 0)
				if dynamic%16 != 0 || dynamic < fixed+80 {
					t.Errorf("aligned to %d: dynamic shared memory at %#x, 80 bytes of static at %#x", align, dynamic, fixed)
				}
			}
		})
	}
}

// TestHardwareSlowKernels checks that the driver's log and the attributes of functions show which
// kernels its compiler made slow.
func TestHardwareSlowKernels(t *testing.T) {
	d := gpu(t)
	for _, text := range ptxlogtest.Texts() {
		t.Run(text.Name, func(t *testing.T) {
			switch cc := d.Properties().ComputeCapability; {
			case text.Linked:
				t.Skip("ptxas needs --compile-only for this warning")
			case text.Target() == "sm_90a" && cc != 90:
				t.Skipf("needs compute capability 9.0, not %d.%d", cc/10, cc%10)
			}
			d := openGPU(t, options{cacheDir: t.TempDir()})
			ptx := text.PTX + "// " + time.Now().String() + "\n" // new to the driver's own cache, which may have no log
			must(must(d.Load([]byte(ptx)))(t).Function("k"))(t)
			slow := d.SlowKernels()
			t.Logf("%q", slow)
			if (len(slow) > 0) != (text.Want != "") {
				t.Errorf("%q, want %q", slow, text.Want)
			}
		})
	}
}
