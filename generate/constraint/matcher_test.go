package constraint_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/generate/constraint"
)

func vocabulary(t *testing.T, end []int, tokens ...string) *constraint.Vocabulary {
	t.Helper()
	list := make([][]byte, len(tokens))
	for i, s := range tokens {
		list[i] = []byte(s)
	}
	v, err := constraint.NewVocabulary(list, end, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// permitted returns the tokens of the mask.
func permitted(t *testing.T, m *constraint.Matcher) []int {
	t.Helper()
	mask, err := m.Mask()
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for i, w := range mask {
		for b := range 32 {
			if w>>b&1 != 0 {
				ids = append(ids, 32*i+b)
			}
		}
	}
	return ids
}

func wantPermitted(t *testing.T, m *constraint.Matcher, want ...int) {
	t.Helper()
	got := permitted(t, m)
	if len(got) != len(want) {
		t.Fatalf("permitted %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("permitted %v, want %v", got, want)
		}
	}
}

func accept(t *testing.T, m *constraint.Matcher, ids ...int) {
	t.Helper()
	for _, id := range ids {
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "constraint: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// Tokens span borders of JSON and characters of UTF-8. Two tokens have the same bytes.
func TestMatcher(t *testing.T) {
	const end, control = 0, 1
	v := vocabulary(t, []int{end}, "</s>", "", `{"`, `a`, `":[`, `":`, `é`, "\xc3", "\xa9", `"],"`, `"]}`, `"`, `]`, `}`, `["`, `,`, `{"a":["`, `a`)
	c, err := v.Schema([]byte(`{"type": "object", "additionalProperties": false, "required": ["a"], "properties": {"a": {"type": "array", "items": {"enum": ["é", "aa"]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	m := c.Begin()
	wantPermitted(t, m, 2, 16)
	wantPermitted(t, m, 2, 16)
	accept(t, m, 2)
	wantPermitted(t, m, 3, 17)
	wantError(t, m.Accept(end), "token 0: the text is not complete")
	wantError(t, m.Accept(control), "token 1: not permitted here")
	wantError(t, m.Accept(6), "token 6: not permitted here")
	wantError(t, m.Accept(-1), "token -1: outside the vocabulary")
	wantError(t, m.Accept(18), "token 18: outside the vocabulary")
	wantPermitted(t, m, 3, 17)
	accept(t, m, 17, 5, 14)
	wantPermitted(t, m, 3, 6, 7, 17)
	accept(t, m, 7)
	wantPermitted(t, m, 8)
	accept(t, m, 8)
	wantPermitted(t, m, 10, 11) // no other property may follow
	if m.Done() {
		t.Error("done before the end")
	}
	accept(t, m, 10)
	if !m.Done() {
		t.Error("not done, although nothing can follow")
	}
	wantPermitted(t, m, end)
	accept(t, m, end)
	if !m.Done() {
		t.Error("not done after the end token")
	}
	wantError(t, m.Accept(end), "the text has ended")
	_, err = m.Mask()
	wantError(t, err, "the text has ended")
}

func TestMatcherMayEnd(t *testing.T) {
	v := vocabulary(t, []int{2, 3}, "a", "b", "", "x")
	c, err := v.Regexp("a*b?")
	if err != nil {
		t.Fatal(err)
	}
	m := c.Begin()
	wantPermitted(t, m, 0, 1, 2, 3)
	if m.Done() {
		t.Error("done, although more can follow")
	}
	accept(t, m, 0, 1)
	wantPermitted(t, m, 2, 3)
	if !m.Done() {
		t.Error("not done")
	}
	accept(t, m, 3)
}

func TestCannotSpell(t *testing.T) {
	c, err := vocabulary(t, []int{0}, "", "a", "b").Regexp("abc")
	if err != nil {
		t.Fatal(err)
	}
	m := c.Begin()
	accept(t, m, 1, 2)
	_, err = m.Mask()
	wantError(t, err, "mask: no token of the vocabulary spells what must come next")
	if m.Done() {
		t.Error("done")
	}
}

func TestNewVocabularyErrors(t *testing.T) {
	type control = map[int]string
	for _, tt := range []struct {
		want    string
		tokens  [][]byte
		ends    []int
		control control
	}{
		{"no tokens", nil, nil, nil},
		{"end token 1: outside [0, 1)", [][]byte{{1}}, []int{1}, nil},
		{"end token -1: outside", [][]byte{{1}}, []int{-1}, nil},
		{`control token 1 "a": want an id in [0, 1) and a text`, [][]byte{{1}}, nil, control{1: "a"}},
		{`control token 0 "": want`, [][]byte{{1}}, nil, control{0: ""}},
		{"token 0: 5000 bytes: at most 4096", [][]byte{make([]byte, 5000)}, nil, nil},
		{"4194305 tokens: at most 4194304", make([][]byte, 1<<22+1), nil, nil},
		{"tokens have more than 268435456 bytes", slices.Repeat([][]byte{longToken}, 1<<16+1), nil, nil},
	} {
		_, err := constraint.NewVocabulary(tt.tokens, tt.ends, tt.control)
		wantError(t, err, tt.want)
	}
}

var longToken = make([]byte, 4096)

// Many matchers share a constraint whose table is replaced again and again: deep texts
// fill it. Each must find what a matcher alone finds.
func TestConcurrentMatchers(t *testing.T) {
	c := bytesVocabulary(t).JSON()
	const depth = 3000
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			text := `{"a":` + strings.Repeat(`[{"x":`, depth+i) + `1` + strings.Repeat(`}]`, depth+i) + `}`
			m := c.Begin()
			for n, b := range []byte(text) {
				if n%500 == 0 {
					if mask, err := m.Mask(); err != nil || mask[b/32]>>(b%32)&1 == 0 {
						t.Errorf("byte %d is not permitted: %v", n, err)
						return
					}
				}
				if err := m.Accept(int(b)); err != nil {
					t.Errorf("byte %d: %v", n, err)
					return
				}
			}
			if !m.Done() {
				t.Error("not done")
			}
		})
	}
	group.Wait()
}

// Published vocabularies spell the texts of the benchmarks.
func TestPublishedVocabularies(t *testing.T) {
	tok, v, end := published(t, "llama-spm")
	for _, tt := range benchmarks {
		c, err := tt.compile(v)
		if err != nil {
			t.Fatal(err)
		}
		m := follow(t, c, tok.Encode(tt.text, false))
		if mask, err := m.Mask(); err != nil || mask[end/32]>>(end%32)&1 == 0 {
			t.Errorf("%s: the text may not end: %v", tt.name, err)
		}
	}
}

// TestMasks: the masks of a growing text are those of a matcher, also if it grows by several
// tokens at once; each text has its own.
func TestMasks(t *testing.T) {
	v := vocabulary(t, []int{3}, "a", "b", "c", "")
	c, err := v.Regexp("ab?c")
	if err != nil {
		t.Fatal(err)
	}
	for _, texts := range [][][]int{{{}, {0}, {0, 1}, {0, 1, 2}}, {{}, {0, 1, 2}}, {{0}, {0}, {0, 2}}} {
		masks := c.Masks()
		for _, text := range texts {
			m := c.Begin()
			accept(t, m, text...)
			want, err := m.Mask()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := masks(text); err != nil || len(got) != 1 || got[0] != want[0] {
				t.Errorf("%v: %b, %v, want %b", text, got, err, want)
			}
		}
	}
	if _, err := c.Masks()([]int{1}); err == nil {
		t.Error("no error for a token that is not permitted")
	}
}
