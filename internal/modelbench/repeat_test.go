package modelbench

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// counts returns the number of computed rows as Steps, and multiples of it.
func (e *fakeEngine) counts() Counts {
	n := 0
	for _, s := range e.opened {
		n += len(s.calls)
	}
	return Counts{Steps: n, StepTokens: 2 * n, Chunks: 3 * n, AsyncSteps: 4 * n, Captures: 6 * n}
}

// Each repeat has its own time and counters, and the device's condition at its end.
func TestRepeats(t *testing.T) {
	e := newFake(t, "llama", 200)
	// The fill, then a warm-up and three repeats, each with two untimed and two timed steps.
	slow := []time.Duration{1, 1, 1, 1, 1, 9, 9, 5, 5, 9, 9, 1, 1, 9, 9, 2, 2}
	e.fail = func(int, []int) error {
		e.tick, slow = slow[0]*time.Millisecond, slow[1:]
		return nil
	}
	clock := 0.
	got := measured(t, e, Options{Depths: []int{7}, Steps: 2, Repeats: 3, Counts: e.counts, Condition: func() *Condition {
		if clock++; clock == 3 {
			return nil
		}
		return &Condition{SMClock: clock}
	}})[0]
	two := &Counts{Steps: 2, StepTokens: 4, Chunks: 6, AsyncSteps: 8, Captures: 12}
	want := []Repeat{
		{200, 0.01, two, &Condition{SMClock: 2}}, // 1 was the warm-up
		{1000, 0.002, two, nil},
		{500, 0.004, two, &Condition{SMClock: 4}},
	}
	if !reflect.DeepEqual(got.Each, want) {
		t.Errorf("%+v, want %+v", got.Each, want)
	}
	if got.Rate != 500 || got.Least != 200 || got.Most != 1000 || got.Repeats != 3 {
		t.Errorf("all repeats: %+v", got)
	}
}

func TestRepeatsJSON(t *testing.T) {
	e := newFake(t, "llama", 200)
	for _, c := range []struct {
		name, reason string
		o            Options
		want         string
	}{
		{"nothing", "unknown values are absent", Options{}, `"by_repeat":[{"tokens_per_second":1000,"seconds":0.002}]`},
		{"some", "only the clock is known", Options{Condition: func() *Condition { return &Condition{SMClock: 1.98e9} }},
			`"seconds":0.002,"device":{"sm_hertz":1980000000}}]`},
		{"all", "every field has its name", Options{
			Counts:    func() Counts { return Counts{} },
			Condition: func() *Condition { return &Condition{1, 2, 3, 4, []string{"heat"}} },
		}, `"engine":{"steps":0,"step_tokens":0,"chunks":0,"async_steps":0,"captures":0},` +
			`"device":{"sm_hertz":1,"memory_hertz":2,"watts":3,"celsius":4,"slowed_by":["heat"]}}]`},
	} {
		c.o.Depths, c.o.Steps, c.o.Repeats = []int{3}, 2, 1
		text, err := json.Marshal(measured(t, e, c.o))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), c.want) {
			t.Errorf("%s (%s): no %s in %s", c.name, c.reason, c.want, text)
		}
	}
}

// In the untimed passes, no sequence gets ahead of another.
func TestUntimedTogether(t *testing.T) {
	const sequences, fill = 4, 1
	e := newFake(t, "llama", 200)
	at := map[int]int{} // rows by position
	e.fail = func(length int, tokens []int) error {
		at[length]++
		if before := at[length-1]; length > fill && length <= fill+2 && before%sequences != 0 {
			t.Errorf("a sequence is at position %d, but only %d of %d finished the one before", length, before%sequences, sequences)
		}
		return nil
	}
	measured(t, e, Options{Batches: []int{sequences}, BatchDepths: []int{0}, Steps: 3, Repeats: 20})
	if at[fill+1] != sequences*21 {
		t.Errorf("%d second untimed steps, want %d", at[fill+1], sequences*21)
	}
}
