package tokenizer

import (
	"fmt"
	"math"
	"regexp/syntax"
	"slices"
	"sort"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// expression is a regular expression, compiled to a deterministic automaton. Of several
// alternatives that match, the first one wins and not the longest, as in a backtracking
// engine (R. Cox, "Regular Expression Matching in the Wild", 2010).
//
// The syntax is that of package regexp/syntax with two additions that the expressions of
// published tokenizers need: \s is all white space of Unicode, and there is (?!\S). Bytes
// that are not UTF-8 count as U+FFFD.
type expression struct {
	ascii   [utf8.RuneSelf]uint8 // class of each ASCII character
	starts  []rune               // first character of each range of one class, sorted
	classes []uint8              // [len(starts)]
	end     uint8                // the last class: the end of the text
	edges   []edge               // [state][class]
}

// edge is what a state does with a character.
type edge struct {
	to    uint16
	match bool // the text before this character is a match
}

// The first two states.
const (
	deadState  = iota // no match can follow
	startState        // nothing has been read
)

// whiteSpace is the Unicode property White_Space, written for a bracket expression.
const whiteSpace = `\t-\r\x{85}\pZ`

// matching returns a splitter by an expression, which it compiles on first use.
func matching(expr string) splitter {
	x := sync.OnceValue(func() *expression { return compile(expr) })
	return func(text string) int { return x().split(text) }
}

// compile panics if the expression is not valid.
func compile(expr string) *expression {
	prog, err := parse(expr)
	if err != nil {
		panic(fmt.Sprintf("tokenizer: expression %s: %v", expr, err))
	}
	x := &expression{}
	x.addStates(prog, x.addClasses(prog))
	return x
}

// parse returns the program of an expression. The assertion \B of the program means (?!\S).
func parse(expr string) (*syntax.Prog, error) {
	tree, err := syntax.Parse(spellSpaces(strings.ReplaceAll(expr, `(?!\S)`, `\B`)), syntax.Perl)
	if err != nil {
		return nil, err
	}
	return syntax.Compile(tree.Simplify())
}

// spellSpaces replaces each \s by the characters that it stands for.
func spellSpaces(expr string) string {
	var b strings.Builder
	inBrackets := false
	for i := 0; i < len(expr); i++ {
		switch {
		case strings.HasPrefix(expr[i:], `\s`) && inBrackets:
			b.WriteString(whiteSpace)
			i++
		case strings.HasPrefix(expr[i:], `\s`):
			b.WriteString("[" + whiteSpace + "]")
			i++
		case expr[i] == '\\' && i+1 < len(expr):
			b.WriteString(expr[i : i+2])
			i++
		default:
			inBrackets = expr[i] == '[' || inBrackets && expr[i] != ']'
			b.WriteByte(expr[i])
		}
	}
	return b.String()
}

// addClasses divides the characters into classes that prog does not tell apart. It returns
// one character of each class.
func (x *expression) addClasses(prog *syntax.Prog) (examples []rune) {
	var reads []*syntax.Inst // instructions that read a character
	starts := []rune{0}
	add := func(first, last rune) { starts = append(starts, first, last+1) }
	for i := range prog.Inst {
		inst := &prog.Inst[i]
		switch inst.Op {
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			reads = append(reads, inst)
		default:
			continue
		}
		if len(inst.Rune) == 1 { // with the flag FoldCase also its other cases
			r := inst.Rune[0]
			for add(r, r); unicode.SimpleFold(r) != inst.Rune[0]; add(r, r) {
				r = unicode.SimpleFold(r)
			}
			continue
		}
		for j := 0; j < len(inst.Rune); j += 2 {
			add(inst.Rune[j], inst.Rune[j+1])
		}
	}
	for r := range rune(0x3001) { // the last white space is U+3000
		if unicode.IsSpace(r) {
			add(r, r)
		}
	}
	slices.Sort(starts)
	known := map[string]uint8{}
	var key []byte // which instructions match
	for _, r := range slices.Compact(starts) {
		key = fmt.Append(key[:0], unicode.IsSpace(r))
		for _, inst := range reads {
			key = append(key, '0')
			if inst.MatchRune(r) {
				key[len(key)-1] = '1'
			}
		}
		class, ok := known[string(key)]
		if !ok {
			class = uint8(len(examples))
			known[string(key)] = class
			examples = append(examples, r)
		}
		x.starts, x.classes = append(x.starts, r), append(x.classes, class)
	}
	if len(examples) > math.MaxUint8 {
		panic(fmt.Sprintf("tokenizer: an expression has %d classes of characters, more than %d", len(examples), math.MaxUint8))
	}
	x.end = uint8(len(examples))
	for c := range x.ascii {
		x.ascii[c] = x.classOf(rune(c))
	}
	return examples
}

// classOf returns the class of a character.
func (x *expression) classOf(r rune) uint8 {
	return x.classes[sort.Search(len(x.starts), func(i int) bool { return x.starts[i] > r })-1]
}

// addStates makes the states that can be reached. A state is a list of program counters in order of priority.
func (x *expression) addStates(prog *syntax.Prog, examples []rune) {
	lists := [][]uint32{deadState: nil, startState: {uint32(prog.Start)}}
	known := map[string]uint16{"[]": deadState, fmt.Sprint(lists[startState]): startState}
	for state := 0; state < len(lists); state++ {
		for class := range int(x.end) + 1 {
			t := threads{prog: prog, seen: make([]bool, len(prog.Inst)), atEnd: class == int(x.end)}
			if !t.atEnd {
				t.char = examples[class]
			}
			for _, pc := range lists[state] {
				if t.match {
					break // what follows has a lower priority
				}
				t.follow(pc)
			}
			key := fmt.Sprint(t.next)
			to, ok := known[key]
			if !ok {
				if len(lists) > math.MaxUint16 {
					panic(fmt.Sprintf("tokenizer: an expression has more than %d states", math.MaxUint16))
				}
				to = uint16(len(lists))
				known[key] = to
				lists = append(lists, t.next)
			}
			x.edges = append(x.edges, edge{to: to, match: t.match})
		}
	}
}

// threads runs the alternatives of a state until each has read the next character.
type threads struct {
	prog  *syntax.Prog
	seen  []bool // [instruction]
	atEnd bool
	char  rune     // the next character, unless atEnd is set
	match bool     // an alternative matches before the character
	next  []uint32 // program counters after the character by priority, those above the match
}

// follow runs the alternative at an instruction, and those that branch off from it.
func (t *threads) follow(pc uint32) {
	if t.seen[pc] || t.match {
		return
	}
	t.seen[pc] = true
	switch inst := &t.prog.Inst[pc]; inst.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		t.follow(inst.Out)
		t.follow(inst.Arg)
	case syntax.InstNop, syntax.InstCapture:
		t.follow(inst.Out)
	case syntax.InstEmptyWidth:
		if syntax.EmptyOp(inst.Arg) != syntax.EmptyNoWordBoundary {
			panic(`tokenizer: the only assertion is (?!\S)`)
		}
		if t.atEnd || unicode.IsSpace(t.char) {
			t.follow(inst.Out)
		}
	case syntax.InstMatch:
		t.match = true
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		if !t.atEnd && inst.MatchRune(t.char) && !slices.Contains(t.next, inst.Out) {
			t.next = append(t.next, inst.Out)
		}
	}
}

// match returns the length of the match at the start of text, or 0.
func (x *expression) match(text string) int {
	width := int(x.end) + 1
	length := 0
	for state, i := startState, 0; state != deadState; {
		class, size := x.end, 0
		if i < len(text) {
			if c := text[i]; c < utf8.RuneSelf {
				class, size = x.ascii[c], 1
			} else {
				var r rune
				r, size = utf8.DecodeRuneInString(text[i:])
				class = x.classOf(r)
			}
		}
		e := x.edges[state*width+int(class)]
		if e.match {
			length = i
		}
		state = int(e.to)
		i += size
	}
	return length
}

// split is a splitter.
func (x *expression) split(text string) int {
	if n := x.match(text); n > 0 {
		return n
	}
	for i := range text {
		if i > 0 && x.match(text[i:]) > 0 {
			return i
		}
	}
	return len(text)
}
