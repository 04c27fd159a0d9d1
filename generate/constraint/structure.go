package constraint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Structure describes texts. One of Text to Repeat is set; if none is, the text is empty.
type Structure struct {
	Text string // this text
	// Marker is the control token with this text. If the vocabulary has none, it is this text.
	Marker string

	// Schema is a JSON Schema: the text is one JSON value that satisfies it. The properties of
	// an object come in the order of the schema. An error names the place in the schema as a
	// JSON Pointer after #. Keywords that would change what is valid and are not implemented
	// are errors.
	Schema []byte
	// Regexp matches the whole text. Its syntax is that of package regexp, without word
	// boundaries and without (?m) for ^ and $.
	Regexp string

	// Until is any text in UTF-8 up to and including the first of these markers, as a control
	// token or spelled by other tokens. Without is any text in UTF-8 without these markers and
	// without control tokens.
	Until, Without []string
	// NotFirst are texts with which the text of Until or Without does not begin, also after
	// white space.
	NotFirst []string

	Sequence []Structure // each in turn
	AnyOf    []Structure // one of them
	Repeat   *Structure  // any number of times; it is not the empty text

	// Name stands for the kind of a Schema or Regexp in errors: "constraint: NAME: why".
	Name string
}

// maxStructures is the limit of structures within each other, in all.
const maxStructures = 10_000

// Compile returns the constraint that a text has a structure. It takes up to about a second,
// and ends with an error when ctx does.
func (v *Vocabulary) Compile(ctx context.Context, s Structure) (*Constraint, error) {
	c := &compiler{
		vocab: v, terms: newTerms(nil), leaves: map[*automaton]term{}, names: map[string]term{}, texts: map[string]term{},
		any: -1, work: budget{ctx, maxWork},
	}
	var err error
	if c.grammar.start, err = c.structure(&s); err != nil {
		return nil, fmt.Errorf("constraint: %w", err)
	}
	base := c.grammar.finish(c.terms)
	if c.grammar.start == nothing {
		return nil, fmt.Errorf("constraint: %s: no finite text satisfies it", s.name())
	}
	return &Constraint{vocab: v, base: base, table: newTable(&c.grammar, base, v)}, nil
}

// name returns what s is in an error.
func (s *Structure) name() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Schema != nil:
		return "schema"
	case s.Regexp != "":
		return "regular expression"
	}
	return "structure"
}

// structure returns the term of a structure. Its errors begin with the name of their part.
func (c *compiler) structure(s *Structure) (x term, err error) {
	if c.structures++; c.structures > maxStructures {
		return nothing, fail("structure", limitError{"structures", maxStructures})
	}
	switch {
	case s.Sequence != nil:
		list, err := c.all(s.Sequence)
		return c.terms.chain(list...), err
	case s.AnyOf != nil:
		return c.anyStructure(s.AnyOf)
	case s.Repeat != nil:
		if x, err = c.structure(s.Repeat); err != nil {
			return nothing, err
		}
		if c.grammar.nullable(c.terms, x) {
			return nothing, fail("structure", errors.New("the empty text cannot be repeated"))
		}
		return c.terms.rep(x, 0, unbounded), nil
	case s.Schema != nil:
		x, err = c.document(s.Schema)
	case s.Regexp != "":
		x, err = c.regexp(s.Regexp)
	case s.Until != nil:
		x, err = c.free(s.Until, true, s.NotFirst)
	case s.Without != nil:
		x, err = c.free(s.Without, false, s.NotFirst)
	case s.Marker != "" && c.vocab.markers[s.Marker]:
		x, err = c.literal(controlText(s.Marker))
	default:
		x, err = c.literal(s.Text + s.Marker)
	}
	return x, fail(s.name(), err)
}

// all returns the terms of structures.
func (c *compiler) all(parts []Structure) ([]term, error) {
	var list []term
	for i := range parts {
		x, err := c.structure(&parts[i])
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, nil
}

// anyStructure returns the term of one of several structures. Plain texts share an automaton.
func (c *compiler) anyStructure(parts []Structure) (term, error) {
	var texts []string
	var others []Structure
	for _, p := range parts {
		if p.Text != "" {
			texts = append(texts, p.Text)
		} else {
			others = append(others, p)
		}
	}
	list, err := c.all(others)
	if err != nil {
		return nothing, err
	}
	if len(texts) > 0 {
		a, err := literals(texts)
		if err != nil {
			return nothing, fail("structure", err)
		}
		x, err := c.leaf(a)
		if err != nil {
			return nothing, fail("structure", err)
		}
		list = append(list, x)
	}
	return c.terms.alt(list...), nil
}

// literal returns the term of one text.
func (c *compiler) literal(text string) (term, error) {
	if text == "" {
		return epsilon, nil
	}
	if x, ok := c.texts[text]; ok {
		return x, nil
	}
	a, err := literals([]string{text})
	if err != nil {
		return nothing, err
	}
	x, err := c.leaf(a)
	c.texts[text] = x
	return x, err
}

// regexp returns the term of the texts that an expression matches as a whole.
func (c *compiler) regexp(expr string) (term, error) {
	seq, err := parseSequence(expr)
	if err != nil {
		return nothing, err
	}
	x, err := c.sequence(seq, plain)
	if err == nil && x == nothing {
		err = errors.New("no text matches it")
	}
	return x, err
}

// controlByte begins and ends the text of a control token in automata and tries. It is in no
// UTF-8, so other tokens with it are never permitted.
const controlByte = "\xff"

// controlText is how automata spell a control token.
func controlText(marker string) string { return controlByte + marker + controlByte }

// free returns the term of any text up to and including the first marker, or of any text
// without markers.
func (c *compiler) free(markers []string, until bool, notFirst []string) (term, error) {
	v := c.vocab
	key := fmt.Sprintf("%q %v %q", markers, until, notFirst)
	v.mu.Lock()
	a := v.free[key]
	v.mu.Unlock()
	if a == nil {
		var err error
		if a, err = v.freeText(markers, until, notFirst, &c.work); err != nil {
			return nothing, err
		}
		v.mu.Lock()
		if a != nil && len(v.free) < maxFree {
			a.shared = true
			v.free[key] = a
		}
		v.mu.Unlock()
	}
	return c.leaf(a)
}

// freeText returns the automaton of Structure.Until or Structure.Without.
func (v *Vocabulary) freeText(markers []string, until bool, notFirst []string, work *budget) (*automaton, error) {
	var patterns []string
	for _, m := range markers {
		if m == "" {
			return nil, errors.New("a marker is empty")
		}
		patterns = append(patterns, m)
		if until && v.markers[m] {
			patterns = append(patterns, controlText(m))
		}
	}
	a, err := search(patterns, until)
	if err != nil {
		return nil, err
	}
	characters, err := wholeCharacters()
	if err != nil {
		return nil, err
	}
	if a, err = intersect(a, characters, work); err != nil || a == nil || len(notFirst) == 0 {
		return a, err
	}
	first, err := beginsWith(notFirst)
	if err != nil {
		return nil, err
	}
	return minus(a, first, work)
}

// found is the state of search and beginsWith after a match.
const found = "\x00found"

// search returns the automaton of the texts that end with the first occurrence of a pattern,
// or of the texts without any. Its states are the beginnings of patterns that a text ends
// with.
func search(patterns []string, until bool) (*automaton, error) {
	begins := func(s string) bool {
		for _, p := range patterns {
			if strings.HasPrefix(p, s) {
				return true
			}
		}
		return false
	}
	return explore(patterns, func(s string, b byte) (string, bool) {
		if s == found {
			return "", false
		}
		control := strings.HasPrefix(s, controlByte) || b == controlByte[0]
		s += string([]byte{b})
		if control { // only a control token goes on so
			s = s[strings.Index(s, controlByte):]
			if slices.Contains(patterns, s) {
				return found, true
			}
			return s, begins(s)
		}
		for _, p := range patterns {
			if strings.HasSuffix(s, p) {
				return found, until
			}
		}
		for !begins(s) {
			s = s[1:]
		}
		return s, true
	}, func(s string) bool { return (s == found) == until && !strings.HasPrefix(s, controlByte) })
}

// wholeCharacters returns the automaton of UTF-8 with control tokens between characters. A
// control token inside of one would be given before the text of that character.
func wholeCharacters() (*automaton, error) {
	const control = "control"
	// The bytes that may follow in each state, and the state after them (Unicode standard,
	// table 3-7).
	next := map[string][]struct {
		lo, hi byte
		to     string
	}{
		"": {{0, 0x7f, ""}, {0xc2, 0xdf, "1"}, {0xe0, 0xe0, "e0"}, {0xe1, 0xec, "2"}, {0xed, 0xed, "ed"}, {0xee, 0xef, "2"},
			{0xf0, 0xf0, "f0"}, {0xf1, 0xf3, "3"}, {0xf4, 0xf4, "f4"}, {controlByte[0], controlByte[0], control}},
		"1": {{0x80, 0xbf, ""}}, "2": {{0x80, 0xbf, "1"}}, "3": {{0x80, 0xbf, "2"}},
		"e0": {{0xa0, 0xbf, "1"}}, "ed": {{0x80, 0x9f, "1"}}, "f0": {{0x90, 0xbf, "2"}}, "f4": {{0x80, 0x8f, "2"}},
		control: {{0, controlByte[0] - 1, control}, {controlByte[0], controlByte[0], ""}},
	}
	var borders []byte
	for _, ranges := range next {
		for _, r := range ranges {
			borders = append(borders, r.lo, r.hi)
		}
	}
	return explore([]string{string(borders)}, func(s string, b byte) (string, bool) {
		for _, r := range next[s] {
			if r.lo <= b && b <= r.hi {
				return r.to, true
			}
		}
		return "", false
	}, func(s string) bool { return s == "" })
}

// beginsWith returns the automaton of the texts that begin with one of the given ones, also
// after white space.
func beginsWith(texts []string) (*automaton, error) {
	const space = " \t\r\n"
	return explore(append([]string{space}, texts...), func(s string, b byte) (string, bool) {
		if s == found || s == "" && strings.IndexByte(space, b) >= 0 {
			return s, true
		}
		s += string([]byte{b})
		for _, t := range texts {
			if strings.HasPrefix(t, s) {
				if s == t {
					s = found
				}
				return s, true
			}
		}
		return "", false
	}, func(s string) bool { return s == found })
}

// explore returns the automaton that has strings as states and begins with "". Each byte of the texts, and
// controlByte, is a class of its own. step must treat the bytes between two of them alike.
func explore(texts []string, step func(s string, b byte) (string, bool), accept func(s string) bool) (*automaton, error) {
	a := &automaton{}
	var starts [257]bool
	alphabet := []byte(strings.Join(texts, "") + controlByte)
	for _, b := range alphabet {
		starts[b], starts[int(b)+1] = true, true
	}
	a.classesOf(&starts)
	var states []string
	names := map[string]int32{}
	add := func(s string) (int32, error) {
		if n, ok := names[s]; ok {
			return n, nil
		}
		n, err := a.grow(accept(s))
		names[s] = n
		states = append(states, s)
		return n, err
	}
	if _, err := add(""); err != nil {
		return nil, err
	}
	for n := 0; n < len(states); n++ {
		for b := range 256 {
			if b > 0 && a.class[b] == a.class[b-1] {
				continue
			}
			s, ok := step(states[n], byte(b))
			if !ok {
				continue
			}
			to, err := add(s)
			if err != nil {
				return nil, err
			}
			a.next[n*a.classes+int(a.class[b])] = to
		}
	}
	return a.trim(), nil
}
