package answer

import (
	"fmt"
	"strings"
)

// Arguments that are not written in JSON become JSON while they are read. The scanner of the call
// checks the result, so what is no JSON object ends the call.

// copyText moves up to n bytes of a string of the arguments.
func (p *Parser) copyText(n int) (more bool) {
	n = max(1, min(n, maxCall-p.raw.Len()))
	return p.translate(n, string(escape(p.rest[:n])))
}

// translate moves the first n bytes of the rest to the text of the call. json is what they are
// in the arguments.
func (p *Parser) translate(n int, json string) (more bool) {
	if p.raw.Len()+n > maxCall {
		return p.breakOff()
	}
	p.consume(n)
	for i := range len(json) {
		if !p.call.next(json[i]) {
			p.giveUp()
			return true
		}
	}
	p.given = p.raw.Len()
	if p.call.scan.done() {
		p.endItem()
	}
	return true
}

// breakOff ends the call before the rest. White space there is not beside a marker, so it is
// content too.
func (p *Parser) breakOff() (more bool) {
	if strings.IndexByte(space, p.rest[0]) >= 0 {
		p.consume(1)
	}
	p.giveUp()
	return true
}

// escape returns the bytes between the quotes of a JSON string. A part of a text may end within
// a character.
func escape(text string) (json []byte) {
	for _, c := range []byte(text) {
		switch {
		case c == '"' || c == '\\':
			json = append(json, '\\', c)
		case c == '\n':
			json = append(json, `\n`...)
		case c < ' ':
			json = fmt.Appendf(json, `\u%04x`, c)
		default:
			json = append(json, c)
		}
	}
	return json
}
