package ptxas

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// RejectedError means that ptxas rejects a text.
type RejectedError struct {
	Target   string
	Messages []Message // in the order of the output; at least one
}

// Message is one error message of ptxas.
type Message struct {
	Text   string
	Line   int    // of the PTX text, from 1; 0 if unknown
	Source string // that line, trimmed
}

// Error returns a line per message, with its source line.
func (r *RejectedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ptxas: text rejected: %s", r.Target)
	for _, m := range r.Messages {
		b.WriteString("\n\t")
		if m.Line > 0 {
			fmt.Fprintf(&b, "line %d: ", m.Line)
		}
		b.WriteString(m.Text)
		if m.Source != "" {
			fmt.Fprintf(&b, ": %s", m.Source)
		}
	}
	return b.String()
}

var errorLine = regexp.MustCompile(`^ptxas (?:.*, line (\d+); )?(?:error|fatal) *: *(.+)$`)

// aborted is the last message of ptxas, which adds nothing.
const aborted = "Ptx assembly aborted due to errors"

// parseRejection parses the output of ptxas for a rejected text. If no line has the expected form,
// the whole output becomes one message.
func parseRejection(out, text []byte, target string) *RejectedError {
	r := &RejectedError{Target: target}
	lines := strings.Split(string(text), "\n")
	for line := range strings.Lines(string(out)) {
		m := errorLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil || m[2] == aborted {
			continue
		}
		msg := Message{Text: m[2]}
		if n, err := strconv.Atoi(m[1]); err == nil && n >= 1 && n <= len(lines) {
			msg.Line, msg.Source = n, strings.TrimSpace(lines[n-1])
		}
		r.Messages = append(r.Messages, msg)
	}
	if r.Messages == nil {
		r.Messages = []Message{{Text: fmt.Sprintf("unexpected output: %q", out)}}
	}
	return r
}
