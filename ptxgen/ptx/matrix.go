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
