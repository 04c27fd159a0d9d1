package ptx

import (
	"math/bits"
	"slices"
)

// Pointer is an address with a known alignment. Its methods are the loads and stores of Global
// and Shared. A load or store fails the build if the alignment is less than its size.
type Pointer struct {
	b     *Builder
	base  operand // a 64-bit register for global memory, a 32-bit register for shared memory
	off   int64   // constant offset from base, in bytes
	align int     // base + off is a multiple of align
}

// Memory is a pointer to either state space: a Global or a Shared.
type Memory interface{ Untyped() Pointer }

// Untyped returns the pointer without the type of its state space.
func (p Pointer) Untyped() Pointer { return p }

// Global points to global memory.
type Global struct{ Pointer }

// Shared points to the CTA's shared memory.
type Shared struct{ Pointer }

// Shared declares an array of the given number of bytes in shared memory, aligned to align
// bytes. The declared arrays of a kernel take at most 48 KiB together. Use DynamicShared for
// more.
func (b *Builder) Shared(name string, bytes, align int) Shared {
	if !isName(name) || bytes <= 0 || align <= 0 || align&(align-1) != 0 {
		b.fail("shared %q: %d bytes aligned to %d", name, bytes, align)
	}
	if slices.ContainsFunc(b.shared, func(v sharedVar) bool { return v.name == name }) {
		b.fail("two arrays in shared memory are named %q", name)
	}
	b.shared = append(b.shared, sharedVar{name, bytes, align})
	return b.symbolAt(name, align)
}

const (
	dynamicName = "dynamic_shared"
	// dynamicAlign is the alignment in bytes that each driver gives to dynamic shared memory,
	// wherever static shared memory ends.
	dynamicAlign = 16
)

// DynamicShared declares the dynamic shared memory, aligned to align bytes. Its size is chosen per
// launch. Drivers align it to 16 bytes. For more, DynamicShared emits or.b32 and add.u32, which skip
// to the next multiple of align, and Kernel.Launch adds align bytes.
func (b *Builder) DynamicShared(align int) Shared {
	if b.dynamic != 0 {
		b.fail("dynamic shared memory is declared twice")
	}
	if align <= 0 || align&(align-1) != 0 {
		b.fail("dynamic shared memory: alignment %d", align)
		align = 1
	}
	b.dynamic = align
	p := b.symbolAt(dynamicName, min(align, dynamicAlign))
	if align > dynamicAlign {
		p.base = p.Address().Or(b.N(align - dynamicAlign)).AddN(dynamicAlign).op
		p.align = align
	}
	return p
}

func (b *Builder) symbolAt(name string, align int) Shared {
	_, r := fresh[U32](b)
	b.emit("mov.u32", 1, one(r), one(operand{kind: symbol, class: b32, name: name}))
	return Shared{Pointer{b: b, base: r, align: align}}
}

// commonAlign returns the alignment of an address after n bytes are added to it.
func commonAlign(align int, n int64) int {
	if n == 0 {
		return align
	}
	return min(align, 1<<min(bits.TrailingZeros64(uint64(n)), 30))
}

func (p Pointer) plus(bytes int64) Pointer {
	p.align = commonAlign(p.align, bytes)
	p.off += bytes
	return p
}

// Plus returns p + bytes. It emits nothing.
func (p Pointer) Plus(bytes int) Pointer { return p.plus(int64(bytes)) }

// Plus returns p + bytes. It emits nothing.
func (p Global) Plus(bytes int) Global { return Global{p.plus(int64(bytes))} }

// Plus returns p + bytes. It emits nothing.
func (p Shared) Plus(bytes int) Shared { return Shared{p.plus(int64(bytes))} }

// At emits mad.wide.u32 or mad.lo.u32: the address p + i*stride.
func (p Pointer) At(i U32, stride int) Pointer {
	if p.base.class == b64 {
		return indexed[U64](p, "mad.wide.u32", i, stride)
	}
	return indexed[U32](p, "mad.lo.u32", i, stride)
}

// At emits mad.wide.u32: the address p + i*stride, where the product has 64 bits.
func (p Global) At(i U32, stride int) Global {
	return Global{indexed[U64](p.Pointer, "mad.wide.u32", i, stride)}
}

// At emits mad.lo.u32: the address p + i*stride.
func (p Shared) At(i U32, stride int) Shared {
	return Shared{indexed[U32](p.Pointer, "mad.lo.u32", i, stride)}
}

// indexed returns p + i*stride. It emits op, with an address of type T, only if i is in a register.
func indexed[T Value](p Pointer, op string, i U32, stride int) Pointer {
	if i.op.kind == immediate {
		return p.plus(int64(i.op.n) * int64(stride))
	}
	_, r := fresh[T](p.b)
	p.b.emit(op, 1, one(r), one(i.op), number(int64(stride)), one(p.base))
	p.base, p.align = r, commonAlign(p.align, int64(stride))
	return p
}

// AtBytes emits add.u64: p + offset. The alignment becomes 1: see Aligned.
func (p Global) AtBytes(offset U64) Global {
	base := U64{value{p.b, p.base}}
	q := p.Pointer
	q.base, q.align = base.Add(offset).op, 1
	return Global{q}
}

// AtBytes emits add.u32: p + offset. The alignment becomes 1: see Aligned.
func (p Shared) AtBytes(offset U32) Shared {
	base := U32{value{p.b, p.base}}
	q := p.Pointer
	q.base, q.align = base.Add(offset).op, 1
	return Shared{q}
}

// Aligned asserts that the address is a multiple of n bytes. Nothing checks it.
func (p Pointer) Aligned(n int) Pointer { p.align = max(p.align, n); return p }

// Aligned asserts that the address is a multiple of n bytes. Nothing checks it.
func (p Global) Aligned(n int) Global { p.align = max(p.align, n); return p }

// Aligned asserts that the address is a multiple of n bytes. Nothing checks it.
func (p Shared) Aligned(n int) Shared { p.align = max(p.align, n); return p }

// LowAddress returns the low 32 bits of the address.
func (p Pointer) LowAddress() U32 {
	if p.base.class == b64 {
		return Global{p}.Address().Low()
	}
	return Shared{p}.Address()
}

// Address returns the address as an integer.
func (p Global) Address() U64 {
	base := U64{value{p.b, p.base}}
	if p.off == 0 {
		return base
	}
	return base.Add(p.b.U64(uint64(p.off)))
}

// Address returns the address as an integer.
func (p Shared) Address() U32 {
	return U32{value{p.b, p.base}}.Add(p.b.U32(uint32(p.off)))
}

// GlobalAt makes a pointer from an address that was loaded or computed.
func GlobalAt(address U64, align int) Global {
	return Global{Pointer{b: address.b, base: address.op, align: align}}
}

// CacheOp is a cache operator: it selects how a load uses the caches. The default is the coherent ld.
type CacheOp uint8

const (
	coherent CacheOp = iota
	// ReadOnly emits ld.global.nc. Nothing may write the data while the kernel runs,
	// including an earlier kernel that may still run.
	ReadOnly
	// ReadOnce emits ld.global.nc.L1::no_allocate.L2::256B, for read-only data that is read
	// once. It leaves L1 unchanged and prefetches 256 bytes into L2. CopyAsyncZeroFill takes it, too.
	ReadOnce
	// Volatile emits ld.volatile, which the compiler neither moves nor repeats: for loads before WaitForPrior.
	Volatile
)

var cacheInfix = map[CacheOp]string{ReadOnly: ".nc", ReadOnce: ".nc.L1::no_allocate.L2::256B"}

// space returns the state space, which follows from the width of the base register.
func (p Pointer) space() string {
	if p.base.class == b64 {
		return ".global"
	}
	return ".shared"
}

// loadOp returns the name of a load, without its type.
func (p Pointer) loadOp(cache []CacheOp) string {
	switch {
	case len(cache) == 0 || cache[0] == coherent:
		return "ld" + p.space()
	case cache[0] == Volatile:
		return "ld.volatile" + p.space()
	case p.space() != ".global":
		p.b.fail("ld: shared memory has no cache")
	}
	return "ld" + p.space() + cacheInfix[cache[0]]
}

// width is the size of an access type in bytes.
var width = map[string]int{"u8": 1, "u16": 2, "b16": 2, "u32": 4, "f32": 4, "u64": 8, "f64": 8}

func (p Pointer) checkAlign(op, typ string, n int) {
	if need := width[typ] * n; p.align < need {
		p.b.fail("%s of %d bytes through a pointer known to be aligned to %d", op, need, p.align)
	}
}

func load[T Value](p Pointer, typ string, cache []CacheOp) T {
	p.checkAlign("load", typ, 1)
	res, r := fresh[T](p.b)
	p.b.emit(p.loadOp(cache)+"."+typ, 1, one(r), at(p.base, p.off))
	return res
}

func loadVector[T Value](p Pointer, typ string, n int, cache []CacheOp) []T {
	p.checkAlign("load", typ, n)
	list, regs := make([]T, n), make([]operand, n)
	for i := range list {
		list[i], regs[i] = fresh[T](p.b)
	}
	p.b.emit(p.loadOp(cache)+vectorInfix[n]+"."+typ, 1, braces(regs...), at(p.base, p.off))
	return list
}

var vectorInfix = map[int]string{2: ".v2", 4: ".v4"}

func store[T Value](p Pointer, typ string, list ...T) {
	p.checkAlign("store", typ, len(list))
	ops := make([]operand, len(list))
	for i, x := range list {
		ops[i] = x.get().op
	}
	if len(list) == 1 {
		p.b.emit("st"+p.space()+"."+typ, 0, at(p.base, p.off), one(ops[0]))
		return
	}
	p.b.emit("st"+p.space()+vectorInfix[len(list)]+"."+typ, 0, at(p.base, p.off), braces(ops...))
}

// LoadF32 emits ld.f32.
func (p Pointer) LoadF32(c ...CacheOp) F32 { return load[F32](p, "f32", c) }

// LoadF64 emits ld.f64.
func (p Pointer) LoadF64(c ...CacheOp) F64 { return load[F64](p, "f64", c) }

// LoadU16 emits ld.u16, zero-extended to 32 bits.
func (p Pointer) LoadU16(c ...CacheOp) U32 { return load[U32](p, "u16", c) }

// LoadU32 emits ld.u32.
func (p Pointer) LoadU32(c ...CacheOp) U32 { return load[U32](p, "u32", c) }

// LoadU64 emits ld.u64.
func (p Pointer) LoadU64(c ...CacheOp) U64 { return load[U64](p, "u64", c) }

// LoadU32x2 emits ld.v2.u32.
func (p Pointer) LoadU32x2(c ...CacheOp) [2]U32 { return [2]U32(loadVector[U32](p, "u32", 2, c)) }

// LoadU32x4 emits ld.v4.u32.
func (p Pointer) LoadU32x4(c ...CacheOp) [4]U32 { return [4]U32(loadVector[U32](p, "u32", 4, c)) }

// LoadF32x2 emits ld.v2.f32.
func (p Pointer) LoadF32x2(c ...CacheOp) [2]F32 { return [2]F32(loadVector[F32](p, "f32", 2, c)) }

// LoadF32x4 emits ld.v4.f32.
func (p Pointer) LoadF32x4(c ...CacheOp) [4]F32 { return [4]F32(loadVector[F32](p, "f32", 4, c)) }

// StoreF16 emits st.b16.
func (p Pointer) StoreF16(x F16) { store(p, "b16", x) }

// StoreF32 emits st.f32.
func (p Pointer) StoreF32(x F32) { store(p, "f32", x) }

// StoreU16 emits st.u16: the low 16 bits of x.
func (p Pointer) StoreU16(x U32) { store(p, "u16", x) }

// StoreU32 emits st.u32.
func (p Pointer) StoreU32(x U32) { store(p, "u32", x) }

// StoreU64 emits st.u64.
func (p Pointer) StoreU64(x U64) { store(p, "u64", x) }

// StoreU32x2 emits st.v2.u32.
func (p Pointer) StoreU32x2(x [2]U32) { store(p, "u32", x[:]...) }

// StoreU32x4 emits st.v4.u32.
func (p Pointer) StoreU32x4(x [4]U32) { store(p, "u32", x[:]...) }

// StoreF32x2 emits st.v2.f32.
func (p Pointer) StoreF32x2(x [2]F32) { store(p, "f32", x[:]...) }

// StoreF32x4 emits st.v4.f32.
func (p Pointer) StoreF32x4(x [4]F32) { store(p, "f32", x[:]...) }

// LoadAcquireU32 emits ld.acquire.gpu.u32: what a thread of any CTA did before its StoreReleaseU32 or
// AddReleaseU32, whose value is read, is visible to later reads of this thread.
func (p Global) LoadAcquireU32() U32 {
	p.checkAlign("load", "u32", 1)
	res, r := fresh[U32](p.b)
	p.b.emit("ld.acquire.gpu.global.u32", 1, one(r), at(p.base, p.off))
	return res
}

// StoreReleaseU32 emits st.release.gpu.u32: see LoadAcquireU32.
func (p Global) StoreReleaseU32(x U32) { p.release("store", "st.release.gpu.global.u32", x) }

// AddReleaseU32 emits red.release.gpu.add.u32: it adds x to the value at p. See LoadAcquireU32.
func (p Global) AddReleaseU32(x U32) { p.release("atomic", "red.release.gpu.global.add.u32", x) }

func (p Global) release(what, op string, x U32) {
	p.checkAlign(what, "u32", 1)
	p.b.emit(op, 0, at(p.base, p.off), one(x.op))
}

// AddU32 emits atom.add.u32: it adds x to the value at p and returns the old value. It does not
// order other accesses.
func (p Pointer) AddU32(x U32) U32 { return atomicAdd(p, "u32", x) }

// AddU64 emits atom.add.u64: it adds x to the value at p and returns the old value. It does not
// order other accesses.
func (p Pointer) AddU64(x U64) U64 { return atomicAdd(p, "u64", x) }

func atomicAdd[T Value](p Pointer, typ string, x T) T {
	p.checkAlign("atomic", typ, 1)
	res, r := fresh[T](p.b)
	p.b.emit("atom.relaxed"+map[string]string{".global": ".gpu", ".shared": ".cta"}[p.space()]+p.space()+".add."+typ, 1, one(r), at(p.base, p.off), one(x.get().op))
	return res
}
