package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgress(t *testing.T) {
	tests := []struct {
		name, reason string
		terminal     bool
		steps        int
		each         time.Duration
		shown        string // "": nothing
	}{
		{"long, on a terminal", "somebody waits and looks", true, 10, quiet, "counting  90%"},
		{"slow, on a terminal", "no step is done yet, and still something is", true, 1, 5 * quiet, "counting   0%"},
		{"short, on a terminal", "it is over before one looks", true, 10, quiet / 20, ""},
		{"long, into a file", "nobody looks", false, 10, quiet, ""},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			var screen bytes.Buffer
			p := (&env{errw: &screen}).progress("counting", int64(tt.steps))
			if tt.terminal {
				p.show(&screen, quiet)
			}
			for range tt.steps {
				time.Sleep(tt.each)
				synctest.Wait()
				p.add(1)
			}
			p.end()
			p.add(0)
			time.Sleep(2 * quiet)
			said := screen.String()
			if tt.shown == "" && said != "" || !strings.Contains(said, tt.shown) {
				t.Errorf("%s: %s: shown %q, want %q", tt.name, tt.reason, said, tt.shown)
			}
			if left := said[strings.LastIndex(said, "\r")+1:]; strings.TrimSpace(left) != "" {
				t.Errorf("%s: %q stays on the terminal", tt.name, left)
			}
			if p.done != int64(tt.steps) {
				t.Errorf("%s: %d steps counted", tt.name, p.done)
			}
		})
	}
}
