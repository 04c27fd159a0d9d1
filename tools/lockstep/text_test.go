package main

import (
	"fmt"
	"testing"
)

func TestSize(t *testing.T) {
	tests := []struct {
		n    int64
		want string
	}{
		{0, "0 B"}, {999, "999 B"}, {1000, "1 kB"}, {999_499, "999 kB"}, {999_999, "1 MB"}, {6_275_712, "6.28 MB"}, {4_617_000_000, "4.62 GB"},
	}
	for _, tt := range tests {
		if got := size(tt.n); got != tt.want {
			t.Errorf("size(%d) = %q, want %q", tt.n, got, tt.want)
		}
	}
}

func TestOneLine(t *testing.T) {
	err := fmt.Errorf("first\nsecond\r\n\nthird\n")
	if got := oneLine(err); got != "first; second; third" {
		t.Errorf("%q", got)
	}
}
