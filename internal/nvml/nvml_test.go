package nvml

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

const (
	meterUUID = "00112233445566778899aabbccddeeff"
	meterName = "GPU-00112233-4455-6677-8899-aabbccddeeff"
)

// fakeNVML is a GPU that draws 300 W and updates its counter every tick, on the clock of synctest.
type fakeNVML struct {
	tick     time.Duration
	start    time.Time
	opened   int
	failures map[string]Code
	reasons  uint64   // clock event reasons
	asked    []string // UUIDs
}

func (f *fakeNVML) library() *Library {
	return &Library{
		Init: func() Code {
			if c := f.failures[Init]; c != Success {
				return c
			}
			f.opened++
			return Success
		},
		Shutdown: func() Code { f.opened--; return f.failures[Shutdown] },
		HandleByUUID: func(uuid string, handle *uintptr) Code {
			f.asked = append(f.asked, uuid)
			*handle = 42
			return f.failures[HandleByUUID]
		},
		TotalEnergy: func(handle uintptr, millijoules *uint64) Code {
			if handle != 42 {
				return 2
			}
			ticks := time.Since(f.start) / f.tick
			*millijoules = 5_000_000 + 300*uint64((ticks*f.tick).Milliseconds())
			return f.failures[TotalEnergy]
		},
		ErrorString: func(c Code) string { return "in words" },

		ClockInfo: func(handle, domain uintptr, megahertz *uint32) Code {
			*megahertz = map[uintptr]uint32{clockSM: 1980, clockMemory: 3201}[domain]
			return f.failures[ClockInfo]
		},
		PowerUsage: func(handle uintptr, milliwatts *uint32) Code {
			*milliwatts = 640_500
			return f.failures[PowerUsage]
		},
		Temperature: func(handle, sensor uintptr, celsius *uint32) Code {
			*celsius = 61 + uint32(sensor)
			return f.failures[Temperature]
		},
		EventReasons: func(handle uintptr, reasons *uint64) Code {
			*reasons = f.reasons
			return f.failures[EventReasons]
		},
	}
}

func open(t *testing.T, f *fakeNVML) *Meter {
	t.Helper()
	m, err := f.library().Open(meterUUID)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func joules(t *testing.T, m *Meter) float64 {
	t.Helper()
	j, err := m.Joules()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestMeter(t *testing.T) {
	for _, tick := range []time.Duration{20 * time.Millisecond, 33 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeNVML{tick: tick, start: time.Now()}
			time.Sleep(7 * time.Millisecond) // not at an update
			m := open(t, f)
			if m.Tick() != tick {
				t.Errorf("tick %v, want %v", m.Tick(), tick)
			}
			if took := time.Since(f.start); took > 6*tick {
				t.Errorf("opening took %v with a tick of %v", took, tick)
			}
			before := joules(t, m)
			time.Sleep(100 * tick)
			if got, want := joules(t, m)-before, 300*(100*tick).Seconds(); got < want-1e-6 || got > want+1e-6 {
				t.Errorf("%g J, want %g", got, want)
			}
			if len(f.asked) != 1 || f.asked[0] != meterName {
				t.Errorf("asked for %q, want %s", f.asked, meterName)
			}
			if err := errors.Join(m.Close(), m.Close()); err != nil {
				t.Fatal(err)
			}
			if f.opened != 0 {
				t.Errorf("the library is still open %d times", f.opened)
			}
			if _, err := m.Joules(); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("Joules of a closed meter: %v", err)
			}
		})
	}
}

func TestMeterRefusals(t *testing.T) {
	for _, c := range []struct {
		name     string
		uuid     string
		tick     time.Duration
		function string // that fails
		code     Code
		kind     error
		want     string // part of the error
	}{
		{"no driver", meterUUID, 1, Init, 9, driver.ErrNoDriver, "NVML_ERROR_DRIVER_NOT_LOADED"},
		{"version mismatch", meterUUID, 1, Init, 18, driver.ErrNoDriver, "MISMATCH"},
		{"unknown device", meterUUID, 1, HandleByUUID, 6, driver.ErrNoDevice, "in words"},
		{"no counter", meterUUID, 1, TotalEnergy, 3, driver.ErrUnsupported, TotalEnergy},
		{"device lost", meterUUID, 1, TotalEnergy, 15, driver.ErrDeviceLost, "in words"},
		{"unknown code", meterUUID, 1, TotalEnergy, 77, nil, "nvmlReturn_t 77"},
		{"counter does not change", meterUUID, time.Hour, "", 0, driver.ErrUnsupported, "did not change within 1s"},
		{"no UUID", "", 1, "", 0, driver.ErrUnsupported, "UUID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeNVML{tick: c.tick, start: time.Now(), failures: map[string]Code{c.function: c.code}}
				m, err := f.library().Open(c.uuid)
				var refusal *driver.Error
				if m != nil || !errors.As(err, &refusal) || refusal.Kind != c.kind || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, %v; want %v with %q", m, err, c.kind, c.want)
				}
				if refusal != nil && refusal.Code != int(c.code) {
					t.Errorf("code %d, want %d", refusal.Code, c.code)
				}
				if f.opened != 0 {
					t.Errorf("the library is still open %d times", f.opened)
				}
			})
		})
	}
}

// TestMeterFailsLater checks that an error of Joules is not remembered.
func TestMeterFailsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNVML{tick: time.Millisecond, start: time.Now(), failures: map[string]Code{}}
		m := open(t, f)
		f.failures[TotalEnergy] = 999
		if _, err := m.Joules(); err == nil || !strings.Contains(err.Error(), "NVML_ERROR_UNKNOWN") {
			t.Errorf("error %v", err)
		}
		delete(f.failures, TotalEnergy)
		joules(t, m)
		f.failures[Shutdown] = 1
		if err := m.Close(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestCondition(t *testing.T) {
	all := Condition{SMClock: 1.98e9, MemoryClock: 3.201e9, Watts: 640.5, Celsius: 61}
	for _, c := range []struct {
		name    string
		fails   string // a function
		reasons uint64
		closed  bool
		want    func(c *Condition)
	}{
		{"all values", "", 0, false, func(*Condition) {}},
		{"idle", "", 1, false, func(*Condition) {}},
		{"power limit", "", 4, false, func(c *Condition) { c.Slowed = []string{"power limit"} }},
		{"two reasons", "", 0x8 | 0x40, false, func(c *Condition) { c.Slowed = []string{"hardware slowdown", "temperature, by hardware"} }},
		{"an unknown reason", "", 1 << 50, false, func(*Condition) {}},
		{"no clocks", ClockInfo, 0, false, func(c *Condition) { c.SMClock, c.MemoryClock = 0, 0 }},
		{"no power", PowerUsage, 0, false, func(c *Condition) { c.Watts = 0 }},
		{"no temperature", Temperature, 0, false, func(c *Condition) { c.Celsius = 0 }},
		{"no reasons", EventReasons, 4, false, func(*Condition) {}},
		{"closed", "", 4, true, func(c *Condition) { *c = Condition{} }},
	} {
		f := &fakeNVML{tick: 1, reasons: c.reasons, failures: map[string]Code{}}
		if c.fails != "" {
			f.failures[c.fails] = 3
		}
		m := &Meter{library: f.library(), handle: 42, closed: c.closed}
		want := all
		c.want(&want)
		if got := m.Condition(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}

// TestReasons checks that the reasons are distinct bits in ascending order, with distinct texts.
func TestReasons(t *testing.T) {
	words := map[string]bool{}
	for _, r := range slowReasons {
		if r.bit&(r.bit-1) != 0 || r.bit < 2 || r.text == "" || words[r.text] {
			t.Errorf("%#x: %q", r.bit, r.text)
		}
		words[r.text] = true
	}
	if !slices.IsSortedFunc(slowReasons, func(a, b slowReason) int { return int(a.bit) - int(b.bit) }) {
		t.Error("not in ascending order")
	}
}
