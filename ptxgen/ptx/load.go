package ptx

// Cache says how a load from global memory uses the caches.
type Cache uint8

const (
	// Cached is the ordinary, coherent load.
	Cached Cache = iota
	// ReadOnly may use the read-only path: nothing may write the data while the
	// kernel runs, nor a predecessor that may still be running.
	ReadOnly
	// Streamed is ReadOnly for data that is read once: it does not displace L1 and
	// fetches 256 bytes into L2.
	Streamed
	// Once is Cached for data that is read once: it does not displace L1 and fetches
	// 256 bytes into L2. Unlike Streamed it may follow a kernel that wrote the data.
	Once
	// Volatile reads memory each time: data that other CTAs write.
	Volatile
)

var cacheInfix = map[Cache]string{ReadOnly: ".nc", Streamed: ".nc.L1::no_allocate.L2::256B", Once: ".L1::no_allocate.L2::256B", Volatile: ""}

// space is "global" or "shared", by the base's width.
func (p place) space() string {
	if p.base.class == b64 {
		return ".global"
	}
	return ".shared"
}

func (p place) opcode(op string, cache []Cache) string {
	if len(cache) == 0 || cache[0] == Cached {
		return op + p.space()
	}
	if p.space() != ".global" && cache[0] != Volatile {
		p.b.fail("%s: shared memory has no cache", op)
	}
	if cache[0] == Volatile {
		return op + ".volatile" + p.space()
	}
	return op + p.space() + cacheInfix[cache[0]]
}

// width is the size of an access type in bytes.
var width = map[string]int{"u8": 1, "s8": 1, "u16": 2, "b16": 2, "u32": 4, "s32": 4, "b32": 4, "f32": 4, "u64": 8, "f64": 8}

func (p place) checkAlign(op, typ string, n int) {
	if need := width[typ] * n; p.align < need {
		p.b.fail("%s of %d bytes through a pointer known to be aligned to %d", op, need, p.align)
	}
}

func load[T Value](p place, typ string, cache []Cache) T {
	p.checkAlign("load", typ, 1)
	res, r := fresh[T](p.b)
	p.b.effect(p.opcode("ld", cache)+"."+typ, 1, one(r), at(p.base, p.off))
	return res
}

func loadVector[T Value](p place, typ string, n int, cache []Cache) []T {
	p.checkAlign("load", typ, n)
	list, regs := make([]T, n), make([]operand, n)
	for i := range list {
		list[i], regs[i] = fresh[T](p.b)
	}
	p.b.effect(p.opcode("ld", cache)+vectorInfix[n]+"."+typ, 1, braces(regs...), at(p.base, p.off))
	return list
}

var vectorInfix = map[int]string{2: ".v2", 4: ".v4"}

func store[T Value](p place, typ string, cache []Cache, list ...T) {
	p.checkAlign("store", typ, len(list))
	ops := make([]operand, len(list))
	for i, x := range list {
		ops[i] = x.get().op
	}
	if len(list) == 1 {
		p.b.effect(p.opcode("st", cache)+"."+typ, 0, at(p.base, p.off), one(ops[0]))
		return
	}
	p.b.effect(p.opcode("st", cache)+vectorInfix[len(list)]+"."+typ, 0, at(p.base, p.off), braces(ops...))
}

// LoadF32 loads a float32.
func (p place) LoadF32(c ...Cache) F32 { return load[F32](p, "f32", c) }

// LoadF64 loads a float64.
func (p place) LoadF64(c ...Cache) F64 { return load[F64](p, "f64", c) }

// LoadU32 loads 32 bits.
func (p place) LoadU32(c ...Cache) U32 { return load[U32](p, "u32", c) }

// LoadS32 loads a signed 32-bit number.
func (p place) LoadS32(c ...Cache) S32 { return load[S32](p, "s32", c) }

// LoadU64 loads 64 bits.
func (p place) LoadU64(c ...Cache) U64 { return load[U64](p, "u64", c) }

// LoadU16 loads 16 bits and fills with zeros.
func (p place) LoadU16(c ...Cache) U32 { return load[U32](p, "u16", c) }

// LoadU8 loads a byte and fills with zeros.
func (p place) LoadU8(c ...Cache) U32 { return load[U32](p, "u8", c) }

// LoadS8 loads a byte and repeats its sign.
func (p place) LoadS8(c ...Cache) S32 { return load[S32](p, "s8", c) }

// LoadF16 loads a half.
func (p place) LoadF16(c ...Cache) F16 { return load[F16](p, "b16", c) }

// LoadF16x2 loads two halves.
func (p place) LoadF16x2(c ...Cache) F16x2 { return load[F16x2](p, "b32", c) }

// LoadU32x2 loads 8 bytes.
func (p place) LoadU32x2(c ...Cache) [2]U32 { return [2]U32(loadVector[U32](p, "u32", 2, c)) }

// LoadU32x4 loads 16 bytes.
func (p place) LoadU32x4(c ...Cache) [4]U32 { return [4]U32(loadVector[U32](p, "u32", 4, c)) }

// LoadF32x2 loads two float32.
func (p place) LoadF32x2(c ...Cache) [2]F32 { return [2]F32(loadVector[F32](p, "f32", 2, c)) }

// LoadF32x4 loads four float32.
func (p place) LoadF32x4(c ...Cache) [4]F32 { return [4]F32(loadVector[F32](p, "f32", 4, c)) }

// StoreF32 stores a float32.
func (p place) StoreF32(x F32, c ...Cache) { store(p, "f32", c, x) }

// StoreU32 stores 32 bits.
func (p place) StoreU32(x U32, c ...Cache) { store(p, "u32", c, x) }

// StoreU64 stores 64 bits.
func (p place) StoreU64(x U64, c ...Cache) { store(p, "u64", c, x) }

// StoreU16 stores the low 16 bits.
func (p place) StoreU16(x U32, c ...Cache) { store(p, "u16", c, x) }

// StoreU8 stores the low 8 bits.
func (p place) StoreU8(x U32, c ...Cache) { store(p, "u8", c, x) }

// StoreF16 stores a half.
func (p place) StoreF16(x F16, c ...Cache) { store(p, "b16", c, x) }

// StoreF16x2 stores two halves.
func (p place) StoreF16x2(x F16x2, c ...Cache) { store(p, "b32", c, x) }

// StoreU32x2 stores 8 bytes.
func (p place) StoreU32x2(x [2]U32, c ...Cache) { store(p, "u32", c, x[:]...) }

// StoreU32x4 stores 16 bytes.
func (p place) StoreU32x4(x [4]U32, c ...Cache) { store(p, "u32", c, x[:]...) }

// StoreF32x2 stores two float32.
func (p place) StoreF32x2(x [2]F32, c ...Cache) { store(p, "f32", c, x[:]...) }

// StoreF32x4 stores four float32.
func (p place) StoreF32x4(x [4]F32, c ...Cache) { store(p, "f32", c, x[:]...) }
