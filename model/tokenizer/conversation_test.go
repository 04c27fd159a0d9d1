package tokenizer

import (
	"bufio"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// apiMessage is a message as in OpenAI's API, but with arguments as an object.
type apiMessage struct {
	Role, Content, Name string
	Reasoning           string `json:"reasoning_content"`
	ToolCallID          string `json:"tool_call_id"`
	ToolCalls           []struct {
		ID       string
		Function struct {
			Name      string
			Arguments json.RawMessage
		}
	} `json:"tool_calls"`
}

func (m apiMessage) message() Message {
	out := Message{Role: m.Role, Content: m.Content, Name: m.Name, Reasoning: m.Reasoning, ToolCallID: m.ToolCallID}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, ToolCall{c.ID, c.Function.Name, string(c.Function.Arguments)})
	}
	return out
}

// TestPublished renders published templates and compares with the results of Jinja2, null
// if it fails. tools/oracle/jinja.py writes them.
func TestPublished(t *testing.T) {
	file, err := os.Open(filepath.Join("testdata", "published", "chats.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	n := 0
	for ; lines.Scan(); n++ {
		var c struct {
			Template  string
			Variables struct {
				Messages []apiMessage
				Tools    []json.RawMessage
				Generate bool  `json:"add_generation_prompt"`
				Thinking *bool `json:"enable_thinking"`
			}
			Want *string
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		source, err := os.ReadFile(filepath.Join("testdata", "published", c.Template))
		if err != nil {
			t.Fatal(err)
		}
		conversation := Conversation{Tools: c.Variables.Tools, NoGenerationPrompt: !c.Variables.Generate}
		if c.Variables.Thinking != nil {
			conversation.Variables = map[string]any{"enable_thinking": *c.Variables.Thinking}
		}
		for _, m := range c.Variables.Messages {
			conversation.Messages = append(conversation.Messages, m.message())
		}
		got, err := withTemplate(t, string(source), "<s>", "</s>").Render(conversation)
		switch {
		case c.Want == nil:
			if !errors.Is(err, ErrTemplateRaised) {
				t.Errorf("case %d, %s: %v, want %v", n, c.Template, err, ErrTemplateRaised)
			}
		case err != nil:
			t.Errorf("case %d, %s: %v", n, c.Template, err)
		default:
			if diff := cmp.Diff(*c.Want, got.String()); diff != "" {
				t.Errorf("case %d, %s: -want +got\n%s", n, c.Template, diff)
			}
		}
	}
	if n == 0 {
		t.Error("no cases")
	}
}

// controls are control tokens of the vocabularies of the templates.
var controls = []string{
	"<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>",
	"[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
	"<|user|>", "<|assistant|>", "<|system|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>",
}

// withControls returns a tokenizer with the control tokens.
func withControls(t testing.TB, template string) *Tokenizer {
	v := byteVocab("a b")
	for _, token := range controls {
		v.add(token, typeControl)
	}
	v.ChatTemplate = template
	return mustNew(t, v)
}

// specialsOf returns the control tokens of a rendered conversation, and all bytes of other
// tokens.
func specialsOf(t *testing.T, tok *Tokenizer, c Conversation) (special []string, text string) {
	t.Helper()
	x, err := tok.Render(c)
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := tok.PromptText(x, math.MaxInt)
	for _, id := range ids {
		if control := tok.Control(id); control != "" {
			special = append(special, control)
		}
	}
	return special, tok.raw(ids)
}

// TestUserTextIsPlain renders conversations in which users, tools and assistants write
// control tokens, whole or split over messages. The control tokens of the prompt must be
// those of the same conversation with harmless texts.
func TestUserTextIsPlain(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.jinja"))
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	conversation := func(a, b string) Conversation {
		return Conversation{Messages: []Message{
			{Role: "user", Content: a, Name: a}, {Role: "assistant", Content: b, Reasoning: a}, {Role: "user", Content: a + b},
		}}
	}
	calling := func(a, b string) Conversation {
		c := conversation(a, b)
		function, _ := json.Marshal(map[string]any{"name": a, "description": b, "parameters": map[string]any{a: b}})
		c.Tools = []json.RawMessage{json.RawMessage(`{"type": "function", "function": ` + string(function) + `}`)}
		arguments, _ := json.Marshal(map[string]string{a: b})
		c.Messages = append(c.Messages[:1],
			Message{Role: "assistant", ToolCalls: []ToolCall{{ID: "123456789", Name: a, Arguments: string(arguments)}}},
			Message{Role: "tool", Content: b, ToolCallID: "123456789"})
		c.Variables = map[string]any{"tools_in_user_message": true, "extra": a}
		return c
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tok := withControls(t, string(source))
			knowsTools := strings.Contains(string(source), "tools")
			for _, make := range []func(a, b string) Conversation{conversation, calling} {
				if !knowsTools && len(make("", "").Tools) > 0 {
					continue
				}
				want, _ := specialsOf(t, tok, make("x", "y"))
				if len(want) == 0 && !strings.Contains(file, "training") {
					t.Fatal("no control token at all")
				}
				for _, control := range append(slices.Clone(controls), "<s>", "</s>") {
					for _, cut := range []int{0, 1, len(control) / 2, len(control)} {
						a, b := control[:cut], control[cut:]
						got, text := specialsOf(t, tok, make("."+a, b+"."))
						if !slices.Equal(want, got) {
							t.Errorf("%q and %q: the control tokens are %q, want %q", a, b, got, want)
						}
						if !strings.Contains(text, "."+a) {
							t.Errorf("%q: the text %q has lost it", a, text)
						}
					}
				}
			}
		})
	}
}

func TestRender(t *testing.T) {
	user := []Message{{Role: "user", Content: "b<s>"}}
	for _, c := range []struct {
		name, reason, template string
		conversation           Conversation
		want                   []string
	}{
		{"merge over a border", "plain text merges as one text", `a{{ messages[0].content }}`, Conversation{Messages: user}, []string{"ab", "<", "s", ">"}},
		{"two halves", "of messages", `{{ messages[0].content ~ messages[1].content }}`, Conversation{Messages: []Message{{Role: "user", Content: "[IN"}, {Role: "user", Content: "ST]"}}}, []string{"[", "I", "N", "S", "T", "]"}},
		{"half by the template", "the other half is of the user", `[IN{{ messages[0].content }}`, Conversation{Messages: []Message{{Role: "user", Content: "ST]"}}}, []string{"[", "I", "N", "S", "T", "]"}},
		{"token by a role", "roles are few words", `<|{{ messages[0].role }}|>`, Conversation{Messages: user}, []string{"<|user|>"}},
		{"developer", "becomes system where it is not known", `<|{{ messages[0].role }}|>`, Conversation{Messages: []Message{{Role: "developer"}}}, []string{"<|system|>"}},
		{"developer that is known", "stays", `{% if messages[0].role == 'developer' %}[INST]{% endif %}`, Conversation{Messages: []Message{{Role: "developer"}}}, []string{"[INST]"}},
		{"bos_token", "is a control token", `{{ bos_token }}{{ messages[0].content }}{{ eos_token }}`, Conversation{Messages: user}, []string{"<s>", "b", "<", "s", ">", "</s>"}},
		{"user-defined", "is one token everywhere", `{{ messages[0].content }}`, Conversation{Messages: []Message{{Role: "user", Content: "<code>[INST]"}}}, []string{"<code>", "[", "I", "N", "S", "T", "]"}},
		{"all fields", "are data", `{% for m in messages %}{{ m.name }}{{ m.reasoning_content }}{{ m.tool_call_id }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.name }}{% endfor %}{% endfor %}`,
			Conversation{Messages: []Message{
				{Role: "user", Name: "<s>"}, {Role: "assistant", Reasoning: "<s>", ToolCalls: []ToolCall{{ID: "<s>", Name: "<s>"}}}, {Role: "tool", ToolCallID: "<s>"},
			}}, slices.Repeat([]string{"<", "s", ">"}, 5)},
		{"variables", "are data", `{{ v.z }}{{ v.a }}{{ v | join }}`, Conversation{Variables: map[string]any{"v": json.RawMessage(`{"z": "[INST]", "a": 1}`)}}, []string{"[", "I", "N", "S", "T", "]", "1", "z", "a"}},
		{"no generation prompt", "when asked for", `{% if add_generation_prompt %}[INST]{% else %}x{% endif %}`, Conversation{NoGenerationPrompt: true}, []string{"x"}},
		{"date", "of the caller", `{{ strftime_now('%d') }}`, Conversation{Now: morning}, []string{"0", "4"}},
		{"no tools", "none, as documents", `{% if tools is none and documents is none %}x{% endif %}`, Conversation{}, []string{"x"}},
		{"tools", "with the order of keys", `{% for k in tools[0] %}{{ k }}{% endfor %}`, Conversation{Tools: []json.RawMessage{[]byte(`{"z": 1, "y": 2}`)}}, []string{"z", "y"}},
		{"tools without a description", "an empty text for templates that need one", `{{ 'x' + tools[0].function.description + tools[1].function.description }}`,
			Conversation{Tools: []json.RawMessage{[]byte(`{"function": {}}`), []byte(`{"function": {"description": "y"}}`)}}, []string{"x", "y"}},
		{"tools without a description, where none is needed", "stay so", `{{ tools[0].function }}`, Conversation{Tools: []json.RawMessage{[]byte(`{"function": {}}`)}}, []string{"{", "}"}},
		{"reasoning of the last message", "under the name that the template has", `{{ messages[0].thinking }}`, Conversation{Messages: []Message{{Role: "assistant", Reasoning: "x"}}}, []string{"x"}},
		{"absent fields", "are undefined", `{% for k in messages[0] %}{{ k[0] }}{% endfor %}`, Conversation{Messages: user}, []string{"r", "c"}},
		{"arguments as text", "for templates that concatenate them", `{{ 'x' + messages[0].tool_calls[0].function.arguments }}{{ messages[0].content is none }}`,
			Conversation{Messages: []Message{{Role: "assistant", ToolCalls: []ToolCall{{Name: "f", Arguments: "{}"}}}}}, []string{"x", "{", "}", "T", "r", "u", "e"}},
		{"arguments as text, no content", "a template that writes calls only without content", `{% for m in messages %}{% if m.content is none %}{{ '<' + m.tool_calls[0].function.arguments }}{% endif %}{% endfor %}`,
			Conversation{Messages: []Message{{Role: "assistant", ToolCalls: []ToolCall{{Name: "f"}}}}}, []string{"<", "{", "}"}},
		{"no content", "an empty text for templates that look into it", `{{ 'x' in messages[0].content }}{{ messages[0].tool_calls[0].function.arguments is mapping }}`,
			Conversation{Messages: []Message{{Role: "assistant", ToolCalls: []ToolCall{{Name: "f"}}}}}, []string{"F", "a", "l", "s", "e", "T", "r", "u", "e"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := withControls(t, c.template)
			x, err := tok.Render(c.conversation)
			if err != nil {
				t.Fatal(err)
			}
			ids, ok := tok.PromptText(x, math.MaxInt)
			if diff := cmp.Diff(c.want, tok.texts(ids)); diff != "" || !ok {
				t.Errorf("%s: -want +got\n%s", c.reason, diff)
			}
			if _, ok := tok.PromptText(x, len(ids)-1); ok {
				t.Error("the limit is not observed")
			}
		})
	}
}

// TestRenderRefusesCalls: a template that writes only the first call of a message takes no other.
func TestRenderRefusesCalls(t *testing.T) {
	for template, refuses := range map[string]bool{
		"{{ messages[0].tool_calls[0].id }}": true,
		"{% for message in messages %}{% for c in message.tool_calls %}{{ message.tool_calls[0].id }}{% endfor %}{% endfor %}": false,
	} {
		_, err := withControls(t, template).Render(Conversation{Messages: []Message{{Role: "assistant", ToolCalls: []ToolCall{{ID: "1", Name: "f"}, {ID: "2", Name: "g"}}}}})
		refused := new(ConversationError)
		if errors.As(err, &refused) != refuses || refuses && refused.Error() != "messages[0].tool_calls: the chat template writes one call per message" {
			t.Errorf("%s: %v", template, err)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	call := func(c ToolCall) []Message {
		return []Message{{Role: "user"}, {Role: "assistant", ToolCalls: []ToolCall{{Name: "f", Arguments: "{}"}, c}}}
	}
	for _, c := range []struct {
		conversation Conversation
		field, says  string
	}{
		{Conversation{Messages: []Message{{Role: "user"}, {Role: "robot"}}}, "messages[1].role", `"robot" is none of system, developer`},
		{Conversation{Messages: []Message{{Role: "", Content: "x"}}}, "messages[0].role", `""`},
		{Conversation{Messages: []Message{{Role: "user", Reasoning: "x"}}}, "messages[0].reasoning_content", "assistant"},
		{Conversation{Messages: []Message{{Role: "tool", ToolCalls: []ToolCall{{Name: "f"}}}}}, "messages[0].tool_calls", "assistant"},
		{Conversation{Messages: []Message{{Role: "user", ToolCallID: "1"}}}, "messages[0].tool_call_id", "tool"},
		{Conversation{Messages: call(ToolCall{})}, "messages[1].tool_calls[1].function.name", "missing"},
		{Conversation{Messages: call(ToolCall{Name: "f", Arguments: "[1]"})}, "messages[1].tool_calls[1].function.arguments", "not a JSON object"},
		{Conversation{Messages: call(ToolCall{Name: "f", Arguments: `{"a": `})}, "messages[1].tool_calls[1].function.arguments", "JSON"},
		{Conversation{Messages: call(ToolCall{Name: "f", Arguments: `{} {}`})}, "messages[1].tool_calls[1].function.arguments", "after"},
		{Conversation{Tools: []json.RawMessage{[]byte("{}"), []byte("1")}}, "tools[1]", "not a JSON object"},
		{Conversation{Tools: []json.RawMessage{nil}}, "tools[0]", "JSON"},
		{Conversation{Tools: []json.RawMessage{[]byte("{}")}}, "tools", "does not write"},
		{Conversation{Messages: call(ToolCall{Name: "f"})}, "messages[1].tool_calls", "does not write"},
		{Conversation{Variables: map[string]any{"a": 1, "messages": 1}}, "chat_template_kwargs.messages", "reserved"},
		{Conversation{Variables: map[string]any{"bos_token": "x"}}, "chat_template_kwargs.bos_token", "reserved"},
		{Conversation{Variables: map[string]any{"f": func() {}}}, "chat_template_kwargs.f", "func"},
	} {
		_, err := withControls(t, "{{ messages }}").Render(c.conversation)
		refused := new(ConversationError)
		if !errors.As(err, &refused) || refused.Field != c.field || !strings.Contains(err.Error(), c.field+": ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want the field %s and %q", err, c.field, c.says)
		}
	}
}

// TestStopsAreControl checks that no text of a user ends a turn, even if the file marks the
// token as user-defined.
func TestStopsAreControl(t *testing.T) {
	v := byteVocab()
	end := v.add("<|im_end|>", typeUserDefined)
	tool := v.add("<tool_call>", typeUserDefined)
	types := slices.Clone(v.Types)
	tok := mustNew(t, v)
	if !slices.Equal(v.Types, types) {
		t.Error("New has changed the caller's types")
	}
	if !tok.Stops(end) || tok.Stops(tool) || tok.Control(end) != "<|im_end|>" || tok.Control(tool) != "" || tok.Control(-1) != "" || tok.Control(len(v.Tokens)) != "" {
		t.Error("<|im_end|> must stop and be a control token, <tool_call> neither")
	}
	if ids := tok.Encode("<|im_end|>", false); slices.Contains(ids, end) {
		t.Errorf("plain text becomes %v", ids)
	}
	if ids := tok.Encode("<|im_end|><tool_call>", true); !slices.Equal(ids, []int{end, tool}) {
		t.Errorf("special text becomes %v", ids)
	}
	if got := tok.Decode([]int{end, tool}); got != "<tool_call>" {
		t.Errorf("it decodes to %q", got)
	}
}

// TestStops: some tokens end generation in one vocabulary, and are text or go on in another.
func TestStops(t *testing.T) {
	for _, c := range []struct {
		tokens []string
		want   []bool
	}{
		{[]string{"</s>", "<|end|>", "<|eot|>", "<|eom|>"}, []bool{true, true, true, true}},
		{[]string{"<|end|>", "<|return|>", "<|call|>"}, []bool{false, true, true}},
		{[]string{"</s>", "<turn|>", "<|tool_response>", "<|tool_call>"}, []bool{false, true, true, false}},
	} {
		v := byteVocab()
		var ids []int
		for _, text := range c.tokens {
			ids = append(ids, v.add(text, typeUserDefined))
		}
		tok := mustNew(t, v)
		for i, id := range ids {
			if tok.Stops(id) != c.want[i] {
				t.Errorf("%q of %q ends generation: %v", c.tokens[i], c.tokens, !c.want[i])
			}
		}
	}
}

// TestToolResponses: a template that writes tool_responses of the message with the calls, and not
// the id of a call, gets the results of tools so.
func TestToolResponses(t *testing.T) {
	conversation := Conversation{NoGenerationPrompt: true, Messages: []Message{
		{Role: "tool", Content: "a"},
		{Role: "assistant", ToolCalls: []ToolCall{{ID: "1", Name: "f"}, {ID: "2", Name: "g"}}},
		{Role: "tool", Content: `{"x": [1]}`, ToolCallID: "2"}, {Role: "tool", Content: "b", Name: "h"}, {Role: "tool", Content: "[1]", ToolCallID: "1"},
		{Role: "assistant", Content: "c"}, {Role: "tool", Content: "d"},
	}}
	const template = `{% for m in messages %}{{ m.role }}{% for r in m['tool_responses'] %} {{ r['name'] }}={{ r['response'] }}{% endfor %};{{ m.tool_calls | length }} {% endfor %}`
	for source, want := range map[string]string{
		template:                        "tool;0 assistant g={'x': [1]} h=b f=[1];2 assistant;0 tool;0 ",
		template + "{# tool_call_id #}": "tool;0 assistant;2 tool;0 tool;0 tool;0 assistant;0 tool;0 ",
	} {
		got, err := withTemplate(t, source, "<s>", "</s>").Render(conversation)
		if err != nil || got.String() != want {
			t.Errorf("%q, %v, want %q", got.String(), err, want)
		}
	}
}
