package main

import "fmt"

// size writes a number of bytes for people, in powers of 1000.
func size(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	x := float64(n)
	for len(units) > 1 && x >= 999.5 {
		x /= 1000
		units = units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %s", x, units[0])
}
