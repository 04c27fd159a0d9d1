package constraint

import (
	"errors"
	"fmt"
)

// array returns the term of the arrays that satisfy s.
func (c *compiler) array(s *value, path string) (term, error) {
	least, most, err := sizes(s, path, "minItems", "maxItems")
	if err != nil {
		return nothing, err
	}
	if most != unbounded && most < least {
		return nothing, nil
	}
	p := &c.vocab.parts
	first, item, err := c.items(s, path)
	if err != nil {
		return nothing, err
	}
	if most != unbounded && int(most) < len(first) {
		first, item = first[:most], nothing
	}
	comma, err := c.leaf(p.comma)
	if err != nil {
		return nothing, fail(path, err)
	}
	end, err := c.leaf(p.closeArray)
	if err != nil {
		return nothing, fail(path, err)
	}
	// rest is what may follow n items.
	n := int32(len(first))
	if n == 0 {
		n, first = 1, []term{item}
	}
	left := most
	if most != unbounded {
		left = max(most-n, 0)
	}
	rest := c.terms.seq(c.terms.rep(c.terms.seq(comma, item), max(least-n, 0), left), end)
	if item == nothing && least > n {
		rest = nothing
	}
	for i := n - 1; i > 0; i-- {
		rest = c.terms.seq(comma, c.terms.seq(first[i], rest))
		if least <= i {
			rest = c.terms.alt(rest, end)
		}
	}
	rest = c.terms.seq(first[0], rest)
	if most == 0 {
		rest = nothing
	}
	if least == 0 {
		empty, err := c.leaf(p.endArray)
		if err != nil {
			return nothing, fail(path, err)
		}
		rest = c.terms.alt(rest, empty)
	}
	x, err := c.chain(p.openArray, rest)
	return x, fail(path, err)
}

// items returns the items of prefixItems, and the item that may follow these.
func (c *compiler) items(s *value, path string) (first []term, item term, err error) {
	if v := s.get("prefixItems"); v != nil {
		at := pointer(path, "prefixItems")
		if v.kind != "array" {
			return nil, nothing, fail(at, errors.New("must be an array of schemas"))
		}
		for i, item := range v.values {
			x, err := c.schema(item, fmt.Sprintf("%s/%d", at, i))
			if err != nil {
				return nil, nothing, err
			}
			first = append(first, x)
		}
	}
	switch v := s.get("items"); {
	case v != nil && v.kind == "array":
		return nil, nothing, fail(pointer(path, "items"), errors.New("must be a schema: use prefixItems for a list"))
	case v != nil:
		item, err = c.schema(v, pointer(path, "items"))
	case len(first) == 0:
		item, err = c.anything()
		err = fail(path, err)
	}
	if err != nil {
		return nil, nothing, err
	}
	return first, item, nil
}
