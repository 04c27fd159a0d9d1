package synth

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"sync"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/quant"
)

// filler generates the blocks of one tensor at memory speed: it fills blocks with random
// bits and overwrites the scale and minimum of each block.
type filler struct {
	format quant.Format
	// values holds the bits from which the weights of F32, F16 and BF16 are drawn.
	values *[valueCount]uint32
	// scale and min hold the scales and minimums from which blocks draw theirs: float16, or
	// bytes in MXFP4.
	scale, min [256]uint16
}

// blockFields describes the fields of a block format that a filler must set.
type blockFields struct {
	d      int                // offset of the scale
	min    int                // offset of the float16 minimum, or -1
	center float64            // ratio of minimum to scale that gives the weights a mean of 0
	flip   bool               // negate every second scale, which gives the weights a mean of 0
	power  bool               // the scale is a byte: 128 plus the exponent of a power of two
	tidy   func(block []byte) // makes the random bits of the block valid and its scales similar
}

var fields = map[quant.Format]blockFields{
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
	quant.MXFP4:  {d: 0, min: -1, power: true},
}

// Masks of bits of each byte in a word.
const (
	bit7 = 0x8080808080808080
	bit6 = 0x4040404040404040
	low7 = bit7 - 0x0101010101010101
)

// tidyQ8 replaces −128, which encoders do not write, by −127.
func tidyQ8(block []byte) {
	for q := block[2:]; len(q) > 0; q = q[8:] {
		w := binary.LittleEndian.Uint64(q)
		rest := w ^ bit7                                 // byte 0 for −128
		is := ^((rest&low7 + low7) | rest | low7) & bit7 // byte 0x80 for −128, else 0
		binary.LittleEndian.PutUint64(q, w|is>>7)
	}
}

// tidyQ2 makes the 4-bit scales and minimums of the 16 sub-blocks at least 8.
func tidyQ2(block []byte) {
	for i := range 16 {
		block[i] |= 0x88
	}
}

// tidyQ4 makes the 6-bit scales and minimums of the 8 sub-blocks at least 32. Bit 5 of
// the first four of each is bit 5 of its byte; that of the others is bit 7.
func tidyQ4(block []byte) {
	for i := 4; i < 12; i++ {
		block[i] |= 0xa0
	}
}

// tidyQ6 makes the magnitude of the signed 8-bit scales of the 16 sub-blocks at least 64:
// bit 6 differs from bit 7.
func tidyQ6(block []byte) {
	for q := block[192:208]; len(q) > 0; q = q[8:] {
		w := binary.LittleEndian.Uint64(q)
		binary.LittleEndian.PutUint64(q, w&^bit6|^w&bit7>>1)
	}
}

// newFiller returns a filler of weights with standard deviation std. The mean applies to
// F32, F16 and BF16; it is 0 for block formats.
func newFiller(f quant.Format, seed uint64, tensor string, mean, std float64) (*filler, error) {
	r := stream(seed, tensor, -1)
	if err := checkFormats(f); err != nil {
		return nil, err
	}
	if f.BlockLen() == 1 {
		return valueFiller(f, &r, mean, std)
	}
	return blockFiller(f, &r, std/unitDeviation(f)), nil
}

// checkFormats returns an error that wraps quant.ErrUnsupported if a format has no generator.
func checkFormats(formats ...quant.Format) error {
	for _, f := range formats {
		if _, ok := fields[f]; !ok && f.BlockLen() > 1 {
			return fmt.Errorf("synth: %w: no generator of random blocks of %v", quant.ErrUnsupported, f)
		}
	}
	return nil
}

// valueCount is the number of distinct values in an F32, F16 or BF16 tensor. 12 random
// bits select a weight.
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

// blockFiller draws the scales of blocks uniformly from d·[¾, 1¼). If scales are powers of two, it
// draws from the two nearest to d, in shares that make the mean square of the scales d².
func blockFiller(f quant.Format, r *random, d float64) *filler {
	at := fields[f]
	fill := &filler{format: f}
	for i := range fill.scale {
		if at.power {
			fraction, exponent := math.Frexp(d)
			larger := (float64(4*fraction*fraction) - 1) / 3 // the share of the larger power
			if float64(i) >= larger*float64(len(fill.scale)) {
				exponent--
			}
			fill.scale[i] = uint16(128 + exponent)
			continue
		}
		scale := d * (0.75 + float64(float64(r.next()>>32)/(1<<33)))
		if at.flip && i%2 == 1 {
			scale = -scale
		}
		fill.scale[i] = float16.ToF16(float32(scale))
		fill.min[i] = float16.ToF16(float32(at.center * scale))
	}
	return fill
}

// fill overwrites buf, which is whole blocks, with random weights.
func (f *filler) fill(buf []byte, r *random) {
	if f.values != nil {
		f.draw(buf, r)
		return
	}
	r.fill(buf)
	at, size := fields[f.format], f.format.BlockBytes()
	for ; len(buf) > 0; buf = buf[size:] {
		block := buf[:size]
		if at.tidy != nil {
			at.tidy(block)
		}
		pick := block[at.d] // a random byte
		if at.power {
			block[at.d] = byte(f.scale[pick])
			continue
		}
		binary.LittleEndian.PutUint16(block[at.d:], f.scale[pick])
		if at.min >= 0 {
			binary.LittleEndian.PutUint16(block[at.min:], f.min[pick])
		}
	}
}

// draw fills buf with values, four per random word.
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

// unitDeviation decodes random blocks with scale 1 and returns the standard deviation of the
// weights.
func unitDeviation(f quant.Format) float64 {
	v, ok := deviations.Load(f)
	if !ok {
		v, _ = deviations.LoadOrStore(f, measureDeviation(f))
	}
	return v.(float64)
}

var deviations sync.Map // quant.Format: float64

func measureDeviation(f quant.Format) float64 {
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

// Blocks returns n random weights as blocks of a format. n must fill whole blocks. The
// weights have mean 0 and standard deviation std. Equal names and seeds give equal bytes.
// The error wraps quant.ErrUnsupported if there is no generator for the format.
func Blocks(f quant.Format, n int, std float64, seed uint64, name string) ([]byte, error) {
	bytes, err := f.RowBytes(n)
	if err != nil {
		return nil, err
	}
	fill, err := newFiller(f, seed, name, 0, std)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, bytes)
	r := stream(seed, name, 0)
	fill.fill(buf, &r)
	return buf, nil
}

// random is the SplitMix64 generator (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", 2014). Each chunk of a tensor has a stream of its own, so that any
// core can generate it.
type random uint64

const gamma = 0x9e3779b97f4a7c15

// stream returns the generator of one chunk of one tensor.
func stream(seed uint64, tensor string, chunk int) random {
	h := fnv.New64a()
	h.Write([]byte(tensor))
	base := random(seed)
	base = random(base.next() ^ h.Sum64())
	base = random(base.next() + uint64(chunk)*0xd1342543de82ef95) // odd, so that chunks start far apart
	return random(base.next())
}

func (r *random) next() uint64 {
	*r += gamma
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// fill overwrites b with random bytes.
func (r *random) fill(b []byte) {
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, r.next())
		b = b[8:]
	}
	for w := r.next(); len(b) > 0; b, w = b[1:], w>>8 {
		b[0] = byte(w)
	}
}

// normal returns an approximately normal number with mean 0 and variance 1: the sum of
// four uniform 16-bit integers. Integer sums are equal on every machine.
func (r *random) normal() float64 {
	w := r.next()
	sum := int64(w&0xffff) + int64(w>>16&0xffff) + int64(w>>32&0xffff) + int64(w>>48)
	const mean = 4 * 0xffff / 2
	const std = 37837.22 // √(4·(2³²−1)/12)
	return float64(sum-mean) / std
}
