package answer

import (
	"errors"
	"slices"
	"strings"
)

// Markers of the harmony format of GPT-OSS. An answer is one or more messages:
//
//	<|channel|>analysis<|message|>reasoning<|end|>
//	<|start|>assistant<|channel|>final<|message|>content<|return|>
//
// The header of a message is its text up to <|message|>. A message with a recipient in the
// header, before or after the channel, is a call of a tool:
//
//	<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>
//
// Markers are control tokens. Plain text that spells a marker is text.
const (
	messageStart    = "<|start|>"
	channelMarker   = "<|channel|>"
	constrainMarker = "<|constrain|>"
	messageMarker   = "<|message|>"
	messageEnd      = "<|end|>"
)

// harmonyMarkers are all markers. The last two end an answer.
var harmonyMarkers = []string{messageStart, channelMarker, constrainMarker, messageMarker, messageEnd, "<|return|>", "<|call|>"}

// harmonyChannels are the channels of messages. Messages without a channel are content.
var harmonyChannels = []string{"", "analysis", "commentary", "final"}

const (
	assistantRole   = "assistant"
	functionsPrefix = "functions."
	maxHeader       = 2 * maxName // bytes; a longer header is content
)

// header is the header of a message.
type header struct {
	role, channel, recipient, contentType string // "" if they are missing
	unknown                               bool   // it has other words
}

func parseHeader(text string) (h header) {
	read := func(words string, fields ...*string) {
		for _, word := range strings.Fields(words) {
			recipient, found := strings.CutPrefix(word, "to=")
			switch {
			case found && recipient != "" && h.recipient == "":
				h.recipient = recipient
			case len(fields) == 0:
				h.unknown = true
			default:
				*fields[0], fields = word, fields[1:]
			}
		}
	}
	role, channels, _ := strings.Cut(strings.TrimPrefix(text, messageStart), channelMarker)
	read(role, &h.role)
	for channel := range strings.SplitSeq(channels, channelMarker) { // the last one counts
		h.channel, h.contentType = "", ""
		read(strings.Replace(channel, constrainMarker, " ", 1), &h.channel, &h.contentType)
	}
	return h
}

// valid reports whether a complete header is one of the assistant.
func (h header) valid() bool {
	return !h.unknown && (h.role == "" || h.role == assistantRole) && slices.Contains(harmonyChannels, h.channel)
}

// cut reports whether a header can continue, and has no text but the role and the channel.
func (h header) cut() bool {
	channel := slices.ContainsFunc(harmonyChannels, func(c string) bool { return strings.HasPrefix(c, h.channel) })
	return !h.unknown && strings.HasPrefix(assistantRole, h.role) && channel && h.recipient == "" && h.contentType == ""
}

// tool returns the name of the tool that a message calls, or "". A recipient without a namespace, such as assistant, is a tool only
// if tools has it.
func (h header) tool(tools []Tool) string {
	name := strings.TrimPrefix(h.recipient, functionsPrefix)
	known := slices.ContainsFunc(tools, func(t Tool) bool { return t.Name == name })
	if len(name) <= maxName && (known || strings.Contains(h.recipient, ".")) {
		return name
	}
	return ""
}

// lastMessage returns the header of the last message of a prompt. open reports whether its
// text has begun and has not ended.
func lastMessage(prompt string) (header string, open bool) {
	start := strings.LastIndex(prompt, messageStart)
	if start < 0 {
		return "", false
	}
	header, text, complete := strings.Cut(prompt[start:], messageMarker)
	if complete && strings.Contains(text, messageEnd) {
		return "", false
	}
	return header, complete
}

// beginHarmony begins an answer to a prompt.
func (p *Parser) beginHarmony(prompt string) {
	var open bool
	p.header, open = lastMessage(prompt)
	p.prompted, p.state = len(p.header), inHeader
	switch {
	case open && parseHeader(p.header).channel == "analysis":
		p.beginText(inReasoning)
	case open:
		p.beginText(inContent)
	}
}

// harmonyMarker takes a control token.
func (p *Parser) harmonyMarker(m string) {
	switch {
	case !slices.Contains(harmonyMarkers, m):
	case p.state == inHeader && m == messageMarker:
		p.beginMessage()
	case p.state == inHeader && (m == channelMarker || m == constrainMarker):
		p.addHeader(m)
	case m == messageMarker || m == constrainMarker: // outside of a header
	default:
		p.endMessage()
		p.beginText(inContent)
		if m == messageStart || m == channelMarker {
			p.state, p.header, p.prompted = inHeader, m, 0
		}
	}
}

// addHeader continues a header.
func (p *Parser) addHeader(text string) {
	if p.header += text; len(p.header)-p.prompted > maxHeader {
		p.giveHeader("")
	}
}

// giveHeader gives a header, and the marker behind it, as content. So is the text behind it.
func (p *Parser) giveHeader(marker string) {
	p.beginText(inContent)
	if text := p.header[p.prompted:] + marker; text != "" {
		p.after = false
		p.give(text)
	}
}

// beginMessage begins the text of a message after its header.
func (p *Parser) beginMessage() {
	h := parseHeader(p.header)
	switch {
	case !h.valid() || h.recipient != "" && (h.tool(p.tools) == "" || len(p.tools) == 0):
		p.giveHeader(messageMarker)
	case h.recipient != "":
		p.beginText(inContent) // for what is behind the call
		p.raw.WriteString(p.header[p.prompted:] + messageMarker)
		p.call, p.open, p.list = &call{bare: true, name: h.tool(p.tools)}, false, false
		p.state = beforeObject
	case h.channel == "analysis":
		p.beginText(inReasoning)
	default:
		p.beginText(inContent)
	}
}

// beginText begins reasoning or content. An empty line separates it from earlier text of its kind.
func (p *Parser) beginText(s state) {
	p.state, p.space, p.after = s, "", true
	if p.said[p.kind()] {
		p.space = "\n\n"
	}
}

// endMessage ends a message that may be incomplete.
func (p *Parser) endMessage() {
	switch own := p.header[p.prompted:]; {
	case p.state == inHeader && strings.Contains(own, "<|") && parseHeader(p.header).cut():
		p.beginText(inContent)
	case p.state == inHeader:
		p.giveHeader("")
	case p.state > inReasoning:
		p.giveUp()
	}
}

// harmonyAnswer returns the structure of an answer that may reason before its body. content
// reports whether the body is the text of the final message.
func harmonyAnswer(prompt string, body structure, content bool) (structure, error) {
	header, open := lastMessage(prompt)
	switch {
	case !open && !strings.Contains(header, channelMarker):
		if content {
			body = sequence(harmonyHead("final"), body)
		}
		return sequence(harmonyMessages("analysis"), body), nil
	case open && content && parseHeader(header).channel == "final":
		return body, nil
	}
	return structure{}, errors.New("messages: the prompt ends inside of a message")
}

// harmonyHead returns the structure of the header of a message without a recipient. channels is a
// regular expression.
func harmonyHead(channels string) structure {
	return sequence(marker(channelMarker), matching(channels), marker(messageMarker))
}

// harmonyMessages returns the structure of any number of messages before another.
func harmonyMessages(channels string) structure {
	one := sequence(harmonyHead(channels), structure{Until: []string{messageEnd}}, marker(messageStart), text(assistantRole))
	return structure{Repeat: &one}
}

// harmonyCall returns the structure of a call. The recipient is before or after the channel.
func harmonyCall(name string, arguments structure) structure {
	recipient := " to=" + functionsPrefix + name
	constrained := sequence(text(" "), marker(constrainMarker), text("json"))
	header := structure{AnyOf: []structure{
		sequence(text(recipient), marker(channelMarker), text("commentary")),
		sequence(marker(channelMarker), text("commentary"+recipient)),
	}}
	return sequence(header, structure{AnyOf: []structure{matching(`( json)?`), constrained}}, marker(messageMarker), arguments)
}
