package constraint_test

import (
	"context"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/generate/constraint"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// published returns a tokenizer of a published vocabulary, its vocabulary and an end token.
func published(t testing.TB, name string) (*tokenizer.Tokenizer, *constraint.Vocabulary, int) {
	f, err := gguf.Open("../../../shared/vocab/" + name + ".gguf")
	if err != nil {
		t.Skipf("no vocabulary: %v", err)
	}
	defer f.Close()
	tok, err := model.LoadTokenizer(f)
	if err != nil {
		t.Fatal(err)
	}
	value, ok := f.Value("tokenizer.ggml.tokens")
	if !ok {
		t.Fatal("no tokens")
	}
	texts, _ := value.Strings()
	tokens := make([][]byte, len(texts))
	var ends []int
	for id := range tokens {
		if tokens[id] = tok.Bytes(id); tok.Stops(id) {
			ends = append(ends, id)
		}
	}
	v, err := constraint.NewVocabulary(tokens, ends, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok, v, ends[0]
}

// benchmarks are constraints with a text that each accepts.
var benchmarks = []struct {
	name    string
	compile func(v *constraint.Vocabulary) (*constraint.Constraint, error)
	text    string
}{
	{"json", func(v *constraint.Vocabulary) (*constraint.Constraint, error) { return v.JSON(), nil },
		"{\n  \"name\": \"Ada Lovelace\",\n  \"born\": 1815,\n  \"works\": [{\"title\": \"Note G\", \"pages\": [1, 2, 3]}, null, true]\n}"},
	{"schema", schema(`{"type": "object", "additionalProperties": false, "required": ["name", "born", "works"], "properties": {
		"name": {"type": "string"}, "born": {"type": "integer", "minimum": 1500, "maximum": 2100}, "died": {"type": "integer"},
		"works": {"type": "array", "items": {"$ref": "#/$defs/work"}}},
		"$defs": {"work": {"type": "object", "additionalProperties": false, "required": ["title"], "properties": {
			"title": {"type": "string"}, "kind": {"enum": ["note", "letter", "book"]}, "parts": {"type": "array", "items": {"$ref": "#/$defs/work"}}}}}}`),
		`{"name": "Ada Lovelace, who wrote the first program", "born": 1815, "works": [{"title": "Note G", "kind": "note", "parts": [{"title": "Bernoulli numbers"}]}]}`},
	{"length", schema(`{"type": "object", "additionalProperties": false, "properties": {"text": {"type": "string", "minLength": 10, "maxLength": 300}}}`),
		`{"text": "` + strings.Repeat("the quick brown fox jumps over the lazy dog, ", 6) + `"}`},
	{"pattern", schema(`{"type": "object", "additionalProperties": false, "properties": {"id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4,8}$"}, "at": {"type": "string", "format": "date-time"}}}`),
		`{"id": "ABC-123456", "at": "2024-02-29T12:30:00Z"}`},
	{"regexp", func(v *constraint.Vocabulary) (*constraint.Constraint, error) {
		return v.Regexp(` ?(yes|no|maybe): [^\n]{1,300}\.`)
	}, "maybe: it depends on the weather, on the day of the week and on you."},
	{"calls", func(v *constraint.Vocabulary) (*constraint.Constraint, error) {
		type s = constraint.Structure
		call := s{Sequence: []s{{Until: []string{"<tool_call>"}}, {Schema: []byte(`{"type": "object", "properties": {"city": {"type": "string"}}}`)}, {Text: "</tool_call>"}}}
		return v.Compile(context.Background(), s{Sequence: []s{{Repeat: &call}, {Without: []string{"<tool_call>"}}}})
	}, `Let me look it up: <tool_call>{"city": "Zürich – or near it"}</tool_call> It is sunny there, with 21 °C.`},
}

func schema(text string) func(v *constraint.Vocabulary) (*constraint.Constraint, error) {
	return func(v *constraint.Vocabulary) (*constraint.Constraint, error) { return v.Schema([]byte(text)) }
}

// BenchmarkMask follows a text token by token. A cold constraint is new for each text, a
// warm one has seen the text.
func BenchmarkMask(b *testing.B) {
	for _, name := range []string{"llama-bpe", "llama-spm"} {
		tok, v, _ := published(b, name)
		for _, bench := range benchmarks {
			ids := tok.Encode(bench.text, false)
			for _, cold := range []bool{true, false} {
				state := "warm"
				if cold {
					state = "cold"
				}
				b.Run(name+"/"+bench.name+"/"+state, func(b *testing.B) {
					c, err := bench.compile(v)
					if err != nil {
						b.Fatal(err)
					}
					if !cold {
						follow(b, c, ids)
					}
					n := 0
					for b.Loop() {
						if cold {
							if c, err = bench.compile(v); err != nil {
								b.Fatal(err)
							}
						}
						follow(b, c, ids)
						n += len(ids)
					}
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/mask")
				})
			}
		}
	}
}

// follow accepts ids, each of which the mask must permit.
func follow(t testing.TB, c *constraint.Constraint, ids []int) *constraint.Matcher {
	m := c.Begin()
	for i, id := range ids {
		mask, err := m.Mask()
		if err != nil {
			t.Fatalf("token %d: %v", i, err)
		}
		if mask[id/32]>>(id%32)&1 == 0 {
			t.Fatalf("token %d of %v is not permitted", i, ids)
		}
		if err := m.Accept(id); err != nil {
			t.Fatalf("token %d: %v", i, err)
		}
	}
	return m
}

// BenchmarkNewVocabulary builds the trie of a published vocabulary.
func BenchmarkNewVocabulary(b *testing.B) {
	published(b, "llama-bpe")
	for b.Loop() {
		published(b, "llama-bpe")
	}
}
