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

// readXML reads the next part of a call. It returns false if it needs more text.
func (p *Parser) readXML() (more bool) {
	switch p.xml.state {
	case functionName, parameterName:
		return p.xmlName()
	case parameterValue:
		return p.xmlValue()
	}
	return p.xmlMark()
}

// xmlMark reads white space and the mark behind it.
func (p *Parser) xmlMark() (more bool) {
	marks := []string{functionOpen}
	if p.xml.state == beforeParameter {
		marks = []string{parameterOpen, functionClose}
	}
	n := len(p.rest) - len(strings.TrimLeft(p.rest, space))
	if p.raw.Len()+n > maxCall {
		p.giveUp()
		return true
	}
	p.consume(n)
	i := slices.IndexFunc(marks, func(m string) bool { return strings.HasPrefix(p.rest, m) })
	if i < 0 {
		if slices.ContainsFunc(marks, func(m string) bool { return strings.HasPrefix(m, p.rest) }) {
			return false
		}
		p.giveUp()
		return true
	}
	p.consume(len(marks[i]))
	switch marks[i] {
	case functionOpen:
		p.xml.state = functionName
	case parameterOpen:
		p.xml.state = parameterName
	case functionClose:
		p.endXML()
	}
	return true
}

// xmlName reads the name of the function or of a parameter, and the > behind it.
func (p *Parser) xmlName() (more bool) {
	name, _, complete := strings.Cut(p.rest, ">")
	if name == "" && complete || len(name) > maxName || strings.ContainsAny(name, space+"<") {
		p.giveUp()
		return true
	}
	if !complete {
		return false
	}
	p.consume(len(name) + 1)
	if p.xml.state == functionName {
		p.call.name, p.xml.state = name, beforeParameter
	} else {
		p.xml.key, p.xml.state = name, parameterValue
	}
	return true
}

// xmlValue reads the value of a parameter, and </parameter>. The parameter becomes a member of the
// arguments.
func (p *Parser) xmlValue() (more bool) {
	value, _, complete := strings.Cut(p.rest, parameterClose)
	size := len(value)
	if complete {
		size += len(parameterClose)
	}
	if p.raw.Len()+size > maxCall {
		p.giveUp()
		return true
	}
	if !complete {
		return false
	}
	p.consume(size)
	p.parameter(strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n"))
	p.xml.state = beforeParameter
	return true
}

// consume moves the first n bytes of the rest to the text of the call.
func (p *Parser) consume(n int) {
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
	p.endItem()
}

// quote returns s as JSON, without escapes for HTML.
func quote(s string) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string has JSON
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
