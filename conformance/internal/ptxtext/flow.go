package ptxtext

import (
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Flow is the control-flow graph of a kernel's text.
type Flow struct {
	At   []Statement // per line; the zero Statement for a line without an instruction
	Next [][]int     // per line, the lines that may run next; len(At) is the end

	aligned map[string]int // log2 of the alignment of each pointer parameter
	Threads int            // per CTA, from .maxntid; 0 if unknown
}

var parameterForm = regexp.MustCompile(`^\t\.param \.u64 \.ptr \.global \.align (\d+) (\w+),?$`)

// FlowOf parses the lines of a kernel.
func FlowOf(lines []string) Flow {
	f := Flow{At: make([]Statement, len(lines)), Next: make([][]int, len(lines)), aligned: map[string]int{}}
	labels := map[string]int{}
	for i, line := range lines {
		f.At[i], _ = Parse(line)
		fmt.Sscanf(line, ".maxntid %d,", &f.Threads)
		if m := parameterForm.FindStringSubmatch(line); m != nil {
			n, _ := strconv.ParseUint(m[1], 10, 32)
			f.aligned[m[2]] = bits.TrailingZeros64(n)
		}
		if label, ok := strings.CutSuffix(line, ":"); ok {
			labels[label] = i
		}
	}
	for i, s := range f.At {
		switch {
		case s.Is("bra") && f.entersLoop(i): // the loop runs at least once
		case s.Is("bra"):
			f.Next[i] = append(f.Next[i], labels[s.Args[0]])
		case s.Is("ret"):
			f.Next[i] = append(f.Next[i], len(lines))
		}
		if s.Guard != "" || !s.Is("bra", "ret") {
			f.Next[i] = append(f.Next[i], i+1)
		}
	}
	return f
}

// entersLoop reports whether a branch is the first test of a loop counter that was just set
// to a constant other than 0.
func (f Flow) entersLoop(i int) bool {
	if i < 2 || !strings.HasPrefix(f.At[i].Guard, "@!") || !f.At[i-1].Is("setp.ne.u32") || f.At[i-1].Args[2] != "0" {
		return false
	}
	for j := i - 2; j >= 0 && f.At[j].Op != ""; j-- {
		if s := f.At[j]; slices.Contains(s.Writes(), f.At[i-1].Args[1]) {
			return s.Is("mov.b32") && s.Guard == "" && IsNumber(s.Args[1]) && s.Args[1] != "0"
		}
	}
	return false
}

// Live returns, for each line, the registers that may be read after it before they are
// written again.
func (f Flow) Live() []map[string]bool {
	before := make([]map[string]bool, len(f.At)+1)
	after := make([]map[string]bool, len(f.At))
	before[len(f.At)] = map[string]bool{}
	for i := range f.At {
		before[i], after[i] = map[string]bool{}, map[string]bool{}
	}
	for changed := true; changed; {
		changed = false
		for i := len(f.At) - 1; i >= 0; i-- {
			for _, n := range f.Next[i] {
				for reg := range before[n] {
					after[i][reg] = true
				}
			}
			count := len(before[i])
			overwritten := f.At[i].Writes()
			for reg := range after[i] {
				if f.At[i].Guard != "" || !slices.Contains(overwritten, reg) {
					before[i][reg] = true
				}
			}
			for _, reg := range f.At[i].Reads() {
				before[i][reg] = true
			}
			changed = changed || len(before[i]) != count
		}
	}
	return after
}

// Dead reports, for each line, whether no live instruction reads the registers that it
// writes.
func (f Flow) Dead() []bool {
	out := make([]bool, len(f.At))
	f.At = slices.Clone(f.At)
	for changed := true; changed; {
		changed = false
		after := f.Live()
		for i, s := range f.At {
			regs := s.Writes()
			if len(regs) > 0 && !s.Is("atom") && !slices.ContainsFunc(regs, func(reg string) bool { return after[i][reg] }) {
				out[i], f.At[i], changed = true, Statement{}, true
			}
		}
	}
	return out
}

// Definition returns the instruction that writes a register, if there is exactly one.
func (f Flow) Definition(reg string) (Statement, bool) {
	found, n := Statement{}, 0
	for _, s := range f.At {
		if slices.Contains(s.Writes(), reg) {
			found = s
			n++
		}
	}
	return found, n == 1
}

// TrailingZeros returns how many of the lowest bits of an operand are known to be 0.
func (f Flow) TrailingZeros(arg string) int {
	if n, err := strconv.ParseUint(arg, 10, 64); err == nil {
		return bits.TrailingZeros64(n)
	}
	s, ok := f.Definition(arg)
	if !ok {
		return 0
	}
	switch {
	case s.Is("mov", "cvt"):
		return f.TrailingZeros(s.Args[1])
	case s.Is("add", "sub", "min", "max"):
		return min(f.TrailingZeros(s.Args[1]), f.TrailingZeros(s.Args[2]))
	case s.Is("mul"):
		return f.TrailingZeros(s.Args[1]) + f.TrailingZeros(s.Args[2])
	case s.Is("mad"):
		return min(f.TrailingZeros(s.Args[1])+f.TrailingZeros(s.Args[2]), f.TrailingZeros(s.Args[3]))
	case s.Is("shl"):
		n, err := strconv.Atoi(s.Args[2])
		if err == nil {
			return n + f.TrailingZeros(s.Args[1])
		}
	case s.Is("ld.param"):
		return f.aligned[strings.Trim(s.Args[1], "[]")]
	}
	return 0
}

// UpperBound returns the largest value that a 32-bit operand can have, as far as thread
// indices and constants show it.
func (f Flow) UpperBound(arg string) uint64 {
	const any = 1<<32 - 1
	if n, err := strconv.ParseUint(arg, 10, 64); err == nil {
		return n
	}
	s, ok := f.Definition(arg)
	if !ok || len(s.Args) < 2 {
		return any
	}
	shift := func() int {
		n, err := strconv.Atoi(s.Args[2])
		if err != nil {
			return 0
		}
		return n
	}
	switch {
	case s.Is("mov") && s.Args[1] == "%tid.x" && f.Threads > 0:
		return uint64(f.Threads - 1)
	case s.Is("shr.u32"):
		return f.UpperBound(s.Args[1]) >> shift()
	case s.Is("shl.b32"):
		return min(any, f.UpperBound(s.Args[1])<<shift())
	case s.Is("and.b32"):
		most := min(f.UpperBound(s.Args[1]), f.UpperBound(s.Args[2]))
		if zeros := max(f.TrailingZeros(s.Args[1]), f.TrailingZeros(s.Args[2])); most>>zeros == 0 {
			return 0
		}
		return most
	case s.Is("add.u32"):
		return min(any, f.UpperBound(s.Args[1])+f.UpperBound(s.Args[2]))
	case s.Is("selp.b32"):
		return max(f.UpperBound(s.Args[1]), f.UpperBound(s.Args[2]))
	}
	return any
}

// IsWarps reports whether an operand is the number of warps of a CTA.
func (f Flow) IsWarps(arg string) bool {
	s, ok := f.Definition(arg)
	if !ok || !s.Is("shr.u32") || s.Args[2] != "5" {
		return false
	}
	threads, ok := f.Definition(s.Args[1])
	return ok && threads.Is("mov") && threads.Args[1] == "%ntid.x"
}

// Constant returns the value of a float32 operand that is known to be constant.
func (f Flow) Constant(arg string) (x float32, ok bool) {
	if digits, ok := strings.CutPrefix(arg, "0f"); ok {
		n, err := strconv.ParseUint(digits, 16, 32)
		return math.Float32frombits(uint32(n)), err == nil
	}
	s, ok := f.Definition(arg)
	switch {
	case ok && s.Is("mov"):
		return f.Constant(s.Args[1])
	case ok && s.Is("abs"):
		x, ok := f.Constant(s.Args[1])
		return max(x, -x), ok
	}
	return 0, false
}

// isVec4Index reports whether an operand is 4i for an i that is compared with ceil(n/4).
func (f Flow) isVec4Index(arg, n string) bool {
	s, ok := f.Definition(arg)
	if !ok || !s.Is("shl.b32") || s.Args[2] != "2" {
		return false
	}
	i := s.Args[1]
	return slices.ContainsFunc(f.At, func(c Statement) bool {
		if !c.Is("setp.lt.u32", "setp.ge.u32") || c.Args[1] != i {
			return false
		}
		ceil, _ := f.Definition(c.Args[2])
		if !ceil.Is("shr.u32") || ceil.Args[2] != "2" {
			return false
		}
		sum, _ := f.Definition(ceil.Args[1])
		return sum.Is("add.u32") && sum.Args[1] == n && sum.Args[2] == "3"
	})
}

// Below reports whether a branch on a < n precedes a line on each path to it, with no change
// of a or n between them. The comparison must be right before the branch. It may compare a
// register that is copied to a right before it. If a is 0, it may compare any register, anywhere.
func (f Flow) Below(line int, a, n string) bool {
	before := f.Previous()
	seen, todo := map[int]bool{line: true}, []int{line}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if len(before[i]) == 0 {
			return false
		}
		for _, m := range before[i] {
			if f.shows(m, i, a, n) || seen[m] {
				continue
			}
			if w := f.At[m].Writes(); slices.Contains(w, a) || slices.Contains(w, n) {
				return false
			}
			seen[m] = true
			todo = append(todo, m)
		}
	}
	return true
}

// shows reports whether the step from a branch to another line shows that a < n.
func (f Flow) shows(branch, to int, a, n string) bool {
	if branch < 2 || !f.At[branch].Is("bra") || f.At[branch].Guard == "" {
		return false
	}
	p, test, copied := strings.TrimSpace(f.At[branch].Guard), f.At[branch-1], f.At[branch-2]
	if taken := to != branch+1; taken != !strings.HasPrefix(p, "@!") {
		return false
	}
	p = strings.TrimLeft(p, "@!")
	if a == "0" {
		test, once := f.Definition(p)
		_, fixed := f.Definition(n)
		return once && fixed && test.Is("setp.lt.u32") && test.Args[2] == n
	}
	if !test.Is("setp.lt.u32") || test.Written() != p || test.Args[2] != n {
		return false
	}
	return test.Args[1] == a || copied.Is("mov.b32") && copied.Guard == "" && copied.Args[0] == a && copied.Args[1] == test.Args[1]
}

// IsVec4Bound reports whether a comparison is 4i < n for an i that is compared with
// ceil(n/4).
func (f Flow) IsVec4Bound(s Statement) bool {
	return s.Is("setp.lt.u32") && f.isVec4Index(s.Args[1], s.Args[2])
}

// AlwaysTrue reports whether a predicate is known to hold: a test of an aligned address, of
// four remaining elements in a row of whole vec4, or of one in any row.
func (f Flow) AlwaysTrue(p string) bool {
	s, ok := f.Definition(p)
	switch {
	case !ok:
		return false
	case s.Is("and.pred"):
		return f.AlwaysTrue(s.Args[1]) && f.AlwaysTrue(s.Args[2])
	case s.Is("setp.eq.u32") && s.Args[2] == "0":
		mask, _ := f.Definition(s.Args[1])
		if !mask.Is("and") {
			return false
		}
		n, err := strconv.ParseUint(mask.Args[2], 10, 32)
		return err == nil && bits.Len64(n) <= f.TrailingZeros(mask.Args[1])
	case s.Is("setp.gt.u32") && s.Args[2] == "0":
		rest, _ := f.Definition(s.Args[1])
		return rest.Is("sub.u32") && f.isVec4Rest(rest)
	case s.Is("setp.ge.u32") && s.Args[2] == "4":
		rest, _ := f.Definition(s.Args[1])
		if !rest.Is("sub.u32") || f.TrailingZeros(rest.Args[1]) < 2 {
			return false
		}
		return f.isVec4Rest(rest)
	}
	return false
}

// isVec4Rest reports whether a difference is n - min(4i, n) for an i that is compared with
// ceil(n/4).
func (f Flow) isVec4Rest(rest Statement) bool {
	least, _ := f.Definition(rest.Args[2])
	n := rest.Args[1]
	return least.Is("min.u32") && (least.Args[1] == n && f.isVec4Index(least.Args[2], n) || least.Args[2] == n && f.isVec4Index(least.Args[1], n))
}

// IsNumber reports whether an operand is a constant and not a register.
func IsNumber(arg string) bool { return arg[0] != '%' }

// Controls returns the branches and selections that depend on the result of a line through
// integer and predicate arithmetic, or nil if the result has another use.
func (f Flow) Controls(line int) []int {
	var branches []int
	regs := map[string]bool{}
	var follow func(reg string) bool
	follow = func(reg string) bool {
		if regs[reg] {
			return true
		}
		regs[reg] = true
		for i, s := range f.At {
			if !slices.Contains(s.Reads(), reg) {
				continue
			}
			guards := strings.Contains(s.Guard, reg+" ")
			switch {
			case s.Is("bra", "ret") && guards, s.Is("selp") && s.Args[3] == reg && (!IsNumber(s.Args[1]) || s.Is("selp.f32")):
				branches = append(branches, i)
			case guards || len(s.Writes()) != 1 || !s.Is("setp", "and", "or", "not", "xor", "cvt", "sub", "add", "shr", "shl", "min", "max", "selp", "mov.b32", "vote"):
				return false
			case !follow(s.Writes()[0]):
				return false
			}
		}
		return true
	}
	for _, reg := range f.At[line].Writes() {
		if !follow(reg) {
			return nil
		}
	}
	slices.Sort(branches)
	return slices.Compact(branches)
}

// Readers returns the instructions that read a register or a copy of it.
func (f Flow) Readers(reg string) []Statement {
	var list []Statement
	seen := map[string]bool{reg: true}
	for todo := []string{reg}; len(todo) > 0; todo = todo[1:] {
		for _, s := range f.At {
			switch to := s.Written(); {
			case !slices.Contains(s.Reads(), todo[0]):
			case s.Is("mov") && !seen[to]:
				seen[to] = true
				todo = append(todo, to)
			case !s.Is("mov"):
				list = append(list, s)
			}
		}
	}
	return list
}
