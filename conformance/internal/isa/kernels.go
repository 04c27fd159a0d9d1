package isa

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// outRegister holds the address of the output.
const outRegister = "%d5"

// address computes the address of thread i's element of size bytes in reg.
func address(reg, base string, size int) string {
	return fmt.Sprintf("\tmad.wide.u32 %s, %%i2, %d, %s;\n", reg, size, base)
}

// element returns the type and the vector length of an access.
func element(op string) (typ string, n int) {
	parts := strings.Split(op, ".")
	n = 1
	for _, p := range parts {
		if len(p) == 2 && p[0] == 'v' {
			n = int(p[1] - '0')
		}
	}
	return parts[len(parts)-1], n
}

func vectorOf(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf("v%d.", n)
}

func elementBytes(typ string) int {
	bits, _ := strconv.Atoi(typ[1:])
	return bits / 8
}

// accessSize returns how many bytes an access moves per thread.
func accessSize(f Form) int {
	typ, n := element(f.Op)
	return n * elementBytes(typ)
}

// storedSize returns how many bytes the registers of an access have. Integers of 8 and 16
// bits take 32 bits.
func storedSize(f Form) int {
	typ, n := element(f.Op)
	if inWord(typ) {
		return n * 4
	}
	return n * elementBytes(typ)
}

// inWord reports whether a type of 8 or 16 bits is loaded into a 32-bit register.
func inWord(typ string) bool {
	return elementBytes(typ) == 1 || typ == "u16" || typ == "s16"
}

// extended returns loaded elements as their registers hold them.
func extended(f Form, b []byte) []byte {
	typ, _ := element(f.Op)
	b = b[:accessSize(f)]
	if !inWord(typ) {
		return b
	}
	t, _ := intTypeOf(typ)
	list := unpack(elementBytes(typ), b)
	for i, v := range list {
		list[i] = t.extend(v)
	}
	return pack("b32", list)
}

// registersOf returns the registers that an access loads or stores.
func registersOf(op string) []string {
	typ, n := element(op)
	prefix := map[int]string{1: "%r", 2: "%r", 4: "%r", 8: "%d1"}[elementBytes(typ)]
	if typ == "b16" || typ == "f16" {
		prefix = "%h"
	}
	var regs []string
	for i := range n {
		regs = append(regs, fmt.Sprintf("%s%d", prefix, i+1))
	}
	return regs
}

// braced formats one operand or a vector.
func braced(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return "{" + strings.Join(list, ", ") + "}"
}

func target(op string) string { return braced(registersOf(op)) }

// numbersOf returns a '1' for each stored value that is a literal, else a '0'.
func numbersOf(f Form) (kinds string) {
	_, kinds, _ = strings.Cut(f.Args, "number ")
	return kinds
}

// numberAt returns the literal that a form stores as value k.
func numberAt(typ string, k int) uint64 {
	if format, ok := floatFormats[typ]; ok {
		return format.nearest(1.5 + float64(k))
	}
	return uint64(0x5a + k)
}

// source formats the operand of a store: registers, and literals where the form has them.
func source(f Form) string {
	typ, _ := element(f.Op)
	list := registersOf(f.Op)
	for k, kind := range numbersOf(f) {
		if kind == '1' {
			list[k] = literal(typ, numberAt(typ, k))
		}
	}
	return braced(list)
}

// stored returns what a store leaves in memory if its registers hold b.
func stored(f Form, b []byte) []byte {
	typ, _ := element(f.Op)
	size := elementBytes(typ)
	out := append([]byte(nil), b[:accessSize(f)]...)
	for k, kind := range numbersOf(f) {
		if kind == '1' {
			copy(out[size*k:], pack("b64", []uint64{numberAt(typ, k)})[:size])
		}
	}
	return out
}

// plain returns an access of the same size without modifiers.
func plain(access, space, op string) string {
	typ, n := element(op)
	if access == "st" && typ[0] == 's' {
		typ = "u" + typ[1:]
	}
	return access + "." + space + "." + vectorOf(n) + typ
}

// storeBits stores the registers of an access in the thread's output.
func storeBits(op, regs string) string {
	typ, n := element(op)
	size := n * elementBytes(typ)
	if inWord(typ) {
		typ, size = "b32", n*4
	}
	return address("%d9", outRegister, size) + "\tst.global." + vectorOf(n) + "b" + typ[1:] + " [%d9], " + regs + ";\n"
}

// policy returns the instruction that creates a cache policy and the operand for it, or
// nothing. The policy is in %d21, which nothing else writes.
func policy(f Form) (before, operand string) {
	if !strings.Contains(f.Op, "L2::cache_hint") {
		return "", ""
	}
	return "\tcreatepolicy.fractional.L2::evict_last.b64 %d21;\n", ", %d21"
}

// sharedBody passes each thread's element to its neighbor through shared memory. The form
// is the store or the load. If the form names the variable, the first thread stores by
// name, or all threads load the first element.
func sharedBody(f Form) string {
	load, store := f.Op, f.Op
	if strings.HasPrefix(f.Op, "ld") {
		store = plain("st", "shared", f.Op)
	} else {
		load = plain("ld", "shared", f.Op)
	}
	size := accessSize(f)
	put := store + " [%r21+64], " + source(f) + ";\n"
	get := "\t" + load + " " + target(f.Op) + ", [%r21+64];\n"
	if strings.Contains(f.Args, "symbol") && load == f.Op {
		get = strings.Replace(get, "%r21+64", "sm", 1)
	} else if strings.Contains(f.Args, "symbol") {
		put = "@!%p1 " + put + "\t@%p1 " + strings.Replace(put, "%r21+64", "sm", 1)
	}
	return fmt.Sprintf("\t.shared .align 16 .b8 sm[%d];\n", size*Threads) + address("%d9", "%d0", size) +
		"\t" + plain("ld", "global", f.Op) + " " + target(f.Op) + ", [%d9];\n" +
		fmt.Sprintf("\tmov.u32 %%r20, sm;\n\tsub.u32 %%r20, %%r20, 64;\n\tmad.lo.u32 %%r21, %%i0, %d, %%r20;\n", size) +
		"\tsetp.eq.u32 %p1, %i0, 0;\n\t" + put + "\tbar.sync 0;\n" +
		fmt.Sprintf("\txor.b32 %%r22, %%i0, 1;\n\tmad.lo.u32 %%r21, %%r22, %d, %%r20;\n", size) + get + storeBits(f.Op, target(f.Op))
}

func sharedWant(f Form, in [][]byte, i int) []byte {
	from := i ^ 1
	if f.isOp("ld.") && strings.Contains(f.Args, "symbol") {
		from = i / Threads * Threads
	}
	return extended(f, stored(f, in[0][from*accessSize(f):]))
}

// barrierThreads returns how many threads of a CTA the barrier synchronizes.
func barrierThreads(f Form) int {
	if n := f.list(); !f.isOp("bar.warp") && len(n) == 2 {
		if threads, err := strconv.Atoi(n[1]); err == nil {
			return threads
		}
		return 64
	}
	return Threads
}

// barrierBody passes a word to the neighbor across the barrier. Threads outside of the
// barrier keep theirs. In registers the barrier has number 5, and a warp barrier's mask is
// half a warp.
func barrierBody(f Form) string {
	operands := f.list()
	setup := fmt.Sprintf("\tmov.u32 %%r10, 5;\n\tmov.u32 %%r11, %d;\n", barrierThreads(f))
	if f.isOp("bar.warp") {
		setup = "\tand.b32 %r10, %i0, 16;\n\tmov.u32 %r11, 0xffff;\n\tshl.b32 %r10, %r11, %r10;\n"
	}
	for i := range operands {
		if operands[i] == "r" {
			operands[i] = fmt.Sprintf("%%r%d", 10+i)
		}
	}
	return "\t.shared .align 4 .b8 sm[512];\n" + loadWord() + setup +
		fmt.Sprintf("\tsetp.ge.u32 %%p1, %%i0, %d;\n\t@%%p1 bra $L1;\n", barrierThreads(f)) +
		"\tmov.u32 %r20, sm;\n\tmad.lo.u32 %r21, %i0, 4, %r20;\n\tst.shared.b32 [%r21], %r1;\n\t" + f.Op + " " + strings.Join(operands, ", ") + ";\n" +
		"\txor.b32 %r22, %i0, 1;\n\tmad.lo.u32 %r21, %r22, 4, %r20;\n\tld.shared.b32 %r1, [%r21];\n$L1:\n" + storeBits("st.b32", "%r1")
}

// arrivingThreads returns how many of the barrier's threads arrive without waiting.
func arrivingThreads(f Form) int { return (barrierThreads(f)/32 + 1) / 2 * 32 }

// arriveAtBody passes a word from each of the first threads, which arrive at the barrier, to one of those
// that wait there.
func arriveAtBody(f Form) string {
	operands := f.list()
	for i := range operands {
		if operands[i] == "r" {
			operands[i] = fmt.Sprintf("%%r%d", 10+i)
		}
	}
	at := strings.Join(operands, ", ")
	n := arrivingThreads(f)
	return "\t.shared .align 4 .b8 sm[512];\n" + loadWord() + fmt.Sprintf("\tmov.u32 %%r10, 5;\n\tmov.u32 %%r11, %d;\n", barrierThreads(f)) +
		fmt.Sprintf("\tsetp.ge.u32 %%p1, %%i0, %d;\n\t@%%p1 bra $L1;\n\tmov.u32 %%r20, sm;\n", barrierThreads(f)) +
		fmt.Sprintf("\tmad.lo.u32 %%r21, %%i0, 4, %%r20;\n\tsetp.ge.u32 %%p2, %%i0, %d;\n\t@%%p2 bra $L2;\n", n) +
		"\tst.shared.b32 [%r21], %r1;\n\t" + f.Op + " " + at + ";\n\tbra $L1;\n$L2:\n\tbar.sync " + at + ";\n" +
		fmt.Sprintf("\tld.shared.b32 %%r1, [%%r21+-%d];\n$L1:\n", 4*n) + storeBits("st.b32", "%r1")
}

func arriveAtWant(f Form, in [][]byte, i int) []byte {
	if n := arrivingThreads(f); i%Threads >= n && i%Threads < barrierThreads(f) {
		return ownWord(f, in, i-n)
	}
	return ownWord(f, in, i)
}

// maxRegisters is the number of registers per thread at entry of the kernel for setmaxnreg.
const maxRegisters = 240

// registersBody decreases the number of registers and increases it again.
func registersBody(f Form) string {
	dec, inc := "setmaxnreg.dec.sync.aligned.u32 24", fmt.Sprintf("setmaxnreg.inc.sync.aligned.u32 %d", maxRegisters)
	if f.isOp("setmaxnreg.dec.") {
		dec = f.Op + " " + f.Args
	} else {
		inc = f.Op + " " + f.Args
	}
	return loadWord() + "\t" + dec + ";\n\tbar.sync 0;\n\t" + inc + ";\n" + storeBits("st.b32", "%r1")
}

func barrierWant(f Form, in [][]byte, i int) []byte {
	if i%Threads >= barrierThreads(f) {
		return ownWord(f, in, i)
	}
	return neighborWord(f, in, i)
}

// fenceBody has each CTA store its words in p2 and increment p1. The last CTA copies all
// words to the output. Without the fences, the emulator reports a race.
func fenceBody(f Form) string {
	fence := "\t" + f.Op + ";\n"
	var b strings.Builder
	b.WriteString("\t.shared .align 4 .b8 sm[4];\n" + loadWord() + address("%d10", "%d2", 4) + "\tst.global.b32 [%d10], %r1;\n" +
		"\tbar.sync 0;\n\tsetp.ne.u32 %p1, %i0, 0;\n\t@%p1 bra $L1;\n" + fence + "\tatom.global.add.u32 %r5, [%d1], 1;\n" + fence +
		"\tst.shared.b32 [sm], %r5;\n$L1:\n\tbar.sync 0;\n" +
		fmt.Sprintf("\tld.shared.b32 %%r5, [sm];\n\tsetp.ne.u32 %%p2, %%r5, %d;\n\t@%%p2 ret;\n", CTAs-1))
	for cta := range CTAs {
		fmt.Fprintf(&b, "\tadd.u32 %%i2, %%i0, %d;\n", cta*Threads)
		b.WriteString(address("%d10", "%d2", 4) + "\tld.global.b32 %r1, [%d10];\n" + storeBits("st.b32", "%r1"))
	}
	return b.String()
}

// branchBody sums the integers up to the thread's index in a loop. The threads up to 40 add
// one more; the others exit before.
func branchBody(f Form) string {
	jump, end := "bra", "ret"
	if f.isOp("bra") {
		jump = f.Op
	} else {
		end = f.Op
	}
	return "\tmov.u32 %r1, 0;\n\tmov.u32 %r2, 0;\n$L1:\n\tsetp.gt.u32 %p1, %r2, %i0;\n\t@%p1 bra $L2;\n" +
		"\tadd.u32 %r1, %r1, %r2;\n\tadd.u32 %r2, %r2, 1;\n\t" + jump + " $L1;\n$L2:\n" + storeBits("st.b32", "%r1") +
		"\tsetp.gt.u32 %p2, %i0, 40;\n\t@%p2 " + end + ";\n\tadd.u32 %r1, %r1, 1;\n" + storeBits("st.b32", "%r1")
}

func branchWant(_ Form, _ [][]byte, i int) []byte {
	t := i % Threads
	sum := t * (t + 1) / 2
	if t <= 40 {
		sum++
	}
	return pack("u32", []uint64{uint64(sum)})
}

// movPackBody splits a word into halves and stores them swapped, or packs swapped halves.
func movPackBody(f Form) string {
	half, whole, parts := 16, "%r1", []string{"%h1", "%h2"}
	if strings.Contains(f.Op, "64") {
		half, whole, parts = 32, "%d11", []string{"%r1", "%r2"}
	}
	load := address("%d9", "%d0", half/4)
	if f.Args == "{},r" {
		return load + fmt.Sprintf("\tld.global.b%d %s, [%%d9];\n\t%s {%s, %s}, %s;\n", 2*half, whole, f.Op, parts[0], parts[1], whole) +
			address("%d9", outRegister, half/4) + fmt.Sprintf("\tst.global.v2.b%d [%%d9], {%s, %s};\n", half, parts[1], parts[0])
	}
	return load + fmt.Sprintf("\tld.global.v2.b%d {%s, %s}, [%%d9];\n\t%s %s, {%s, %s};\n", half, parts[0], parts[1], f.Op, whole, parts[1], parts[0]) +
		storeBits(f.Op, whole)
}

func movPackWant(f Form, in [][]byte, i int) []byte {
	n := accessSize(f)
	b := in[0][n*i:][:n]
	return append(append([]byte(nil), b[n/2:]...), b[:n/2]...)
}

// atomicBody stores p0's first word in memory and combines it with p0's second word and
// p1's word. It outputs memory and, 8 bytes after it, the result of atom, or 0 for red. If
// the form names the variable, only the first thread's access does.
func atomicBody(f Form) string {
	typ, _ := element(f.Op)
	bits := 8 * elementBytes(typ)
	r := map[int]string{32: "%r", 64: "%d1"}[bits]
	place, space, at := "\n", "global", "[%d8]"
	if strings.Contains(f.Op, ".shared") {
		space, at = "shared", "[%r20]"
		place = fmt.Sprintf("\t.shared .align 16 .b8 sm[%d];\n\tmov.u32 %%r20, sm;\n\tmad.lo.u32 %%r20, %%i0, 16, %%r20;\n", 16*Threads)
	}
	values := []string{r + "2", r + "4"}[:1+strings.Count(f.Op, ".cas.")]
	for k, kind := range numbersOf(f) {
		if kind == '1' {
			values[k] = literal(typ, numberAt(typ, k))
		}
	}
	result := map[bool]string{true: r + "3, "}[f.isOp("atom")]
	operation := func(at string) string { return f.Op + " " + result + at + ", " + strings.Join(values, ", ") + ";\n" }
	try := "\t" + operation(at)
	if strings.Contains(f.Args, "symbol") {
		try = "\tsetp.eq.u32 %p1, %i0, 0;\n\t@%p1 " + operation("[sm]") + "\t@!%p1 " + operation(at)
	}
	return place + address("%d9", "%d0", 16) + address("%d7", "%d1", 16) + address("%d8", outRegister, 16) +
		"\tmov.b64 %d20, 0;\n\tst.global.v2.b64 [%d8], {%d20, %d20};\n" + fmt.Sprintf("\tmov.b%d %s3, 0;\n", bits, r) +
		fmt.Sprintf("\tld.global.b%d %s1, [%%d9];\n\tld.global.b%d %s2, [%%d9+8];\n\tld.global.b%d %s4, [%%d7];\n", bits, r, bits, r, bits, r) +
		fmt.Sprintf("\tst.%s.b%d %s, %s1;\n", space, bits, at, r) + try +
		fmt.Sprintf("\tld.%s.b%d %s5, %s;\n\tst.global.b%d [%%d8], %s5;\n\tst.global.b%d [%%d8+8], %s3;\n", space, bits, r, at, bits, r, bits, r)
}

// atomics maps operations to the new value of memory.
var atomics = map[string]func(t intType, old, b, c uint64) uint64{
	"add":  func(t intType, old, b, _ uint64) uint64 { return t.truncate(old + b) },
	"min":  func(t intType, old, b, _ uint64) uint64 { return pick(t.less(old, b), old, b) },
	"max":  func(t intType, old, b, _ uint64) uint64 { return pick(t.less(old, b), b, old) },
	"and":  func(_ intType, old, b, _ uint64) uint64 { return old & b },
	"or":   func(_ intType, old, b, _ uint64) uint64 { return old | b },
	"xor":  func(_ intType, old, b, _ uint64) uint64 { return old ^ b },
	"exch": func(_ intType, _, b, _ uint64) uint64 { return b },
	"cas":  func(_ intType, old, b, c uint64) uint64 { return pick(old == b, c, old) },
	"inc":  func(_ intType, old, b, _ uint64) uint64 { return pick(old >= b, 0, old+1) },
	"dec":  func(_ intType, old, b, _ uint64) uint64 { return pick(old == 0 || old > b, b, old-1) },
}

// atomicWant returns nil, which no output equals, for an unknown operation.
func atomicWant(f Form, in [][]byte, i int) []byte {
	parts := strings.Split(f.Op, ".")
	t, isInt := intTypeOf(parts[len(parts)-1])
	operation := atomics[parts[len(parts)-2]]
	if operation == nil || !isInt {
		return nil
	}
	size := t.bits / 8
	word := func(p []byte, at int) uint64 { return unpack(size, p[at:at+size])[0] }
	old, b, c := word(in[0], 16*i), word(in[0], 16*i+8), word(in[1], 16*i)
	for k, kind := range numbersOf(f) {
		if kind == '1' {
			*[]*uint64{&b, &c}[k] = numberAt(parts[len(parts)-1], k)
		}
	}
	after := operation(t, old, b, c)
	if f.isOp("red") {
		old = 0
	}
	return pack("b64", []uint64{after, old})
}

// TestKernel is a small kernel for instructions that are no function of a lane's operands:
// memory accesses, barriers, copies, matrix products.
type TestKernel struct {
	pattern    *regexp.Regexp // matches Form.String
	sm         int            // compute capability that the rest of the kernel needs
	directives string
	body       func(f Form) string
	outSize    func(f Form) int // per thread
	// want returns the output of thread i. If it is nil, check compares the output.
	want  func(f Form, in [][]byte, i int) []byte
	check func(f Form, in [][]byte, got []byte) (worst float64, err error)
	fill  func(f Form, r *rand.Rand, in [][]byte) // changes the inputs
}

const (
	// CTAs is the grid size of a test kernel.
	CTAs       = 2
	arrayBytes = 16 << 10 // per input array
	paramValue = 0x3fc00000_40490fdb
)

func sized(n int) func(Form) int { return func(Form) int { return n } }

// ownWord returns the thread's word of p0.
func ownWord(_ Form, in [][]byte, i int) []byte { return in[0][4*i:][:4] }

// neighborWord returns the neighboring thread's word of p0.
func neighborWord(_ Form, in [][]byte, i int) []byte { return in[0][4*(i^1):][:4] }

// loadWord loads the thread's word of p0 into %r1.
func loadWord() string { return address("%d9", "%d0", 4) + "\tld.global.b32 %r1, [%d9];\n" }

const memoryOrder = `((volatile|(relaxed|acquire|release)\.(cta|gpu|sys))\.)?`

// testKernels lists all test kernels. A form belongs to the first that matches.
var testKernels = []TestKernel{
	{pattern: regexp.MustCompile(`^ld\.param\.`), outSize: storedSize, body: func(f Form) string {
		return "\t" + f.Op + " " + target(f.Op) + ", [p3];\n" + storeBits(f.Op, target(f.Op))
	}, want: func(f Form, _ [][]byte, _ int) []byte { return extended(f, pack("b64", []uint64{paramValue})) }},

	{pattern: regexp.MustCompile(`^ld\.` + memoryOrder + `global[^ ]*$`), outSize: storedSize, body: func(f Form) string {
		before, operand := policy(f)
		return before + address("%d9", "%d0", accessSize(f)) + "\tsub.u64 %d9, %d9, 48;\n\t" +
			f.Op + " " + target(f.Op) + ", [%d9+48]" + operand + ";\n" + storeBits(f.Op, target(f.Op))
	}, want: func(f Form, in [][]byte, i int) []byte { return extended(f, in[0][i*accessSize(f):]) }},

	{pattern: regexp.MustCompile(`^(ld|st)\.` + memoryOrder + `shared`), outSize: storedSize, body: sharedBody, want: sharedWant},

	{pattern: regexp.MustCompile(`^st\.` + memoryOrder + `global[^ ]*( number [01]+)?$`), outSize: accessSize, body: func(f Form) string {
		before, operand := policy(f)
		return before + address("%d9", "%d0", accessSize(f)) + "\t" + plain("ld", "global", f.Op) + " " + target(f.Op) + ", [%d9];\n" +
			address("%d9", outRegister, accessSize(f)) + "\tadd.u64 %d9, %d9, 48;\n\t" + f.Op + " [%d9+-48], " + source(f) + operand + ";\n"
	}, want: func(f Form, in [][]byte, i int) []byte { return stored(f, in[0][i*accessSize(f):]) }},

	{pattern: regexp.MustCompile(`^(createpolicy\.fractional\.|prefetch\.global\.)`), outSize: sized(4), body: func(f Form) string {
		try := "\t" + f.Op + " [%d9];\n\tld.global.b32 %r1, [%d9];\n"
		if n := f.count(" operands"); n > 0 {
			fraction := map[bool]string{true: ", 0f3F000000"}[n == 2]
			try = "\t" + f.Op + " %d20" + fraction + ";\n\tld.global.L2::cache_hint.b32 %r1, [%d9], %d20;\n"
		}
		return address("%d9", "%d0", 4) + try + storeBits("st.b32", "%r1")
	}, want: ownWord},

	{pattern: regexp.MustCompile(`^(bar\.(sync|warp\.sync)|barrier\.sync(\.aligned)?) `), outSize: sized(4), body: barrierBody, want: barrierWant},

	{pattern: regexp.MustCompile(`^(bar\.arrive|barrier\.arrive\.aligned) (\d+|r),(\d+|r)$`), outSize: sized(4), body: arriveAtBody, want: arriveAtWant},
	{pattern: regexp.MustCompile(`^setmaxnreg\.(inc|dec)\.sync\.aligned\.u32 \d+$`), outSize: sized(4), body: registersBody, want: ownWord,
		directives: fmt.Sprintf(".maxnreg %d\n", maxRegisters)},

	{pattern: regexp.MustCompile(`^(membar\.(gl|sys)|fence\.(acq_rel|sc)\.(gpu|sys))$`), outSize: sized(4), body: fenceBody, want: ownWord,
		fill: func(_ Form, _ *rand.Rand, in [][]byte) { clear(in[1]) }},

	// A fence within a CTA, and a wait without a preceding kernel, change no value.
	{pattern: regexp.MustCompile(`^(membar\.cta|fence\.(acq_rel|sc)\.cta|griddepcontrol\.(wait|launch_dependents)|fence\.proxy\.async[^ ]*)$`), outSize: sized(4),
		body: func(f Form) string { return loadWord() + "\t" + f.Op + ";\n" + storeBits("st.b32", "%r1") }, want: ownWord},

	{pattern: regexp.MustCompile(`^(bra|ret|exit)(\.uni)?$`), outSize: sized(4), body: branchBody, want: branchWant},

	{pattern: regexp.MustCompile(`^activemask\.b32$`), outSize: sized(4), body: func(f Form) string {
		return "\t" + f.Op + " %r1;\n" + storeBits("st.b32", "%r1")
	}, check: ownBitCheck},

	{pattern: regexp.MustCompile(`^(atom|red)\.`), outSize: sized(16), body: atomicBody, want: atomicWant, fill: func(_ Form, _ *rand.Rand, in [][]byte) {
		for at := 0; at < len(in[0]); at += 48 { // makes some compare-and-swap operations succeed
			copy(in[0][at+8:at+16], in[0][at:at+8])
		}
	}},

	{pattern: regexp.MustCompile(`^mov\.u32 r,%warpid$`), outSize: sized(4), body: specialBody, check: warpCheck},
	{pattern: regexp.MustCompile(`^mov\.[bu]32 r,%`), outSize: sized(4), body: specialBody, want: specialWant},
	{pattern: regexp.MustCompile(`^mov\.[bu]32 r,symbol`), outSize: sized(4), body: func(f Form) string {
		return strings.Replace(sharedBody(Form{Op: "ld.shared.u32"}), "mov.u32 %r20, sm", f.Op+" %r20, sm", 1)
	}, want: neighborWord},
	{pattern: regexp.MustCompile(`^mov\.b(32|64) (r,{}|{},r)`), outSize: accessSize, body: movPackBody, want: movPackWant},

	{pattern: regexp.MustCompile(`^cp\.async\.(c[ag]\.|commit_group|wait_group|wait_all)`), outSize: sized(64), body: copyBody, want: copyWant},
	{pattern: regexp.MustCompile(`^(cp\.async\.bulk\.shared::cluster\.global\.mbarrier|mbarrier\.(arrive\.)?expect_tx|fence\.mbarrier_init)`), sm: 90,
		outSize: sized(16), body: bulkBody, want: func(_ Form, in [][]byte, i int) []byte { return in[0][16*i:][:16] }},
	{pattern: regexp.MustCompile(`^mbarrier\.(init|inval|arrive|(test|try)_wait\.parity)\.`), outSize: sized(8), body: arriveBody, want: arriveWant},

	{pattern: regexp.MustCompile(`^ldmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.shared(::cta)?\.b16$`), outSize: func(f Form) int { return 4 * matrices(f) },
		body: ldmatrixBody, want: ldmatrixWant},
	{pattern: regexp.MustCompile(`^mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(f16\.f16|bf16\.bf16)\.f32$`), outSize: sized(16), body: mmaBody, check: mmaCheck, fill: mmaFill},
	{pattern: regexp.MustCompile(`^mma\.sync\.aligned\.m16n8k(16|32)\.row\.col\.s32\.[su]8\.[su]8\.s32$`), outSize: sized(16), body: mmaBody, want: integerMMAWant},
	{pattern: regexp.MustCompile(`^wgmma\.(fence|commit_group|wait_group|mma_async\.sync\.aligned\.m64n64k32\.s32\.[su]8\.s8)`), outSize: wgmmaSize,
		body: wgmmaBody, want: wgmmaWant},
	{pattern: regexp.MustCompile(`^wgmma\.mma_async\.sync\.aligned\.m64n\d+k16\.f32\.(f16\.f16|bf16\.bf16) ({},[01]|r,[01],[01])$`), outSize: wgmmaSize,
		body: wgmmaBody, check: wgmmaCheck, fill: wgmmaFill},
}

// TestKernelFor returns the test kernel of a form.
func TestKernelFor(f Form) (TestKernel, bool) {
	for _, h := range testKernels {
		if h.pattern.MatchString(f.String()) {
			return h, true
		}
	}
	return TestKernel{}, false
}

// Needs returns the target that the kernel of a form is for.
func (h TestKernel) Needs(f Form) ptx.Target {
	if target := f.Target(); target.SM >= h.sm {
		return target
	}
	return targetFor(h.sm)
}

// Text returns the kernel of a form.
func (h TestKernel) Text(f Form) string {
	return strings.Replace(header(h.Needs(f)), "{\n", h.directives+"{\n", 1) + h.body(f) + "\tret;\n}\n"
}

// Inputs returns the arrays p0 to p2: random words and edge cases.
func (h TestKernel) Inputs(f Form, seed uint64) [][]byte {
	random := rand.New(rand.NewPCG(seed, 4))
	in := make([][]byte, 3)
	for i := range in {
		in[i] = make([]byte, arrayBytes)
		for at := 0; at < arrayBytes; at += 4 {
			v := random.Uint32()
			if words := pool("u32"); random.IntN(3) == 0 {
				v = uint32(words[random.IntN(len(words))])
			}
			binary.LittleEndian.PutUint32(in[i][at:], v)
		}
	}
	if h.fill != nil {
		h.fill(f, random, in)
	}
	return in
}

// ownBitCheck demands that each thread is in its own mask.
func ownBitCheck(_ Form, _ [][]byte, got []byte) (float64, error) {
	for i, mask := range unpack(4, got) {
		if mask>>(i%32)&1 == 0 {
			return 1, fmt.Errorf("thread %d is not in its mask %#x", i, mask)
		}
	}
	return 0, nil
}

func specialBody(f Form) string {
	return "\t" + f.Op + " %r1, " + f.list()[1] + ";\n" + storeBits("st.b32", "%r1")
}

// warpCheck demands that a number is the same within each warp and differs between the
// warps of a CTA. PTX guarantees no more.
func warpCheck(_ Form, _ [][]byte, got []byte) (float64, error) {
	numbers := unpack(4, got)
	for i := range numbers {
		for j := i / Threads * Threads; j < i; j++ {
			if (numbers[i] == numbers[j]) != (i/32 == j/32) {
				return 1, fmt.Errorf("threads %d and %d have %d and %d", j, i, numbers[j], numbers[i])
			}
		}
	}
	return 0, nil
}

// specialWant returns a special register of thread i, or nil if it is unknown.
func specialWant(f Form, _ [][]byte, i int) []byte {
	lane := i % 32
	coordinate := map[string]int{
		"%tid.x": i % Threads, "%ctaid.x": i / Threads, "%ntid.x": Threads, "%nctaid.x": CTAs,
		"%tid.y": 0, "%tid.z": 0, "%ctaid.y": 0, "%ctaid.z": 0, "%ntid.y": 1, "%ntid.z": 1, "%nctaid.y": 1, "%nctaid.z": 1,
		"%laneid": lane, "%lanemask_eq": 1 << lane, "%lanemask_lt": 1<<lane - 1, "%lanemask_le": 2<<lane - 1,
		"%lanemask_gt": -2 << lane, "%lanemask_ge": -1 << lane,
	}
	v, ok := coordinate[f.list()[1]]
	if !ok {
		return nil
	}
	return pack("u32", []uint64{uint64(v)})
}
