package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/internal/modelbench"
)

// showRepeats says below a table what made repeats of a figure differ, as far as it is
// known: sequences that did not step together, and the clocks of the device.
func (e *env) showRepeats(rep modelbench.Report) error {
	lines := apartLines(rep.Results)
	if line := clockLine(rep.Results); line != "" {
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil
	}
	return e.stdout("\n%s\n", strings.Join(lines, "\n"))
}

// apartLines names the figures of steps in which the engine took more than a step a pass.
func apartLines(list []modelbench.Result) (lines []string) {
	for _, r := range list {
		var steps []int
		for _, one := range r.Each {
			if c := one.Counts; c != nil && r.Kind != modelbench.Prefill && c.Steps > r.Passes {
				steps = append(steps, c.Steps)
			}
		}
		if len(steps) > 0 {
			lines = append(lines, fmt.Sprintf("%v: not all sequences stepped together in %d of %d repeats: up to %d steps for %d",
				r.Case, len(steps), r.Repeats, slices.Max(steps), r.Passes))
		}
	}
	return lines
}

// clockLine says between which clocks the device was found after repeats, and what held
// them down; "" if it does not tell.
func clockLine(list []modelbench.Result) string {
	var clocks []float64
	var reasons []string
	slowed, told := 0, 0
	for _, r := range list {
		for _, one := range r.Each {
			c := one.Condition
			if c == nil || c.SMClock == 0 {
				continue
			}
			told++
			clocks = append(clocks, c.SMClock)
			if len(c.Slowed) > 0 {
				slowed++
				reasons = append(reasons, c.Slowed...)
			}
		}
	}
	if told == 0 {
		return ""
	}
	line := fmt.Sprintf("clock of the SMs: %.2f to %.2f GHz", slices.Min(clocks)/1e9, slices.Max(clocks)/1e9)
	if slowed > 0 {
		slices.Sort(reasons)
		line += fmt.Sprintf("; held down after %d of %d repeats: %s", slowed, told, strings.Join(slices.Compact(reasons), ", "))
	}
	return line
}
