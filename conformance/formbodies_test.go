package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/quant"
)

// sharedBody passes each thread's element to its neighbour through shared memory,
// the stores or the loads being what is tried.
func sharedBody(f form) string {
	load, store := f.op, f.op
	typ, n := element(f.op)
	vector := ""
	if n > 1 {
		vector = fmt.Sprintf("v%d.", n)
	}
	if strings.HasPrefix(f.op, "ld") {
		store = "st.shared." + vector + typ
		if typ[0] == 's' {
			store = "st.shared." + vector + "u" + typ[1:]
		}
	} else {
		load = "ld.shared." + vector + typ
	}
	size := accessSize(f)
	get := "ld.global." + vector + typ
	return fmt.Sprintf("\t.shared .align 16 .b8 sm[%d];\n", size*formThreads) + address("%d9", "%d0", size) +
		"\t" + get + " " + target(f.op) + ", [%d9];\n" +
		fmt.Sprintf("\tmov.u32 %%r20, sm;\n\tmad.lo.u32 %%r21, %%i0, %d, %%r20;\n", size) +
		"\t" + store + " [%r21], " + target(f.op) + ";\n\tbar.sync 0;\n" +
		fmt.Sprintf("\txor.b32 %%r22, %%i0, 1;\n\tmad.lo.u32 %%r21, %%r22, %d, %%r20;\n", size) +
		"\t" + load + " " + target(f.op) + ", [%r21];\n" + storeBits(f.op, target(f.op))
}

// barrierThreads is how many threads of a CTA take part in a barrier's form.
func barrierThreads(f form) int {
	if n := f.numbers(); strings.HasPrefix(f.op, "bar.sync") && len(n) == 2 {
		threads, _ := strconv.Atoi(n[1])
		return threads
	}
	return formThreads
}

// barrierBody passes a word to the neighbour, around the barrier; threads that it
// does not count keep theirs.
func barrierBody(f form) string {
	constants := strings.Join(f.numbers(), ", ")
	return "\t.shared .align 4 .b8 sm[512];\n" + address("%d9", "%d0", 4) + "\tld.global.b32 %r1, [%d9];\n" +
		fmt.Sprintf("\tsetp.ge.u32 %%p1, %%i0, %d;\n\t@%%p1 bra $L1;\n", barrierThreads(f)) +
		"\tmov.u32 %r20, sm;\n\tmad.lo.u32 %r21, %i0, 4, %r20;\n\tst.shared.b32 [%r21], %r1;\n\t" + f.op + " " + constants + ";\n" +
		"\txor.b32 %r22, %i0, 1;\n\tmad.lo.u32 %r21, %r22, 4, %r20;\n\tld.shared.b32 %r1, [%r21];\n$L1:\n" + storeBits("st.b32", "%r1")
}

// atomicBody puts p0's word in memory, combines the next one with it, and stores
// what an atom returns 8 bytes further on (a red: 0).
func atomicBody(f form) string {
	typ, _ := element(f.op)
	size := elementBytes(typ)
	r := map[int]string{4: "%r", 8: "%d1"}[size]
	body := address("%d9", "%d0", 16) + address("%d8", "%d4", 16) +
		fmt.Sprintf("\tld.global.b%d %s1, [%%d9];\n\tld.global.b%d %s2, [%%d9+8];\n\tst.global.b%d [%%d8], %s1;\n", 8*size, r, 8*size, r, 8*size, r)
	if size == 4 {
		body += "\tst.global.b32 [%d8+4], 0;\n"
	}
	body += "\tmov.b64 %d20, 0;\n\tst.global.b64 [%d8+8], %d20;\n"
	if strings.HasPrefix(f.op, "red") {
		return body + fmt.Sprintf("\t%s [%%d8], %s2;\n", f.op, r)
	}
	return body + fmt.Sprintf("\t%s %s3, [%%d8], %s2;\n\tst.global.b%d [%%d8+8], %s3;\n", f.op, r, r, 8*size, r)
}

func atomicWant(f form, p0 []byte, i int) []byte {
	typ, _ := element(f.op)
	size := elementBytes(typ)
	a, b := binary.LittleEndian.Uint64(p0[16*i:]), binary.LittleEndian.Uint64(p0[16*i+8:])
	if size == 4 {
		a, b = uint64(uint32(a)), uint64(uint32(b))
	}
	var after uint64
	switch {
	case strings.Contains(f.op, ".add."):
		after = a + b
	case strings.Contains(f.op, ".max."):
		after = max(a, b)
	case strings.Contains(f.op, ".min."):
		after = min(a, b)
	case strings.Contains(f.op, ".exch."):
		after = b
	}
	if size == 4 {
		after = uint64(uint32(after))
	}
	if strings.HasPrefix(f.op, "red") {
		a = 0
	}
	return packed("b64", []uint64{after, a})
}

func specialWant(name string, i int) uint64 {
	t := i % formThreads
	switch name {
	case "%tid.x":
		return uint64(t)
	case "%ctaid.x":
		return uint64(i / formThreads)
	case "%ntid.x":
		return formThreads
	case "%nctaid.x":
		return formCTAs
	case "%laneid":
		return uint64(t % 32)
	case "%nctaid.y", "%nctaid.z", "%ntid.y", "%ntid.z":
		return 1
	}
	return 0 // the other coordinates
}

func swappedHalves(_ form, p0 []byte, i int) []byte {
	b := p0[4*i:]
	return []byte{b[2], b[3], b[0], b[1]}
}

// copyGroups is how many groups of copies the form's kernel has in flight.
func copyGroups(f form) int {
	if n := f.numbers(); strings.HasPrefix(f.op, "cp.async.wait_group") && len(n) == 1 {
		groups, _ := strconv.Atoi(n[0])
		return min(groups+1, 4)
	}
	return 2
}

// copyBody copies 16 bytes a thread and group to shared memory, waits until the
// first group has landed, then for all, and stores the neighbour's; groups that
// there are not give zeros. With a fourth operand it is how many bytes are copied.
func copyBody(f form) string {
	groups := copyGroups(f)
	copy16, size := "cp.async.cg.shared.global", ""
	if strings.HasPrefix(f.op, "cp.async.c") && strings.Contains(f.op, "shared") {
		copy16 = f.op
	}
	var b strings.Builder
	b.WriteString("\t.shared .align 16 .b8 sm[8192];\n\tmov.u32 %r20, sm;\n\tmad.lo.u32 %r21, %i0, 16, %r20;\n" + address("%d9", "%d0", 16))
	if f.args == "4 operands" {
		b.WriteString("\trem.u32 %r24, %i0, 17;\n")
		size = ", %r24"
	}
	for g := range groups {
		fmt.Fprintf(&b, "\t%s [%%r21+%d], [%%d9+%d], 16%s;\n\tcp.async.commit_group;\n", copy16, 2048*g, 4096*g, size)
	}
	b.WriteString("\txor.b32 %r22, %i0, 1;\n\tmad.lo.u32 %r23, %r22, 16, %r20;\n" + address("%d8", "%d4", 64))
	for g := range 4 {
		switch {
		case g == 0:
			fmt.Fprintf(&b, "\tcp.async.wait_group %d;\n\tbar.sync 0;\n", groups-1)
		case g == 1:
			b.WriteString("\tcp.async.wait_group 0;\n\tbar.sync 0;\n")
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

func copyWant(f form, p0 []byte, i int) []byte {
	out := make([]byte, 64)
	n := 16
	if f.args == "4 operands" {
		n = (i ^ 1) % formThreads % 17
	}
	for g := range copyGroups(f) {
		copy(out[16*g:16*g+n], p0[16*(i^1)+4096*g:])
	}
	return out
}

// bulkBody brings a CTA's 2 KiB to shared memory by the copy engine and waits at an
// mbarrier.
func bulkBody(form) string {
	return "\t.shared .align 128 .b8 sm[2048];\n\t.shared .align 8 .b8 bar[8];\n\tmov.u32 %r20, sm;\n\tmov.u32 %r21, bar;\n" +
		"\tsetp.ne.u32 %p1, %i0, 0;\n\t@%p1 bra $L1;\n\tmbarrier.init.shared.b64 [%r21], 1;\n\tfence.mbarrier_init.release.cluster;\n" +
		"\tmad.wide.u32 %d9, %i1, 2048, %d0;\n\tmbarrier.arrive.expect_tx.shared.b64 %d20, [%r21], 2048;\n" +
		"\tcp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%d9], 2048, [%r21];\n$L1:\n\tbar.sync 0;\n" +
		"$L2:\n\tmbarrier.try_wait.parity.shared.b64 %p2, [%r21], 0;\n\t@!%p2 bra $L2;\n" +
		"\tmad.lo.u32 %r22, %i0, 16, %r20;\n\tld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r22];\n" + storeBits("st.v4.b32", "{%r1, %r2, %r3, %r4}")
}

// matrices is how many an ldmatrix loads.
func matrices(f form) int {
	_, rest, _ := strings.Cut(f.op, ".x")
	return int(rest[0] - '0')
}

// ldmatrixBody gives each warp 512 bytes, four matrices, of which lane l names row l.
func ldmatrixBody(f form) string {
	n := matrices(f)
	regs := []string{"%r1", "%r2", "%r3", "%r4"}[:n]
	var b strings.Builder
	b.WriteString("\t.shared .align 16 .b8 sm[2048];\n\tmov.u32 %r20, sm;\n\tmad.lo.u32 %r21, %i0, 16, %r20;\n" + address("%d9", "%d0", 16) +
		"\tld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%d9];\n\tst.shared.v4.b32 [%r21], {%r5, %r6, %r7, %r8};\n\tbar.sync 0;\n")
	fmt.Fprintf(&b, "\t%s {%s}, [%%r21];\n", f.op, strings.Join(regs, ", "))
	b.WriteString(address("%d9", "%d4", 4*n))
	for i, r := range regs {
		fmt.Fprintf(&b, "\tst.global.b32 [%%d9+%d], %s;\n", 4*i, r)
	}
	return b.String()
}

func ldmatrixWant(f form, p0 []byte, i int) []byte {
	warp, lane := i/32, i%32
	var out []byte
	for m := range matrices(f) {
		at := func(row, column int) []byte { return p0[512*warp+16*(8*m+row)+2*column:][:2] }
		for j := range 2 {
			if strings.Contains(f.op, ".trans") {
				out = append(out, at(2*(lane%4)+j, lane/4)...)
			} else {
				out = append(out, at(lane/4, 2*(lane%4)+j)...)
			}
		}
	}
	return out
}

// mmaBody multiplies one pair of fragments a warp: a from p0, b from p1, c from p2.
func mmaBody(f form) string {
	return address("%d9", "%d0", 16) + "\tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d9];\n" +
		address("%d9", "%d1", 8) + "\tld.global.v2.b32 {%r5, %r6}, [%d9];\n" +
		address("%d9", "%d2", 16) + "\tld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d9];\n" +
		"\t" + f.op + " {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};\n" +
		address("%d9", "%d4", 16) + "\tst.global.v4.f32 [%d9], {%f1, %f2, %f3, %f4};\n"
}

// mmaBound is the largest error of a sum of 16 products and an accumulator on a
// tensor core, of the sum of their magnitudes: 17 terms aligned to the largest and
// cut off after 24 bits, in up to two steps.
const mmaBound = 2 * 17 * 0x1p-24

// mmaCheck compares with sums in float64 and gives the largest error ÷ bound.
func mmaCheck(f form, in [][]byte, got []byte) (worst float64, err error) {
	format := quant.F16
	if strings.Contains(f.op, "bf16") {
		format = quant.BF16
	}
	half := func(p []byte, at int) float64 {
		var x [1]float64
		quant.Decode(format, x[:], p[at:at+2])
		return x[0]
	}
	for i := range formCTAs * formThreads {
		warp, g, t := i/32*32, i%32/4, i%4
		for r := range 4 {
			row, column := g+r/2*8, 2*t+r%2
			c := float64(f32Of(uint64(binary.LittleEndian.Uint32(in[2][16*i+4*r:]))))
			sum, size := c, math.Abs(c)
			for k := range 16 {
				// element (row, k) of a, (k, column) of b: which lane's register has it
				al, ar := row%8*4+k%8/2, row/8+k/8*2
				bl, br := column*4+k%8/2, k/8
				p := half(in[0], 16*(warp+al)+4*ar+2*(k%2)) * half(in[1], 8*(warp+bl)+4*br+2*(k%2))
				sum, size = sum+p, size+math.Abs(p)
			}
			d := float64(f32Of(uint64(binary.LittleEndian.Uint32(got[16*i+4*r:]))))
			ratio := math.Abs(d-sum) / (mmaBound * size)
			if !(ratio <= 1) {
				return ratio, fmt.Errorf("warp %d, element (%d, %d): %v, want %v within %.3g", i/32, row, column, d, sum, mmaBound*size)
			}
			worst = max(worst, ratio)
		}
	}
	return worst, nil
}
