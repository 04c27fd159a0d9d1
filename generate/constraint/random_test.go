package constraint

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// randomVocabulary has all bytes, and tokens that are cut out of texts anywhere: they span
// names, brackets and parts of characters. Others are runs of a letter. The last token is
// the end.
func randomVocabulary(r *rand.Rand) *Vocabulary {
	const text = `{"a": 1, "ab": [true, null, "é😀\n"], "b": {"c": -12.5e3}, "name": ["x", "yz"]}, {"a": "", "b":[]}` +
		"{\n  \"a\": [\n    \"€\",\n    {}\n  ],\n  \"b\": false\n}2024-02-29T12:30:00Z\":\"\",\"\\u00e9"
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for range 300 {
		from := r.IntN(len(text) - 1)
		size := 1 + r.IntN(8)
		if r.IntN(8) == 0 {
			size += shortToken
		}
		tokens = append(tokens, []byte(text[from:min(from+size, len(text))]))
	}
	for n := 1; n < 40; n++ {
		run := strings.Repeat("a", n)
		tokens = append(tokens, []byte(run), []byte(run+"b"))
	}
	tokens = append(tokens, nil, nil)
	v, err := NewVocabulary(tokens, []int{len(tokens) - 1}, nil)
	if err != nil {
		panic(err)
	}
	return v
}

// randomSchema returns a schema that refers to #/$defs/x and #/$defs/y.
func randomSchema(r *rand.Rand, depth int) string {
	sub := func() string { return randomSchema(r, depth-1) }
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	n := 12
	if depth <= 0 {
		n = 8
	}
	switch r.IntN(n) {
	case 0:
		return pick(`{"type": "null"}`, `{"type": "boolean"}`, `{"type": ["integer", "null"]}`, `{"type": "string"}`)
	case 1:
		low := r.IntN(300) - 150
		return fmt.Sprintf(`{"type": "integer", "minimum": %d, "maximum": %d}`, low, low+r.IntN(200))
	case 2:
		low := float64(r.IntN(3000)-1500) / 100
		return fmt.Sprintf(`{"type": "number", "exclusiveMinimum": %v, "%s": %v}`, low, pick("maximum", "exclusiveMaximum"), low+float64(1+r.IntN(500))/100)
	case 3:
		low := r.IntN(4)
		return fmt.Sprintf(`{"type": "string", "minLength": %d, "maxLength": %d}`, low, low+r.IntN(4))
	case 4:
		return fmt.Sprintf(`{"type": "string", "pattern": %q, "minLength": 1}`, pick("^a+b?$", "[0-9]", "^(é|€)*x$", "^[^a-z]{0,3}$", `^(?i:ab)*$`, `"`))
	case 5:
		return fmt.Sprintf(`{"type": "string", "format": %q}`, pick("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))
	case 6:
		return pick(`{"enum": ["a", "ab", 1, {"a": [1, "é"]}, null]}`, `{"const": "x\n"}`, `{"enum": [[], {}, 12, 1]}`)
	case 7:
		return pick(`{"$ref": "#/$defs/x"}`, `{"$ref": "#/$defs/y"}`)
	case 8:
		return fmt.Sprintf(`{"anyOf": [%s, %s]}`, sub(), sub())
	case 9:
		low := r.IntN(3)
		return fmt.Sprintf(`{"type": "array", "items": %s, "minItems": %d, "maxItems": %d}`, sub(), low, low+r.IntN(3))
	case 10:
		return fmt.Sprintf(`{"type": "array", "prefixItems": [%s, %s], "items": %s, "minItems": %d}`, sub(), sub(), pick("false", sub()), r.IntN(3))
	default:
		return fmt.Sprintf(`{"type": "object", "properties": {"a": %s, "ab": %s, "\"é": %s}, "required": [%s], "additionalProperties": %s}`,
			sub(), sub(), sub(), pick(``, `"a"`, `"\"é", "ab"`, `"a", "ab", "z"`), pick("true", sub()))
	}
}

// distances returns how many bytes complete a text: from each state of each leaf to its
// end, and for terms. It computes both by relaxation, apart from the code under test.
type distances struct {
	t     *table
	leaf  [][]int // [leaf][state]
	rules []int
}

func newDistances(t *table) *distances {
	d := &distances{t: t, rules: make([]int, len(t.grammar.rules))}
	for _, a := range t.grammar.leaves {
		list := make([]int, a.states())
		for s := range list {
			if list[s] = math.MaxInt32; a.accept[s] {
				list[s] = 0
			}
		}
		for changed := true; changed; {
			changed = false
			for s := range list {
				for _, to := range a.next[s*a.classes:][:a.classes] {
					if to >= 0 && list[to]+1 < list[s] {
						list[s], changed = list[to]+1, true
					}
				}
			}
		}
		d.leaf = append(d.leaf, list)
	}
	for i := range d.rules {
		d.rules[i] = math.MaxInt32
	}
	for changed := true; changed; {
		changed = false
		for i, body := range t.grammar.rules {
			if n := d.term(body); n < d.rules[i] {
				d.rules[i], changed = n, true
			}
		}
	}
	return d
}

func (d *distances) term(x term) int {
	if x <= epsilon {
		return map[term]int{nothing: math.MaxInt32, epsilon: 0}[x]
	}
	n := math.MaxInt32
	switch node := d.t.terms.node(x); node.kind {
	case leafTerm:
		n = d.leaf[node.a][0]
	case ruleTerm:
		n = d.rules[node.a]
	case seqTerm:
		n = d.term(term(node.a)) + d.term(term(node.b))
	case altTerm:
		for _, a := range unpack(node.alts) {
			n = min(n, d.term(a))
		}
	case repTerm:
		if n = 0; node.min > 0 {
			n = int(node.min) * d.term(term(node.a))
		}
	}
	return min(n, math.MaxInt32)
}

// toward returns a byte that brings state s nearer to a complete text.
func (d *distances) toward(s stateID) (byte, bool) {
	best, at := math.MaxInt32, config{}
	for _, c := range d.t.states[s].configs {
		left := d.leaf[c.leaf][c.state]
		if left == 0 {
			continue // another config has what follows
		}
		if n := left + d.term(c.rest); n < best {
			best, at = n, c
		}
	}
	if best == math.MaxInt32 {
		return 0, false
	}
	a := d.t.grammar.leaves[at.leaf]
	for b := range 256 {
		if to := a.step(at.state, byte(b)); to >= 0 && d.leaf[at.leaf][to] < d.leaf[at.leaf][at.state] {
			return byte(b), true
		}
	}
	return 0, false
}

// walkRandomly generates a text by masks, and completes it after some tokens. Each mask
// must have exactly the tokens whose bytes can be stepped through.
func walkRandomly(t *testing.T, r *rand.Rand, c *Constraint) string {
	t.Helper()
	v, m := c.vocab, c.Begin()
	d := newDistances(m.table)
	var text bytes.Buffer
	for n := r.IntN(25); !m.Done() && n > 0; n-- {
		mask, err := m.Mask()
		if err != nil {
			t.Fatalf("%q: %v", text.Bytes(), err)
		}
		var ids []int
		for id, b := range v.bytes {
			s := m.state
			for _, x := range b {
				if s = m.table.step(s, x); s == dead {
					break
				}
			}
			want := s != dead && len(b) > 0
			if id == len(v.bytes)-1 {
				want = m.table.states[m.state].complete
			}
			if got := mask[id/32]>>(id%32)&1 != 0; got != want {
				t.Fatalf("%q then %q: permitted %v, want %v", text.Bytes(), b, got, want)
			}
			if want && len(b) > 0 {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			break
		}
		id := ids[r.IntN(len(ids))]
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		text.Write(v.bytes[id])
	}
	for n := 0; !m.table.states[m.state].complete; n++ {
		b, ok := d.toward(m.state)
		if !ok || n > 5000 {
			t.Fatalf("%q cannot be completed", text.Bytes())
		}
		if err := m.Accept(int(b)); err != nil {
			t.Fatal(err)
		}
		text.WriteByte(b)
	}
	return text.String()
}

// Whatever is chosen of the masks, the text can be completed, and an independent validator
// finds that it satisfies the schema.
func TestRandomSchemas(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	compiled := 0
	for i := range 250 {
		text := fmt.Sprintf(`{"$defs": {"x": %s, "y": {"anyOf": [{"type": "null"}, %s]}}, "$ref": "#/$defs/%s"}`,
			randomSchema(r, 2), randomSchema(r, 2), []string{"x", "y"}[r.IntN(2)])
		c, err := randomVocabulary(r).Schema([]byte(text))
		if err != nil {
			if !strings.Contains(err.Error(), "refers to itself") && !strings.Contains(err.Error(), "no finite text") {
				t.Fatalf("%s: %v", text, err)
			}
			continue
		}
		compiled++
		schema := validator(t, text)
		for range 8 {
			out := walkRandomly(t, r, c)
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
			if err == nil {
				err = schema.Validate(value)
			}
			if err != nil {
				t.Fatalf("schema %d %s\ngave %s\n%v", i, text, out, err)
			}
		}
	}
	if compiled < 150 {
		t.Errorf("only %d schemas have texts", compiled)
	}
}

func validator(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", value); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestRandomRegexps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, expr := range []string{`(a|b)*abb`, `[a-z]{2,5}é?(,[0-9]+)*`, `(?i)(true|falſe)`, `[^\n]{3}$`, `("[^"]*",?){1,3}`, `[😀-😎€]{0,4}x`,
		`a{30,32}b`, `a{2,50}b?`, `^[a-f]{1,30}(ab)?$`, `(ab|c){17,20}é`, `[0-9]{3}([a-z"é]{20,})[^x]{2,16}[x-z]{0,50}`} {
		c, err := randomVocabulary(r).Regexp(expr)
		if err != nil {
			t.Fatal(err)
		}
		oracle := regexp.MustCompile(`\A(?:` + expr + `)\z`)
		for range 20 {
			if text := walkRandomly(t, r, c); !oracle.MatchString(text) {
				t.Fatalf("%s does not match %q", expr, text)
			}
		}
	}
}

// Bounds accept exactly the numbers between them, of all short texts.
func TestBounds(t *testing.T) {
	texts := []string{""}
	for n := 0; len(texts[n]) < 5; n++ {
		for _, b := range "-.0159" {
			texts = append(texts, texts[n]+string(b))
		}
	}
	// A negative zero is left out where a bound is 0, so it is not tried.
	form := regexp.MustCompile(`^(-?([1-9][0-9]*|0\.[0-9]*[1-9])|0)(\.[0-9]+)?$`)
	texts = slices.DeleteFunc(texts, func(s string) bool { return !form.MatchString(s) || strings.Count(s, ".") > 1 })
	v := randomVocabulary(rand.New(rand.NewPCG(5, 6)))
	for _, bound := range []string{"0", "-0.0", "1", "5", "9", "10", "19", "-1", "-15", "0.5", "0.05", "-0.51", "1.9", "91.5", "-99.09", "5e-1", "1.5e1", "1e30", "-1e30"} {
		for _, keyword := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
			text := fmt.Sprintf(`{"type": "number", %q: %s}`, keyword, bound)
			c, err := v.Schema([]byte(text))
			schema := validator(t, text)
			for _, s := range texts {
				value, _ := jsonschema.UnmarshalJSON(strings.NewReader(s))
				want := schema.Validate(value) == nil
				got := err == nil
				if got {
					m := c.Begin()
					for i := range len(s) {
						got = got && m.Accept(int(s[i])) == nil
					}
					got = got && m.table.states[m.state].complete
				}
				if got != want {
					t.Errorf("%s: %s: accepted %v, want %v", text, s, got, want)
				}
			}
		}
	}
}

// A table that is replaced changes no mask.
func TestReplaceTable(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	v := randomVocabulary(r)
	c, err := v.Schema([]byte(`{"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "string", "maxLength": 2}]}, "maxItems": 9}`))
	if err != nil {
		t.Fatal(err)
	}
	m, kept := c.Begin(), c.Begin()
	for i := range 400 {
		c.mu.Lock()
		c.replace()
		c.mu.Unlock()
		mask, err := m.Mask()
		if err != nil {
			t.Fatal(err)
		}
		want := make([]uint32, len(mask))
		if err := c.fill(kept.table, kept.state, want); err != nil {
			t.Fatal(err)
		}
		if kept.table.states[kept.state].complete {
			want[(len(v.bytes)-1)/32] |= 1 << ((len(v.bytes) - 1) % 32)
		}
		var ids []int
		for id, b := range v.bytes {
			got := mask[id/32]>>(id%32)&1 != 0
			if got != (want[id/32]>>(id%32)&1 != 0) {
				t.Fatalf("step %d: token %q: permitted %v", i, b, got)
			}
			if got && len(b) > 0 {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			return
		}
		id := ids[r.IntN(len(ids))]
		if i < 300 && mask['['/32]>>('['%32)&1 != 0 {
			id = '['
		}
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		for _, b := range v.bytes[id] {
			kept.state = kept.table.step(kept.state, b)
		}
	}
}

// A table that becomes full in the middle of a mask is an error, and is replaced.
func TestFullTable(t *testing.T) {
	c, err := randomVocabulary(rand.New(rand.NewPCG(9, 9))).Regexp("a{1,40}b")
	if err != nil {
		t.Fatal(err)
	}
	m := c.Begin()
	m.table.most = m.table.size()
	if _, err := m.Mask(); err == nil || !strings.Contains(err.Error(), "constraint: mask: the constraint is too ambiguous") {
		t.Errorf("Mask returned %v", err)
	}
	if _, err := m.Mask(); err != nil {
		t.Errorf("Mask of the next table returned %v", err)
	}
	m = c.Begin()
	c.replace()
	c.table.most = 0
	if err := m.Accept('a'); err == nil || !strings.Contains(err.Error(), "constraint: accept: token 97: the constraint is too ambiguous") {
		t.Errorf("Accept returned %v", err)
	}
	if err := m.Accept('a'); err != nil {
		t.Errorf("Accept with the next table returned %v", err)
	}
}
