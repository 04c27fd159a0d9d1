package constraint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/generate/constraint"
)

// bytesVocabulary has one token per byte and the end token 256.
func bytesVocabulary(t testing.TB) *constraint.Vocabulary {
	t.Helper()
	tokens := make([][]byte, 257)
	for b := range 256 {
		tokens[b] = []byte{byte(b)}
	}
	v, err := constraint.NewVocabulary(tokens, []int{256}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// accepts reports whether a vocabulary of bytes can write text, and end there.
func accepts(c *constraint.Constraint, text string) bool {
	m := c.Begin()
	for _, b := range []byte(text) {
		if m.Accept(int(b)) != nil {
			return false
		}
	}
	return m.Accept(256) == nil
}

func TestSchema(t *testing.T) {
	const object = `{"type": "object", "additionalProperties": false, "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "null"}}, "required": %s}`
	tests := []struct{ name, schema, yes, no string }{ // texts are separated by spaces
		{"null", `{"type": "null"}`, `null`, `nul nulll 0 "null"`},
		{"boolean", `{"type": "boolean"}`, `true false`, `True 1 null`},
		{"integer", `{"type": "integer"}`, `0 7 -7 999999999999999999`, `-0 07 +1 1.0 1e3 - 1000000000000000000`},
		{"number", `{"type": "number"}`, `0 -0 -1.50 1e9 2.5E-10 0.000`, `.5 1. 01 1e 1e100 NaN Infinity 0x1 - -.5`},
		{"minimum", `{"type": "integer", "minimum": -12, "maximum": 305}`, `-12 -9 0 9 99 100 299 305`, `-13 -20 -100 306 310 400 1000`},
		{"exclusive", `{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.25}`, `0.1 0.001 1 1.0 1.24 1.2 1.2499`, `0 0.0 -1 -0 1.25 1.250 1.3 2 1e0`},
		{"negative bounds", `{"type": "number", "minimum": -2.5, "maximum": -1}`, `-1 -1.0 -2.5 -2.50 -2.49 -2`, `-0.9 -2.51 -3 1 0 2`},
		{"large bounds", `{"type": "number", "minimum": -1e30, "maximum": 1e-3}`, `-1 -999999999999999999 0.001 0.0001 0`, `0.0011 1`},
		{"no number", `{"type": ["number", "null"], "minimum": 2, "maximum": 1}`, `null`, `1 2 1.5`},
		{"types", `{"type": ["string", "null"]}`, `"a" null`, `1 true`},
		{"implied type", `{"minLength": 1}`, `"a"`, `"" 1 null`},
		{"string", `{"type": "string"}`, `"" "é€😀" "\n\"\\\/\u00e9\ud83d\ude00" "\u0000" "` + "\x7f" + `"`, `"\x" "\u12" "\ud83d" "\ud83dx" "\ude00" "a` + "\n" + `" "` + "\xff" + `" "` + "\xed\xa0\x80" + `" 'a'`},
		{"length", `{"type": "string", "minLength": 2, "maxLength": 3}`, `"ab" "é€😀" "\n\u00e9" "\ud83d\ude00a"`, `"" "a" "abcd" "😀"`},
		{"no length", `{"type": "string", "maxLength": 0}`, `""`, `"a"`},
		{"pattern", `{"type": "string", "pattern": "^[a-c]+é?$"}`, `"abc" "aé"`, `"" "d" "\u0061" "aéé" "xa"`},
		{"pattern within", `{"type": "string", "pattern": "b+"}`, `"b" "abc" "éb\n"`, `"" "ac"`},
		{"pattern of escapes", `{"type": "string", "pattern": "^[\\x00-\\x22\\\\]$"}`, `"\n" "\u0000" "\"" "\\" "!"`, `"\u000a" "#" """`},
		{"pattern with length", `{"type": "string", "pattern": "^(ab)*$", "minLength": 3, "maxLength": 5}`, `"abab"`, `"" "ab" "ababab" "aba"`},
		{"counted pattern", `{"type": "string", "pattern": "^x([a-c]{2,17})(?:é){0,16}!?$"}`, `"xab" "xabcabcabcabcabcab" "xabcabcabcabcabcabéé!" "xcc!"`, `"xa" "ab" "xabcabcabcabcabcabc" "xabéééééééééééééééééé" "xab!!" "xab\u0061"`},
		{"counted and empty", `{"type": "string", "pattern": "^(?:a|b?){0,20}$"}`, `"" "ab" "bbbbbbbbbbbbbbbbbbbb"`, `"bbbbbbbbbbbbbbbbbbbbb" "c"`},
		{"counted within", `{"type": "string", "pattern": "^a{16}"}`, `"aaaaaaaaaaaaaaaa" "aaaaaaaaaaaaaaaax"`, `"aaaaaaaaaaaaaaa" "xaaaaaaaaaaaaaaaa"`},
		{"case", `{"type": "string", "pattern": "^(?i:k)$"}`, "\"k\" \"K\" \"\u212a\"", `"x"`},
		{"date", `{"type": "string", "format": "date"}`, `"2024-02-29" "2000-02-29" "1999-12-31"`, `"2023-02-29" "1900-02-29" "2024-04-31" "2024-13-01" "24-01-01"`},
		{"date-time", `{"type": "string", "format": "date-time"}`, `"2024-02-29T23:59:59Z" "2024-01-01T00:00:00.123+05:30"`, `"2024-01-01" "2024-01-01T24:00:00Z" "2024-01-01T00:00:00"`},
		{"duration", `{"type": "string", "format": "duration"}`, `"P1Y2M3D" "PT1H30M" "P2W" "P1DT1S"`, `"P" "PT" "P1H" "1D" "P1Y1D"`},
		{"uuid", `{"type": "string", "format": "uuid"}`, `"01234567-89ab-cdef-0123-456789ABCDEF"`, `"0123456789abcdef0123456789abcdef" "g1234567-89ab-cdef-0123-456789abcdef"`},
		{"ipv4", `{"type": "string", "format": "ipv4"}`, `"0.0.0.0" "255.249.199.9"`, `"256.0.0.0" "1.2.3" "01.2.3.4"`},
		{"ipv6", `{"type": "string", "format": "ipv6"}`, `"::" "::1" "1:2:3:4:5:6:7:8" "fe80::1:2" "::ffff:1.2.3.4"`, `":" "1::2::3" "1:2:3:4:5:6:7" "12345::"`},
		{"hostname", `{"type": "string", "format": "hostname"}`, `"a" "a-b.example.com"`, `"-a" "a-" "a..b" "" "` + strings.Repeat("a", 64) + `"`},
		{"email", `{"type": "string", "format": "email"}`, `"a.b+c@example.com"`, `"a" "@b" "a@" ".a@b" "a..b@c" "` + strings.Repeat("a", 65) + `@b"`},
		{"enum", `{"enum": ["a", "ab", 1, 12, null, {"k": [1, {}]}, "\"\n"]}`, `"a" "ab" 1 12 null {"k":[1,{}]} "\"\n"`, `"b" "" 2 1.0 {} {"k":[1]}`},
		{"typed enum", `{"type": ["integer", "boolean"], "enum": ["a", 1, 1.5, true]}`, `1 true`, `"a" 1.5`},
		{"const", `{"const": "x/y"}`, `"x/y"`, `"x" "x\/y"`},
		{"anyOf", `{"anyOf": [{"const": 1}, {"type": "string"}, {"const": 12}]}`, `1 12 "x"`, `2 121 null`},
		{"oneOf", `{"oneOf": [{"type": "null"}, {"type": "boolean"}]}`, `null true`, `1`},
		{"allOf of one", `{"allOf": [{"type": "null"}], "description": "x"}`, `null`, `1`},
		{"array", `{"type": "array", "items": {"type": "integer"}}`, `[] [1] [1,-2,3]`, `[1,] [,1] [ [1 1] ["a"] [1,2`},
		{"items", `{"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}`, `[true,true] [true,false,true]`, `[] [true] [true,true,true,true]`},
		{"no items", `{"type": "array", "items": false}`, `[]`, `[1] [null]`},
		{"at most none", `{"type": "array", "maxItems": 0}`, `[]`, `[1]`},
		{"tuple", `{"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "minItems": 1}`, `[null] [null,true]`, `[] [true] [null,null] [null,true,1]`},
		{"tuple and items", `{"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "maxItems": 3}`, `[] [null] [null,1] [null,1,2]`, `[1] [null,null] [null,1,2,3]`},
		{"required", fmt.Sprintf(object, `["a", "b", "c"]`), `{"a":1,"b":true,"c":null}`, `{} {"a":1} {"a":1,"b":true} {"b":true,"a":1,"c":null}`},
		{"optional", fmt.Sprintf(object, `[]`), `{} {"a":1} {"b":true} {"c":null} {"a":1,"c":null} {"a":1,"b":true,"c":null}`, `{"d":1} {,"a":1} {"a":1,} {"a":1"b":true} {"a":1,"a":1} {"c":null,"a":1} {"a":"1"}`},
		{"mixed", fmt.Sprintf(object, `["b"]`), `{"b":true} {"a":1,"b":true} {"b":true,"c":null}`, `{} {"a":1} {"a":1,"c":null}`},
		{"additional", `{"properties": {"a": {"type": "integer"}, "ab": {"type": "null"}}, "required": ["ab"], "additionalProperties": {"type": "boolean"}}`,
			`{"ab":null} {"a":1,"ab":null} {"ab":null,"x":true} {"ab":null,"":true,"abc":false}`, `{"ab":null,"a":true} {"ab":null,"x":1} {"x":true} {"ab":null,"\u0061":true}`},
		{"required alone", `{"required": ["a"], "type": "object"}`, `{"a":1} {"a":null,"b":2}`, `{} {"b":2} {"b":2,"a":1}`},
		{"any object", `{"type": "object"}`, `{} {"a":{"a":[1,"x",null,{}]}}`, `[] 1 {"a"} {1:2}`},
		{"any", `{}`, `{} [] 1 null "x" [[[]]]`, `nil [[]`},
		{"true", `true`, `1`, `x`},
		{"recursive", `{"$ref": "#/$defs/list", "$defs": {"list": {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": false, "required": ["next"], "properties": {"next": {"$ref": "#/$defs/list"}}}]}}}`,
			`null {"next":null} {"next":{"next":{"next":null}}}`, `{} {"next":{}} {"next":1}`},
		{"root reference", `{"type": "array", "items": {"$ref": "#"}}`, `[] [[],[[]]]`, `[1] [[]`},
		{"escaped pointer", `{"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "null"}}}`, `null`, `1`},
		{"endless branch", `{"anyOf": [{"type": "null"}, {"$ref": "#/$defs/x"}], "$defs": {"x": {"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1}}}`, `null`, `[ [[`},
		{"shared beginnings", `{"anyOf": [{"type": "object", "additionalProperties": false, "properties": {"k": {"const": "a"}, "v": {"type": "integer"}}, "required": ["k", "v"]}, {"type": "object", "additionalProperties": false, "properties": {"k": {"const": "b"}, "v": {"type": "null"}}, "required": ["k", "v"]}]}`,
			`{"k":"a","v":1} {"k":"b","v":null}`, `{"k":"a","v":null} {"k":"b","v":1} {"k":"a"}`},
		{"harmless", `{"type": "array", "uniqueItems": false, "title": "x", "items": {"type": "null", "x-unknown": 1}}`, `[null]`, `[1]`},
	}
	v := bytesVocabulary(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := v.Schema([]byte(tt.schema))
			if err != nil {
				t.Fatal(err)
			}
			for text := range strings.SplitSeq(tt.yes, " ") {
				if !accepts(c, text) {
					t.Errorf("%s is refused", text)
				}
			}
			for text := range strings.SplitSeq(tt.no, " ") {
				if accepts(c, text) {
					t.Errorf("%s is accepted", text)
				}
			}
		})
	}
}

func TestWhiteSpace(t *testing.T) {
	c, err := bytesVocabulary(t).Schema([]byte(`{"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		" {}":                                 true,
		"{ \"a\": [ 1, 2 ] }":                 true,
		"{\n\t\"a\": [\r\n    1,\n2\n]\n  }":  true,
		"{\n" + strings.Repeat(" ", 64) + "}": true,
		"{\n" + strings.Repeat(" ", 65) + "}": false,
		"{  }":                                false,
		"{\n\n}":                              false,
		"{\"a\" : []}":                        false,
		"{} ":                                 false,
	} {
		if accepts(c, text) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}

func TestSchemaErrors(t *testing.T) {
	nested := strings.Repeat(`{"items": `, 70) + `{}` + strings.Repeat(`}`, 70)
	var props []string
	for i := range 1001 {
		props = append(props, fmt.Sprintf(`"p%d": {}`, i))
	}
	tests := []struct{ schema, want string }{
		{``, `unexpected EOF`},
		{`{`, `unexpected EOF`},
		{`{} {}`, `there is more after the value`},
		{`{"a": tru}`, `invalid character`},
		{"\"\xff\"", `not UTF-8`},
		{strings.Repeat(" ", 1<<20+1), `more than 1048576 bytes`},
		{nested, `/items: more than 64 levels`},
		{`{"type": "null", "type": "string"}`, `#/type: it is there twice`},
		{`[]`, `#: a schema must be an object or a boolean`},
		{`false`, `no finite text satisfies it`},
		{`{"properties": {"a": 1}}`, `#/properties/a: a schema must be`},
		{`{"type": "any"}`, `#/type: must be of integer, null`},
		{`{"type": []}`, `#/type: it names no type`},
		{`{"properties": {"a/b": {"not": {}}}}`, `#/properties/a~1b/not: this keyword is not supported`},
		{`{"items": {"multipleOf": 2}}`, `#/items/multipleOf: this keyword is not supported`},
		{`{"uniqueItems": true}`, `#/uniqueItems: this keyword`},
		{`{"patternProperties": {}}`, `#/patternProperties: this keyword`},
		{`{"$ref": "http://example.com/x"}`, `#/$ref: "http://example.com/x": only references within`},
		{`{"$ref": "#/$defs/x"}`, `#/$ref: "#/$defs/x": the schema has no such place`},
		{`{"$ref": "#name"}`, `#/$ref: "#name": only references within`},
		{`{"$ref": "#"}`, `#: it refers to itself without anything between`},
		{`{"anyOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/x"}]}}}`, `#/$defs/x: it refers to itself`},
		{`{"type": "array", "items": {"$ref": "#"}, "minItems": 1}`, `no finite text satisfies it`},
		{`{"$ref": "#/$defs/x", "type": "null", "$defs": {"x": {}}}`, `#/type: it is not supported beside $ref`},
		{`{"anyOf": [{}], "properties": {}}`, `#/properties: it is not supported beside anyOf`},
		{`{"anyOf": []}`, `#/anyOf: must be an array of schemas`},
		{`{"allOf": [{}, {}]}`, `#/allOf: only one schema`},
		{`{"enum": []}`, `#/enum: must be an array of values`},
		{`{"type": "string", "enum": [1]}`, `no finite text satisfies it`},
		{`{"type": "string", "pattern": "("}`, `#/pattern: error parsing regexp: missing closing`},
		{`{"type": "string", "pattern": "a)(b"}`, `#/pattern: error parsing regexp: unexpected )`},
		{`{"type": "string", "pattern": "\\bx"}`, `#/pattern: \b, \B`},
		{`{"type": "string", "pattern": "(?=x)"}`, `#/pattern: error parsing regexp`},
		{`{"type": "string", "pattern": "x^"}`, `#/pattern: no text matches it`},
		{`{"type": "string", "pattern": "` + strings.Repeat("x", 9000) + `"}`, `#/pattern: more than 8192 bytes`},
		{`{"type": "string", "pattern": "(.*a.{14}){2}"}`, `#/pattern: more than`},
		{`{"type": "string", "pattern": "(\\pL{1,500}){1,2}"}`, `#/pattern: more than`},
		{`{"type": "string", "format": "uri"}`, `#/format: "uri": this format is not supported`},
		{`{"type": "integer", "format": "int32"}`, `#/format: "int32": no format of numbers`},
		{`{"type": "string", "minLength": -1}`, `#/minLength: must be a non-negative integer`},
		{`{"type": "string", "maxLength": "1"}`, `#/maxLength: must be a non-negative integer`},
		{`{"type": "string", "maxLength": 1e12}`, `#/maxLength: more than`},
		{`{"type": "string", "pattern": "x", "maxLength": 1001}`, `#: minLength and maxLength: beside a pattern`},
		{`{"type": "number", "minimum": true}`, `#/minimum: must be a number`},
		{`{"type": "number", "minimum": 1e999}`, `#/minimum: more than 40 digits`},
		{`{"items": [{}]}`, `#/items: must be a schema: use prefixItems`},
		{`{"prefixItems": {}}`, `#/prefixItems: must be an array`},
		{`{"properties": []}`, `#/properties: must be an object`},
		{`{"required": ["a", 1]}`, `#/required: must be an array of strings`},
		{`{"properties": {"a": {}}, "required": ["b"]}`, `#/required: "b" is not in properties`},
		{`{"properties": {` + strings.Join(props, ", ") + `}}`, `#/properties: more than 1000 properties`},
	}
	v := bytesVocabulary(t)
	for _, tt := range tests {
		_, err := v.Schema([]byte(tt.schema))
		if err == nil || !strings.HasPrefix(err.Error(), "constraint: schema: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.100s: got %v, want %q", tt.schema, err, tt.want)
		}
	}
}
