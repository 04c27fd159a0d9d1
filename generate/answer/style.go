package answer

import "strings"

// Style is how a model writes its reasoning and its calls of tools.
type Style struct {
	thinkOpen, thinkClose string // "" if it does not reason
	format                format
}

// format is how calls are written.
type format uint8

const (
	noCalls format = iota
	hermes         // <tool_call>{"name": …, "arguments": {…}}</tool_call>, also of Qwen
	llama3         // {"name": …, "parameters": {…}}, alone or after <|python_tag|>
	mistral        // [TOOL_CALLS][{"name": …, "arguments": {…}}, …] or [TOOL_CALLS]name[ARGS]{…}
)

// openers maps formats to the markers before calls.
var openers = map[format]string{hermes: "<tool_call>", llama3: "<|python_tag|>", mistral: "[TOOL_CALLS]"}

// StyleOf chooses the style by the markers in a chat template. The style of a template
// without known markers is the zero Style, whose answers are content alone.
func StyleOf(template string) Style {
	has := func(marker string) bool { return strings.Contains(template, marker) }
	var s Style
	switch {
	case has("<think>") || has("</think>"):
		s.thinkOpen, s.thinkClose = "<think>", "</think>"
	case has("[THINK]"):
		s.thinkOpen, s.thinkClose = "[THINK]", "[/THINK]"
	}
	switch {
	case has("[TOOL_CALLS]"):
		s.format = mistral
	case has("<tool_call>") && !has("<function=") && !has("<arg_key>"): // calls in XML
		s.format = hermes
	case has("<|python_tag|>"), has("<|start_header_id|>") && has(`"parameters"`):
		s.format = llama3
	}
	return s
}

// Tools reports whether calls of tools can be parsed.
func (s Style) Tools() bool { return s.format != noCalls }

// NewParser returns a parser of one answer. prompt is the text of the prompt, or its end: if
// it ends with the marker before reasoning, the answer begins with reasoning. If tools is
// false, calls of tools are content.
func (s Style) NewParser(prompt string, tools bool) *Parser {
	if !tools {
		s.format = noCalls
	}
	p := &Parser{style: s}
	if s.thinkOpen != "" && strings.HasSuffix(strings.TrimRight(prompt, space), s.thinkOpen) {
		p.reason()
	}
	return p
}
