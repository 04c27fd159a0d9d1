package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fixed is the time of all renderings.
var fixed = time.Date(2026, time.July, 4, 9, 5, 6, 0, time.UTC)

// conversation returns the variables of all renderings.
func conversation() *Dict {
	return NewDict(
		"messages", []any{
			NewDict("role", "system", "content", " Be brief. "),
			NewDict("role", "user", "content", "It's \"2+2\"\n"),
			NewDict("role", "assistant", "content", "<think>\u00e9</think>\n\n4"),
		},
		"add_generation_prompt", true, "bos_token", "<s>", "eos_token", "</s>", "tools", nil,
	)
}

func render(source string) (string, error) {
	t, err := Parse(source)
	if err != nil {
		return "", err
	}
	text, _, err := t.Render(conversation(), fixed)
	return text, err
}

// The expected texts are those of Jinja2 in the environment of transformers, except that
// tuples print as lists.
var renderings = []struct{ name, reason, source, want string }{
	{"literals", "each as Python prints it", `{{ 1 }} {{ 1_000 }} {{ 2.50 }} {{ 1e3 }} {{ true }} {{ False }} {{ none }} {{ None }} {{ 'a' }}`, "1 1000 2.5 1000.0 True False None None a"},
	{"escapes", "Python's escapes in strings", `{{ 'a\n\t\\n\'\"\x41\u00e9\d' }}{{ "it's" }}`, "a\n\t\\n'\"A\u00e9\\dit's"},
	{"neighboring strings", "are one string", `{{ 'a' "b" }}`, "ab"},
	{"lists and dictionaries", "printed as Python's repr", `{{ [1, 'a', none, [2.0]] }}{{ {'a': 1, 'b': "it's"} }}`, `[1, 'a', None, [2.0]]{'a': 1, 'b': "it's"}`},
	{"expressions over lines", "white space in tags is free", "{{ [1,\n  2]\n  | length }}{% if true and\n\ttrue %}x{% endif %}", "2x"},
	{"no space around keywords", "brackets and strings end names", `{{ 'a'if(true)else'b' }}{% if(1)and(2) %}x{% endif %}`, "ax"},
	{"arithmetic", "Python's division and modulo", `{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 + 3 * 4 - 1 }} {{ -3 + 5 }}`, "3 -4 1 2 3.5 1024 13 2"},
	{"strings by operators", "concatenation and repetition", `{{ 'a' + 'b' ~ 1 ~ none }}{{ 'ab' * 3 }}{{ [1] + [2] }}{{ [] * 1000000000000 }}{{ 'a' * -1 }}`, "ab1Noneababab[1, 2][]"},
	{"comparisons", "of numbers and of strings", `{{ 1 < 2 }}{{ 'a' >= 'b' }}{{ 1 == 1.0 }}{{ 'a' != 'a' }}{{ [1, 'a'] == [1, 'a'] }}{{ true == 1 }}`, "TrueFalseTrueFalseTrueTrue"},
	{"logic", "and, or give an operand", `{{ '' or 'x' }}{{ 'a' and 'b' }}{{ not '' }}{{ none or 0 }}`, "xbTrue0"},
	{"short circuit", "the second operand is not looked at", `{{ false and nothing.at.all }}{{ 1 or nothing.at.all }}`, "False1"},
	{"conditionals", "everywhere, chained, without else", `{{ 'a' if 1 else 'b' }}{{ ['x' if 0 else 'y', 1 if 0 else 2 if 0 else 3] }}{{ 'z' if 0 }}{{ ('p' if 1) ~ 'q' }}`, "a['y', 3]pq"},
	{"conditional arguments", "in calls, indices and dictionaries", `{{ [1, 2][0 if false else 1] }}{{ range(2 if true else 3)|list }}{{ {'a': 1 if 0 else 2}.a }}`, "2[0, 1]2"},
	{"membership", "in strings, lists, dictionaries, what is undefined", `{{ 'b' in 'abc' }}{{ 2 in [1, 2] }}{{ 'a' in {'a': 1} }}{{ 'a' not in 'b' }}{{ 1 in nothing }}`, "TrueTrueTrueTrueFalse"},
	{"membership in an expression", "the right side is a whole operand", `{{ 'b' in 'a' + 'b' }}{{ 'x' in messages|map(attribute='role')|list }}{{ 'user' in messages|map(attribute='role')|list and 1 == 1 }}`, "TrueFalseTrue"},
	{"tests", "is and is not", `{{ x is defined }}{{ x is not defined }}{{ none is none }}{{ '' is string }}{{ messages is iterable }}{{ messages[0] is mapping }}{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ 1 is eq 1 }}`, "FalseTrueTrueTrueTrueTrueTrueTrueTrue"},
	{"test before else", "the parser must not take else for an argument", `{{ 1 if x is defined else 2 }}`, "2"},
	{"test after an operator", "tests bind like filters, stronger than operators", `{{ 1 ~ none is none }}{{ -1 is odd }}{{ -3|abs }}`, "1TrueTrue3"},
	{"test with an argument", "without brackets", `{{ 'a' is in ['a'] }}{{ 3 is divisibleby 3 and true }}{{ 7 if 1 is eq(1) else 2 }}`, "TrueTrue7"},
	{"chained comparison", "every link holds", `{{ 1 < 2 < 3 }}{{ 1 < 2 > 3 }}{{ 1 in [1] in [[1]] }}`, "TrueFalseTrue"},
	{"powers", "from left to right, signs bind stronger", `{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }}`, "64 4 0.5"},
	{"tuples", "are lists", `{{ (1, 2) }}{{ () }}{{ (1,) }}{{ (1) }}`, "[1, 2][][1]1"},
	{"item by a dot", "a number is an index", `{{ [5, 6].1 }}`, "6"},
	{"not before a test", "not binds looser", `{{ not x is defined }}{{ not none is none }}`, "TrueFalse"},
	{"items and attributes", "either way, negative indices too", `{{ messages[1].role }}{{ messages[-1]['role'] }}{{ messages[0]["role"] }}`, "userassistantsystem"},
	{"slices", "Python's, steps too", `{{ messages[1:]|length }}{{ [1,2,3][::-1] }}{{ 'h\u00e9llo'[1:3] }}{{ [1,2,3,4][-2:] }}{{ [1,2,3,4][:1:-1] }}{{ [1,2,3][5:] }}`, "2[3, 2, 1]\u00e9l[3, 4][4, 3][]"},
	{"undefined", "prints as nothing and is false", `[{{ nothing }}{{ messages[9] }}{{ messages[0].nothing }}{{ 'x' if nothing else 'y' }}]`, "[y]"},

	{"if", "elif and else", `{% for n in [1, 2, 3] %}{% if n == 1 %}a{% elif n == 2 %}b{% else %}c{% endif %}{% endfor %}`, "abc"},
	{"for", "loop knows where it is", `{% for n in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }}{% if loop.first %}F{% endif %}{% if loop.last %}L{% endif %}{{ n }} {% endfor %}`, "10323Fa 21213b 32103Lc "},
	{"for with neighbors", "previtem and nextitem", `{% for n in [1, 2] %}{{ loop.previtem is defined }}{{ loop.nextitem }} {% endfor %}`, "False2 True "},
	{"for with a condition", "loop.last counts what is left", `{% for n in range(6) if n is odd %}{{ n }}{{ '.' if loop.last else ',' }}{% endfor %}`, "1,3,5."},
	{"for without items", "else", `{% for n in [] %}x{% else %}none{% endfor %}`, "none"},
	{"for with pairs", "items of a dictionary, in order", `{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}`, "b1a2"},
	{"break and continue", "also from inside an if", `{% for n in range(9) %}{% if n == 1 %}{% continue %}{% endif %}{% if n == 3 %}{% break %}{% endif %}{{ n }}{% endfor %}`, "02"},
	{"scope of a loop", "set inside ends with the turn", `{% set x = 1 %}{% for n in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}`, "15151"},
	{"scope of an if", "set inside stays", `{% if true %}{% set x = 2 %}{% endif %}{{ x }}`, "2"},
	{"namespace", "the way out of a loop", `{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.s = ns.s ~ m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.s }}`, "3sua"},
	{"set with a body", "captures what is rendered", `{% set x %}a{{ 1 }}{% endset %}[{{ x }}]`, "[a1]"},
	{"macro", "arguments by place and name, defaults", `{% macro f(a, b='B', c=none) %}{{ a }}{{ b }}{{ c is none }}{% endmacro %}{{ f(1) }}{{ f(b=2, a=3) }}`, "1BTrue32True"},
	{"macro's scope", "sees the template's variables, not the caller's", `{% set t = 'T' %}{% macro f() %}{{ t }}{{ n }}{% endmacro %}{% for n in [1] %}{{ f() }}{% endfor %}`, "T"},
	{"recursive macro", "down to its end", `{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}`, "3210"},
	{"generation", "renders its body", `a{% generation %}b{% endgeneration %}c`, "abc"},
	{"raw", "tags inside are text", "a {% raw %}{{ x }}{% if %}\n  {%- endraw %}\nb", "a {{ x }}{% if %}b"},
	{"for with three names", "each item has three parts", `{% for a, b, c in [[1, 2, 3]] %}{{ c }}{{ b }}{{ a }}{% endfor %}`, "321"},
	{"comment", "nothing, even with tags inside", `a{# {{ x }} {% if %} #}b`, "ab"},

	{"trim", "minus takes all white space", "a \n {%- if true -%} \n b \n {%- endif -%} \n c {{- 1 -}} \n d {#- x -#} \n e", "abc1de"},
	{"trim_blocks", "the line end after a block goes", "{% if true %}\na\n{% endif %}\nb\n{# c #}\nd", "a\nb\nd"},
	{"lstrip_blocks", "white space before a block on its line goes", "  {% if true %}\n  a\n\t{% endif %}\nb {% if true %}c{% endif %}", "  a\nb c"},
	{"space between tags", "only at the beginning of a line", "{{ 1 }} {% if true %}{{ 2 }} {% endif %}{{ 3 }}", "1 2 3"},
	{"plus", "keeps what the settings would take", "  {%+ if true +%}\na{% endif %}", "  \na"},
	{"last line end", "one goes, as from a file", "a\n\n", "a\n"},
	{"line ends of other systems", "are line ends", "{% if true %}\r\na\r\n{% endif %}\rb", "a\nb"},
	{"brackets in text", "braces that open no tag", "{ {a} %} }} # {", "{ {a} %} }} # {"},
	{"closing braces in a tag", "those of a dictionary do not close it", `{{ {'a': {'b': 1}}['a']['b'] }}`, "1"},

	{"filters", "of strings", `{{ ' a ' | trim }}{{ 'aB' | upper }}{{ 'aB' | lower }}{{ 'ab cd' | title }}{{ 'aB' | capitalize }}{{ 'aa' | replace('a', 'b') }}{{ "a\nb" | indent(2) }}`, "aABabAb CdAbbba\n  b"},
	{"filters of lists", "and of what makes them", `{{ [1,2] | first }}{{ [1,2] | last }}{{ [1,2] | length }}{{ [1,2] | join('-') }}{{ [1,2] | reverse | list }}{{ 'ab' | list }}{{ messages | map(attribute='role') | join(',') }}`, "1221-2[2, 1]['a', 'b']system,user,assistant"},
	{"choosing filters", "by attribute and test", `{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'in', ['user']) | map(attribute='role') | list }}{{ [0, 1, none] | select | list }}{{ [1, 2] | reject('odd') | list }}`, "1['system', 'assistant'][1][2]"},
	{"default", "for undefined, or for all that is false", `{{ x | default('d') }}{{ '' | default('d') }}{{ '' | default('d', true) }}{{ none | default('d') }}`, "ddNone"},
	{"numbers by filters", "int, float, abs", `{{ '12' | int }}{{ 'x' | int }}{{ '1.5' | float }}{{ -3 | abs }}{{ 3.9 | int }}`, "1201.533"},
	{"tojson", "as json.dumps writes", `{{ {'a': [1, none, true, 1.0], 'b': "\u00e9\"\n<"} | tojson }}{{ [] | tojson }}{{ [1] | tojson(indent=2) }}`, "{\"a\": [1, null, true, 1.0], \"b\": \"\u00e9\\\"\\n<\"}[][\n  1\n]"},
	{"methods of strings", "Python's", `{{ ' a '.strip() }}{{ 'xxa'.lstrip('x') }}{{ 'a,b'.split(',') }}{{ 'a  b'.split() }}{{ 'abc'.startswith('a') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'a-b-c'.rsplit('-', 1)[0] }}{{ '-'.join(['a', 'b']) }}{{ 'abab'.replace('b', '', 1) }}`, "aa['a', 'b']['a', 'b']TrueTruea-ba-baab"},
	{"method of an expression", "in brackets and on items", `{{ ('a' ~ 'b').upper() }}{{ messages[0].content.strip() }}{{ messages[2]['content'].split('</think>')[-1].lstrip('\n') }}`, "ABBe brief.4"},
	{"methods of dictionaries", "get, keys, values, items", `{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}`, "1None2['a'][1]"},
	{"range", "start, stop and step", `{{ range(3) | list }}{{ range(1, 3) | list }}{{ range(5, 0, -2) | list }}`, "[0, 1, 2][1, 2][5, 3, 1]"},
	{"strftime_now", "the clock that was given", `{{ strftime_now('%d %b %Y %H:%M:%S %A %j %%') }}`, "04 Jul 2026 09:05:06 Saturday 185 %"},
}

func TestRender(t *testing.T) {
	for _, c := range renderings {
		t.Run(c.name, func(t *testing.T) {
			got, err := render(c.source)
			if err != nil || got != c.want {
				t.Errorf("%s: %q gives %q, %v; want %q", c.reason, c.source, got, err, c.want)
			}
		})
	}
}

// TestLikeJinja2 renders small templates and compares with the results of Jinja2, null if
// it fails. tools/oracle/jinja.py writes them.
func TestLikeJinja2(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("testdata", "variables.json"))
	if err != nil {
		t.Fatal(err)
	}
	vars, ok := fromJSON(source).(*Dict)
	if !ok {
		t.Fatal("the variables are not a dictionary")
	}
	file, err := os.Open(filepath.Join("testdata", "jinja2.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := 0
	for cases := json.NewDecoder(file); cases.More(); n++ {
		var c struct {
			Template string
			Want     *string
		}
		if err := cases.Decode(&c); err != nil {
			t.Fatal(err)
		}
		got, err := "", error(nil)
		if parsed, err2 := Parse(c.Template); err2 != nil {
			err = err2
		} else {
			got, _, err = parsed.Render(vars, fixed)
		}
		switch {
		case c.Want == nil && err == nil:
			t.Errorf("%q gives %q, Jinja2 fails", c.Template, got)
		case c.Want != nil && (err != nil || got != *c.Want):
			t.Errorf("%q gives %q, %v; Jinja2 gives %q", c.Template, got, err, *c.Want)
		}
	}
	if n == 0 {
		t.Error("no cases")
	}
}

// TestDocs checks that the documentation names what templates can use.
func TestDocs(t *testing.T) {
	docs, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "chat-templates.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range []iter.Seq[string]{maps.Keys(functions), maps.Keys(filters), maps.Keys(stringMethods), maps.Keys(dictMethods)} {
		for name := range names {
			if !bytes.Contains(docs, []byte("`"+name+"`")) {
				t.Errorf("docs/chat-templates.md does not name %s", name)
			}
		}
	}
}

// fromJSON returns a value of Render, or nil if source is not JSON.
func fromJSON(source []byte) any {
	v, _ := FromJSON(source)
	return v
}

func TestRenderRefuses(t *testing.T) {
	for _, c := range []struct {
		name, reason, source string
		want                 error
		says                 string
	}{
		{"raise_exception", "the template's own words", `{{ raise_exception('no system role') }}`, ErrRaised, "no system role"},
		{"raise_exception inside", "from any depth", `{% macro f() %}{{ raise_exception('x') }}{% endmacro %}{% for i in [1] %}{{ f() }}{% endfor %}`, ErrRaised, "x"},
		{"attribute of undefined", "as jinja2 does", "a\n{{ nothing.at }}", ErrEval, "line 2: nothing is undefined, and so has no at"},
		{"undefined in a sum", "as jinja2 does", `{{ 'a' + nothing }}`, ErrEval, "nothing is undefined"},
		{"string plus number", "as Python does", `{{ 'a' + 1 }}`, ErrEval, "str and int have no +"},
		{"division by zero", "whole, remainder and float", `{{ 1 // 0 }}`, ErrEval, "division by zero"},
		{"remainder by zero", "whole, remainder and float", `{{ 1 % 0 }}`, ErrEval, "division by zero"},
		{"float by zero", "whole, remainder and float", `{{ 1 / 0.0 }}`, ErrEval, "division by zero"},
		{"integer overflow", "Python would go on", `{{ 4611686018427387904 * 4 }}`, ErrEval, "overflow"},
		{"unknown filter", "named", `{{ 1 | frobnicate }}`, ErrEval, "frobnicate"},
		{"unknown test", "named", `{{ 1 is frobnicated }}`, ErrEval, "frobnicated"},
		{"unknown function", "named", `{{ frobnicate() }}`, ErrEval, "frobnicate"},
		{"unknown method", "named", `{{ 'a'.frobnicate() }}`, ErrEval, "frobnicate"},
		{"methods that change values", "there are none", `{{ messages.append(1) }}`, ErrEval, "append"},
		{"setting an item", "only namespaces can be changed", `{% set messages[0] = 1 %}`, ErrSyntax, ""},
		{"setting an attribute", "only namespaces can be changed", `{% set messages.x = 1 %}`, ErrEval, "namespace"},
		{"none is not iterable", "as Python says", `{% for x in none %}{% endfor %}`, ErrEval, "None is not iterable"},
		{"a pair of one", "as Python does", `{% for a, b in [[1]] %}{% endfor %}`, ErrEval, "list of 1 items cannot be unpacked into 2 variables"},
		{"slice by zero", "as Python does", `{{ [1][::0] }}`, ErrEval, "step"},
		{"strftime with an unknown directive", "it would be printed wrongly", `{{ strftime_now('%Q') }}`, ErrEval, "%Q"},
		{"too many arguments", "of a macro", `{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}`, ErrEval, "takes 1 arguments"},
		{"unknown argument", "of a macro", `{% macro f(a) %}{% endmacro %}{{ f(b=2) }}`, ErrEval, "no argument b"},
		{"include", "no other template can be read", `{% include '/etc/passwd' %}`, ErrSyntax, "include"},
		{"import", "no other template can be read", `{% import 'x' as y %}`, ErrSyntax, "import"},
		{"from", "no other template can be read", `{% from 'x' import y %}`, ErrSyntax, "from"},
		{"extends", "no other template can be read", `{% extends 'x' %}`, ErrSyntax, "extends"},
		{"block", "templates do not inherit", `{% block x %}{% endblock %}`, ErrSyntax, "block"},
		{"self", "there is no such variable", `{{ self.x() }}`, ErrEval, "self"},
		{"unclosed tag", "it ends nowhere", `a {{ b`, ErrSyntax, "unclosed tag"},
		{"unclosed string", "it ends nowhere", `{{ 'b }}`, ErrSyntax, "unclosed string"},
		{"unclosed comment", "it ends nowhere", `{# b`, ErrSyntax, "unclosed comment"},
		{"unclosed if", "it ends nowhere", `{% if true %}`, ErrSyntax, ""},
		{"unclosed bracket", "it ends nowhere", `{{ (1 }}`, ErrSyntax, ""},
		{"wrong bracket", "it closes another", `{{ (1] }}`, ErrSyntax, "unexpected"},
		{"end without beginning", "nothing to end", `{% endif %}`, ErrSyntax, "endif"},
		{"empty tag", "no expression", `{{ }}`, ErrSyntax, ""},
		{"unknown character", "no operator", `{{ 1 @ 2 }}`, ErrSyntax, "'@'"},
		{"in at the beginning", "an operand is missing", `{{ in x }}`, ErrSyntax, "in"},
		{"not before a string", "only the keyword in follows not", `{{ 1 not 'in' }}`, ErrSyntax, "not"},
		{"undefined bound", "as Python does", `{{ [1][x:] }}`, ErrEval, "bound"},
		{"unclosed raw", "it ends nowhere", `{% raw %}a`, ErrSyntax, "unclosed raw"},
		{"unclosed argument list", "it ends nowhere", `{{ f(1, }}`, ErrSyntax, ""},
		{"empty subscript", "no item is named", `{{ a[] }}`, ErrSyntax, "subscript"},
		{"three colons", "a slice has three parts", `{{ a[::: 1] }}`, ErrSyntax, "\":\""},
		{"call of a loop", "it is not recursive", `{% for x in [1] %}{{ loop([1]) }}{% endfor %}`, ErrEval, "cannot be called"},
		{"break outside of a loop", "nothing to end", `{% if true %}{% break %}{% endif %}`, ErrSyntax, "break outside of a loop"},
		{"continue in a macro", "the loop is around the macro", `{% for x in [1] %}{% macro f() %}{% continue %}{% endmacro %}{% endfor %}`, ErrSyntax, "continue outside of a loop"},
		{"list as a key", "as Python does", `{{ {[1]: 2} }}`, ErrEval, "list cannot be a key"},
		{"incomplete escape", "as Python does", `{{ '\x4' }}`, ErrSyntax, "escape"},
		{"name of a character", "not known", `{{ '\N{DASH}' }}`, ErrSyntax, "escape"},
		{"filter after a dot", "a filter's result has brackets", `{{ messages | first.role }}`, ErrSyntax, "\".\""},
		{"argument given twice", "as Python does", `{{ dict(a=1, a=2) }}`, ErrEval, "argument a is given twice"},
		{"join of numbers", "the method takes strings only", `{{ ','.join([1]) }}`, ErrEval, "int"},
		{"replace without a text", "as Python does", `{{ 'a'.replace('a') }}`, ErrEval, "replace needs a string"},
		{"odd string", "as Python does", `{{ 'a' is odd }}`, ErrEval, "str and int have no %"},
		{"complex power", "no real number", `{{ (-8) ** 0.5 }}`, ErrEval, "real"},
		{"missing item", "named", `{{ messages[7].role }}`, ErrEval, "item 7 is undefined, and so has no role"},
		{"include in raw", "is text", `{% raw %}{% include %}{% endraw %}{{ in }}`, ErrSyntax, "in"},
		{"huge number", "beyond the integers", `{{ 99999999999999999999 }}`, ErrSyntax, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := render(c.source)
			if !errors.Is(err, c.want) || got != "" {
				t.Fatalf("%s: %q gives %q, %v; want %v", c.reason, c.source, got, err, c.want)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error %q does not say %q", err, c.says)
			}
			if len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}
