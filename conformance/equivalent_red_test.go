package conformance

import (
	"slices"
	"strings"
	"testing"
)

// flowOfText reads a text and finds the line with a comment.
func flowOfText(text, mark string) (f flow, line int) {
	lines := strings.Split(text, "\n")
	line = slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, mark) })
	lines[line] = strings.TrimSuffix(lines[line], " // "+mark)
	return flowOf(lines), line
}

// What shows a mutant to mean the same must not show it of one that does not.

func TestNeedlessBarrier(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"between a store and a load", "\tst.shared.u32 [%r0], %r1;\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];", false},
		{"between a load and a store", "\tld.shared.u32 %r2, [%r0];\n\tbar.sync 0; // HERE\n\tst.shared.u32 [%r0], %r1;", false},
		{"between loads", "\tld.shared.u32 %r2, [%r0];\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r3, [%r0];", true},
		{"between shared and global memory", "\tld.global.u32 %r2, [%d0];\n\tbar.sync 0; // HERE\n\tst.shared.u32 [%r0], %r2;", true},
		{"behind another one", "\tst.shared.u32 [%r0], %r1;\n\tbar.sync 0;\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];", true},
		{"a store in the round before", "$L0:\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];\n\tst.shared.u32 [%r1], %r2;\n\t@%p0 bra $L0;", false},
		{"a copy that was waited for", "\tcp.async.wait_group 0;\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];", false},
		{"of a warp, behind one of a CTA", "\tst.shared.u32 [%r0], %r1;\n\tbar.sync 0;\n\tbar.warp.sync 4294967295; // HERE\n\tld.shared.u32 %r2, [%r0];", true},
		{"of a CTA, behind one of a warp", "\tst.shared.u32 [%r0], %r1;\n\tbar.warp.sync 4294967295;\n\tbar.sync 0; // HERE\n\tld.shared.u32 %r2, [%r0];", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, line := flowOfText(c.text, "HERE")
			if got := f.needless(line); got != c.want {
				t.Errorf("needless: %v, want %v", got, c.want)
			}
		})
	}
}

const unitsText = `	.param .u64 .ptr .global .align 16 y,
.maxntid 64, 1, 1
{
	ld.param.u64 %d0, [y];
	ld.param.u32 %r0, [n];
	add.u32 %r1, %r0, 31;
	shr.u32 %r2, %r1, 5;
	shl.b32 %r3, %r2, 5;
	add.u32 %r4, %r3, 3;
	shr.u32 %r5, %r4, 2;
	mov.u32 %r6, %tid.x;
	setp.lt.u32 %p0, %r6, %r5;
	shl.b32 %r7, %r6, 2;
	min.u32 %r8, %r7, %r3;
	sub.u32 %r9, %r3, %r8;
	setp.ge.u32 %p1, %r9, 4;
	cvt.u32.u64 %r10, %d0;
	and.b32 %r11, %r10, 15;
	setp.eq.u32 %p2, %r11, 0;
	and.pred %p3, %p1, %p2;
	and.b32 %r12, %r10, 31;
	setp.eq.u32 %p4, %r12, 0;
	sub.u32 %r13, %r0, %r8;
	setp.ge.u32 %p5, %r13, 4;
	shr.u32 %r14, %r6, 6;
	shr.u32 %r15, %r6, 5;
	setp.lt.u32 %p6, %r7, %r3;
	setp.lt.u32 %p7, %r7, %r0;`

func TestValuesThatAreKnown(t *testing.T) {
	f, _ := flowOfText(unitsText, "maxntid")
	for p, want := range map[string]bool{
		"%p1": true, "%p2": true, "%p3": true, // whole quads at a multiple of 16
		"%p4": false, // of 32
		"%p5": false, // a length that is any
		"%p0": false,
	} {
		if got := f.holds(p); got != want {
			t.Errorf("%s holds: %v, want %v", p, got, want)
		}
	}
	for reg, want := range map[string]uint64{"%r6": 63, "%r14": 0, "%r15": 1, "%r0": 1<<32 - 1} {
		if got := f.most(reg); got != want {
			t.Errorf("%s is at most %d, want %d", reg, got, want)
		}
	}
	for p, want := range map[string]bool{"%p6": true, "%p7": false} {
		if s, _ := f.definition(p); f.impliesQuads(s) != want {
			t.Errorf("%s is 4i < n: %v, want %v", p, !want, want)
		}
	}
}

func TestDecides(t *testing.T) {
	const text = "\tadd.u32 %r1, %r0, 1; // HERE\n\tsetp.lt.u32 %p0, %r1, %r2;\n\t@%p0 bra $L0;\n\tselp.b32 %r4, %r2, %r3, %p0;\n$L0:\n"
	f, line := flowOfText(text, "HERE")
	if got := f.decides(line); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("decides the lines %v, want 2 and 3", got)
	}
	f, line = flowOfText(text+"\tst.global.u32 [%d0], %r1;", "HERE")
	if got := f.decides(line); got != nil {
		t.Errorf("decides the lines %v, but is stored, too", got)
	}
}
