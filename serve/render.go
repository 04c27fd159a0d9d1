package serve

import (
	"encoding/json"
	"time"

	"github.com/lockstep-go/lockstep/generate/answer"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// renderChat is the part of backend.render that depends on the tokenizer alone.
func renderChat(t *tokenizer.Tokenizer, c *conversation, limit int) (rendered, error) {
	style := answer.StyleOf(t.ChatTemplate(len(c.tools) > 0))
	if len(c.tools) > 0 && !style.Tools() {
		return rendered{}, unsupported("tools", "the chat template has no style of tool calls that this server can read")
	}
	text, err := t.Render(templateInput(c))
	if err != nil {
		return rendered{}, err
	}
	prompt, ok := t.PromptText(text, limit)
	if !ok {
		e := badRequest("messages", "the prompt has more than %d tokens", limit)
		e.Code = "context_length_exceeded"
		return rendered{}, e
	}
	restriction, err := restrictAnswer(style, text.String(), c)
	if err != nil {
		return rendered{}, err
	}
	newParser := func() answerParser {
		return &styleParser{style.NewParser(text.String(), c.answerTools()), t.Control}
	}
	return rendered{tokens: prompt, newParser: newParser, structure: restriction}, nil
}

// restrictAnswer returns the structure of the answer, or nil if any text will do.
func restrictAnswer(style answer.Style, prompt string, c *conversation) (*structure, error) {
	r := answer.Request{Tools: c.answerTools(), Required: c.toolChoice == "required", Name: c.namedFunction(), Single: c.single}
	out := structure{param: "tools"}
	switch {
	case c.content != nil:
		r.Content, out.param = &c.content.source, c.content.param
	case r.Required || r.Name != "":
		out.param = "tool_choice"
	}
	source, restricted, err := style.Structure(prompt, r)
	if err != nil {
		param, why := out.explain(err)
		return nil, unsupported(param, "%s", why)
	}
	if !restricted {
		return nil, nil
	}
	out.source = source
	return &out, nil
}

// answerTools returns the tools as package answer takes them.
func (c *conversation) answerTools() []answer.Tool {
	var all []answer.Tool
	for _, t := range c.tools {
		all = append(all, answer.Tool{Name: t.name, Parameters: t.parameters, Strict: t.strict})
	}
	return all
}

func templateInput(c *conversation) tokenizer.Conversation {
	out := tokenizer.Conversation{Now: time.Now(), Variables: map[string]any{}}
	for _, m := range c.messages {
		to := tokenizer.Message{Role: m.role, Content: m.content, Name: m.name, Reasoning: m.reasoning, ToolCallID: m.toolCallID}
		for _, call := range m.toolCalls {
			to.ToolCalls = append(to.ToolCalls, tokenizer.ToolCall{ID: call.id, Name: call.name, Arguments: call.arguments})
		}
		out.Messages = append(out.Messages, to)
	}
	for _, tool := range c.tools {
		out.Tools = append(out.Tools, tool.definition)
	}
	for name, value := range c.variables {
		out.Variables[name] = json.RawMessage(value)
	}
	return out
}

// styleParser is the answerParser of a chat template's style.
type styleParser struct {
	parser  *answer.Parser
	control func(id int) string
}

func (r *styleParser) next(t token) []part { return parts(r.parser.Next(r.control(t.id), t.text)) }

func (r *styleParser) end() []part { return parts(r.parser.End()) }

func parts(deltas []answer.Delta) []part {
	var out []part
	for _, d := range deltas {
		switch d.Kind {
		case answer.Content:
			out = append(out, part{content: d.Text})
		case answer.Reasoning:
			out = append(out, part{reasoning: d.Text})
		case answer.CallBegin:
			out = append(out, part{call: &callPart{index: d.Call, id: newCallID(), name: d.Text}})
		case answer.CallArguments:
			out = append(out, part{call: &callPart{index: d.Call, arguments: d.Text}})
		}
	}
	return out
}

// newCallID returns 9 letters and digits: Mistral's templates refuse other ids.
func newCallID() string { return newID()[:9] }
