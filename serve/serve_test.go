package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/generate/constraint"
	"github.com/lockstep-go/lockstep/model"
)

// TestAnswers compares whole responses, except for ids and times.
func TestAnswers(t *testing.T) {
	tests := []struct {
		name, reason string
		path, body   string
		want         string
	}{
		{"chat", "the common case", chatPath, `{"messages":[{"role":"user","content":"hi"}],"seed":7}`,
			`{"id":"?","object":"chat.completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"message":{"role":"assistant","content":"a<b"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":8,"completion_tokens":3,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":1}}}`},
		{"parts", "content as a list, and a developer's message", chatPath, `{"messages":[{"role":"developer","content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]}],"seed":7,"max_completion_tokens":2}`,
			`{"id":"?","object":"chat.completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"message":{"role":"assistant","content":"a<"},"logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":1}}}`},
		{"chat with log-probabilities", "content and the most likely tokens", chatPath, `{"messages":[{"role":"user","content":"hi"}],"seed":7,"max_tokens":1,"logprobs":true,"top_logprobs":2}`,
			`{"id":"?","object":"chat.completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-1.5,"bytes":[98]}]}]},"finish_reason":"length"}],"usage":{"prompt_tokens":8,"completion_tokens":1,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":1}}}`},
		{"chat streamed", "role, parts, reason to finish", chatPath, `{"messages":[{"role":"user","content":"hi"}],"seed":7,"stream":true}`,
			`data: {"id":"?","object":"chat.completion.chunk","created":?,"model":"fake","seed":7,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

data: {"id":"?","object":"chat.completion.chunk","created":?,"model":"fake","seed":7,"choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}]}

data: {"id":"?","object":"chat.completion.chunk","created":?,"model":"fake","seed":7,"choices":[{"index":0,"delta":{"content":"<"},"logprobs":null,"finish_reason":null}]}

data: {"id":"?","object":"chat.completion.chunk","created":?,"model":"fake","seed":7,"choices":[{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":null}]}

data: {"id":"?","object":"chat.completion.chunk","created":?,"model":"fake","seed":7,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

data: [DONE]

`},
		{"chat streamed with usage", "null before, then a chunk without choices", chatPath, `{"messages":[{"role":"user","content":"hi"}],"seed":7,"max_tokens":1,"stream":true,"stream_options":{"include_usage":true}}`,
			`data: {"id":"?","object":"chat.completion.chunk","created":?,"model":"fake","seed":7,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"?","object":"chat.completion.chunk","created":?,"model":"fake","seed":7,"choices":[{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"?","object":"chat.completion.chunk","created":?,"model":"fake","seed":7,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],"usage":null}

data: {"id":"?","object":"chat.completion.chunk","created":?,"model":"fake","seed":7,"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":1,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":1}}}

data: [DONE]

`},
		{"completion", "the common case", textPath, `{"prompt":"hi","seed":7}`,
			`{"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"a<b","logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}}`},
		{"token ids", "a prompt of ids, echoed as text", textPath, `{"prompt":[104,105],"max_tokens":1,"seed":7,"echo":true}`,
			`{"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"hia","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":1}}}`},
		{"several", "lists of ids, and choices in the order of prompts", textPath, `{"model":"fake","prompt":[[104],[105]],"n":2,"best_of":2,"max_tokens":0,"seed":7,"echo":true,"prompt2":1}`,
			`{"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"h","logprobs":null,"finish_reason":"length"},{"index":1,"text":"h","logprobs":null,"finish_reason":"length"},{"index":2,"text":"i","logprobs":null,"finish_reason":"length"},{"index":3,"text":"i","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":0,"total_tokens":2,"prompt_tokens_details":{"cached_tokens":2}}}`},
		{"completion with log-probabilities", "parallel lists, offsets in characters", textPath, `{"prompt":"hi","max_tokens":2,"seed":7,"logprobs":2}`,
			`{"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"a<","logprobs":{"tokens":["a","<"],"token_logprobs":[-0.5,-0.5],"top_logprobs":[{"a":-0.5,"b":-1.5},{"<":-0.5,"=":-1.5}],"text_offset":[0,1]},"finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1}}}`},
		{"completion streamed", "text, reason to finish, usage", textPath, `{"prompt":"hi","max_tokens":2,"seed":7,"logprobs":0,"stream":true,"stream_options":{"include_usage":true}}`,
			`data: {"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-0.5],"top_logprobs":[{}],"text_offset":[0]},"finish_reason":null}],"usage":null}

data: {"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"<","logprobs":{"tokens":["<"],"token_logprobs":[-0.5],"top_logprobs":[{}],"text_offset":[1]},"finish_reason":null}],"usage":null}

data: {"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}],"usage":null}

data: {"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1}}}

data: [DONE]

`},
		{"echo streamed", "the prompt first", textPath, `{"prompt":"hi","max_tokens":1,"seed":7,"echo":true,"stream":true}`,
			`data: {"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"hi","logprobs":null,"finish_reason":null}]}

data: {"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null}]}

data: {"id":"?","object":"text_completion","created":?,"model":"fake","seed":7,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]}

data: [DONE]

`},
		{"embeddings", "of length 1", embedPath, `{"input":["hello",[1,2,3,4,5]]}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.6,0,0.8]},{"object":"embedding","index":1,"embedding":[0.6,0,0.8]}],"model":"fake","usage":{"prompt_tokens":10,"completion_tokens":0,"total_tokens":10}}`},
		{"embedding in base64", "float32, little-endian", embedPath, `{"input":"hello","encoding_format":"base64"}`,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":"mpkZPwAAAADNzEw/"}],"model":"fake","usage":{"prompt_tokens":5,"completion_tokens":0,"total_tokens":5}}`},
		{"tokenize", "ids and their text", "/tokenize", `{"prompt":"hi","return_token_strs":true}`, `{"count":2,"max_model_len":1000,"tokens":[104,105],"token_strs":["h","i"]}`},
		{"tokenize nothing", "an empty list, not null", "/tokenize", `{"prompt":""}`, `{"count":0,"max_model_len":1000,"tokens":[]}`},
		{"tokenize a chat", "the rendered template", "/tokenize", `{"messages":[{"role":"user","content":"é"}]}`, `{"count":8,"max_model_len":1000,"tokens":[117,115,101,114,58,195,169,10]}`},
		{"detokenize", "text of ids", "/detokenize", `{"tokens":[104,105]}`, `{"prompt":"hi"}`},
		{"detokenize nothing", "no ids", "/detokenize", `{"tokens":[]}`, `{"prompt":""}`},
	}
	_, url := start(t, newFake("a<b"), Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := ask(t, "POST", url+tt.path, tt.body)
			if got := steady(r.body); r.status != http.StatusOK || got != tt.want {
				t.Errorf("%s: status %d:\n%s\nwant\n%s", tt.reason, r.status, got, tt.want)
			}
			kind := "application/json"
			if strings.HasPrefix(tt.want, "data:") {
				kind = "text/event-stream"
			}
			if got := r.header.Get("Content-Type"); got != kind {
				t.Errorf("Content-Type %q, want %q", got, kind)
			}
		})
	}
}

func TestEmptyPrompt(t *testing.T) {
	_, url := start(t, newFake("a"), Options{})
	r := ask(t, "POST", url+textPath, `{"prompt":["hi",""]}`)
	if _, _, param, code := errorOf(t, r); param != "prompt[1]" || code != "empty_prompt" {
		t.Errorf("param %q, code %q", param, code)
	}
}

// TestParameters checks what reaches the backend.
func TestParameters(t *testing.T) {
	defaults := params{temperature: 1, topP: 1, repetition: 1, maxTokens: -1, seed: 7}
	tests := []struct {
		name, fields string
		change       func(*params)
	}{
		{"defaults", ``, func(*params) {}},
		{"temperature", `,"temperature":0`, func(p *params) { p.temperature = 0 }},
		{"top_p", `,"top_p":0.5`, func(p *params) { p.topP = 0.5 }},
		{"top_p of 0", `,"top_p":0,"top_k":5`, func(p *params) { p.topK = 1 }},
		{"top_k", `,"top_k":40`, func(p *params) { p.topK = 40 }},
		{"top_k of -1", `,"top_k":-1`, func(*params) {}},
		{"min_p", `,"min_p":0.05`, func(p *params) { p.minP = 0.05 }},
		{"penalties", `,"presence_penalty":1,"frequency_penalty":-1.5,"repetition_penalty":1.1`,
			func(p *params) { p.presence, p.frequency, p.repetition = 1, -1.5, 1.1 }},
		{"stop", `,"stop":"x"`, func(p *params) { p.stop = []string{"x"} }},
		{"stops", `,"stop":["x","\ud83d\ude00"]`, func(p *params) { p.stop = []string{"x", "😀"} }},
		{"stop tokens", `,"stop_token_ids":[3],"ignore_eos":true`, func(p *params) { p.stopTokens, p.ignoreEOS = []int{3}, true }},
		{"bias", `,"logit_bias":{"3":-100,"4":1.5}`, func(p *params) { p.bias = map[int]float32{3: -100, 4: 1.5} }},
		{"lengths", `,"min_tokens":2,"max_tokens":1e1`, func(p *params) { p.minTokens, p.maxTokens = 2, 10 }},
		{"both maxima", `,"max_completion_tokens":9,"max_tokens":10`, func(p *params) { p.maxTokens = 9 }},
		{"both maxima in the other order", `,"max_tokens":10,"max_completion_tokens":9`, func(p *params) { p.maxTokens = 9 }},
		{"log-probabilities", `,"logprobs":true,"top_logprobs":3`, func(p *params) { p.logprobs, p.topLogprobs = true, 3 }},
		{"JSON", `,"response_format":{"type":"json_object"}`, func(p *params) { p.structure = &structure{source: anyObject, param: "response_format"} }},
		{"text", `,"response_format":{"type":"text"}`, func(*params) {}},
		{"schema", `,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"b": [1, 2], "a":{}}}}`,
			func(p *params) {
				p.structure = &structure{source: constraint.Structure{Schema: []byte(`{"b":[1,2],"a":{}}`)}, param: "response_format.json_schema.schema"}
			}},
		{"schema that is not strict", `,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":false,"schema":{}}}`,
			func(p *params) {
				p.structure = &structure{source: constraint.Structure{Schema: []byte(`{}`)}, param: "response_format.json_schema.schema"}
			}},
		{"vLLM's schema", `,"guided_json":{"b": [1, 2]},"response_format":{"type":"text"}`,
			func(p *params) {
				p.structure = &structure{source: constraint.Structure{Schema: []byte(`{"b":[1,2]}`)}, param: "guided_json"}
			}},
		{"vLLM's schema as text", `,"guided_json":"{\"b\": 1}"`,
			func(p *params) {
				p.structure = &structure{source: constraint.Structure{Schema: []byte(`{"b": 1}`)}, param: "guided_json"}
			}},
		{"vLLM's newer field", `,"structured_outputs":{"regex":"a|b","json":null,"json_object":false}`,
			func(p *params) {
				p.structure = &structure{source: constraint.Structure{Regexp: "a|b"}, param: "structured_outputs.regex"}
			}},
		{"vLLM's newer schema", `,"structured_outputs":{"json":{"b": 1}}`,
			func(p *params) {
				p.structure = &structure{source: constraint.Structure{Schema: []byte(`{"b":1}`)}, param: "structured_outputs.json"}
			}},
		{"vLLM's newer object", `,"structured_outputs":{"json_object":true}`,
			func(p *params) { p.structure = &structure{source: anyObject, param: "structured_outputs.json_object"} }},
		{"expression", `,"guided_regex":"a|b"`,
			func(p *params) {
				p.structure = &structure{source: constraint.Structure{Regexp: "a|b"}, param: "guided_regex"}
			}},
		{"choices", `,"guided_choice":["a b","c"]`,
			func(p *params) {
				p.structure = &structure{source: constraint.Structure{AnyOf: []constraint.Structure{{Text: "a b"}, {Text: "c"}}}, param: "guided_choice"}
			}},
		{"vLLM's newer choices", `,"structured_outputs":{"choice":["a"]}`,
			func(p *params) {
				p.structure = &structure{source: constraint.Structure{AnyOf: []constraint.Structure{{Text: "a"}}}, param: "structured_outputs.choice"}
			}},
		{"nulls", `,"temperature":null,"stop":null,"tools":null,"n":null,"logit_bias":null,"stream":null,"max_tokens":null`, func(*params) {}},
		{"second choice", `,"n":2`, func(p *params) { p.choice = 1 }},
	}
	f := newFake("a")
	f.asked = make(chan params, 8)
	_, url := start(t, f, Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := ask(t, "POST", url+chatPath, `{"messages":[{"role":"user","content":"hi"}],"seed":7`+tt.fields+`}`)
			if r.status != http.StatusOK {
				t.Fatalf("status %d: %s", r.status, r.body)
			}
			want := defaults
			tt.change(&want)
			var got []string
			for len(f.asked) > 0 {
				got = append(got, describe(<-f.asked))
			}
			if !slices.Contains(got, describe(want)) {
				t.Errorf("parameters %s\nwant %s", got, describe(want))
			}
		})
	}
}

// describe prints parameters without pointers.
func describe(p params) string {
	s := p.structure
	p.structure = nil
	text := fmt.Sprintf("%+v", p)
	if s != nil {
		text += fmt.Sprintf(" %s %s", s.param, marshal(s.source))
	}
	return text
}

// TestSeed: a request without a seed gets one, which gives the same parameters again and is exact
// in a float64.
func TestSeed(t *testing.T) {
	f := newFake("a")
	f.asked = make(chan params, 8)
	_, url := start(t, f, Options{})
	seeds := map[uint64]bool{}
	for range 3 {
		var answer struct{ Seed uint64 }
		decodeInto(t, ask(t, "POST", url+textPath, `{"prompt":"hi"}`), &answer)
		if got := (<-f.asked).seed; got != answer.Seed || uint64(float64(got)) != got {
			t.Errorf("seed %d was used, %d returned", got, answer.Seed)
		}
		seeds[answer.Seed] = true
	}
	if len(seeds) != 3 {
		t.Errorf("seeds %v repeat", seeds)
	}
	ask(t, "POST", url+textPath, `{"prompt":"hi","seed":-1}`)
	if got := (<-f.asked).seed; got != math.MaxUint64 {
		t.Errorf("seed -1 became %d", got)
	}
}

// upper is a parser that gives words in capitals as calls, and text in parentheses as reasoning.
type upper struct{ calls int }

func (u *upper) next(t token) []part {
	switch text := t.text; {
	case text == "":
		return nil
	case text >= "A" && text <= "Z":
		u.calls++
		return []part{
			{call: &callPart{index: u.calls - 1, id: fmt.Sprintf("call_%d", u.calls), name: text}},
			{call: &callPart{index: u.calls - 1, arguments: `{"x":`}},
		}
	case text == "(":
		return []part{{reasoning: "hm"}}
	}
	return []part{{content: t.text}}
}

func (u *upper) end() []part {
	if u.calls == 0 {
		return nil
	}
	return []part{{call: &callPart{index: u.calls - 1, arguments: `1}`}}}
}

const weather = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]`

// TestToolCalls: what the parser of an answer finds becomes reasoning_content and tool_calls.
func TestToolCalls(t *testing.T) {
	tests := []struct{ name, answer, want string }{
		{"text only", "ab", `{"role":"assistant","content":"ab"} stop`},
		{"reasoning", "(a", `{"role":"assistant","content":"a","reasoning_content":"hm"} stop`},
		{"a call", "W", `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"W","arguments":"{\"x\":1}"}}]} tool_calls`},
		{"text and a call", "aW", `{"role":"assistant","content":"a","tool_calls":[{"id":"call_1","type":"function","function":{"name":"W","arguments":"{\"x\":1}"}}]} tool_calls`},
		{"nothing", "", `{"role":"assistant","content":""} stop`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(tt.answer)
			f.newParser = func() answerParser { return &upper{} }
			_, url := start(t, f, Options{})
			body := `{"messages":[{"role":"user","content":"hi"}],` + weather + `}`
			var whole chatMessages
			decodeInto(t, ask(t, "POST", url+chatPath, body), &whole)
			if got := string(whole.Choices[0].Message) + " " + whole.Choices[0].Finish; got != tt.want {
				t.Errorf("message %s\nwant    %s", got, tt.want)
			}
			r := ask(t, "POST", url+chatPath, strings.Replace(body, "{", `{"stream":true,`, 1))
			if got := assemble(t, r.body); got != tt.want {
				t.Errorf("streamed %s\nwant     %s", got, tt.want)
			}
		})
	}
}

// assemble joins the deltas of a stream with one choice as a client does.
func assemble(t *testing.T, stream string) string {
	t.Helper()
	m := chatMessage{Content: (*string)(nil)}
	content, finish := "", ""
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Role, Content string
					Reasoning     string         `json:"reasoning_content"`
					Calls         []chatToolCall `json:"tool_calls"`
				}
				Finish string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		d := chunk.Choices[0].Delta
		m.Role += d.Role
		content += d.Content
		m.Reasoning += d.Reasoning
		for _, c := range d.Calls {
			if *c.Index == len(m.ToolCalls) {
				m.ToolCalls = append(m.ToolCalls, chatToolCall{ID: c.ID, Type: c.Type})
			}
			call := &m.ToolCalls[*c.Index]
			call.Function.Name += c.Function.Name
			call.Function.Arguments += c.Function.Arguments
		}
		finish += chunk.Choices[0].Finish
	}
	if content != "" || len(m.ToolCalls) == 0 {
		m.Content = content
	}
	return string(marshal(&m)) + " " + finish
}

// TestToolsReachTheTemplate: the definitions keep the order of their keys; tool_choice none hides
// them.
func TestToolsReachTheTemplate(t *testing.T) {
	f := newFake("a")
	f.prompts = make(chan []int, 1)
	_, url := start(t, f, Options{})
	for choice, want := range map[string]string{
		`"auto"`:     `{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}user:hi` + "\n",
		`"required"`: `{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}user:hi` + "\n",
		`{"type":"function","function":{"name":"weather"}}`: `{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}user:hi` + "\n",
		`"none"`: "user:hi\n",
	} {
		r := ask(t, "POST", url+chatPath, `{"messages":[{"role":"user","content":"hi"}],`+weather+`,"tool_choice":`+choice+`}`)
		if r.status != http.StatusOK {
			t.Fatalf("tool_choice %s: status %d: %s", choice, r.status, r.body)
		}
		if got, _ := f.detokenize(<-f.prompts); got != want {
			t.Errorf("tool_choice %s: prompt %q, want %q", choice, got, want)
		}
	}
}

// TestBackendErrors: each kind of error of the model has its status, before a stream and within it.
func TestBackendErrors(t *testing.T) {
	tests := []struct {
		name       string
		err        error
		status     int
		kind, code string
	}{
		{"context", fmt.Errorf("generate: %w", model.ErrContextLimit), 400, typeInvalid, "context_length_exceeded"},
		{"token", model.ErrBadToken, 400, typeInvalid, "bad_token"},
		{"parameter", unsupported("logprobs", "no"), 400, typeInvalid, "unsupported_parameter"},
		{"no room to wait", fmt.Errorf("generate: %w", generate.ErrBusy), 429, typeLimit, "server_busy"},
		{"generator closed", model.ErrClosed, 503, typeServer, "stopping"},
		{"anything else", errors.New("the device is lost"), 500, typeServer, "internal_error"},
		{"canceled by the engine", context.Canceled, 500, typeServer, "internal_error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake("abc")
			f.fail = tt.err
			_, url := start(t, f, Options{})
			for _, body := range []string{`{"prompt":"hi"}`, `{"prompt":"hi","stream":true}`} {
				r := ask(t, "POST", url+textPath, body)
				if _, kind, _, code := errorOf(t, r); r.status != tt.status || kind != tt.kind || code != tt.code {
					t.Errorf("%s: status %d, want %d: %s", body, r.status, tt.status, r.body)
				}
			}
			f.failAt = 2
			if r := ask(t, "POST", url+textPath, `{"prompt":"hi"}`); r.status != tt.status {
				t.Errorf("status %d, want %d: %s", r.status, tt.status, r.body)
			}
			r := ask(t, "POST", url+textPath, `{"prompt":"hi","stream":true}`)
			events := strings.Split(strings.TrimSpace(r.body), "\n\n")
			if len(events) != 3 || strings.Contains(r.body, "[DONE]") {
				t.Fatalf("events %q, want two tokens and an error", events)
			}
			r.body = strings.TrimPrefix(events[2], "data: ")
			if _, kind, _, code := errorOf(t, r); kind != tt.kind || code != tt.code {
				t.Errorf("the stream ends with %s", r.body)
			}
		})
	}
}

// TestErrorEndsAllChoices: an error of one choice ends the others, and the request.
func TestErrorEndsAllChoices(t *testing.T) {
	f := endless()
	f.fail = errors.New("lost")
	f.failAt = -1
	f.only = func(p *params, i int) bool { return p.choice == 1 && i == 2 }
	_, url := start(t, f, Options{})
	if r := ask(t, "POST", url+textPath, `{"prompt":"hi","n":3,`+long+`}`); r.status != 500 {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	if n := f.running.Load(); n != 0 {
		t.Errorf("%d generations are left", n)
	}
}

// TestPanic: a panic of the model ends its request only.
func TestPanic(t *testing.T) {
	f := newFake("abc")
	f.step = func(context.Context, int) { panic("no such page") }
	_, url := start(t, f, Options{})
	for range 2 {
		r := ask(t, "POST", url+textPath, `{"prompt":"hi"}`)
		if message, _, _, _ := errorOf(t, r); r.status != 500 || message != "internal error" {
			t.Errorf("status %d: %s", r.status, r.body)
		}
	}
	if f.running.Load() != 0 {
		t.Error("a generation is left")
	}
}

func TestNoChatTemplate(t *testing.T) {
	f := newFake("abc")
	f.noChat = true
	_, url := start(t, f, Options{})
	r := ask(t, "POST", url+chatPath, `{"messages":[{"role":"user","content":"hi"}]}`)
	if _, _, param, code := errorOf(t, r); r.status != 400 || param != "messages" || code != "no_chat_template" {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}

func TestModels(t *testing.T) {
	_, url := start(t, newFake("a"), Options{Name: "org/model:q4"})
	want := `{"id":"org/model:q4","object":"model","created":0,"owned_by":"lockstep","max_model_len":1000,"chat":true}`
	if r := ask(t, "GET", url+"/v1/models", ""); r.body != `{"object":"list","data":[`+want+`]}` {
		t.Errorf("%d %s", r.status, r.body)
	}
	for _, path := range []string{"org/model:q4", "org%2Fmodel:q4"} {
		if r := ask(t, "GET", url+"/v1/models/"+path, ""); r.body != want {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := ask(t, "GET", url+"/v1/models/other", ""); r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := ask(t, "POST", url+textPath, `{"prompt":"hi","model":"org/model:q4"}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// TestStreamIsNotCollected: each token reaches the client before the next one is computed.
func TestStreamIsNotCollected(t *testing.T) {
	f := newFake("abc")
	next := make(chan bool)
	f.step = func(context.Context, int) { <-next }
	_, url := start(t, f, Options{})
	go func() { next <- true }()
	r, err := http.Post(url+textPath, "application/json", strings.NewReader(`{"prompt":"hi","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	events := bufio.NewReader(r.Body)
	for i, want := range []string{`"text":"a"`, `"text":"b"`, `"text":"c"`, `"finish_reason":"stop"`, "[DONE]"} {
		if i == 1 || i == 2 {
			next <- true
		}
		if e, err := readEvent(events); err != nil || !strings.Contains(e, want) {
			t.Fatalf("event %d: %q, error %v, want %s", i, e, err, want)
		}
	}
}

// readEvent reads the data of the next event of a stream.
func readEvent(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	if _, err := r.ReadString('\n'); err != nil {
		return "", err
	}
	return strings.TrimPrefix(strings.TrimSpace(line), "data: "), nil
}

// silent is a fake. Its first token completes no character.
type silent struct{ *fake }

func (s silent) generate(ctx context.Context, prompt []int, p *params, out *outcome) iter.Seq2[token, error] {
	return func(yield func(token, error) bool) {
		if !yield(token{id: 195}, nil) {
			return
		}
		time.Sleep(10 * time.Millisecond) // its event goes alone
		s.fake.generate(ctx, prompt, p, out)(yield)
	}
}

// TestStreamWithoutText: a token without text neither sends the headers of a stream nor hides the
// status of an error after it.
func TestStreamWithoutText(t *testing.T) {
	f := newFake("a")
	_, url := start(t, silent{f}, Options{})
	const body = `{"prompt":"hi","stream":true}`
	if r := ask(t, "POST", url+textPath, body); r.status != 200 || r.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("status %d, Content-Type %q", r.status, r.header.Get("Content-Type"))
	}
	f.fail = errors.New("lost")
	if r := ask(t, "POST", url+textPath, body); r.status != 500 {
		t.Errorf("status %d: %s", r.status, r.body)
	}
}
