package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	tests := []struct {
		name, reason string
		terminal     bool
		since        time.Duration
		shown        bool
	}{
		{"long, on a terminal", "somebody waits and looks", true, 2 * quiet, true},
		{"short, on a terminal", "it is over before one looks", true, 0, false},
		{"long, into a file", "nobody looks", false, 2 * quiet, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var screen bytes.Buffer
			e := &env{errw: &screen}
			p := e.progress("counting", 10)
			if tt.terminal {
				p.w = &screen
			}
			p.begin = p.begin.Add(-tt.since)
			for range 10 {
				p.add(1)
			}
			p.end()
			if got := strings.Contains(screen.String(), "counting"); got != tt.shown {
				t.Errorf("%s: shown %v: %q", tt.reason, got, screen.String())
			}
			if p.done != 10 {
				t.Errorf("%d steps counted", p.done)
			}
		})
	}
}
