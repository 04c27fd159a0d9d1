package product

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/internal/product"
	"github.com/lockstep-go/lockstep/quant"
)

// Pack packs some rows of src, blocks of Format as in a GGUF file, into the row tiles dst. It returns the scales of the rows, D of
// package internal/product, one per row of the row tiles, or nil if the format has none. It panics unless the lengths of src
// and dst are exactly those of the rows.
func (p Packing) Pack(dst, src []byte, rows int) (scales []float32) {
	size, err := p.Format.RowBytes(p.K)
	if err != nil || len(src) != rows*size || len(dst) != p.TileBytes(rows) {
		panic(fmt.Sprintf("ptxgen: %d bytes of %v into %d, for %d rows of %d weights", len(src), p.Format, len(dst), rows, p.K))
	}
	clear(dst)
	if hasRowScale(p.Format) {
		scales = make([]float32, tileRows*rowTiles(rows))
	}
	k, tileBytes := newPacker(p), p.tileBytes()
	for first := 0; first < rows; first += tileRows {
		tile := dst[first/tileRows*tileBytes:][:tileBytes]
		for g := range min(tileRows/2, rows-first) {
			for i := range 2 {
				r := g + i*tileRows/2
				if first+r >= rows {
					k.clear(i)
					continue
				}
				d := k.load(tile, r, src[(first+r)*size:][:size])
				if scales != nil {
					scales[first+r] = d
				}
			}
			k.store(tile, g)
		}
	}
	return scales
}

// packer packs two rows at a time, g and g+8 of a tile, because they share bytes.
type packer struct {
	p            Packing
	l            layout
	segmentBytes int

	// What planes hold of the two rows, with zeros up to the end of the last segment.
	quants [2][]byte
	floats [2][2][]uint16 // float16, by plane and row

	codes   [256]byte // what planes hold for each quant of quant.Block
	block   quant.Block
	scales  []product.Scale // of the blocks of a row
	weights []float32       // of a row of F32, F16 or BF16
}

func newPacker(p Packing) *packer {
	k := &packer{p: p, l: p.layout()}
	k.segmentBytes = k.l.segmentBytes()
	columns := p.segments() * segment
	if k.l.planes[0] == 16 {
		k.weights = make([]float32, p.K)
		for plane := range k.l.planes {
			k.floats[plane] = [2][]uint16{make([]uint16, columns), make([]uint16, columns)}
		}
		return k
	}
	k.quants = [2][]byte{make([]byte, columns), make([]byte, columns)}
	for q := range k.codes {
		k.codes[q] = byte(k.l.stored(int8(q)))
	}
	return k
}

// clear sets row i of the two to zeros. The matrix lacks it.
func (k *packer) clear(i int) {
	clear(k.quants[i])
	for plane := range k.floats {
		clear(k.floats[plane][i])
	}
}

// load unpacks row r of a tile and stores its scales. It returns D of the row. In a format with a D per segment
// it returns 0.
func (k *packer) load(tile []byte, r int, row []byte) (d float32) {
	if k.l.planes[0] == 16 {
		return k.round(r/8, row)
	}
	quants, b := k.quants[r/8][:k.p.K], &k.block
	k.scales = k.scales[:0]
	n, size := k.p.Format.BlockLen(), k.p.Format.BlockBytes()
	for at := 0; at < len(quants); at, row = at+n, row[size:] {
		b.Unpack(k.p.Format, row[:size])
		copy(quants[at:], b.Quants[:n])
		if hasRowScale(k.p.Format) {
			k.scales = append(k.scales, product.ScaleOf(b))
		} else {
			k.l.scales.put(k.l.scalesOf(tile[at/segment*k.segmentBytes:], r), b)
		}
	}
	if product.SubBlock(k.p.Format) == 0 { // else the codes are the quants
		for i, q := range quants {
			quants[i] = k.codes[q]
		}
	}
	if hasRowScale(k.p.Format) {
		d = k.storeScales(tile, r)
	}
	return d
}

// storeScales stores the scales and offsets of row r in a format with blocks of 32. It returns D of the row.
// A scale of MXFP4 is the upper byte of a float16. Smaller ones are 0, because all their weights round to 0.
func (k *packer) storeScales(tile []byte, r int) float32 {
	const blocks = segment / 32
	d := product.Blocks(k.p.Format, k.scales)
	perUnit := 1 / k.l.unit(r/8)
	var to scalePlanes
	for i := range k.scales {
		b := &k.scales[i]
		if i%blocks == 0 {
			to = k.l.scalesOf(tile[i/blocks*k.segmentBytes:], r)
		}
		scale := float16.ToF16(float32(b.OverD * perUnit))
		if k.l.floats {
			to.lane(0, i%blocks/2)[r/8*2+i%2] = byte(scale >> 8)
			continue
		}
		own := to.lane(0, i%blocks/2)[4*(r/8)+2*(i%2):]
		binary.LittleEndian.PutUint16(own, scale)
		if len(own) > 8 {
			binary.LittleEndian.PutUint16(own[8:], float16.ToF16(float32(b.Offset)))
		}
	}
	return float32(d)
}

// store stores the planes of quants or float16 of rows g and g+8.
func (k *packer) store(tile []byte, g int) {
	var part [256]byte // of a plane: the chunks of one lane
	for c := 0; c < k.p.K; c += 64 {
		seg := tile[c/segment*k.segmentBytes:]
		lane := 4*g + c%segment/64
		shift := 0
		for plane, bits := range k.l.planes {
			switch bits {
			case 16:
				gather16(&part, k.floats[plane][0][c:], k.floats[plane][1][c:])
			case 8:
				gather8(&part, k.quants[0][c:], k.quants[1][c:])
			default:
				gatherBits(&part, k.quants[0][c:], k.quants[1][c:], shift, bits)
			}
			to := seg[k.l.start(plane)+lane*16:]
			for chunk := range bits { // 64 columns of two rows have 16*bits bytes
				copy(to[chunk*lanes*16:][:16], part[16*chunk:][:16])
			}
			shift += bits
		}
	}
}

// gather16 gathers float16 of 64 columns of rows g and g+8, in the order of place.in: pairs of columns c and c+32.
func gather16(dst *[256]byte, row0, row8 []uint16) {
	row0, row8 = row0[:64], row8[:64]
	for c := range 32 {
		v := uint64(row0[c]) | uint64(row0[c+32])<<16 | uint64(row8[c])<<32 | uint64(row8[c+32])<<48
		binary.LittleEndian.PutUint64(dst[8*c:], v)
	}
}

// gather8 is gather16 for quants of a byte.
func gather8(dst *[256]byte, row0, row8 []byte) {
	row0, row8 = row0[:64], row8[:64]
	for c := range 32 {
		v := uint32(row0[c]) | uint32(row0[c+32])<<8 | uint32(row8[c])<<16 | uint32(row8[c+32])<<24
		binary.LittleEndian.PutUint32(dst[4*c:], v)
	}
}

// gatherBits is gather16 for one, two or four bits of each quant, from bit shift on. A byte of a word has the bits of
// row g in the low nibble and those of row g+8 in the high one. Dense words are stored 16 bits at a time, each beside
// the 16 bits of the columns 32 further.
func gatherBits(dst *[256]byte, row0, row8 []byte, shift, bits int) {
	mask := uint64(1<<bits-1) * 0x0101010101010101
	at := 0
	for c := 0; c < 32; c += 8 {
		var pair [2]uint64
		for i := range pair {
			g := binary.LittleEndian.Uint64(row0[c+32*i:]) >> (shift & 7) & mask
			g8 := binary.LittleEndian.Uint64(row8[c+32*i:]) >> (shift & 7) & mask
			pair[i] = dense(g|g8<<4, bits)
		}
		for range bits {
			binary.LittleEndian.PutUint32(dst[at:], uint32(pair[0]&0xffff|pair[1]<<16))
			pair[0], pair[1], at = pair[0]>>16, pair[1]>>16, at+4
		}
	}
}

// dense removes the unused bits of x, whose nibbles use only their lowest one, two or four bits. Each turn moves the
// bits of every second byte beside those of the byte before, so that the nibbles use twice as many.
func dense(x uint64, bits int) uint64 {
	for ; bits < 4; bits *= 2 {
		x = (x | x>>((8-bits)&7)) & 0x00ff00ff00ff00ff
		x = (x | x>>8) & 0x0000ffff0000ffff
		x = (x | x>>16) & 0x00000000ffffffff
	}
	return x
}

// round rounds row i of the two, of F32, F16 or BF16, as product.Single does. It returns D of the row.
func (k *packer) round(i int, row []byte) (d float32) {
	quant.Decode(k.p.Format, k.weights, row)
	d = 1
	if k.p.Format != quant.F16 {
		d = scaleOf(k.weights)
	}
	inverse := 1 / d
	high, low := k.floats[0][i][:len(k.weights)], k.floats[1][i]
	for j, w := range k.weights {
		h, ok := float16.ToNormalF16(w * inverse)
		if !ok {
			h = float16.ToF16(w * inverse)
		}
		high[j] = h
	}
	if k.p.Format == quant.F32 {
		for j, w := range k.weights {
			l, ok := float16.ToNormalF16(float32(w*inverse) - float16.FromF16(high[j]))
			// product.Single returns the sum of both parts. If the rest has become half the spacing of high, which
			// is a power of two, the sum may have other parts.
			if !ok || l&0x3ff == 0 {
				high[j], l = split(float64(w) * float64(inverse))
				high[j], l = split(float64(float16.FromF16(high[j])) + float64(float16.FromF16(l)))
			}
			low[j] = l
		}
	}
	return d
}

// split rounds x to float16, and then the rest.
func split(x float64) (high, low uint16) {
	high = float16.ToF16(float32(x))
	if rest := x - float64(float16.FromF16(high)); rest-rest == 0 {
		low = float16.ToF16(float32(rest))
	}
	return high, low
}

// scaleOf returns D of a row of F32 or BF16, which is that of its largest finite weight.
func scaleOf(row []float32) float32 {
	var largest uint32
	for _, w := range row {
		if size := math.Float32bits(w) &^ (1 << 31); size < 0x7f800000 {
			largest = max(largest, size)
		}
	}
	return float32(product.Single(quant.F32, make([]float64, 1), binary.LittleEndian.AppendUint32(nil, largest)))
}
