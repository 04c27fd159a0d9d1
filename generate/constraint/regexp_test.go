package constraint_test

import (
	"regexp"
	"strings"
	"testing"
)

// Every text of up to five characters of a small alphabet is accepted if package regexp
// matches it as a whole.
func TestRegexp(t *testing.T) {
	exprs := []string{
		``, `a`, `a*`, `(a|b)*ab`, `a{2,3}b?`, `[^a]+`, `(?:ab|a)(?:c|bc)`, `.`, `(?s).`, `é+`, `[à-ü]`, `(?i)É`, `(a*)*b`,
		`^a$`, `a|^b`, `(^|a)b($|c)`, `a$|b`, `(?:a$)?`, `^^a$$`, `a^b|c`, `x^|a`, `[ab]{0,20}c?`, `(b|ab){1,16}`, `(a?){2,30}b`, `a{0,99}b{0,99}`, `^a{0,16}$|b`, `^[aé]{0,30}$`, `a{0,20}(^b|c)`, `(a$|b)c{0,20}`, `[ab]{0,4}c`, `\x{20ac}|\n`, `(a|é){2}\n?`, `[^\n]{2}`,
	}
	alphabet := []string{"a", "b", "c", "é", "É", "€", "\n"}
	texts := []string{""}
	for first, round := 0, 0; round < 4; round++ {
		last := len(texts)
		for _, text := range texts[first:last] {
			for _, char := range alphabet {
				texts = append(texts, text+char)
			}
		}
		first = last
	}
	v := bytesVocabulary(t)
	for _, expr := range exprs {
		c, err := v.Regexp(expr)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		oracle := regexp.MustCompile(`\A(?:` + expr + `)\z`)
		extendable := map[string]bool{} // beginnings of matches
		for _, text := range texts {
			if oracle.MatchString(text) {
				for i := range len(text) + 1 {
					extendable[text[:i]] = true
				}
			}
		}
		for _, text := range texts {
			if got, want := accepts(c, text), oracle.MatchString(text); got != want {
				t.Errorf("%s: %q: accepted %v, want %v", expr, text, got, want)
			}
			// A text that is refused before its end must not begin a match.
			if m := c.Begin(); extendable[text] {
				for i, b := range []byte(text) {
					if err := m.Accept(int(b)); err != nil {
						t.Errorf("%s: %q begins a match: byte %d: %v", expr, text, i, err)
						break
					}
				}
			}
		}
	}
}

func TestRegexpErrors(t *testing.T) {
	v := bytesVocabulary(t)
	for expr, want := range map[string]string{
		`(`:                                  "missing closing )",
		`a\b`:                                `\b, \B and ^`,
		`(?m)^a`:                             `\b, \B and ^`,
		`a{1001}`:                            "invalid repeat count",
		`a^`:                                 "no text matches it",
		`[^\x00-\x{10ffff}]`:                 "no text matches it",
		`(.*a.{9}){2}.*a.{14}x`:              "more than 20000 states",
		`(\pL{20}x{0,1}){9}((\pL{30}){9}|y)`: "more than 400000 byte ranges",
		strings.Repeat("a", 8193):            "more than 8192 bytes",
	} {
		_, err := v.Regexp(expr)
		if err == nil || !strings.HasPrefix(err.Error(), "constraint: regular expression: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: got %v, want %q", expr, err, want)
		}
	}
}
