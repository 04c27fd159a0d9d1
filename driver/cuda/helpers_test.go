package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"testing"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

var useGPU = flag.Bool("gpu", false, "run the tests that need an NVIDIA GPU")

// must returns a value, or ends the test if there is an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func needGPU(t testing.TB) {
	t.Helper()
	if !*useGPU {
		t.Skip("needs an NVIDIA GPU: run with -gpu")
	}
}

// gpu opens the first device, or skips the test.
func gpu(t testing.TB) *Device {
	t.Helper()
	needGPU(t)
	return openGPU(t, options{cacheDir: t.TempDir()})
}

// opener opens a device. The test closes it.
type opener func(testing.TB, options) *Device

func openGPU(t testing.TB, o options) *Device {
	t.Helper()
	d := must(openWith(0, o))(t)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d
}

// openFake returns the opener of a new fake libcuda. It is nil except on Linux.
var openFake func(testing.TB) opener

// each runs a test on the fake and on a GPU.
func each(t *testing.T, test func(*testing.T, opener)) {
	if openFake == nil {
		needGPU(t)
	}
	t.Run("fake", func(t *testing.T) {
		if openFake == nil {
			t.Skip("the fake libcuda needs Linux")
		}
		test(t, openFake(t))
	})
	t.Run("gpu", func(t *testing.T) {
		needGPU(t)
		test(t, openGPU)
	})
}

// pack lays out kernel parameters, each aligned to its size.
func pack(values ...any) []byte {
	var b []byte
	for _, v := range values {
		size := binary.Size(v)
		for len(b)%size != 0 {
			b = append(b, 0)
		}
		var w bytes.Buffer
		binary.Write(&w, binary.LittleEndian, v)
		b = append(b, w.Bytes()...)
	}
	return b
}

func words(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func kernel(t testing.TB, d *Device, name string) driver.Function {
	t.Helper()
	m := must(d.Load([]byte(kernels)))(t)
	return must(m.Function(name))(t)
}

func launchOf(f driver.Function, n, threads int, params []byte) driver.Launch {
	return driver.Launch{
		Function: f, Params: params,
		Grid:  driver.Dim3{X: uint32((n + threads - 1) / threads), Y: 1, Z: 1},
		Block: driver.Dim3{X: uint32(threads), Y: 1, Z: 1},
	}
}

func wantKind(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("got error %v, want one that is %v", err, kind)
	}
}
