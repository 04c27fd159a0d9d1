package constraint

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The limits of a schema beside those of its text and of one automaton.
const (
	maxProperties = 1000              // of one object
	maxSchemas    = 20_000            // within each other, in all
	maxRules      = 2000              // places that $ref names
	maxLeaves     = 20_000            // automata
	maxCells      = 8_000_000         // elements of the tables of all automata
	maxTerms      = 1 << 21           // size of the grammar's terms
	maxCount      = math.MaxInt32 / 2 // value of minLength, maxItems and the like
)

// maxPatternLength is the limit of minLength and maxLength beside a pattern or a format.
const maxPatternLength = 1000

// compiler turns a Structure into a grammar.
type compiler struct {
	grammar grammar
	vocab   *Vocabulary
	terms   *terms
	leaves  map[*automaton]term
	names   map[string]term // property names, quoted and with a colon
	texts   map[string]term // parts of a Structure with one text
	paths   []string        // of rules
	any     int             // the rule of any value, or -1
	work    budget

	structures int // compiled so far
	count      int // of schemas
	cells      int // of the tables of the automata

	// Of the schema that is compiled.
	root  *value
	rules map[string]int // JSON Pointer to rule
}

// fail names the place of an error.
func fail(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}

// document returns the term of the texts that satisfy a JSON Schema.
func (c *compiler) document(schema []byte) (term, error) {
	var err error
	if c.root, err = parse(schema); err != nil {
		return nothing, err
	}
	c.rules = map[string]int{}
	first := len(c.paths)
	start, err := c.reference("#", "#")
	if err != nil {
		return nothing, err
	}
	for i := first; i < len(c.paths); i++ {
		if i == c.any {
			continue
		}
		s, err := c.find(c.paths[i])
		if err != nil {
			return nothing, err
		}
		body, err := c.schema(s, c.paths[i])
		if err != nil {
			return nothing, err
		}
		c.grammar.rules[i] = body
	}
	for i := first; i < len(c.paths); i++ {
		if c.grammar.recurs(c.terms, i) {
			return nothing, fmt.Errorf("%s: it refers to itself without anything between", c.paths[i])
		}
	}
	return c.chain(c.vocab.parts.space, start)
}

// reference returns the term of the schema that ref names, which is at path.
func (c *compiler) reference(ref, path string) (term, error) {
	if i, ok := c.rules[ref]; ok {
		return c.terms.rule(int32(i)), nil
	}
	if _, err := c.find(ref); err != nil {
		return nothing, fail(path, err)
	}
	i, err := c.newRule(ref)
	return c.terms.rule(int32(i)), fail(path, err)
}

// newRule adds a rule without a body.
func (c *compiler) newRule(path string) (int, error) {
	if len(c.paths) >= maxRules {
		return 0, limitError{"different references", maxRules}
	}
	i := len(c.paths)
	c.rules[path] = i
	c.paths = append(c.paths, path)
	c.grammar.rules = append(c.grammar.rules, nothing)
	return i, nil
}

// find returns the value that a JSON Pointer in a URI fragment names.
func (c *compiler) find(ref string) (*value, error) {
	fragment, ok := strings.CutPrefix(ref, "#")
	if !ok || fragment != "" && fragment[0] != '/' {
		return nil, fmt.Errorf("%q: only references within the schema are supported, such as #/$defs/name", ref)
	}
	at := c.root
	if fragment == "" {
		return at, nil
	}
	for key := range strings.SplitSeq(fragment[1:], "/") {
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		key = pointerUnescapes.Replace(key)
		next := at.get(key)
		if i, err := strconv.Atoi(key); at.kind == "array" && err == nil && i >= 0 && i < len(at.values) {
			next = at.values[i]
		}
		if next == nil {
			return nil, fmt.Errorf("%q: the schema has no such place", ref)
		}
		at = next
	}
	return at, nil
}

// leaf returns the term of an automaton; nil is no text.
func (c *compiler) leaf(a *automaton) (term, error) {
	if a == nil {
		return nothing, nil
	}
	if x, ok := c.leaves[a]; ok {
		return x, nil
	}
	if len(c.grammar.leaves) >= maxLeaves {
		return nothing, limitError{"automata", maxLeaves}
	}
	if !a.shared {
		if c.cells += len(a.next); c.cells > maxCells {
			return nothing, limitError{"elements of the tables of all automata", maxCells}
		}
	}
	x := c.terms.leaf(int32(len(c.grammar.leaves)))
	c.grammar.leaves = append(c.grammar.leaves, a)
	c.leaves[a] = x
	return x, nil
}

// chain returns the sequence of automata and terms.
func (c *compiler) chain(parts ...any) (term, error) {
	list := make([]term, len(parts))
	for i, p := range parts {
		switch p := p.(type) {
		case term:
			list[i] = p
		case *automaton:
			x, err := c.leaf(p)
			if err != nil {
				return nothing, err
			}
			list[i] = x
		}
	}
	return c.terms.chain(list...), nil
}

// keywords says which types a keyword is about. Those of no type are for all of them.
var keywords = map[string]string{
	"$ref": "", "anyOf": "", "oneOf": "", "allOf": "", "enum": "", "const": "", "type": "",
	"properties": "object", "required": "object", "additionalProperties": "object",
	"items": "array", "prefixItems": "array", "minItems": "array", "maxItems": "array",
	"minLength": "string", "maxLength": "string", "pattern": "string", "format": "string",
	"minimum": "number", "maximum": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
}

// refused are keywords that change what is valid and are not implemented.
var refused = []string{
	"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "patternProperties",
	"propertyNames", "minProperties", "maxProperties", "unevaluatedProperties", "unevaluatedItems",
	"additionalItems", "contains", "minContains", "maxContains", "uniqueItems", "multipleOf",
	"$dynamicRef", "$recursiveRef", "nullable",
}

// harmless reports whether a refused keyword has the value that restricts nothing.
func harmless(keyword string, v *value) bool {
	switch keyword {
	case "uniqueItems", "nullable":
		return v.text == "false"
	case "minProperties":
		return v.text == "0"
	}
	return false
}

// schema returns the term of a schema.
func (c *compiler) schema(s *value, path string) (term, error) {
	if c.count++; c.count > maxSchemas {
		return nothing, fail(path, limitError{"schemas", maxSchemas})
	}
	if err := c.work.spend(1); err != nil {
		return nothing, fail(path, err)
	}
	if c.terms.size > maxTerms {
		return nothing, fail(path, limitError{"places where optional properties may come next", maxTerms})
	}
	switch {
	case s.kind == "boolean" && s.text == "true":
		x, err := c.anything()
		return x, fail(path, err)
	case s.kind == "boolean":
		return nothing, nil
	case s.kind != "object":
		return nothing, fail(path, errors.New("a schema must be an object or a boolean"))
	}
	var used []string // keywords that decide what is valid
	for i, key := range s.keys {
		if slices.Contains(refused, key) && !harmless(key, s.values[i]) {
			return nothing, fail(pointer(path, key), errors.New("this keyword is not supported"))
		}
		if _, ok := keywords[key]; ok {
			used = append(used, key)
		}
	}
	for _, combine := range []struct {
		keyword string
		with    []string
		compile func(s, v *value, path, at string) (term, error)
	}{
		{"$ref", nil, c.ref},
		{"enum", []string{"type"}, c.enum},
		{"const", []string{"type"}, c.enum},
		{"anyOf", nil, c.anyOf}, {"oneOf", nil, c.anyOf}, {"allOf", nil, c.anyOf},
	} {
		v := s.get(combine.keyword)
		if v == nil {
			continue
		}
		at := pointer(path, combine.keyword)
		for _, key := range used {
			if key != combine.keyword && !slices.Contains(combine.with, key) {
				return nothing, fail(pointer(path, key), fmt.Errorf("it is not supported beside %s", combine.keyword))
			}
		}
		if combine.keyword == "allOf" && len(v.values) > 1 {
			return nothing, fail(at, errors.New("only one schema is supported"))
		}
		return combine.compile(s, v, path, at)
	}
	types, err := c.types(s, path, used)
	if err != nil {
		return nothing, err
	}
	var alternatives []term
	for _, name := range types {
		x, err := c.typed(s, path, name)
		if err != nil {
			return nothing, err
		}
		alternatives = append(alternatives, x)
	}
	return c.terms.alt(alternatives...), nil
}

var allTypes = []string{"null", "boolean", "object", "array", "number", "string"}

// types returns the types of a schema. Without the keyword type they are those that its
// other keywords are about, or all.
func (c *compiler) types(s *value, path string, used []string) ([]string, error) {
	v := s.get("type")
	if v == nil {
		var types []string
		for _, key := range used {
			if t := keywords[key]; t != "" && !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
		if len(types) == 0 {
			types = allTypes
		}
		return types, nil
	}
	list := []*value{v}
	if v.kind == "array" {
		list = v.values
	}
	var types []string
	for _, t := range list {
		if t.kind != "string" || t.text != "integer" && !slices.Contains(allTypes, t.text) {
			return nil, fail(pointer(path, "type"), fmt.Errorf("must be of integer, %s", strings.Join(allTypes, ", ")))
		}
		types = append(types, t.text)
	}
	if len(types) == 0 {
		return nil, fail(pointer(path, "type"), errors.New("it names no type"))
	}
	return types, nil
}

func (c *compiler) ref(_, v *value, _, path string) (term, error) {
	if v.kind != "string" {
		return nothing, fail(path, errors.New("must be a string"))
	}
	return c.reference(v.text, path)
}

func (c *compiler) anyOf(_, v *value, _, path string) (term, error) {
	if v.kind != "array" || len(v.values) == 0 {
		return nothing, fail(path, errors.New("must be an array of schemas"))
	}
	var alternatives []term
	for i, s := range v.values {
		x, err := c.schema(s, fmt.Sprintf("%s/%d", path, i))
		if err != nil {
			return nothing, err
		}
		alternatives = append(alternatives, x)
	}
	return c.terms.alt(alternatives...), nil
}

// enum is also const, which has one value.
func (c *compiler) enum(s, v *value, path, at string) (term, error) {
	list := []*value{v}
	if s.get("enum") != nil {
		if s.get("const") != nil {
			return nothing, fail(at, errors.New("it is not supported beside const"))
		}
		if list = v.values; v.kind != "array" || len(list) == 0 {
			return nothing, fail(at, errors.New("must be an array of values"))
		}
	}
	types := append(slices.Clone(allTypes), "integer")
	if s.get("type") != nil {
		var err error
		if types, err = c.types(s, path, nil); err != nil {
			return nothing, err
		}
	}
	var scalars []string
	var alternatives []term
	for _, item := range list {
		if !slices.Contains(types, item.kind) && !(slices.Contains(types, "integer") && item.isInteger()) {
			continue
		}
		if text, ok := item.scalar(); ok {
			scalars = append(scalars, text)
			continue
		}
		x, err := c.constant(item)
		if err != nil {
			return nothing, fail(at, err)
		}
		alternatives = append(alternatives, x)
	}
	if len(scalars) > 0 {
		a, err := literals(scalars)
		if err != nil {
			return nothing, fail(at, err)
		}
		x, err := c.leaf(a)
		if err != nil {
			return nothing, fail(at, err)
		}
		alternatives = append(alternatives, x)
	}
	return c.terms.alt(alternatives...), nil
}

// isInteger reports whether v is a number without a fraction.
func (v *value) isInteger() bool {
	d, err := parseDecimal(v.text)
	return v.kind == "number" && err == nil && d.fraction == ""
}

// scalar returns the text of a value without parts.
func (v *value) scalar() (string, bool) {
	switch v.kind {
	case "string":
		return quote(v.text), true
	case "object", "array":
		return "", false
	}
	return v.text, true
}

// constant returns the term of one value.
func (c *compiler) constant(v *value) (term, error) {
	if text, ok := v.scalar(); ok {
		a, err := literals([]string{text})
		if err != nil {
			return nothing, err
		}
		return c.leaf(a)
	}
	p := &c.vocab.parts
	open, end, empty := p.openArray, p.closeArray, p.endArray
	if v.kind == "object" {
		open, end, empty = p.open, p.closeObject, p.endObject
	}
	if len(v.values) == 0 {
		return c.chain(open, empty)
	}
	parts := []any{open}
	for i, item := range v.values {
		if i > 0 {
			parts = append(parts, p.comma)
		}
		if v.kind == "object" {
			name, err := c.name(v.keys[i])
			if err != nil {
				return nothing, err
			}
			parts = append(parts, name)
		}
		x, err := c.constant(item)
		if err != nil {
			return nothing, err
		}
		parts = append(parts, x)
	}
	return c.chain(append(parts, end)...)
}

// name returns the term of a property's name and colon.
func (c *compiler) name(key string) (term, error) {
	if x, ok := c.names[key]; ok {
		return x, nil
	}
	a, err := literals([]string{quote(key)})
	if err != nil {
		return nothing, err
	}
	x, err := c.chain(a, c.vocab.parts.colon)
	c.names[key] = x
	return x, err
}

// anything returns the term of any value.
func (c *compiler) anything() (term, error) {
	if c.any < 0 {
		var err error
		if c.any, err = c.newRule("any value"); err != nil {
			return nothing, err
		}
		empty := &value{kind: "object"}
		var alternatives []term
		for _, name := range allTypes {
			x, err := c.typed(empty, "#", name)
			if err != nil {
				return nothing, err
			}
			alternatives = append(alternatives, x)
		}
		c.grammar.rules[c.any] = c.terms.alt(alternatives...)
	}
	return c.terms.rule(int32(c.any)), nil
}

// typed returns the term of the values of one type that satisfy s.
func (c *compiler) typed(s *value, path, name string) (term, error) {
	p := &c.vocab.parts
	switch name {
	case "object":
		return c.object(s, path)
	case "array":
		return c.array(s, path)
	case "string":
		return c.str(s, path)
	case "boolean":
		x, err := c.leaf(p.boolean)
		return x, fail(path, err)
	case "null":
		x, err := c.leaf(p.null)
		return x, fail(path, err)
	}
	if f := s.get("format"); f != nil && s.get("type") != nil {
		if types, err := c.types(s, path, nil); err == nil && !slices.Contains(types, "string") {
			return nothing, fail(pointer(path, "format"), fmt.Errorf("%q: no format of numbers is supported", f.text))
		}
	}
	a, err := c.number(s, path, name == "integer")
	if err != nil {
		return nothing, err
	}
	x, err := c.leaf(a)
	return x, fail(path, err)
}

// size returns the count that a keyword has as its value; without the keyword, otherwise.
func size(s *value, path, keyword string, otherwise int32) (int32, error) {
	v := s.get(keyword)
	if v == nil {
		return otherwise, nil
	}
	d, err := parseDecimal(v.text)
	if v.kind != "number" || err == nil && (d.negative || d.fraction != "") {
		err = errors.New("must be a non-negative integer")
	}
	if err != nil {
		return 0, fail(pointer(path, keyword), err)
	}
	n, err := strconv.Atoi(d.whole)
	if err != nil || n > maxCount {
		return 0, fail(pointer(path, keyword), fmt.Errorf("more than %d", maxCount))
	}
	return int32(n), nil
}

// sizes returns the range that two keywords give. Without the second, most is unbounded.
func sizes(s *value, path, minimum, maximum string) (least, most int32, err error) {
	if least, err = size(s, path, minimum, 0); err == nil {
		most, err = size(s, path, maximum, unbounded)
	}
	return least, most, err
}
