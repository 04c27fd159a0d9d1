package synth

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/quant"
)

// filler makes the blocks of one tensor at memory speed: random bits everywhere,
// then the few fields of each block that give the numbers their size.
type filler struct {
	format quant.Format
	// For halves and F32, the bits of the weights, of which each is drawn.
	values *[valueCount]uint32
	// For blocks, choices of the block's scale and of its minimum, as halves.
	scale, least [256]uint16
}

// layout says where a block format keeps its super-scale, and how the random
// bits around it are to be read.
type layout struct {
	d   int // offset of the scale, a half
	min int // offset of the minimum, a half; -1: none
	// center is the minimum over the scale that makes the mean 0.
	center float64
	// flip lets half of the scales be negative: the codes' mean is not 0, and
	// over several blocks it then is.
	flip bool
	// tidy makes the block's remaining random bits valid and even in size.
	tidy func(block []byte)
}

var layouts = map[quant.Format]layout{
	quant.Q4_0:   {d: 0, min: -1, flip: true},
	quant.Q4_1:   {d: 0, min: 2, center: -7.5},
	quant.Q5_0:   {d: 0, min: -1, flip: true},
	quant.Q5_1:   {d: 0, min: 2, center: -15.5},
	quant.Q8_0:   {d: 0, min: -1, tidy: tidyQ8},
	quant.Q2_K:   {d: 80, min: 82, center: 1.5, tidy: tidyQ2},
	quant.Q3_K:   {d: 108, min: -1},
	quant.Q4_K:   {d: 0, min: 2, center: 7.5, tidy: tidyQ4},
	quant.Q5_K:   {d: 0, min: 2, center: 15.5, tidy: tidyQ4},
	quant.Q6_K:   {d: 208, min: -1, tidy: tidyQ6},
	quant.IQ4_NL: {d: 0, min: -1, flip: true},
	quant.IQ4_XS: {d: 0, min: -1},
}

// words of one byte repeated.
const (
	bit7 = 0x8080808080808080
	bit6 = 0x4040404040404040
	low7 = bit7 - 0x0101010101010101
)

// tidyQ8 turns −128, which no encoder writes, into −127.
func tidyQ8(block []byte) {
	for q := block[2:]; len(q) > 0; q = q[8:] {
		w := binary.LittleEndian.Uint64(q)
		rest := w ^ bit7                                 // 0 where the byte is −128
		is := ^((rest&low7 + low7) | rest | low7) & bit7 // 0x80 there, exactly
		binary.LittleEndian.PutUint64(q, w|is>>7)
	}
}

// tidyQ2 keeps the 4-bit scales and minima of the 16 sub-blocks at 8 or above.
func tidyQ2(block []byte) {
	for i := range 16 {
		block[i] |= 0x88
	}
}

// tidyQ4 keeps the 6-bit scales and minima of the 8 sub-blocks at 32 or above:
// bit 5 of the first four of each lies in bit 5 of its byte, that of the others
// in bit 7 of the same bytes.
func tidyQ4(block []byte) {
	for i := 4; i < 12; i++ {
		block[i] |= 0xa0
	}
}

// tidyQ6 keeps the signed 8-bit scales of the 16 sub-blocks at 64 or more, of
// either sign: bit 6 differs from bit 7.
func tidyQ6(block []byte) {
	for q := block[192:208]; len(q) > 0; q = q[8:] {
		w := binary.LittleEndian.Uint64(q)
		binary.LittleEndian.PutUint64(q, w&^bit6|^w&bit7>>1)
	}
}

// newFiller prepares a tensor's numbers: mean 0 and the given deviation, but for
// F32, F16 and BF16 any mean.
func newFiller(f quant.Format, seed uint64, tensor string, mean, std float64) (*filler, error) {
	r := stream(seed, tensor, -1)
	if f.BlockLen() == 1 {
		return valueFiller(f, &r, mean, std)
	}
	if _, ok := layouts[f]; !ok {
		return nil, fmt.Errorf("synth: %w: no random blocks of %v", quant.ErrUnsupported, f)
	}
	return blockFiller(f, &r, std/unit(f)), nil
}

// valueCount is how many different numbers an F32, F16 or BF16 tensor has: each
// is drawn by 12 random bits.
const valueCount = 1 << 12

func valueFiller(f quant.Format, r *random, mean, std float64) (*filler, error) {
	numbers := make([]float32, valueCount)
	for i := range numbers {
		numbers[i] = float32(mean + float64(std*r.normal()))
	}
	bits := make([]byte, valueCount*f.BlockBytes())
	if err := f.Encode(bits, numbers); err != nil {
		return nil, err
	}
	values := new([valueCount]uint32)
	for i := range values {
		for j := range f.BlockBytes() {
			values[i] |= uint32(bits[i*f.BlockBytes()+j]) << (8 * j)
		}
	}
	return &filler{format: f, values: values}, nil
}

// blockFiller spreads the scales of blocks evenly over d·[¾, 1¼).
func blockFiller(f quant.Format, r *random, d float64) *filler {
	at := layouts[f]
	fill := &filler{format: f}
	for i := range fill.scale {
		scale := d * (0.75 + float64(float64(r.next()>>32)/(1<<33)))
		if at.flip && i%2 == 1 {
			scale = -scale
		}
		fill.scale[i] = float16.ToF16(float32(scale))
		fill.least[i] = float16.ToF16(float32(at.center * scale))
	}
	return fill
}

// fill overwrites buf, whole blocks, with random weights.
func (f *filler) fill(buf []byte, r *random) {
	if f.values != nil {
		f.draw(buf, r)
		return
	}
	r.fill(buf)
	at, size := layouts[f.format], f.format.BlockBytes()
	for ; len(buf) > 0; buf = buf[size:] {
		block := buf[:size]
		if at.tidy != nil {
			at.tidy(block)
		}
		pick := block[at.d] // still random
		binary.LittleEndian.PutUint16(block[at.d:], f.scale[pick])
		if at.min >= 0 {
			binary.LittleEndian.PutUint16(block[at.min:], f.least[pick])
		}
	}
}

// draw picks each number of buf from the filler's values, four by each random
// word.
func (f *filler) draw(buf []byte, r *random) {
	size := f.format.BlockBytes()
	var four [16]byte
	for len(buf) > 0 {
		w := r.next()
		v := f.values
		a, b, c, d := v[w%valueCount], v[w>>12%valueCount], v[w>>24%valueCount], v[w>>36%valueCount]
		if size == 2 {
			binary.LittleEndian.PutUint64(four[:], uint64(a)|uint64(b)<<16|uint64(c)<<32|uint64(d)<<48)
		} else {
			binary.LittleEndian.PutUint64(four[:], uint64(a)|uint64(b)<<32)
			binary.LittleEndian.PutUint64(four[8:], uint64(c)|uint64(d)<<32)
		}
		buf = buf[copy(buf, four[:4*size]):]
	}
}

// unit is the deviation of random blocks whose scale is about 1, measured.
func unit(f quant.Format) float64 {
	v, ok := units.Load(f)
	if !ok {
		v, _ = units.LoadOrStore(f, measureUnit(f))
	}
	return v.(float64)
}

var units sync.Map // quant.Format: float64

func measureUnit(f quant.Format) float64 {
	const n = 1 << 16
	r := stream(1, f.String(), 0)
	buf := make([]byte, n/f.BlockLen()*f.BlockBytes())
	blockFiller(f, &r, 1).fill(buf, &r)
	weights := make([]float64, n)
	quant.Decode(f, weights, buf)
	sum := 0.0
	for _, w := range weights {
		sum += float64(w * w)
	}
	return math.Sqrt(sum / n)
}
