package isa

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// All wgmma instructions share one test kernel. It computes a product for each layout of A and B in
// shared memory that the instruction can read. Every other product accumulates.
//
// The matrices in shared memory overlap: they are whatever a layout finds in the bytes of p1.

// wgmmaForm is what the name and the operands of a product tell.
type wgmmaForm struct {
	columns     int
	size        int    // bytes of a factor
	factors     string // their type, as in floatFormats; bytes of A have their own
	aShared     bool   // A is in shared memory
	transA      bool
	transB      bool
	instruction string
}

// wgmmaFormOf reads a form. Instructions other than products are tested with a product of bytes.
func wgmmaFormOf(f Form) wgmmaForm {
	w := wgmmaForm{instruction: "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"}
	var operands []string
	if strings.Contains(f.Op, ".mma_async.") {
		w.instruction, operands = f.Op, f.list()
	}
	parts := strings.Split(w.instruction, ".")
	w.factors = parts[6]
	depth := 0
	fmt.Sscanf(parts[4], "m64n%dk%d", &w.columns, &depth)
	w.size = 32 / depth
	w.aShared = len(operands) > 0 && operands[0] == "r"
	w.transA = len(operands) == 3 && operands[1] == "1"
	w.transB = len(operands) > 1 && operands[len(operands)-1] == "1"
	return w
}

func (w wgmmaForm) float() bool { return w.size == 2 }

// sums is the number of accumulator registers per thread and product.
func (w wgmmaForm) sums() int { return w.columns / 2 }

// numbers returns the operands after scale-d.
func (w wgmmaForm) numbers() string {
	if !w.float() {
		return ""
	}
	trans := func(t bool) string { return map[bool]string{false: ", 0", true: ", 1"}[t] }
	numbers := ", 1, 1"
	if w.aShared {
		numbers += trans(w.transA)
	}
	return numbers + trans(w.transB)
}

// MatrixBytes is a layout of a matrix in shared memory: the length of a line, and the leading and the stride
// offset of the PTX ISA's matrix descriptor, in bytes.
type MatrixBytes struct{ Line, Leading, Stride int }

// layouts returns the layouts of a matrix of some rows of A or columns of B.
func (w wgmmaForm) layouts(rows int, transposed bool) []MatrixBytes {
	list := []MatrixBytes{{16, 128, 256}, {16, 16 * rows, 128}}
	if !w.float() {
		return list
	}
	for _, line := range []int{32, 64, 128} {
		switch {
		case !transposed:
			list = append(list, MatrixBytes{line, 16, 8 * line})
		case 2*rows%line == 0:
			list = append(list, MatrixBytes{line, 16 * line, 8 * line})
		}
	}
	return list
}

// products returns the layouts of A and B for each product.
func (w wgmmaForm) products() (all [][2]MatrixBytes) {
	as := []MatrixBytes{{}}
	if w.aShared {
		as = w.layouts(64, w.transA)
	}
	for i, b := range w.layouts(w.columns, w.transB) {
		all = append(all, [2]MatrixBytes{as[(i+1)%len(as)], b})
	}
	return all
}

// descriptor returns the bits of a descriptor without the address.
func (l MatrixBytes) descriptor() int64 {
	mode := map[int]uint64{16: 0, 32: 3, 64: 2, 128: 1}[l.Line]
	return int64(uint64(l.Leading>>4<<16|l.Stride>>4<<32) | mode<<62)
}

// at is the offset of the first byte of an element, from the PTX ISA's canonical layouts.
func (l MatrixBytes) at(row, k, size int, transposed bool) int {
	var at int
	switch {
	case transposed && l.Line == 16:
		at = row%8*2 + row/8*l.Stride + k%8*16 + k/8*l.Leading
	case transposed:
		at = row%(l.Line/2)*2 + row/(l.Line/2)*l.Leading + k%8*l.Line + k/8*l.Stride
	case l.Line == 16:
		at = row%8*16 + row/8*l.Stride + k*size%16 + k*size/16*l.Leading
	default:
		at = row%8*l.Line + row/8*l.Stride + k*size
	}
	return at ^ at>>7&(l.Line/16-1)<<4
}

const (
	// wgmmaStartB is the offset of B in shared memory, after A.
	wgmmaStartB = 8192
	// wgmmaChunks is how many 16-byte chunks of p1 each CTA reads. Shared memory repeats them. The
	// number is odd, so that bytes a power of two apart differ.
	wgmmaChunks = 511
)

// WGMMAShared returns how many bytes of shared memory the test kernel has.
func WGMMAShared(f Form) int { return wgmmaStartB + 128*wgmmaFormOf(f).columns }

// wgmmaSize returns the number of output bytes per thread.
func wgmmaSize(f Form) int {
	w := wgmmaFormOf(f)
	return 4 * w.sums() * len(w.products())
}

// wgmmaWait returns how many groups may stay in flight at the first wait.
func wgmmaWait(f Form) string {
	if strings.Contains(f.Op, ".wait_group.") {
		return f.Args
	}
	return "0"
}

// registerList formats n registers as a vector.
func registerList(prefix string, n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("%%%s%d", prefix, i))
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// wgmmaBody multiplies a from p0 or shared memory by b in shared memory. The accumulators come from p2.
// If two products have few of them, both are in flight at once.
func wgmmaBody(f Form) string {
	w := wgmmaFormOf(f)
	typ := map[bool]string{true: "f32", false: "b32"}[w.float()]
	accumulators := []string{"c", "e"}
	if w.columns > 64 {
		accumulators = accumulators[:1]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\t.shared .align 1024 .b8 sm[%d];\n", WGMMAShared(f))
	for _, prefix := range accumulators {
		fmt.Fprintf(&b, "\t.reg .%s %%%s<%d>;\n", typ, prefix, w.sums())
	}
	fmt.Fprintf(&b, "\tmov.u32 %%r20, sm;\n\tmad.wide.u32 %%d9, %%i1, %d, %%d1;\n\tmov.u32 %%r21, %%i0;\n$COPY:\n", arrayBytes/CTAs)
	fmt.Fprintf(&b, "\trem.u32 %%r22, %%r21, %d;\n\tmad.wide.u32 %%d10, %%r22, 16, %%d9;\n\tmad.lo.u32 %%r23, %%r21, 16, %%r20;\n", wgmmaChunks)
	b.WriteString("\tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d10];\n\tst.shared.v4.b32 [%r23], {%r1, %r2, %r3, %r4};\n")
	fmt.Fprintf(&b, "\tadd.u32 %%r21, %%r21, %d;\n\tsetp.lt.u32 %%p1, %%r21, %d;\n\t@%%p1 bra $COPY;\n", Threads, WGMMAShared(f)/16)
	b.WriteString("\tfence.proxy.async.shared::cta;\n\tbar.sync 0;\n" +
		address("%d9", "%d0", 16) + "\tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d9];\n" + address("%d9", "%d2", 64) + address("%d8", outRegister, wgmmaSize(f)) +
		"\tshr.u32 %r22, %r20, 4;\n\tcvt.u64.u32 %d10, %r22;\n\tsetp.eq.u32 %p1, 0, 0;\n\tsetp.ne.u32 %p2, 0, 0;\n")
	all := w.products()
	for first := 0; first < len(all); first += len(accumulators) {
		now := accumulators[:min(len(accumulators), len(all)-first)]
		for _, prefix := range now {
			for i := range w.sums() {
				fmt.Fprintf(&b, "\tld.global.%s %%%s%d, [%%d9+%d];\n", typ, prefix, i, 4*(i%16))
			}
		}
		b.WriteString("\twgmma.fence.sync.aligned;\n")
		for i, prefix := range now {
			p := all[first+i]
			fmt.Fprintf(&b, "\tor.b64 %%d11, %%d10, %d;\n\tadd.u64 %%d12, %%d10, %d;\n\tor.b64 %%d12, %%d12, %d;\n", p[0].descriptor(), wgmmaStartB/16, p[1].descriptor())
			a := "{%r1, %r2, %r3, %r4}"
			if w.aShared {
				a = "%d11"
			}
			fmt.Fprintf(&b, "\t%s %s, %s, %%d12, %%p%d%s;\n\twgmma.commit_group.sync.aligned;\n",
				w.instruction, registerList(prefix, w.sums()), a, 1+(first+i)%2, w.numbers())
		}
		fmt.Fprintf(&b, "\twgmma.wait_group.sync.aligned %s;\n\twgmma.wait_group.sync.aligned 0;\n", wgmmaWait(f))
		for i, prefix := range now {
			for j := range w.sums() {
				fmt.Fprintf(&b, "\tst.global.%s [%%d8+%d], %%%s%d;\n", typ, 4*((first+i)*w.sums()+j), prefix, j)
			}
		}
	}
	return b.String()
}

// wgmmaFactor returns the bytes of an element of A or B for a thread's product.
type wgmmaFactor func(row, k int) []byte

// wgmmaFactors returns the elements of A, by the row of the warp, and of B, by the column, in a product.
func wgmmaFactors(w wgmmaForm, product int, in [][]byte, thread int) (a, b wgmmaFactor) {
	cta, warp := thread/Threads, thread/32*32
	shared := func(at int) []byte { return in[1][arrayBytes/CTAs*cta+at%(16*wgmmaChunks):][:w.size] }
	p := w.products()[product]
	a = func(row, k int) []byte {
		at := k * w.size
		lane, register := row%8*4+at%16/4, row/8+at/16*2
		return in[0][16*(warp+lane)+4*register+at%4:][:w.size]
	}
	if w.aShared {
		a = func(row, k int) []byte { return shared(p[0].at(warp%Threads/2+row, k, w.size, w.transA)) }
	}
	return a, func(column, k int) []byte { return shared(wgmmaStartB + p[1].at(column, k, w.size, w.transB)) }
}

// wgmmaElement returns the row in the warp, the column and the accumulator of register r.
func wgmmaElement(in [][]byte, i, product, r int) (row, column int, accumulator []byte) {
	g, t := i%32/4, i%4
	if product%2 == 0 {
		accumulator = in[2][64*i+4*(r%16):][:4]
	}
	return g + r%4/2*8, r/4*8 + 2*t + r%2, accumulator
}

// wgmmaWant sums products of bytes modulo 2^32.
func wgmmaWant(f Form, in [][]byte, i int) []byte {
	w := wgmmaFormOf(f)
	var out []byte
	for product := range w.products() {
		a, b := wgmmaFactors(w, product, in, i)
		for r := range w.sums() {
			row, column, accumulator := wgmmaElement(in, i, product, r)
			sum := uint64(0)
			if accumulator != nil {
				sum = unpack(4, accumulator)[0]
			}
			for k := range 32 {
				sum += intType{8, w.factors == "s8"}.extend(uint64(a(row, k)[0])) * intType{8, true}.extend(uint64(b(column, k)[0]))
			}
			out = append(out, pack("b32", []uint64{sum})...)
		}
	}
	return out
}

// wgmmaCheck compares with float64 sums and returns the largest error divided by the bound, which is
// that of mma. The sums of the first CTA are exact.
func wgmmaCheck(f Form, in [][]byte, got []byte) (worst float64, err error) {
	w := wgmmaFormOf(f)
	format, f32 := floatFormats[w.factors], floatFormats["f32"]
	for i := range CTAs * Threads {
		for product := range w.products() {
			a, b := wgmmaFactors(w, product, in, i)
			for r := range w.sums() {
				row, column, accumulator := wgmmaElement(in, i, product, r)
				sum := 0.0
				if accumulator != nil {
					sum = f32.value(unpack(4, accumulator)[0])
				}
				size := math.Abs(sum)
				for k := range 16 {
					p := float64(format.value(unpack(2, a(row, k))[0]) * format.value(unpack(2, b(column, k))[0]))
					sum, size = sum+p, size+math.Abs(p)
				}
				bound := float64(mmaBound*size) + 0x1p-126
				if i < Threads {
					bound = 0
				}
				d := f32.value(unpack(4, got[i*wgmmaSize(f)+4*(product*w.sums()+r):][:4])[0])
				ratio, ok := mmaRatio(d, sum, bound)
				if !ok {
					return ratio, fmt.Errorf("thread %d, product %d, element (%d, %d): %v, want %v within %.3g", i, product, row, column, d, sum, bound)
				}
				worst = max(worst, ratio)
			}
		}
	}
	return worst, nil
}

// wgmmaFill fills the inputs of float products: small integers for the first CTA, then numbers of many
// magnitudes. A in the registers of the last warp also has zeros, subnormals, infinities and NaN.
func wgmmaFill(f Form, r *rand.Rand, in [][]byte) {
	factors := wgmmaFormOf(f).factors
	perCTA := []int{16 * Threads, arrayBytes / CTAs, 64 * Threads}
	for k, typ := range []string{factors, factors, "f32"} {
		size := typeBytes[typ]
		for at := 0; at < arrayBytes; at += size {
			fillFactor(r, typ, in[k][at:][:size], at < perCTA[k], k == 0 && at >= CTAs*perCTA[k]-16*32)
		}
	}
}
