package ptx

import "fmt"

// Half2 is a register with two 16-bit floats, as tensor cores multiply them.
type Half2 interface {
	F16x2 | BF16x2
	get() value
}

// halfName returns the PTX type of the elements of T.
func halfName[T Half2]() string {
	var zero T
	if _, ok := any(zero).(BF16x2); ok {
		return "bf16"
	}
	return "f16"
}

// LoadMatrices emits ldmatrix: n (1, 2 or 4) matrices of 8 rows of 16 bytes. Lane 8i+r gives
// the address of row r of matrix i. Lane l receives the elements 2(l%4) and 2(l%4)+1 of row l/4
// of each matrix. If transposed is set, it receives them from column l/4.
func LoadMatrices[T Half2](p Shared, n int, transposed bool) []T {
	p.checkAlign("ldmatrix", "u32", 4)
	list, regs := make([]T, n), make([]operand, n)
	for i := range list {
		list[i], regs[i] = fresh[T](p.b)
	}
	trans := ""
	if transposed {
		trans = ".trans"
	}
	p.b.emit(fmt.Sprintf("ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16", n, trans), 1, braces(regs...), at(p.base, p.off))
	return list
}

// MMA emits mma.sync.m16n8k16: acc += a × b with float32 accumulation, where a is 16×16 by rows,
// b is 16×8 by columns and acc is 16×8. With g = lane/4 and t = lane%4, register i of
//   - a holds row g (+8 if i is odd), columns 2t and 2t+1 (+8 if i ≥ 2),
//   - b holds rows 2t and 2t+1 (+8 if i = 1), column g,
//   - acc holds row g (+8 if i ≥ 2), column 2t + i%2.
//
// The elements of acc must be variables.
func MMA[T Half2](acc [4]F32, a [4]T, b [2]T) {
	typ := halfName[T]()
	bd := acc[0].b
	var c, ra, rb []operand
	for _, x := range acc {
		if !bd.vars[x.op] {
			bd.fail("mma: the accumulator %v is not a variable", x.op)
		}
		c = append(c, x.op)
	}
	for _, x := range a {
		ra = append(ra, x.get().op)
	}
	for _, x := range b {
		rb = append(rb, x.get().op)
	}
	bd.emit(fmt.Sprintf("mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32", typ, typ), 1,
		braces(c...), braces(ra...), braces(rb...), braces(c...))
}

// MMAS8 emits mma.sync.m16n8k32: a × b + c for signed bytes, where a is 16×32 by rows, b is 32×8
// by columns and c is 16×8. c has four registers or none, which means 0. With g = lane/4 and
// t = lane%4, register i of
//   - a holds row g (+8 if i is odd), columns 4t to 4t+3 (+16 if i ≥ 2),
//   - b holds rows 4t to 4t+3 (+16 if i = 1), column g,
//   - c and the result hold row g (+8 if i ≥ 2), column 2t + i%2.
func MMAS8(a [4]U32, b [2]U32, c ...S32) [4]S32 {
	return integerMMA("m16n8k32", "s8", a[:], b[:], c)
}

// MMAS8K16 emits mma.sync.m16n8k16 for signed bytes: MMAS8 with a 16×16 matrix a and a 16×8
// matrix b. The registers of a and b are the first half of those of MMAS8.
func MMAS8K16(a [2]U32, b U32, c ...S32) [4]S32 {
	return integerMMA("m16n8k16", "s8", a[:], []U32{b}, c)
}

// MMAU8 is MMAS8 with unsigned bytes in a.
func MMAU8(a [4]U32, b [2]U32, c ...S32) [4]S32 {
	return integerMMA("m16n8k32", "u8", a[:], b[:], c)
}

func integerMMA(shape, typ string, a, b []U32, c []S32) [4]S32 {
	bd := a[0].b
	if len(c) != 0 && len(c) != 4 {
		bd.fail("mma: %d registers of c", len(c))
	}
	var sums [4]S32
	var d, rc, ra, rb []operand
	zero := S32{}
	if len(c) == 0 {
		zero = Var(bd.S32(0))
	}
	for i := range sums {
		var r operand
		sums[i], r = fresh[S32](bd)
		d = append(d, r)
		if len(c) == 0 {
			rc = append(rc, zero.op)
		} else {
			rc = append(rc, c[i%len(c)].op)
		}
	}
	for _, x := range a {
		ra = append(ra, x.op)
	}
	for _, x := range b {
		rb = append(rb, x.op)
	}
	bd.emit(fmt.Sprintf("mma.sync.aligned.%s.row.col.s32.%s.s8.s32", shape, typ), 1, braces(d...), braces(ra...), braces(rb...), braces(rc...))
	return sums
}
