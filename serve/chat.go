package serve

import (
	"net/http"
	"strings"
)

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	common       request
	conversation conversation
	messagesSet  bool
}

// decodeChat reads the body of /v1/chat/completions.
func (s *Server) decodeChat(body []byte) (*chatRequest, *apiError) {
	r := &chatRequest{common: newRequest()}
	choice := ""
	err := decodeBody(body, func(d *decoder, key string) {
		switch key {
		case "messages":
			r.messagesSet = true
			d.array(func(int) { r.conversation.messages = append(r.conversation.messages, d.message()) })
		case "tools":
			d.array(func(int) { r.conversation.tools = append(r.conversation.tools, d.tool()) })
		case "tool_choice":
			choice = d.toolChoice()
		case "parallel_tool_calls":
			r.conversation.single = !d.bool()
		case "chat_template_kwargs":
			d.object(func(key string) { r.conversation.variable(key, d.raw()) })
		case "reasoning_effort":
			r.conversation.variable(key, marshal(d.string()))
		case "logprobs":
			r.common.params.logprobs = d.bool()
		case "top_logprobs":
			r.common.params.topLogprobs, r.common.topLogprobsSet = int(d.int(0, maxTopLogprobs)), true
		default:
			if !r.common.field(d, key, s.info.vocab) {
				d.other(key)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	switch {
	case !r.messagesSet:
		return nil, badRequest("messages", "the field is missing")
	case len(r.conversation.messages) == 0:
		return nil, badRequest("messages", "the array is empty")
	case r.common.maxTokensSet && r.common.params.maxTokens == 0:
		return nil, badRequest("max_tokens", "0, want 1 or more")
	case choice != "" && choice != "none" && len(r.conversation.tools) == 0:
		return nil, badRequest("tool_choice", "it needs tools")
	}
	if err := r.conversation.checkTools(choice); err != nil {
		return nil, err
	}
	r.conversation.content = r.common.params.structure
	if s := r.conversation.content; s != nil && len(r.conversation.tools) > 0 {
		return nil, unsupported("tools", "this server does not support them with %s, unless tool_choice is none", s.param)
	}
	return r, r.common.finish()
}

// The parts of a chat completion and of its chunks.
type (
	chatChoice struct {
		Index        int           `json:"index"`
		Message      *chatMessage  `json:"message,omitempty"`
		Delta        *chatMessage  `json:"delta,omitempty"`
		Logprobs     *chatLogprobs `json:"logprobs"`
		FinishReason *string       `json:"finish_reason"`
	}
	chatMessage struct {
		Role      string         `json:"role,omitempty"`
		Content   any            `json:"content,omitempty"` // *string; null beside tool calls
		Reasoning string         `json:"reasoning_content,omitempty"`
		ToolCalls []chatToolCall `json:"tool_calls,omitempty"`
	}
	chatToolCall struct {
		Index    *int         `json:"index,omitempty"` // in chunks
		ID       string       `json:"id,omitempty"`
		Type     string       `json:"type,omitempty"`
		Function chatFunction `json:"function"`
	}
	chatFunction struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
	chatLogprobs struct {
		Content []chatLogprob `json:"content"`
	}
	chatLogprob struct {
		Token       string        `json:"token"`
		Logprob     float32       `json:"logprob"`
		Bytes       []int         `json:"bytes"`
		TopLogprobs []chatLogprob `json:"top_logprobs,omitempty"`
	}
)

func (s *Server) chatLogprob(id int, logprob float32) chatLogprob {
	raw := s.backend.bytes(id)
	l := chatLogprob{Token: valid(raw), Logprob: finite(logprob), Bytes: make([]int, len(raw))}
	for i, b := range raw {
		l.Bytes[i] = int(b)
	}
	return l
}

// chatAnswer is the state of one choice.
type chatAnswer struct {
	parser    answerParser // nil: all text is content
	content   strings.Builder
	reasoning strings.Builder
	calls     []chatToolCall
	named     bool // the request names the function to call
	logprobs  *chatLogprobs
	finish    string
}

// next returns the parts that an event completes.
func (a *chatAnswer) next(e event) []part {
	switch {
	case e.last && a.parser != nil:
		return a.parser.end()
	case e.last:
		return nil
	case a.parser != nil:
		return a.parser.next(e.token)
	case e.token.text == "":
		return nil
	}
	return []part{{content: e.token.text}}
}

// add appends a part to the answer.
func (a *chatAnswer) add(p part) {
	a.content.WriteString(p.content)
	a.reasoning.WriteString(p.reasoning)
	if c := p.call; c != nil {
		for len(a.calls) <= c.index {
			a.calls = append(a.calls, chatToolCall{Type: "function"})
		}
		call := &a.calls[c.index]
		call.ID += c.id
		call.Function.Name += c.name
		call.Function.Arguments += c.arguments
	}
}

// end sets the reason to finish. As with OpenAI, a call that the request named ends with stop.
func (a *chatAnswer) end(out outcome) string {
	if a.finish = out.finish; a.finish == "stop" && len(a.calls) > 0 && !a.named {
		a.finish = "tool_calls"
	}
	return a.finish
}

func (a *chatAnswer) message() *chatMessage {
	m := &chatMessage{Role: "assistant", Content: (*string)(nil), Reasoning: a.reasoning.String(), ToolCalls: a.calls}
	if text := a.content.String(); text != "" || len(a.calls) == 0 {
		m.Content = &text
	}
	return m
}

// delta is a part as the delta of a chunk.
func (p part) delta() *chatMessage {
	switch {
	case p.call != nil:
		c := chatToolCall{Index: &p.call.index, ID: p.call.id, Function: chatFunction{p.call.name, p.call.arguments}}
		if c.ID != "" {
			c.Type = "function"
		}
		return &chatMessage{ToolCalls: []chatToolCall{c}}
	case p.reasoning != "":
		return &chatMessage{Reasoning: p.reasoning}
	}
	return &chatMessage{Content: &p.content}
}

// chat serves /v1/chat/completions.
func (s *Server) chat(x *exchange) error {
	body, err := x.body()
	if err != nil {
		return err
	}
	r, bad := s.decodeChat(body)
	if bad != nil {
		return bad
	}
	if err := s.checkModel(r.common.model); err != nil {
		return err
	}
	prompt, err := s.backend.render(&r.conversation)
	if err != nil {
		return err
	}
	j := &job{params: r.common.params, prompts: [][]int{prompt.tokens}, n: r.common.n}
	if prompt.structure != nil {
		j.params.structure = prompt.structure
		if err := j.params.checkEnd(); err != nil {
			return err
		}
	}
	if err := s.checkJob(x.ctx, j, "messages"); err != nil {
		return err
	}
	c := &chatRun{server: s, request: r, answers: make([]chatAnswer, j.n)}
	for i := range c.answers {
		if prompt.newParser != nil {
			c.answers[i].parser = prompt.newParser()
		}
		c.answers[i].named = r.conversation.namedFunction() != ""
		if r.common.params.logprobs {
			c.answers[i].logprobs = &chatLogprobs{Content: []chatLogprob{}}
		}
	}
	c.head = newCompletion[chatChoice](s, "chatcmpl-", "chat.completion", &r.common)
	if r.common.stream {
		return c.stream(x, j)
	}
	return c.whole(x, j)
}

// chatRun is a chat completion in flight.
type chatRun struct {
	server  *Server
	request *chatRequest
	head    completion[chatChoice]
	answers []chatAnswer
}

func (c *chatRun) logprob(t token) *chatLogprobs {
	if !c.request.common.params.logprobs || t.id < 0 {
		return nil
	}
	l := c.server.chatLogprob(t.id, t.logprob)
	for _, top := range t.top {
		l.TopLogprobs = append(l.TopLogprobs, c.server.chatLogprob(top.Token, top.LogProb))
	}
	return &chatLogprobs{Content: []chatLogprob{l}}
}

func (c *chatRun) whole(x *exchange, j *job) error {
	u, err := c.server.run(x.ctx, j, func(events []event) error {
		for _, e := range events {
			a := &c.answers[e.choice]
			for _, p := range a.next(e) {
				a.add(p)
			}
			if l := c.logprob(e.token); l != nil {
				a.logprobs.Content = append(a.logprobs.Content, l.Content...)
			}
			if e.last {
				a.end(e.out)
			}
		}
		return nil
	})
	x.usage = u
	if err != nil {
		return err
	}
	for i := range c.answers {
		a := &c.answers[i]
		c.head.Choices = append(c.head.Choices, chatChoice{Index: i, Message: a.message(), Logprobs: a.logprobs, FinishReason: &a.finish})
	}
	c.head.Usage = u.object()
	return x.json(http.StatusOK, &c.head)
}

func (c *chatRun) stream(x *exchange, j *job) error {
	c.head.Object = "chat.completion.chunk"
	begun := make([]bool, len(c.answers))
	return c.head.stream(x, j, c.request.common.includeUsage, func(e event, send func(chatChoice) error) error {
		if !begun[e.choice] {
			begun[e.choice] = true
			if err := send(chatChoice{Index: e.choice, Delta: &chatMessage{Role: "assistant", Content: new(string)}}); err != nil {
				return err
			}
		}
		return c.sendEvent(e, send)
	})
}

// sendEvent sends the chunks of an event: one per part, the first with the log-probability.
func (c *chatRun) sendEvent(e event, send func(chatChoice) error) error {
	a := &c.answers[e.choice]
	logprobs := c.logprob(e.token)
	parts := a.next(e)
	if len(parts) == 0 && logprobs != nil {
		parts = []part{{}}
	}
	for _, p := range parts {
		a.add(p)
		if err := send(chatChoice{Index: e.choice, Delta: p.delta(), Logprobs: logprobs}); err != nil {
			return err
		}
		logprobs = nil
	}
	if !e.last {
		return nil
	}
	finish := a.end(e.out)
	return send(chatChoice{Index: e.choice, Delta: &chatMessage{}, FinishReason: &finish})
}
