package cuda

import (
	"errors"
	"reflect"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-go/lockstep/driver"
)

// The library's functions are called by its own convention.
func TestNVMLCalls(t *testing.T) {
	words := []byte("Not Supported\x00")
	var asked string
	functions := map[string]any{
		nvmlInit:     func() uintptr { return 0 },
		nvmlShutdown: func() uintptr { return 1 << 40 }, // what is above an enum does not count
		nvmlByUUID:   func(uuid *byte, handle *uintptr) uintptr { asked, *handle = cString(uuid), 1<<60+1; return 0 },
		nvmlEnergy: func(handle uintptr, millijoules *uint64) uintptr {
			if handle != 1<<60+1 {
				return 2
			}
			*millijoules = 1<<40 + 7
			return 3
		},
		nvmlText: func(c uintptr) unsafe.Pointer { return unsafe.Pointer(&words[0]) },

		nvmlClockInfo:   func(_, domain uintptr, megahertz *uint32) uintptr { *megahertz = 1<<31 + uint32(domain); return 0 },
		nvmlTemperature: func(_, sensor uintptr, celsius *uint32) uintptr { *celsius = 60 + uint32(sensor); return 0 },
		nvmlSlowed:      func(_ uintptr, reasons *uint64) uintptr { *reasons = 1<<40 + 4; return 0 },
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
	if c := l.init(); c != nvmlSuccess {
		t.Errorf("init: %d", c)
	}
	if c := l.byUUID(meterName, &handle); c != nvmlSuccess || asked != meterName {
		t.Errorf("by UUID: %d, asked for %q", c, asked)
	}
	c := l.energy(handle, &millijoules)
	if c != 3 || millijoules != 1<<40+7 {
		t.Errorf("energy: %d, %d mJ", c, millijoules)
	}
	wantKind(t, l.refusal(nvmlEnergy, c), driver.ErrUnsupported)
	if text := l.text(c); text != "Not Supported" {
		t.Errorf("in words: %q", text)
	}
	m := &Meter{library: l, handle: handle}
	want := Condition{SMClock: (1<<31 + 1) * 1e6, MemoryClock: (1<<31 + 2) * 1e6, Celsius: 60, Slowed: []string{"power limit"}}
	if got := m.Condition(); !reflect.DeepEqual(got, want) { // the library lacks the function for the power
		t.Errorf("condition %+v, want %+v", got, want)
	}
	if c := l.shutdown(); c != nvmlSuccess {
		t.Errorf("shutdown: %d", c)
	}
}
