package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model/tokenizer/internal/jinja"
)

// Conversation is the input of a chat template.
type Conversation struct {
	Messages []Message
	// Tools are the tools that the model may call: JSON objects as in OpenAI's API,
	// {"type": "function", "function": {"name": …, "parameters": …}}.
	Tools []json.RawMessage
	// Variables are further variables of the template, such as enable_thinking. Their
	// values become JSON.
	Variables map[string]any
	// NoGenerationPrompt ends the text with the last message. Otherwise it ends with the
	// beginning of the assistant's turn.
	NoGenerationPrompt bool
	// Now is the date that some templates write.
	Now time.Time
}

// Message is one turn of a conversation.
type Message struct {
	Role    string // system, developer, user, assistant or tool
	Content string
	Name    string // of the author; may be empty

	Reasoning  string     // of an assistant: what it thought before Content
	ToolCalls  []ToolCall // of an assistant
	ToolCallID string     // of a tool: the call that Content answers
}

// ToolCall is a call of a tool by an assistant.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string // a JSON object; empty means {}
}

// Text is the text of a rendered conversation. It knows which parts come from the template:
// only these may become control tokens.
type Text struct {
	s       string
	special []jinja.Span
}

// String returns the text.
func (x Text) String() string { return x.s }

// newText returns a text of which all or no parts may become control tokens.
func newText(s string, special bool) Text {
	x := Text{s: s}
	if special && s != "" {
		x.special = []jinja.Span{{From: 0, To: len(s)}}
	}
	return x
}

// chat is a chat template. It is parsed on first use, so that a model with a bad
// template still runs without it.
type chat struct {
	source string
	once   sync.Once
	parsed *jinja.Template
	err    error
}

// ChatTemplate returns the source of the chat template for conversations with or without
// tools, or "".
func (t *Tokenizer) ChatTemplate(tools bool) string { return t.chatFor(tools).source }

// chatFor returns the chat template for conversations with or without tools.
func (t *Tokenizer) chatFor(tools bool) *chat {
	if tools && t.toolChat.source != "" {
		return &t.toolChat
	}
	return &t.chat
}

// Render writes a conversation with the chat template of the file. Encode the result with
// PromptText. The text of a control token becomes that token only if it comes from the
// template; in messages, tools and variables it is ordinary text.
//
// Templates are not trusted. They see only the conversation, bos_token and eos_token;
// nesting, steps, memory and output are bounded. Errors wrap ErrNoChatTemplate, ErrTemplate
// or ErrTemplateRaised, or are a *ConversationError.
func (t *Tokenizer) Render(c Conversation) (Text, error) {
	chat := t.chatFor(len(c.Tools) > 0)
	if chat.source == "" {
		return Text{}, fmt.Errorf("tokenizer: %w", ErrNoChatTemplate)
	}
	chat.once.Do(func() { chat.parsed, chat.err = jinja.Parse(chat.source) })
	if chat.err != nil {
		return Text{}, fmt.Errorf("tokenizer: %w: %w", ErrTemplate, chat.err)
	}
	vars, err := t.variables(c, chat.source)
	if err != nil {
		return Text{}, fmt.Errorf("tokenizer: %w", err)
	}
	var x Text
	for _, f := range forms(c) {
		vars.Set("messages", messages(c.Messages, f, chat.source))
		vars.Set("tools", tools(c.Tools, f))
		x.s, x.special, err = chat.parsed.Render(vars, c.Now)
		if !errors.Is(err, jinja.ErrEval) {
			break
		}
	}
	switch {
	case errors.Is(err, ErrTemplateRaised):
		return Text{}, fmt.Errorf("tokenizer: chat template: %w", err)
	case err != nil:
		return Text{}, fmt.Errorf("tokenizer: %w: %w", ErrTemplate, err)
	}
	return x, nil
}

// ConversationError reports a part of a conversation that no template can take.
type ConversationError struct {
	Field  string // as in OpenAI's API, for example messages[2].role
	Reason string
}

func (e *ConversationError) Error() string { return e.Field + ": " + e.Reason }

// variables checks a conversation and returns all variables of the template but messages.
func (t *Tokenizer) variables(c Conversation, template string) (*jinja.Dict, error) {
	for i, m := range c.Messages {
		if field, reason := m.check(); reason != "" {
			return nil, &ConversationError{fmt.Sprintf("messages[%d].%s", i, field), reason}
		}
		if len(m.ToolCalls) > 0 && !strings.Contains(template, "tool_calls") {
			return nil, &ConversationError{fmt.Sprintf("messages[%d].tool_calls", i), "the chat template does not write them"}
		}
		if len(m.ToolCalls) > 1 && strings.Contains(template, ".tool_calls[0]") && !strings.Contains(template, "in message.tool_calls") {
			return nil, &ConversationError{fmt.Sprintf("messages[%d].tool_calls", i), "the chat template writes one call per message"}
		}
	}
	vars := jinja.NewDict(
		"messages", nil,
		"add_generation_prompt", !c.NoGenerationPrompt,
		"bos_token", jinja.Own(t.text(t.vocab.BOS)),
		"eos_token", jinja.Own(t.text(t.vocab.EOS)),
		"tools", nil,
	)
	names := make([]string, 0, len(c.Variables))
	for name := range c.Variables {
		names = append(names, name)
	}
	slices.Sort(names) // so that equal conversations give equal errors
	for _, name := range names {
		field := "chat_template_kwargs." + name
		if _, reserved := vars.Get(name); reserved {
			return nil, &ConversationError{field, "the name is reserved"}
		}
		source, err := json.Marshal(c.Variables[name])
		if err != nil {
			return nil, &ConversationError{field, err.Error()}
		}
		value, err := jinja.FromJSON(source)
		if err != nil {
			return nil, &ConversationError{field, err.Error()}
		}
		vars.Set(name, value)
	}
	if _, given := vars.Get("documents"); !given {
		vars.Set("documents", nil)
	}
	if len(c.Tools) > 0 {
		for i, source := range c.Tools {
			if _, err := object(source); err != nil {
				return nil, &ConversationError{fmt.Sprintf("tools[%d]", i), err.Error()}
			}
		}
		if !strings.Contains(template, "tools") {
			return nil, &ConversationError{"tools", "the chat template does not write them"}
		}
	}
	return vars, nil
}

// check returns the first field that is wrong and the reason, or "".
func (m Message) check() (field, reason string) {
	roles := []string{"system", "developer", "user", "assistant", "tool"}
	switch {
	case !slices.Contains(roles, m.Role):
		return "role", fmt.Sprintf("%.80q is none of %s", m.Role, strings.Join(roles, ", "))
	case m.Reasoning != "" && m.Role != "assistant":
		return "reasoning_content", "only an assistant has it"
	case len(m.ToolCalls) > 0 && m.Role != "assistant":
		return "tool_calls", "only an assistant has them"
	case m.ToolCallID != "" && m.Role != "tool":
		return "tool_call_id", "only a tool has it"
	}
	for i, call := range m.ToolCalls {
		function := fmt.Sprintf("tool_calls[%d].function.", i)
		if call.Name == "" {
			return function + "name", "it is missing"
		}
		if _, err := call.arguments(); err != nil {
			return function + "arguments", err.Error()
		}
	}
	return "", ""
}

// arguments returns the arguments as a value of the template.
func (c ToolCall) arguments() (*jinja.Dict, error) {
	if c.Arguments == "" {
		return jinja.NewDict(), nil
	}
	return object([]byte(c.Arguments))
}

// object reads a JSON object.
func object(source []byte) (*jinja.Dict, error) {
	value, err := jinja.FromJSON(source)
	if err != nil {
		return nil, err
	}
	dict, ok := value.(*jinja.Dict)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	return dict, nil
}

// form is how a template gets tools and messages that call them. Templates differ in what they
// expect, and fail in an operation on what they do not.
type form struct {
	emptyContent bool // a message without content has "" instead of none
	jsonText     bool // arguments are JSON in a string instead of a dictionary
	described    bool // a function without a description has ""
}

// forms lists the forms to try: the first that the template does not fail on is right.
func forms(c Conversation) []form {
	all := []form{{}}
	if slices.ContainsFunc(c.Messages, func(m Message) bool { return len(m.ToolCalls) > 0 }) {
		all = []form{{}, {jsonText: true}, {emptyContent: true}, {emptyContent: true, jsonText: true}}
	}
	if len(c.Tools) > 0 {
		for _, f := range slices.Clone(all) {
			f.described = true
			all = append(all, f)
		}
	}
	return all
}

// tools returns the tools as the template sees them, or nil. They have been checked.
func tools(sources []json.RawMessage, f form) any {
	if len(sources) == 0 {
		return nil
	}
	list := make([]any, len(sources))
	for i, source := range sources {
		tool, _ := object(source)
		value, _ := tool.Get("function")
		if function, ok := value.(*jinja.Dict); ok && f.described {
			if _, described := function.Get("description"); !described {
				function.Set("description", "")
			}
		}
		list[i] = tool
	}
	return list
}

// messages returns the messages as the template sees them. They have been checked.
func messages(messages []Message, f form, template string) []any {
	var list []any
	var calls *jinja.Dict // the message whose calls are being answered; nil: results are messages
	var called []ToolCall
	for i, m := range messages {
		if m.Role == "tool" && calls != nil {
			addResponse(calls, called, m)
			continue
		}
		role := m.Role
		if role == "developer" && !strings.Contains(template, role) {
			role = "system"
		}
		content, thinking := m.Content, ""
		if calls := len(m.ToolCalls) > 0; (calls || i == len(messages)-1) && strings.Contains(template, ".thinking") {
			thinking = m.Reasoning
			if calls && thinking != "" && content != "" { // the template writes either, as reasoning
				thinking, content = thinking+"\n\n"+content, ""
			}
		}
		// Some templates build the name of a control token from the role, which is one of
		// few words and not a text of the user.
		d := jinja.NewDict("role", jinja.Own(role), "content", content)
		if content == "" && len(m.ToolCalls) > 0 && !f.emptyContent {
			d.Set("content", nil)
		}
		for _, optional := range []struct{ name, value string }{
			{"name", m.Name}, {"reasoning_content", m.Reasoning}, {"thinking", thinking}, {"tool_call_id", m.ToolCallID},
		} {
			if optional.value != "" {
				d.Set(optional.name, optional.value)
			}
		}
		calls, called = nil, m.ToolCalls
		if len(called) > 0 {
			d.Set("tool_calls", toolCalls(called, f))
			if strings.Contains(template, "tool_responses") && !strings.Contains(template, "tool_call_id") {
				calls = d
			}
		}
		list = append(list, d)
	}
	return list
}

// addResponse adds the result of a tool to the message that called it, for templates that write
// results so. A result that is a JSON object becomes a dictionary.
func addResponse(message *jinja.Dict, calls []ToolCall, result Message) {
	response := jinja.NewDict("response", result.Content)
	if dict, err := object([]byte(result.Content)); err == nil {
		response.Set("response", dict)
	}
	name := result.Name
	for _, call := range calls {
		if call.ID != "" && call.ID == result.ToolCallID {
			name = call.Name
		}
	}
	if name != "" {
		response.Set("name", name)
	}
	list, _ := message.Get("tool_responses")
	all, _ := list.([]any)
	message.Set("tool_responses", append(all, response))
}

func toolCalls(calls []ToolCall, f form) []any {
	list := make([]any, len(calls))
	for i, call := range calls {
		d := jinja.NewDict()
		if call.ID != "" {
			d.Set("id", call.ID)
		}
		dict, _ := call.arguments() // has been checked
		function := jinja.NewDict("name", call.Name, "arguments", dict)
		if f.jsonText {
			function.Set("arguments", cmp.Or(call.Arguments, "{}"))
		}
		d.Set("type", "function")
		d.Set("function", function)
		list[i] = d
	}
	return list
}
