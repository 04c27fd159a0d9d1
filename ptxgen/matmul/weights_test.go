package matmul

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/quant"
)

// readRow is a row of a packed tile.
type readRow struct {
	layout
	tile       []byte
	row, units int // of the tile; of a block
}

func newReadRow(p Packing, packed []byte, row int) readRow {
	r := readRow{layout: p.layout(), units: p.layout().units}
	if r.units == 0 {
		r.tile, r.units = packed[row*p.tileBytes():], p.units()
	} else {
		r.tile, r.row = packed[row/16*p.tileBytes():], row%16
	}
	return r
}

// piece is the piece of a plane that has unit u of the row.
func (r readRow) piece(plane, u int) []byte {
	rows, block, before := 16, 0, 0
	if r.layout.units == 0 {
		rows = 1
	}
	for i, pl := range r.planes {
		size := r.units / pl.units * rows * pl.bytes
		if i < plane {
			before += size
		}
		block += size
	}
	pl := r.planes[plane]
	return r.tile[u/r.units*block+before+(u%r.units/pl.units*rows+r.row)*pl.bytes:][:pl.bytes]
}

// half reads a float16 at a byte of a piece.
func half(piece []byte, at int) float32 {
	return float16.FromF16(binary.LittleEndian.Uint16(piece[at:]))
}

// code is the 4-bit quant of weight i, as codes puts it.
func (r readRow) code(i int) int { return int(r.piece(0, i/32)[i%16] >> (4 * (i % 32 / 16)) & 15) }

// pair is two bits of weight i, as pairs puts them.
func (r readRow) pair(plane, i int) int {
	return int(r.piece(plane, i/32)[i%16] >> (4*(i/32%2) + 2*(i%32/16)) & 3)
}

// bit is one bit of weight i, as topBits puts it.
func (r readRow) bit(plane, i int) int {
	return int(r.piece(plane, i/32)[i%16] >> (2*(i/32%4) + i%32/16) & 1)
}

// triple is the 3-bit quant of weight i, as triples puts it.
func (r readRow) triple(i int) int {
	unit, second := i/32%4, i%32/16 == 1
	own, third := r.piece(unit/2, i/32)[i%16], r.piece(2, i/32)[i%16]
	switch {
	case !second:
		return int(own >> (3 * (unit % 2)) & 7)
	case unit%2 == 0:
		return int(third >> (2 + 3*(unit/2)) & 7)
	}
	return int(own>>6<<1 | third>>(unit/2)&1)
}

// inOrder is the 4-bit quant of weight i, as codesInOrder puts it.
func (r readRow) inOrder(i int) int {
	t, h, b := i%16/4, i%32/16, i%4
	return int(r.piece(0, i/32)[4*t+2*h+b/2] >> (4 * (b % 2)) & 15)
}

// sixBitsOf is six bits that a head has for sub-block s: in the low bits of four bytes,
// or four bits elsewhere and two in those bytes' upper ends.
func sixBitsOf(bytes []byte, s int, low byte) float32 {
	if s < 4 {
		return float32(bytes[s] & 63)
	}
	return float32(low&15 | bytes[s-4]>>6<<4)
}

// head is the scale and the minimum of weight i, as Q4_K and Q5_K have them.
func (r readRow) head(plane, i int) (scale, low float32) {
	h, s := r.piece(plane, i/32), i/32%8
	last := h[12+s%4]
	return sixBitsOf(h[4:], s, last) * half(h, 0), sixBitsOf(h[8:], s, last>>4) * half(h, 2)
}

func levelOf(code int) float32 { return float32(int8(iq4Levels[code/4] >> (8 * (code % 4)))) }

func affine(scale float32, q int, low float32) float32 { return float32(scale*float32(q)) - low }

// weight reads weight i back from the planes, as the format defines it.
func (r readRow) weight(f quant.Format, i int) float32 {
	u := i / unitLen
	four, eight := u%4, u%8
	signed := func(plane int) float32 { return float32(int8(r.piece(plane, u)[i%256/16])) }
	switch f {
	case quant.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(r.piece(i%32/4, u)[4*(i%4):]))
	case quant.F16:
		return half(r.piece(i%32/8, u), 2*(i%8))
	case quant.BF16:
		return float16.FromBF16(binary.LittleEndian.Uint16(r.piece(i%32/8, u)[2*(i%8):]))
	case quant.Q4_0:
		return half(r.piece(1, u), 2*eight) * float32(int8(r.code(i)<<4)>>4)
	case quant.Q4_1:
		return affine(half(r.piece(1, u), 4*four), r.code(i), -half(r.piece(1, u), 4*four+2))
	case quant.Q5_0:
		return half(r.piece(2, u), 2*eight) * float32(r.code(i)+16*r.bit(1, i)-16)
	case quant.Q5_1:
		return affine(half(r.piece(2, u), 4*four), r.code(i)+16*r.bit(1, i), -half(r.piece(2, u), 4*four+2))
	case quant.Q8_0:
		return half(r.piece(2, u), 2*eight) * float32(int8(r.piece(i%32/16, u)[i%16]))
	case quant.Q2_K:
		scales := r.piece(1, u)[i%256/16]
		return affine(float32(scales&15)*half(r.piece(2, u), 0), r.pair(0, i), float32(scales>>4)*half(r.piece(2, u), 2))
	case quant.Q3_K:
		return half(r.piece(4, u), 0) * signed(3) * float32(r.triple(i)-4)
	case quant.Q4_K:
		scale, low := r.head(1, i)
		return affine(scale, r.code(i), low)
	case quant.Q5_K:
		scale, low := r.head(2, i)
		return affine(scale, r.code(i)+16*r.bit(1, i), low)
	case quant.Q6_K:
		return half(r.piece(3, u), 0) * signed(2) * float32(r.code(i)+16*r.pair(1, i)-32)
	case quant.IQ4_NL:
		return half(r.piece(1, u), 2*eight) * levelOf(r.inOrder(i))
	case quant.IQ4_XS:
		h, s := r.piece(1, u), u%8
		low := h[2+s%4/2] >> (4 * (s % 2))
		return half(h, 0) * (sixBitsOf(h[4:], s, low) - 32) * levelOf(r.inOrder(i))
	}
	panic(f)
}

// TestPackKeepsWeights packs blocks of random bytes and reads every weight back.
func TestPackKeepsWeights(t *testing.T) {
	for f := range layouts {
		t.Run(f.String(), func(t *testing.T) {
			k := 3 * max(f.BlockLen(), unitLen)
			if f.BlockLen() == 1 {
				k -= 5 // a row that does not fill its last unit
			}
			const rows = 19 // more than a tile
			p := Packing{f, k}
			n, _ := f.RowBytes(k)
			rng := rand.New(rand.NewPCG(1, uint64(f)))
			src, dst := make([]byte, rows*n), make([]byte, p.Bytes(rows))
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			p.Pack(dst, src, rows)
			want := make([]float32, k)
			for r := range rows {
				quant.Decode(f, want, src[r*n:(r+1)*n])
				row := newReadRow(p, dst, r)
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

// withoutKernels lists the formats that only the reference computes.
var withoutKernels = []quant.Format{quant.MXFP4}

func TestPackingCoversEveryFormat(t *testing.T) {
	for _, f := range quant.Formats() {
		_, packed := layouts[f]
		_, decoded := decoders[f]
		if want := !slices.Contains(withoutKernels, f); packed != want || decoded != want {
			t.Errorf("%v: packed %v, decoded %v, want both %v", f, packed, decoded, want)
		}
	}
}

// TestPackingSize holds what a packed matrix costs more than in a file: 2 bytes a
// block of 256 for Q6_K, 6 for Q3_K.
func TestPackingSize(t *testing.T) {
	more := map[quant.Format]int{quant.Q6_K: 2, quant.Q3_K: 6}
	for f := range layouts {
		for _, k := range []int{256, 2048, 14336} {
			n, _ := f.RowBytes(k)
			want := 32 * (n + more[f]*k/256)
			if got := (Packing{f, k}).Bytes(32); got != want || got%rowAlign != 0 {
				t.Errorf("%v: 32 rows of %d weights take %d bytes packed, want %d", f, k, got, want)
			}
		}
	}
}

// TestPackingPads: quantized rows are padded to blocks of 256 weights, matrices to tiles of
// 16 rows.
func TestPackingPads(t *testing.T) {
	for f, l := range layouts {
		if l.units == 0 {
			continue
		}
		whole := Packing{f, 512}.Bytes(32)
		if got := (Packing{f, 256 + f.BlockLen()}).Bytes(17); got != whole {
			t.Errorf("%v: 17 rows of %d weights take %d bytes, want the %d of 32 rows of 512", f, 256+f.BlockLen(), got, whole)
		}
	}
}

func TestPackRefuses(t *testing.T) {
	for name, pack := range map[string]func(){
		"a row of part of a block":  func() { Packing{quant.Q4_K, 128}.Bytes(1) },
		"a row of nothing":          func() { Packing{quant.F32, 0}.Bytes(1) },
		"an unknown format":         func() { Packing{quant.Format(99), 32}.Bytes(1) },
		"a source that is too long": func() { Packing{quant.Q8_0, 32}.Pack(make([]byte, 16*8*34), make([]byte, 35), 1) },
		"a short destination":       func() { Packing{quant.Q8_0, 32}.Pack(make([]byte, 48), make([]byte, 34), 1) },
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
