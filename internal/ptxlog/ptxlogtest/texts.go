// Package ptxlogtest has PTX texts that NVIDIA's assembler makes slow, for the tests of the packages
// that must notice it.
package ptxlogtest

import (
	"fmt"
	"strings"
)

// Text is a PTX text with one entry, k.
type Text struct {
	Name   string
	PTX    string
	Linked bool   // the warning needs ptxas --compile-only
	Want   string // a part of the error of ptxlog.Report.Check; "": no error
}

// Headers of texts for the two targets.
const (
	sm80  = ".version 7.4\n.target sm_80\n.address_size 64\n"
	sm90a = ".version 8.0\n.target sm_90a\n.address_size 64\n"
)

// Texts returns texts that are slow for different reasons, and similar texts that are not.
func Texts() []Text {
	const (
		external = ".extern .func f();\n"
		internal = ".global .u32 g;\n.func f()\n{\n\t.reg .b32 %r;\n\tmov.u32 %r, %clock;\n\tst.volatile.global.u32 [g], %r;\n\tret;\n}\n"
		call     = "\tcall f;\n"
		indirect = "\t.reg .b64 %f;\n\tmov.u64 %f, f;\nproto:\t.callprototype _ ();\n\tcall %f, proto;\n" // cannot be inlined
		readD    = "\tst.global.f32 [%p], %d0;\n"
		writeD   = "\tadd.f32 %d0, %d0, %d1;\n"
		setA     = "\tmov.b32 %a0, 1;\n\tmov.b32 %a1, 1;\n\tmov.b32 %a2, 1;\n\tmov.b32 %a3, 1;\n"
		writeA   = "\tld.global.u32 %a0, [%p+64];\n"
		raise    = "\tsetmaxnreg.inc.sync.aligned.u32 160;\n"
		capped   = " .maxnreg 128"
		array    = "\t.local .b8 a[1024];\n\t.reg .b64 %a;\n\tmov.u64 %a, a;\n\tadd.u64 %a, %a, %x;\n" +
			"\tst.local.u32 [%a], 1;\n\tst.local.u32 [%a+4], 2;\n\tld.local.u64 %x, [a+16];\n"
	)
	// The assembler merges equal products.
	first, second, fromRegisters := product(8, 0, "%x"), product(8, 0, "%y"), product(8, 0, "{%a0, %a1, %a2, %a3}")
	wide := product(256, 0, "%x") + product(256, 128, "%x") + product(256, 256, "%x")
	return []Text{
		{Name: "products in order", PTX: sm90a + products(4, first+second)},
		{Name: "accumulators are written in flight", PTX: sm90a + products(4, first+writeD+second), Want: "C7515: wgmma is serialized"},
		{Name: "accumulators are read in flight", PTX: sm90a + products(4, first+readD+second), Want: "C7514: wgmma is serialized"},
		{Name: "registers of A are written in flight", PTX: sm90a + products(4, setA+fromRegisters+writeA+fromRegisters), Want: "C7513: wgmma is serialized"},
		{Name: "more accumulators in flight than registers", PTX: sm90a + products(384, wide), Want: "C7511: wgmma is serialized"},
		{Name: "a call in flight", PTX: sm90a + internal + products(4, first+indirect), Want: "C7510: wgmma is serialized"},
		{Name: "an external call in flight", PTX: sm90a + external + products(4, first+call), Linked: true, Want: "C7509: wgmma is serialized"},
		{Name: "setmaxnreg", PTX: sm90a + entry(capped, raise)},
		{Name: "setmaxnreg without a register count at entry", PTX: sm90a + entry(" .maxntid 384", raise), Want: "C7508: setmaxnreg is ignored"},
		{Name: "setmaxnreg, linked", PTX: sm90a + entry(capped, raise), Linked: true, Want: "C7504: setmaxnreg is ignored"},
		{Name: "as many values as fit", PTX: Crowded(20)},
		{Name: "more values than registers", PTX: Crowded(64), Want: "bytes of spill stores"},
		{Name: "a local array", PTX: sm80 + entry("", array), Want: "1024 bytes of local memory"},
	}
}

// Target returns the target that the text is for.
func (t Text) Target() string {
	if strings.HasPrefix(t.PTX, sm80) {
		return "sm_80"
	}
	return "sm_90a"
}

// entry returns kernel k, which reads x and y from its parameter p, runs the body and writes x.
func entry(directives, body string) string {
	return ".visible .entry k(.param .u64 p)" + directives + "\n{\n\t.reg .b64 %p, %x, %y;\n" +
		"\tld.param.u64 %p, [p];\n\tld.global.v2.u64 {%x, %y}, [%p];\n" + body + "\tst.global.u64 [%p], %x;\n\tret;\n}\n"
}

// products returns a kernel that loads n accumulators, runs a group of products and stores the
// accumulators.
func products(n int, group string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\t.reg .f32 %%d<%d>;\n\t.reg .b32 %%a<4>;\n\t.reg .pred %%add;\n\tsetp.eq.u32 %%add, 0, 0;\n", n)
	for i := range n {
		fmt.Fprintf(&b, "\tld.volatile.global.f32 %%d%d, [%%p+%d];\n", i, 16+4*i)
	}
	b.WriteString("\twgmma.fence.sync.aligned;\n" + group + "\twgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;\n")
	for i := range n {
		fmt.Fprintf(&b, "\tst.global.f32 [%%p+%d], %%d%d;\n", 16+4*i, i)
	}
	return entry("", b.String())
}

// product returns a product of A with n columns that adds to accumulators d to d+n/2-1. A is a
// descriptor or four registers.
func product(n, d int, a string) string {
	var accumulators []string
	for i := range n / 2 {
		accumulators = append(accumulators, fmt.Sprintf("%%d%d", d+i))
	}
	transposed := "0, 0" // A and B
	if strings.HasPrefix(a, "{") {
		transposed = "0" // B
	}
	return fmt.Sprintf("\twgmma.mma_async.sync.aligned.m64n%dk16.f32.f16.f16 {%s}, %s, %%y, %%add, 1, 1, %s;\n",
		n, strings.Join(accumulators, ", "), a, transposed)
}

// Crowded returns a kernel that keeps n loaded values live in at most 32 registers. Volatile accesses
// keep their order, so no value can be stored early.
func Crowded(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\t.reg .b32 %%r<%d>;\n", n)
	for i := range n {
		fmt.Fprintf(&b, "\tld.volatile.global.u32 %%r%d, [%%p+%d];\n", i, 4*i)
	}
	for i := range n {
		fmt.Fprintf(&b, "\tst.volatile.global.u32 [%%p+%d], %%r%d;\n", 4*i, n-1-i)
	}
	return sm80 + entry(" .maxnreg 32", b.String())
}
