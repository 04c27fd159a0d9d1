package constraint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/generate/constraint"
)

// markedVocabulary is the bytes, an end token, and control tokens with the texts of markers.
func markedVocabulary(t testing.TB, markers ...string) (*constraint.Vocabulary, map[string]int) {
	t.Helper()
	tokens := make([][]byte, 257+len(markers))
	for i := range 256 {
		tokens[i] = []byte{byte(i)}
	}
	control, ids := map[int]string{}, map[string]int{}
	for i, m := range markers {
		control[257+i], ids[m] = m, 257+i
	}
	v, err := constraint.NewVocabulary(tokens, []int{256}, control)
	if err != nil {
		t.Fatal(err)
	}
	return v, ids
}

// spell returns the tokens of a text, byte by byte, with control tokens in ‹›.
func spell(text string, ids map[string]int) (tokens []int) {
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "‹"); ok {
			name, after, _ := strings.Cut(rest, "›")
			tokens = append(tokens, ids[name])
			text = after
			continue
		}
		tokens = append(tokens, int(text[0]))
		text = text[1:]
	}
	return tokens
}

// matches reports whether the structure permits each of the tokens, and then the end. The mask
// must agree with Accept.
func matches(t *testing.T, c *constraint.Constraint, tokens []int) bool {
	t.Helper()
	m := c.Begin()
	for _, id := range append(tokens, 256) {
		mask, err := m.Mask()
		if err != nil {
			t.Fatal(err)
		}
		ok := mask[id/32]>>(id%32)&1 != 0
		if err := m.Accept(id); (err == nil) != ok {
			t.Fatalf("token %d of %v: the mask says %v, Accept %v", id, tokens, ok, err)
		}
		if !ok {
			return false
		}
	}
	return true
}

func TestStructure(t *testing.T) {
	type s = constraint.Structure
	reasoning := s{AnyOf: []s{{}, {Sequence: []s{{Text: "<r>"}, {Until: []string{"</r>"}}}}}}
	call := s{Sequence: []s{{Marker: "[C]"}, {Schema: []byte(`{"$ref":"#/$defs/a","$defs":{"a":{"enum":["x",1]}}}`)}}}
	for _, tt := range []struct {
		name string
		of   s
		yes  []string
		no   []string
	}{
		{"empty", s{}, []string{""}, []string{"a"}},
		{"text", s{Text: "ab"}, []string{"ab"}, []string{"", "a", "abc", "‹[C]›"}},
		{"control token", s{Marker: "[C]"}, []string{"‹[C]›"}, []string{"[C]", "\xff[C]\xff", "‹[D]›", ""}},
		{"marker without a control token", s{Marker: "<t>"}, []string{"<t>"}, []string{"‹[C]›", ""}},
		{"any of", s{AnyOf: []s{{Text: "yes"}, {Text: "no"}, {Text: "y"}}}, []string{"yes", "no", "y"}, []string{"", "ye", "non"}},
		{"sequence", s{Sequence: []s{{Text: "a"}, {}, {Regexp: "b*"}, {Text: "c"}}}, []string{"ac", "abbc"}, []string{"a", "abb", "bc"}},
		{"anchors in a sequence", s{Sequence: []s{{Text: "a"}, {Regexp: "^b$"}}}, []string{"ab"}, []string{"a", "b"}},
		{"repeat", s{Repeat: &s{AnyOf: []s{{Text: "a"}, {Text: "bc"}}}}, []string{"", "a", "abca"}, []string{"b", "ab"}},
		{"schemas with references of their own", s{Sequence: []s{call, call}}, []string{`‹[C]›"x"‹[C]›1`, `‹[C]› 1‹[C]› "x"`}, []string{`‹[C]›"x"`, `‹[C]›"x"1`, `‹[C]›2‹[C]›1`}},
		{"until", s{Until: []string{"<<b", "[C]"}}, []string{"<<b", "a<<<b", "<‹[C]›", "[C]", "é€😀<<b", "é‹[C]›"}, []string{"", "a", "\xc3‹[C]›", "\xf0\x9f<<b", "\xe0\x80\x80‹[C]›", "\xed\xa0\x80[C]", "<<bc", "‹[D]›<<b", "[C]x", "<<b‹[C]›", "\xff<<b"}},
		{"until one that begins as another", s{Until: []string{"aab", "ab"}}, []string{"aab", "ab", "aaab", "xab"}, []string{"aabb", "b", "aa"}},
		{"without", s{Without: []string{"[C]", "ab"}}, []string{"", "a", "[C", "ba[[", "é"}, []string{"\xe2", "[C]", "x[C]", "‹[C]›", "‹[D]›", "aab"}},
		{"not first", s{Without: []string{"[C]"}, NotFirst: []string{"{", "<r>"}}, []string{"", " ", "<r", "a{", " a<r>", "<<r>"}, []string{"{", " \n{a", "<r>", "\t<r>x", "a[C]"}},
		{"until, not first", s{Until: []string{"[C]"}, NotFirst: []string{"a"}}, []string{"‹[C]›", "[C]", "ba[C]"}, []string{"a[C]", " a‹[C]›"}},
		{"optional reasoning", s{Sequence: []s{reasoning, {Regexp: `\n{0,2}`}, {Regexp: "yes|no"}}}, []string{"yes", "<r></r>yes", "<r>no <r> </</r>\n\nno"}, []string{"<r>yes", "<r></r>", "</r>yes", "<r></r>yes</r>", "\n\n\nyes"}},
		{"free text with calls", s{Sequence: []s{{Repeat: &s{Sequence: []s{{Until: []string{"[C]"}}, {Schema: []byte(`{"const":1}`)}}}}, {Without: []string{"[C]"}}}},
			[]string{"", "hi", "[C]1", "a [C] 1 b‹[C]›1", "[[C]1["}, []string{"[C]2", "a‹[C]›", "a[C]1‹[C]›x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, ids := markedVocabulary(t, "[C]", "[D]")
			c, err := v.Compile(t.Context(), tt.of)
			if err != nil {
				t.Fatal(err)
			}
			for want, texts := range map[bool][]string{true: tt.yes, false: tt.no} {
				for _, text := range texts {
					if got := matches(t, c, spell(text, ids)); got != want {
						t.Errorf("%q matches: %v", text, got)
					}
				}
			}
		})
	}
}

// TestStructureTokens: a token may cross the border of two parts.
func TestStructureTokens(t *testing.T) {
	v := vocabulary(t, []int{0}, "", "x", "</r>\n{", "</r>{", "r>{", "</", `"a":1}`, `<`)
	c, err := v.Compile(t.Context(), constraint.Structure{Sequence: []constraint.Structure{
		{Until: []string{"</r>"}}, {Regexp: `\n?`}, {Schema: []byte(`{"properties":{"a":{"const":1}},"required":["a"]}`)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := c.Begin()
	wantPermitted(t, m, 1, 2, 3, 4, 5, 6, 7)
	accept(t, m, 5)
	wantPermitted(t, m, 1, 2, 3, 4, 5, 6, 7) // r>{ completes the marker, or is text
	accept(t, m, 4)
	wantPermitted(t, m, 6)
}

func TestStructureErrors(t *testing.T) {
	type s = constraint.Structure
	v, _ := markedVocabulary(t)
	refused := s{Schema: []byte(`{"multipleOf":2}`), Name: "tools[1]"}
	for _, tt := range []struct {
		of   s
		want string
	}{
		{s{Sequence: []s{{Text: "a"}, refused}}, "constraint: tools[1]: #/multipleOf: this keyword"},
		{s{Repeat: &s{AnyOf: []s{{Regexp: "(", Name: "r"}}}}, "constraint: r: error parsing regexp"},
		{s{Regexp: `a\b`}, "constraint: regular expression: "},
		{s{Schema: []byte("")}, "constraint: schema: unexpected EOF"},
		{s{Schema: []byte("false")}, "constraint: schema: no finite text satisfies it"},
		{s{Sequence: []s{{Schema: []byte("false")}}}, "constraint: structure: no finite text satisfies it"},
		{s{Repeat: &s{Regexp: "a*"}}, "constraint: structure: the empty text cannot be repeated"},
		{s{Until: []string{""}}, "constraint: structure: a marker is empty"},
		{s{AnyOf: make([]s, 10_001)}, "constraint: structure: more than 10000 structures"},
	} {
		_, err := v.Compile(t.Context(), tt.of)
		wantError(t, err, tt.want)
	}
}

// TestCompileCanceled: a compilation ends with its context, in the middle too.
func TestCompileCanceled(t *testing.T) {
	v, _ := markedVocabulary(t)
	var slow strings.Builder // a schema that takes long to compile
	slow.WriteString(`{"properties":{`)
	for i := range 400 {
		fmt.Fprintf(&slow, `"p%d":{"pattern":"(a|b)*a(a|b){8}%d"},`, i, i)
	}
	slow.WriteString(`"z":true}}`)
	s := constraint.Structure{Schema: []byte(slow.String())}
	for _, after := range []time.Duration{0, 5 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := v.Compile(ctx, s)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("canceled after %v: %v", after, err)
		}
	}
}
