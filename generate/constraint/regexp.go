package constraint

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// encoding says how the characters of a text are spelled in bytes.
type encoding int

const (
	plain  encoding = iota // UTF-8
	quoted                 // inside a JSON string, each character with one spelling
)

const (
	maxExpr  = 8 << 10 // bytes of a regular expression
	maxEdges = 400_000 // byte ranges of its nondeterministic automaton
)

// edge leads to node to by the bytes from lo to hi.
type edge struct {
	lo, hi byte
	to     int32
}

// nfa is a nondeterministic automaton over bytes: a program of package regexp/syntax whose
// rune instructions have edges, and nodes after it between the bytes of a character.
type nfa struct {
	prog  *syntax.Prog
	enc   encoding
	edges [][]edge // [node]
	count int      // of edges
	tails map[edge]int32
}

// checkExpr returns an error if expr is too long or is not a regular expression.
func checkExpr(expr string) error {
	if len(expr) > maxExpr {
		return limitError{"bytes", maxExpr}
	}
	_, err := syntax.Parse(expr, syntax.Perl)
	return err
}

// compileExpr returns the automaton of the texts that expr matches as a whole, or nil if
// there are none. The syntax is that of package regexp, without word boundaries and
// without ^ and $ for lines.
func compileExpr(expr string, enc encoding, work *budget) (*automaton, error) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	return compileTree(re, enc, work)
}

func compileTree(re *syntax.Regexp, enc encoding, work *budget) (*automaton, error) {
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	n := &nfa{prog: prog, enc: enc, edges: make([][]edge, len(prog.Inst)), tails: map[edge]int32{}}
	for pc := range prog.Inst {
		if err := n.instruction(int32(pc)); err != nil {
			return nil, err
		}
	}
	if err := work.spend(n.count + len(prog.Inst)); err != nil {
		return nil, err
	}
	return n.determinize(work)
}

// part is an automaton that is repeated from min to max times.
type part struct {
	automaton *automaton
	min, max  int32
}

// manyTimes is the count from which a repetition is counted while a text is matched,
// instead of by states of an automaton.
const manyTimes = 16

// sequence is a regular expression as the parts that follow each other.
type sequence struct {
	whole    *syntax.Regexp
	parts    []*syntax.Regexp // without ^ at the beginning and $ at the end
	anchored bool             // both are there
	counted  bool             // a part is a repetition with a large count, and none has an anchor
}

func parseSequence(expr string) (sequence, error) {
	if err := checkExpr(expr); err != nil {
		return sequence{}, err
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return sequence{}, err
	}
	s := sequence{whole: re, parts: []*syntax.Regexp{re}}
	if re.Op == syntax.OpConcat {
		s.parts = re.Sub
	}
	begins := len(s.parts) > 0 && s.parts[0].Op == syntax.OpBeginText
	if begins {
		s.parts = s.parts[1:]
	}
	last := len(s.parts) - 1
	ends := last >= 0 && s.parts[last].Op == syntax.OpEndText
	if ends {
		s.parts = s.parts[:last]
	}
	s.anchored = begins && ends
	s.counted = slices.ContainsFunc(s.parts, counted) && !slices.ContainsFunc(s.parts, anchors)
	return s, nil
}

// compile returns the automata of an expression that matches the whole text. If the
// sequence is counted, each repetition with a large count is a part of its own.
func (s sequence) compile(enc encoding, work *budget) ([]part, error) {
	whole := func() ([]part, error) {
		a, err := compileTree(s.whole, enc, work)
		return []part{{a, 1, 1}}, err
	}
	if !s.counted {
		return whole()
	}
	var parts []part
	var between []*syntax.Regexp // since the last counted repetition
	flush := func() error {
		if len(between) == 0 {
			return nil
		}
		a, err := compileTree(&syntax.Regexp{Op: syntax.OpConcat, Sub: between}, enc, work)
		parts, between = append(parts, part{a, 1, 1}), nil
		return err
	}
	for _, sub := range s.parts {
		if !counted(sub) {
			between = append(between, sub)
			continue
		}
		if err := flush(); err != nil {
			return nil, err
		}
		sub = uncaptured(sub)
		a, err := compileTree(sub.Sub[0], enc, work)
		if err != nil {
			return nil, err
		}
		if a != nil && a.accept[0] { // repeating the empty text is nothing to count
			return whole()
		}
		parts = append(parts, part{a, int32(sub.Min), int32(sub.Max)})
	}
	return parts, flush()
}

// uncaptured returns re without parentheses around it.
func uncaptured(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	return re
}

// counted reports whether re is a repetition with a large count.
func counted(re *syntax.Regexp) bool {
	re = uncaptured(re)
	return re.Op == syntax.OpRepeat && max(re.Min, re.Max) >= manyTimes
}

// anchors reports whether re has a part that matches a place and no text.
func anchors(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	return slices.ContainsFunc(re.Sub, anchors)
}

// instruction adds the edges of the instruction at pc.
func (n *nfa) instruction(pc int32) error {
	in := &n.prog.Inst[pc]
	var err error
	switch in.Op {
	case syntax.InstEmptyWidth:
		if op := syntax.EmptyOp(in.Arg); op&^(syntax.EmptyBeginText|syntax.EmptyEndText) != 0 {
			err = errors.New(`\b, \B and ^ or $ for lines are not supported`)
		}
	case syntax.InstRuneAny:
		err = n.runes(pc, 0, unicode.MaxRune)
	case syntax.InstRuneAnyNotNL:
		if err = n.runes(pc, 0, '\n'-1); err == nil {
			err = n.runes(pc, '\n'+1, unicode.MaxRune)
		}
	case syntax.InstRune, syntax.InstRune1:
		if len(in.Rune) == 1 {
			r := in.Rune[0]
			err = n.runes(pc, r, r)
			if syntax.Flags(in.Arg)&syntax.FoldCase != 0 {
				for f := unicode.SimpleFold(r); f != r && err == nil; f = unicode.SimpleFold(f) {
					err = n.runes(pc, f, f)
				}
			}
			break
		}
		for i := 0; i+1 < len(in.Rune) && err == nil; i += 2 {
			err = n.runes(pc, in.Rune[i], in.Rune[i+1])
		}
	}
	return err
}

// runes adds the edges of the characters from lo to hi.
func (n *nfa) runes(pc int32, lo, hi rune) error {
	if n.enc == plain {
		return n.utf8(pc, lo, hi)
	}
	for lo <= hi {
		r := lo
		if e := escape(r); e != "" {
			seq := make([]edge, len(e))
			for i := range e {
				seq[i] = edge{lo: e[i], hi: e[i]}
			}
			if err := n.chain(pc, seq); err != nil {
				return err
			}
			lo++
			continue
		}
		switch { // the characters up to the next that is escaped
		case r < '"':
			r = min(hi, '"'-1)
		case r < '\\':
			r = min(hi, '\\'-1)
		default:
			r = hi
		}
		if err := n.utf8(pc, lo, r); err != nil {
			return err
		}
		lo = r + 1
	}
	return nil
}

// escape returns how a character is written in a JSON string if it cannot be written as
// itself, or "".
func escape(r rune) string {
	switch r {
	case '"', '\\':
		return `\` + string(r)
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < 0x20 {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return ""
}

// utf8 adds the edges of the UTF-8 of the characters from lo to hi, which it splits until
// each part is a product of byte ranges. Surrogates have no UTF-8.
func (n *nfa) utf8(pc int32, lo, hi rune) error {
	if lo > hi {
		return nil
	}
	split := func(at rune) error { // at is the last of the first part
		if err := n.utf8(pc, lo, at); err != nil {
			return err
		}
		return n.utf8(pc, at+1, hi)
	}
	if lo <= 0xDFFF && hi >= 0xD800 {
		if err := n.utf8(pc, lo, 0xD7FF); err != nil {
			return err
		}
		return n.utf8(pc, 0xE000, hi)
	}
	for _, last := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if lo <= last && last < hi {
			return split(last)
		}
	}
	for i := 1; i < utf8.RuneLen(lo); i++ {
		low := rune(1)<<(6*i) - 1 // bits of the last i bytes
		if lo&^low == hi&^low {
			continue
		}
		if lo&low != 0 {
			return split(lo | low)
		}
		if hi&low != low {
			return split(hi&^low - 1)
		}
	}
	first, last := utf8.AppendRune(nil, lo), utf8.AppendRune(nil, hi)
	seq := make([]edge, len(first))
	for i := range first {
		seq[i] = edge{lo: first[i], hi: last[i]}
	}
	return n.chain(pc, seq)
}

// chain adds a path from the instruction at pc to the next one. Paths share their tails.
func (n *nfa) chain(pc int32, seq []edge) error {
	to := int32(n.prog.Inst[pc].Out)
	for i := len(seq) - 1; i > 0; i-- {
		seq[i].to = to
		node, ok := n.tails[seq[i]]
		if !ok {
			node = int32(len(n.edges))
			n.edges = append(n.edges, []edge{seq[i]})
			n.tails[seq[i]] = node
			n.count++
		}
		to = node
	}
	seq[0].to = to
	n.edges[pc] = append(n.edges[pc], seq[0])
	if n.count++; n.count > maxEdges {
		return limitError{"byte ranges", maxEdges}
	}
	return nil
}

// closure collects the nodes that are reachable without a byte.
//
// An item is 2*node, or 2*node+1 after $: no byte may follow it.
type closure struct {
	n      *nfa
	work   int
	mark   []int32 // [item]: the closure that reached it last
	serial int32
	stack  []int32
	set    []int32 // nodes with edges
	accept bool
}

func (c *closure) reset() {
	c.serial++
	c.set, c.accept = nil, false
}

// add follows the empty edges from an item.
func (c *closure) add(item int32, atStart bool) {
	push := func(node uint32, end int32) {
		i := int32(node)<<1 | end
		if c.mark[i] != c.serial {
			c.mark[i] = c.serial
			c.stack = append(c.stack, i)
		}
	}
	push(uint32(item>>1), item&1)
	for len(c.stack) > 0 {
		i := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		node, end := i>>1, i&1
		c.work++
		if int(node) >= len(c.n.prog.Inst) {
			c.set = append(c.set, node)
			continue
		}
		in := &c.n.prog.Inst[node]
		switch in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			push(in.Out, end)
			push(in.Arg, end)
		case syntax.InstCapture, syntax.InstNop:
			push(in.Out, end)
		case syntax.InstEmptyWidth:
			op := syntax.EmptyOp(in.Arg)
			if op&syntax.EmptyEndText != 0 {
				end = 1
			}
			if op&syntax.EmptyBeginText == 0 || atStart {
				push(in.Out, end)
			}
		case syntax.InstMatch:
			c.accept = true
		case syntax.InstFail:
		default:
			if end == 0 {
				c.set = append(c.set, node)
			}
		}
	}
}

// determinize is the subset construction.
func (n *nfa) determinize(work *budget) (*automaton, error) {
	a := &automaton{}
	var starts [257]bool
	for _, edges := range n.edges {
		for _, e := range edges {
			starts[e.lo], starts[int(e.hi)+1] = true, true
		}
	}
	a.classesOf(&starts)
	c := &closure{n: n, mark: make([]int32, 2*len(n.edges))}
	names := map[string]int32{}
	var sets [][]int32
	add := func() (int32, error) {
		slices.Sort(c.set)
		key := setKey(c.set, c.accept)
		if s, ok := names[key]; ok {
			return s, nil
		}
		s, err := a.grow(c.accept)
		if err != nil {
			return 0, err
		}
		names[key] = s
		sets = append(sets, c.set)
		return s, nil
	}
	c.reset()
	c.add(int32(n.prog.Start)<<1, true)
	if _, err := add(); err != nil {
		return nil, err
	}
	targets := make([][]int32, a.classes)
	for s := 0; s < len(sets); s++ {
		for i := range targets {
			targets[i] = targets[i][:0]
		}
		for _, node := range sets[s] {
			for _, e := range n.edges[node] {
				for k := a.class[e.lo]; ; k++ {
					targets[k] = append(targets[k], e.to)
					c.work++
					if k == a.class[e.hi] {
						break
					}
				}
			}
		}
		for k, nodes := range targets {
			if len(nodes) == 0 {
				continue
			}
			c.reset()
			for _, node := range nodes {
				c.add(node<<1, false)
			}
			if err := work.spend(c.work + len(c.set)); err != nil {
				return nil, err
			}
			c.work = 0
			to, err := add()
			if err != nil {
				return nil, err
			}
			a.next[s*a.classes+k] = to
		}
	}
	return a.trim(), nil
}
