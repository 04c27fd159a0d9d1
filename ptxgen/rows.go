package ptxgen

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// quad is four neighbors of a row.
type quad [4]ptx.F32

// row is a run of numbers in global memory that is taken four at a time. Neither its
// start nor its length need be a multiple of four numbers.
type row struct {
	b       *ptx.Builder
	format  quant.Format // F32, or F16 or BF16 of a row that is only written
	at      ptx.Global
	width   ptx.U32
	aligned ptx.Pred // the start is that of a quad
}

// rowAt is the row of so many numbers of the format at an address.
func rowAt(b *ptx.Builder, format quant.Format, at ptx.Global, width ptx.U32) row {
	size := checkFormat(b, format)
	return row{b, format, at, width, at.Address().Low().AndN(uint32(4*size - 1)).EqN(0)}
}

// quads is how many quads the row has, the last one perhaps not full.
func (r row) quads() ptx.U32 { return r.width.CeilDivN(4) }

// rest is how many numbers the row has from quad i on.
func (r row) rest(i ptx.U32) ptx.U32 { return r.width.Sub(i.MulN(4).Min(r.width)) }

// load is quad i, with fill beyond the row's end.
func (r row) load(i ptx.U32, fill float32, cache ...ptx.Cache) quad {
	b, at, rest := r.b, r.at.At(i, 16), r.rest(i)
	var x quad
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

// store writes quad i, and nothing beyond the row's end.
func (r row) store(i ptx.U32, x quad) {
	size := r.format.BlockBytes()
	b, at, rest := r.b, r.at.At(i, 4*size), r.rest(i)
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
			b.If(rest.Gt(b.N(j)), func() { storeAs(r.format, at.Plus(size*j), x[j]) })
		}
	})
}

// storeAs rounds x to the format F32, F16 or BF16, to nearest even, and stores it.
func storeAs(format quant.Format, p ptx.Global, x ptx.F32) {
	switch format {
	case quant.F32:
		p.StoreF32(x)
	case quant.F16:
		p.StoreF16(x.F16())
	case quant.BF16:
		p.StoreU16(x.BF16Bits())
	}
}

// checkFormat is the size of a number in the format, which fails unless it is one of
// those that storeAs knows.
func checkFormat(b *ptx.Builder, format quant.Format) int {
	switch format {
	case quant.F32, quant.F16, quant.BF16:
		return format.BlockBytes()
	}
	b.Failf("%v is none of F32, F16 and BF16", format)
	return 4
}
