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
		{"long, on a terminal", "a terminal shows it", true, 10, showAfter, "counting  90%"},
		{"slow, on a terminal", "shown before the first step ends", true, 1, 5 * showAfter, "counting   0%"},
		{"short, on a terminal", "it ends before the delay", true, 10, showAfter / 20, ""},
		{"long, into a file", "only terminals show it", false, 10, showAfter, ""},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			var screen bytes.Buffer
			e := &env{errw: &screen}
			if tt.terminal {
				e.screen = &screen
			}
			p := e.progress("counting", int64(tt.steps))
			for range tt.steps {
				time.Sleep(tt.each)
				synctest.Wait()
				p.add(1)
			}
			p.end()
			p.add(0)
			time.Sleep(2 * showAfter)
			said := screen.String()
			if tt.shown == "" && said != "" || !strings.Contains(said, tt.shown) {
				t.Errorf("%s: %s: shown %q, want %q", tt.name, tt.reason, said, tt.shown)
			}
			if left := said[strings.LastIndex(said, "\r")+1:]; strings.TrimSpace(left) != "" {
				t.Errorf("%s: %q stays on the terminal", tt.name, left)
			}
			if p.done != int64(tt.steps) {
				t.Errorf("%s: %d items counted", tt.name, p.done)
			}
		})
	}
}

// Bytes that were there before a task count as done, but not for its speed.
func TestProgressOfBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		e := &env{screen: &screen}
		p := e.progressBytes("download", 4e9)
		p.skip(2e9)
		time.Sleep(5 * time.Second)
		p.add(5e8)
		if want := "download  62%, 2.5 GB of 4 GB, 100 MB/s, 15s left"; !strings.Contains(screen.String(), want) {
			t.Errorf("shown %q, want %q", screen.String(), want)
		}
		p.skip(-2e9)
		p.end()
	})
}
