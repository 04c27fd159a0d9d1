package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/cuda"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/modelbench"
)

// stillMeter is a meter that a test looks for in what is made of it.
type stillMeter struct {
	closed int
	tells  cuda.Condition
}

func (*stillMeter) Joules() (float64, error)    { return 1, nil }
func (*stillMeter) Tick() time.Duration         { return 20 * time.Millisecond }
func (*stillMeter) Source() string              { return "a fake" }
func (m *stillMeter) Condition() cuda.Condition { return m.tells }
func (m *stillMeter) Close() error              { m.closed++; return nil }

// A device whose energy cannot be known is measured without, and says so once.
func TestBenchCountsEnergy(t *testing.T) {
	open := openMeter
	t.Cleanup(func() { openMeter = open })
	dev, err := emu.Open(smallGPU)
	if err != nil {
		t.Fatal(err)
	}
	fake := &stillMeter{}
	for _, c := range []struct {
		name, reason string
		open         func(driver.Device) (meter, error)
		meter        meter
		note         string
		energy       modelbench.Energy
	}{
		{"no library", "it is never required", func(driver.Device) (meter, error) { return nil, errors.New("no NVML: gone") }, nil,
			"energy is unknown: no NVML: gone\n", modelbench.Energy{Unknown: "no NVML: gone"}},
		{"another device", "an emulator takes none", open, nil,
			"energy is unknown: unsupported by device: emulated sm_90 does not count it\n", modelbench.Energy{Unknown: "unsupported by device: emulated sm_90 does not count it"}},
		{"a count", "its source is in the report", func(driver.Device) (meter, error) { return fake, nil }, fake,
			"", modelbench.Energy{Source: "a fake", Tick: 0.02, Least: 0.5}},
	} {
		var errw bytes.Buffer
		openMeter = c.open
		s := &benchSubject{device: dev}
		s.count(&env{errw: &errw})
		if s.meter != c.meter || (s.options.Meter != nil) != (c.meter != nil) || (s.options.Condition != nil) != (c.meter != nil) || errw.String() != c.note || *s.report.Energy != c.energy {
			t.Errorf("%s (%s): meter %v, note %q, report %+v", c.name, c.reason, s.meter, errw.String(), s.report.Energy)
		}
		if s.device = nil; c.meter != nil {
			s.close()
		}
	}
	if fake.closed != 1 {
		t.Errorf("the meter was closed %d times", fake.closed)
	}
}

func TestBenchShowsEnergy(t *testing.T) {
	joules := 0.123
	at := func(depth int, j *float64, unknown string) modelbench.Result {
		return modelbench.Result{Case: modelbench.Case{Kind: modelbench.Decode, Depth: depth, Sequences: 1}, Rate: 500, Joules: j, EnergyUnknown: unknown}
	}
	for _, c := range []struct {
		name, reason string
		energy       *modelbench.Energy
		results      []modelbench.Result
		column       bool
		want         string // the lines below the table
	}{
		{"none", "a CPU", nil, []modelbench.Result{at(0, nil, "")}, false, ""},
		{"unknown", "it was said when it was found out", &modelbench.Energy{Unknown: "no NVML"}, []modelbench.Result{at(0, nil, "")}, false, ""},
		{"known", "the source is named", &modelbench.Energy{Source: "NVML", Least: 0.5}, []modelbench.Result{at(0, &joules, "")}, true,
			"\nenergy: NVML, over 0.5 s or more\n"},
		{"of some", "each reason once", &modelbench.Energy{Source: "NVML", Least: 1},
			[]modelbench.Result{at(0, nil, "too short"), at(5, &joules, ""), at(6, nil, "cut"), at(7, nil, "too short")}, true,
			"\nenergy: NVML, over 1 s or more\nenergy of decode at 0, decode at 7 is unknown: too short\nenergy of decode at 6 is unknown: cut\n"},
	} {
		var out bytes.Buffer
		if err := (&env{out: &out}).showModelBench(modelbench.Report{Energy: c.energy, Results: c.results}); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(out.String(), "\n\n")
		_, below, _ := strings.Cut(table, "\n\n")
		if below = "\n" + below; below == "\n" {
			below = ""
		}
		if below != c.want || strings.Contains(table, "J/token") != c.column {
			t.Errorf("%s (%s): below the table %q, want %q\n%s", c.name, c.reason, below, c.want, table)
		}
	}
	r := at(0, &joules, "")
	if got := noteOf(r); got != "decode at 0: 500 tokens/s, 0.123 J/token" {
		t.Errorf("in one line %q", got)
	}
}
