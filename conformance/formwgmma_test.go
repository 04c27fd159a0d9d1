package conformance

import (
	"fmt"
	"strings"
)

// The instructions of a warpgroup are tried together: two products, of which the second
// adds, in both orders of the core matrices that B is made of.

// wgmmaSums is how many elements of D a thread holds.
const wgmmaSums = 32

// cores are the distances in bytes between the core matrices of B next to each other in K and
// in N.
type cores struct{ leading, stride int }

var wgmmaCores = [2]cores{{128, 256}, {1024, 128}}

// wgmmaRegisters names an accumulator's.
func wgmmaRegisters(prefix string) (list []string) {
	for i := range wgmmaSums {
		list = append(list, fmt.Sprintf("%%%s%d", prefix, i))
	}
	return list
}

// wgmmaProduct is the instruction that a form's kernel multiplies with.
func wgmmaProduct(f form) string {
	if strings.Contains(f.op, ".mma_async.") {
		return f.op
	}
	return "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"
}

// wgmmaWait is how many groups the form's kernel lets be under way at first.
func wgmmaWait(f form) string {
	if strings.Contains(f.op, ".wait_group.") {
		return f.args
	}
	return "0"
}

// wgmmaBody multiplies a from p0 by b from p1, 2 KiB a CTA: once in accumulators that keep what
// they had from p2, then in others that do not.
func wgmmaBody(f form) string {
	var b strings.Builder
	b.WriteString("\t.shared .align 128 .b8 sm[2048];\n\t.reg .b32 %c<32>;\n\t.reg .b32 %e<32>;\n\tmov.u32 %r20, sm;\n\tmad.lo.u32 %r21, %i0, 16, %r20;\n" +
		address("%d9", "%d1", 16) + "\tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d9];\n\tst.shared.v4.b32 [%r21], {%r1, %r2, %r3, %r4};\n" +
		"\tfence.proxy.async.shared::cta;\n\tbar.sync 0;\n" +
		address("%d9", "%d0", 16) + "\tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d9];\n" + address("%d9", "%d2", 2*wgmmaSums))
	for i := range wgmmaSums {
		fmt.Fprintf(&b, "\tld.global.b32 %%c%d, [%%d9+%d];\n\tmov.b32 %%e%d, %%c%d;\n", i, 4*(i%(wgmmaSums/2)), i, i)
	}
	b.WriteString("\tshr.u32 %r22, %r20, 4;\n\tcvt.u64.u32 %d10, %r22;\n\tsetp.eq.u32 %p1, 0, 0;\n\tsetp.ne.u32 %p2, 0, 0;\n")
	for i, c := range wgmmaCores {
		fmt.Fprintf(&b, "\tor.b64 %%d%d, %%d10, %d;\n", 11+i, c.leading>>4<<16|c.stride>>4<<32)
	}
	b.WriteString("\twgmma.fence.sync.aligned;\n")
	for i, prefix := range []string{"c", "e"} {
		fmt.Fprintf(&b, "\t%s {%s}, {%%r1, %%r2, %%r3, %%r4}, %%d%d, %%p%d;\n\twgmma.commit_group.sync.aligned;\n",
			wgmmaProduct(f), strings.Join(wgmmaRegisters(prefix), ", "), 11+i, 1+i)
	}
	fmt.Fprintf(&b, "\twgmma.wait_group.sync.aligned %s;\n\twgmma.wait_group.sync.aligned 0;\n", wgmmaWait(f))
	b.WriteString(address("%d9", formOut, wgmmaSize))
	for i, r := range append(wgmmaRegisters("c"), wgmmaRegisters("e")...) {
		fmt.Fprintf(&b, "\tst.global.b32 [%%d9+%d], %s;\n", 4*i, r)
	}
	return b.String()
}

// wgmmaSize is how many bytes a thread writes.
const wgmmaSize = 2 * 4 * wgmmaSums

// wgmmaWant sums products of bytes, modulo 2^32.
func wgmmaWant(f form, in [][]byte, i int) []byte {
	a := intType{8, !strings.Contains(f.op, ".u8.")}
	cta, warp, g, t := i/formThreads, i/32*32, i%32/4, i%4
	var out []byte
	for product, c := range wgmmaCores {
		for r := range wgmmaSums {
			row, column := g+r%4/2*8, r/4*8+2*t+r%2
			sum := uint64(0)
			if product == 0 {
				sum = unpacked(4, in[2][2*wgmmaSums*i+4*(r%(wgmmaSums/2)):][:4])[0]
			}
			for k := range 32 {
				al, ar := row%8*4+k%16/4, row/8+k/16*2
				b := in[1][2048*cta+k/16*c.leading+column/8*c.stride+column%8*16+k%16]
				sum += a.extend(uint64(in[0][16*(warp+al)+4*ar+k%4])) * intType{8, true}.extend(uint64(b))
			}
			out = append(out, packed("b32", []uint64{sum})...)
		}
	}
	return out
}
