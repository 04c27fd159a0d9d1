package device

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Vec4 holds four consecutive elements of a row.
type Vec4 [4]ptx.F32

// Row is a row of numbers in memory that threads access as Vec4s. Neither its
// address nor its width need be a multiple of four elements.
type Row struct {
	b       *ptx.Builder
	format  quant.Format
	base    ptx.Pointer // address of the first element
	Width   ptx.U32     // in elements
	aligned ptx.Pred    // base is aligned to a Vec4
}

// RowAt returns the row of width elements at an address. Rows of F16 and BF16 can only be
// stored.
func RowAt(b *ptx.Builder, format quant.Format, base ptx.Memory, width ptx.U32) Row {
	size := FloatBytes(b, format)
	return Row{b, format, base.Untyped(), width, base.Untyped().LowAddress().AndN(uint32(4*size - 1)).EqN(0)}
}

// Vec4s returns the number of Vec4s in the row, including a last one that is not full.
func (r Row) Vec4s() ptx.U32 { return r.Width.CeilDivN(4) }

// remaining returns the number of elements from Vec4 i to the end of the row.
func (r Row) remaining(i ptx.U32) ptx.U32 { return r.Width.Sub(i.MulN(4).Min(r.Width)) }

// Load returns Vec4 i. Elements beyond the end of the row have the value fill.
func (r Row) Load(i ptx.U32, fill float32, cache ...ptx.CacheOp) Vec4 {
	b, at, rest := r.b, r.base.At(i, 16), r.remaining(i)
	var x Vec4
	for j := range x {
		x[j] = ptx.Var(b.F32(fill))
	}
	b.IfElse(r.aligned.And(rest.GeN(4)), func() {
		for j, v := range at.Aligned(16).LoadF32x4(cache...) {
			ptx.Set(x[j], v)
		}
	}, func() {
		for j := range x {
			b.If(rest.Gt(b.N(j)), func() { ptx.Set(x[j], at.Plus(4*j).LoadF32(cache...)) })
		}
	})
	return x
}

// Store rounds x to the row's format and stores it as Vec4 i. It stores nothing beyond the
// end of the row.
func (r Row) Store(i ptx.U32, x Vec4) {
	size := r.format.BlockBytes()
	b, at, rest := r.b, r.base.At(i, 4*size), r.remaining(i)
	b.IfElse(r.aligned.And(rest.GeN(4)), func() {
		at := at.Aligned(4 * size)
		switch r.format {
		case quant.F32:
			at.StoreF32x4(x)
		case quant.F16:
			at.StoreU32x2([2]ptx.U32{ptx.PackF16(x[0], x[1]).Bits(), ptx.PackF16(x[2], x[3]).Bits()})
		case quant.BF16:
			at.StoreU32x2([2]ptx.U32{ptx.PackBF16(x[0], x[1]).Bits(), ptx.PackBF16(x[2], x[3]).Bits()})
		}
	}, func() {
		for j := range x {
			b.If(rest.Gt(b.N(j)), func() { StoreAs(r.format, at.Plus(size*j), x[j]) })
		}
	})
}

// StoreAs rounds x to format, F32, F16 or BF16, to nearest even, and stores it at an address.
func StoreAs(format quant.Format, to ptx.Memory, x ptx.F32) {
	p := to.Untyped()
	switch format {
	case quant.F32:
		p.StoreF32(x)
	case quant.F16:
		p.StoreF16(x.F16())
	case quant.BF16:
		p.StoreU16(x.BF16Bits())
	}
}

// FloatBytes returns the size of an element of F32, F16 or BF16. For other formats it
// records a failure in b.
func FloatBytes(b *ptx.Builder, format quant.Format) int {
	switch format {
	case quant.F32, quant.F16, quant.BF16:
		return format.BlockBytes()
	}
	b.Failf("%v is none of F32, F16 and BF16", format)
	return 4
}
