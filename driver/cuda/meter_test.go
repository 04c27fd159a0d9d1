package cuda

import (
	"errors"
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

// fakeNVML counts 300 W in ticks, on the clock of the test's bubble.
type fakeNVML struct {
	tick     time.Duration
	start    time.Time
	opened   int
	failures map[string]nvmlCode
	reasons  uint64   // for the clocks
	asked    []string // for devices
}

func (f *fakeNVML) table() *nvml {
	return &nvml{
		init: func() nvmlCode {
			if c := f.failures[nvmlInit]; c != nvmlSuccess {
				return c
			}
			f.opened++
			return nvmlSuccess
		},
		shutdown: func() nvmlCode { f.opened--; return f.failures[nvmlShutdown] },
		byUUID: func(uuid string, handle *uintptr) nvmlCode {
			f.asked = append(f.asked, uuid)
			*handle = 42
			return f.failures[nvmlByUUID]
		},
		energy: func(handle uintptr, millijoules *uint64) nvmlCode {
			if handle != 42 {
				return 2
			}
			ticks := time.Since(f.start) / f.tick
			*millijoules = 5_000_000 + 300*uint64((ticks*f.tick).Milliseconds())
			return f.failures[nvmlEnergy]
		},
		text: func(c nvmlCode) string { return "in words" },

		clock: func(handle, domain uintptr, megahertz *uint32) nvmlCode {
			*megahertz = map[uintptr]uint32{nvmlSMClock: 1980, nvmlMemoryClock: 3201}[domain]
			return f.failures[nvmlClockInfo]
		},
		power: func(handle uintptr, milliwatts *uint32) nvmlCode {
			*milliwatts = 640_500
			return f.failures[nvmlPower]
		},
		temperature: func(handle, sensor uintptr, celsius *uint32) nvmlCode {
			*celsius = 61 + uint32(sensor)
			return f.failures[nvmlTemperature]
		},
		slowed: func(handle uintptr, reasons *uint64) nvmlCode {
			*reasons = f.reasons
			return f.failures[nvmlSlowed]
		},
	}
}

func TestMeter(t *testing.T) {
	for _, tick := range []time.Duration{20 * time.Millisecond, 33 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeNVML{tick: tick, start: time.Now()}
			time.Sleep(7 * time.Millisecond) // between two ticks
			m := must(f.table().meter(meterUUID))(t)
			if m.Tick() != tick {
				t.Errorf("ticks of %v, want %v", m.Tick(), tick)
			}
			if took := time.Since(f.start); took > 6*tick {
				t.Errorf("opening took %v at ticks of %v", took, tick)
			}
			before := must(m.Joules())(t)
			time.Sleep(100 * tick)
			if got, want := must(m.Joules())(t)-before, 300*(100*tick).Seconds(); got < want-1e-6 || got > want+1e-6 {
				t.Errorf("%g J, want %g", got, want)
			}
			if len(f.asked) != 1 || f.asked[0] != meterName {
				t.Errorf("asked for %q, want %s", f.asked, meterName)
			}
			ok(t, m.Close())
			ok(t, m.Close())
			if f.opened != 0 {
				t.Errorf("the library is still open %d times", f.opened)
			}
			_, err := m.Joules()
			wantKind(t, err, driver.ErrInvalid)
		})
	}
}

func TestMeterRefusals(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		uuid         string
		tick         time.Duration
		function     string
		code         nvmlCode
		kind         error
		says         string
	}{
		{"no driver", "the library is there and the driver is not", meterUUID, 1, nvmlInit, 9, driver.ErrNoDriver, "NVML_ERROR_DRIVER_NOT_LOADED"},
		{"another driver", "it was replaced while it ran", meterUUID, 1, nvmlInit, 18, driver.ErrNoDriver, "MISMATCH"},
		{"unknown device", "it is not shown to this process", meterUUID, 1, nvmlByUUID, 6, driver.ErrNoDevice, "in words"},
		{"no count", "older GPUs have none", meterUUID, 1, nvmlEnergy, 3, driver.ErrUnsupported, nvmlEnergy},
		{"lost", "it fell off the bus", meterUUID, 1, nvmlEnergy, 15, driver.ErrDeviceLost, "in words"},
		{"unheard-of code", "a driver newer than the table", meterUUID, 1, nvmlEnergy, 77, nil, "nvmlReturn_t 77"},
		{"still", "a count that does not move tells nothing", meterUUID, time.Hour, "", 0, driver.ErrUnsupported, "did not move within 1s"},
		{"no UUID", "nothing to ask by", "", 1, "", 0, driver.ErrUnsupported, "UUID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeNVML{tick: c.tick, start: time.Now(), failures: map[string]nvmlCode{c.function: c.code}}
				m, err := f.table().meter(c.uuid)
				var refusal *driver.Error
				if m != nil || !errors.As(err, &refusal) || refusal.Kind != c.kind || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v, %v; want %v that says %q", c.reason, m, err, c.kind, c.says)
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

// A count that fails later is an error then, and one that is heard again is not.
func TestMeterFailsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNVML{tick: time.Millisecond, start: time.Now(), failures: map[string]nvmlCode{}}
		m := must(f.table().meter(meterUUID))(t)
		f.failures[nvmlEnergy] = 999
		if _, err := m.Joules(); err == nil || !strings.Contains(err.Error(), "NVML_ERROR_UNKNOWN") {
			t.Errorf("error %v", err)
		}
		delete(f.failures, nvmlEnergy)
		must(m.Joules())(t)
		f.failures[nvmlShutdown] = 1
		wantKind(t, m.Close(), driver.ErrInvalid)
	})
}

func TestFindNVML(t *testing.T) {
	for _, p := range nvmlFinder().paths() {
		if !strings.Contains(p, "libnvidia-ml.so") && !strings.HasSuffix(p, `\nvml.dll`) {
			t.Errorf("path %q is not an NVML", p)
		}
	}
	for _, c := range []struct {
		name, reason string
		paths        []string
		open         error
		lacks        string
		says         string // "" if it is found
	}{
		{"nowhere", "NVIDIA makes no driver for the system", nil, nil, "", "no NVML: there is none"},
		{"absent", "a container without it", []string{"liba", "libb"}, errors.New("liba: no such file"), "", "no NVML: tried 2 places, first liba: no such file"},
		{"older", "before GPUs counted energy", []string{"liba"}, nil, nvmlEnergy, "liba: it exports no " + nvmlEnergy},
		{"there", "every function is", []string{"liba"}, nil, "", ""},
		{"without clocks", "energy does not take them", []string{"liba"}, nil, nvmlClockInfo, ""},
	} {
		f := finder{
			paths: func() []string { return c.paths },
			open:  func(string) (uintptr, error) { return 1, c.open },
			symbol: func(_ uintptr, name string) (uintptr, error) {
				if name == c.lacks {
					return 0, errors.New("undefined")
				}
				return 1, nil
			},
		}
		l, err := f.findNVML()
		if c.says == "" {
			if err != nil || l == nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		wantKind(t, err, ErrNoNVML)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s (%s): %v, want it to say %q", c.name, c.reason, err, c.says)
		}
	}
}

func TestHardwareMeter(t *testing.T) {
	d := gpu(t)
	m := must(d.Meter())(t)
	defer func() { ok(t, m.Close()) }()
	before, begin := must(m.Joules())(t), time.Now()
	time.Sleep(20 * m.Tick())
	watts := (must(m.Joules())(t) - before) / time.Since(begin).Seconds()
	now := m.Condition()
	t.Logf("the count moves every %v; %.0f W without work; %+v", m.Tick(), watts, now)
	if c, h := now.SMClock, now.Celsius; c != 0 && (c < 1e8 || c > 1e10) || h > 120 || now.Watts > 2000 {
		t.Errorf("implausible: %+v", now)
	}
	if m.Tick() < time.Millisecond || watts < 5 || watts > 2000 {
		t.Errorf("implausible: ticks of %v, %g W", m.Tick(), watts)
	}
}
