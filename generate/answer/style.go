package answer

import "strings"

// Style is how a model writes its reasoning and its calls of tools.
type Style struct {
	thinkOpen, thinkClose string // "" if it does not reason, or reasons in a channel of harmony
	format                format
}

// format is how calls are written.
type format uint8

const (
	noCalls      format = iota
	hermes              // <tool_call>{"name": …, "arguments": {…}}</tool_call>, also of Qwen
	qwenXML             // <tool_call><function=name><parameter=key>value</parameter></function></tool_call>, of Qwen3-Coder
	llama3              // {"name": …, "parameters": {…}}, alone or after <|python_tag|>
	llama4              // the same, alone or between <|python_start|> and <|python_end|>
	python              // [name(key=value), …], alone or between the same markers
	mistralList         // [TOOL_CALLS][{"name": …, "arguments": {…}}, …]
	mistralNamed        // [TOOL_CALLS]name[ARGS]{…}
	harmony             // messages in channels, of GPT-OSS
	gemma               // <|tool_call>call:name{key:<|"|>text<|"|>,…}<tool_call|>, of Gemma 4
)

// openers maps formats to the markers before calls.
var openers = map[format]string{
	hermes: "<tool_call>", qwenXML: "<tool_call>", llama3: "<|python_tag|>", llama4: "<|python_start|>", python: "<|python_start|>", gemma: gemmaOpen,
	mistralList: "[TOOL_CALLS]", mistralNamed: "[TOOL_CALLS]",
}

// plain returns how a call begins that may have no marker before it; "" if it must have one.
func (f format) plain() string {
	switch f {
	case llama3, llama4:
		return "{"
	case python:
		return "["
	}
	return ""
}

// closers maps formats to the markers after calls.
var closers = map[format]string{hermes: "</tool_call>", qwenXML: "</tool_call>", llama4: "<|python_end|>", python: "<|python_end|>", gemma: gemmaClose}

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
	case has(thoughtOpen):
		s.thinkOpen, s.thinkClose = thoughtOpen, channelClose
	}
	switch {
	case has(channelMarker) && has(messageMarker):
		return Style{format: harmony}
	case has("[TOOL_CALLS]") && has("[ARGS]"):
		s.format = mistralNamed
	case has("[TOOL_CALLS]"):
		s.format = mistralList
	case has(gemmaOpen + gemmaHead):
		s.format = gemma
	case has("<tool_call>") && has("<function=") && has("<parameter="):
		s.format = qwenXML
	case has("<tool_call>") && !has("<function=") && !has("<arg_key>"): // other calls in XML
		s.format = hermes
	case has("<|python_tag|>"), has("<|start_header_id|>") && has(`"parameters"`):
		s.format = llama3
	case has("<|header_start|>") && has("[func_name1("):
		s.format = python
	case has("<|header_start|>") && has(`"parameters"`):
		s.format = llama4
	}
	return s
}

// Tools reports whether calls of tools can be parsed.
func (s Style) Tools() bool { return s.format != noCalls }

// NewParser returns a parser of one answer. prompt is the text of the prompt, or its end: if
// it ends with the marker before reasoning, the answer begins with reasoning. Without tools,
// calls are content.
func (s Style) NewParser(prompt string, tools []Tool) *Parser {
	if len(tools) == 0 && s.format != harmony {
		s.format = noCalls
	}
	p := &Parser{style: s, tools: tools}
	switch {
	case s.format == harmony:
		p.beginHarmony(prompt)
	case s.reasons(prompt) == reasoningBegun:
		p.beginText(inReasoning)
	}
	return p
}

// reasoning says whether an answer has reasoning.
type reasoning uint8

const (
	noReasoning reasoning = iota
	mayReason
	reasoningBegun // the prompt ends with the marker before it
)

// reasons returns whether the answer to a prompt has reasoning.
func (s Style) reasons(prompt string) reasoning {
	prompt = strings.TrimRight(prompt, space)
	switch {
	case s.thinkOpen == "" || strings.HasSuffix(prompt, s.thinkClose):
		return noReasoning
	case strings.HasSuffix(prompt, s.thinkOpen):
		return reasoningBegun
	}
	return mayReason
}
