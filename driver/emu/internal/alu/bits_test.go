package alu

import (
	"math/rand/v2"
	"testing"
)

// words returns operands with runs of bits in various positions.
func words() []uint32 {
	rng := rand.New(rand.NewPCG(11, 12))
	w := []uint32{0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80FF7F01, 0x0F1E2D3C}
	for range 5 {
		w = append(w, rng.Uint32())
	}
	return w
}

func TestLop3EveryTable(t *testing.T) {
	for table := range 256 {
		for _, a := range words() {
			for _, b := range words() {
				c := a*2654435761 ^ b>>3
				var want uint32
				for i := range 32 {
					index := a>>i&1<<2 | b>>i&1<<1 | c>>i&1
					want |= uint32(table) >> index & 1 << i
				}
				if got := Lop3(a, b, c, uint8(table)); got != want {
					t.Fatalf("Lop3(%#x, %#x, %#x, %#x) = %#x, want %#x", a, b, c, table, got, want)
				}
			}
		}
	}
}

func TestLop3TableIsTheExpressionAtItsConstants(t *testing.T) {
	a, b, c := uint32(0x12345678), uint32(0x9ABCDEF0), uint32(0x0F0F3355)
	const ta, tb, tc = 0xF0, 0xCC, 0xAA
	if got, want := Lop3(a, b, c, ta&tb|^ta&tc&0xFF), a&b|^a&c; got != want {
		t.Errorf("a ? b : c = %#x, want %#x", got, want)
	}
	if got, want := Lop3(a, b, c, ta^tb^tc), a^b^c; got != want {
		t.Errorf("a ^ b ^ c = %#x, want %#x", got, want)
	}
}

func TestPrmtEverySelector(t *testing.T) {
	for _, a := range words() {
		b := a*2246822519 ^ 0x80007F00
		var source [8]byte
		for i := range 4 {
			source[i], source[4+i] = byte(a>>(8*i)), byte(b>>(8*i))
		}
		for sel := range uint32(1 << 16) {
			var want uint32
			for i := range 4 {
				nibble := sel >> (4 * i) & 15
				v := source[nibble%8]
				if nibble >= 8 {
					v = map[bool]byte{true: 0xFF, false: 0}[v >= 0x80]
				}
				want |= uint32(v) << (8 * i)
			}
			if got := Prmt(a, b, sel|0xABCD0000); got != want {
				t.Fatalf("Prmt(%#x, %#x, %#x) = %#x, want %#x", a, b, sel, got, want)
			}
		}
	}
}

// fieldEdges are positions and lengths inside, at and beyond the word, some with bits above the
// eight that count.
func fieldEdges() []uint32 {
	e := []uint32{63, 64, 65, 127, 128, 224, 254, 255, 256, 257, 256 + 31, 0xFFFFFF00, 0xFFFFFF08}
	for i := range uint32(36) {
		e = append(e, i)
	}
	return e
}

// The loops below follow the definitions in the PTX ISA bit by bit.

func TestBFEAgainstDefinition(t *testing.T) {
	for _, a := range words() {
		for _, pos := range fieldEdges() {
			for _, length := range fieldEdges() {
				for _, signed := range []bool{false, true} {
					p, n := pos&0xFF, length&0xFF
					sign := uint32(0)
					if signed && n != 0 {
						sign = a >> min(p+n-1, 31) & 1
					}
					var want uint32
					for i := range uint32(32) {
						bit := sign
						if i < n && p+i <= 31 {
							bit = a >> (p + i) & 1
						}
						want |= bit << i
					}
					if got := BFE(a, pos, length, signed); got != want {
						t.Fatalf("BFE(%#x, %d, %d, %v) = %#x, want %#x", a, pos, length, signed, got, want)
					}
				}
			}
		}
	}
}

func TestBFIAgainstDefinition(t *testing.T) {
	for _, a := range words() {
		b := ^a*40503 ^ a>>7
		for _, pos := range fieldEdges() {
			for _, length := range fieldEdges() {
				p, n := pos&0xFF, length&0xFF
				want := b
				for i := uint32(0); i < n && p+i <= 31; i++ {
					want = want&^(1<<(p+i)) | a>>i&1<<(p+i)
				}
				if got := BFI(a, b, pos, length); got != want {
					t.Fatalf("BFI(%#x, %#x, %d, %d) = %#x, want %#x", a, b, pos, length, got, want)
				}
			}
		}
	}
}

func TestDP4AAgainstDefinition(t *testing.T) {
	extend := func(v uint32, i int, signed bool) int64 {
		b := int64(v) >> (8 * i) & 255
		if signed && b >= 128 {
			b -= 256
		}
		return b
	}
	for _, a := range words() {
		for _, b := range words() {
			for _, c := range words() {
				for mode := range 4 {
					as, bs := mode&1 != 0, mode&2 != 0
					want := int64(c)
					for i := range 4 {
						want += extend(a, i, as) * extend(b, i, bs)
					}
					if got := DP4A(a, b, c, as, bs); got != uint32(want) {
						t.Fatalf("DP4A(%#x, %#x, %#x, %v, %v) = %#x, want %#x", a, b, c, as, bs, got, uint32(want))
					}
				}
			}
		}
	}
}
