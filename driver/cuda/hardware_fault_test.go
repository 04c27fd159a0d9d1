package cuda

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

const faultChild = "LOCKSTEP_CUDA_FAULT_CHILD"

// TestHardwareFault runs a child process, because a fault destroys the context of a process.
func TestHardwareFault(t *testing.T) {
	needGPU(t)
	for _, how := range []string{"fault", "healthy"} {
		cmd := exec.Command(os.Args[0], "-gpu", "-test.run=^TestHardwareFaultChild$", "-test.v")
		cmd.Env = append(os.Environ(), faultChild+"="+how)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestHardwareFaultChild") {
			t.Errorf("%s: %v\n%s", how, err, out)
		}
		t.Logf("%s", out)
	}
}

func TestHardwareFaultChild(t *testing.T) {
	how := os.Getenv(faultChild)
	if how == "" {
		t.Skip("started by TestHardwareFault")
	}
	d := must(openWith(0, options{noCache: true}))(t)
	f := kernel(t, d, "count_up")
	s := must(d.NewStream())(t)
	out := must(d.Alloc(256))(t)
	at := out.Address()
	if how == "fault" {
		at = 1 << 44
	}
	ok(t, s.Launch(launchOf(f, 64, 64, pack(at, uint32(64), uint32(0)))))
	err := s.Synchronize()
	if how == "healthy" {
		ok(t, err)
		ok(t, d.Close())
		return
	}
	t.Logf("the fault: %v", err)
	wantKind(t, err, driver.ErrDeviceLost)
	wantKind(t, d.Err(), driver.ErrDeviceLost)
	checkStaysLost(t, d, s)
	ok(t, out.Close())
	ok(t, s.Close())
	ok(t, d.Close())
	ok(t, d.Close())
	again, err := Open(0)
	t.Logf("opened again in the same process: %v", err)
	if err == nil {
		_, err := again.Alloc(256)
		t.Logf("allocation after that: %v", err)
		t.Logf("closing it: %v", again.Close())
	}
}

func checkStaysLost(t *testing.T, d *Device, s driver.Stream) {
	start := time.Now()
	const calls = 1000
	for range calls {
		if s.Synchronize() != d.Err() {
			t.Fatal("a later call did not fail with the cause")
		}
	}
	t.Logf("a later call fails in %v", time.Since(start)/calls)
	_, err := d.Alloc(1)
	wantKind(t, err, driver.ErrDeviceLost)
	_, err = d.Load([]byte(kernels))
	wantKind(t, err, driver.ErrDeviceLost)
}
