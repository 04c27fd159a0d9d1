package jinja

import (
	"errors"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// nested returns kernel between n copies of open and of shut.
func nested(open, kernel, shut string, n int) string {
	return strings.Repeat(open, n) + kernel + strings.Repeat(shut, n)
}

var hostile = []struct{ name, reason, source string }{
	{"endless loops", "10^9 turns", `{% for a in range(1000000000) %}{% endfor %}`},
	{"nested loops", "each is short", nested(`{% for a in range(1000) %}`, "", `{% endfor %}`, 4)},
	{"nested loops with output", "10^12 bytes", nested(`{% for a in range(10000) %}`, "x", `{% endfor %}`, 3)},
	{"long range", "10^9 integers", `{{ range(1000000000) | list | length }}`},
	{"range over all integers", "its length does not fit", `{% for a in range(-9000000000000000000, 9000000000000000000) %}{% endfor %}`},
	{"repeated string", "10^9 bytes", `{{ 'x' * 1000000000 }}`},
	{"string repeated too often", "the length does not fit", `{{ 'xxxxxxxxxxxxxxxx' * 4611686018427387900 }}`},
	{"repeated list", "10^9 items", `{{ ([0] * 1000000000) | length }}`},
	{"doubling string", "2^64 bytes", `{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`},
	{"doubling string without a loop", "2^64 bytes", `{% set s = 'xxxxxxxx' %}` + strings.Repeat(`{% set s = s + s %}`, 64)},
	{"doubling list", "2^64 items", `{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}{% endfor %}`},
	{"list of itself twice", "2^64 items to print, 64 to make", `{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}`},
	{"list of itself twice as JSON", "the same by tojson", `{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}`},
	{"lists compared", "2^64 items to compare", `{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}{% for i in range(64) %}{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}{% endfor %}{{ a.l == b.l }}`},
	{"deep list", "too deep to print on a small stack", `{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}`},
	{"replace", "each x becomes a thousand", `{% set s = 'x' * 1000 %}{{ s.replace('x', s).replace('x', s).replace('x', s) }}`},
	{"replace of nothing", "between all characters", `{% set s = 'x' * 10000 %}{{ s.replace('', s) }}`},
	{"join", "10^9 bytes from a thousand pieces", `{% set s = 'x' * 100000 %}{{ (['']*10000) | join(s) }}`},
	{"split", "as many parts as bytes", `{% set s = 'x,' * 4000000 %}{% for i in range(100) %}{% set p = s.split(',') %}{% endfor %}`},
	{"indent", "each line end becomes a thousand spaces", `{% set s = "\n" * 100000 %}{{ s | indent(1000, true, true) }}`},
	{"searching again and again", "linear work a million times", `{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{% if 'y' in s %}{% endif %}{% endfor %}`},
	{"comparing again and again", "linear work a million times", `{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{% if s == s ~ '' %}{% endif %}{% endfor %}`},
	{"indexing again and again", "characters are found by counting", `{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{% if s[i] %}{% endif %}{% endfor %}`},
	{"measuring again and again", "characters are counted", `{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{% if s | length %}{% endif %}{% endfor %}`},
	{"output in a macro", "what a macro renders counts too", `{% macro f() %}{% for i in range(100000) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endmacro %}{{ f() | length }}`},
	{"output in a set", "what is captured counts too", `{% set s %}{% for i in range(100000) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endset %}`},
	{"recursive macro", "no end", `{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`},
	{"recursive default", "a macro's default calls it", `{% macro f(a=f()) %}{% endmacro %}{{ f() }}`},
	{"two macros", "each calls the other", `{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}`},
	{"branching macro", "2^60 calls, 60 deep", `{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}`},
	{"macro in a namespace", "no name needs to be seen", `{% set ns = namespace() %}{% macro f() %}{{ ns.f() }}{% endmacro %}{% set ns.f = f %}{{ f() }}`},
	{"cyclic namespace", "equal to itself without end", `{% set a = namespace() %}{% set b = namespace() %}{% set a.l = [b] %}{% set b.l = [a] %}{% macro f(x) %}{{ f(x.l[0]) }}{% endmacro %}{{ f(a) }}`},
	{"deep brackets", "the parser recurses", `{{ ` + nested("(", "1", ")", 50000) + ` }}`},
	{"deep lists", "the parser recurses", `{{ ` + nested("[", "1", "]", 50000) + ` }}`},
	{"deep dictionaries", "the parser recurses", `{{ ` + nested("{'a':", "1", "}", 20000) + ` }}`},
	{"deep indices", "the parser recurses", `{{ ` + nested("a[", "1", "]", 40000) + ` }}`},
	{"deep calls", "the parser recurses", `{{ ` + nested("f(", "1", ")", 40000) + ` }}`},
	{"deep ifs", "the parser recurses", nested("{% if 1 %}", "", "{% endif %}", 6000)},
	{"deep fors", "the parser recurses", nested("{% for a in b %}", "", "{% endfor %}", 4000)},
	{"deep sets", "the parser recurses", nested("{% set a %}", "", "{% endset %}", 5000)},
	{"deep generations", "the parser recurses", nested("{% generation %}", "", "{% endgeneration %}", 3500)},
	{"deep macros", "the parser recurses", nested("{% macro a() %}", "", "{% endmacro %}", 4000)},
	{"deep conditionals", "the parser recurses", `{{ ` + strings.Repeat("1 if 0 else ", 10000) + `2 }}`},
	{"long sum", "a chain is a deep tree", `{{ 1` + strings.Repeat("+1", 60000) + ` }}`},
	{"long path", "a chain is a deep tree", `{{ a` + strings.Repeat(".a", 60000) + ` }}`},
	{"long chain of calls", "a chain is a deep tree", `{{ a` + strings.Repeat("()", 60000) + ` }}`},
	{"long chain of ands", "a chain is a deep tree", `{{ 1` + strings.Repeat(" and 1", 20000) + ` }}`},
	{"deep sets of attributes", "the parser recurses", nested("{% set a.b %}", "", "{% endset %}", 4000)},
	{"long name", "it is looked up again and again", `{{ ` + strings.Repeat("a", 1000) + ` }}`},
	{"long keys", "they are hashed again and again", `{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{% if messages[0][s] %}{% endif %}{% endfor %}`},
	{"long prefixes", "they are compared one by one", `{% set s = 'x' * 1000000 %}{% if s.startswith([s ~ 'y'] * 100000) %}{% endif %}`},
	{"many characters to strip", "each is looked for", `{% set s = 'x' * 1000000 %}{{ s.strip('y' * 1000000 ~ 'x') }}`},
	{"slices again and again", "each copies the characters", `{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{% if s[::-1] %}{% endif %}{% endfor %}`},
	{"slices of lists", "each is a copy", `{% set l = [0] * 1000 %}{% for i in range(100000) %}{% if l[:] %}{% endif %}{% endfor %}`},
	{"wide indentation", "a margin of 10^9 spaces", `{{ 'a' | indent(1000000000, true) }}`},
	{"wide JSON", "10^9 spaces", `{{ [1] | tojson(indent=1000000000) }}`},
	{"wide and deep JSON", "the product does not fit", `{{ [[[[1]]]] | tojson(indent=4611686018427387904) }}`},
	{"quoting again and again", "each string is escaped", `{% set l = ["\x00" * 1000] * 100000 %}{{ l }}`},
	{"sorting again and again", "n log n comparisons", `{% for i in range(1000) %}{% if range(10000) | sort %}{% endif %}{% endfor %}`},
	{"sorting long strings", "each is compared from its beginning", `{% set s = 'x' * 1000000 %}{{ ([s] * 1000) | sort(case_sensitive=true) | length }}`},
	{"unique strings", "each is hashed", `{% set s = 'x' * 1000000 %}{{ ([s] * 1000) | unique(case_sensitive=true) | list | length }}`},
	{"smallest string", "each is put in lower case", `{% set s = 'x' * 1000000 %}{{ ([s] * 1000) | min | length }}`},
	{"sum of lists", "quadratic", `{{ ([[1, 2, 3, 4]] * 10000) | sum(start=[]) | length }}`},
	{"lines", "as many as bytes", `{% set s = "\n" * 1000000 %}{% for i in range(100) %}{% set l = s.splitlines() %}{% endfor %}`},
	{"endless recursive loop", "it calls itself", `{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}`},
	{"branching recursive loop", "2^n calls", `{% for i in [1, 2] recursive %}{% if loop.depth < 60 %}{{ loop([1, 2]) }}{% endif %}{% endfor %}`},
	{"caller of its own", "no end", `{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}`},
	{"long attribute path", "as many parts as bytes", `{% set p = 'a.' * 100000 %}{% for i in range(100) %}{{ [] | map(attribute=p) | list }}{% endfor %}`},
	{"deep filter blocks", "the parser recurses", nested("{% filter trim %}", "", "{% endfilter %}", 3500)},
	{"deep with blocks", "the parser recurses", nested("{% with %}", "", "{% endwith %}", 5000)},
	{"deep targets", "the parser recurses", `{% for ` + nested("(", "a", ")", 50000) + ` in b %}{% endfor %}`},
	{"deep nots", "the parser recurses", `{{ ` + strings.Repeat("not ", 30000) + `1 }}`},
	{"deep signs", "the parser recurses", `{{ ` + strings.Repeat("-", 100000) + `1 }}`},
	{"long chain of filters", "a chain is a deep tree", `{{ 1` + strings.Repeat("|abs", 30000) + ` }}`},
	{"long chain of tests", "a chain is a deep tree", `{{ 1` + strings.Repeat(" is odd", 18000) + ` }}`},
	{"long source", "more than any template has", strings.Repeat(" ", maxSource+1)},
}

// renderWithin renders a template. It checks that all allocations, garbage included, are
// in proportion to what was taken from the budgets, so that what allocates pays.
func renderWithin(t *testing.T, source string, in *interp) (string, error) {
	t.Helper()
	parsed, err := Parse(source)
	if err != nil {
		return "", err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, err := in.render(parsed.body)
	runtime.ReadMemStats(&after)
	used := func(b budget) int { return b.limit - b.left }
	allocated := int(after.TotalAlloc - before.TotalAlloc)
	most := 1<<15 + 100*used(in.steps) + 3*used(in.bytes) + 4*used(in.output)
	if allocated > most {
		t.Errorf("%.200q: %d bytes were allocated, at most %d for %d steps, %d bytes of values and %d of output",
			source, allocated, most, used(in.steps), used(in.bytes), used(in.output))
	}
	return out.s, err
}

// TestHostile renders templates that would exhaust time, memory or the stack. Each must
// fail with ErrLimit within the budgets. The time limit only ends a test that hangs.
func TestHostile(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			_, err := renderWithin(t, c.source, newInterp(conversation(), fixed))
			if !errors.Is(err, ErrLimit) {
				t.Errorf("%s: %v, want %v", c.reason, err, ErrLimit)
			}
			if !regexp.MustCompile(`[0-9]{3}`).MatchString(err.Error()) {
				t.Errorf("the error %q does not say the limit", err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: it took %v", c.reason, took)
			}
		})
	}
}

// TestEachOperationPays repeats one operation on a large value until it exceeds a budget.
// The loop alone stays within the budget. With a budget below the size of the value the
// operation fails at once, before it allocates.
func TestEachOperationPays(t *testing.T) {
	text := strings.Repeat("a b, \u00e9\n", 10000)
	spaces := strings.Repeat(" ", 50000)
	list, numbers, floats, bools, words, d := []any{}, []any{}, []any{}, []any{}, []any{}, NewDict()
	for i := range 3000 {
		floats = append(floats, float64(i)/8)
		bools = append(bools, i%2 == 0)
		words = append(words, "a\"b\x00")
		list = append(list, NewDict("k", "X"))
		numbers = append(numbers, i)
		d.set(strconv.Itoa(i), strconv.Itoa(i), i)
	}
	vars := NewDict("s", text, "other", text[:len(text)-1]+"x", "spaces", spaces, "l", list, "n", numbers, "d", d, "floats", floats, "bools", bools, "words", words,
		"same", slices.Clone(numbers), "format", strings.Repeat("%Y", 10000), "path", strings.Repeat("k.", 10000))
	for _, op := range []string{
		"s ~ ''", "s + ''", "s * 2", "s == other", "s < other", "'x' in s", "s[5]", "s[1:]", "s[::2]", "s[:5]", "{s: 1}", "d[s]", "d.get(s)",
		"s | length", "s | list", "s | first", "s | last", "s | reverse", "s | join", "s | upper", "s | lower", "s | title", "s | capitalize",
		"spaces | trim", "s.strip('x')", "s | trim(s)", "s | replace('a', 'b')", "s | indent", "s | int", "s | float", "spaces | int", "s | tojson", "[s] | string", "s is lower", "s is upper",
		"[s, s] | sort", "[s, s] | unique", "[s, s] | min", "[s, s] | max(case_sensitive=true)", "[s] | join(s)", "s | sort", "s | unique", "s | map('upper')", "s | select('in', 'x')",
		"s.lower()", "s.upper()", "s.title()", "s.split()", "s.split(',')", "s.rsplit(',', 1)", "s.splitlines()", "s.replace('', 'x')", "s.find('x')", "s.count('x')", "spaces.lstrip()", "spaces.rstrip()",
		"s.startswith(other)", "s.endswith(other)", "s.removeprefix(s)", "s.removesuffix(s)", "s.isspace()", "spaces.isspace()", "s.islower()", "s.isupper()", "s.join(['', ''])", "'x'.join(n | map('string'))",
		"n + []", "n * 2", "n[1:]", "n[::-1]", "n == same", "n < same", "-1 in n", "n | reverse", "n | join", "n | sort", "n | unique", "n | min", "n | sum", "n | string", "n | tojson", "n | select", "n | reject('odd')", "n | map('abs')",
		"n | map('round')", "n | map('round', 1, 'floor')", "n | map('string')", "n | map('int')", "n | map('float')", "n | map('tojson')", "n | map('default', 1)", "n | map('join') if x else n | map('abs')",
		"floats | string", "floats | tojson", "floats | map('round', 2)", "bools | string", "bools | tojson", "bools | sort", "words | map('title')", "words | map('int')", "words | map('float')", "words | map('indent')", "words | map('replace', 'a', 'b')", "words | string", "words | tojson", "words | map('trim')", "words | map('list')",
		"l | map('items')", "l | map('dictsort')", "l | map('string')", "l | map('tojson')", "l | map('length')", "l | map('list')",
		"l | map(attribute='k')", "l | selectattr('k')", "l | selectattr('k', 'eq', 'Y')", "l | join(attribute='k')", "l | sum(attribute='k.x', start=0) if x else l | map(attribute='k')", "[] | map(attribute=path)", "[] | map(attribute=s)",
		"d | items", "d.items()", "d.values()", "d | dictsort", "d | tojson(sort_keys=true)", "dict(d)", "namespace(d)", "d == dict(d)", "d | string",
		"range(3000)", "strftime_now(format)",
	} {
		in := newInterp(vars, fixed)
		in.steps, in.bytes = budget{1 << 13, 1 << 13}, budget{1 << 20, 1 << 20}
		_, err := renderWithin(t, "{% for i in range(400) %}{% if "+op+" %}{% endif %}{% endfor %}", in)
		if !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v after 400 times, want %v", op, err, ErrLimit)
		}
		for _, bytes := range []int{1 << 13, 1 << 17} { // the second suffices for reading a string
			in := newInterp(vars, fixed)
			in.steps, in.bytes = budget{1 << 6, 1 << 6}, budget{bytes, bytes}
			_, err := renderWithin(t, "{% if "+op+" %}{% endif %}", in)
			if bytes == 1<<13 && !errors.Is(err, ErrLimit) {
				t.Errorf("%s: %v with a small budget, want %v", op, err, ErrLimit)
			}
		}
	}
	in := newInterp(vars, fixed)
	in.steps, in.bytes = budget{1 << 13, 1 << 13}, budget{1 << 20, 1 << 20}
	if _, err := renderWithin(t, "{% for i in range(400) %}{% if s and l and n and d %}{% endif %}{% endfor %}", in); err != nil {
		t.Errorf("the loop alone: %v", err)
	}
}

// TestLongMessage applies operations to a message of a megabyte. Each must succeed within
// the budgets, because a chat may be long.
func TestLongMessage(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct{ source, want string }{
		{`{{ s[1:] | length }}`, "1048575"},
		{`{{ s[-5:] }}{{ s[0] }}{{ s[-1] }}`, " h\u00e9llhl"},
		{`{{ s[::-1] | length }} {{ s[::2] | length }}`, "1048576 524288"},
		{`{{ s | trim | length }} {{ s.strip('h ') | length }} {{ s | upper | length }} {{ s | title | length }} {{ s | capitalize | length }}`, "1048576 1048575 1048576 1048576 1048576"},
		{`{{ s.split() | length }} {{ s.split(' ', 1) | length }} {{ s.rsplit(none, 1)[1] }} {{ s.splitlines() | length }}`, "262144 2 h\u00e9ll 1"},
		{`{{ s.replace('h', 'hh') | length }} {{ s.find('x') }} {{ s.count('h') }} {{ 'x' in s }} {{ s == s ~ '' }}`, "1310720 -1 262144 False True"},
		{`{{ [s] | string | length }} {{ s | tojson | length }} {{ s | tojson(ensure_ascii=true) | length }}`, "1048580 1048578 2359298"},
		{`{{ s | indent | length }} {{ (s ~ s) | length }} {{ [s, s] | join(', ') | length }}`, "1048576 2097152 2097154"},
		{`{{ {s: 1}[s] }} {{ [s, s] | unique | list | length }} {{ ([s, s] | sort)[0] | length }}`, "1 1 1048576"},
		{`{{ ([0] * 10000)[1:] | length }} {{ range(10000)[::-1] | length }} {{ (range(10000) | list + [1]) | length }}`, "9999 10000 10001"},
	} {
		text := strings.Repeat("h\u00e9l ", size/4)
		got, err := renderWithin(t, c.source, newInterp(NewDict("s", text[:len(text)-1]+"l"), fixed))
		if got = strings.ReplaceAll(got, "\n", "|"); err != nil || got != c.want {
			t.Errorf("%s gives %.99q, %v; want %q", c.source, got, err, c.want)
		}
	}
}

// TestLinear parses and renders long chains of one piece. The work must grow in proportion
// to the length: allocations are counted, and the time is tried again on a busy machine.
func TestLinear(t *testing.T) {
	for _, c := range []struct{ begin, piece, end string }{
		{"{{ a", "+a", " }}"},
		{"{{ a", "|trim", " }}"},
		{"{{ a", ".a", " }}"},
		{"{{ ", "not ", "a }}"},
		{"{{ ", "(", " }}"},
		{"{{ ", "[", " }}"},
		{"{{ [", "1,", "] }}"},
		{"{{ '", `\n`, "' }}"},
		{"{% if 0 %}", "{% elif 0 %}", "{% endif %}"},
		{"", "{{ 1 }}\n", ""},
		{"", "{%- if 1 -%} {% endif %}", ""},
		{"{% raw %}", "{% ", ""},
		{"", "{ ", ""},
		{"", "\n", "{{ 1 }}"},
	} {
		work := func(n int) (time.Duration, uint64) {
			source := c.begin + strings.Repeat(c.piece, n/len(c.piece)) + c.end
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			if parsed, err := Parse(source); err == nil {
				parsed.Render(conversation(), fixed)
			}
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			return took, after.TotalAlloc - before.TotalAlloc
		}
		const times = 16
		for try := 0; ; try++ {
			short, few := work(maxSource / 4 / times)
			long, many := work(maxSource / 4)
			if many > 2*times*few+1<<16 {
				t.Errorf("%q repeated %d times allocates %d bytes, %d times as often %d", c.piece, maxSource/4/times/len(c.piece), few, times, many)
			} else if slow := long > 4*times*short+time.Millisecond; slow && try < 20 {
				continue
			} else if slow {
				t.Errorf("%q: %d times the length takes %v after %v", c.piece, times, long, short)
			}
			break
		}
	}
}
