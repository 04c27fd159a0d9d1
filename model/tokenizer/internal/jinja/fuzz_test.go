package jinja

import (
	"errors"
	"flag"
	"runtime"
	"strings"
	"testing"
	"time"
)

// FuzzRender parses and renders arbitrary templates with arbitrary variables, given as
// JSON. The result is a text within the budget, or an error of this package; time and
// memory are bounded; text without tags is the result.
func FuzzRender(f *testing.F) {
	const vars = `{"messages": [{"role": "user", "content": "It's \u00e9\n"}], "n": 7, "f": 2.5, "none": null, "l": [1, [2]], "d": {"a": true}, "p": "\ue000x\ue001"}`
	f.Add("{{ ('a' ~ p)[1:] | replace('x', 'b') | upper | tojson }}{% for c in p %}{{ [c, 'd'] | join(p) }}{% endfor %}", vars)
	for _, c := range renderings {
		f.Add(c.source, vars)
	}
	for _, c := range hostile {
		if fuzzing := flag.Lookup("test.fuzz").Value.String() != ""; fuzzing && len(c.source) < 400 { // TestHostile has them too
			f.Add(c.source, vars)
		}
	}
	f.Fuzz(func(t *testing.T, source, vars string) {
		values, ok := fromJSON([]byte(vars)).(*Dict)
		if !ok {
			return
		}
		began := time.Now()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(source)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(1<<17+1000*len(source)) {
			t.Errorf("Parse allocates %d bytes for %d of source", n, len(source))
		}
		parsed := err == nil
		text, err := renderWithin(t, source, newInterp(values, fixed))
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		if err != nil {
			kinds := []error{ErrSyntax, ErrLimit}
			if parsed {
				kinds = []error{ErrEval, ErrLimit, ErrRaised}
			}
			known := false
			for _, kind := range kinds {
				known = known || errors.Is(err, kind)
			}
			if !known || text != "" || len(err.Error()) > 1000 || strings.Contains(err.Error(), "runtime error") {
				t.Errorf("%q, %v", text, err)
			}
			return
		}
		if len(text) > maxOutput+maxOutputFactor*size(values) {
			t.Errorf("%d bytes of output", len(text))
		}
		if again, err := renderWithin(t, source, newInterp(values, fixed)); again != text {
			t.Errorf("%q, then %q, %v", text, again, err)
		}
		if template, err := Parse(source); err == nil {
			same, own, _ := template.Render(values, fixed)
			if same != text {
				t.Errorf("%q, then %q", text, same)
			}
			checkSpans(t, same, own)
			dataOnly(t, source, same, own)
		}
		if plain := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source); !strings.Contains(source, "{") && text != strings.TrimSuffix(plain, "\n") {
			t.Errorf("the text %q becomes %q", source, text)
		}
	})
}
