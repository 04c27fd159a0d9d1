package alu

// Lop3 is lop3.b32. In every bit position the bits of a, b and c form a number from 0 to 7, with a
// as the highest bit. That bit of the table is the result. The table of an expression is its value
// at a = 0xF0, b = 0xCC, c = 0xAA.
func Lop3(a, b, c uint32, table uint8) uint32 {
	t := uint32(table)
	// column evaluates the function of c that is in the lowest two bits of a table.
	column := func(t uint32) uint32 { return -(t&1)&^c | -(t>>1&1)&c }
	return ^a&(^b&column(t)|b&column(t>>2)) | a&(^b&column(t>>4)|b&column(t>>6))
}

// Prmt is prmt.b32 without a mode. Nibble i of sel selects byte i of the result: its low three bits
// number a byte of a (0–3) or b (4–7), and its highest bit replicates the sign of that byte.
func Prmt(a, b, sel uint32) uint32 {
	bytes := uint64(b)<<32 | uint64(a)
	var out uint32
	for i := 0; i < 4; i++ {
		nibble := sel >> (4 * i) & 0xF
		chosen := uint8(bytes >> (8 * (nibble & 7)))
		if nibble&8 != 0 {
			chosen = uint8(int8(chosen) >> 7)
		}
		out |= uint32(chosen) << (8 * i)
	}
	return out
}

// BFE is bfe.u32, or bfe.s32 if signed: len bits of a from bit pos up. Bits beyond the field are
// zero, or if signed copies of its highest bit, which is bit 31 if the field reaches past it. Only
// the low eight bits of pos and len count.
func BFE(a, pos, len uint32, signed bool) uint32 {
	pos, len = pos&0xFF, len&0xFF
	if len == 0 {
		return 0
	}
	if !signed {
		return a >> pos & mask(len) // Go shifts out everything for pos ≥ 32
	}
	if pos+len >= 32 {
		return uint32(int32(a) >> min(pos, 31))
	}
	up := 32 - pos - len
	return uint32(int32(a<<up) >> (up + pos))
}

// BFI is bfi.b32: b with len bits from bit pos up replaced by the low bits of a. Bits past bit 31
// are dropped. Only the low eight bits of pos and len count.
func BFI(a, b, pos, len uint32) uint32 {
	pos, len = pos&0xFF, len&0xFF
	field := mask(len) << pos
	return b&^field | a<<pos&field
}

// mask has the low n bits set.
func mask(n uint32) uint32 { return 1<<n - 1 }

// DP4A is dp4a: c + Σ aᵢ·bᵢ over the four bytes of a and b. The sum wraps.
func DP4A(a, b, c uint32, aSigned, bSigned bool) uint32 {
	for i := 0; i < 32; i += 8 {
		c += byteOf(a>>i, aSigned) * byteOf(b>>i, bSigned)
	}
	return c
}

// byteOf extends the low byte of v.
func byteOf(v uint32, signed bool) uint32 {
	if signed {
		return uint32(int8(v))
	}
	return v & 0xFF
}
