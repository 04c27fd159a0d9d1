package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/atomicfile"
	"github.com/lockstep-go/lockstep/internal/faultinject"
)

// asCommand is set in the environment of a process of this program that is the command. It
// prints startedText to standard error first.
const (
	asCommand   = "LOCKSTEP_TEST_COMMAND"
	startedText = "started\n"

	// stuckCommand is a command that writes a file, without end and without a context.
	stuckCommand = "stuck"
)

// TestMain hides the GPU of the machine from the tests.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		fmt.Fprint(os.Stderr, startedText)
		if os.Args[1] == stuckCommand {
			interruptible()
			atomicfile.Write(os.Args[2], func(io.Writer) error { select {} })
		}
		main()
	}
	openGPU = withoutDriver
	os.Exit(m.Run())
}

func withoutDriver() (driver.Device, error) {
	return nil, fmt.Errorf("%w; tried libcuda.so.1", driver.ErrNoDriver)
}

// gpu replaces the GPU by an emulated device, or by an error.
func gpu(t *testing.T, o emu.Options, err error) {
	t.Helper()
	openGPU = func() (driver.Device, error) {
		if err != nil {
			return nil, err
		}
		dev, err := emu.Open(o)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() {
			if live := dev.Live(); live != (emu.Live{}) {
				t.Errorf("left on the device: %+v", live)
			}
		})
		return dev, nil
	}
	t.Cleanup(func() { openGPU = withoutDriver })
}

// weak is a GPU with a compute capability that is too low.
type weak struct{ driver.Device }

func (w weak) Properties() driver.Properties {
	p := w.Device.Properties()
	p.ComputeCapability = 75
	return p
}

// slowStart is a GPU that does not cache its kernels.
type slowStart struct{ driver.Device }

func (slowStart) CacheError() error {
	return errors.New("cuda: the kernel cache is not used: /home: it is open")
}

func (slowStart) SlowKernels() []error { return nil }

// slowKernels is a GPU whose compiler made two kernels slow.
type slowKernels struct{ driver.Device }

func (slowKernels) CacheError() error { return nil }

func (slowKernels) SlowKernels() []error {
	return []error{errors.New("cuda: kernel a is slow: C7515"), errors.New("cuda: kernel b is slow: 8 bytes of local memory per thread")}
}

// The command says why a GPU does not cache its kernels.
func TestDeviceWithoutCache(t *testing.T) {
	gpu(t, smallGPU, nil)
	open := openGPU
	openGPU = func() (driver.Device, error) { dev, err := open(); return slowStart{weak{dev}}, err } // so that no kernel runs
	for _, command := range []string{"generate --device gpu x", "plan --device gpu", "diff --device gpu", "bench --device gpu"} {
		r := runCommand(t, "", strings.Fields(command)...)
		if !strings.HasPrefix(r.err, "cuda: the kernel cache is not used: /home: it is open\n") {
			t.Errorf("%s: standard error %q", command, r.err)
		}
	}
}

// The command ends with the kernels that the GPU's compiler made slow, also if it fails, and they do not make it
// fail.
func TestDeviceWithSlowKernels(t *testing.T) {
	const slow = "cuda: kernel a is slow: C7515\ncuda: kernel b is slow: 8 bytes of local memory per thread\n"
	gpu(t, smallGPU, nil)
	open := openGPU
	openGPU = func() (driver.Device, error) { dev, err := open(); return slowKernels{dev}, err }
	r := succeed(t, "", "generate", "--device", "gpu", "--temperature", "0", "--max-tokens", "1", "Well, Prince,")
	if !strings.HasSuffix(r.err, slow) {
		t.Errorf("standard error %q, want it to end with %q", r.err, slow)
	}
	openGPU = func() (driver.Device, error) { dev, err := open(); return slowKernels{weak{dev}}, err }
	r = runCommand(t, "", "generate", "--device", "gpu", "x")
	if !strings.Contains(r.err, slow+"lockstep: ") {
		t.Errorf("standard error %q, want %q before the error", r.err, slow)
	}
}

var smallGPU = emu.Options{SMs: 4, IgnoreRaces: true}

func TestDeviceAuto(t *testing.T) {
	tiny := smallGPU
	tiny.Memory = 1 << 20
	tests := []struct {
		name, reason string
		device       emu.Options
		err          error
		weak         bool
		gpu          bool // is selected
		want         []string
	}{
		{"no driver", "a machine without a GPU: no message", smallGPU, driver.ErrNoDriver, false, false, nil},
		{"no device", "a driver without a GPU: a message", smallGPU, fmt.Errorf("device 0 of 0: %w", driver.ErrNoDevice), false, false, []string{"device: cpu", "device 0 of 0"}},
		{"fits", "the model fits", smallGPU, nil, false, true, []string{"device: gpu", "emulated sm_90", "free"}},
		{"too large", "the model does not", tiny, nil, false, false, []string{"device: cpu", "out of device memory", "of 1048576 free"}},
		{"old", "the kernels need newer instructions", smallGPU, nil, true, false, []string{"device: cpu", "compute capability", "7.5"}},
	}
	cpu := succeed(t, "", "generate", "--device", "cpu", "--temperature", "0", "--max-tokens", "2", "Well, Prince,")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gpu(t, tt.device, tt.err)
			if open := openGPU; tt.weak {
				openGPU = func() (driver.Device, error) { dev, err := open(); return weak{dev}, err }
			}
			r := succeed(t, "", "generate", "--trace", "--temperature", "0", "--max-tokens", "2", "Well, Prince,")
			if r.out != cpu.out {
				t.Errorf("%s: %q, on the CPU %q", tt.reason, r.out, cpu.out)
			}
			if taken := strings.Contains(r.err, "kernels of the prompt"); taken != tt.gpu {
				t.Errorf("%s: the GPU is selected: %v, want %v; standard error %q", tt.reason, taken, tt.gpu, r.err)
			}
			for _, s := range tt.want {
				if !strings.Contains(r.err, s) {
					t.Errorf("%s: standard error %q has no %q", tt.reason, r.err, s)
				}
			}
			if noted := strings.HasPrefix(r.err, "device: "); noted != (len(tt.want) > 0) {
				t.Errorf("%s: standard error begins with the device: %v: %q", tt.reason, noted, r.err)
			}
		})
	}
}

// --device gpu never falls back to the CPU.
func TestDeviceGPU(t *testing.T) {
	commands := map[string][]string{
		"generate":   {"generate", "Well,"},
		"logits":     {"logits", "--tokens", "1", "--out", filepath.Join(t.TempDir(), "out.npy")},
		"perplexity": {"perplexity", "--text", "main.go"},
		"plan":       {"plan"},
	}
	for name, args := range commands {
		t.Run(name, func(t *testing.T) {
			args := append(args, "--device", "gpu")
			refused(t, runCommand(t, "", args...), exitError, "--device gpu", "no GPU driver", "libcuda.so.1")
			gpu(t, smallGPU, fmt.Errorf("device 0 of 0: %w", driver.ErrNoDevice))
			refused(t, runCommand(t, "", args...), exitError, "--device gpu", "no such device")
		})
	}
	gpu(t, emu.Options{Memory: 1 << 20}, nil)
	refused(t, runCommand(t, "", append(commands["generate"], "--device", "gpu")...), exitError, "--device gpu", "the embedded model", "out of device memory")
}

// A missing driver is reported in one line; --verbose lists where it was searched.
func TestNoDriverIsOneLine(t *testing.T) {
	missing := &cuda.LibraryError{Kind: driver.ErrNoDriver, Tried: []string{"liba: gone", "/b/lib\nb: gone", "libc: no driver at all"}}
	places := []string{"", "  liba: gone", "  /b/lib; b: gone", "  libc: no driver at all", ""}
	gpu(t, smallGPU, missing)
	const short = "cuda: no GPU driver: tried 3 places, first liba: gone"
	refused(t, runCommand(t, "", "plan", "--device", "gpu"), exitError, "--device gpu: "+short+" (-v lists them)\n")
	for _, tt := range []struct {
		name, reason string
		args         []string
		status       int
		want         string // of standard error, its beginning
	}{
		{"gpu", "the error, and the places", []string{"plan", "--device", "gpu", "-v"}, exitError, "lockstep: --device gpu: " + short},
		{"auto", "why it is the CPU", []string{"-v", "logits", "--model", silentModel, "--tokens", "1", "--out", filepath.Join(t.TempDir(), "out.npy")}, exitOK, "device: cpu, GPU not used: " + short},
	} {
		if r := runCommand(t, "", tt.args...); r.status != tt.status || r.err != tt.want+strings.Join(places, "\n") {
			t.Errorf("%s (%s): status %d, standard error %q", tt.name, tt.reason, r.status, r.err)
		}
	}
	gpu(t, smallGPU, &cuda.LibraryError{Kind: driver.ErrNoDriver})
	if r := runCommand(t, "", "plan", "--device", "gpu"); strings.Contains(r.err, "-v") {
		t.Errorf("there is no list to point to, but %q", r.err)
	}
}

// auto reports an error of a GPU that it selected, but falls back to the CPU if the memory
// does not suffice.
func TestDeviceAutoFails(t *testing.T) {
	tests := []struct {
		name, reason string
		plan         faultinject.Plan
		status       int
		want         string
	}{
		{"copy", "while the model is uploaded", faultinject.Plan{Call: faultinject.StreamWriteAsync, N: 1}, exitError, "--device auto: the embedded model: emulated sm_90"},
		{"launch", "while the prompt is computed", faultinject.Plan{Call: faultinject.StreamLaunch, N: 1}, exitError, "faultinject"},
		{"memory", "less than was free a moment before", faultinject.Plan{Call: faultinject.DeviceAlloc, N: 3, Kind: driver.ErrOutOfMemory}, exitOK, "device: cpu, GPU not used: emulated sm_90"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gpu(t, smallGPU, nil)
			open := openGPU
			openGPU = func() (driver.Device, error) {
				inner, err := open()
				if err != nil {
					return nil, err
				}
				dev := faultinject.New(inner)
				dev.Fail(tt.plan)
				return dev, nil
			}
			r := runCommand(t, "", "generate", "--max-tokens", "1", "Well,")
			if r.status != tt.status || !strings.Contains(r.err, tt.want) || (r.out == "") != (tt.status == exitError) {
				t.Errorf("%s: status %d, output %q, standard error %q", tt.reason, r.status, r.out, r.err)
			}
		})
	}
}

// The logits of a device equal those of the reference up to rounding. Each cache format
// gives other bits, except that the f16 prefill rounds f32 to f16.
func TestDeviceLogits(t *testing.T) {
	logits := func(args ...string) []float32 {
		out := filepath.Join(t.TempDir(), "out.npy")
		r := succeed(t, "", append([]string{"logits", "--model", silentModel, "--tokens", "5,8,11,14,17,20,23,26,29,32,35,38,41,44,47,50,53", "--out", out}, args...)...)
		if r.out != "" || r.err != "" {
			t.Errorf("%q: output %q, standard error %q", args, r.out, r.err)
		}
		_, data := readNPY(t, out)
		return data
	}
	want := logits()
	for _, device := range []string{"cpu", "emu"} {
		seen := map[string]string{}
		for kv, most := range map[string]float64{"f16": 2e-3, "bf16": 1e-2, "f32": 2e-3} {
			if device == "emu" && kv == "f32" {
				continue // refused
			}
			got := logits("--device", device, "--kv", kv)
			if e := relative(want, got); !(e <= most) {
				t.Errorf("--device %s --kv %s: relative L2 %.2g", device, kv, e)
			}
			bits := fmt.Sprint(got)
			if other, ok := seen[bits]; ok {
				t.Errorf("--device %s: --kv %s and %s give the same bits", device, kv, other)
			}
			seen[bits] = kv
		}
	}
	if got := logits("--device", "cpu", "--kv", "f32"); relative(want, got) != 0 {
		t.Error("the CPU's cache is not f32 by default")
	}
}

// relative returns the relative L2 of the difference.
func relative(want, got []float32) float64 {
	off, all := 0.0, 0.0
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		off, all = off+float64(d*d), all+float64(w)*float64(w)
	}
	return math.Sqrt(off / all)
}

// The perplexities of the CPU and a device agree.
func TestDevicePerplexity(t *testing.T) {
	text := put(t, "text", "Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes.")
	var cpu, dev float64
	for device, to := range map[string]*float64{"cpu": &cpu, "emu": &dev} {
		r := succeed(t, "", "perplexity", "--device", device, "--kv", "f16", "--text", text)
		if _, err := fmt.Sscanf(r.out, "perplexity %f", to); err != nil {
			t.Fatalf("%q: %v", r.out, err)
		}
	}
	if !(math.Abs(dev/cpu-1) < 1e-3) || cpu == 0 {
		t.Errorf("perplexity %g on the device, %g on the CPU", dev, cpu)
	}
}
