package answer

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Templates with the markers of each style.
const (
	qwen       = `<tool_call> </tool_call> <think> </think>`
	hermesOnly = `<tool_call> </tool_call>`
	llama      = `<|start_header_id|> <|python_tag|> "parameters"`
	scout      = `<|header_start|> "parameters"`
	pythonic   = `<|header_start|> [func_name1(param1=value1)]`
	nemo       = `[TOOL_CALLS]`
	named      = `[TOOL_CALLS] [ARGS]`
	coder      = `<tool_call> <function=x> <parameter=y>`
	deepseek   = `</think>`
	magistral  = `[THINK] [TOOL_CALLS]`
	gemma4     = `<|channel>thought <channel|> <|tool_call>call:`
	gptOSS     = `<|start|>assistant<|channel|>final<|message|>`
)

// assistant is the end of a prompt in the harmony format.
const assistant = "<|start|>user<|message|>x<|end|><|start|>assistant"

func calls(pairs ...string) (out []Call) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Call{pairs[i], pairs[i+1]})
	}
	return out
}

// testTools are tools with parameters of several types.
var testTools = []Tool{
	{Name: "f", Parameters: []byte(`{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"integer"},"x":{},"o":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`)},
	{Name: "g"},
}

// answers lists texts of models. Parts in ‹› are control tokens.
var answers = []struct {
	name, reason, template, prompt, text string
	want                                 Answer
}{
	{"no style", "all is content", "{{ x }}", "", "<think>a</think> <tool_call>{} \n", Answer{Content: "<think>a</think> <tool_call>{} \n"}},
	{"plain", "white space stays", qwen, "", "\n Hi. \n\nBye.\n", Answer{Content: "\n Hi. \n\nBye.\n"}},
	{"empty", "nothing", qwen, "", "", Answer{}},
	{"white space", "stays without a marker", qwen, "", " \n", Answer{Content: " \n"}},
	{"end of turn", "control tokens that are no markers have no text", qwen, "", "Hi‹<|im_end|>›", Answer{Content: "Hi"}},

	{"reasoning", "white space beside markers is theirs", qwen, "", "\n<think>\nhm\n\nyes\n</think>\n\nHi", Answer{Reasoning: "hm\n\nyes", Content: "Hi"}},
	{"reasoning by control tokens", "as some vocabularies have them", qwen, "", "‹<think>›\nhm‹</think>›Hi", Answer{Reasoning: "hm", Content: "Hi"}},
	{"reasoning begun by the prompt", "as templates of R1 do", deepseek, "<|Assistant|><think>\n", "hm\n</think>\n\nHi", Answer{Reasoning: "hm", Content: "Hi"}},
	{"reasoning ended by the prompt", "as Qwen's without thinking", qwen, "<think>\n\n</think>\n\n", "Hi", Answer{Content: "Hi"}},
	{"endless reasoning", "no content", qwen, "", "<think>hm </thi", Answer{Reasoning: "hm </thi"}},
	{"late reasoning", "a model that writes about the marker", qwen, "", "Use <think> and </think>.", Answer{Content: "Use <think> and </think>."}},
	{"second reasoning", "only the beginning reasons", qwen, "", "<think>a</think>b<think>c</think>", Answer{Reasoning: "a", Content: "b<think>c</think>"}},
	{"call inside of reasoning", "is a thought", qwen, "", `<think><tool_call>{"name": "f", "arguments": {}}</tool_call></think>`, Answer{Reasoning: `<tool_call>{"name": "f", "arguments": {}}</tool_call>`}},
	{"magistral", "its own markers", magistral, "", "[THINK]hm[/THINK]Hi", Answer{Reasoning: "hm", Content: "Hi"}},

	{"hermes", "one call", hermesOnly, "", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"}\"}]}}\n</tool_call>", Answer{Calls: calls("f", `{"a": [1, {"b": "}"}]}`)}},
	{"hermes after content", "both", hermesOnly, "", "Look:\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n", Answer{Content: "Look:", Calls: calls("f", `{}`)}},
	{"hermes, two calls", "with content behind", qwen, "", "<think>x</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"arguments\": {\"z\":1}, \"name\": \"g\\u0021\"}\n</tool_call>\nDone", Answer{Reasoning: "x", Content: "Done", Calls: calls("f", "{}", "g!", `{"z":1}`)}},
	{"hermes by control tokens", "as some vocabularies have them", hermesOnly, "", "‹<tool_call>›{\"name\": \"f\", \"arguments\": {}}‹</tool_call>›‹<|im_end|>›", Answer{Calls: calls("f", "{}")}},
	{"half a marker before a control token", "is content", hermesOnly, "", "a <tool‹<tool_call>›{\"name\": \"f\", \"arguments\": {}}", Answer{Content: "a <tool", Calls: calls("f", "{}")}},
	{"hermes, repeated keys", "the first counts", hermesOnly, "", `<tool_call>{"name": "f", "name": "g", "arguments": {"a": 1}, "arguments": {"b": 2}}</tool_call>`, Answer{Calls: calls("f", `{"a": 1}`)}},
	{"hermes, a long name", "comes back", hermesOnly, "", `<tool_call>{"name": "` + strings.Repeat("f", 300) + `", "arguments": {}}`, Answer{Content: `<tool_call>{"name": "` + strings.Repeat("f", 300) + `", "arguments": {}}`}},
	{"hermes without an end", "the object is complete", hermesOnly, "", "<tool_call>{\"name\": \"f\", \"arguments\": {}}", Answer{Calls: calls("f", "{}")}},
	{"hermes with other keys", "are skipped", hermesOnly, "", `<tool_call>{"id": -1.5e+3, "x": [true, null], "name": "f", "arguments": {"name": "no"}, "y": {"name": 1}}</tool_call>`, Answer{Calls: calls("f", `{"name": "no"}`)}},
	{"hermes, text behind the object", "is content", hermesOnly, "", `<tool_call>{"name": "f", "arguments": {}} x</tool_call>`, Answer{Content: "x</tool_call>", Calls: calls("f", "{}")}},
	{"hermes, cut", "what came of the arguments", hermesOnly, "", "a \n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", Answer{Content: "a", Calls: calls("f", `{"a": 1`)}},
	{"hermes, cut before the arguments", "comes back", hermesOnly, "", "a \n<tool_call>\n{\"name\": \"f\", \"argu", Answer{Content: "a \n<tool_call>\n{\"name\": \"f\", \"argu"}},
	{"hermes, cut marker", "comes back", hermesOnly, "", "a <tool_", Answer{Content: "a <tool_"}},
	{"hermes, not JSON", "comes back", hermesOnly, "", "<tool_call>f(1)</tool_call> b", Answer{Content: "<tool_call>f(1)</tool_call> b"}},
	{"hermes, broken arguments", "end where they break", hermesOnly, "", `<tool_call>{"name": "f", "arguments": {"a": 01}}</tool_call><tool_call>{"name": "g", "arguments": {}}</tool_call>`, Answer{Content: `1}}</tool_call>`, Calls: calls("f", `{"a": 0`, "g", "{}")}},
	{"hermes, broken behind the arguments", "the rest is content", hermesOnly, "", `<tool_call>{"name": "f", "arguments": {}, "x": ?}`, Answer{Content: `, "x": ?}`, Calls: calls("f", `{}`)}},
	{"hermes, broken before the name", "comes back", hermesOnly, "", `<tool_call>{"arguments": {"a": 1}, "name": ?}`, Answer{Content: `<tool_call>{"arguments": {"a": 1}, "name": ?}`}},
	{"hermes, no name", "comes back", hermesOnly, "", `<tool_call>{"arguments": {}}</tool_call>`, Answer{Content: `<tool_call>{"arguments": {}}</tool_call>`}},
	{"hermes, empty name", "comes back", hermesOnly, "", `<tool_call>{"name": "", "arguments": {}}</tool_call>`, Answer{Content: `<tool_call>{"name": "", "arguments": {}}</tool_call>`}},
	{"hermes, no arguments", "comes back", hermesOnly, "", `<tool_call>{"name": "f"}</tool_call>`, Answer{Content: `<tool_call>{"name": "f"}</tool_call>`}},
	{"hermes, arguments that are no object", "come back", hermesOnly, "", `<tool_call>{"name": "f", "arguments": "{}"}</tool_call>`, Answer{Content: `<tool_call>{"name": "f", "arguments": "{}"}</tool_call>`}},
	{"hermes, a list", "comes back", hermesOnly, "", `<tool_call>[]</tool_call>`, Answer{Content: `<tool_call>[]</tool_call>`}},
	{"hermes, a line end in a string", "is no JSON", hermesOnly, "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\n\"}}", Answer{Content: "\n\"}}", Calls: calls("f", `{"a": "`)}},

	{"llama", "JSON alone", llama, "", `{"name": "f", "parameters": {"a": "b"}}‹<|eot_id|>›`, Answer{Calls: calls("f", `{"a": "b"}`)}},
	{"llama with a type", "another key before", llama, "", ` {"type": "function", "name": "f", "parameters": {}}`, Answer{Calls: calls("f", `{}`)}},
	{"llama after the tag", "a control token", llama, "", `‹<|python_tag|>›{"name": "f", "parameters": {}}‹<|eom_id|>›`, Answer{Calls: calls("f", `{}`)}},
	{"llama, two calls", "separated", llama, "", "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"a\":1}}\n{\"name\": \"h\", \"arguments\": {}}", Answer{Calls: calls("f", `{}`, "g", `{"a":1}`, "h", "{}")}},
	{"llama, a JSON answer", "is content", llama, "", `{"answer": 42}`, Answer{Content: `{"answer": 42}`}},
	{"llama, a person", "is no call", llama, "", `{"name": "Bob", "age": 3} ok`, Answer{Content: `{"name": "Bob", "age": 3} ok`}},
	{"llama, braces in a text", "are content", llama, "", `So {"name": "f", "parameters": {}}`, Answer{Content: `So {"name": "f", "parameters": {}}`}},
	{"llama, Python", "comes back with its tag", llama, "", `‹<|python_tag|>›print(1)`, Answer{Content: `<|python_tag|>print(1)`}},
	{"llama, separators without a call", "are content", llama, "", `{"name": "f", "parameters": {}};; x`, Answer{Content: ";;x", Calls: calls("f", "{}")}},
	{"llama, text behind a call", "is content", llama, "", `{"name": "f", "parameters": {}}; x`, Answer{Content: ";x", Calls: calls("f", "{}")}},
	{"llama 4", "JSON alone", scout, "", `{"type": "function", "name": "f", "parameters": {"a": "b"}}‹<|eot|>›`, Answer{Calls: calls("f", `{"a": "b"}`)}},
	{"llama 4, two calls", "between markers, without a separator", scout, "", `‹<|python_start|>›{"name": "f", "parameters": {}}{"name": "g", "parameters": {}}‹<|python_end|>›‹<|eot|>›`, Answer{Calls: calls("f", `{}`, "g", "{}")}},
	{"llama 4, behind the markers", "as its template writes calls", scout, "", `‹<|python_start|>›‹<|python_end|>›{"name": "f", "parameters": {}}`, Answer{Calls: calls("f", `{}`)}},
	{"llama 4, text behind the markers", "is content", scout, "", `‹<|python_start|>›{"name": "f", "parameters": {}}‹<|python_end|>› x`, Answer{Content: "x", Calls: calls("f", `{}`)}},
	{"llama 4, Python", "comes back with its tag", scout, "", `‹<|python_start|>›print(1)‹<|python_end|>›`, Answer{Content: `<|python_start|>print(1)`}},
	{"llama 4, a JSON answer", "is content", scout, "", `{"answer": 42}`, Answer{Content: `{"answer": 42}`}},
	{"python", "as the whole answer", pythonic, "", `[f(s='a', n=1), g.h-1()]‹<|eot|>›`, Answer{Calls: calls("f", `{"s":"a", "n":1}`, "g.h-1", "{}")}},
	{"python, markers", "belong to the list", pythonic, "", `‹<|python_start|>›[f(s="a")]‹<|python_end|>› x`, Answer{Content: "x", Calls: calls("f", `{"s":"a"}`)}},
	{"python, values", "of Python and JSON", pythonic, "", ` [f(x=[True, False, None, true, null, -1.5e3, {}], o={'a': {"b": []}}, s='')]`, Answer{Calls: calls("f", `{"x":[true, false, null, true, null, -1.5e3, {}], "o":{"a": {"b": []}}, "s":""}`)}},
	{"python, text", "escapes become those of JSON", pythonic, "", `[f(s='it\'s "b"\n\\ \x41\u00e9 \d é', o="it's \"c\"")]`, Answer{Calls: calls("f", `{"s":"it's \"b\"\n\\ \u0041\u00e9 \\d é", "o":"it's \"c\""}`)}},
	{"python, cut in a string", "what came of the arguments", pythonic, "", `[f(s='Ro`, Answer{Calls: calls("f", `{"s":"Ro`)}},
	{"python, cut between calls", "complete calls", pythonic, "", `[f(s='a'), `, Answer{Calls: calls("f", `{"s":"a"}`)}},
	{"python, cut before a parameter", "comes back", pythonic, "", `[f(`, Answer{Content: "[f("}},
	{"python, a second call cut", "its text comes back", pythonic, "", `[f(n=1), g(`, Answer{Content: ", g(", Calls: calls("f", `{"n":1}`)}},
	{"python, a list", "is content", pythonic, "", `[1, 2]`, Answer{Content: `[1, 2]`}},
	{"python, a link", "is content", pythonic, "", `[f](http://x) y`, Answer{Content: `[f](http://x) y`}},
	{"python, a formula", "is content", pythonic, "", `[sin(x)]`, Answer{Content: `[sin(x)]`}},
	{"python, text before", "is content", pythonic, "", `So [f(n=1)]`, Answer{Content: `So [f(n=1)]`}},
	{"python, no call", "comes back with its tag", pythonic, "", `‹<|python_start|>›print(1)`, Answer{Content: `<|python_start|>print(1)`}},
	{"python, a name as a value", "ends the call", pythonic, "", `[f(s=x)]`, Answer{Content: `x)]`, Calls: calls("f", `{"s":`)}},
	{"python, a value without a name", "ends the call", pythonic, "", `[f(n=1, 2)]`, Answer{Content: `2)]`, Calls: calls("f", `{"n":1, `)}},
	{"python, a wrong bracket", "ends the call", pythonic, "", `[f(n=1}]`, Answer{Content: `}]`, Calls: calls("f", `{"n":1`)}},
	{"python, a line end in a string", "ends the call", pythonic, "", "[f(s='a\nb')]", Answer{Content: "\nb')]", Calls: calls("f", `{"s":"a`)}},
	{"python, an unknown escape", "ends the call", pythonic, "", `[f(s='\N{x}')]`, Answer{Content: `\N{x}')]`, Calls: calls("f", `{"s":"`)}},

	{"llama, content after two calls", "the separator of calls is no part of it", llama, "", `{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}} x`, Answer{Content: "x", Calls: calls("f", "{}", "g", "{}")}},
	{"mistral", "a list", nemo, "", `‹[TOOL_CALLS]›[{"name": "f", "arguments": {"a": 1}}]‹</s>›`, Answer{Calls: calls("f", `{"a": 1}`)}},
	{"mistral, a call in thoughts", "its control token ends them", magistral, "", `‹[THINK]›hm ‹[TOOL_CALLS]›f‹[ARGS]›{"a": 1}‹</s>›`, Answer{Reasoning: "hm", Calls: calls("f", `{"a": 1}`)}},
	{"mistral, thoughts again", "after content", magistral, "", `‹[THINK]›hm‹[/THINK]›Ok‹[THINK]›yes‹[/THINK]›Bye`, Answer{Reasoning: "hm\n\nyes", Content: "Ok\n\nBye"}},
	{"mistral, a marker in thoughts without a call", "is a part of them", magistral, "", `‹[THINK]›hm ‹[TOOL_CALLS]› no, wait‹[/THINK]›Ok`, Answer{Reasoning: "hm [TOOL_CALLS] no, wait", Content: "Ok"}},
	{"mistral, thoughts after a call", "go on", magistral, "", `‹[THINK]›hm‹[TOOL_CALLS]›f‹[ARGS]›{}more‹[/THINK]›Ok`, Answer{Reasoning: "hmmore", Content: "Ok", Calls: calls("f", "{}")}},
	{"mistral, thoughts again without a call", "an empty line separates them", magistral, "", `‹[THINK]›hm‹[/THINK]›Ok‹[THINK]›‹[TOOL_CALLS]›bad bad`, Answer{Reasoning: "hm\n\n[TOOL_CALLS]bad bad", Content: "Ok"}},
	{"mistral, the marker of thoughts in thoughts", "is left out", magistral, "", `‹[THINK]›hm‹[THINK]› yes‹[/THINK]›Ok`, Answer{Reasoning: "hm yes", Content: "Ok"}},
	{"mistral, the marker of a call as text in thoughts", "is a part of them", magistral, "", `‹[THINK]›hm [TOOL_CALLS]f‹[/THINK]›Ok`, Answer{Reasoning: "hm [TOOL_CALLS]f", Content: "Ok"}},
	{"mistral, two calls", "in one list, by text, with ids", nemo, "", `Ok [TOOL_CALLS] [{"name": "f", "arguments": {}, "id": "123456789"}, {"name": "g", "arguments": {}}] .`, Answer{Content: "Ok.", Calls: calls("f", `{}`, "g", "{}")}},
	{"mistral, names", "the newer form", nemo, "", `‹[TOOL_CALLS]›f‹[ARGS]›{"a": 1}‹[TOOL_CALLS]›g-2[CALL_ID]123[ARGS] {}‹</s>›`, Answer{Calls: calls("f", `{"a": 1}`, "g-2", "{}")}},
	{"mistral, names with ids", "control tokens", nemo, "", `‹[TOOL_CALLS]›f‹[CALL_ID]›123‹[ARGS]›{"a": 1}`, Answer{Calls: calls("f", `{"a": 1}`)}},
	{"mistral, names without a marker", "the object follows", nemo, "", `[TOOL_CALLS]f{"a": "[ARGS]"}x`, Answer{Content: "x", Calls: calls("f", `{"a": "[ARGS]"}`)}},
	{"mistral, second item cut", "what came of the arguments", nemo, "", `[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"a": tru`, Answer{Calls: calls("f", "{}", "g", `{"a": tru`)}},
	{"mistral, open list", "its calls are complete", nemo, "", `[TOOL_CALLS][{"name": "f", "arguments": {}} `, Answer{Calls: calls("f", "{}")}},
	{"mistral, empty list", "comes back", nemo, "", `[TOOL_CALLS][]`, Answer{Content: "[TOOL_CALLS][]"}},
	{"mistral, name alone", "comes back", nemo, "", `a [TOOL_CALLS]f b`, Answer{Content: "a [TOOL_CALLS]f b"}},
	{"mistral, marker alone", "comes back", nemo, "", `[TOOL_CALLS]`, Answer{Content: "[TOOL_CALLS]"}},
	{"mistral, bad name", "comes back", nemo, "", `[TOOL_CALLS]f b[ARGS]{}`, Answer{Content: "[TOOL_CALLS]f b[ARGS]{}"}},
	{"mistral, long name", "comes back", nemo, "", "[TOOL_CALLS]" + strings.Repeat("f", 1000), Answer{Content: "[TOOL_CALLS]" + strings.Repeat("f", 1000)}},
	{"coder", "values by the types of the tool", coder, "", "<tool_call>\n<function=f>\n<parameter=s>\n1\n</parameter>\n<parameter=n>\n1\n</parameter>\n<parameter=x>\n{\"a\": [true]}\n</parameter>\n</function>\n</tool_call>", Answer{Calls: calls("f", `{"s": "1", "n": 1, "x": {"a": [true]}}`)}},
	{"coder, content and two calls", "without parameters, and with several lines", coder, "", "Look:\n<tool_call>\n<function=g>\n</function>\n</tool_call>\n<tool_call><function=f><parameter=s>\na <b>\n\n\"c\"\n</parameter></function></tool_call>‹<|im_end|>›", Answer{Content: "Look:", Calls: calls("g", `{}`, "f", `{"s": "a <b>\n\n\"c\""}`)}},
	{"coder, values of Python", "as templates write earlier calls", coder, "", "<tool_call><function=f><parameter=n>\nNone\n</parameter><parameter=x>True</parameter><parameter=o>null</parameter></function></tool_call>", Answer{Calls: calls("f", `{"n": null, "x": true, "o": null}`)}},
	{"coder, text or nothing", "and no JSON", coder, "", "<tool_call><function=f><parameter=o>{}</parameter><parameter=x>a b</parameter><parameter=other>c</parameter></function></tool_call> x", Answer{Content: "x", Calls: calls("f", `{"o": "{}", "x": "a b", "other": "c"}`)}},
	{"coder, another tool", "values are JSON or text", coder, "", "<tool_call><function=h><parameter=s>1</parameter><parameter=t>b</parameter></function></tool_call>", Answer{Calls: calls("h", `{"s": 1, "t": "b"}`)}},
	{"coder, cut", "complete parameters", coder, "", "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=n>\n1", Answer{Content: "\n<parameter=n>\n1", Calls: calls("f", `{"s": "a"`)}},
	{"coder, cut before a parameter", "comes back", coder, "", "a <tool_call>\n<function=f>\n<parameter=s>\na\n</para", Answer{Content: "a <tool_call>\n<function=f>\n<parameter=s>\na\n</para"}},
	{"coder, JSON", "comes back", coder, "", "<tool_call>\n{\"name\": \"f\"}</tool_call>", Answer{Content: "<tool_call>\n{\"name\": \"f\"}</tool_call>"}},
	{"coder, no name", "comes back", coder, "", "<tool_call><function=>", Answer{Content: "<tool_call><function=>"}},
	{"coder, a name with spaces", "comes back", coder, "", "<tool_call><function=f b>", Answer{Content: "<tool_call><function=f b>"}},
	{"coder, a long name", "comes back", coder, "", "<tool_call><function=" + strings.Repeat("f", 300), Answer{Content: "<tool_call><function=" + strings.Repeat("f", 300)}},
	{"coder, no tags", "come back, and the next call counts", coder, "", "<tool_call>f()<tool_call><function=g></function></tool_call>", Answer{Content: "<tool_call>f()", Calls: calls("g", "{}")}},

	{"gemma", "thoughts and an answer", gemma4, "<|turn>model\n", "<|channel>thought\nhm\n\nyes\n<channel|>Hi‹<turn|>›", Answer{Reasoning: "hm\n\nyes", Content: "Hi"}},
	{"gemma, by control tokens", "as some vocabularies have them", gemma4, "", "‹<|channel>›thought\nhm‹<channel|>›‹<|tool_call>›call:f{s:‹<|\"|>›a, b‹<|\"|>›}‹<tool_call|>›‹<|tool_response>›", Answer{Reasoning: "hm", Calls: calls("f", `{"s":"a, b"}`)}},
	{"gemma, thoughts begun by the prompt", "after the result of a tool", gemma4, "<|channel>thought\n", "hm\n<channel|>Hi", Answer{Reasoning: "hm", Content: "Hi"}},
	{"gemma, thoughts ended by the prompt", "without thinking", gemma4, "<|channel>thought\n<channel|>", "Hi", Answer{Content: "Hi"}},
	{"gemma, no thoughts", "an empty channel", gemma4, "", "<|channel>thought\n<channel|>Hi", Answer{Content: "Hi"}},
	{"gemma, another channel", "is content", gemma4, "", "<|channel>final\nHi<channel|>", Answer{Content: "<|channel>final\nHi<channel|>"}},
	{"gemma, values", "of all types", gemma4, "", `<|tool_call>call:f{a:[1,-2.5e3,true,null,None,{}],b:{c:<|"|>x<|"|>,d:{e:[]}},é_1-x.y:<|"|><|"|>}<tool_call|>`, Answer{Calls: calls("f", `{"a":[1,-2.5e3,true,null,null,{}],"b":{"c":"x","d":{"e":[]}},"é_1-x.y":""}`)}},
	{"gemma, text", "has no escapes", gemma4, "", "<|tool_call>call:f{s:<|\"|>a \"b\" \\n {c:1}\n\t<|x<|\"|>}<tool_call|>", Answer{Calls: calls("f", `{"s":"a \"b\" \\n {c:1}\n\u0009<|x"}`)}},
	{"gemma, marked keys", "as models write them at times", gemma4, "", `<|tool_call>call:f{<|"|>a b<|"|>:1}<tool_call|>`, Answer{Calls: calls("f", `{"a b":1}`)}},
	{"gemma, two calls", "after content, without a separator", gemma4, "", `Look: <|tool_call>call:f{}<tool_call|><|tool_call>call:g.h-1{ a: 1 , b:2}<tool_call|> ok`, Answer{Content: "Look:ok", Calls: calls("f", `{}`, "g.h-1", `{ "a": 1 , "b":2}`)}},
	{"gemma, cut in a string", "what came of the arguments", gemma4, "", `<|tool_call>call:f{s:<|"|>Ro<|"`, Answer{Calls: calls("f", `{"s":"Ro<|\"`)}},
	{"gemma, cut in a key", "what came of the arguments", gemma4, "", `<|tool_call>call:f{s:1,na`, Answer{Calls: calls("f", `{"s":1,"na`)}},
	{"gemma, cut before the arguments", "comes back", gemma4, "", `a <|tool_call>call:f`, Answer{Content: `a <|tool_call>call:f`}},
	{"gemma, JSON", "ends where it is none of its form", gemma4, "", `<|tool_call>call:f{"s": 1}<tool_call|>`, Answer{Content: `"s": 1}<tool_call|>`, Calls: calls("f", `{`)}},
	{"gemma, bare text", "ends the call", gemma4, "", `<|tool_call>call:f{s:Rome}<tool_call|><|tool_call>call:g{}<tool_call|>`, Answer{Content: `Rome}<tool_call|>`, Calls: calls("f", `{"s":`, "g", "{}")}},
	{"gemma, a comma too many", "ends the call", gemma4, "", `<|tool_call>call:f{a:1,}`, Answer{Content: `}`, Calls: calls("f", `{"a":1,`)}},
	{"gemma, a key without a value", "ends the call", gemma4, "", `<|tool_call>call:f{a b}`, Answer{Content: ` b}`, Calls: calls("f", `{"a`)}},
	{"gemma, no head", "comes back", gemma4, "", `<|tool_call>f{}<tool_call|>`, Answer{Content: `<|tool_call>f{}<tool_call|>`}},
	{"gemma, no name", "comes back", gemma4, "", `<|tool_call>call:{}`, Answer{Content: `<|tool_call>call:{}`}},
	{"gemma, a name with spaces", "comes back", gemma4, "", `<|tool_call>call:f b{}`, Answer{Content: `<|tool_call>call:f b{}`}},
	{"gemma, a long name", "comes back", gemma4, "", `<|tool_call>call:` + strings.Repeat("f", 300) + `{}`, Answer{Content: `<|tool_call>call:` + strings.Repeat("f", 300) + `{}`}},

	{"harmony", "thoughts and the answer", gptOSS, assistant, "‹<|channel|>›analysis‹<|message|>›hm\n\nyes‹<|end|>›‹<|start|>›assistant‹<|channel|>›final‹<|message|>›Hi <b> ‹<|return|>›", Answer{Reasoning: "hm\n\nyes", Content: "Hi <b>"}},
	{"harmony, a call", "the recipient is behind the channel", gptOSS, assistant, "‹<|channel|>›analysis‹<|message|>›hm‹<|end|>›‹<|start|>›assistant‹<|channel|>›commentary to=functions.f ‹<|constrain|>›json‹<|message|>›{\"a\": [1]}‹<|call|>›", Answer{Reasoning: "hm", Calls: calls("f", `{"a": [1]}`)}},
	{"harmony, a call by the role", "the recipient is before the channel", gptOSS, assistant, " to=functions.f‹<|channel|>›commentary json‹<|message|>›{}", Answer{Calls: calls("f", `{}`)}},
	{"harmony, a preamble", "is content", gptOSS, assistant, "‹<|channel|>›commentary‹<|message|>›Look:\n‹<|end|>›‹<|start|>›assistant to=functions.f‹<|channel|>›commentary‹<|message|>›{}‹<|end|>›‹<|start|>›assistant‹<|channel|>›analysis to=functions.g‹<|message|>› {}\n‹<|call|>›", Answer{Content: "Look:", Calls: calls("f", `{}`, "g", "{}")}},
	{"harmony, several messages", "with empty lines between", gptOSS, assistant, "‹<|channel|>›analysis‹<|message|>›a‹<|end|>›‹<|start|>›assistant‹<|channel|>›commentary‹<|message|>›b‹<|end|>›‹<|start|>›assistant‹<|channel|>›analysis‹<|message|>›c‹<|end|>›‹<|start|>›assistant‹<|channel|>›final ‹<|constrain|>›json‹<|message|>›{}‹<|return|>›", Answer{Reasoning: "a\n\nc", Content: "b\n\n{}"}},
	{"harmony, another tool", "its name has no prefix", gptOSS, assistant, "‹<|channel|>›analysis to=browser.search‹<|message|>›{}‹<|call|>›", Answer{Calls: calls("browser.search", `{}`)}},
	{"harmony, a tool without the prefix", "it is one of the request", gptOSS, assistant, "‹<|channel|>›commentary to=g‹<|message|>›{}‹<|call|>›", Answer{Calls: calls("g", `{}`)}},
	{"harmony, no tool", "comes back", gptOSS, assistant, "‹<|channel|>›commentary to=assistant‹<|message|>›{}‹<|end|>›", Answer{Content: "<|channel|>commentary to=assistant<|message|>{}"}},
	{"harmony, two channels", "the last one counts", gptOSS, assistant, "‹<|channel|>›analysis‹<|channel|>›final‹<|message|>›Hi", Answer{Content: "Hi"}},
	{"harmony, a content type before the last channel", "does not count", gptOSS, assistant, "‹<|channel|>›commentary json‹<|channel|>›final‹<|message|>›Hi", Answer{Content: "Hi"}},
	{"harmony, an empty last channel", "is content", gptOSS, assistant, "‹<|channel|>›analysis‹<|channel|>›‹<|message|>›Hi", Answer{Content: "Hi"}},
	{"harmony, a channel after the recipient", "is not a part of the name", gptOSS, assistant, "‹<|channel|>›commentary to=functions.f‹<|channel|>›commentary‹<|message|>›{}‹<|call|>›", Answer{Calls: calls("f", `{}`)}},
	{"harmony, code", "comes back", gptOSS, assistant, "‹<|channel|>›analysis to=python code‹<|message|>›print(1)‹<|call|>›", Answer{Content: "<|channel|>analysis to=python code<|message|>print(1)"}},
	{"harmony, no channel", "is content", gptOSS, assistant, "‹<|message|>›Hi", Answer{Content: "Hi"}},
	{"harmony, no header", "is content", gptOSS, assistant, " Hi \n", Answer{Content: " Hi \n"}},
	{"harmony, no start", "a header follows at once", gptOSS, assistant, "‹<|channel|>›analysis‹<|message|>›a‹<|end|>›‹<|channel|>›final‹<|message|>›b", Answer{Reasoning: "a", Content: "b"}},
	{"harmony, no end", "the next message ends it", gptOSS, assistant, "‹<|channel|>›analysis‹<|message|>›a‹<|start|>›assistant‹<|channel|>›final‹<|message|>›b", Answer{Reasoning: "a", Content: "b"}},
	{"harmony, text between messages", "is content", gptOSS, assistant, "‹<|channel|>›analysis‹<|message|>›a‹<|end|>›b‹<|start|>›assistant‹<|channel|>›final‹<|message|>›c", Answer{Reasoning: "a", Content: "b\n\nc"}},
	{"harmony, markers as text", "are text", gptOSS, assistant, "‹<|channel|>›final‹<|message|>›a<|end|><|start|>b", Answer{Content: "a<|end|><|start|>b"}},
	{"harmony, other markers", "have no meaning inside of a text", gptOSS, assistant, "‹<|channel|>›final‹<|message|>›a‹<|message|>›b‹<|constrain|>›‹<think>›c", Answer{Content: "abc"}},
	{"harmony, another channel", "comes back", gptOSS, assistant, "‹<|channel|>›notes‹<|message|>›a‹<|end|>›", Answer{Content: "<|channel|>notes<|message|>a"}},
	{"harmony, another role", "comes back", gptOSS, assistant, "‹<|channel|>›final‹<|message|>›a‹<|end|>›‹<|start|>›user‹<|message|>›b", Answer{Content: "a\n\n<|start|>user<|message|>b"}},
	{"harmony, text in a header", "comes back", gptOSS, assistant, "‹<|channel|>›final Hi you ‹<|return|>›", Answer{Content: "<|channel|>final Hi you"}},
	{"harmony, a long header", "comes back", gptOSS, assistant, "‹<|channel|>›" + strings.Repeat("final ", 200) + "‹<|message|>›a", Answer{Content: "<|channel|>" + strings.Repeat("final ", 200) + "a"}},
	{"harmony, a long name", "comes back", gptOSS, assistant, "‹<|channel|>›commentary to=" + strings.Repeat("f", 300) + "‹<|message|>›{}", Answer{Content: "<|channel|>commentary to=" + strings.Repeat("f", 300) + "<|message|>{}"}},
	{"harmony, cut thoughts", "no content", gptOSS, assistant, "‹<|channel|>›analysis‹<|message|>›hm ", Answer{Reasoning: "hm "}},
	{"harmony, cut in the channel", "has no text", gptOSS, assistant, "‹<|channel|>›analysis‹<|message|>›hm‹<|end|>›‹<|start|>›assistant‹<|channel|>›fin", Answer{Reasoning: "hm"}},
	{"harmony, cut in the role", "has no text", gptOSS, assistant, "‹<|channel|>›final‹<|message|>›a‹<|end|>›‹<|start|>›assis", Answer{Content: "a"}},
	{"harmony, cut before the arguments", "comes back", gptOSS, assistant, "‹<|channel|>›commentary to=functions.f", Answer{Content: "<|channel|>commentary to=functions.f"}},
	{"harmony, no arguments", "comes back", gptOSS, assistant, "‹<|channel|>›commentary to=functions.f‹<|message|>›‹<|call|>›", Answer{Content: "<|channel|>commentary to=functions.f<|message|>"}},
	{"harmony, cut arguments", "what came of them", gptOSS, assistant, "‹<|channel|>›commentary‹<|message|>›a‹<|end|>›‹<|start|>›assistant to=functions.f‹<|channel|>›commentary‹<|message|>›{\"a\": tr", Answer{Content: "a", Calls: calls("f", `{"a": tr`)}},
	{"harmony, broken arguments", "end where they break", gptOSS, assistant, "‹<|channel|>›commentary to=functions.f‹<|message|>›{\"a\" 1}‹<|call|>›", Answer{Content: "1}", Calls: calls("f", `{"a" `)}},
	{"harmony, text behind a call", "is content", gptOSS, assistant, "‹<|channel|>›commentary to=functions.f‹<|message|>›{} x ‹<|call|>›", Answer{Content: "x", Calls: calls("f", `{}`)}},
	{"harmony, the prompt has a channel", "the answer continues the header", gptOSS, assistant + "<|channel|>analysis", "‹<|message|>›hm‹<|end|>›", Answer{Reasoning: "hm"}},
	{"harmony, the prompt begins a message", "the answer continues it", gptOSS, assistant + "<|channel|>analysis<|message|>", "hm‹<|end|>›‹<|start|>›assistant‹<|channel|>›final‹<|message|>›a", Answer{Reasoning: "hm", Content: "a"}},
	{"harmony, the prompt begins the content", "the answer continues it", gptOSS, assistant + "<|channel|>final<|message|>", "a", Answer{Content: "a"}},
	{"harmony, the prompt ends a message", "a message follows", gptOSS, "<|start|>user<|message|>x<|end|>", "‹<|start|>›assistant‹<|channel|>›final‹<|message|>›a", Answer{Content: "a"}},

	{"mistral, arguments that are no object", "come back", nemo, "", `[TOOL_CALLS]f[ARGS][1]`, Answer{Content: "[TOOL_CALLS]f[ARGS][1]"}},
}

// parse feeds a text in pieces: next returns the size of the next piece of so many bytes.
// It checks the order of the deltas.
func parse(t *testing.T, p *Parser, text string, next func(n int) int) Answer {
	t.Helper()
	var all []Delta
	add := func(deltas []Delta) {
		for _, d := range deltas {
			if d.Text == "" && d.Kind < CallEnd {
				t.Errorf("an empty delta of kind %d", d.Kind)
			}
		}
		all = append(all, deltas...)
	}
	for text != "" {
		if after, ok := strings.CutPrefix(text, "‹"); ok {
			control, rest, _ := strings.Cut(after, "›")
			add(p.Next(control, ""))
			text = rest
			continue
		}
		end := strings.Index(text, "‹")
		if end < 0 {
			end = len(text)
		}
		n := next(end)
		add(p.Next("", text[:n]))
		text = text[n:]
	}
	add(p.End())
	open, begun := false, 0
	for _, d := range all {
		ok := d.Call == 0
		switch d.Kind {
		case CallBegin:
			ok = !open && d.Call == begun
			open = true
			begun++
		case CallArguments, CallEnd:
			ok = open && d.Call == begun-1
			open = d.Kind == CallArguments
		default:
			ok = ok && !open
		}
		if !ok {
			t.Fatalf("%+v is out of order in %+v", d, all)
		}
	}
	if open {
		t.Fatalf("a call has no end in %+v", all)
	}
	return Collect(all)
}

// pieces lists ways to cut a text.
func pieces() map[string]func(n int) int {
	rng := rand.New(rand.NewPCG(1, 2))
	return map[string]func(n int) int{
		"whole":  func(n int) int { return n },
		"bytes":  func(int) int { return 1 },
		"random": func(n int) int { return 1 + rng.IntN(min(n, 8)) },
	}
}

func TestParser(t *testing.T) {
	for _, c := range answers {
		t.Run(c.name, func(t *testing.T) {
			for how, next := range pieces() {
				got := parse(t, StyleOf(c.template).NewParser(c.prompt, testTools), c.text, next)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s, by %s: -want +got\n%s", c.reason, how, diff)
				}
			}
			for cut := 1; cut < min(len(c.text), 400); cut++ { // in two at each byte
				at := 0
				got := parse(t, StyleOf(c.template).NewParser(c.prompt, testTools), c.text, func(n int) int {
					if at < cut && cut < at+n {
						n = cut - at
					}
					at += n
					return n
				})
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s, cut at %d: -want +got\n%s", c.reason, cut, diff)
				}
			}
		})
	}
}

// TestWithoutTools checks that calls are content if the request has no tools.
func TestWithoutTools(t *testing.T) {
	for _, text := range []string{`<tool_call>{"name": "f", "arguments": {}}</tool_call>`, `{"name": "f", "parameters": {}}`, `[TOOL_CALLS][{"name": "f", "arguments": {}}]`} {
		for _, template := range []string{qwen, llama, nemo} {
			got := parse(t, StyleOf(template).NewParser("", nil), text, func(n int) int { return n })
			if diff := cmp.Diff(Answer{Content: text}, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		}
	}
	text := "‹<|channel|>›analysis‹<|message|>›hm‹<|end|>›‹<|start|>›assistant to=functions.f‹<|channel|>›commentary‹<|message|>›{}‹<|call|>›"
	want := Answer{Reasoning: "hm", Content: "<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}"}
	got := parse(t, StyleOf(gptOSS).NewParser(assistant, nil), text, func(n int) int { return n })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestStreams checks that parts are given as soon as they are certain.
func TestStreams(t *testing.T) {
	p := StyleOf(qwen).NewParser("", testTools)
	for _, c := range []struct {
		text string
		want []Delta
	}{
		{"<thi", nil},
		{"nk>\nLet ", []Delta{{Reasoning, 0, "Let"}}},
		{"me", []Delta{{Reasoning, 0, " me"}}},
		{".\n</think", []Delta{{Reasoning, 0, "."}}},
		{">\n\nSee <b", []Delta{{Content, 0, "See <b"}}},
		{"> <tool", []Delta{{Content, 0, ">"}}},
		{"_call>\n{\"na", nil},
		{"me\": \"f\", \"arguments\"", nil},
		{": {\"a\"", []Delta{{CallBegin, 0, "f"}, {CallArguments, 0, `{"a"`}}},
		{": 1", []Delta{{CallArguments, 0, ": 1"}}},
		{"}}\n</tool", []Delta{{CallArguments, 0, "}"}, {CallEnd, 0, ""}}},
		{"_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {", []Delta{{CallBegin, 1, "g"}, {CallArguments, 1, "{"}}},
		{"x", []Delta{{CallEnd, 1, ""}, {Content, 0, "x"}}},
		{"y ", []Delta{{Content, 0, "y"}}},
	} {
		if diff := cmp.Diff(c.want, p.Next("", c.text)); diff != "" {
			t.Errorf("after %q: -want +got\n%s", c.text, diff)
		}
	}
	if diff := cmp.Diff([]Delta{{Content, 0, " "}}, p.End()); diff != "" {
		t.Errorf("at the end: -want +got\n%s", diff)
	}
	p = StyleOf(gptOSS).NewParser(assistant, testTools)
	for _, c := range []struct {
		control, text string
		want          []Delta
	}{
		{"<|channel|>", "", nil},
		{"", "analysis", nil},
		{"<|message|>", "", nil},
		{"", "Let <", []Delta{{Reasoning, 0, "Let <"}}},
		{"", " me ", []Delta{{Reasoning, 0, " me"}}},
		{"<|end|>", "", nil},
		{"<|start|>", "", nil},
		{"", "assistant to=functions.", nil},
		{"", "f", nil},
		{"<|channel|>", "", nil},
		{"", "commentary", nil},
		{"<|message|>", "", nil},
		{"", "{", []Delta{{CallBegin, 0, "f"}, {CallArguments, 0, "{"}}},
		{"", "}", []Delta{{CallArguments, 0, "}"}, {CallEnd, 0, ""}}},
		{"<|call|>", "", nil},
	} {
		if diff := cmp.Diff(c.want, p.Next(c.control, c.text)); diff != "" {
			t.Errorf("after %q: -want +got\n%s", c.control+c.text, diff)
		}
	}
}

func TestStyleOf(t *testing.T) {
	for _, c := range []struct {
		template string
		tools    bool
		want     Style
	}{
		{"{{ x }}", false, Style{}},
		{qwen, true, Style{"<think>", "</think>", hermes}},
		{hermesOnly, true, Style{"", "", hermes}},
		{llama, true, Style{"", "", llama3}},
		{`<|start_header_id|> "parameters": x`, true, Style{"", "", llama3}},
		{`<|start_header_id|>`, false, Style{}},
		{scout, true, Style{"", "", llama4}},
		{pythonic, true, Style{"", "", python}},
		{`<|header_start|>`, false, Style{}},
		{nemo, true, Style{"", "", mistralList}},
		{named, true, Style{"", "", mistralNamed}},
		{magistral, true, Style{"[THINK]", "[/THINK]", mistralList}},
		{coder, true, Style{"", "", qwenXML}},
		{gptOSS, true, Style{"", "", harmony}},
		{gemma4, true, Style{thoughtOpen, channelClose, gemma}},
		{thoughtOpen, false, Style{thoughtOpen, channelClose, noCalls}},
		{deepseek, false, Style{"<think>", "</think>", noCalls}},
		{"<tool_call>\n<function=f>", false, Style{}}, // XML without parameters
		{"<tool_call>f<arg_key>", false, Style{}},     // XML of GLM
	} {
		if got := StyleOf(c.template); got != c.want || got.Tools() != c.tools {
			t.Errorf("the style of %q is %+v, want %+v", c.template, got, c.want)
		}
	}
	for file, want := range map[string]Style{"qwen3": {"<think>", "</think>", hermes}, "mistral-nemo": {"", "", mistralList}} {
		source, err := os.ReadFile(filepath.Join("..", "..", "model", "tokenizer", "testdata", "published", file+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		if got := StyleOf(string(source)); got != want {
			t.Errorf("the style of %s is %+v, want %+v", file, got, want)
		}
	}
}

// TestScanner compares with encoding/json.
func TestScanner(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, `[[], {}]`, `{"a": {"b": [1, 2]}, "c": null}`, `"a\n\u00e9\\\""`, `true`, `false `, ` null`, `[0, -0, -1.5e+10, 1E5, 0.0, 10]`,
		`{`, `}`, `[,]`, `[1,]`, `{,}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{1: 2}`, `"\x"`, `"\u00g0"`, `"` + "\n" + `"`, `tru`, `trux`, `[01]`, `[-]`, `[1.]`, `[.5]`, `[1e]`, `[1e+]`, `[+1]`, `1 2`, `[1}`, `{"a" 1}`, `{"a"::1}`, ``, ` `, `[1 2]`, `{"a":1 "b":2}`, `[--1]`, `[1.5.5]`, `[1e5.5]`,
	} {
		checkScanner(t, text)
	}
	deep := strings.Repeat("[", maxDepth+1)
	s := scanner{}
	for i := range deep {
		if s.next(deep[i]) != (i < maxDepth) {
			t.Errorf("depth %d", i+1)
		}
	}
}

func checkScanner(t *testing.T, text string) {
	t.Helper()
	s := scanner{}
	ok := true
	for i := range len(text) {
		ok = ok && s.next(text[i])
	}
	number := s.state == inZero || s.state == inDigit || s.state == inFraction || s.state == inExponent // ends with the text
	if got := ok && (s.done() || number && len(s.open) == 0); got != json.Valid([]byte(text)) {
		t.Errorf("%q is JSON: %v", text, got)
	}
}

// TestLongCalls checks that a call that never ends is given back in bounded parts.
func TestLongCalls(t *testing.T) {
	for _, begin := range []string{`<tool_call>{"name": "f", "arguments": {"a": "`, "<tool_call>", `<tool_call>{"`, "a", "[TOOL_CALLS]f", "[TOOL_CALLS][", "<tool_call><function=f><parameter=s>", "<tool_call><function=", "to=functions.f", `<|tool_call>call:f{s:<|"|>`, "<|tool_call>call:", "<|tool_call>", "[f(s='"} {
		p := StyleOf(qwen).NewParser("", testTools)
		switch {
		case begin == "[f(s='":
			p = StyleOf(pythonic).NewParser("", testTools)
		case begin[0] == '[':
			p = StyleOf(nemo).NewParser("", testTools)
		case strings.Contains(begin, "<function="):
			p = StyleOf(coder).NewParser("", testTools)
		case strings.HasPrefix(begin, "to="):
			p = StyleOf(gptOSS).NewParser(assistant, testTools)
		case strings.HasPrefix(begin, gemmaOpen):
			p = StyleOf(gemma4).NewParser("", testTools)
		}
		all := p.Next("", begin)
		piece := strings.Repeat("  x ", 64)
		if begin == "<tool_call>" {
			piece = strings.Repeat("  \n ", 64)
		}
		began := time.Now()
		n := 0
		for ; n < 1<<14; n++ {
			all = append(all, p.Next("", piece)...)
			if kept := p.raw.Len() + len(p.rest) + len(p.space) + len(p.header); kept > maxCall+4096 {
				t.Fatalf("%q: %d bytes are kept", begin, kept)
			}
		}
		all = append(all, p.End()...)
		got := Collect(all).Content
		for _, c := range Collect(all).Calls {
			head, text := begin, strings.TrimPrefix(c.Arguments, `{"s":"`)
			if text == c.Arguments {
				head = `<tool_call>{"name": "f", "arguments": `
			}
			got = head + text + got
		}
		if want := begin + strings.Repeat(piece, n); got != want {
			t.Errorf("%q: %d bytes, want %d", begin, len(got), len(want))
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%q: it took %v", begin, took)
		}
	}
}

// FuzzParser parses arbitrary texts in arbitrary pieces. The answer does not depend on the
// pieces, and text without calls and reasoning is content.
func FuzzParser(f *testing.F) {
	templates := []string{qwen, hermesOnly, llama, nemo, magistral, "", coder, named, gptOSS, gemma4, scout, pythonic}
	for _, c := range answers {
		for i, template := range templates {
			if template == c.template {
				f.Add(uint8(i), c.prompt, c.text, uint64(7))
			}
		}
	}
	f.Fuzz(func(t *testing.T, style uint8, prompt, text string, seed uint64) {
		template := templates[int(style)%len(templates)]
		rng := rand.New(rand.NewPCG(seed, 1))
		whole := parse(t, StyleOf(template).NewParser(prompt, testTools), text, func(n int) int { return n })
		parts := parse(t, StyleOf(template).NewParser(prompt, testTools), text, func(n int) int { return 1 + rng.IntN(n) })
		if diff := cmp.Diff(whole, parts); diff != "" {
			t.Fatalf("%q: -whole +parts\n%s", text, diff)
		}
		for _, call := range whole.Calls {
			if call.Arguments[0] != '{' || call.Name == "" {
				t.Fatalf("%q: the call %+v", text, call)
			}
		}
		if len(whole.Calls) == 0 && !strings.Contains(text+prompt, "‹") && !strings.Contains(strings.ToUpper(text+prompt), "THINK") && !strings.Contains(text+prompt, thoughtOpen) && !strings.Contains(prompt, messageMarker) && whole.Content != text {
			t.Fatalf("%q becomes %q", text, whole.Content)
		}
		checkScanner(t, text)
	})
}
