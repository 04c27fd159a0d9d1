package cuda

import (
	"reflect"
	"slices"
	"testing"
)

func TestCondition(t *testing.T) {
	all := Condition{SMClock: 1.98e9, MemoryClock: 3.201e9, Watts: 640.5, Celsius: 61}
	for _, c := range []struct {
		name, reason string
		refuses      string // a function
		reasons      uint64
		closed       bool
		want         func(c *Condition)
	}{
		{"busy", "everything is told", "", 0, false, func(*Condition) {}},
		{"idle", "clocks of a GPU without work are low as they should be", "", 1, false, func(*Condition) {}},
		{"power", "the commonest", "", 4, false, func(c *Condition) { c.Slowed = []string{"power limit"} }},
		{"several", "more than one at a time", "", 0x8 | 0x40, false, func(c *Condition) { c.Slowed = []string{"hardware slowdown", "temperature, by hardware"} }},
		{"a bit to come", "newer libraries may have more", "", 1 << 50, false, func(*Condition) {}},
		{"no clocks", "the rest stands", nvmlClockInfo, 0, false, func(c *Condition) { c.SMClock, c.MemoryClock = 0, 0 }},
		{"no power", "the rest stands", nvmlPower, 0, false, func(c *Condition) { c.Watts = 0 }},
		{"no temperature", "the rest stands", nvmlTemperature, 0, false, func(c *Condition) { c.Celsius = 0 }},
		{"no reasons", "what was written is no answer", nvmlSlowed, 4, false, func(*Condition) {}},
		{"closed", "no function is called behind shutdown", "", 4, true, func(c *Condition) { *c = Condition{} }},
	} {
		f := &fakeNVML{tick: 1, reasons: c.reasons, failures: map[string]nvmlCode{}}
		if c.refuses != "" {
			f.failures[c.refuses] = 3
		}
		m := &Meter{library: f.table(), handle: 42, closed: c.closed}
		want := all
		c.want(&want)
		if got := m.Condition(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s (%s): %+v, want %+v", c.name, c.reason, got, want)
		}
	}
}

// Each reason is one bit, in the order of the bits, and has words of its own.
func TestReasons(t *testing.T) {
	words := map[string]bool{}
	for _, r := range nvmlReasons {
		if r.bit&(r.bit-1) != 0 || r.bit < 2 || r.words == "" || words[r.words] {
			t.Errorf("%#x: %q", r.bit, r.words)
		}
		words[r.words] = true
	}
	if !slices.IsSortedFunc(nvmlReasons, func(a, b nvmlReason) int { return int(a.bit) - int(b.bit) }) {
		t.Error("out of order")
	}
}
