package ptxas

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Refusal is the error of a text that ptxas does not accept.
type Refusal struct {
	Target string
	Faults []Fault // in the order of ptxas; at least one
}

// Fault is one of the reasons for a refusal.
type Fault struct {
	Message string
	Line    int    // of the text, from 1; 0 if ptxas names none
	Text    string // of that line, without surrounding space
}

// Error is one line for each fault, with the line of the text that it is about.
func (r *Refusal) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ptxas refuses the text for %s", r.Target)
	for _, f := range r.Faults {
		b.WriteString("\n\t")
		if f.Line > 0 {
			fmt.Fprintf(&b, "line %d: ", f.Line)
		}
		b.WriteString(f.Message)
		if f.Text != "" {
			fmt.Fprintf(&b, ": %s", f.Text)
		}
	}
	return b.String()
}

var faultLine = regexp.MustCompile(`^ptxas (?:.*, line (\d+); )?(?:error|fatal) *: *(.+)$`)

// closing is what ptxas says after the faults; alone it says nothing.
const closing = "Ptx assembly aborted due to errors"

// refusal reads what ptxas prints on a text that it does not accept. Output without
// any line of the known form becomes the one fault, so that nothing is hidden.
func refusal(out, text []byte, target string) *Refusal {
	r := &Refusal{Target: target}
	lines := strings.Split(string(text), "\n")
	for line := range strings.Lines(string(out)) {
		m := faultLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil || m[2] == closing {
			continue
		}
		fault := Fault{Message: m[2]}
		if n, err := strconv.Atoi(m[1]); err == nil && n >= 1 && n <= len(lines) {
			fault.Line, fault.Text = n, strings.TrimSpace(lines[n-1])
		}
		r.Faults = append(r.Faults, fault)
	}
	if r.Faults == nil {
		r.Faults = []Fault{{Message: fmt.Sprintf("no reason given: %q", out)}}
	}
	return r
}
