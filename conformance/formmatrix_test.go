package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

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
	b.WriteString(address("%d9", formOut, 4*n))
	for i, r := range regs {
		fmt.Fprintf(&b, "\tst.global.b32 [%%d9+%d], %s;\n", 4*i, r)
	}
	return b.String()
}

func ldmatrixWant(f form, in [][]byte, i int) []byte {
	warp, lane := i/32, i%32
	var out []byte
	for m := range matrices(f) {
		at := func(row, column int) []byte { return in[0][512*warp+16*(8*m+row)+2*column:][:2] }
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

// mmaBody multiplies one pair of fragments a warp: a from p0, b from p1, c from p2. Of
// bytes, 16 columns of a take half the registers.
func mmaBody(f form) string {
	acc, typ, factors := "{%f1, %f2, %f3, %f4}", "f32", "{%r1, %r2, %r3, %r4}, {%r5, %r6}"
	if strings.HasSuffix(f.op, ".s32") {
		acc, typ = "{%r7, %r8, %r9, %r10}", "b32"
		if byteColumns(f) == 16 {
			factors = "{%r1, %r2}, {%r5}"
		}
	}
	return address("%d9", "%d0", 16) + "\tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d9];\n" +
		address("%d9", "%d1", 8) + "\tld.global.v2.b32 {%r5, %r6}, [%d9];\n" +
		address("%d9", "%d2", 16) + "\tld.global.v4." + typ + " " + acc + ", [%d9];\n" +
		"\t" + f.op + " " + acc + ", " + factors + ", " + acc + ";\n" +
		address("%d9", formOut, 16) + "\tst.global.v4." + typ + " [%d9], " + acc + ";\n"
}

// byteColumns is how many columns a matrix of bytes has.
func byteColumns(f form) int {
	if strings.Contains(f.op, "m16n8k16") {
		return 16
	}
	return 32
}

// mmaFactor is the type of the factors.
func mmaFactor(f form) string {
	parts := strings.Split(f.op, ".")
	return parts[len(parts)-2]
}

// exactWarp tells the warps whose factors are small whole numbers: their sums are
// exact in every order and every width of the sum.
func exactWarp(warp int) bool { return warp%2 == 0 }

// mmaFill puts numbers in the inputs: whole ones, or of many sizes and in the last
// warp with zeros, subnormal numbers, infinities and NaN.
func mmaFill(f form, r *rand.Rand, in [][]byte) {
	for k, typ := range []string{mmaFactor(f), mmaFactor(f), "f32"} {
		format := floatFormats[typ]
		size := typeBytes[typ]
		lanes := []int{16, 8, 16}[k]
		for at := 0; at < formBytes; at += size {
			warp := at / (32 * lanes)
			bits := format.near(math.Ldexp(r.NormFloat64(), r.IntN(8)-4))
			switch {
			case exactWarp(warp):
				bits = format.near(float64(r.IntN(33) - 16))
			case warp == formCTAs*formThreads/32-1 && r.IntN(8) == 0:
				bits = pool(typ)[r.IntN(len(pool(typ)))]
				if v := math.Abs(format.value(bits)); v > 0x1p60 && !math.IsInf(v, 0) { // a sum must not overflow
					bits = 0
				}
			}
			copy(in[k][at:], packed("b64", []uint64{bits})[:size])
		}
	}
}

// mmaBound is the largest error of a sum of 16 products and an accumulator on a
// tensor core, of the sum of their magnitudes: 17 terms aligned to the largest and
// cut off after 24 bits, in up to two steps.
const mmaBound = 2 * 17 * 0x1p-24

// mmaCheck compares with sums in float64 and gives the largest error ÷ bound.
func mmaCheck(f form, in [][]byte, got []byte) (worst float64, err error) {
	format, f32 := floatFormats[mmaFactor(f)], floatFormats["f32"]
	factor := func(p []byte, at int) float64 { return format.value(unpacked(2, p[at:at+2])[0]) }
	word := func(p []byte, at int) float64 { return f32.value(unpacked(4, p[at:at+4])[0]) }
	for i := range formCTAs * formThreads {
		warp, g, t := i/32*32, i%32/4, i%4
		for r := range 4 {
			row, column := g+r/2*8, 2*t+r%2
			sum := word(in[2], 16*i+4*r)
			size := math.Abs(sum)
			for k := range 16 {
				// element (row, k) of a, (k, column) of b: which lane's register has it
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

// mmaRatio is error ÷ bound, and whether it may be.
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

// integerMMAWant sums products of bytes, modulo 2^32.
func integerMMAWant(f form, in [][]byte, i int) []byte {
	parts := strings.Split(f.op, ".")
	a, b := intType{8, parts[7] == "s8"}, intType{8, parts[8] == "s8"}
	warp, g, t := i/32*32, i%32/4, i%4
	var out []byte
	for r := range 4 {
		row, column := g+r/2*8, 2*t+r%2
		sum := unpacked(4, in[2][16*i+4*r:][:4])[0]
		for k := range byteColumns(f) {
			al, ar := row%8*4+k%16/4, row/8+k/16*2
			bl, br := column*4+k%16/4, k/16
			sum += a.extend(uint64(in[0][16*(warp+al)+4*ar+k%4])) * b.extend(uint64(in[1][8*(warp+bl)+4*br+k%4]))
		}
		out = append(out, packed("b32", []uint64{sum})...)
	}
	return out
}
