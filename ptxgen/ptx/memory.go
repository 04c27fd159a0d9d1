package ptx

import "math/bits"

// place is an address with what is known of its alignment.
type place struct {
	b     *Builder
	base  operand // a 64-bit register for global memory, a 32-bit one for shared
	off   int64   // bytes from it
	align int     // of base + off, in bytes, at least
}

// Global points into global memory.
type Global struct{ place }

// Shared points into the CTA's shared memory.
type Shared struct{ place }

func commonAlign(align int, n int64) int {
	if n == 0 {
		return align
	}
	return min(align, 1<<min(bits.TrailingZeros64(uint64(n)), 30))
}

func (p place) plus(bytes int64) place {
	p.align = commonAlign(p.align, bytes)
	p.off += bytes
	return p
}

// Plus is the address so many bytes further on.
func (p Global) Plus(bytes int) Global { return Global{p.plus(int64(bytes))} }

// Plus is the address so many bytes further on.
func (p Shared) Plus(bytes int) Shared { return Shared{p.plus(int64(bytes))} }

// At is the address of element i of an array of elements of stride bytes. The
// product may exceed 32 bits.
func (p Global) At(i U32, stride int) Global {
	if i.op.kind == immediate {
		return Global{p.plus(int64(i.op.n) * int64(stride))}
	}
	q := p.place
	_, r := fresh[U64](p.b)
	p.b.emit("mad.wide.u32", 1, one(r), one(i.op), number(int64(stride)), one(p.base))
	q.base, q.align = r, commonAlign(p.align, int64(stride))
	return Global{q}
}

// At is the address of element i of an array of elements of stride bytes.
func (p Shared) At(i U32, stride int) Shared {
	if i.op.kind == immediate {
		return Shared{p.plus(int64(i.op.n) * int64(stride))}
	}
	q := p.place
	_, r := fresh[U32](p.b)
	p.b.emit("mad.lo.u32", 1, one(r), one(i.op), number(int64(stride)), one(p.base))
	q.base, q.align = r, commonAlign(p.align, int64(stride))
	return Shared{q}
}

// AtBytes is the address offset bytes further on. Nothing is known of its alignment;
// see Aligned.
func (p Global) AtBytes(offset U64) Global {
	base := U64{value{p.b, p.base}}
	q := p.place
	q.base, q.align = base.Add(offset).op, 1
	return Global{q}
}

// AtBytes is the address offset bytes further on. Nothing is known of its alignment;
// see Aligned.
func (p Shared) AtBytes(offset U32) Shared {
	base := U32{value{p.b, p.base}}
	q := p.place
	q.base, q.align = base.Add(offset).op, 1
	return Shared{q}
}

// Aligned asserts that the address is a multiple of n bytes.
func (p Global) Aligned(n int) Global { p.align = max(p.align, n); return p }

// Aligned asserts that the address is a multiple of n bytes.
func (p Shared) Aligned(n int) Shared { p.align = max(p.align, n); return p }

// Address is the address as a number.
func (p Global) Address() U64 {
	base := U64{value{p.b, p.base}}
	if p.off == 0 {
		return base
	}
	return base.Add(p.b.U64(uint64(p.off)))
}

// Address is the address as a number.
func (p Shared) Address() U32 {
	return U32{value{p.b, p.base}}.Add(p.b.U32(uint32(p.off)))
}

// VarGlobal makes a pointer that SetGlobal may move. It keeps p's alignment, which
// later addresses must have too.
func VarGlobal(p Global) Global {
	q := p.place
	q.base, q.off = Var(p.Address()).op, 0
	return Global{q}
}

// SetGlobal moves a pointer made by VarGlobal.
func SetGlobal(dst, src Global) {
	if src.align < dst.align {
		dst.b.fail("a pointer aligned to %d bytes is moved to one aligned to %d", dst.align, src.align)
	}
	Set(U64{value{dst.b, dst.base}}, src.Address())
}

// GlobalAt is the global memory at an address computed or loaded as a number.
func GlobalAt(address U64, align int) Global {
	return Global{place{b: address.b, base: address.op, align: align}}
}

// Shared declares an array of so many bytes in shared memory, aligned to align
// bytes. All arrays together may take 48 KiB; beyond that use DynamicShared.
func (b *Builder) Shared(name string, bytes, align int) Shared {
	if !isName(name) || bytes <= 0 || align <= 0 || align&(align-1) != 0 {
		b.fail("shared %q: %d bytes aligned to %d", name, bytes, align)
	}
	b.shared = append(b.shared, sharedVar{name, bytes, align})
	return b.symbolAt(name, align)
}

const dynamicName = "dynamic_shared"

// DynamicShared is the shared memory whose size the launch chooses.
func (b *Builder) DynamicShared(align int) Shared {
	if b.dynamic {
		b.fail("dynamic shared memory is declared twice")
	}
	b.dynamic = true
	b.shared = append(b.shared, sharedVar{dynamicName, 0, align})
	return b.symbolAt(dynamicName, align)
}

func (b *Builder) symbolAt(name string, align int) Shared {
	_, r := fresh[U32](b)
	b.emit("mov.u32", 1, one(r), one(operand{kind: symbol, class: b32, name: name}))
	return Shared{place{b: b, base: r, align: align}}
}
