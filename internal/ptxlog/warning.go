package ptxlog

import (
	"fmt"
	"regexp"
	"strconv"
)

// Warning is a warning of the assembler. Warnings about speed have numbers.
type Warning struct {
	Number int    // 7515 for C7515; 0: none
	Text   string // the assembler's words
}

// String returns the number with a short meaning, or with the assembler's words if the number is
// unknown.
func (w Warning) String() string {
	if w.Number == 0 {
		return w.Text
	}
	meaning := meanings[w.Number]
	if meaning == "" {
		meaning = w.Text
	}
	return fmt.Sprintf("C%d: %s", w.Number, meaning)
}

// meanings explains the warnings about setmaxnreg and wgmma.
var meanings = map[int]string{
	7504: "setmaxnreg is ignored: the text is compiled to be linked",
	7505: "setmaxnreg is ignored: the text is compiled for debugging",
	7507: "setmaxnreg is ignored: the kernel needs more registers",
	7508: "setmaxnreg is ignored: the register count at entry is unknown; .maxnreg or .minnctapersm sets it",
	7509: "wgmma is serialized: the kernel calls an external function",
	7510: "wgmma is serialized: the kernel calls a function while products are in flight",
	7511: "wgmma is serialized: the products in flight need too many registers",
	7512: "wgmma is serialized: the kernel needs too many registers",
	7513: "wgmma is serialized: another instruction writes registers of A in flight",
	7514: "wgmma is serialized: another instruction reads accumulators in flight",
	7515: "wgmma is serialized: another instruction writes accumulators in flight",
	7516: "wgmma is serialized: fence, products, commit and wait are not in order",
	7518: "wgmma is serialized: a wait would be needed where threads diverge",
}

var (
	numberedLine = regexp.MustCompile(`\(C(\d+)\) *(.+)$`)
	warningLine  = regexp.MustCompile(`\bwarning *: *(.+)$`)
)

// parseWarning parses a line with a number such as (C7515), whatever comes before it, or a line with
// "warning:". ok is false for other lines.
func parseWarning(line string) (w Warning, ok bool) {
	if m := numberedLine.FindStringSubmatch(line); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return Warning{n, m[2]}, true
		}
	}
	if m := warningLine.FindStringSubmatch(line); m != nil {
		return Warning{0, m[1]}, true
	}
	return Warning{}, false
}
