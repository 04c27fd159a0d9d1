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

// Why clocks are held down is asked by the name that a library has for it.
func TestReasonsByEitherName(t *testing.T) {
	tells := func(reasons uint64) uintptr {
		return purego.NewCallback(func(_ uintptr, to *uint64) uintptr { *to = reasons; return 0 })
	}
	now, before := tells(4), tells(8)
	for _, c := range []struct {
		name, reason string
		exports      map[string]uintptr
		want         uint64
		code         nvmlCode
	}{
		{"both", "the name of today goes first", map[string]uintptr{nvmlSlowed: now, nvmlThrottled: before}, 4, nvmlSuccess},
		{"older", "a driver before 535", map[string]uintptr{nvmlThrottled: before}, 8, nvmlSuccess},
		{"neither", "it is refused, not called", nil, 0, nvmlNoFunction},
	} {
		f := finder{symbol: func(_ uintptr, name string) (uintptr, error) {
			if c.exports[name] == 0 {
				return 0, errors.New("undefined")
			}
			return c.exports[name], nil
		}}
		var l nvml
		f.loadCondition(1, &l)
		var got uint64
		if code := l.slowed(42, &got); code != c.code || got != c.want {
			t.Errorf("%s (%s): %d, code %d; want %d, code %d", c.name, c.reason, got, code, c.want, c.code)
		}
	}
}
