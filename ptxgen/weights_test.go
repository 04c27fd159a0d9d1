package ptxgen

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-go/lockstep/quant"
)

// packedRow is a packed row cut into its planes.
type packedRow [][]byte

func cut(p Packing, row []byte) packedRow {
	var planes packedRow
	for _, pl := range layouts[p.Format].planes {
		n := p.Units() / pl.units * pl.bytes
		planes = append(planes, row[:n])
		row = row[n:]
	}
	return planes
}

func (r packedRow) byteOf(plane, i int) int { return int(r[plane][i]) }
func (r packedRow) half(plane, i int) float32 {
	return quant.F16ToF32(binary.LittleEndian.Uint16(r[plane][2*i:]))
}

// code is the 4-bit quant of weight i, as codes puts it.
func (r packedRow) code(i int) int {
	w, high, b := i/8, i/4%2, i%4
	return r.byteOf(0, 4*w+b) >> (4 * high) & 15
}

// pair is two bits of weight i, as pairs puts them.
func (r packedRow) pair(plane, i int) int {
	return r.byteOf(plane, i/16*4+i%4) >> (2 * (i % 16 / 4)) & 3
}

// bit is one bit of weight i, as topBits puts it.
func (r packedRow) bit(plane, i int) int { return r.byteOf(plane, i/32*4+i%4) >> (i % 32 / 4) & 1 }

func (r packedRow) inOrder(i int) int { return r.byteOf(0, i/2) >> (4 * (i % 2)) & 15 }

// head is the scale and the minimum of weight i, as packHead puts them.
func (r packedRow) head(plane, i int) (scale, low float32) {
	h, s := r[plane][i/256*16:], 4*(i/32%8)
	word := func(n int) int { return int(binary.LittleEndian.Uint32(h[4*n:]) >> s & 15) }
	sc, mn := word(1)|word(3)&3<<4, word(2)|word(3)>>2<<4
	head := packedRow{h}
	return float32(sc) * head.half(0, 0), float32(mn) * head.half(0, 1)
}

func level(code int) float32 { return float32(iq4Levels[code/4]>>(8*(code%4))&255) - 128 }

func affine(scale float32, q int, low float32) float32 { return float32(scale*float32(q)) - low }

// weight reads weight i back from the planes, as the format defines it.
func (r packedRow) weight(f quant.Format, i int) float32 {
	u := i / UnitLen
	signed := func(plane int) float32 { return float32(int8(r.byteOf(plane, i/16))) }
	nibbles := func(n int) (float32, float32) { return float32(n & 15), float32(n >> 4) }
	switch f {
	case quant.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(r[i%32/4][16*u+4*(i%4):]))
	case quant.F16:
		return r.half(i%32/8, 8*u+i%8)
	case quant.BF16:
		return quant.BF16ToF32(binary.LittleEndian.Uint16(r[i%32/8][16*u+2*(i%8):]))
	case quant.Q4_0:
		return r.half(1, u) * float32(r.code(i)-8)
	case quant.Q4_1:
		return affine(r.half(1, 2*u), r.code(i), -r.half(1, 2*u+1))
	case quant.Q5_0:
		return r.half(2, u) * float32(r.code(i)+16*r.bit(1, i)-16)
	case quant.Q5_1:
		return affine(r.half(2, 2*u), r.code(i)+16*r.bit(1, i), -r.half(2, 2*u+1))
	case quant.Q8_0:
		return r.half(2, u) * float32(r.byteOf(i%32/16, 16*u+i%16)-128)
	case quant.Q2_K:
		scale, low := nibbles(r.byteOf(1, i/16))
		return affine(scale*r.half(2, i/256*2), r.pair(0, i), low*r.half(2, i/256*2+1))
	case quant.Q3_K:
		return r.half(3, i/256) * signed(2) * float32(r.pair(0, i)+4*r.bit(1, i)-4)
	case quant.Q4_K:
		scale, low := r.head(1, i)
		return affine(scale, r.code(i), low)
	case quant.Q5_K:
		scale, low := r.head(2, i)
		return affine(scale, r.code(i)+16*r.bit(1, i), low)
	case quant.Q6_K:
		return r.half(3, i/256) * signed(2) * float32(r.code(i)+16*r.pair(1, i)-32)
	case quant.IQ4_NL:
		return r.half(1, u) * level(r.inOrder(i))
	case quant.IQ4_XS:
		h, s := r[1][i/256*8:], i/32%8
		sc := int(h[4+s/2]>>(4*(s%2))&15) | int(binary.LittleEndian.Uint16(h[2:])>>(2*s)&3)<<4
		return packedRow{h}.half(0, 0) * float32(sc-32) * level(r.inOrder(i))
	}
	panic(f)
}

// TestPackKeepsWeights packs blocks of random bytes and reads every weight back.
func TestPackKeepsWeights(t *testing.T) {
	for f := range layouts {
		t.Run(f.String(), func(t *testing.T) {
			k := 3 * max(f.BlockLen(), UnitLen)
			if f.BlockLen() == 1 {
				k -= 5 // a row that does not fill its last unit
			}
			const rows = 3
			p := Packing{f, k}
			n, _ := f.RowBytes(k)
			rng := rand.New(rand.NewPCG(1, uint64(f)))
			src, dst := make([]byte, rows*n), make([]byte, rows*p.RowBytes())
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			p.Pack(dst, src, rows)
			want := make([]float32, k)
			for r := range rows {
				quant.Decode(f, want, src[r*n:(r+1)*n])
				row := cut(p, dst[r*p.RowBytes():(r+1)*p.RowBytes()])
				for i, w := range want {
					got := row.weight(f, i)
					if math.Float32bits(got) != math.Float32bits(w) && !(got != got && w != w) {
						t.Fatalf("row %d weight %d: %v, want %v", r, i, got, w)
					}
				}
			}
		})
	}
}

func TestPackingCoversEveryFormat(t *testing.T) {
	for _, f := range quant.Formats() {
		if _, ok := layouts[f]; !ok {
			t.Errorf("%v cannot be packed", f)
		}
		if _, ok := decoders[f]; !ok {
			t.Errorf("%v has no decoder", f)
		}
	}
}

// TestPackingSize holds what a packed row costs more than in a file: less than 16
// bytes of rounding, and 4 bytes a block for Q3_K.
func TestPackingSize(t *testing.T) {
	for f := range layouts {
		for _, k := range []int{256, 2048, 14336} {
			n, _ := f.RowBytes(k)
			if f == quant.Q3_K {
				n += 4 * k / 256
			}
			if got := (Packing{f, k}).RowBytes(); got < n || got-n >= rowAlign || got%rowAlign != 0 {
				t.Errorf("%v: %d weights take %d bytes packed, %d in a file", f, k, got, n)
			}
		}
	}
}

func TestPackRefuses(t *testing.T) {
	for name, pack := range map[string]func(){
		"a row of part of a block":  func() { Packing{quant.Q4_K, 128}.RowBytes() },
		"a row of nothing":          func() { Packing{quant.F32, 0}.RowBytes() },
		"an unknown format":         func() { Packing{quant.Format(99), 32}.RowBytes() },
		"a source that is too long": func() { Packing{quant.Q8_0, 32}.Pack(make([]byte, 48), make([]byte, 35), 1) },
		"a short destination":       func() { Packing{quant.Q8_0, 32}.Pack(make([]byte, 47), make([]byte, 34), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("was accepted")
				}
			}()
			pack()
		})
	}
}
