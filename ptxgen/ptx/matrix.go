package ptx

import "fmt"

// CopyAsync copies 16 bytes from global to shared memory behind the thread's back.
// CopyCommit closes a group of copies; CopyWait waits until all but the last n
// groups of this thread have landed. Other threads see them after a barrier.
func (b *Builder) CopyAsync(dst Shared, src Global) {
	dst.checkAlign("copy", "u32", 4)
	src.checkAlign("copy", "u32", 4)
	b.effect("cp.async.cg.shared.global", 0, at(dst.base, dst.off), at(src.base, src.off), number(16))
}

// CopyAsyncPart copies the first bytes (0 to 16) and fills the rest with zeros;
// with 0 nothing is read.
func (b *Builder) CopyAsyncPart(dst Shared, src Global, bytes U32) {
	dst.checkAlign("copy", "u32", 4)
	src.checkAlign("copy", "u32", 4)
	b.effect("cp.async.cg.shared.global", 0, at(dst.base, dst.off), at(src.base, src.off), number(16), one(bytes.op))
}

// CopyCommit closes a group of asynchronous copies.
func (b *Builder) CopyCommit() { b.effect("cp.async.commit_group", 0) }

// CopyWait waits until all but the last n groups have landed.
func (b *Builder) CopyWait(n int) { b.effect("cp.async.wait_group", 0, number(int64(n))) }

// Half2 is two numbers of 16 bits, what tensor cores multiply.
type Half2 interface {
	F16x2 | BF16x2
	get() value
}

// LoadMatrices loads n (1, 2 or 4) matrices of 8 rows of 16 bytes. The address of
// row r of matrix i comes from lane 8i+r. Lane l receives of each matrix the
// elements 2(l%4) and 2(l%4)+1 of row l/4; transposed, of column l/4.
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
	p.b.effect(fmt.Sprintf("ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16", n, trans), 1, braces(regs...), at(p.base, p.off))
	return list
}

// MMA adds to the 16×8 matrix acc the product of a (16×16, by rows) and b (16×8, by
// columns), accumulating in float32. With g = lane/4 and t = lane%4, register i of
// a holds row g (+8 if i is odd), columns 2t and 2t+1 (+8 if i ≥ 2); of b rows 2t
// and 2t+1 (+8 if i = 1), column g; acc[i] row g (+8 if i ≥ 2), column 2t + i%2.
// The elements of acc must be variables.
func MMA[T Half2](acc [4]F32, a [4]T, b [2]T) {
	var zero T
	typ := "f16"
	if _, ok := any(zero).(BF16x2); ok {
		typ = "bf16"
	}
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
	bd.effect(fmt.Sprintf("mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32", typ, typ), 1,
		braces(c...), braces(ra...), braces(rb...), braces(c...))
}

// MMAS8 is the 16×8 product of a (16×32, by rows) and b (32×8, by columns), whose elements
// are signed bytes, plus c, or without c that alone. With g = lane/4 and t = lane%4,
// register i of a holds row g (+8 if i is odd), columns 4t to 4t+3 (+16 if i ≥ 2); of b
// rows 4t to 4t+3 (+16 if i = 1), column g; of c and the result row g (+8 if i ≥ 2), column
// 2t + i%2.
func MMAS8(a [4]U32, b [2]U32, c ...S32) [4]S32 {
	return integerMMA("m16n8k32", "s8", a[:], b[:], c)
}

// MMAS8Half is that of a (16×16) and b (16×8): the first half of MMAS8's columns of a and
// rows of b.
func MMAS8Half(a [2]U32, b U32, c ...S32) [4]S32 {
	return integerMMA("m16n8k16", "s8", a[:], []U32{b}, c)
}

// MMAU8 is MMAS8 where the bytes of a are unsigned.
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
	bd.effect(fmt.Sprintf("mma.sync.aligned.%s.row.col.s32.%s.s8.s32", shape, typ), 1, braces(d...), braces(ra...), braces(rb...), braces(rc...))
	return sums
}
