package jinja

import (
	"errors"
	"testing"
)

// FuzzRender renders arbitrary templates: the result is a text within the limits, or an
// error of this package.
func FuzzRender(f *testing.F) {
	for _, c := range renderings {
		f.Add(c.source)
	}
	for _, c := range hostile {
		if len(c.source) < 400 {
			f.Add(c.source)
		}
	}
	f.Fuzz(func(t *testing.T, source string) {
		parsed, err := Parse(source)
		if err != nil {
			if parsed != nil || !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrLimit) {
				t.Fatalf("Parse gives %v, %v", parsed, err)
			}
			return
		}
		text, err := parsed.Render(conversation(), fixed)
		if err != nil {
			if text != "" || !errors.Is(err, ErrEval) && !errors.Is(err, ErrLimit) && !errors.Is(err, ErrRaised) {
				t.Fatalf("Render gives %q, %v", text, err)
			}
			return
		}
		if len(text) > maxOutput+maxOutputFactor*size(conversation()) {
			t.Fatalf("%d bytes of output", len(text))
		}
		if again, _ := parsed.Render(conversation(), fixed); again != text {
			t.Fatalf("twice is not the same: %q, %q", text, again)
		}
	})
}
