package serve

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

const chatPath, textPath, embedPath = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"

// malformed is a request that must get a status of 400 to 499.
type malformed struct {
	path, body string
	param      string // error.param; its beginning if it ends in …
	status     int    // 0: 400
}

// bases are the fields of valid bodies. A case adds another field.
var bases = map[string]string{
	chatPath:      `"messages":[{"role":"user","content":"hi"}]`,
	textPath:      `"prompt":"hi"`,
	embedPath:     `"input":"hi"`,
	"/tokenize":   `"prompt":"hi"`,
	"/detokenize": `"tokens":[1]`,
}

// with adds a field to a valid body.
func with(path, field, value string) malformed {
	return malformed{path: path, body: fmt.Sprintf(`{%s,%q:%s}`, bases[path], field, value), param: field}
}

// malformedRequests returns the table: every field with values of every wrong type and beyond each
// of its limits, and bodies that are broken as a whole.
func malformedRequests() []malformed {
	var all []malformed
	// Values that are wrong for each type. A lone surrogate and a broken escape are strings.
	wrong := map[string][]string{
		"number":  {`"1"`, `true`, `[]`, `{}`, `1e999`, `-1e999`, `01`, `1.`, `+1`, `NaN`, `Infinity`, `0x10`, `"x"`, strings.Repeat("9", 400)},
		"integer": {`"1"`, `false`, `[1]`, `{"a":1}`, `0.5`, `1e300`, `99999999999999999999`, `-99999999999999999999`, `-`},
		"boolean": {`"true"`, `1`, `0`, `[]`, `{}`, `True`, `tru`},
		"string":  {`1`, `true`, `[]`, `{}`, `'x'`, `"\ud800"`, `"\udc00x"`, `"\q"`, "\"\xff\"", "\"\xc3\"", "\"a\nb\"", `"\u12"`},
		"object":  {`"x"`, `1`, `[]`, `true`},
		"array":   {`"x"`, `1`, `{}`, `true`},
	}
	fields := []struct {
		kind, name string
		chat, text bool
		beyond     []string
	}{
		{"string", "model", true, true, nil},
		{"integer", "n", true, true, []string{"0", "-1", "129"}},
		{"boolean", "stream", true, true, nil},
		{"object", "stream_options", true, true, []string{`{"include_usage":true}`}},
		{"integer", "max_tokens", true, true, []string{"-1", "2147483648"}},
		{"integer", "max_completion_tokens", true, true, []string{"-1"}},
		{"integer", "min_tokens", true, true, []string{"-1"}},
		{"number", "temperature", true, true, []string{"-0.1", "101"}},
		{"number", "top_p", true, true, []string{"-0.1", "1.1"}},
		{"integer", "top_k", true, true, []string{"-2"}},
		{"number", "min_p", true, true, []string{"-0.1", "1.1"}},
		{"number", "presence_penalty", true, true, []string{"-2.1", "2.1"}},
		{"number", "frequency_penalty", true, true, []string{"-2.1", "2.1"}},
		{"number", "repetition_penalty", true, true, []string{"0", "-1"}},
		{"integer", "seed", true, true, []string{"9223372036854775808"}},
		{"boolean", "ignore_eos", true, true, nil},
		{"array", "stop_token_ids", true, true, nil},
		{"object", "logit_bias", true, true, nil},
		{"object", "response_format", true, true, nil},
		{"array", "messages", true, false, nil},
		{"array", "tools", true, false, nil},
		{"object", "chat_template_kwargs", true, false, nil},
		{"boolean", "parallel_tool_calls", true, false, nil},
		{"boolean", "logprobs", true, false, nil},
		{"integer", "top_logprobs", true, false, []string{"-1", "21", "2"}},
		{"integer", "logprobs", false, true, []string{"-1", "21"}},
		{"boolean", "echo", false, true, nil},
		{"integer", "best_of", false, true, []string{"0", "2"}},
		{"boolean", "add_special_tokens", false, true, nil},
		{"boolean", "parse_special", false, true, nil},
	}
	for _, f := range fields {
		for _, v := range append(wrong[f.kind], f.beyond...) {
			if f.name == "messages" {
				all = append(all, malformed{path: chatPath, body: `{"messages":` + v + `}`, param: "messages"})
				continue
			}
			if f.chat {
				all = append(all, with(chatPath, f.name, v))
			}
			if f.text {
				all = append(all, with(textPath, f.name, v))
			}
		}
	}
	message := func(m, param string) malformed {
		return malformed{path: chatPath, body: `{"messages":[` + m + `]}`, param: param}
	}
	tool := func(t, param string) malformed {
		m := with(chatPath, "tools", "["+t+"]")
		m.param = param
		return m
	}
	nested := func(path, field, value, param string) malformed {
		m := with(path, field, value)
		m.param = param
		return m
	}
	for _, path := range []string{chatPath, textPath, embedPath, "/tokenize", "/detokenize"} {
		base := bases[path]
		first, _, _ := strings.Cut(strings.TrimPrefix(base, `"`), `"`)
		all = append(all,
			malformed{path, ``, "Content-Type", 415},
			malformed{path, ` `, "", 0},
			malformed{path, `null`, "", 0},
			malformed{path, `"x"`, "", 0},
			malformed{path, `[]`, "", 0},
			malformed{path, `1`, "", 0},
			malformed{path, `{`, "", 0},
			malformed{path, `}`, "", 0},
			malformed{path, `{"a`, "", 0},
			malformed{path, `{"a":`, "a", 0},
			malformed{path, `{"a":1,}`, "", 0},
			malformed{path, `{"a" 1}`, "a", 0},
			malformed{path, `{a:1}`, "", 0},
			malformed{path, `{1:1}`, "", 0},
			malformed{path, `{"a":[1,]}`, "a", 0},
			malformed{path, `{"a":[1 2]}`, "a[1]", 0},
			malformed{path, `{"a":[1}`, "a[1]", 0},
			malformed{path, `{"a":{"b":1]}`, "a", 0},
			malformed{path, `{` + base + `}}`, "", 0},
			malformed{path, `{` + base + `}{}`, "", 0},
			malformed{path, `{` + base + `} x`, "", 0},
			malformed{path, "\ufeff{" + base + "}", "", 0},
			malformed{path, `{}`, first, 0},
			malformed{path, `{"` + first + `":null}`, first, 0},
			malformed{path, `{` + base + `,` + base + `}`, first, 0},
			malformed{path, `{` + base + `,"x":1,"x":2}`, "x", 0},
			malformed{path, `{` + base + `,"x":null,"x":null}`, "x", 0},
			malformed{path, `{` + base + `,"x":{"y":1,"\u0079":2}}`, "x.y", 0},
			malformed{path, `{` + base + `,"x":[{"y":1,"y":2}]}`, "x[0].y", 0},
			malformed{path, `{` + base + ",\"x\":\"\xff\"}", "x", 0},
			malformed{path, `{` + base + ",\"\xff\":1}", "", 0},
			malformed{path, `{` + base + `,"x":"\ud800\ud800"}`, "x", 0},
			malformed{path, `{` + base + `,"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "x" + strings.Repeat("[0]", maxDepth-1), 0},
			malformed{path, `{` + base + `,"x":` + strings.Repeat("[", 100_000) + `}`, "x" + strings.Repeat("[0]", maxDepth-1), 0},
			malformed{path, `{` + base + `,"x":` + strings.Repeat(`{"a":`, 100_000) + `}`, "x" + strings.Repeat(".a", maxDepth-1), 0},
			malformed{path, `{` + base + `,"x":[` + strings.Repeat("0,", maxValues) + `0]}`, "x[262…", 0},
			malformed{path, `{` + base + `,"model":"gpt-4"}`, "model", 404},
		)
	}
	all = append(all,
		malformed{path: chatPath, body: `{"messages":[]}`, param: "messages"},
		message(`1`, "messages[0]"), message(`null`, "messages[0]"), message(`"hi"`, "messages[0]"), message(`[]`, "messages[0]"),
		message(`{}`, "messages[0].role"),
		message(`{"content":"hi"}`, "messages[0].role"),
		message(`{"role":"user"}`, "messages[0].content"),
		message(`{"role":"user","content":null}`, "messages[0].content"),
		message(`{"role":"robot","content":"hi"}`, "messages[0].role"),
		message(`{"role":"User","content":"hi"}`, "messages[0].role"),
		message(`{"role":"","content":"hi"}`, "messages[0].role"),
		message(`{"role":"function","content":"hi"}`, "messages[0].role"),
		message(`{"role":1,"content":"hi"}`, "messages[0].role"),
		message(`{"role":"user","content":1}`, "messages[0].content"),
		message(`{"role":"user","content":{}}`, "messages[0].content"),
		message("{\"role\":\"user\",\"content\":\"a\xffb\"}", "messages[0].content"),
		message(`{"role":"user","content":"hi","content":"ho"}`, "messages[0].content"),
		message(`{"role":"user","content":"hi"},{"role":"user","content":2}`, "messages[1].content"),
		message(`{"role":"user","content":[1]}`, "messages[0].content[0]"),
		message(`{"role":"user","content":[{}]}`, "messages[0].content[0].type"),
		message(`{"role":"user","content":[{"type":"text"}]}`, "messages[0].content[0].text"),
		message(`{"role":"user","content":[{"type":"text","text":1}]}`, "messages[0].content[0].text"),
		message(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:"}}]}`, "messages[0].content[1].type"),
		message(`{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}`, "messages[0].content[0].type"),
		message(`{"role":"user","content":"hi","name":1}`, "messages[0].name"),
		message(`{"role":"tool","content":"hi"}`, "messages[0].tool_call_id"),
		message(`{"role":"tool","content":"hi","tool_call_id":1}`, "messages[0].tool_call_id"),
		message(`{"role":"user","content":"hi","reasoning_content":"x"}`, "messages[0]"),
		message(`{"role":"user","content":"hi","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}`, "messages[0]"),
		message(`{"role":"assistant","tool_calls":1}`, "messages[0].tool_calls"),
		message(`{"role":"assistant","tool_calls":[1]}`, "messages[0].tool_calls[0]"),
		message(`{"role":"assistant","tool_calls":[{}]}`, "messages[0].tool_calls[0].id"),
		message(`{"role":"assistant","tool_calls":[{"id":"a"}]}`, "messages[0].tool_calls[0].function"),
		message(`{"role":"assistant","tool_calls":[{"id":"a","type":"code","function":{"name":"f"}}]}`, "messages[0].tool_calls[0].type"),
		message(`{"role":"assistant","tool_calls":[{"id":"a","function":{}}]}`, "messages[0].tool_calls[0].function.name"),
		message(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}}]}`, "messages[0].tool_calls[0].function.arguments"),
		message(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}`, "messages[0].tool_calls[0].function.arguments"),
		message(`{"role":"assistant","content":"x","function_call":{"name":"f"}}`, "messages[0].function_call"),
		message(`{"role":"assistant","content":"x","audio":{"id":"f"}}`, "messages[0].audio"),
		tool(`1`, "tools[0]"), tool(`{}`, "tools[0].type"),
		tool(`{"type":"function"}`, "tools[0].function"),
		tool(`{"type":"web_search"}`, "tools[0].type"),
		tool(`{"type":"function","function":1}`, "tools[0].function"),
		tool(`{"type":"function","function":{}}`, "tools[0].function.name"),
		tool(`{"type":"function","function":{"name":""}}`, "tools[0].function.name"),
		tool(`{"type":"function","function":{"name":"a b"}}`, "tools[0].function.name"),
		tool(`{"type":"function","function":{"name":"`+strings.Repeat("a", 65)+`"}}`, "tools[0].function.name"),
		tool(`{"type":"function","function":{"name":"f","description":1}}`, "tools[0].function.description"),
		tool(`{"type":"function","function":{"name":"f","parameters":[]}}`, "tools[0].function.parameters"),
		tool(`{"type":"function","function":{"name":"f","strict":"yes"}}`, "tools[0].function.strict"),
		tool(`{"type":"custom","custom":{"name":"f"}}`, "tools[0].type"),
		tool(`{"type":"function","function":{"name":"f","parameters":{"a":1,"a":1}}}`, "tools[0].function.parameters.a"),
		tool(`{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}`, "tools[1].function.name"),
		with(chatPath, "tool_choice", `"auto"`), with(chatPath, "tool_choice", `"always"`), with(chatPath, "tool_choice", `1`), with(chatPath, "tool_choice", `[]`),
		nested(chatPath, "tool_choice", `{}`, "tool_choice.function"),
		nested(chatPath, "tool_choice", `{"type":"function","function":{}}`, "tool_choice.function.name"),
		nested(chatPath, "tools", `[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}}`, "tool_choice.function.name"),
		with(chatPath, "reasoning_effort", `1`),
		with(chatPath, "max_tokens", `0`),
		nested(chatPath, "min_tokens", `5,"max_tokens":4`, "min_tokens"),
		nested(textPath, "min_tokens", `17`, "min_tokens"),
		with(textPath, "max_tokens", `1000`).as("prompt"), with(chatPath, "max_tokens", `1000`).as("messages"),
		malformed{path: textPath, body: `{"prompt":["` + strings.Repeat("a", 1000) + `","b"]}`, param: "prompt[0]"},
		malformed{path: embedPath, body: `{"input":["b","` + strings.Repeat("a", 1001) + `"]}`, param: "input[1]"},
		nested(chatPath, "stream_options", `{"include_usage":1},"stream":true`, "stream_options.include_usage"),
		nested(chatPath, "response_format", `{}`, "response_format"),
		nested(chatPath, "response_format", `{"type":"xml"}`, "response_format.type"),
		nested(chatPath, "response_format", `{"type":"json_schema"}`, "response_format"),
		nested(chatPath, "response_format", `{"type":"json_schema","json_schema":{}}`, "response_format"),
		nested(chatPath, "response_format", `{"type":"json_schema","json_schema":{"schema":[]}}`, "response_format.json_schema.schema"),
		nested(chatPath, "response_format", `{"type":"json_schema","json_schema":{"schema":{"a":{},"a":{}}}}`, "response_format.json_schema.schema.a"),
		nested(chatPath, "response_format", `{"type":"json_object","json_schema":{"schema":{}}}`, "response_format"),
		nested(chatPath, "response_format", `{"type":"json_schema","json_schema":{"schema":{},"name":1}}`, "response_format.json_schema.name"),
		nested(chatPath, "response_format", `{"type":"json_schema","json_schema":{"schema":{},"strict":"yes"}}`, "response_format.json_schema.strict"),
		with(textPath, "guided_json", `1`), with(textPath, "guided_json", `[]`), with(textPath, "guided_json", `true`),
		nested(textPath, "guided_json", `{"a":{},"a":{}}`, "guided_json.a"),
		with(textPath, "structured_outputs", `"a"`), nested(textPath, "structured_outputs", `{"json":1}`, "structured_outputs.json"),
		nested(textPath, "structured_outputs", `{"regex":1}`, "structured_outputs.regex"),
		nested(textPath, "structured_outputs", `{"choice":[1]}`, "structured_outputs.choice[0]"),
		with(textPath, "guided_choice", `[]`), with(textPath, "guided_choice", `"a"`), nested(chatPath, "guided_choice", `["a",null]`, "guided_choice[1]"),
		nested(textPath, "guided_choice", `["a"],"guided_regex":"a"`, "guided_regex"),
		nested(textPath, "structured_outputs", `{"grammar":"a"}`, "structured_outputs.grammar"),
		nested(textPath, "structured_outputs", `{"json":{},"whitespace_pattern":" ?"}`, "structured_outputs.whitespace_pattern"),
		with(textPath, "guided_whitespace_pattern", `" ?"`),
		nested(textPath, "structured_outputs", `{"json_object":1}`, "structured_outputs.json_object"),
		nested(textPath, "structured_outputs", `{"json":{},"regex":"a"}`, "structured_outputs.regex"),
		with(chatPath, "guided_regex", `{}`), with(chatPath, "guided_regex", `["a"]`),
		nested(textPath, "guided_json", `{},"guided_regex":"a"`, "guided_regex"),
		nested(textPath, "guided_regex", `"a","response_format":{"type":"json_object"}`, "response_format"),
		nested(textPath, "guided_json", `{},"ignore_eos":true`, "ignore_eos"),
		nested(chatPath, "response_format", `{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f"}}]`, "tools"),
		nested(textPath, "logit_bias", `{"x":1}`, "logit_bias.x"),
		nested(textPath, "logit_bias", `{"256":1}`, "logit_bias.256"),
		nested(textPath, "logit_bias", `{"-1":1}`, "logit_bias.-1"),
		nested(textPath, "logit_bias", `{"01":1}`, "logit_bias.01"),
		nested(textPath, "logit_bias", `{"1":"x"}`, "logit_bias.1"),
		nested(textPath, "logit_bias", `{"1":101}`, "logit_bias.1"),
		nested(textPath, "logit_bias", `{"1":-101}`, "logit_bias.1"),
		nested(textPath, "logit_bias", `{"1":1,"1":2}`, "logit_bias.1"),
		with(textPath, "stop", `1`), with(textPath, "stop", `{}`), with(textPath, "stop", `""`),
		nested(textPath, "stop", `[1]`, "stop[0]"), nested(textPath, "stop", `["a",""]`, "stop[1]"), nested(textPath, "stop", `[null]`, "stop[0]"),
		nested(textPath, "stop", `["`+strings.Repeat("a", maxStopBytes+1)+`"]`, "stop[0]"),
		nested(textPath, "stop", `[`+strings.Repeat(`"a",`, maxStops)+`"a"]`, fmt.Sprintf("stop[%d]", maxStops)),
		nested(textPath, "stop_token_ids", `[256]`, "stop_token_ids[0]"), nested(textPath, "stop_token_ids", `["1"]`, "stop_token_ids[0]"),
		nested(textPath, "logprobs", `1,"echo":true`, "echo"),
		malformed{path: textPath, body: `{"prompt":1}`, param: "prompt"}, malformed{path: textPath, body: `{"prompt":{}}`, param: "prompt"},
		malformed{path: textPath, body: `{"prompt":[]}`, param: "prompt"}, malformed{path: textPath, body: `{"prompt":""}`, param: "prompt"},
		malformed{path: textPath, body: `{"prompt":[[]]}`, param: "prompt"}, malformed{path: textPath, body: `{"prompt":["a",1]}`, param: "prompt[1]"},
		malformed{path: textPath, body: `{"prompt":[1,"a"]}`, param: "prompt[1]"}, malformed{path: textPath, body: `{"prompt":[1,[2]]}`, param: "prompt[1]"},
		malformed{path: textPath, body: `{"prompt":[256]}`, param: "prompt[0]"}, malformed{path: textPath, body: `{"prompt":[-1]}`, param: "prompt[0]"},
		malformed{path: textPath, body: `{"prompt":[1.5]}`, param: "prompt[0]"}, malformed{path: textPath, body: `{"prompt":[null]}`, param: "prompt[0]"},
		malformed{path: textPath, body: `{"prompt":[[1],[256]]}`, param: "prompt[1][0]"},
		malformed{path: textPath, body: `{"prompt":["a","b"],"n":65}`, param: "n"},
		malformed{path: textPath, body: `{"prompt":["` + strings.Repeat(`a","`, 128) + `"]}`, param: "prompt[128]"},
		malformed{path: embedPath, body: `{"input":1}`, param: "input"}, malformed{path: embedPath, body: `{"input":[]}`, param: "input"},
		malformed{path: embedPath, body: `{"input":["a",""]}`, param: "input[1]"}, malformed{path: embedPath, body: `{"input":[{}]}`, param: "input[0]"},
		with(embedPath, "encoding_format", `"int8"`), with(embedPath, "encoding_format", `1`), with(embedPath, "dimensions", `4`),
		with("/tokenize", "add_special_tokens", `1`), with("/tokenize", "return_token_strs", `"x"`), with("/tokenize", "messages", `1`),
		with("/tokenize", "messages", `[{"role":"user","content":"hi"}]`),
		malformed{path: "/tokenize", body: `{"messages":[]}`, param: "messages"},
		malformed{path: "/detokenize", body: `{"tokens":["a"]}`, param: "tokens[0]"}, malformed{path: "/detokenize", body: `{"tokens":[256]}`, param: "tokens[0]"},
		malformed{path: "/detokenize", body: `{"tokens":1}`, param: "tokens"},
		malformed{path: "/nowhere", body: `{}`, status: 404},
		malformed{path: "/v1/chat/completions/", body: `{}`, status: 404},
		malformed{path: "/v1/engines", body: `{}`, status: 404},
	)
	for name := range refused {
		for _, path := range []string{chatPath, textPath} {
			value := `"something"`
			if name == "logprobs" || name == "top_logprobs" || path == textPath && (name == "echo" || name == "best_of") ||
				path == chatPath && (name == "tools" || name == "tool_choice") {
				continue // supported there
			}
			all = append(all, with(path, name, value))
		}
	}
	return all
}

func (m malformed) as(param string) malformed {
	m.param = param
	return m
}

// TestMalformed sends each malformed request while a stream runs. Each must get a 4xx that names its
// field, quickly, and must not reach the model. The stream must have the bytes that it has alone.
func TestMalformed(t *testing.T) {
	table := malformedRequests()
	if len(table) < 300 {
		t.Errorf("%d requests, want 300 or more", len(table))
	}
	const tokens = 200
	f := newFake(strings.Repeat("stream ", tokens))
	next := make(chan bool)
	f.step = func(context.Context, int) { <-next }
	_, url := start(t, f, Options{})
	stream := fmt.Sprintf(`{"prompt":"hi","stream":true,"seed":1,"max_tokens":%d}`, tokens)
	// streamDuring returns the stream. Tokens come when f calls token, the rest after f.
	streamDuring := func(f func(token func())) string {
		answer := make(chan response, 1)
		go func() { answer <- ask(t, "POST", url+textPath, stream) }()
		next <- true // it runs
		sent := 1
		token := func() {
			if sent < tokens {
				next <- true
				sent++
			}
		}
		f(token)
		for sent < tokens {
			token()
		}
		next <- true // the end
		r := <-answer
		if r.status != http.StatusOK || !strings.HasSuffix(r.body, "data: [DONE]\n\n") {
			t.Errorf("the stream: status %d: %s", r.status, r.body)
		}
		return steady(r.body)
	}
	alone := streamDuring(func(func()) {})
	got := streamDuring(func(token func()) {
		for i, m := range table {
			if i%(len(table)/tokens+1) == 0 {
				token()
			}
			t.Run(fmt.Sprintf("%d %s %s", i, m.path, shorten(m.body, 60)), func(t *testing.T) { m.send(t, url) })
		}
	})
	if got != alone {
		t.Errorf("the stream is\n%s\nalone\n%s", got, alone)
	}
	if n := f.generated.Load(); n != 2 {
		t.Errorf("%d malformed requests reached the model", n-2)
	}
}

// malformedTime bounds the time of an answer to a malformed request. A busy machine can delay one
// answer, but not each of malformedTries. It is not checked with -short, as under the race detector.
const (
	malformedTime  = 100 * time.Millisecond
	malformedTries = 10
)

// send sends a malformed request and checks its answer.
func (m malformed) send(t *testing.T, url string) {
	t.Helper()
	var r response
	fastest := time.Duration(math.MaxInt64)
	for range malformedTries {
		begin := time.Now()
		r = ask(t, "POST", url+m.path, m.body)
		if fastest = min(fastest, time.Since(begin)); fastest < malformedTime || testing.Short() {
			break
		}
	}
	if fastest >= malformedTime && !testing.Short() {
		t.Errorf("the fastest of %d tries took %v", malformedTries, fastest)
	}
	message, kind, param, _ := errorOf(t, r)
	if begin, ok := strings.CutSuffix(m.param, "…"); ok && strings.HasPrefix(param, begin) {
		m.param = param
	}
	if want := cmp.Or(m.status, http.StatusBadRequest); r.status != want || kind != typeInvalid || param != m.param {
		t.Errorf("status %d, want %d; type %q; param %q, want %q; message %q", r.status, want, kind, param, m.param, message)
	}
	if !strings.HasPrefix(message, m.param) || len(message) > 600 {
		t.Errorf("the message does not begin with %q: %q", m.param, message)
	}
}

// TestNeutralValues: fields that are refused may have the values that ask for nothing, null, and
// unknown fields any value.
func TestNeutralValues(t *testing.T) {
	_, url := start(t, newFake("x"), Options{})
	for _, path := range []string{chatPath, textPath} {
		for name, values := range refused {
			for _, v := range append(values, "null") {
				if path == textPath && name == "logprobs" {
					v = "null"
				}
				if r := ask(t, "POST", url+path, with(path, name, v).body); r.status != http.StatusOK {
					t.Errorf("%s: %s: %s: status %d: %s", path, name, v, r.status, r.body)
				}
			}
		}
		for _, v := range []string{`1`, `"x"`, `{"a":[null,{}]}`, `[[]]`, `null`, `true`} {
			if r := ask(t, "POST", url+path, with(path, "frobnicate", v).body); r.status != http.StatusOK {
				t.Errorf("%s: unknown field %s: status %d: %s", path, v, r.status, r.body)
			}
		}
	}
}

func BenchmarkDecodeManyValues(b *testing.B) {
	body := []byte(`{"x":[` + strings.Repeat("0,", maxValues-10) + `0]}`)
	for b.Loop() {
		if err := decodeBody(body, func(d *decoder, _ string) { d.skip() }); err != nil {
			b.Fatal(err)
		}
	}
}
