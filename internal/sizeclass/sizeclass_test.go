package sizeclass

import (
	"slices"
	"testing"
)

func TestOf(t *testing.T) {
	var sizes []int
	for n := 1; n <= 400; n = Of(n + 1) {
		sizes = append(sizes, n)
	}
	want := []int{1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384}
	if !slices.Equal(sizes, want) {
		t.Fatalf("sizes %v, want %v", sizes, want)
	}
	for n := 1; n <= 384; n++ {
		i, _ := slices.BinarySearch(want, n)
		if got := Of(n); got != want[i] {
			t.Errorf("Of(%d) = %d, want %d", n, got, want[i])
		}
	}
}
