package answer

import "encoding/json"

// maxName limits the bytes of the name of a tool, and of other keys of a call.
const maxName = 256

// call reads the object of a call byte by byte: {"name": …, "arguments": {…}}. Models of
// Llama write "parameters". Other keys are skipped.
type call struct {
	scan    scanner
	bare    bool   // the object is the arguments alone
	quote   string // of Python and Gemma 4: what ends the string that is being read; "" for a bare key
	name    string // "" until it is known
	text    []byte // of a key or the name that is being read, with quotes
	member  member
	hasArgs bool
	args    []byte // arguments that have not been taken
}

// member is what a call reads.
type member uint8

const (
	other member = iota
	keyText
	nameText
	argsObject
)

// next takes a byte. It returns false if this is no call.
func (c *call) next(b byte) bool {
	before, depth := c.scan.state, len(c.scan.open)
	if !c.scan.next(b) || depth == 0 && before == beforeValue && b != '{' {
		return false
	}
	if c.bare {
		c.hasArgs = true
		c.args = append(c.args, b)
		return true
	}
	if depth == 1 {
		c.begin(before, b)
	}
	switch c.member {
	case argsObject:
		if len(c.scan.open) == 1 && b != '}' {
			return false // the arguments are no object
		}
		c.args = append(c.args, b)
	case keyText, nameText:
		if c.text = append(c.text, b); len(c.text) > maxName {
			return false
		}
	}
	if len(c.scan.open) == 1 && (c.scan.state == beforeColon || c.scan.state == afterValue) {
		return c.finish()
	}
	return !c.scan.done() || c.name != "" && c.hasArgs
}

// begin begins a member of the object at its first byte.
func (c *call) begin(before scanState, b byte) {
	switch {
	case c.scan.state == inString && (before == beforeKey || before == beforeFirstKey):
		c.member, c.text = keyText, c.text[:0]
	case before == beforeValue && c.scan.state != beforeValue:
		c.member = other
		switch key := string(c.text); {
		case key == "name" && c.name == "" && b == '"':
			c.member, c.text = nameText, c.text[:0]
		case (key == "arguments" || key == "parameters") && !c.hasArgs:
			c.member, c.hasArgs = argsObject, true
		}
	}
}

// finish ends a key or a value at its last byte.
func (c *call) finish() bool {
	ended := c.member
	c.member = other
	if ended != keyText && ended != nameText {
		return true
	}
	var s string
	if json.Unmarshal(c.text, &s) != nil {
		return false
	}
	if ended == nameText {
		c.name = s
		return s != ""
	}
	c.text = append(c.text[:0], s...)
	return true
}

// take returns the arguments that have come since the last time.
func (c *call) take() string {
	s := string(c.args)
	c.args = c.args[:0]
	return s
}
