package conformance

import (
	"fmt"
	"strconv"
	"strings"
)

// sharedBody passes each thread's element to its neighbor through shared memory,
// the stores or the loads being what is tried. Where the form names the variable,
// the first thread stores so, or all load the first element.
func sharedBody(f form) string {
	load, store := f.op, f.op
	if strings.HasPrefix(f.op, "ld") {
		store = plain("st", "shared", f.op)
	} else {
		load = plain("ld", "shared", f.op)
	}
	size := accessSize(f)
	put := store + " [%r21+64], " + source(f) + ";\n"
	get := "\t" + load + " " + target(f.op) + ", [%r21+64];\n"
	if strings.Contains(f.args, "symbol") && load == f.op {
		get = strings.Replace(get, "%r21+64", "sm", 1)
	} else if strings.Contains(f.args, "symbol") {
		put = "@!%p1 " + put + "\t@%p1 " + strings.Replace(put, "%r21+64", "sm", 1)
	}
	return fmt.Sprintf("\t.shared .align 16 .b8 sm[%d];\n", size*formThreads) + address("%d9", "%d0", size) +
		"\t" + plain("ld", "global", f.op) + " " + target(f.op) + ", [%d9];\n" +
		fmt.Sprintf("\tmov.u32 %%r20, sm;\n\tsub.u32 %%r20, %%r20, 64;\n\tmad.lo.u32 %%r21, %%i0, %d, %%r20;\n", size) +
		"\tsetp.eq.u32 %p1, %i0, 0;\n\t" + put + "\tbar.sync 0;\n" +
		fmt.Sprintf("\txor.b32 %%r22, %%i0, 1;\n\tmad.lo.u32 %%r21, %%r22, %d, %%r20;\n", size) + get + storeBits(f.op, target(f.op))
}

func sharedWant(f form, in [][]byte, i int) []byte {
	from := i ^ 1
	if f.isOp("ld.") && strings.Contains(f.args, "symbol") {
		from = i / formThreads * formThreads
	}
	return extended(f, stored(f, in[0][from*accessSize(f):]))
}

// barrierThreads is how many threads of a CTA take part in a barrier's form.
func barrierThreads(f form) int {
	if n := f.list(); !f.isOp("bar.warp") && len(n) == 2 {
		if threads, err := strconv.Atoi(n[1]); err == nil {
			return threads
		}
		return 64
	}
	return formThreads
}

// barrierBody passes a word to the neighbor, around the barrier; threads that it
// does not count keep theirs. In registers the barrier is number 5, and the mask of
// a warp's barrier half a warp.
func barrierBody(f form) string {
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
		"\tmov.u32 %r20, sm;\n\tmad.lo.u32 %r21, %i0, 4, %r20;\n\tst.shared.b32 [%r21], %r1;\n\t" + f.op + " " + strings.Join(operands, ", ") + ";\n" +
		"\txor.b32 %r22, %i0, 1;\n\tmad.lo.u32 %r21, %r22, 4, %r20;\n\tld.shared.b32 %r1, [%r21];\n$L1:\n" + storeBits("st.b32", "%r1")
}

func barrierWant(f form, in [][]byte, i int) []byte {
	if i%formThreads >= barrierThreads(f) {
		return own(f, in, i)
	}
	return neighbors(f, in, i)
}

// fenceBody has every CTA leave its words in p2 and count itself in p1; the last one
// passes all of them on. Without the fences the emulator finds a race.
func fenceBody(f form) string {
	fence := "\t" + f.op + ";\n"
	var b strings.Builder
	b.WriteString("\t.shared .align 4 .b8 sm[4];\n" + loadWord() + address("%d10", "%d2", 4) + "\tst.global.b32 [%d10], %r1;\n" +
		"\tbar.sync 0;\n\tsetp.ne.u32 %p1, %i0, 0;\n\t@%p1 bra $L1;\n" + fence + "\tatom.global.add.u32 %r5, [%d1], 1;\n" + fence +
		"\tst.shared.b32 [sm], %r5;\n$L1:\n\tbar.sync 0;\n" +
		fmt.Sprintf("\tld.shared.b32 %%r5, [sm];\n\tsetp.ne.u32 %%p2, %%r5, %d;\n\t@%%p2 ret;\n", formCTAs-1))
	for cta := range formCTAs {
		fmt.Fprintf(&b, "\tadd.u32 %%i2, %%i0, %d;\n", cta*formThreads)
		b.WriteString(address("%d10", "%d2", 4) + "\tld.global.b32 %r1, [%d10];\n" + storeBits("st.b32", "%r1"))
	}
	return b.String()
}

// branchBody adds the numbers up to the thread's own in a loop of that length, and
// one more in the first threads, after which the others have ended.
func branchBody(f form) string {
	jump, end := "bra", "ret"
	if f.isOp("bra") {
		jump = f.op
	} else {
		end = f.op
	}
	return "\tmov.u32 %r1, 0;\n\tmov.u32 %r2, 0;\n$L1:\n\tsetp.gt.u32 %p1, %r2, %i0;\n\t@%p1 bra $L2;\n" +
		"\tadd.u32 %r1, %r1, %r2;\n\tadd.u32 %r2, %r2, 1;\n\t" + jump + " $L1;\n$L2:\n" + storeBits("st.b32", "%r1") +
		"\tsetp.gt.u32 %p2, %i0, 40;\n\t@%p2 " + end + ";\n\tadd.u32 %r1, %r1, 1;\n" + storeBits("st.b32", "%r1")
}

func branchWant(_ form, _ [][]byte, i int) []byte {
	t := i % formThreads
	sum := t * (t + 1) / 2
	if t <= 40 {
		sum++
	}
	return packed("u32", []uint64{uint64(sum)})
}

// halvesBody takes a word apart and puts it together again turned round, or the
// other way round.
func halvesBody(f form) string {
	half, whole, parts := 16, "%r1", []string{"%h1", "%h2"}
	if strings.Contains(f.op, "64") {
		half, whole, parts = 32, "%d11", []string{"%r1", "%r2"}
	}
	load := address("%d9", "%d0", half/4)
	if f.args == "{},r" {
		return load + fmt.Sprintf("\tld.global.b%d %s, [%%d9];\n\t%s {%s, %s}, %s;\n", 2*half, whole, f.op, parts[0], parts[1], whole) +
			address("%d9", formOut, half/4) + fmt.Sprintf("\tst.global.v2.b%d [%%d9], {%s, %s};\n", half, parts[1], parts[0])
	}
	return load + fmt.Sprintf("\tld.global.v2.b%d {%s, %s}, [%%d9];\n\t%s %s, {%s, %s};\n", half, parts[0], parts[1], f.op, whole, parts[1], parts[0]) +
		storeBits(f.op, whole)
}

func halvesWant(f form, in [][]byte, i int) []byte {
	n := accessSize(f)
	b := in[0][n*i:][:n]
	return append(append([]byte(nil), b[n/2:]...), b[:n/2]...)
}

// atomicBody puts p0's first word or pair in memory, combines the second and p1's
// with it, and stores the result and, 8 bytes further on, what an atom returns (a
// red: 0). Where the form names the variable, only the first thread's does.
func atomicBody(f form) string {
	typ, _ := element(f.op)
	bits := 8 * elementBytes(typ)
	r := map[int]string{32: "%r", 64: "%d1"}[bits]
	place, space, at := "\n", "global", "[%d8]"
	if strings.Contains(f.op, ".shared") {
		space, at = "shared", "[%r20]"
		place = fmt.Sprintf("\t.shared .align 16 .b8 sm[%d];\n\tmov.u32 %%r20, sm;\n\tmad.lo.u32 %%r20, %%i0, 16, %%r20;\n", 16*formThreads)
	}
	values := []string{r + "2", r + "4"}[:1+strings.Count(f.op, ".cas.")]
	for k, kind := range numbersOf(f) {
		if kind == '1' {
			values[k] = literal(typ, formNumber(typ, k))
		}
	}
	result := map[bool]string{true: r + "3, "}[f.isOp("atom")]
	operation := func(at string) string { return f.op + " " + result + at + ", " + strings.Join(values, ", ") + ";\n" }
	try := "\t" + operation(at)
	if strings.Contains(f.args, "symbol") {
		try = "\tsetp.eq.u32 %p1, %i0, 0;\n\t@%p1 " + operation("[sm]") + "\t@!%p1 " + operation(at)
	}
	return place + address("%d9", "%d0", 16) + address("%d7", "%d1", 16) + address("%d8", formOut, 16) +
		"\tmov.b64 %d20, 0;\n\tst.global.v2.b64 [%d8], {%d20, %d20};\n" + fmt.Sprintf("\tmov.b%d %s3, 0;\n", bits, r) +
		fmt.Sprintf("\tld.global.b%d %s1, [%%d9];\n\tld.global.b%d %s2, [%%d9+8];\n\tld.global.b%d %s4, [%%d7];\n", bits, r, bits, r, bits, r) +
		fmt.Sprintf("\tst.%s.b%d %s, %s1;\n", space, bits, at, r) + try +
		fmt.Sprintf("\tld.%s.b%d %s5, %s;\n\tst.global.b%d [%%d8], %s5;\n\tst.global.b%d [%%d8+8], %s3;\n", space, bits, r, at, bits, r, bits, r)
}

// atomics are what is in memory after an operation on old.
var atomics = map[string]func(t intType, old, b, c uint64) uint64{
	"add":  func(t intType, old, b, _ uint64) uint64 { return t.cut(old + b) },
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

// atomicWant is nil for an operation that is not known, and so never right.
func atomicWant(f form, in [][]byte, i int) []byte {
	parts := strings.Split(f.op, ".")
	t, isInt := intTypeOf(parts[len(parts)-1])
	operation := atomics[parts[len(parts)-2]]
	if operation == nil || !isInt {
		return nil
	}
	size := t.bits / 8
	word := func(p []byte, at int) uint64 { return unpacked(size, p[at:at+size])[0] }
	old, b, c := word(in[0], 16*i), word(in[0], 16*i+8), word(in[1], 16*i)
	for k, kind := range numbersOf(f) {
		if kind == '1' {
			*[]*uint64{&b, &c}[k] = formNumber(parts[len(parts)-1], k)
		}
	}
	after := operation(t, old, b, c)
	if f.isOp("red") {
		old = 0
	}
	return packed("b64", []uint64{after, old})
}
