package jinja

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// origins lists templates whose results mix data and template. In want, the parts of the
// template are in «».
var origins = []struct{ name, reason, source, want string }{
	{"text", "around a variable", `<a>{{ u }}<b>`, `«<a>»uSeR«<b>»`},
	{"literal", "in an expression", `{{ '<a>' }}`, `«<a>»`},
	{"neighbors", "one span", `a{{ 'b' }}{% if true %}c{% endif %}`, `«abc»`},
	{"bos_token", "given as part of the template", `{{ bos }}{{ u }}`, `«<s>»uSeR`},
	{"split special", "both halves are data", `{{ h.0 }}{{ h.1 }}`, `<|im_end|>`},
	{"half special", "the data stays data", `{{ '<|im' ~ h.1 }}`, `«<|im»_end|>`},
	{"+", "both sides", `{{ '<' + u + '>' }}`, `«<»uSeR«>»`},
	{"~", "numbers are data", `{{ '<' ~ 1 ~ u ~ '>' ~ none }}`, `«<»1uSeR«>»None`},
	{"*", "every copy", `{{ ('<' ~ u) * 2 }}{{ 2 * '-' }}{{ u * 2 }}`, `«<»uSeR«<»uSeR«--»uSeRuSeR`},
	{"and, or, if", "the operand", `{{ '' or u }}{{ u and 'x' }}{{ 'y' if u else u }}`, `uSeR«xy»`},
	{"==, in", "the origin does not matter", `{{ 'x' if u == 'uSeR' and 'S' in u and u in ['uSeR'] and {'uSeR': 1}[u] }}`, `«x»`},
	{"item", "one character", `{{ ('<' ~ u)[0] }}{{ ('<' ~ u)[1] }}{{ ('<' ~ u)[-1] }}`, `«<»uR`},
	{"slice", "cuts spans", `{{ ('<ab>' ~ u ~ '<cd>')[2:-2] }}`, `«b>»uSeR«<c»`},
	{"slice with a step", "each character", `{{ ('<>' ~ u ~ '[]')[::2] }}{{ ('<' ~ u)[::-1] }}`, `«<»ue«[»ReSu«<»`},
	{"for over characters", "each character", `{% for c in 'é' ~ u %}{{ c }}.{% endfor %}`, `«é.»u«.»S«.»e«.»R«.»`},
	{"set, macro, call, filter", "captured", `{% set x %}<{{ u }}>{% endset %}{% macro m(a) %}[{{ a }}{{ caller() }}]{% endmacro %}{% call m(x) %}({{ u }}){% endcall %}{% filter upper %}a{{ u }}{% endfilter %}`,
		`«[<»uSeR«>(»uSeR«)]A»USER`},
	{"namespace, dictionary, list", "values keep it", `{% set n = namespace(a=u, b='<') %}{{ n.a ~ n.b ~ {'k': '>'}.k ~ [u, '!'][1] }}`, `uSeR«<>!»`},
	{"keys", "of the template and of data", `{% for k, v in {'<': 1}.items() %}{{ k }}{% endfor %}{{ d | first }}{{ d.keys() | join }}`, `«<»kk`},
	{"print of a list", "brackets and quotes are data", `{{ ['<', u] }}{{ {'k': u} }}`, `['«<»', 'uSeR']{'«k»': 'uSeR'}`},
	{"print with escapes", "an escape is of its character", `{{ ['\n\'"\\', c] }}`, `['«\n\'"\\»', "'\n"]`},
	{"recursive loop", "captured", `{% for x in [[u]] recursive %}<{{ loop(x) if x is not string else x }}>{% endfor %}`, `«<<»uSeR«>>»`},
	{"strftime_now", "the date is data", `{{ strftime_now('<%Y>') }}`, `<2026>`},

	{"abs, int, float, length, count, round, sum", "numbers are data", `{{ '1' | int }}{{ '1' | float }}{{ -1 | abs }}{{ 'abc' | length }}{{ 'abc' | count }}{{ 1.2 | round }}{{ [1] | sum }}`, `11.01331.01`},
	{"capitalize, lower, title, upper", "each character", `{{ ('<a' ~ u) | capitalize }}{{ ('<A' ~ u) | lower }}{{ ('<a-' ~ u) | title }}{{ ('<é' ~ u) | upper }}`, `«<a»user«<a»user«<A-»User«<É»USER`},
	{"default, d", "of either side", `{{ x | default('<') }}{{ u | d('<') }}`, `«<»uSeR`},
	{"dictsort, items, sort, unique, min, max, first, last, list, reverse", "the items", `{{ {'b': u, 'a': '<'} | dictsort | map('last') | join }}{{ {'k': u} | items | map('join') | join }}{{ [u, '<'] | sort | join }}{{ [u, 'USER', '<'] | unique | join }}{{ [u, '<'] | min }}{{ [u, '<'] | max }}{{ [u, '<'] | first }}{{ [u, '<'] | last }}{{ ('<' ~ u) | list | join }}{{ ('<' ~ u) | reverse }}`,
		`«<»uSeR«k»uSeR«<»uSeRuSeR«<<»uSeRuSeR«<<»uSeRReSu«<»`},
	{"indent", "the margin too, unless it is a number", `{{ (u ~ '\n<') | indent(1) }}{{ (u ~ '\n' ~ u) | indent('--', true) }}`, `uSeR«\n» «<--»uSeR«\n--»uSeR`},
	{"join", "the separator too", `{{ [u, '<', 1] | join('-') }}{{ u | join('-') }}{{ [u, u] | join(u) }}`, `uSeR«-<-»1u«-»S«-»e«-»RuSeRuSeRuSeR`},
	{"map, select, reject, selectattr, rejectattr", "the items", `{{ [u, '<'] | map('upper') | join }}{{ [u, '<'] | select | join }}{{ [u, '<'] | reject('eq', u) | join }}{{ [d] | selectattr('k') | map(attribute='k') | join }}{{ [d] | rejectattr('x') | map(attribute='k') | join }}`, `USER«<»uSeR«<<»uSeRuSeR`},
	{"replace", "what replaces keeps its own", `{{ u | replace('S', '<S>') }}{{ ('a' ~ u) | replace('S', u) }}{{ ('<' ~ u) | replace('', '.', 3) }}{{ ('aXbX' ~ u) | replace('X', '') }}`, `u«<S>»eR«a»uuSeReR«.<.»u«.»SeR«ab»uSeR`},
	{"safe, string", "nothing changes", `{{ ('<' ~ u) | safe | string }}`, `«<»uSeR`},
	{"tojson", "strings of the template stay so", `{{ {'<': u, 'é': '"'} | tojson(ensure_ascii=true) }}{{ [u, c] | tojson(separators=[' ; ', ':']) }}{{ [1] | tojson(indent=1) }}`, `{"«<»": "uSeR", "«\u00e9»": "«\"»"}["uSeR"« ; »"'\n"][\n 1\n]`},
	{"trim", "cuts", `{{ (' <' ~ u ~ '> ') | trim }}{{ ('xx<' ~ u) | trim('x') }}`, `«<»uSeR«><»uSeR`},

	{"strip, lstrip, rstrip", "cut", `{{ (' <' ~ u ~ '> ').strip() }}{{ (' <' ~ u ~ '> ').lstrip() }}{{ (' <' ~ u ~ '> ').rstrip() }}`, `«<»uSeR«><»uSeR«>  <»uSeR«>»`},
	{"removeprefix, removesuffix", "cut", `{{ ('ab' ~ u).removeprefix('a') }}{{ (u ~ 'ab').removesuffix('b') }}{{ u.removesuffix('eR') }}`, `«b»uSeRuSeR«a»uS`},
	{"split, rsplit, splitlines", "cut", `{{ ('<a,' ~ u ~ ',b>').split(',') | join('|') }}{{ ('a ' ~ u ~ ' b').split() | join }}{{ ('a,' ~ u ~ ',b').rsplit(',', 1) | last }}{{ (' a  ' ~ u ~ ' ').rsplit(none, 1) | join }}{{ (u ~ '<\n>' ~ u).splitlines() | join }}`,
		`«<a|»uSeR«|b>a»uSeR«bb a»uSeRuSeR«<>»uSeR`},
	{"split on </think>", "as published templates do", `{{ t.split('</think>')[-1].lstrip('\n') }}{{ t.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}`, `<|im_end|>hm`},
	{"capitalize, lower, title, upper as methods", "each character", `{{ ('<a' ~ u).capitalize() }}{{ ('<A' ~ u).lower() }}{{ ('<a-' ~ u).title() }}{{ ('<a' ~ u).upper() }}`, `«<a»user«<a»user«<A-»User«<A»USER`},
	{"replace as a method", "what replaces keeps its own", `{{ u.replace('S', '<S>') }}{{ u.replace('u', u, 1) }}`, `u«<S>»eRuSeRSeR`},
	{"join as a method", "the separator too", `{{ '-'.join([u, u, '<']) }}{{ u.join(['a', 'b']) }}`, `uSeR«-»uSeR«-<a»uSeR«b»`},
	{"find, count, startswith, endswith, isalnum, isalpha, isdigit, islower, isspace, isupper", "the origin does not matter", `{{ 'x' if u.find('S') == 1 and u.count('S') == 1 and u.startswith('u') and u.endswith(('R',)) and u.isalnum() and u.isalpha() and not (u.isdigit() or u.islower() or u.isspace() or u.isupper()) }}`, `«x»`},
	{"broken characters", "half of a character is no part of the template", "{{ ('\xc3' ~ half) | upper }}{{ ('\xc3' ~ half) | tojson }}", `É"é"`},
}

// marked writes «» around the parts of the template.
func marked(s string, own []Span) string {
	for _, span := range slices.Backward(own) {
		s = s[:span.From] + "«" + s[span.From:span.To] + "»" + s[span.To:]
	}
	return strings.ReplaceAll(s, "\n", `\n`)
}

func TestOrigin(t *testing.T) {
	vars := NewDict("u", "uSeR", "c", "'\n", "h", []any{"<|im", "_end|>"}, "d", NewDict("k", "uSeR"),
		"bos", Own("<s>"), "t", "<think>\nhm\n</think>\n\n<|im_end|>", "half", "\xa9")
	for _, c := range origins {
		parsed, err := Parse(c.source)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, own, err := parsed.Render(vars, fixed)
		if err != nil || marked(got, own) != c.want {
			t.Errorf("%s: %s: %s gives\n%s, %v; want\n%s", c.name, c.reason, c.source, marked(got, own), err, c.want)
		}
		checkSpans(t, got, own)
	}
}

// TestOriginCoversAll checks that the names of origins include all filters and methods of
// strings.
func TestOriginCoversAll(t *testing.T) {
	var names []string
	for _, c := range origins {
		names = append(names, strings.FieldsFunc(c.name, func(r rune) bool { return r == ' ' || r == ',' })...)
	}
	for name := range maps.Keys(filters) {
		if !slices.Contains(names, name) {
			t.Errorf("no case for the filter %s", name)
		}
	}
	for name := range maps.Keys(stringMethods) {
		if !slices.Contains(names, name) {
			t.Errorf("no case for the method %s", name)
		}
	}
}

// checkSpans checks that spans are sorted, neither empty nor adjacent, and in the text.
func checkSpans(t *testing.T, s string, own []Span) {
	t.Helper()
	at := -1
	for _, span := range own {
		if span.From <= at || span.To <= span.From || span.To > len(s) {
			t.Fatalf("bad spans %v of %d bytes", own, len(s))
		}
		at = span.To
	}
}

// TestOriginChangesNoText renders the templates of TestLikeJinja2 with data as variables,
// and with variables that count as part of the template.
func TestOriginChangesNoText(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("testdata", "variables.json"))
	if err != nil {
		t.Fatal(err)
	}
	data := fromJSON(source).(*Dict)
	owned := own(data).(*Dict)
	file, err := os.Open(filepath.Join("testdata", "jinja2.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for cases := json.NewDecoder(file); cases.More(); {
		var c struct{ Template string }
		if err := cases.Decode(&c); err != nil {
			t.Fatal(err)
		}
		parsed, err := Parse(c.Template)
		if err != nil {
			continue
		}
		want, spans, err := parsed.Render(data, fixed)
		got, spans2, err2 := parsed.Render(owned, fixed)
		if got != want || (err == nil) != (err2 == nil) {
			t.Errorf("%q gives %q, %v; with variables of the template %q, %v", c.Template, want, err, got, err2)
		}
		checkSpans(t, want, spans)
		checkSpans(t, got, spans2)
		for _, s := range spans { // what was of the template stays so
			if b := (text{got, spans2}).origin(); !b(s.From, s.To) {
				t.Errorf("%q: %q is data if the variables are of the template", c.Template, want[s.From:s.To])
			}
		}
	}
}

// own returns v with all strings as parts of the template.
func own(v any) any {
	switch v := v.(type) {
	case string:
		return Own(v)
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, own(e))
		}
		return out
	case *Dict:
		out := NewDict()
		for k, e := range v.pairs {
			out.set(k, own(k), own(e))
		}
		return out
	}
	return v
}

// dataOnly fails if a character of private use, which only data has, counts as part of
// the template.
func dataOnly(t *testing.T, source, s string, own []Span) {
	t.Helper()
	if strings.ContainsFunc(source, private) || strings.Contains(source, `\`) || !utf8.ValidString(source) {
		return
	}
	for _, span := range own {
		if strings.ContainsFunc(s[span.From:span.To], private) {
			t.Errorf("%q: data counts as part of the template: %q", source, s[span.From:span.To])
		}
	}
}

func private(r rune) bool { return r >= 0xE000 && r <= 0xF8FF }
