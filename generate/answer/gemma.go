package answer

import "strings"

// Markers of Gemma 4. Thoughts are between thoughtOpen and channelClose. A call is
//
//	<|tool_call>call:name{key:<|"|>text<|"|>,key:[1,true,{key:null}]}<tool_call|>
//
// Its arguments are JSON but for strings: keys are bare, and values are between two stringMark
// without escapes. Calls follow each other without a separator. The token <|tool_response> ends
// the answer.
const (
	channelOpen  = "<|channel>"
	channelClose = "<channel|>"
	thoughtOpen  = channelOpen + "thought"

	gemmaOpen  = "<|tool_call>"
	gemmaHead  = "call:"
	gemmaClose = "<tool_call|>"
	stringMark = `<|"|>`
)

// notInKeys are the characters that a bare key does not have.
const notInKeys = space + `{}[],<>"\`

// spells reports whether a control token is a part of the markers of a style, and so is read as
// its text.
func (s Style) spells(token string) bool {
	switch token {
	case channelOpen, channelClose:
		return s.thinkOpen == thoughtOpen
	case gemmaOpen, gemmaClose, stringMark:
		return s.format == gemma
	}
	return false
}

// readGemma reads the next part of a call. It returns false if it needs more text.
func (p *Parser) readGemma(end bool) (more bool) {
	if p.call.name == "" {
		return p.gemmaName()
	}
	state, next := p.call.scan.state, p.rest[0]
	key := state == beforeKey || state == beforeFirstKey
	value := state == beforeValue || state == beforeFirstValue
	begins := func(word string) bool { return !end && strings.HasPrefix(word, p.rest) }
	switch {
	case state == inString && p.call.quote != "":
		return p.gemmaString(end)
	case (key || value) && strings.HasPrefix(p.rest, stringMark):
		p.call.quote = stringMark
		return p.translate(len(stringMark), `"`)
	case value && strings.HasPrefix(p.rest, "None"): // templates write it in earlier calls
		return p.translate(len("None"), "null")
	case (key || value) && begins(stringMark), value && begins("None"):
		return false
	case state == inString && next == ':':
		return p.translate(1, `":`)
	case state == inString && strings.IndexByte(notInKeys, next) < 0:
		return p.translate(1, string(escape(p.rest[:1])))
	case key && strings.IndexByte(notInKeys+":", next) < 0:
		p.call.quote = ""
		return p.translate(0, `"`)
	case state == inString, next == '"':
		return p.breakOff()
	}
	return p.translate(1, p.rest[:1])
}

// gemmaName reads up to the { of the arguments.
func (p *Parser) gemmaName() (more bool) {
	text := strings.TrimLeft(p.rest, space)
	name, found := strings.CutPrefix(text, gemmaHead)
	name, _, complete := strings.Cut(name, "{")
	switch {
	case len(p.rest)-len(text) > maxSpace, !found && !strings.HasPrefix(gemmaHead, text):
	case len(name) > maxName, found && strings.ContainsAny(name, notInKeys), complete && name == "":
	case !complete:
		return false
	default:
		p.consume(strings.IndexByte(p.rest, '{'))
		p.call.name = name
		return true
	}
	p.giveUp()
	return true
}

// gemmaString reads text of a string, or its end.
func (p *Parser) gemmaString(end bool) (more bool) {
	text, _, closed := strings.Cut(p.rest, stringMark)
	if closed && text == "" {
		return p.translate(len(stringMark), `"`)
	}
	if !closed && !end {
		text = text[:len(text)-overlap(text, stringMark)]
	}
	if text == "" {
		return false
	}
	return p.copyText(len(text))
}
