package answer

import (
	"regexp"
	"slices"
	"strings"
)

// Calls in Python are the whole answer, or between <|python_start|> and <|python_end|>:
//
//	[name(key='text', other=[1, True, {"a": None}]), name()]
//
// Values are literals of Python or JSON: text on one line, numbers in decimal, lists, and
// dictionaries with text as keys.
var (
	pythonHead  = regexp.MustCompile(`^([A-Za-z_][\w.-]*)\(\s*(\)|[A-Za-z_]\w*=)`) // of a call, up to what makes it one
	pythonBegin = regexp.MustCompile(`^([A-Za-z_][\w.-]*(\(\s*([A-Za-z_]\w*)?)?)?$`)
	pythonWords = [...][2]string{{"True", "true"}, {"False", "false"}, {"None", "null"}}
)

// notInNames are the characters that the name of a parameter does not have.
const notInNames = space + "!\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~"

// readPython reads the next part of a list of calls. It returns false if it needs more text.
func (p *Parser) readPython(end bool) (more bool) {
	switch {
	case !p.list:
		p.list = p.rest[0] == '['
		if !p.list && strings.IndexByte(space, p.rest[0]) < 0 || p.raw.Len() > maxCall {
			return p.breakOff()
		}
		p.consume(1)
		return true
	case p.call.name == "":
		return p.pythonName()
	}
	state, next, top := p.call.scan.state, p.rest[0], len(p.call.scan.open) == 1
	key := state == beforeKey || state == beforeFirstKey
	value := state == beforeValue || state == beforeFirstValue
	switch {
	case state == inString && p.call.quote != "":
		return p.pythonString(end)
	case state == inString && next == '=':
		return p.translate(1, `":`)
	case state == inString && strings.IndexByte(notInNames, next) < 0:
		return p.translate(1, p.rest[:1])
	case top && next == ')':
		return p.translate(1, "}")
	case key && top && strings.IndexByte(notInNames, next) < 0 && !isDigit(next):
		p.call.quote = ""
		return p.translate(0, `"`)
	case (key && !top || value) && (next == '"' || next == '\''):
		p.call.quote = p.rest[:1]
		return p.translate(1, `"`)
	case state == inString, key && top && strings.IndexByte(space, next) < 0, top && next == '}':
		return p.breakOff()
	}
	for _, word := range pythonWords {
		switch {
		case value && strings.HasPrefix(p.rest, word[0]):
			return p.translate(len(word[0]), word[1])
		case value && !end && strings.HasPrefix(word[0], p.rest):
			return false
		}
	}
	return p.translate(1, p.rest[:1])
}

// pythonName reads up to the first parameter, or the end of a call that has none.
func (p *Parser) pythonName() (more bool) {
	p.consume(len(p.rest) - len(strings.TrimLeft(p.rest, space)))
	if p.raw.Len() <= maxCall && len(p.rest) <= 2*maxName && pythonBegin.MatchString(p.rest) {
		return false
	}
	head := pythonHead.FindStringSubmatchIndex(p.rest)
	if head == nil || head[3]-head[2] > maxName || head[1] > 2*maxName {
		p.giveUp()
		return true
	}
	p.call.name = p.rest[head[2]:head[3]]
	return p.translate(head[4], "{")
}

// pythonString reads a part of a string.
func (p *Parser) pythonString(end bool) (more bool) {
	n := strings.IndexAny(p.rest, p.call.quote+"\\\n")
	switch {
	case n < 0:
		n = len(p.rest)
	case n == 0 && p.rest[0] == '\n':
		return p.breakOff()
	case n == 0 && p.rest[0] == '\\':
		return p.pythonEscape(end)
	case n == 0:
		return p.translate(1, `"`)
	}
	return p.copyText(n)
}

// pythonEscape reads an escape in a string. Python keeps the backslash before most characters.
func (p *Parser) pythonEscape(end bool) (more bool) {
	n := 2
	if len(p.rest) > 1 {
		n += map[byte]int{'u': 4, 'x': 2}[p.rest[1]]
	}
	if len(p.rest) < n {
		if end {
			p.giveUp()
		}
		return end
	}
	switch c := p.rest[1]; {
	case strings.IndexByte(`nrtbf"\`, c) >= 0:
		return p.translate(2, p.rest[:2])
	case c == '\'':
		return p.translate(2, "'")
	case c == 'u' || c == 'x':
		digits := p.rest[2:n]
		if strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
			return p.breakOff()
		}
		return p.translate(n, `\u`+strings.Repeat("0", 4-len(digits))+digits)
	case strings.IndexByte("avNU01234567\n", c) >= 0:
		return p.breakOff()
	}
	return p.translate(2, `\\`+string(escape(p.rest[1:2])))
}

// python returns the structure of a call in Python. field names the schema in errors. If strict is
// false, a call has any parameters.
func (t Tool) python(field string, strict bool) (structure, error) {
	open, end := text(t.Name+"("), text(")")
	if !strict {
		parameter := sequence(matching(`[A-Za-z_][A-Za-z0-9_]{0,63}=`), structure{Schema: []byte(`{}`)})
		next := sequence(matching(`, ?`), parameter)
		return sequence(open, optional(sequence(parameter, structure{Repeat: &next})), end), nil
	}
	o, properties, err := t.parameters(field, notInNames)
	if err != nil {
		return structure{}, err
	}
	var members []structure
	for _, p := range properties {
		members = append(members, sequence(text(p.key+"="), structure{Schema: o.document(p.value), Name: field}))
	}
	return sequence(open, inOrder(members, matching(`, ?`), func(i int) bool { return slices.Contains(o.Required, properties[i].key) }), end), nil
}
