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
