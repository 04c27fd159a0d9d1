package cuda

import (
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
