package cuda

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-go/lockstep/internal/nvml"
)

// TestNVMLCalls checks the C calling convention of each function.
func TestNVMLCalls(t *testing.T) {
	words := []byte("Not Supported\x00")
	var asked string
	functions := map[string]any{
		nvml.Init:         func() uintptr { return 0 },
		nvml.Shutdown:     func() uintptr { return 1 << 40 }, // the upper half of an enum's register is ignored
		nvml.HandleByUUID: func(uuid *byte, handle *uintptr) uintptr { asked, *handle = cString(uuid), 1<<60+1; return 0 },
		nvml.TotalEnergy: func(handle uintptr, millijoules *uint64) uintptr {
			if handle != 1<<60+1 {
				return 2
			}
			*millijoules = 1<<40 + 7
			return 3
		},
		nvml.ErrorString: func(c uintptr) unsafe.Pointer { return unsafe.Pointer(&words[0]) },

		nvml.ClockInfo:    func(_, domain uintptr, megahertz *uint32) uintptr { *megahertz = 1<<31 + uint32(domain); return 0 },
		nvml.Temperature:  func(_, sensor uintptr, celsius *uint32) uintptr { *celsius = 60 + uint32(sensor); return 0 },
		nvml.EventReasons: func(_ uintptr, reasons *uint64) uintptr { *reasons = 1<<40 + 4; return 0 },
	}
	f := finder{
		paths: func() []string { return []string{"fake"} },
		open:  func(string) (uintptr, error) { return 1, nil },
		symbol: func(_ uintptr, name string) (uintptr, error) {
			if functions[name] == nil {
				return 0, errors.New("undefined")
			}
			return purego.NewCallback(functions[name]), nil
		},
	}
	l := must(f.findNVML())(t)
	var handle uintptr
	var millijoules uint64
	if c := l.Init(); c != nvml.Success {
		t.Errorf("init: %d", c)
	}
	if c := l.HandleByUUID("GPU-name", &handle); c != nvml.Success || asked != "GPU-name" {
		t.Errorf("by UUID: %d, asked for %q", c, asked)
	}
	c := l.TotalEnergy(handle, &millijoules)
	if c != 3 || millijoules != 1<<40+7 {
		t.Errorf("energy: %d, %d mJ", c, millijoules)
	}
	if text := l.ErrorString(c); text != "Not Supported" {
		t.Errorf("in words: %q", text)
	}
	var n uint32
	var reasons uint64
	if c := l.ClockInfo(handle, 1, &n); c != nvml.Success || n != 1<<31+1 {
		t.Errorf("clock: %d, %d MHz", c, n)
	}
	if c := l.Temperature(handle, 3, &n); c != nvml.Success || n != 63 {
		t.Errorf("temperature: %d, %d °C", c, n)
	}
	if c := l.EventReasons(handle, &reasons); c != nvml.Success || reasons != 1<<40+4 {
		t.Errorf("reasons: %d, %#x", c, reasons)
	}
	if c := l.PowerUsage(handle, &n); c != nvml.FunctionNotFound {
		t.Errorf("a function that the library lacks: %d", c)
	}
	if c := l.Shutdown(); c != nvml.Success {
		t.Errorf("shutdown: %d", c)
	}
}

// TestReasonsByEitherName checks that the reasons are read by the function that the library exports.
func TestReasonsByEitherName(t *testing.T) {
	reports := func(reasons uint64) uintptr {
		return purego.NewCallback(func(_ uintptr, to *uint64) uintptr { *to = reasons; return 0 })
	}
	required := purego.NewCallback(func() uintptr { return 0 })
	current, old := reports(4), reports(8)
	for _, c := range []struct {
		name    string
		exports map[string]uintptr
		want    uint64
		code    nvml.Code
	}{
		{"both", map[string]uintptr{nvml.EventReasons: current, nvml.ThrottleReasons: old}, 4, nvml.Success},
		{"a driver before 535", map[string]uintptr{nvml.ThrottleReasons: old}, 8, nvml.Success},
		{"neither", nil, 0, nvml.FunctionNotFound},
	} {
		f := finder{
			open: func(string) (uintptr, error) { return 1, nil },
			symbol: func(_ uintptr, name string) (uintptr, error) {
				switch at := c.exports[name]; {
				case at != 0:
					return at, nil
				case strings.HasSuffix(name, "Reasons"):
					return 0, errors.New("undefined")
				}
				return required, nil
			},
		}
		l := must(f.loadNVML("fake"))(t)
		var got uint64
		if code := l.EventReasons(42, &got); code != c.code || got != c.want {
			t.Errorf("%s: %d, code %d; want %d, code %d", c.name, got, code, c.want, c.code)
		}
	}
}
