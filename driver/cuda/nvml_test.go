package cuda

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/nvml"
)

func TestFindNVML(t *testing.T) {
	for _, p := range nvmlFinder().paths() {
		if !strings.Contains(p, "libnvidia-ml.so") && !strings.HasSuffix(p, `\nvml.dll`) {
			t.Errorf("path %q is not a path of NVML", p)
		}
	}
	for _, c := range []struct {
		name  string
		paths []string
		open  error
		lacks string
		want  string // part of the error; "": found
	}{
		{"no paths", nil, nil, "", "no NVML: there is none"},
		{"no file", []string{"liba", "libb"}, errors.New("liba: no such file"), "", "no NVML: tried 2 places, first liba: no such file"},
		{"no energy counter", []string{"liba"}, nil, nvml.TotalEnergy, "liba: it exports no " + nvml.TotalEnergy},
		{"all functions", []string{"liba"}, nil, "", ""},
		{"an optional function missing", []string{"liba"}, nil, nvml.ClockInfo, ""},
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
		if c.want == "" {
			if err != nil || l == nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		wantKind(t, err, nvml.ErrNoLibrary)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
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
	t.Logf("tick %v; %.0f W without work; %+v", m.Tick(), watts, now)
	if c, h := now.SMClock, now.Celsius; c != 0 && (c < 1e8 || c > 1e10) || h > 120 || now.Watts > 2000 {
		t.Errorf("implausible: %+v", now)
	}
	if m.Tick() < time.Millisecond || watts < 5 || watts > 2000 {
		t.Errorf("implausible: tick %v, %g W", m.Tick(), watts)
	}
}
