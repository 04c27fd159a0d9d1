package isa

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// matrices returns how many 8×8 matrices an ldmatrix loads.
func matrices(f Form) int {
	_, rest, _ := strings.Cut(f.Op, ".x")
	return int(rest[0] - '0')
}

// ldmatrixBody gives each warp 512 bytes of shared memory: four matrices of eight rows. Lane l
// addresses row l of these 32.
func ldmatrixBody(f Form) string {
	n := matrices(f)
	regs := []string{"%r1", "%r2", "%r3", "%r4"}[:n]
	var b strings.Builder
	b.WriteString("\t.shared .align 16 .b8 sm[2048];\n\tmov.u32 %r20, sm;\n\tmad.lo.u32 %r21, %i0, 16, %r20;\n" + address("%d9", "%d0", 16) +
		"\tld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%d9];\n\tst.shared.v4.b32 [%r21], {%r5, %r6, %r7, %r8};\n\tbar.sync 0;\n")
	fmt.Fprintf(&b, "\t%s {%s}, [%%r21];\n", f.Op, strings.Join(regs, ", "))
	b.WriteString(address("%d9", outRegister, 4*n))
	for i, r := range regs {
		fmt.Fprintf(&b, "\tst.global.b32 [%%d9+%d], %s;\n", 4*i, r)
	}
	return b.String()
}

func ldmatrixWant(f Form, in [][]byte, i int) []byte {
	warp, lane := i/32, i%32
	var out []byte
	for m := range matrices(f) {
		at := func(row, column int) []byte { return in[0][512*warp+16*(8*m+row)+2*column:][:2] }
		for j := range 2 {
			if strings.Contains(f.Op, ".trans") {
				out = append(out, at(2*(lane%4)+j, lane/4)...)
			} else {
				out = append(out, at(lane/4, 2*(lane%4)+j)...)
			}
		}
	}
	return out
}

// mmaBody multiplies one pair of fragments per warp: a from p0, b from p1, c from p2. A
// matrix of 16 columns of bytes takes half the registers.
func mmaBody(f Form) string {
	acc, typ, factors := "{%f1, %f2, %f3, %f4}", "f32", "{%r1, %r2, %r3, %r4}, {%r5, %r6}"
	if strings.HasSuffix(f.Op, ".s32") {
		acc, typ = "{%r7, %r8, %r9, %r10}", "b32"
		if byteColumns(f) == 16 {
			factors = "{%r1, %r2}, {%r5}"
		}
	}
	return address("%d9", "%d0", 16) + "\tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d9];\n" +
		address("%d9", "%d1", 8) + "\tld.global.v2.b32 {%r5, %r6}, [%d9];\n" +
		address("%d9", "%d2", 16) + "\tld.global.v4." + typ + " " + acc + ", [%d9];\n" +
		"\t" + f.Op + " " + acc + ", " + factors + ", " + acc + ";\n" +
		address("%d9", outRegister, 16) + "\tst.global.v4." + typ + " [%d9], " + acc + ";\n"
}

// byteColumns returns the number of columns of a byte matrix a.
func byteColumns(f Form) int {
	if strings.Contains(f.Op, "m16n8k16") {
		return 16
	}
	return 32
}

// mmaFactor returns the type of the factors.
func mmaFactor(f Form) string {
	parts := strings.Split(f.Op, ".")
	return parts[len(parts)-2]
}

// exactWarp reports whether a warp's factors are small integers. Their sums are exact in any
// order.
func exactWarp(warp int) bool { return warp%2 == 0 }

// mmaFill fills the inputs with small integers, or with numbers of many magnitudes. The
// last warp also gets zeros, subnormals, infinities and NaN.
func mmaFill(f Form, r *rand.Rand, in [][]byte) {
	for k, typ := range []string{mmaFactor(f), mmaFactor(f), "f32"} {
		size := typeBytes[typ]
		lanes := []int{16, 8, 16}[k]
		for at := 0; at < arrayBytes; at += size {
			warp := at / (32 * lanes)
			fillFactor(r, typ, in[k][at:][:size], exactWarp(warp), warp == CTAs*Threads/32-1)
		}
	}
}

// fillFactor writes a random number: a small integer, or one of many magnitudes. If special is set,
// it may also be a zero, a subnormal, an infinity or NaN.
func fillFactor(r *rand.Rand, typ string, to []byte, integer, special bool) {
	format := floatFormats[typ]
	bits := format.nearest(math.Ldexp(r.NormFloat64(), r.IntN(8)-4))
	switch {
	case integer:
		bits = format.nearest(float64(r.IntN(33) - 16))
	case special && r.IntN(8) == 0:
		bits = pool(typ)[r.IntN(len(pool(typ)))]
		if v := math.Abs(format.value(bits)); v > 0x1p60 && !math.IsInf(v, 0) { // sums must not overflow
			bits = 0
		}
	}
	copy(to, pack("b64", []uint64{bits}))
}

// mmaBound is the largest error of a sum of 16 products and an accumulator, relative to the
// sum of magnitudes: 17 terms are aligned to the largest and truncated to 24 bits, in one or
// two groups.
const mmaBound = 2 * 17 * 0x1p-24

// mmaCheck compares with float64 sums and returns the largest error divided by the bound.
func mmaCheck(f Form, in [][]byte, got []byte) (worst float64, err error) {
	format, f32 := floatFormats[mmaFactor(f)], floatFormats["f32"]
	factor := func(p []byte, at int) float64 { return format.value(unpack(2, p[at:at+2])[0]) }
	word := func(p []byte, at int) float64 { return f32.value(unpack(4, p[at:at+4])[0]) }
	for i := range CTAs * Threads {
		warp, g, t := i/32*32, i%32/4, i%4
		for r := range 4 {
			row, column := g+r/2*8, 2*t+r%2
			sum := word(in[2], 16*i+4*r)
			size := math.Abs(sum)
			for k := range 16 {
				// lane and register of element (row, k) of a and (k, column) of b
				al, ar := row%8*4+k%8/2, row/8+k/8*2
				bl, br := column*4+k%8/2, k/8
				p := float64(factor(in[0], 16*(warp+al)+4*ar+2*(k%2)) * factor(in[1], 8*(warp+bl)+4*br+2*(k%2)))
				sum, size = sum+p, size+math.Abs(p)
			}
			bound := float64(mmaBound*size) + 0x1p-126
			if exactWarp(i / 32) {
				bound = 0
			}
			d := word(got, 16*i+4*r)
			ratio, ok := mmaRatio(d, sum, bound)
			if !ok {
				return ratio, fmt.Errorf("warp %d, element (%d, %d): %v, want %v within %.3g", i/32, row, column, d, sum, bound)
			}
			worst = max(worst, ratio)
		}
	}
	return worst, nil
}

// mmaRatio returns the error divided by the bound, and whether it is allowed.
func mmaRatio(d, want, bound float64) (ratio float64, ok bool) {
	switch {
	case d == want || d != d && want != want:
		return 0, true
	case bound == 0 || want != want || math.IsInf(want, 0):
		return math.Inf(1), false
	}
	ratio = math.Abs(d-want) / bound
	return ratio, ratio <= 1
}

// integerMMAWant sums products of bytes modulo 2^32.
func integerMMAWant(f Form, in [][]byte, i int) []byte {
	parts := strings.Split(f.Op, ".")
	a, b := intType{8, parts[7] == "s8"}, intType{8, parts[8] == "s8"}
	warp, g, t := i/32*32, i%32/4, i%4
	var out []byte
	for r := range 4 {
		row, column := g+r/2*8, 2*t+r%2
		sum := unpack(4, in[2][16*i+4*r:][:4])[0]
		for k := range byteColumns(f) {
			al, ar := row%8*4+k%16/4, row/8+k/16*2
			bl, br := column*4+k%16/4, k/16
			sum += a.extend(uint64(in[0][16*(warp+al)+4*ar+k%4])) * b.extend(uint64(in[1][8*(warp+bl)+4*br+k%4]))
		}
		out = append(out, pack("b32", []uint64{sum})...)
	}
	return out
}
