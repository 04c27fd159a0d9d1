package mutate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
)

// mutator makes the variants of an instruction. The zero Statement removes the instruction.
type mutator struct {
	name string
	make func(s ptxtext.Statement) []ptxtext.Statement
}

var mutators = []mutator{
	{"operation", otherOperation},
	{"comparison", otherComparison},
	{"constant", otherConstant},
	{"float constant", otherFloat},
	{"offset", otherOffset},
	{"order of a vector", otherOrder},
	{"operands", otherOperands},
	{LeaveOutSync, func(s ptxtext.Statement) []ptxtext.Statement {
		if s.Is("fence.mbarrier_init") { // it orders memory for the copy engine, which the emulator does not model
			return nil
		}
		return leftOut(s, "bar", "cp.async.wait_group", "cp.async.commit_group", "fence", "mbarrier", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group")
	}},
	{"store left out", func(s ptxtext.Statement) []ptxtext.Statement {
		return leftOut(s, "st", "red", "cp.async.cg", "cp.async.ca")
	}},
	{"return left out", func(s ptxtext.Statement) []ptxtext.Statement {
		if s.Guard == "" { // the end of the text returns too
			return nil
		}
		return leftOut(s, "ret")
	}},
	{"guard", otherGuard},
	{"special register", otherSpecial},
	{"matrix", otherMatrix},
	{"named barrier", otherBarrier},
	{"registers", otherRegisters},
}

// LeaveOutSync names the mutator that removes barriers, fences and waits.
const LeaveOutSync = "synchronization left out"

// opSwaps replaces parts of an opcode.
var opSwaps = [][2]string{
	{"add.", "sub."}, {"sub.", "add."}, {"mul.rn.", "add.rn."}, {"min.", "max."}, {"max.", "min."}, {"and.b", "or.b"}, {"or.b", "and.b"},
	{"xor.b", "and.b"}, {"shl.b32", "shr.u32"}, {"shr.u32", "shl.b32"}, {"shr.s32", "shr.u32"}, {".bfly.", ".down."}, {".any.", ".all."},
	{".all.", ".any."}, {"bfe.s32", "bfe.u32"}, {"neg.f32", "mov.f32"}, {"abs.f32", "mov.f32"}, {"ex2.", "lg2."}, {"rcp.rn.", "sqrt.rn."},
	{".u8", ".s8"}, {".s8", ".u8"}, {"dp4a.s32", "dp4a.u32"}, {"and.pred", "or.pred"}, {"or.pred", "and.pred"}, {"not.pred", "mov.pred"},
	{".trans.", "."}, {"mad.lo.u32", "mul.lo.u32"}, {"cvt.rni.", "cvt.rzi."},
}

var weakerOrder = strings.NewReplacer(".acquire.", ".relaxed.", ".release.", ".relaxed.")

func otherOperation(s ptxtext.Statement) []ptxtext.Statement {
	var all []ptxtext.Statement
	if weaker := weakerOrder.Replace(s.Op); weaker != s.Op && s.Is("ld", "st", "red", "atom") {
		all = append(all, s.WithOp(weaker))
	}
	if s.Is("st", "red", "atom") { // their types are only sizes
		return all
	}
	for _, swap := range opSwaps {
		op := strings.Replace(s.Op, swap[0], swap[1], 1)
		if op == s.Op || swap[0][0] != '.' && !strings.HasPrefix(s.Op, swap[0]) {
			continue
		}
		next := s.WithOp(op)
		if s.Is("mad") {
			next.Args = s.Args[:3]
		}
		all = append(all, next)
	}
	return all
}

var nearComparisons = map[string]string{
	"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq", "neu": "eq", "nan": "num",
}

func otherComparison(s ptxtext.Statement) []ptxtext.Statement {
	if !s.Is("setp") {
		return nil
	}
	parts := strings.SplitN(s.Op, ".", 3)
	return []ptxtext.Statement{s.WithOp(strings.Join([]string{parts[0], nearComparisons[parts[1]], parts[2]}, "."))}
}

// otherConstant changes each integer constant: masks lose their lowest bit, field lengths
// shrink by one, and other constants grow by one.
func otherConstant(s ptxtext.Statement) []ptxtext.Statement {
	var all []ptxtext.Statement
	for i, arg := range s.Args {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || i == 0 && s.Written() != "" || s.Is("bar", "bra", "setmaxnreg") {
			continue
		}
		switch {
		case s.Is("wgmma.mma_async"): // see otherMatrix
			continue
		case s.Is("and"):
			n &= n - 1
		case s.Is("bfe", "bfi") && i == len(s.Args)-1:
			n--
		case s.Is("lop3") && i < 4 && !lop3Reads(s.Args[4], i-1):
			continue
		case s.Is("selp") && n%16 == 0 && i == 2 && s.Args[1] == "16":
			n += 4 // the byte count of a copy: 4 bytes, since the error of a smaller change may be within bounds
		case n == 1<<32-1:
			n-- // no 32-bit register holds more
		case s.Is("cp", "vote", "redux") || s.Is("shfl") && i > 2: // sizes and lane masks
			continue
		default:
			n++
		}
		all = append(all, s.WithArg(i, strconv.FormatUint(n, 10)))
	}
	return all
}

// lop3Reads reports whether a truth table depends on an operand, counted from 0.
func lop3Reads(table string, operand int) bool {
	n, _ := strconv.ParseUint(table, 10, 8)
	shift := 4 >> operand // the operand's weight in an index of the table
	for i := range 8 {
		if n>>i&1 != n>>(i^shift)&1 {
			return true
		}
	}
	return false
}

// otherFloat doubles each float constant, and replaces 0 by 1.
func otherFloat(s ptxtext.Statement) []ptxtext.Statement {
	var all []ptxtext.Statement
	for i, arg := range s.Args {
		if digits, ok := strings.CutPrefix(arg, "0f"); ok {
			n, _ := strconv.ParseUint(digits, 16, 32)
			if n&0x7fffffff == 0 {
				n |= 0x3f800000
			} else {
				n ^= 0x00800000
			}
			all = append(all, s.WithArg(i, fmt.Sprintf("0f%08X", n)))
		}
		if digits, ok := strings.CutPrefix(arg, "0d"); ok {
			n, _ := strconv.ParseUint(digits, 16, 64)
			all = append(all, s.WithArg(i, fmt.Sprintf("0d%016X", n^0x0010000000000000)))
		}
	}
	return all
}

var addressForm = regexp.MustCompile(`^\[(%[rd]\d+)([+-]\d+)?\]$`)

// accessBytes returns how many bytes an access moves.
func accessBytes(op string) int64 {
	size := int64(4)
	for suffix, n := range map[string]int64{"8": 1, "16": 2, "64": 8} {
		if strings.HasSuffix(op, suffix) && !strings.Contains(op, "shared.global") {
			size = n
		}
	}
	switch {
	case strings.Contains(op, ".v2."):
		return 2 * size
	case strings.Contains(op, ".v4."):
		return 4 * size
	case strings.HasPrefix(op, "cp.async"), strings.HasPrefix(op, "ldmatrix"):
		return 16
	}
	return size
}

// otherOffset moves each address on by one element.
func otherOffset(s ptxtext.Statement) []ptxtext.Statement {
	var all []ptxtext.Statement
	for i, arg := range s.Args {
		if m := addressForm.FindStringSubmatch(arg); m != nil && !s.Is("prefetch") { // its address changes only the speed
			off, _ := strconv.ParseInt(m[2], 10, 64)
			all = append(all, s.WithArg(i, fmt.Sprintf("[%s%+d]", m[1], off+accessBytes(s.Op))))
		}
	}
	return all
}

// otherOrder exchanges the first two registers of a vector.
func otherOrder(s ptxtext.Statement) []ptxtext.Statement {
	var all []ptxtext.Statement
	for i, arg := range s.Args {
		inner, ok := strings.CutPrefix(arg, "{")
		if !ok {
			continue
		}
		regs := strings.Split(strings.TrimSuffix(inner, "}"), ", ")
		if len(regs) < 2 || regs[0] == regs[1] {
			continue
		}
		regs[0], regs[1] = regs[1], regs[0]
		all = append(all, s.WithArg(i, "{"+strings.Join(regs, ", ")+"}"))
	}
	return all
}

// otherOperands exchanges two operands whose order matters.
func otherOperands(s ptxtext.Statement) []ptxtext.Statement {
	i, j := 0, 0
	switch {
	case s.Is("shl.b64", "shr.u64"): // their shift has another type
	case s.Is("sub", "div", "rem", "shl", "shr", "selp", "prmt", "cvt.rn.f16x2", "cvt.rn.bf16x2") && len(s.Args) > 2:
		i, j = 1, 2
	case s.Is("fma", "mad.lo"):
		i, j = 1, 3
	}
	if i == j || s.Args[i] == s.Args[j] {
		return nil
	}
	return []ptxtext.Statement{s.WithArg(i, s.Args[j]).WithArg(j, s.Args[i])}
}

func leftOut(s ptxtext.Statement, names ...string) []ptxtext.Statement {
	if !s.Is(names...) {
		return nil
	}
	return []ptxtext.Statement{{}}
}

// otherGuard negates the guard, and removes it.
func otherGuard(s ptxtext.Statement) []ptxtext.Statement {
	turned := s
	switch {
	case s.Guard == "":
		return nil
	case strings.HasPrefix(s.Guard, "@!"):
		turned.Guard = "@" + s.Guard[2:]
	default:
		turned.Guard = "@!" + s.Guard[1:]
	}
	if s.Is("bra") { // without a guard, a backward branch loops forever and a forward branch skips code
		return []ptxtext.Statement{turned}
	}
	without := s
	without.Guard = ""
	return []ptxtext.Statement{turned, without}
}

func otherSpecial(s ptxtext.Statement) []ptxtext.Statement {
	swap := map[string]string{
		"%tid.x": "%ctaid.x", "%ctaid.x": "%tid.x", "%ctaid.y": "%tid.x", "%ctaid.z": "%tid.x", "%nctaid.x": "%ntid.x", "%nctaid.y": "%ntid.x",
	}
	if len(s.Args) < 2 || swap[s.Args[1]] == "" {
		return nil
	}
	return []ptxtext.Statement{s.WithArg(1, swap[s.Args[1]])}
}

// otherMatrix changes what a wgmma reads: it leaves out the last eight columns, or turns a transposition.
// In the constant parts of a descriptor, it moves the atoms of the matrix 16 bytes further apart and
// changes the swizzling.
func otherMatrix(s ptxtext.Statement) []ptxtext.Statement {
	var all []ptxtext.Statement
	if s.Is("wgmma.mma_async") {
		shape := strings.Split(s.Op, ".")[4]
		var n, k int
		fmt.Sscanf(shape, "m64n%dk%d", &n, &k)
		if regs := strings.Split(s.Args[0], ", "); n > 8 && k == 16 {
			fewer := s.WithOp(strings.Replace(s.Op, shape, fmt.Sprintf("m64n%dk%d", n-8, k), 1))
			all = append(all, fewer.WithArg(0, strings.Join(regs[:len(regs)-4], ", ")+"}"))
		}
		for i := 6; i < len(s.Args); i++ {
			all = append(all, s.WithArg(i, map[string]string{"0": "1", "1": "0"}[s.Args[i]]))
		}
	}
	if n, ok := descriptorBits(s); ok {
		step := uint64(1) << 16 // of the leading offset
		if s.Is("or.b64") {
			step = 1 << 32 // of the stride offset
			all = append(all, s.WithArg(2, strconv.FormatUint(n^1<<62, 10)))
		}
		all = append(all, s.WithArg(2, strconv.FormatUint(n+step, 10)))
	}
	return all
}

// descriptorBits returns the constant that is added to a matrix descriptor: the leading offset in bits
// 16 to 29, or the stride offset in bits 32 to 45 and the swizzling in bits 62 and 63.
func descriptorBits(s ptxtext.Statement) (uint64, bool) {
	if !s.Is("or.b32", "or.b64") {
		return 0, false
	}
	n, err := strconv.ParseUint(s.Args[2], 10, 64)
	fields := uint64(1<<14-1) << 16
	if s.Is("or.b64") {
		fields = (1<<14-1)<<32 | 3<<62
	}
	return n, err == nil && n != 0 && n&^fields == 0
}

// otherBarrier changes the number of threads of a named barrier. It also changes the barrier that a warp
// arrives at without waiting. Another one to wait at makes no difference if no other warp comes there.
func otherBarrier(s ptxtext.Statement) []ptxtext.Statement {
	if !s.Is("bar.sync", "bar.arrive") || len(s.Args) != 2 {
		return nil
	}
	var all []ptxtext.Statement
	for i, next := range []uint64{1, 32} {
		if i == 0 && !s.Is("bar.arrive") {
			continue
		}
		if n, err := strconv.ParseUint(s.Args[i], 10, 32); err == nil {
			all = append(all, s.WithArg(i, strconv.FormatUint(n+next, 10)))
		}
	}
	return all
}

// otherRegisters takes or keeps eight registers more per thread than the CTA can spare.
func otherRegisters(s ptxtext.Statement) []ptxtext.Statement {
	if !s.Is("setmaxnreg") {
		return nil
	}
	n, err := strconv.ParseUint(s.Args[0], 10, 32)
	if err != nil || n == 256 {
		return nil
	}
	return []ptxtext.Statement{s.WithArg(0, strconv.FormatUint(n+8, 10))}
}
