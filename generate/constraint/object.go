package constraint

import (
	"errors"
	"fmt"
	"slices"
)

// property is a property that an object may have.
type property struct {
	key      string
	value    term // with the name
	required bool
}

// object returns the term of the objects that satisfy s.
func (c *compiler) object(s *value, path string) (term, error) {
	list, other, err := c.properties(s, path)
	if err != nil {
		return nothing, err
	}
	p := &c.vocab.parts
	comma, err := c.leaf(p.comma)
	if err != nil {
		return nothing, fail(path, err)
	}
	end, err := c.leaf(p.closeObject)
	if err != nil {
		return nothing, fail(path, err)
	}
	empty, err := c.leaf(p.endObject)
	if err != nil {
		return nothing, fail(path, err)
	}
	// From the last property to the first: next are the alternatives after a bracket or comma. mayEnd
	// says that the object may also end there.
	more := c.terms.seq(c.terms.rep(c.terms.seq(comma, other), 0, unbounded), end)
	next, mayEnd := []term{c.terms.seq(other, more)}, true
	for _, prop := range slices.Backward(list) {
		x := c.terms.seq(prop.value, c.after(comma, end, next, mayEnd))
		if prop.required {
			next, mayEnd = nil, false
		}
		next = append(next, x)
	}
	if mayEnd {
		next = append(next, empty)
	}
	x, err := c.chain(p.open, c.terms.alt(next...))
	return x, fail(path, err)
}

// after returns what may follow a property.
func (c *compiler) after(comma, end term, next []term, mayEnd bool) term {
	x := c.terms.seq(comma, c.terms.alt(next...))
	if mayEnd {
		x = c.terms.alt(x, end)
	}
	return x
}

// properties returns the properties of an object in their order, and the term of any other
// property.
func (c *compiler) properties(s *value, path string) (list []property, other term, err error) {
	props := s.get("properties")
	if props == nil {
		props = &value{kind: "object"}
	}
	at := pointer(path, "properties")
	if props.kind != "object" {
		return nil, nothing, fail(at, errors.New("must be an object"))
	}
	required, err := requiredKeys(s)
	if err != nil {
		return nil, nothing, fail(pointer(path, "required"), err)
	}
	if len(props.keys)+len(required) > maxProperties {
		return nil, nothing, fail(at, limitError{"properties, required ones included", maxProperties})
	}
	add := func(key string, x term) error {
		name, err := c.name(key)
		list = append(list, property{key, c.terms.seq(name, x), slices.Contains(required, key)})
		return err
	}
	for i, key := range props.keys {
		x, err := c.schema(props.values[i], pointer(at, key))
		if err == nil {
			err = fail(at, add(key, x))
		}
		if err != nil {
			return nil, nothing, err
		}
	}

	var extra term
	switch v := s.get("additionalProperties"); {
	case v != nil:
		extra, err = c.schema(v, pointer(path, "additionalProperties"))
	case len(props.keys) == 0:
		extra, err = c.anything()
		err = fail(path, err)
	}
	if err != nil {
		return nil, nothing, err
	}
	for _, key := range required { // beside properties, they satisfy additionalProperties
		if props.get(key) == nil && !slices.ContainsFunc(list, func(p property) bool { return p.key == key }) {
			if extra == nothing && s.get("additionalProperties") == nil {
				return nil, nothing, fail(pointer(path, "required"), fmt.Errorf("%q is not in properties", key))
			}
			if err := add(key, extra); err != nil {
				return nil, nothing, fail(at, err)
			}
		}
	}
	if extra == nothing {
		return list, nothing, nil
	}
	key, err := c.otherKey(list)
	if err != nil {
		return nil, nothing, fail(pointer(path, "additionalProperties"), err)
	}
	other, err = c.chain(key, c.vocab.parts.colon, extra)
	return list, other, fail(path, err)
}

// requiredKeys returns the value of the keyword required.
func requiredKeys(s *value) (keys []string, err error) {
	v := s.get("required")
	if v == nil {
		return nil, nil
	}
	err = errors.New("must be an array of strings")
	if v.kind != "array" {
		return nil, err
	}
	for _, key := range v.values {
		if key.kind != "string" {
			return nil, err
		}
		keys = append(keys, key.text)
	}
	return keys, nil
}

// otherKey returns the automaton of the keys that are not in list.
func (c *compiler) otherKey(list []property) (*automaton, error) {
	if len(list) == 0 {
		return c.vocab.parts.str, nil
	}
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = quote(p.key)
	}
	known, err := literals(names)
	if err != nil {
		return nil, err
	}
	return minus(c.vocab.parts.key, known, &c.work)
}
