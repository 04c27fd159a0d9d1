package jinja

import (
	"errors"
	"runtime"
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
	{"many characters to strip", "each is looked for", `{% set s = 'x' * 1000000 %}{{ s.strip('y' * 1000000) }}`},
	{"long source", "more than any template has", strings.Repeat(" ", maxSource+1)},
}

// TestHostile renders templates that would exhaust time, memory or the stack. Each must
// fail with ErrLimit within the memory budget. The time limit only ends a test that hangs.
func TestHostile(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			_, err := render(c.source)
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrLimit) {
				t.Errorf("%s: %v, want %v", c.reason, err, ErrLimit)
			}
			const most = 512 << 20 // all allocations, including garbage
			if used := after.TotalAlloc - before.TotalAlloc; used > most {
				t.Errorf("%s: %d MiB were allocated", c.reason, used>>20)
			}
			if took > 10*time.Second {
				t.Errorf("%s: it took %v", c.reason, took)
			}
			t.Logf("%v, %d MiB: %v", took.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20, err)
		})
	}
}
