package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// size formats a number of bytes with a decimal unit prefix.
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

// oneLine returns the text of an error as one printable line.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	line := strings.Join(lines, "; ")
	if strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return line
	}
	return strings.Trim(strconv.Quote(line), `"`) // a file name must not control the terminal
}

// printable quotes s if it has characters that are not printable. Text from a file could
// otherwise break the line or control the terminal.
func printable(s string) string {
	hidden := func(r rune) bool { return !strconv.IsPrint(r) }
	if utf8.ValidString(s) && strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// dimsText formats dimensions: 4096 × 32.
func dimsText(dims []int) string {
	parts := make([]string, len(dims))
	for i, d := range dims {
		parts[i] = fmt.Sprint(d)
	}
	return strings.Join(parts, " × ")
}

// finite returns x for JSON: nil if it is NaN or infinite.
func finite(x float64) any {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return x
}
