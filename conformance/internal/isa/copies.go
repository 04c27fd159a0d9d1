package isa

import (
	"fmt"
	"strconv"
	"strings"
)

// copyGroups returns how many copy groups the form's kernel has in flight.
func copyGroups(f Form) int {
	if n := f.list(); f.isOp("cp.async.wait_group") && len(n) == 1 {
		groups, _ := strconv.Atoi(n[0])
		return min(groups+1, 4)
	}
	return 2
}

// copySize returns how many bytes one copy moves.
func copySize(f Form) int {
	if n := f.count("size "); n > 0 {
		return n
	}
	return 16
}

// copyBody copies 16 bytes per thread and group to shared memory. It waits for the first
// group, then for all, and stores the neighbor's bytes. Groups beyond copyGroups give
// zeros. A fourth operand is the number of bytes to copy; the rest is zero.
func copyBody(f Form) string {
	groups := copyGroups(f)
	op, part := "cp.async.cg.shared.global", ""
	if f.count("size ") > 0 {
		op = f.Op
	}
	size := copySize(f)
	var b strings.Builder
	before, hint := policy(f)
	b.WriteString(before + "\t.shared .align 16 .b8 sm[8192];\n\tmov.u32 %r20, sm;\n\tmad.lo.u32 %r21, %i0, 16, %r20;\n" + address("%d9", "%d0", 16))
	if cutsCopy(f) {
		fmt.Fprintf(&b, "\trem.u32 %%r24, %%i0, %d;\n", size+1)
		part = ", %r24"
	}
	b.WriteString("\tmov.b64 %d20, 0;\n")
	for g := range groups {
		fmt.Fprintf(&b, "\tst.shared.v2.b64 [%%r21+%d], {%%d20, %%d20};\n", 2048*g)
		fmt.Fprintf(&b, "\t%s [%%r21+%d], [%%d9+%d], %d%s%s;\n\tcp.async.commit_group;\n", op, 2048*g, 4096*g, size, part, hint)
	}
	b.WriteString("\txor.b32 %r22, %i0, 1;\n\tmad.lo.u32 %r23, %r22, 16, %r20;\n" + address("%d8", outRegister, 64))
	last := "wait_group 0"
	if f.isOp("cp.async.wait_all") {
		last = "wait_all"
	}
	for g := range 4 {
		switch {
		case g == 0:
			fmt.Fprintf(&b, "\tcp.async.wait_group %d;\n\tbar.sync 0;\n", groups-1)
		case g == 1:
			fmt.Fprintf(&b, "\tcp.async.%s;\n\tbar.sync 0;\n", last)
		}
		if g < groups {
			fmt.Fprintf(&b, "\tld.shared.v4.b32 {%%r1, %%r2, %%r3, %%r4}, [%%r23+%d];\n", 2048*g)
		} else {
			b.WriteString("\tmov.b32 %r1, 0;\n\tmov.b32 %r2, 0;\n\tmov.b32 %r3, 0;\n\tmov.b32 %r4, 0;\n")
		}
		fmt.Fprintf(&b, "\tst.global.v4.b32 [%%d8+%d], {%%r1, %%r2, %%r3, %%r4};\n", 16*g)
	}
	return b.String()
}

// cutsCopy reports whether an operand gives the number of bytes to copy.
func cutsCopy(f Form) bool {
	n := f.count(" operands")
	if _, hint := policy(f); hint != "" {
		n--
	}
	return n == 4
}

func copyWant(f Form, in [][]byte, i int) []byte {
	out := make([]byte, 64)
	n := copySize(f)
	if cutsCopy(f) {
		n = (i ^ 1) % Threads % (n + 1)
	}
	for g := range copyGroups(f) {
		copy(out[16*g:16*g+n], in[0][16*(i^1)+4096*g:])
	}
	return out
}

// bulkBody copies 2 KiB per CTA with the copy engine and waits at an mbarrier. The byte
// count is announced by the arrival or by expect_tx before it.
func bulkBody(f Form) string {
	arrive, state := "mbarrier.arrive.expect_tx.shared.b64", "%d20"
	if f.isOp("mbarrier.arrive.") {
		arrive = f.Op
		if strings.Contains(f.Args, "_") {
			state = "_"
		}
	}
	expect := "\t" + arrive + " " + state + ", [%r21], 2048;\n"
	if f.isOp("mbarrier.expect_tx.") {
		expect = "\t" + f.Op + " [%r21], 2048;\n\tmbarrier.arrive.shared.b64 _, [%r21];\n"
	}
	bulk, before, hint := "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "", ""
	if f.isOp("cp.async.bulk.") {
		bulk = f.Op
		before, hint = policy(f)
	}
	return "\t.shared .align 128 .b8 sm[2048];\n\t.shared .align 8 .b8 bar[8];\n\tmov.u32 %r20, sm;\n\tmov.u32 %r21, bar;\n" + before +
		"\tsetp.ne.u32 %p1, %i0, 0;\n\t@%p1 bra $L1;\n\tmbarrier.init.shared.b64 [%r21], 1;\n\tfence.mbarrier_init.release.cluster;\n" +
		"\tmad.wide.u32 %d9, %i1, 2048, %d0;\n" + expect + "\t" + bulk + " [%r20], [%d9], 2048, [%r21]" + hint + ";\n$L1:\n\tbar.sync 0;\n" +
		"$L2:\n\tmbarrier.try_wait.parity.shared.b64 %p2, [%r21], 0;\n\t@!%p2 bra $L2;\n" +
		"\tmad.lo.u32 %r22, %i0, 16, %r20;\n\tld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r22];\n" + storeBits("st.v4.b32", "{%r1, %r2, %r3, %r4}")
}

// arriveBody passes each thread's word to its neighbor through shared memory and an
// mbarrier, at which all threads arrive and wait. Then it initializes the mbarrier again
// and passes the word back. The current phase has parity 0, so a wait for parity 1 ends at
// once.
func arriveBody(f Form) string {
	arrive, state, count, total := "mbarrier.arrive.shared.b64", "_", "", Threads
	if f.isOp("mbarrier.arrive.") {
		arrive = f.Op
		if strings.Contains(f.Args, ",r") {
			state = "%d20"
		}
		if f.count(" operands") == 3 {
			count, total = ", 2", 2*Threads
		}
	}
	wait := "mbarrier.test_wait.parity.shared.b64"
	if f.isOp("mbarrier.try_wait.") {
		wait = f.Op
	}
	var b strings.Builder
	b.WriteString("\t.shared .align 4 .b8 sm[512];\n\t.shared .align 8 .b8 bar[8];\n\tmov.u32 %r20, sm;\n\tmov.u32 %r21, bar;\n" + loadWord() +
		"\tsetp.eq.u32 %p1, %i0, 0;\n\txor.b32 %r22, %i0, 1;\n\tmad.lo.u32 %r23, %i0, 4, %r20;\n\tmad.lo.u32 %r24, %r22, 4, %r20;\n")
	for again := range 2 {
		fmt.Fprintf(&b, "\t@%%p1 mbarrier.init.shared.b64 [%%r21], %d;\n\tbar.sync 0;\n", total)
		fmt.Fprintf(&b, "$W%d:\n\t%s %%p2, [%%r21], 1;\n\t@!%%p2 bra $W%d;\n", again, wait, again)
		fmt.Fprintf(&b, "\tst.shared.b32 [%%r23], %%r1;\n\t%s %s, [%%r21]%s;\n", arrive, state, count)
		fmt.Fprintf(&b, "$L%d:\n\t%s %%p2, [%%r21], 0;\n\t@!%%p2 bra $L%d;\n\tld.shared.b32 %%r%d, [%%r24];\n\tbar.sync 0;\n", again, wait, again, 1-again)
		b.WriteString("\t@%p1 mbarrier.inval.shared.b64 [%r21];\n\tbar.sync 0;\n")
	}
	return b.String() + storeBits("st.v2.b32", "{%r1, %r0}")
}

// arriveWant returns the neighbor's word and the thread's own.
func arriveWant(f Form, in [][]byte, i int) []byte {
	return append(append([]byte(nil), neighborWord(f, in, i)...), ownWord(f, in, i)...)
}
