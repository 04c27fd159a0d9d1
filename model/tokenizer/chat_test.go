package tokenizer

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/model/tokenizer/internal/jinja"
)

// morning is the time of all renderings.
var morning = time.Date(2026, time.July, 4, 9, 0, 0, 0, time.UTC)

var (
	question = []Message{{Role: "user", Content: "Hi"}}
	turns    = []Message{{Role: "user", Content: "What is 2+2?"}, {Role: "assistant", Content: "4"}, {Role: "user", Content: " And 'three'?\n"}}
	brief    = append([]Message{{Role: "system", Content: " Be brief. "}}, turns...)
	thinking = []Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "<think>\nhm\n</think>\n\nb"}, {Role: "user", Content: "c"}}
	called   = []Message{
		{Role: "user", Content: "a"}, {Role: "assistant", Content: "look", Reasoning: "hm", ToolCalls: []ToolCall{{ID: "1", Name: "f", Arguments: `{"x":1}`}}},
		{Role: "tool", Content: "b", ToolCallID: "1"},
	}
	calledThenAnswered = append(slices.Clip(called), Message{Role: "assistant", Content: "c", Reasoning: "yes"}, Message{Role: "user", Content: "d"})
	answered           = []Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "<think>\nhm\n</think>\n\nb"}}
)

// chats lists renderings of the templates in testdata/chat.
var chats = []struct {
	name, reason, template, bos, eos string
	msgs                             []Message
	generate                         bool
	want                             string
}{
	{"chatml, default system", "a turn of its own", "chatml", "<s>", "</s>", question, true,
		"<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
	{"chatml, turns", "content as it is", "chatml", "<s>", "</s>", brief, false,
		"<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n<|im_start|>user\n And 'three'?\n<|im_end|>\n"},
	{"chatml, no messages", "the default system alone", "chatml", "<s>", "</s>", nil, false,
		"<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"},
	{"qwen3, thoughts before the question", "are left out", "qwen3", "", "", thinking, true,
		"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"},
	{"qwen3, thoughts after the question", "are kept", "qwen3", "", "", answered, false,
		"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nb<|im_end|>\n"},
	{"llama 3, no system", "a system turn with the date", "llama-3", "<|begin_of_text|>", "<|eot_id|>", question, true,
		"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 04 Jul 2026\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
	{"llama 3, turns", "content is trimmed", "llama-3", "<|begin_of_text|>", "<|eot_id|>", brief, false,
		"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 04 Jul 2026\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhat is 2+2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n4<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nAnd 'three'?<|eot_id|>"},
	{"gemma, turns", "the assistant is called model", "gemma", "<bos>", "<eos>", turns, true,
		"<bos><start_of_turn>user\nWhat is 2+2?<end_of_turn>\n<start_of_turn>model\n4<end_of_turn>\n<start_of_turn>user\nAnd 'three'?<end_of_turn>\n<start_of_turn>model\n"},
	{"mistral, turns", "the system message goes with the last question", "mistral", "<s>", "</s>", brief, true,
		"<s>[INST]What is 2+2?[/INST]4</s>[INST] Be brief. \n\n And 'three'?\n[/INST]"},
	{"mistral, question", "no system message", "mistral", "<s>", "</s>", question, true, "<s>[INST]Hi[/INST]"},
	{"harmony, instructions", "in a developer message", "harmony", "<s>", "<|return|>", brief[:2], true,
		"<|start|>system<|message|>Current date: 2026-07-04\nReasoning: medium<|end|><|start|>developer<|message|># Instructions\n\n Be brief. \n\n<|end|><|start|>user<|message|>What is 2+2?<|end|><|start|>assistant"},
	{"harmony, a call without an answer", "reasoning and content are reasoning", "harmony", "<s>", "<|return|>", called, true,
		"<|start|>system<|message|>Current date: 2026-07-04\nReasoning: medium<|end|><|start|>user<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>hm\n\nlook<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}<|call|><|start|>functions.f to=assistant<|channel|>commentary<|message|>\"b\"<|end|><|start|>assistant"},
	{"harmony, a call with an answer", "reasoning is left out", "harmony", "<s>", "<|return|>", calledThenAnswered, false,
		"<|start|>system<|message|>Current date: 2026-07-04\nReasoning: medium<|end|><|start|>user<|message|>a<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}<|call|><|start|>functions.f to=assistant<|channel|>commentary<|message|>\"b\"<|end|><|start|>assistant<|channel|>final<|message|>c<|end|><|start|>user<|message|>d<|end|>"},
	{"training marks", "generation blocks render their body", "training", "<s>", "</s>", turns, true,
		"Q: What is 2+2?\nA: 4</s>\nQ:  And 'three'?\n\nA:"},
}

// read returns a template of testdata/chat.
func read(t testing.TB, name string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "chat", name+".jinja"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// withTemplate returns the tokenizer of a small vocabulary with a chat template.
func withTemplate(t testing.TB, source, bos, eos string) *Tokenizer {
	t.Helper()
	v := byteVocab()
	v.Tokens[v.BOS], v.Tokens[v.EOS] = bos, eos
	v.ChatTemplate = source
	return mustNew(t, v)
}

// rendered returns the text of a conversation.
func (t *Tokenizer) rendered(msgs []Message, generate bool) (string, error) {
	x, err := t.Render(Conversation{Messages: msgs, NoGenerationPrompt: !generate, Now: morning})
	return x.String(), err
}

func TestChat(t *testing.T) {
	for _, c := range chats {
		t.Run(c.name, func(t *testing.T) {
			got, err := withTemplate(t, read(t, c.template), c.bos, c.eos).rendered(c.msgs, c.generate)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", c.reason, diff)
			}
		})
	}
}

func TestChatRefuses(t *testing.T) {
	for _, c := range []struct {
		name, reason, source string
		msgs                 []Message
		want                 error
		says                 string
	}{
		{"none", "the file has no template", "", question, ErrNoChatTemplate, ""},
		{"system", "Gemma takes no system message", read(t, "gemma"), brief, ErrTemplateRaised, "System role not supported"},
		{"order", "Gemma wants turns", read(t, "gemma"), append(question, question...), ErrTemplateRaised, "alternate"},
		{"role", "Mistral knows three roles", read(t, "mistral"), append(question, Message{Role: "tool", Content: "x"}), ErrTemplateRaised, "Only the roles"},
		{"no messages", "many templates look at the first", read(t, "gemma"), nil, jinja.ErrEval, "undefined"},
		{"syntax", "found when it is first used, not by New", "{% if %}", question, jinja.ErrSyntax, ""},
		{"endless", "bounded", "{% for a in range(10 ** 15) %}{% endfor %}", question, jinja.ErrLimit, "line 1"},
		{"output", "bounded", "{% for a in range(1000000) %}{{ messages[0].content * 1000 }}{% endfor %}", question, jinja.ErrLimit, "line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := withTemplate(t, c.source, "<s>", "</s>")
			for range 2 { // the second time uses the parsed template
				got, err := tok.rendered(c.msgs, true)
				if !errors.Is(err, c.want) || got != "" {
					t.Fatalf("%s: %q, %v; want %v", c.reason, got, err, c.want)
				}
				if !strings.HasPrefix(err.Error(), "tokenizer: ") || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error %q does not say %q", err, c.says)
				}
			}
		})
	}
}

// TestChatBudget renders a conversation that exceeds the fixed part of the budget.
func TestChatBudget(t *testing.T) {
	var msgs []Message
	for range 500 {
		msgs = append(msgs, Message{Role: "user", Content: strings.Repeat("word ", 4000)}, Message{Role: "assistant", Content: strings.Repeat("word ", 4000)})
	}
	got, err := withTemplate(t, read(t, "llama-3"), "<s>", "</s>").rendered(msgs, true)
	if err != nil || len(got) < 1000*4000*5 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestChatEncodes encodes a rendered conversation: special tokens of the template become
// tokens, and there is one BOS.
func TestChatEncodes(t *testing.T) {
	v := byteVocab()
	v.AddBOS = new(true)
	v.add("<turn>", typeControl)
	v.ChatTemplate = "{{ bos_token }}{% for m in messages %}<turn>{{ m.content }}{% endfor %}"
	tok := mustNew(t, v)
	text, err := tok.Render(Conversation{Messages: []Message{{Role: "user", Content: "a"}, {Role: "user", Content: "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"<s>", "<turn>", "a", "<turn>", "b"}
	ids, _ := tok.PromptText(text, math.MaxInt)
	if diff := cmp.Diff(want, tok.texts(ids)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// FuzzChat renders arbitrary roles and contents by an arbitrary template, and by one that
// writes them as they are. Errors are those of chat templates, and memory, time and output
// are bounded.
func FuzzChat(f *testing.F) {
	for _, c := range chats {
		f.Add(read(f, c.template), "user", "Hi", true)
	}
	f.Add("{{ messages[0].content * 10 ** 9 }}", "user", "x", false)
	f.Add("{% for c in messages[0].content %}{{ c }}{% endfor %}", "user", "\xff{{ x }}\u00e9", true)
	plain := withTemplate(f, "{% for m in messages %}<{{ m.role }}>{{ m['content'] }}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}", "<s>", "</s>")
	f.Fuzz(func(t *testing.T, source, role, content string, generate bool) {
		tok := withTemplate(t, source, "<s>", "</s>")
		if refused := new(ConversationError); !slices.Contains([]string{"system", "developer", "user", "assistant", "tool"}, role) {
			_, err := tok.rendered([]Message{{Role: "user"}, {Role: role}}, generate)
			if source != "" && tok.chat.err == nil && (!errors.As(err, &refused) || refused.Field != "messages[1].role") {
				t.Errorf("the role %q: %v", role, err)
			}
			role = "user"
		}
		msgs := []Message{{Role: role, Content: content}, {Role: "assistant", Content: content}, {Role: role, Content: role}}
		input := 3 * (len(role) + len(content) + 100)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		text, err := tok.rendered(msgs, generate)
		took := time.Since(began)
		runtime.ReadMemStats(&after)

		known := false
		for _, want := range []error{ErrNoChatTemplate, jinja.ErrSyntax, jinja.ErrEval, jinja.ErrLimit, ErrTemplateRaised} {
			known = known || errors.Is(err, want)
		}
		if err != nil && (!known || text != "" || strings.Contains(err.Error(), "runtime error") || len(err.Error()) > 1000) {
			t.Errorf("%q, %v", text, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(800<<20+200*input) {
			t.Errorf("%d bytes were allocated", used)
		}
		if took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(text) > 8<<20+8*input {
			t.Errorf("%d bytes of output", len(text))
		}

		want := ""
		if role == "developer" { // plain does not know it
			msgs[0].Role, msgs[2].Role = "system", "system"
		}
		for _, m := range msgs {
			want += "<" + m.Role + ">" + m.Content + "</>\n"
		}
		if generate {
			want += "<assistant>"
		}
		if got, err := plain.rendered(msgs, generate); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	})
}
