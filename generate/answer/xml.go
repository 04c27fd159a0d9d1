package answer

import (
	"encoding/json"
	"slices"
	"strings"
)

// The marks of a call of Qwen3-Coder:
//
//	<tool_call>
//	<function=name>
//	<parameter=key>
//	value
//	</parameter>
//	</function>
//	</tool_call>
const (
	functionOpen   = "<function="
	functionClose  = "</function>"
	parameterOpen  = "<parameter="
	parameterClose = "</parameter>"
)

// xmlCall is how far a call of Qwen3-Coder has been read.
type xmlCall struct {
	state xmlState
	key   string // of the parameter
}

type xmlState uint8

const (
	beforeFunction  xmlState = iota // white space, then <function=
	functionName                    // up to >
	beforeParameter                 // white space, then <parameter= or </function>
	parameterName                   // up to >
	parameterValue                  // up to </parameter>
)

// inXML reads the next part of a call. It returns false if it needs more text. A parameter
// becomes a member of the arguments when it is complete.
func (p *Parser) inXML() (more bool) {
	x := &p.xml
	switch x.state {
	case beforeFunction, beforeParameter:
		marks := []string{functionOpen}
		if x.state == beforeParameter {
			marks = []string{parameterOpen, functionClose}
		}
		n := len(p.rest) - len(strings.TrimLeft(p.rest, space))
		if p.raw.Len()+n > maxCall {
			p.giveUp()
			return true
		}
		p.take(n)
		i := slices.IndexFunc(marks, func(m string) bool { return strings.HasPrefix(p.rest, m) })
		switch {
		case i >= 0 && marks[i] == functionOpen:
			x.state = functionName
		case i >= 0 && marks[i] == parameterOpen:
			x.state = parameterName
		case i >= 0:
			p.take(len(functionClose))
			p.endXML()
			return true
		case slices.ContainsFunc(marks, func(m string) bool { return strings.HasPrefix(m, p.rest) }):
			return false
		default:
			p.giveUp()
			return true
		}
		p.take(len(marks[i]))
	case functionName, parameterName:
		end := strings.IndexByte(p.rest, '>')
		name := p.rest
		if end >= 0 {
			name = p.rest[:end]
		}
		if name == "" && end >= 0 || len(name) > maxName || strings.ContainsAny(name, space+"<") {
			p.giveUp()
			return true
		}
		if end < 0 {
			return false
		}
		p.take(end + 1)
		if x.state == functionName {
			p.call.name, x.state = name, beforeParameter
		} else {
			x.key, x.state = name, parameterValue
		}
	case parameterValue:
		end, size := strings.Index(p.rest, parameterClose), len(p.rest)
		if end >= 0 {
			size = end + len(parameterClose)
		}
		if p.raw.Len()+size > maxCall {
			p.giveUp()
			return true
		}
		if end < 0 {
			return false
		}
		value := p.rest[:end]
		p.take(size)
		p.parameter(strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n"))
		x.state = beforeParameter
	}
	return p.rest != ""
}

// take moves the first n bytes of the rest to the text of the call.
func (p *Parser) take(n int) {
	p.raw.WriteString(p.rest[:n])
	p.rest = p.rest[n:]
}

// parameter adds a parameter to the arguments.
func (p *Parser) parameter(text string) {
	separator := ", "
	if !p.call.hasArgs {
		p.call.hasArgs, separator = true, "{"
	}
	value := p.kindOf(p.call.name, p.xml.key).json(text)
	p.call.args = slices.Concat(p.call.args, []byte(separator), quote(p.xml.key), []byte(": "), value)
	p.given = p.raw.Len()
}

// kindOf returns the kind of a parameter of a tool.
func (p *Parser) kindOf(tool, key string) kind {
	for _, t := range p.tools {
		if t.Name != tool {
			continue
		}
		for _, p := range propertiesOf(t.object().Properties) {
			if p.key == key {
				return kindOf(p.value)
			}
		}
	}
	return jsonValue
}

// endXML ends a call after </function>.
func (p *Parser) endXML() {
	if !p.call.hasArgs {
		p.call.args = append(p.call.args, '{')
	}
	p.call.args = append(p.call.args, '}')
	p.endCall()
	p.endCalls()
	p.closing = closer
}

// quote returns s as JSON, without escapes for HTML.
func quote(s string) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string has JSON
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
