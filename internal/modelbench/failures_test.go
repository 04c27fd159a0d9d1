package modelbench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

func TestFailures(t *testing.T) {
	broken := errors.New("broken")
	e := newFake(t, "llama", 200)
	e.fail = func(length int, tokens []int) error {
		if length == 12 {
			return broken
		}
		return nil
	}
	o := Options{Depths: []int{5, 10, 20}, Batches: []int{3}, BatchDepths: []int{0}, Steps: 4, Repeats: 1}
	got := measured(t, e, o)
	for i, want := range []string{"", "broken", "", ""} {
		if got[i].Err != want || (got[i].Rate > 0) != (want == "") {
			t.Errorf("%v: %+v, want error %q", got[i].Case, got[i], want)
		}
	}
	e.fail = func(length int, tokens []int) error { return fmt.Errorf("gone: %w", driver.ErrDeviceLost) }
	list, err := Run(t.Context(), e, o)
	if !errors.Is(err, driver.ErrDeviceLost) || len(list) != 1 || list[0].Err == "" {
		t.Errorf("after the device was lost: %d results, %v", len(list), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	e.fail = func(length int, tokens []int) error {
		if length == 11 {
			cancel()
		}
		return nil
	}
	list, err = Run(ctx, e, o)
	if !errors.Is(err, context.Canceled) || len(list) != 1 || e.open != 0 {
		t.Errorf("canceled: %d results, %v, %d sequences open", len(list), err, e.open)
	}
}

// A failed step is reported.
func TestBatchFailure(t *testing.T) {
	e := newFake(t, "llama", 200)
	broken := errors.New("broken")
	n := 0
	e.fail = func(length int, tokens []int) error {
		if n++; n == 20 {
			return broken
		}
		return nil
	}
	if got := measured(t, e, Options{Batches: []int{4}, BatchDepths: []int{0}, Steps: 50, Repeats: 1})[0]; got.Err != "broken" {
		t.Errorf("%+v", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	e := newFake(t, "llama", 200)
	for want, o := range map[string]Options{
		"Depths: -1": {Depths: []int{-1}}, "Prompts: 0": {Prompts: []int{0}}, "Batches: 0": {Batches: []int{0}}, "BatchDepths: -2": {BatchDepths: []int{-2}},
		"Repeats: -1": {Repeats: -1}, "Steps: -1": {Steps: -1}, "Budget: -1": {Budget: -1},
	} {
		if _, err := Run(t.Context(), e, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
