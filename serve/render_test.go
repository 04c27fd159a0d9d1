package serve

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

// withTools is a template in Hermes style that writes all that it gets.
const withTools = `{{ tools | tojson }}{{ enable_thinking }}{% for m in messages %}|{{ m.role }} {{ m.content }} {{ m.tool_call_id }} {{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}<think>{# </think> <tool_call> #}`

// templateModel returns a tiny model with a chat template.
func templateModel(t *testing.T, template string) *model.Model {
	t.Helper()
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	spec.Set("tokenizer.chat_template", template)
	spec.Set("llama.context_length", uint32(1024))
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRenderChat(t *testing.T) {
	tok := templateModel(t, withTools).Tokenizer
	c := &conversation{
		messages: []message{
			{role: "user", content: "hi"},
			{role: "assistant", content: "look", toolCalls: []toolCall{{id: "1", name: "f", arguments: `{"z":1,"a":2}`}}},
			{role: "tool", content: "42", toolCallID: "1"},
		},
		tools:      []tool{{name: "f", definition: json.RawMessage(`{"type":"function","function":{"name":"f"}}`)}},
		toolChoice: "auto",
		variables:  map[string]json.RawMessage{"enable_thinking": json.RawMessage("true")},
	}
	r, err := renderChat(tok, c, 1000)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"type": "function", "function": {"name": "f"}}]True|user hi  |assistant look  [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": 2}}}]|tool 42 1 <think>`
	if got := tok.Decode(r.tokens); got != want {
		t.Errorf("the prompt is %q, want %q", got, want)
	}
	if _, err := renderChat(tok, c, len(r.tokens)-1); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a prompt above the limit: %v", err)
	}

	// The prompt ends in reasoning.
	a := chatAnswer{parser: r.newParser()}
	for _, text := range []string{"hm", "</think>", "Ok", "<tool_call>", `{"name":"f","arguments":{"a"`, `: 1}}`, "</tool_call>", `<tool_call>{"name":"g","arguments":{`, "x"} {
		for _, p := range a.next(event{token: token{id: 5, text: text}}) {
			a.add(p)
		}
	}
	for _, p := range a.next(event{last: true}) {
		a.add(p)
	}
	finish := a.end(outcome{finish: "stop"})
	if a.content.String() != `Okx` || a.reasoning.String() != "hm" || finish != "tool_calls" {
		t.Errorf("content %q, reasoning %q, %s", a.content.String(), a.reasoning.String(), finish)
	}
	if len(a.calls) != 2 || a.calls[1].Function != (chatFunction{"g", "{"}) || a.calls[0].Function != (chatFunction{"f", `{"a": 1}`}) || len(a.calls[0].ID) != 9 {
		t.Errorf("calls: %+v", a.calls)
	}
}

// TestChatRefuses: what a template cannot take is refused by the name of its field.
func TestChatRefuses(t *testing.T) {
	plain := startModel(t, generatorOf(t, templateModel(t, "{% for m in messages %}{{ m.content }}{% endfor %}")))
	tools := startModel(t, generatorOf(t, templateModel(t, withTools)))
	for _, tt := range []struct{ url, body, param string }{
		{plain, `{"messages":[{"role":"user","content":"hi"}],` + weather + `}`, "tools"},
		{plain, `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`, "messages[1].tool_calls"},
		{tools, `{"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"[]"}}]}]}`, "messages[0].tool_calls[0].function.arguments"},
		{tools, `{"messages":[{"role":"user","content":"hi"}],"tool_choice":"required",` + function(`{"properties":{"a":{"multipleOf":2}}}`) + `}`, "tools[0].function.parameters"},
		{tools, `{"messages":[{"role":"user","content":"hi"}],"tool_choice":"required",` + function(`{"type":"string"}`) + `}`, "tools[0].function.parameters"},
		{tools, `{"messages":[{"role":"user","content":"hi"}],"tool_choice":"required","ignore_eos":true,` + weather + `}`, "ignore_eos"},
		{tools, `{"messages":[{"role":"user","content":"hi"}],"tool_choice":{"type":"allowed_tools","allowed_tools":{}},` + weather + `}`, "tool_choice.type"},
		{tools, `{"messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"messages":[]}}`, "chat_template_kwargs.messages"},
	} {
		r := ask(t, "POST", tt.url+chatPath, tt.body)
		if _, _, param, _ := errorOf(t, r); r.status != 400 || param != tt.param {
			t.Errorf("%s: status %d, param %q: %s", tt.body, r.status, param, r.body)
		}
	}
}
