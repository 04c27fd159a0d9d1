package constraint

import (
	"math/rand/v2"
	"testing"
	"time"
)

// tooLong is far above what the limits of the compiler allow to take, and small enough to
// find work without a bound.
const tooLong = 20 * time.Second

func FuzzSchema(f *testing.F) {
	for _, s := range []string{
		`{"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"enum": [1, "a"]}}, "required": ["b"], "$defs": {"x": {"type": "array", "items": {"type": "string", "pattern": "^a{2,9}$"}}}}`,
		`{"anyOf": [{"type": "array", "items": {"$ref": "#"}, "minItems": 3}, {"type": "array", "items": {"$ref": "#"}, "maxItems": 900}, {"const": null}]}`,
		`{"type": ["integer", "string"], "minimum": -1.5e2, "exclusiveMaximum": 9, "maxLength": 100000, "format": "ipv6"}`,
		`{"prefixItems": [true, false, {}], "items": {"additionalProperties": {"type": "number"}}}`,
	} {
		f.Add([]byte(s), uint64(1))
	}
	v := randomVocabulary(rand.New(rand.NewPCG(1, 1)))
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		start := time.Now()
		c, err := v.Schema(schema)
		fuzzWalk(t, start, c, err, seed)
	})
}

func FuzzRegexp(f *testing.F) {
	for _, s := range []string{`(a|b)*abb`, `^[^\n]{0,100}$`, `(?i)\pL+x?`, `(a*)*(b|^c$){3}`, `.*a.{12}`} {
		f.Add(s, uint64(1))
	}
	v := randomVocabulary(rand.New(rand.NewPCG(1, 1)))
	f.Fuzz(func(t *testing.T, expr string, seed uint64) {
		start := time.Now()
		c, err := v.Regexp(expr)
		fuzzWalk(t, start, c, err, seed)
	})
}

// fuzzWalk follows permitted tokens. The vocabulary has all bytes, so a text can go on
// until it may end.
func fuzzWalk(t *testing.T, start time.Time, c *Constraint, err error, seed uint64) {
	if err != nil {
		return
	}
	r := rand.New(rand.NewPCG(seed, 0))
	m := c.Begin()
	for range 20 {
		mask, err := m.Mask()
		if err == nil && empty(mask) {
			t.Fatal("nothing may follow")
		}
		if err != nil {
			t.Fatal(err)
		}
		var ids []int
		for id := range c.vocab.bytes {
			if mask[id/32]>>(id%32)&1 != 0 {
				ids = append(ids, id)
			}
		}
		if err := m.Accept(ids[r.IntN(len(ids))]); err != nil {
			t.Fatal(err)
		}
		if m.ended {
			break
		}
	}
	if size := m.table.size(); size > hardTable+hardTable/8 {
		t.Fatalf("the table has size %d", size)
	}
	if took := time.Since(start); took > tooLong {
		t.Fatalf("it took %v", took)
	}
}
