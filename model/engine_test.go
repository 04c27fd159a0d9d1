package model

import (
	"math"
	"testing"
)

func TestArgmax(t *testing.T) {
	var (
		nan    = float32(math.NaN())
		inf    = float32(math.Inf(1))
		negInf = float32(math.Inf(-1))
	)
	tests := []struct {
		name, reason string
		logits       []float32
		want         int
	}{
		{"plain", "the largest", []float32{1, 3, 2}, 1},
		{"tie", "the lowest index wins", []float32{1, 3, 3}, 1},
		{"zeros", "-0 and 0 are a tie", []float32{float32(math.Copysign(0, -1)), 0}, 0},
		{"NaN first", "NaN never wins", []float32{nan, 1, 2}, 2},
		{"NaN last", "NaN never wins", []float32{2, 1, nan}, 0},
		{"infinite", "+Inf is the largest", []float32{1, inf, inf}, 1},
		{"all negative", "0 is not a floor", []float32{-5, -3, -4}, 1},
		{"banned", "-Inf never wins", []float32{negInf, -3}, 1},
		{"all NaN", "nothing to choose", []float32{nan, nan}, -1},
		{"all banned", "nothing to choose", []float32{negInf, nan, negInf}, -1},
		{"empty", "nothing to choose", nil, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Argmax(tt.logits); got != tt.want {
				t.Errorf("%s: Argmax(%v) = %d, want %d", tt.reason, tt.logits, got, tt.want)
			}
		})
	}
}
