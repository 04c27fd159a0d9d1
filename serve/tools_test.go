package serve

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// markers are control tokens. They replace the bytes from 0xf5 on, which UTF-8 never has, and then
// those from 0 on, which no test writes.
var markers = []string{
	"<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>",
	"[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
	"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>",
}

// markerID returns the token of a marker.
func markerID(marker string) int { return (0xf5 + slices.Index(markers, marker)) % 256 }

// withMarkers returns a generator of a tiny random model with a pre-tokenizer, a chat template and the
// tokens of markers.
func withMarkers(t *testing.T, pre, template string) *generate.Generator {
	t.Helper()
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	f := spec.File()
	value, _ := f.Value("tokenizer.ggml.tokens")
	tokens, err := value.Strings()
	if err != nil {
		t.Fatal(err)
	}
	types := slices.Repeat([]int32{1}, len(tokens))
	types[tiny.Begin], types[tiny.End] = 3, 3
	for _, m := range markers {
		tokens[markerID(m)], types[markerID(m)] = m, 3
	}
	spec.Set("tokenizer.ggml.tokens", tokens)
	spec.Set("tokenizer.ggml.token_type", types)
	spec.Set("tokenizer.ggml.unknown_token_id", uint32(tiny.Begin)) // for the bytes without a token
	spec.Set("tokenizer.ggml.pre", pre)
	spec.Set("tokenizer.chat_template", template)
	spec.Set("llama.context_length", uint32(1024))
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return generatorOf(t, m)
}

// bias is a logit_bias that makes markers and the end of a text likely.
func bias(weights map[string]int) string {
	all := map[int]int{}
	for mark, w := range weights {
		id := tiny.End
		if mark != "" {
			id = markerID(mark)
		}
		all[id] = w
	}
	return `"logit_bias":` + string(marshal(all))
}

// function returns the field tools with one function, with its parameters.
func function(parameters string) string {
	return `"tools":[{"type":"function","function":{"name":"weather","parameters":` + parameters + `}}]`
}

// chatMessages are the messages of a chat with n choices, whole.
type chatMessages struct {
	Choices []struct {
		Message json.RawMessage
		Finish  string `json:"finish_reason"`
	}
}

// callIDs matches the ids of calls, which are random.
var callIDs = regexp.MustCompile(`"id":"[a-z0-9]{9}"`)

// askBoth sends a chat twice, whole and streamed. Both must agree. It returns the message and the
// reason to finish.
func askBoth(t *testing.T, url, body string) (m struct {
	Content   *string
	Reasoning string `json:"reasoning_content"`
	ToolCalls []struct {
		Type     string
		Function chatFunction
	} `json:"tool_calls"`
}, finish string) {
	t.Helper()
	var whole chatMessages
	decodeInto(t, ask(t, "POST", url+chatPath, body), &whole)
	c := whole.Choices[0]
	if err := json.Unmarshal(c.Message, &m); err != nil {
		t.Fatal(err)
	}
	want := callIDs.ReplaceAllString(string(c.Message)+" "+c.Finish, "")
	got := callIDs.ReplaceAllString(assemble(t, ask(t, "POST", url+chatPath, strings.Replace(body, "{", `{"stream":true,`, 1)).body), "")
	if got != want {
		t.Errorf("streamed %s\nwhole    %s", got, want)
	}
	return m, c.Finish
}

// isTimeOrWeather checks a call against the schemas of TestModelToolChoice.
func isTimeOrWeather(call chatFunction) bool {
	var args struct {
		Days *int
		Unit string
	}
	d := json.NewDecoder(strings.NewReader(call.Arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(&args); err != nil {
		return false
	}
	if call.Name == "time" {
		return args.Days == nil && args.Unit == ""
	}
	return call.Name == "weather" && args.Days != nil && *args.Days >= 1 && *args.Days <= 3 && slices.Contains([]string{"", "c", "f"}, args.Unit)
}

// TestModelToolChoice: in every style, the answer is what tool_choice, strict and
// parallel_tool_calls ask for.
func TestModelToolChoice(t *testing.T) {
	const (
		question  = `"messages":[{"role":"user","content":"hi"}],"max_tokens":150`
		schema    = `{"type":"object","properties":{"days":{"enum":[1,2,3]},"unit":{"enum":["c","f"]}},"required":["days"]}`
		functions = `"tools":[{"type":"function","function":{"name":"time"}},{"type":"function","function":{"name":"weather","strict":true,"parameters":` + schema + `}}]`
	)
	templates := map[string]string{
		"hermes": "{{ tools }}{# <tool_call> #}", "llama": `{{ tools }}{# <|python_tag|> "parameters" #}`, "mistral": "{{ tools }}{# [TOOL_CALLS] #}",
		"named": "{{ tools }}{# [TOOL_CALLS] [ARGS] #}", "coder": "{{ tools }}{# <tool_call> <function= <parameter= #}",
		"thinking": "{{ tools }}{# <tool_call> #}<think>",
	}
	likely := bias(map[string]int{"": 6, "<tool_call>": 9, "[TOOL_CALLS]": 7, "<|python_tag|>": 9, "</think>": 4})
	calls := map[string]int{} // of complete answers
	for name, template := range templates {
		if testing.Short() && name != "hermes" {
			continue // one style is enough for a quick run
		}
		url := startModel(t, withMarkers(t, "gpt-2", template))
		for _, tt := range []struct {
			name, fields string
			least, most  int    // calls
			only         string // the function
		}{
			{"required", `"tool_choice":"required"`, 1, 100, ""},
			{"one required", `"tool_choice":"required","parallel_tool_calls":false`, 1, 1, ""},
			{"named", `"tool_choice":{"type":"function","function":{"name":"weather"}}`, 1, 1, "weather"},
			{"auto", `"tool_choice":"auto"`, 0, 100, ""},
			{"at most one", `"parallel_tool_calls":false`, 0, 1, ""},
		} {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				ended, called, reasoned := 0, 0, 0
				for seed := range 4 {
					m, finish := askBoth(t, url, fmt.Sprintf(`{%s,%s,%s,%s,"seed":%d}`, question, functions, tt.fields, likely, seed))
					if m.Reasoning != "" {
						reasoned++
					}
					if finish == "length" {
						continue
					}
					ended++
					called += len(m.ToolCalls)
					if n := len(m.ToolCalls); n < tt.least || n > tt.most || tt.least > 0 && m.Content != nil {
						t.Errorf("seed %d: %d calls: %+v", seed, n, m)
					}
					if want := map[bool]string{true: "tool_calls", false: "stop"}[len(m.ToolCalls) > 0 && tt.only == ""]; finish != want {
						t.Errorf("seed %d: finish_reason %s, want %s", seed, finish, want)
					}
					for _, c := range m.ToolCalls {
						notStrict := c.Function.Name == "time" && tt.least == 0 && json.Valid([]byte(c.Function.Arguments))
						if !notStrict && !isTimeOrWeather(c.Function) || tt.only != "" && c.Function.Name != tt.only {
							t.Errorf("seed %d: %+v", seed, c)
						}
					}
				}
				if tt.least > 0 && ended == 0 || reasoned > 0 != (name == "thinking") {
					t.Errorf("%d answers ended, %d have reasoning", ended, reasoned)
				}
				calls[tt.name] += called
			})
		}
	}
	for _, name := range []string{"required", "one required", "named", "auto", "at most one"} {
		if calls[name] == 0 {
			t.Errorf("%s: no calls", name)
		}
	}
}

// TestMistral renders a published template of Mistral, encodes it with Mistral's pre-tokenizer,
// and parses calls of both forms.
func TestMistral(t *testing.T) {
	source, err := os.ReadFile("../model/tokenizer/testdata/published/mistral-nemo.jinja")
	if err != nil {
		t.Fatal(err)
	}
	for name, template := range map[string]string{"list": string(source), "named": string(source) + "{# [ARGS] #}"} {
		t.Run(name, func(t *testing.T) {
			g := withMarkers(t, "tekken", template)
			tok := g.Model().Tokenizer
			text, err := tok.Render(tokenizer.Conversation{
				Messages: []tokenizer.Message{
					{Role: "user", Content: "[INST]x"},
					{Role: "assistant", ToolCalls: []tokenizer.ToolCall{{ID: "123456789", Name: "f", Arguments: `{"a":1}`}}},
				},
				Tools: []json.RawMessage{json.RawMessage(`{"type":"function","function":{"name":"f","parameters":{}}}`)},
			})
			if err != nil {
				t.Fatal(err)
			}
			var controls []string
			ids, _ := tok.PromptText(text, math.MaxInt)
			for _, id := range ids {
				if control := tok.Control(id); control != "" {
					controls = append(controls, control)
				}
			}
			want := []string{"<|begin|>", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[INST]", "[/INST]", "[TOOL_CALLS]", "<|end|>"}
			if !slices.Equal(controls, want) {
				t.Errorf("the control tokens of %q are %q, want %q", text.String(), controls, want)
			}

			schema := `{"type":"object","properties":{"days":{"enum":[1,2,3]}},"required":["days"]}`
			m, finish := askBoth(t, startModel(t, g), `{"messages":[{"role":"user","content":"hi"}],"max_tokens":100,"seed":1,"tool_choice":"required","parallel_tool_calls":false,`+
				function(schema)+`,`+bias(map[string]int{"": 6})+`}`)
			if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "weather" || !isTimeOrWeather(m.ToolCalls[0].Function) || m.Content != nil || finish != "tool_calls" {
				t.Errorf("%+v, %s", m, finish)
			}
		})
	}
}

// TestHarmony has reasoning, content and calls in the harmony format, whole and streamed.
func TestHarmony(t *testing.T) {
	source, err := os.ReadFile("../model/tokenizer/testdata/chat/harmony.jinja")
	if err != nil {
		t.Fatal(err)
	}
	url := startModel(t, withMarkers(t, "gpt-2", string(source)))
	likely := bias(map[string]int{"": 6, "<|end|>": 5})
	reasoned, ended := 0, 0
	for seed := range 4 {
		question := fmt.Sprintf(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":200,"seed":%d,%s,`, seed, likely)
		m, finish := askBoth(t, url, question+`"guided_choice":["yes","no"]}`)
		if m.Reasoning != "" {
			reasoned++
		}
		if finish != "length" {
			ended++
			if m.Content == nil || *m.Content != "yes" && *m.Content != "no" {
				t.Errorf("seed %d: %+v", seed, m)
			}
		}
		m, finish = askBoth(t, url, question+`"tool_choice":"required",`+function(`{"type":"object","properties":{"days":{"enum":[1,2,3]}},"required":["days"]}`)+`}`)
		if finish == "length" {
			continue
		}
		ended++
		if len(m.ToolCalls) != 1 || !isTimeOrWeather(m.ToolCalls[0].Function) || m.Content != nil || finish != "tool_calls" {
			t.Errorf("seed %d: %+v, %s", seed, m, finish)
		}
	}
	if ended == 0 || reasoned == 0 {
		t.Errorf("%d answers ended, %d have reasoning", ended, reasoned)
	}
}

// TestModelToolTemplate: a file's template for tools is used for requests with tools, and for no
// others.
func TestModelToolTemplate(t *testing.T) {
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	spec.Set("llama.context_length", uint32(1024))
	spec.Set("tokenizer.chat_templates", []string{"tool_use", "rag"})
	spec.Set("tokenizer.chat_template", "default {{ messages[0].content }}")
	spec.Set("tokenizer.chat_template.tool_use", "with {{ tools[0].function.name }} {{ messages[0].content }}{# <tool_call> #}")
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	url := startModel(t, generatorOf(t, m))
	for fields, want := range map[string]string{
		``:                   "default hi",
		`,` + function(`{}`): "with weather hi",
		`,"tools":[]`:        "default hi",
	} {
		var tokens struct{ Tokens []int }
		decodeInto(t, ask(t, "POST", url+"/tokenize", `{"messages":[{"role":"user","content":"hi"}]`+fields+`}`), &tokens)
		if got := m.Tokenizer.Decode(tokens.Tokens); got != want {
			t.Errorf("%s: prompt %q, want %q", fields, got, want)
		}
		r := ask(t, "POST", url+chatPath, `{"max_tokens":1,"messages":[{"role":"user","content":"hi"}]`+fields+`}`)
		if r.status != 200 {
			t.Errorf("%s: status %d: %s", fields, r.status, r.body)
		}
	}
}

// TestModelReasoningBeforeStructure: the reasoning is free, and the structure begins after it.
func TestModelReasoningBeforeStructure(t *testing.T) {
	for name, template := range map[string]string{
		"begun by the template": "{{ messages[0].content }}<think>\n{# </think> #}",
		"begun by the model":    "{{ messages[0].content }}{# <think> </think> #}",
		"ended by the template": "{{ messages[0].content }}<think>\n\n</think>\n\n",
	} {
		url := startModel(t, withMarkers(t, "gpt-2", template))
		for _, field := range []string{
			`"guided_choice":["yes","no"]`, `"guided_regex":"yes|no"`, `"structured_outputs":{"choice":["no","yes"]}`,
			`"response_format":{"type":"json_schema","json_schema":{"schema":{"enum":["yes","no"]}}}`,
		} {
			reasoned, ended := 0, 0
			for seed := range 4 {
				body := fmt.Sprintf(`{"messages":[{"role":"user","content":"hi"}],"max_tokens":60,"seed":%d,%s,%s}`, seed, field, bias(map[string]int{"<think>": 2, "</think>": 6}))
				m, finish := askBoth(t, url, body)
				if m.Reasoning != "" {
					reasoned++
				}
				if finish == "length" {
					continue
				}
				ended++
				if text := strings.Trim(*m.Content, " \t\r\n\""); text != "yes" && text != "no" {
					t.Errorf("%s, %s: %q after %q", name, field, *m.Content, m.Reasoning)
				}
			}
			if ended == 0 || reasoned > 0 != (name != "ended by the template") {
				t.Errorf("%s, %s: %d answers ended, %d with reasoning", name, field, ended, reasoned)
			}
		}
	}
}
