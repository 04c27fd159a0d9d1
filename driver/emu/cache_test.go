package emu

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// Devices that share a cache run one program, each on its own memory; what one of them
// does not take it refuses, though another has loaded it.
func TestCache(t *testing.T) {
	cache := new(Cache)
	a, b := newFixture(t, Options{Cache: cache}), newFixture(t, Options{Cache: cache})
	if a.f.(*function).prog != b.f.(*function).prog {
		t.Error("the second device parsed the text again")
	}
	if err := errors.Join(a.s.Launch(a.add(3)), a.s.Synchronize()); err != nil {
		t.Fatal(err)
	}
	a.wantWords(t, 3)
	b.wantWords(t, 0)
	onlyHopper := []byte(hopper + strings.TrimPrefix(addOne, header))
	old, err := Open(Options{Cache: cache, ComputeCapability: 80})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Load(onlyHopper); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Load(onlyHopper); !errors.Is(err, driver.ErrPTXRejected) {
		t.Errorf("a text for sm_90 on sm_80: %v", err)
	}
}

// A text that is refused is refused again.
func TestCacheKeepsNoErrors(t *testing.T) {
	d, err := Open(Options{Cache: new(Cache)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := d.Load([]byte(addOne + "x")); !errors.Is(err, driver.ErrPTXRejected) {
			t.Errorf("no PTX: %v", err)
		}
	}
}
