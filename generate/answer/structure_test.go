package answer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/generate/constraint"
)

// texts are tokens that answers of all styles consist of, beside single characters.
var texts = []string{
	"<tool_call>", "</tool_call>", "{\"", "name", "\": \"", "\", \"", "arguments", "parameters", "\": ", "}", "}}", "\n", "; ", ", ", " ",
	"<function=", "</function>", "<parameter=", "</parameter>", "</", "<think>", "</think>", "[", "]", "weather", "city", "Rome", "\"", "days", "3", "true", "ok", "call:", "thought",
}

// markers are the control tokens of the vocabulary.
var markers = []string{
	"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "[THINK]", "[/THINK]",
	messageStart, channelMarker, constrainMarker, messageMarker, messageEnd,
	channelOpen, channelClose, gemmaOpen, gemmaClose, stringMark, "<|python_start|>", "<|python_end|>",
}

// model is a vocabulary of texts, then markers, then the end.
type model struct {
	*constraint.Vocabulary
	tokens []string
	end    int
}

func newModel(t testing.TB) *model {
	t.Helper()
	m := &model{tokens: slices.Clone(texts)}
	for c := ' '; c <= '~'; c++ {
		m.tokens = append(m.tokens, string(c))
	}
	list := make([][]byte, len(m.tokens), len(m.tokens)+len(markers)+1)
	for i, s := range m.tokens {
		list[i] = []byte(s)
	}
	control := map[int]string{}
	for _, s := range markers {
		control[len(list)] = s
		list, m.tokens = append(list, nil), append(m.tokens, s)
	}
	m.end = len(list)
	var err error
	if m.Vocabulary, err = constraint.NewVocabulary(append(list, nil), []int{m.end}, control); err != nil {
		t.Fatal(err)
	}
	return m
}

// isMarker reports whether a token is a control token.
func (m *model) isMarker(id int) bool { return id >= m.end-len(markers) }

// next returns a random permitted token, rather one that begins a call, the end, or the end of
// a part than another.
func (m *model) next(t *testing.T, mask []uint32, rng *rand.Rand) int {
	var ids []int
	for id := range m.end {
		if mask[id/32]>>(id%32)&1 != 0 {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		if slices.Contains([]string{"<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<|python_start|>", gemmaOpen}, m.tokens[id]) && rng.IntN(3) == 0 {
			return id
		}
	}
	if mask[m.end/32]>>(m.end%32)&1 != 0 && (len(ids) == 0 || rng.IntN(2) == 0) {
		return m.end
	}
	if len(ids) == 0 {
		t.Fatal("no token is permitted")
	}
	if rng.IntN(3) > 0 {
		for _, id := range ids {
			if strings.ContainsAny(m.tokens[id], "\"}]") || m.tokens[id] == "</parameter>" || m.tokens[id] == "</think>" || m.tokens[id] == "[/THINK]" || m.tokens[id] == messageEnd || m.tokens[id] == channelClose || m.tokens[id] == stringMark {
				return id
			}
		}
	}
	return ids[rng.IntN(len(ids))]
}

// answer generates a random answer and parses it. ok is false if it became too long.
func (m *model) answer(t *testing.T, c *constraint.Constraint, p *Parser, rng *rand.Rand) (a Answer, text string, ok bool) {
	t.Helper()
	matcher := c.Begin()
	var all []Delta
	for range 600 {
		mask, err := matcher.Mask()
		if err != nil {
			t.Fatal(err)
		}
		id := m.next(t, mask, rng)
		if err := matcher.Accept(id); err != nil {
			t.Fatal(err)
		}
		switch {
		case id == m.end:
			return Collect(append(all, p.End()...)), text, true
		case m.isMarker(id):
			all = append(all, p.Next(m.tokens[id], "")...)
		default:
			all = append(all, p.Next("", m.tokens[id])...)
		}
		text += m.tokens[id]
	}
	return Answer{}, "", false
}

// weather are tools, of which the first has parameters of all kinds that every style takes.
var weather = []Tool{
	{Name: "weather", Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["c","f"]},"days":{"$ref":"#/$defs/n"},"when":{"anyOf":[{"const":"now"},{"type":"null"}]}},"required":["city","days"],"additionalProperties":false,"$defs":{"n":{"type":"integer","minimum":1,"maximum":7}}}`)},
	{Name: "time-1"},
}

// checkWeather returns what is wrong with a call of weather.
func checkWeather(c Call) string {
	var args map[string]any
	if err := json.Unmarshal([]byte(c.Arguments), &args); err != nil {
		return err.Error()
	}
	if c.Name == "time-1" {
		if len(args) > 0 {
			return "it has arguments"
		}
		return ""
	}
	_, city := args["city"].(string)
	days, _ := args["days"].(float64)
	unit, hasUnit := args["unit"]
	when, hasWhen := args["when"]
	switch {
	case c.Name != "weather":
		return "no such tool"
	case !city || days < 1 || days > 7 || hasUnit && unit != "c" && unit != "f" || hasWhen && when != "now" && when != nil:
		return "a wrong argument"
	}
	for key := range args {
		if !slices.Contains([]string{"city", "days", "unit", "when"}, key) {
			return "another argument"
		}
	}
	return ""
}

// TestStructure generates random answers of each style and request. Parsed, they are what the
// request asks for.
func TestStructure(t *testing.T) {
	strict := slices.Clone(weather)
	strict[0].Strict = true
	styles := map[string]string{"hermes": hermesOnly, "qwen": qwen, "llama": llama, "nemo": nemo, "named": named, "coder": coder, "magistral": magistral, "harmony": gptOSS, "thinking llama": llama + "<think>", "gemma": gemma4, "llama 4": scout, "python": pythonic}
	requests := []struct {
		name    string
		request Request
		least   int // calls
		most    int // 0: any number
	}{
		{"required", Request{Tools: weather, Required: true}, 1, 0},
		{"one required", Request{Tools: weather, Required: true, Single: true}, 1, 1},
		{"named", Request{Tools: weather, Name: "weather"}, 1, 1},
		{"strict", Request{Tools: strict}, 0, 0},
		{"at most one", Request{Tools: weather, Single: true}, 0, 1},
		{"at most one, strict", Request{Tools: strict, Single: true}, 0, 1},
	}
	m := newModel(t)
	for name, template := range styles {
		for _, r := range requests {
			t.Run(name+", "+r.name, func(t *testing.T) {
				style := StyleOf(template)
				reasoned, called, complete := 0, 0, 0
				for _, prompt := range []string{"", "x" + style.thinkOpen + "\n", "x" + style.thinkClose + "\n\n"} {
					if prompt != "" && style.thinkOpen == "" {
						continue
					}
					s, restricted, err := style.Structure(prompt, r.request)
					if err != nil || !restricted {
						t.Fatalf("restricted %v, error %v", restricted, err)
					}
					c, err := m.Compile(t.Context(), s)
					if err != nil {
						t.Fatal(err)
					}
					for seed := range uint64(30) {
						rng := rand.New(rand.NewPCG(seed, 1))
						a, text, ok := m.answer(t, c, style.NewParser(prompt, r.request.Tools), rng)
						if !ok {
							continue
						}
						complete++
						called += len(a.Calls)
						if a.Reasoning != "" {
							reasoned++
						}
						if n := len(a.Calls); n < r.least || r.most > 0 && n > r.most {
							t.Fatalf("%d calls: %q becomes %+v", n, text, a)
						}
						if r.least > 0 && strings.TrimSpace(a.Content) != "" {
							t.Fatalf("content: %q becomes %+v", text, a)
						}
						for _, call := range a.Calls {
							wrong := checkWeather(call)
							if r.least == 0 && !(call.Name == "weather" && r.request.Tools[0].Strict) { // any arguments
								wrong = map[bool]string{false: "not a JSON object"}[json.Unmarshal([]byte(call.Arguments), &map[string]any{}) == nil]
							}
							if r.request.Name != "" && call.Name != r.request.Name {
								wrong = "not the named tool"
							}
							if wrong != "" {
								t.Fatalf("%s: %q becomes %+v", wrong, text, a)
							}
						}
					}
				}
				if complete < 10 || called == 0 || style.thinkOpen != "" && reasoned == 0 {
					t.Errorf("%d complete answers, %d calls, %d with reasoning: too few to tell", complete, called, reasoned)
				}
			})
		}
	}
}

// TestStructurePermits has answers at the border of what a strict tool permits. Parts in ‹› are
// control tokens.
func TestStructurePermits(t *testing.T) {
	strict := slices.Clone(weather)
	strict[0].Strict = true
	m := newModel(t)
	for _, tt := range []struct {
		template, text string
		want           bool
	}{
		{llama, `{"name": "weather", "parameters": {"city": "Rome", "days": 1}}`, true},
		{llama, `{"name": "weather", "parameters": {"city": "Rome"}}`, false},
		{llama, ` {"name": "weather", "parameters": {}}`, false},
		{llama, `{"a": 1}`, false}, // the parser takes it for a call
		{llama, `It is {"name": "weather", "parameters": {}}`, true},
		{llama, `Ok ‹<|python_tag|>›{"name": "weather", "parameters": {}}`, false},
		{llama, `‹<|python_tag|>›{"name": "time-1", "parameters": {"a": [1]}}`, true}, // not strict
		{scout, `{"name": "weather", "parameters": {"city": "Rome", "days": 1}}{"name": "time-1", "parameters": {}}`, true},
		{scout, `‹<|python_start|>›{"name": "weather", "parameters": {"city": "Rome", "days": 1}}‹<|python_end|>›`, true},
		{scout, `‹<|python_start|>›{"name": "weather", "parameters": {"city": "Rome"}}‹<|python_end|>›`, false},
		{scout, `{"name": "weather", "parameters": {"city": "Rome"}}`, false},
		{scout, `It is {"name": "weather", "parameters": {}}`, true},
		{pythonic, `[weather(city="Rome", days=1), time-1(a=[1])]`, true},
		{pythonic, `‹<|python_start|>›[weather(city="Rome", unit="c", days=1, when=null)]‹<|python_end|>›`, true},
		{pythonic, `[weather(city="Rome")]`, false},
		{pythonic, `[weather(days=1, city="Rome")]`, false},
		{pythonic, `[rain()]`, false},
		{pythonic, `It is [weather()]`, true},
		{qwen, `<think>a <tool_call> b</think> ok`, true},
		{qwen, `<think></think><tool_call>{"name": "weather", "arguments": {}}</tool_call>`, false},
		{qwen, `<think></think><tool_call>{"name": "weather", "arguments": {"city": "", "days": 7}}</tool_call> ok`, true},
		{qwen, `<tool_call>{"name": "rain", "arguments": {}}</tool_call>`, false},
		{qwen, ` <think>a`, false},
		{qwen, `a <think> b`, true},
		{nemo, `Ok ‹[TOOL_CALLS]›[{"name": "weather", "arguments": {"city": "", "days": 8}}]`, false},
		{nemo, `Ok ‹[TOOL_CALLS]›[{"name": "weather", "arguments": {"city": "", "days": 7}}]`, true},
		{named, `‹[TOOL_CALLS]›weather‹[CALL_ID]›abcdefghi‹[ARGS]›{"city": "", "days": 7}`, true},
		{named, `‹[TOOL_CALLS]›weather‹[ARGS]›{"city": 1, "days": 7}`, false},
		{coder, "<tool_call><function=weather>\n<parameter=city>\n<b>\n</parameter>\n<parameter=days>\n7\n</parameter>\n</function></tool_call>", true},
		{coder, "<tool_call><function=weather>\n<parameter=city>\n<b>\n</parameter>\n</function></tool_call>", false},
		{gemma4, `Ok ‹<|tool_call>›call:weather{city:‹<|"|>›a "b", {c}‹<|"|>›,days:7}‹<tool_call|>›‹<|tool_call>›call:time-1{a:[1,{b:null}]}‹<tool_call|>›`, true},
		{gemma4, `‹<|tool_call>›call:weather{city:‹<|"|>›‹<|"|>›,unit:‹<|"|>›c‹<|"|>›,days:1,when:null}‹<tool_call|>›`, true},
		{gemma4, `‹<|tool_call>›call:weather{city:‹<|"|>›‹<|"|>›,unit:‹<|"|>›k‹<|"|>›,days:1}‹<tool_call|>›`, false},
		{gemma4, `‹<|tool_call>›call:weather{city:‹<|"|>›‹<|"|>›,days:8}‹<tool_call|>›`, false},
		{gemma4, `‹<|tool_call>›call:weather{city:‹<|"|>›‹<|"|>›}‹<tool_call|>›`, false},
		{gemma4, `‹<|tool_call>›call:weather{,city:‹<|"|>›‹<|"|>›,days:1}‹<tool_call|>›`, false},
		{gemma4, `‹<|tool_call>›call:rain{}‹<tool_call|>›`, false},
		{gemma4, "‹<|channel>›thought\na‹<channel|>›b", true},
		{gptOSS, "‹<|channel|>›analysis‹<|message|>›a‹<|end|>›‹<|start|>›assistant‹<|channel|>›final‹<|message|>›b", true},
		{gptOSS, "‹<|channel|>›commentary‹<|message|>›a‹<|end|>›‹<|start|>›assistant to=functions.weather‹<|channel|>›commentary json‹<|message|>›{\"city\": \"\", \"days\": 7}", true},
		{gptOSS, "‹<|channel|>›commentary to=functions.weather ‹<|constrain|>›json‹<|message|>›{\"city\": \"\", \"days\": 7}", true},
		{gptOSS, "‹<|channel|>›commentary to=functions.weather ‹<|constrain|>›json‹<|message|>›{\"city\": \"\", \"days\": 8}", false},
		{gptOSS, "‹<|channel|>›commentary to=functions.time-1‹<|message|>›{\"a\": 1}", true}, // not strict
		{gptOSS, "‹<|channel|>›commentary to=functions.rain‹<|message|>›{}", false},
		{gptOSS, "‹<|channel|>›analysis to=functions.weather‹<|message|>›{}", false},
		{gptOSS, "‹<|channel|>›analysis‹<|message|>›a", false}, // reasoning alone is no answer
		{gptOSS, "a", false},
	} {
		s, _, err := StyleOf(tt.template).Structure("", Request{Tools: strict})
		if err != nil {
			t.Fatal(err)
		}
		c, err := m.Compile(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		matcher, ok := c.Begin(), true
		for text := tt.text; text != "" && ok; {
			token := text[:1]
			if after, found := strings.CutPrefix(text, "‹"); found {
				token, _, _ = strings.Cut(after, "›")
				text = text[len("‹"+token+"›"):]
			} else {
				text = text[1:]
			}
			ok = matcher.Accept(slices.Index(m.tokens, token)) == nil
		}
		if ok = ok && matcher.Accept(m.end) == nil; ok != tt.want {
			t.Errorf("%q is permitted: %v", tt.text, ok)
		}
	}
}

// TestStructureOfContent: a structure of the content begins after the reasoning.
func TestStructureOfContent(t *testing.T) {
	m := newModel(t)
	content := constraint.Structure{AnyOf: []constraint.Structure{{Text: "ok"}, {Text: "true"}}}
	for _, tt := range []struct {
		template, prompt string
		reasons          string // "never", "maybe" or "always"
	}{
		{"{{ x }}", "", "never"}, {hermesOnly, "", "never"},
		{qwen, "", "maybe"}, {qwen, "a<think>\n", "always"}, {qwen, "a<think>\n\n</think>\n\n", "never"},
		{magistral, "", "maybe"}, {magistral, "[THINK]", "always"}, {gemma4, "", "maybe"}, {gemma4, thoughtOpen + "\n", "always"}, {gemma4, thoughtOpen + "\n" + channelClose, "never"}, {gptOSS, assistant, "maybe"}, {gptOSS, assistant + "<|channel|>final<|message|>", "never"},
	} {
		style := StyleOf(tt.template)
		s, restricted, err := style.Structure(tt.prompt, Request{Content: &content})
		if err != nil || !restricted {
			t.Fatalf("restricted %v, error %v", restricted, err)
		}
		c, err := m.Compile(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		reasoned, all := 0, 0
		for seed := range uint64(60) {
			a, text, ok := m.answer(t, c, style.NewParser(tt.prompt, nil), rand.New(rand.NewPCG(seed, 2)))
			if !ok {
				continue
			}
			if a.Content != "ok" && a.Content != "true" {
				t.Fatalf("%+v: %q becomes %+v", tt, text, a)
			}
			all++
			if a.Reasoning != "" || strings.Contains(text, style.thinkClose) && style.thinkClose != "" {
				reasoned++
			}
		}
		if all < 20 || reasoned > 0 != (tt.reasons != "never") || reasoned == all != (tt.reasons == "always") {
			t.Errorf("%+v: %d of %d answers reason", tt, reasoned, all)
		}
	}
}

// TestStructureErrors: what a style cannot hold is an error that names the tool.
func TestStructureErrors(t *testing.T) {
	for _, tt := range []struct{ template, parameters, want string }{
		{qwen, `{"type":"string"}`, `#/type: want "object"`},
		{coder, `{"type":["object"]}`, `#/type: want "object"`},
		{llama, `{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`, `#/type: want "object"`},
		{nemo, `[]`, "cannot unmarshal"},
		{coder, `{"properties":{"a":{"type":"string","minLength":2}}}`, "#/properties/a: minLength is not supported"},
		{coder, `{"properties":{"a":{"anyOf":[{"type":"null"},{"pattern":"a","type":"string"}]}}}`, "#/properties/a: pattern is not supported"},
		{coder, `{"properties":{"a":{"allOf":[{"type":"string"},{"type":"string"}]}}}`, "#/properties/a: allOf: only one"},
		{coder, `{"properties":{"a b":{}}}`, "#/properties/a b: calls of this model cannot have this name"},
		{coder, `{"type":"object","minProperties":1}`, "#/minProperties: not supported"},
		{coder, `{"required":["a"]}`, `#/required: "a" is not in properties`},
		{coder, `{"additionalProperties":{}}`, "#/additionalProperties: only false"},
		{pythonic, `{"properties":{"a-b":{}}}`, "#/properties/a-b: calls of this model cannot have this name"},
		{pythonic, `{"type":"object","minProperties":1}`, "#/minProperties: not supported"},
		{gemma4, `{"type":"string"}`, `#/type: want "object"`},
		{gemma4, `{"properties":{"a":{"type":"string","minLength":2}}}`, "#/properties/a/minLength: not supported"},
		{gemma4, `{"properties":{"a":{"type":"array","items":{"allOf":[{}]}}}}`, "#/properties/a/items/allOf: not supported"},
		{gemma4, `{"properties":{"a":{"type":"text"}}}`, "#/properties/a/type: \"text\" is not a type"},
		{gemma4, `{"properties":{"a":false}}`, "#/properties/a: want an object or true"},
		{gemma4, `{"properties":{"a":{"enum":[[1]]}}}`, "#/properties/a: lists and objects in enum"},
		{gemma4, `{"properties":{"a":{"const":"<|\"|>"}}}`, "#/properties/a: a string of calls"},
		{gemma4, `{"properties":{"a b":{}}}`, "#/properties/a b: calls of this model cannot have this name"},
		{gemma4, `{"properties":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]}},"$defs":{"b":{"type":"array","items":{"$ref":"#/$defs/b"}}}}`, "the schema refers to itself"},
		{gemma4, `{"properties":{"a":{"$ref":"#/$defs/c"}}}`, `#/properties/a/$ref: "#/$defs/c" is not in $defs`},
		{gemma4, `{"type":"object","minProperties":1}`, "#/minProperties: not supported"},
		{gemma4, `{"required":["a"]}`, `#/required: "a" is not in properties`},
		{gemma4, `{"additionalProperties":{}}`, "#/additionalProperties: only false"},
	} {
		_, _, err := StyleOf(tt.template).Structure("", Request{Tools: []Tool{{Name: "f"}, {Name: "g", Parameters: []byte(tt.parameters)}}, Required: true})
		if want := "answer: tools[1].function.parameters: "; err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s%s", tt.parameters, err, want, tt.want)
		}
	}
	if _, _, err := StyleOf(qwen).Structure("", Request{Tools: weather, Name: "rain"}); err == nil || err.Error() != `answer: tools: there is none with the name "rain"` {
		t.Errorf("a name without a tool: %v", err)
	}
	if _, _, err := StyleOf(gptOSS).Structure(assistant+"<|channel|>final<|message|>", Request{Tools: weather, Required: true}); err == nil || err.Error() != "answer: messages: the prompt ends inside of a message" {
		t.Errorf("a prompt that ends inside of a message: %v", err)
	}
	if _, restricted, err := StyleOf(qwen).Structure("", Request{Tools: weather}); restricted || err != nil {
		t.Errorf("a request without restrictions: restricted %v, error %v", restricted, err)
	}
}

// TestGemmaArguments has arguments of tools with schemas of other forms.
func TestGemmaArguments(t *testing.T) {
	m := newModel(t)
	for schema, texts := range map[string]map[string]bool{
		`{}`: {`{}`: true, `{a:[{b:1},null]}`: true, `{a:{b:{c:{}}}}`: false, `{a 1}`: false},
		`{"properties":{"a":{"type":"integer"},"b":{"type":"boolean"},"c":{"type":["null","number"]}}}`: {
			`{}`: true, `{a:1}`: true, `{b:true}`: true, `{c:null}`: true, `{a:1,c:1.5}`: true, `{a:1,b:false,c:2}`: true, `{b:true,c:1}`: true,
			`{a:1.5}`: false, `{c:1,a:1}`: false, `{a:1,}`: false, `{,a:1}`: false, `{d:1}`: false,
		},
		`{"properties":{"a":{"enum":[1,"x"]},"b":{"type":"array","items":{"type":"object","properties":{"c":{"const":true}},"required":["c"]}},"d":{"type":"integer"}},"required":["b"]}`: {
			`{b:[]}`: true, `{a:1,b:[{c:true},{c:true}]}`: true, `{a:<|"|>x<|"|>,b:[],d:1}`: true, `{b:[],d:1}`: true,
			`{a:1}`: false, `{d:1}`: false, `{b:[{}]}`: false, `{b:[{c:true},]}`: false, `{a:2,b:[]}`: false,
		},
	} {
		s, _, err := StyleOf(gemma4).Structure("", Request{Tools: []Tool{{Name: "f", Parameters: []byte(schema)}}, Name: "f"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := m.Compile(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range texts {
			matcher, ok := c.Begin(), true
			for rest := gemmaOpen + gemmaHead + "f" + text + gemmaClose; rest != "" && ok; {
				token := rest[:1]
				for _, control := range []string{gemmaOpen, gemmaClose, stringMark} {
					if strings.HasPrefix(rest, control) {
						token = control
					}
				}
				ok = matcher.Accept(slices.Index(m.tokens, token)) == nil
				rest = rest[len(token):]
			}
			if ok = ok && matcher.Accept(m.end) == nil; ok != want {
				t.Errorf("%s: %s is permitted: %v", schema, text, ok)
			}
		}
	}
}

// TestManyParameters: the structure of many parameters that may be left out is within the limit of
// package constraint.
func TestManyParameters(t *testing.T) {
	var properties []string
	for i := range 100 {
		properties = append(properties, fmt.Sprintf(`"p%d":{"type":"string"}`, i))
	}
	tool := Tool{Name: "f", Parameters: []byte(`{"properties":{` + strings.Join(properties, ",") + `}}`)}
	m := newModel(t)
	for _, template := range []string{gemma4, pythonic, coder} {
		s, _, err := StyleOf(template).Structure("", Request{Tools: []Tool{tool}, Required: true})
		if err == nil {
			_, err = m.Compile(t.Context(), s)
		}
		if err != nil {
			t.Errorf("%s: %v", template, err)
		}
	}
}

// TestToolSchema: the arguments are an object, whether the schema says so or not.
func TestToolSchema(t *testing.T) {
	for parameters, want := range map[string]string{
		"":                          `{"type":"object","additionalProperties":false}`,
		`{}`:                        `{"type":"object"}`,
		` { "title": "x" }`:         `{"type":"object", "title": "x" }`,
		`{"a":1,"type":"object"}`:   `{"a":1,"type":"object"}`,
		`{"properties":{"a":true}}`: `{"type":"object","properties":{"a":true}}`,
	} {
		tool := Tool{Name: "f"}
		if parameters != "" {
			tool.Parameters = []byte(parameters)
		}
		if got, err := tool.schema(); err != nil || string(got) != want || !json.Valid(got) {
			t.Errorf("%s becomes %s, error %v, want %s", parameters, got, err, want)
		}
	}
}

func ExampleStyle_Structure() {
	style := StyleOf("<tool_call> {# of a template #}")
	s, _, _ := style.Structure("", Request{Tools: []Tool{{Name: "now"}}, Required: true, Single: true})
	fmt.Println(s.Sequence[0].Marker)
	// Output: <tool_call>
}
