package product

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/internal/product"
	"github.com/lockstep-go/lockstep/quant"
)

// TestPack compares packed matrices of random bytes, which have scales of all magnitudes, infinities and
// NaN, with packing by the definition.
func TestPack(t *testing.T) {
	for _, f := range Formats() {
		t.Run(f.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(17, uint64(f)))
			for range 100 {
				rows, n := 1+r.IntN(3*tileRows), f.BlockLen()
				p := Packing{f, n * (1 + r.IntN(3*segment/n))}
				comparePacked(t, p, randomBlocks(r, f, rows*p.K/n), rows)
			}
		})
	}
}

// TestPackSingle packs all F16 and BF16, and F32 between all F16: in rows of neighbors, and in rows of all
// magnitudes.
func TestPackSingle(t *testing.T) {
	const k, rows = 512, 1 << 16 / 512
	pack := func(f quant.Format, weight func(src []byte, bits uint16) []byte) {
		var neighbors, all []byte
		for i := range rows * k {
			neighbors = weight(neighbors, uint16(i))
			all = weight(all, uint16(i%k*rows+i/k))
		}
		comparePacked(t, Packing{f, k}, neighbors, rows)
		comparePacked(t, Packing{f, k}, all, rows)
	}
	pack(quant.F16, binary.LittleEndian.AppendUint16)
	pack(quant.BF16, binary.LittleEndian.AppendUint16)
	// The rests are nothing, little, and a half of the spacing and its neighbors.
	for _, rest := range []uint32{0, 1, 2, 0x7ff, 0x800, 0xffe, 0xfff, 0x1000, 0x1001, 0x1002, 0x1fff} {
		pack(quant.F32, func(src []byte, bits uint16) []byte {
			return binary.LittleEndian.AppendUint32(src, math.Float32bits(float16.FromF16(bits))+rest)
		})
	}
}

func comparePacked(t *testing.T, p Packing, src []byte, rows int) {
	t.Helper()
	dst, want := make([]byte, p.TileBytes(rows)), make([]byte, p.TileBytes(rows))
	factors, wantFactors := p.Pack(dst, src, rows), p.define(want, src, rows)
	if !bytes.Equal(dst, want) {
		i := 0
		for dst[i] == want[i] {
			i++
		}
		t.Fatalf("%v, %d rows of %d weights: byte %d of %d is %#02x, want %#02x", p.Format, rows, p.K, i, len(dst), dst[i], want[i])
	}
	if !slices.EqualFunc(factors, wantFactors, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
		t.Fatalf("%v, %d rows of %d weights: factors %v, want %v", p.Format, rows, p.K, factors, wantFactors)
	}
}

// randomBlocks returns random bytes. Some rounds have many zeros, or weights and scales of similar magnitude.
func randomBlocks(r *rand.Rand, f quant.Format, blocks int) []byte {
	src := make([]byte, blocks*f.BlockBytes())
	fill, some := byte(r.Uint32()), r.IntN(3)
	for i := range src {
		src[i] = byte(r.Uint32())
		if r.IntN(4) < some {
			src[i] = fill
		}
	}
	return src
}

// define packs weight by weight.
func (p Packing) define(dst, src []byte, rows int) (factors []float32) {
	l, n := p.layout(), p.Format.BlockLen()
	if hasRowScale(p.Format) {
		factors = make([]float32, tileRows*rowTiles(rows))
	}
	size := len(src) / rows
	for r := range rows {
		row := src[r*size:][:size]
		seg := func(c int) []byte {
			return dst[r/tileRows*p.tileBytes()+c/segment*l.segmentBytes():][:l.segmentBytes()]
		}
		if n == 1 {
			w := make([]float64, p.K)
			factors[r] = float32(product.Single(p.Format, w, row))
			for c, v := range w {
				high := float16.ToF16(float32(v))
				bits := uint32(high)
				if rest := v - float64(float16.FromF16(high)); rest-rest == 0 {
					bits |= uint32(float16.ToF16(float32(rest))) << 16
				}
				l.put(seg(c), r%tileRows, c, bits)
			}
			continue
		}
		var heads []product.Scale
		for c := 0; c < p.K; c += n {
			var b quant.Block
			b.Unpack(p.Format, row[c/n*p.Format.BlockBytes():][:p.Format.BlockBytes()])
			for i, q := range b.Quants[:n] {
				l.put(seg(c), r%tileRows, c+i, uint32(l.stored(int8(q))))
			}
			if l.scales.put != nil {
				l.scales.put(l.scalesOf(seg(c), r%tileRows), &b)
			}
			heads = append(heads, product.ScaleOf(&b))
		}
		if !hasRowScale(p.Format) {
			continue
		}
		factors[r] = float32(product.Blocks(p.Format, heads))
		for i, b := range heads {
			lane := l.scalesOf(seg(i*n), r%tileRows).lane(0, i*n%segment/64)
			if l.floats {
				lane[r%tileRows/8*2+i%2] = byte(float16.ToF16(float32(b.OverD*0x1p15)) >> 8)
				continue
			}
			at := 4*(r%tileRows/8) + 2*(i%2)
			putHalves(lane[at:], float32(b.OverD/l.unit(r%tileRows/8)))
			if offsetSteps(p.Format) > 0 {
				putHalves(lane[8+at:], float32(b.Offset))
			}
		}
	}
	return factors
}

// put stores a number of row r and column c in the planes of a segment.
func (l layout) put(seg []byte, r, c int, v uint32) {
	c %= segment
	p := place{step: c % 32 / 2, lane: r%8*4 + c/64, register: r/8 + c%2*2, half: c / 32 % 2}
	for i, bits := range l.planes {
		chunk, word, bit := p.in(bits)
		to := seg[l.start(i)+(chunk*lanes+p.lane)*16+4*word:]
		binary.LittleEndian.PutUint32(to, binary.LittleEndian.Uint32(to)|v&(1<<bits-1)<<bit)
		v >>= bits
	}
}

func BenchmarkPack(b *testing.B) {
	const rows, k = 64, 4096
	r := rand.New(rand.NewPCG(1, 2))
	weights := make([]float32, rows*k)
	for i := range weights {
		weights[i] = float32(0.02 * r.NormFloat64())
	}
	for _, f := range Formats() {
		src := randomBlocks(r, f, rows*k/f.BlockLen())
		if f.CanEncode() {
			if err := f.Encode(src, weights); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(f.String(), func(b *testing.B) {
			p := Packing{f, k}
			dst := make([]byte, p.TileBytes(rows))
			for b.Loop() {
				p.Pack(dst, src, rows)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(rows*k), "ns/weight")
		})
	}
}
