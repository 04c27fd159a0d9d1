// Package answer parses what a chat model generates: content, reasoning, and calls of tools.
//
// It knows the styles of Llama 3, Llama 4 with JSON or Python, Mistral, Hermes, which Qwen shares,
// Qwen3-Coder, GPT-OSS and Gemma 4. The parser is fed tokens and gives parts of the answer as soon
// as they are certain. It keeps no more than one call, and takes time in proportion to the text.
// Style.Structure describes the answers that a request permits, for package constraint.
package answer

import (
	"slices"
	"strings"
)

// Limits of what a parser keeps.
const (
	maxCall  = 1 << 20 // bytes of a call; a longer one is content
	maxSpace = 1 << 10 // bytes of white space that may belong to a marker
)

// Kind is what a Delta adds to an answer.
type Kind uint8

const (
	Content       Kind = iota // text for the user
	Reasoning                 // text of the model's thoughts
	CallBegin                 // a call begins; Text is the name of the tool
	CallArguments             // Text continues the arguments, a JSON object
	CallEnd                   // the call ends; its arguments are incomplete if it was cut or is not valid
)

// Delta is a part of an answer.
type Delta struct {
	Kind Kind
	Call int // index of a call, from 0
	Text string
}

// Answer is a whole answer.
type Answer struct {
	Content, Reasoning string
	Calls              []Call
}

// Call is a call of a tool.
type Call struct {
	Name      string
	Arguments string // a JSON object, or the beginning of one if the call was cut or is not valid
}

// Collect returns the answer that deltas add up to.
func Collect(deltas []Delta) Answer {
	var content, reasoning, arguments strings.Builder
	var name string
	var a Answer
	for _, d := range deltas {
		switch d.Kind {
		case Content:
			content.WriteString(d.Text)
		case Reasoning:
			reasoning.WriteString(d.Text)
		case CallBegin:
			name = d.Text
			arguments.Reset()
		case CallArguments:
			arguments.WriteString(d.Text)
		case CallEnd:
			a.Calls = append(a.Calls, Call{name, arguments.String()})
		}
	}
	a.Content, a.Reasoning = content.String(), reasoning.String()
	return a
}

// Parser parses one answer. It is not safe for concurrent use.
//
// White space beside a marker belongs to the marker. Everything else is given exactly once:
// what looks like a call but is none becomes content, with its markers. A call begins when its
// name and the beginning of its arguments are known. If it is not valid after that, it ends,
// and content follows.
type Parser struct {
	style Style
	tools []Tool
	state state

	rest    string // text that has not been looked at, or may begin a marker
	space   string // white space behind what was given
	after   bool   // nothing but white space came after the last marker
	begun   bool   // content or a call has begun, or reasoning has ended: no reasoning follows
	closing string // the marker that may end the last call, or ""

	outer state // inContent or inReasoning: where the call began
	call  *call
	xml   xmlCall
	open  bool            // CallBegin of the call has been given
	list  bool            // the call is an item of a list of Mistral or Python
	raw   strings.Builder // the text of the call, its marker, and the white space before
	given int             // bytes of raw up to the last argument
	calls int             // indices that have been given

	header   string              // of a message of harmony, with its markers
	prompted int                 // bytes of the header that are in the prompt
	said     [Reasoning + 1]bool // kinds of text that have been given

	out []Delta
}

// state is what the parser expects.
type state uint8

const (
	inContent state = iota
	inReasoning
	beforeObject // white space, then {
	inObject
	afterMarker  // of Mistral: [, or the name of a tool
	inName       // of Mistral: up to [ARGS] or {
	betweenItems // of a list: , or ]
	inXML        // of Qwen3-Coder
	inGemma      // of Gemma 4
	inPython     // of calls in Python
	inHeader     // of a message of harmony
)

// Next takes a token: the text of a control token in the vocabulary, or "", and the text
// that the token adds to the answer.
func (p *Parser) Next(control, text string) []Delta {
	p.out = nil
	if control != "" {
		p.control(control)
	}
	p.rest += text
	p.run(false)
	p.giveArguments()
	return p.out
}

// End ends the answer. An incomplete call ends with the arguments that came; if it has not begun, it
// becomes content.
func (p *Parser) End() []Delta {
	p.out = nil
	p.finish()
	if !p.after {
		p.add(p.kind(), 0, p.space)
	}
	p.space = ""
	return p.out
}

// finish parses the rest as the end of a text, and gives up a call that is not complete.
func (p *Parser) finish() {
	p.run(true)
	if p.state > inReasoning {
		p.endMessage()
		p.run(true)
	}
}

// add gives a delta.
func (p *Parser) add(kind Kind, call int, text string) {
	last := len(p.out) - 1
	switch {
	case text == "" && kind < CallBegin:
	case last >= 0 && kind < CallBegin && p.out[last].Kind == kind:
		p.out[last].Text += text
	default:
		p.out = append(p.out, Delta{kind, call, text})
	}
}

// kind returns what text outside of calls is.
func (p *Parser) kind() Kind {
	if p.state == inReasoning {
		return Reasoning
	}
	return Content
}

// give gives text outside of calls, but keeps white space that may belong to a marker.
func (p *Parser) give(text string) {
	if p.after {
		text = strings.TrimLeft(text, space)
	}
	body := strings.TrimRight(text, space)
	if body == "" {
		p.space += text
	} else {
		p.add(p.kind(), 0, p.space+body)
		p.space, p.after, p.closing = text[len(body):], false, ""
		p.said[p.kind()] = true
		p.begun = p.begun || p.state == inContent
	}
	if len(p.space) > maxSpace {
		p.add(p.kind(), 0, p.space)
		p.space = ""
	}
}

// markers returns the markers that the parser looks for outside of calls.
func (p *Parser) markers() []string {
	if p.state == inReasoning {
		return []string{p.style.thinkClose}
	}
	var all []string
	if !p.begun && p.style.thinkOpen != "" {
		all = append(all, p.style.thinkOpen)
	}
	if p.style.format != noCalls {
		all = append(all, openers[p.style.format])
	}
	if p.closing != "" {
		all = append(all, p.closing)
	}
	return all
}

// controlMarkers returns the control tokens that are markers outside of calls. Unlike text, a control token cannot spell a marker by
// accident. So it may begin reasoning again, or a call within reasoning.
func (p *Parser) controlMarkers() []string {
	all := p.markers()
	if p.style.thinkOpen != "" && p.state == inContent {
		all = append(all, p.style.thinkOpen)
	}
	if p.style.format != noCalls {
		all = append(all, openers[p.style.format])
	}
	return all
}

// control takes a control token. Those that are no markers of the style are ignored.
func (p *Parser) control(token string) {
	switch {
	case p.style.format == harmony:
		p.harmonyMarker(token)
	case p.style.spells(token):
		p.rest += token
	case p.state <= inReasoning:
		if slices.Contains(p.controlMarkers(), token) {
			p.give(p.rest) // no marker continues over a control token
			p.rest = ""
			p.marker(token)
		}
	case p.outer == inReasoning && token == p.style.thinkClose:
		p.finish()
		p.marker(token)
	case p.state == inName && (token == "[ARGS]" || token == "[CALL_ID]"):
		p.rest += token
	}
}

// marker acts on a marker outside of calls.
func (p *Parser) marker(m string) {
	switch m {
	case p.style.thinkOpen:
		p.beginText(inReasoning)
		return
	case p.style.thinkClose:
		p.begun = true
		p.beginText(inContent)
		return
	case p.closing:
		p.closing = ""
	default:
		p.begin(m)
		return
	}
	p.space, p.after = "", true
}

// begin begins a call after its marker.
func (p *Parser) begin(marker string) {
	p.raw.WriteString(p.space)
	p.raw.WriteString(marker)
	p.outer, p.space, p.after, p.begun, p.closing = p.state, "", false, true, ""
	p.call, p.open, p.list = &call{}, false, false
	switch p.style.format {
	case mistralList, mistralNamed:
		p.state = afterMarker
	case qwenXML:
		p.state, p.xml = inXML, xmlCall{}
	case gemma:
		p.state, p.call.bare = inGemma, true
	case python:
		p.state, p.call.bare = inPython, true
	default:
		p.state = beforeObject
	}
}

// run parses the rest as far as it is certain; at the end of the answer, all of it.
func (p *Parser) run(end bool) {
	for more := true; more && p.rest != ""; {
		switch {
		case p.state <= inReasoning:
			more = p.outside(end)
		case p.state == inName:
			more = p.toolName()
		case p.state == inXML:
			more = p.readXML()
		case p.state == inGemma:
			more = p.readGemma(end)
		case p.state == inPython:
			more = p.readPython(end)
		case p.state == inHeader:
			text := p.rest
			p.rest = ""
			p.addHeader(text)
		default:
			p.inside()
		}
	}
}

// outside looks for the next marker. It returns false if it needs more text.
func (p *Parser) outside(end bool) (more bool) {
	if p.style.format == harmony { // its markers are control tokens
		p.give(p.rest)
		p.rest = ""
		return false
	}
	if p.style.format.plain() != "" && p.state == inContent && (p.after || !p.begun) {
		t := strings.TrimLeft(p.rest, space)
		separator := p.calls > 0 && p.after && strings.HasPrefix(t, ";")
		if separator || strings.HasPrefix(t, p.style.format.plain()) {
			p.give(p.rest[:len(p.rest)-len(t)])
			p.rest = t
			if separator {
				p.space, p.rest = p.space+";", t[1:]
			} else {
				p.begin("")
			}
			return true
		}
	}
	markers := p.markers()
	at, found := len(p.rest), ""
	for _, m := range markers {
		if i := strings.Index(p.rest, m); i >= 0 && i < at {
			at, found = i, m
		}
	}
	switch {
	case found != "" && at == 0:
		p.rest = p.rest[len(found):]
		p.marker(found)
		return true
	case found == "" && !end:
		for _, m := range markers {
			at = min(at, len(p.rest)-overlap(p.rest, m))
		}
	}
	p.give(p.rest[:at]) // which may change the markers
	p.rest = p.rest[at:]
	return found != ""
}

// overlap returns how many bytes at the end of a text may begin a marker.
func overlap(text, marker string) int {
	n := min(len(marker)-1, len(text))
	for !strings.HasSuffix(text, marker[:n]) {
		n--
	}
	return n
}

// toolName looks for the end of the name of a tool. It returns false if it needs more text.
func (p *Parser) toolName() (more bool) {
	const id, args = "[CALL_ID]", "[ARGS]"
	end, next := strings.IndexByte(p.rest, '{'), 0
	if i := strings.Index(p.rest, args); i >= 0 && (end < 0 || i < end) {
		end, next = i, len(args)
	}
	if end < 0 {
		if len(p.rest) <= 2*maxName {
			return false
		}
		p.giveUp()
		return true
	}
	name, _, _ := strings.Cut(p.rest[:end], id)
	name = strings.Trim(name, space)
	if name == "" || len(name) > maxName || strings.ContainsAny(name, space+"[]") {
		p.giveUp()
		return true
	}
	p.call.bare, p.call.name = true, name
	p.raw.WriteString(p.rest[:end+next])
	p.rest, p.state = p.rest[end+next:], beforeObject
	return true
}

// inside looks at the text of a call up to its end.
func (p *Parser) inside() {
	for i := range len(p.rest) {
		if p.state == afterMarker && p.rest[i] != '[' && strings.IndexByte(space, p.rest[i]) < 0 {
			p.rest, p.state = p.rest[i:], inName
			return
		}
		p.raw.WriteByte(p.rest[i])
		ok := p.raw.Len() <= maxCall && p.step(p.rest[i])
		if !ok {
			p.giveUp()
		}
		if p.state <= inReasoning || p.state == inPython {
			p.rest = p.rest[i+1:]
			return
		}
	}
	p.rest = ""
}

// step takes a byte of a call. It returns false if the text is no call.
func (p *Parser) step(c byte) bool {
	if p.state == inObject {
		return p.object(c)
	}
	switch {
	case strings.IndexByte(space, c) >= 0:
	case p.state == beforeObject && c == '{':
		p.state = inObject
		return p.object(c)
	case p.state == afterMarker: // [
		p.state, p.list = beforeObject, true
	case p.state == betweenItems && c == ',':
		p.state, p.call, p.open = beforeObject, &call{}, false
		if p.style.format == python {
			p.state, p.call.bare = inPython, true
		}
	case p.state == betweenItems && c == ']':
		p.endCalls()
		p.closing = closers[p.style.format]
	default:
		return false
	}
	return true
}

// object takes a byte of the object of a call.
func (p *Parser) object(c byte) bool {
	before := len(p.call.args)
	if !p.call.next(c) {
		return false
	}
	if len(p.call.args) > before {
		p.given = p.raw.Len()
	}
	if !p.call.scan.done() {
		return true
	}
	p.endItem()
	return true
}

// endItem ends a call after its last byte. If it is an item of a list, another may follow.
func (p *Parser) endItem() {
	p.endCall()
	if p.list {
		p.raw.Reset()
		p.state = betweenItems
		return
	}
	p.endCalls()
	p.closing = closers[p.style.format]
}

// endCall gives the rest and the end of a call.
func (p *Parser) endCall() {
	p.giveArguments()
	p.add(CallEnd, p.calls-1, "")
	p.open = false
}

// endCalls returns to the text that the calls are in.
func (p *Parser) endCalls() {
	p.raw.Reset()
	p.state, p.after = p.outer, true
}

// certain reports whether the call has begun: its name and a part of its arguments are known.
func (p *Parser) certain() bool {
	return p.open || (p.state == inObject || p.state == inXML || p.state == inGemma || p.state == inPython) && p.call.name != "" && len(p.call.args) > 0
}

// giveArguments gives what has come of the arguments.
func (p *Parser) giveArguments() {
	if !p.certain() {
		return
	}
	if !p.open {
		p.open = true
		p.add(CallBegin, p.calls, p.call.name)
		p.calls++
	}
	if text := p.call.take(); text != "" {
		p.add(CallArguments, p.calls-1, text)
	}
}

// giveUp ends a call that is not valid or not complete. What was not given as arguments
// becomes content: all of its text, if the call has not begun.
func (p *Parser) giveUp() {
	text := p.raw.String()
	done := p.list && p.rest == "" && strings.Trim(text, space+",") == "" // the list is cut between items
	if p.certain() {
		p.endCall()
		text = text[p.given:]
	}
	p.endCalls()
	if !done && text != "" {
		p.after = false
		p.give(text)
	}
}
