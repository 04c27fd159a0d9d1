package constraint

import (
	"errors"
	"fmt"
	"strconv"
)

// str returns the term of the strings that satisfy s. The length is counted while a text is
// matched. With a pattern or a format it is part of their automaton.
func (c *compiler) str(s *value, path string) (term, error) {
	least, most, err := sizes(s, path, "minLength", "maxLength")
	if err != nil {
		return nothing, err
	}
	if most != unbounded && most < least {
		return nothing, nil
	}
	p := &c.vocab.parts
	if v := s.get("pattern"); v != nil && v.kind == "string" && s.get("format") == nil && least == 0 && most == unbounded {
		x, ok, err := c.countedPattern(v.text)
		if err == nil && ok {
			x, err = c.chain(p.quote, x, p.quote)
		}
		if ok || err != nil {
			return x, fail(pointer(path, "pattern"), err)
		}
	}
	content, err := c.pattern(s, path)
	if err != nil {
		return nothing, err
	}
	var x term
	switch {
	case content == nil && least == 0 && most == unbounded:
		x, err = c.chain(p.str)
	case content == nil:
		var char term
		if char, err = c.leaf(p.char); err == nil {
			x, err = c.chain(p.quote, c.terms.rep(char, least, most), p.quote)
		}
	default:
		if least > 0 || most != unbounded {
			if content, err = c.withLength(content, least, most); err != nil {
				return nothing, fail(path, fmt.Errorf("minLength and maxLength: %w", err))
			}
		}
		x, err = c.chain(p.quote, content, p.quote)
	}
	return x, fail(path, err)
}

// countedPattern returns the term of a pattern from ^ to $ that has a repetition with a large
// count, and whether expr is one.
func (c *compiler) countedPattern(expr string) (term, bool, error) {
	seq, err := parseSequence(expr)
	if err != nil || !seq.anchored || !seq.counted {
		return nothing, false, err
	}
	x, err := c.sequence(seq, quoted)
	return x, err == nil, err
}

// sequence returns the term of a regular expression.
func (c *compiler) sequence(seq sequence, enc encoding) (term, error) {
	parts, err := seq.compile(enc, &c.work)
	if err != nil {
		return nothing, err
	}
	var list []term
	for _, p := range parts {
		x, err := c.leaf(p.automaton)
		if err != nil {
			return nothing, err
		}
		list = append(list, c.terms.rep(x, p.min, p.max))
	}
	return c.terms.chain(list...), nil
}

// pattern returns what the keywords pattern and format say about the characters of a
// string, or nil if there are none of these.
func (c *compiler) pattern(s *value, path string) (*automaton, error) {
	var all *automaton
	for _, keyword := range []string{"pattern", "format"} {
		v := s.get(keyword)
		if v == nil {
			continue
		}
		at := pointer(path, keyword)
		if v.kind != "string" {
			return nil, fail(at, errors.New("must be a string"))
		}
		expr := v.text
		if keyword == "format" {
			var ok bool
			if expr, ok = formats[v.text]; !ok {
				return nil, fail(at, fmt.Errorf("%q: this format is not supported", v.text))
			}
		} else if err := checkExpr(expr); err != nil {
			return nil, fail(at, err)
		} else {
			expr = `(?s:.*)(?:` + expr + `)(?s:.*)`
		}
		a, err := compileExpr(expr, quoted, &c.work)
		if err == nil && a == nil {
			err = errors.New("no text matches it")
		}
		if err != nil {
			return nil, fail(at, err)
		}
		if all == nil {
			all = a
		} else if all, err = intersect(all, a, &c.work); err == nil && all == nil {
			return nil, fail(at, errors.New("no text matches it and the pattern"))
		} else if err != nil {
			return nil, fail(at, err)
		}
	}
	return all, nil
}

// withLength returns the texts of a, inside a JSON string, with least to most characters.
func (c *compiler) withLength(a *automaton, least, most int32) (*automaton, error) {
	if least > maxPatternLength || most > maxPatternLength {
		return nil, fmt.Errorf("beside a pattern or a format they are at most %d", maxPatternLength)
	}
	limit := ""
	if most != unbounded {
		limit = strconv.Itoa(int(most))
	}
	b, err := compileExpr(fmt.Sprintf(`(?s:.{%d,%s})`, least, limit), quoted, &c.work)
	if err != nil {
		return nil, err
	}
	return intersect(a, b, &c.work)
}
