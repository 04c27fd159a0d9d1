package harness

import (
	"encoding/binary"
	"math"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/quant"
)

// Distribution names a distribution of random numbers.
type Distribution uint8

const (
	Gaussian     Distribution = iota // mean 0, deviation 1
	Outliers                         // one in a hundred is 30 times larger
	Canceling                        // neighbors nearly cancel, so sums are much smaller than their terms
	SameSign                         // all positive, so partial sums grow
	Subnormal                        // below the smallest normal number of the format
	NearOverflow                     // sums of products come near the largest float32
	Constant                         // all equal
	distributions
)

var distributionNames = [distributions]string{"gaussian", "outliers", "canceling", "same sign", "subnormal", "near overflow", "constant"}

// String returns the name that case names contain.
func (d Distribution) String() string { return distributionNames[d] }

// Distributions lists all of them.
func Distributions() []Distribution {
	var all []Distribution
	for d := range distributions {
		all = append(all, d)
	}
	return all
}

// Vector returns n random numbers.
func (r *Fixture) Vector(d Distribution, n int) []float32 {
	x := make([]float32, n)
	common := float32(0.1 + r.rand.Float64())
	for i := range x {
		v := r.rand.NormFloat64()
		switch d {
		case Outliers:
			if r.rand.IntN(100) == 0 {
				v *= 30
			}
		case Canceling:
			if i%2 == 1 {
				v = -float64(x[i-1]) * (1 + v/1024)
			}
		case SameSign:
			v = math.Abs(v)
		case Subnormal:
			v *= 0x1p-129
		case NearOverflow: // for a sum of thousands of products with weights near 1
			v *= 0x1p112
		case Constant:
			v = float64(common)
		}
		x[i] = float32(v)
	}
	return x
}

// blockLayout describes the parts of a quantized block that set the size of its weights.
type blockLayout struct {
	scales []int  // byte offsets of the scales: float16, or powers of two in MXFP4
	quants [2]int // first and last byte of the quants; the last is exclusive
	repeat byte   // a quant byte n·repeat, for n < most, holds equal quants
	most   int
}

// blockLayouts follows the block definitions of package quant.
var blockLayouts = map[quant.Format]blockLayout{
	quant.Q4_0:   {[]int{0}, [2]int{2, 18}, 0x11, 16},
	quant.Q4_1:   {[]int{0, 2}, [2]int{4, 20}, 0x11, 16},
	quant.Q5_0:   {[]int{0}, [2]int{6, 22}, 0x11, 16},
	quant.Q5_1:   {[]int{0, 2}, [2]int{8, 24}, 0x11, 16},
	quant.Q8_0:   {[]int{0}, [2]int{2, 34}, 1, 256},
	quant.Q2_K:   {[]int{80, 82}, [2]int{16, 80}, 0x55, 4},
	quant.Q3_K:   {[]int{108}, [2]int{32, 96}, 0x55, 4},
	quant.Q4_K:   {[]int{0, 2}, [2]int{16, 144}, 0x11, 16},
	quant.Q5_K:   {[]int{0, 2}, [2]int{48, 176}, 0x11, 16},
	quant.Q6_K:   {[]int{208}, [2]int{0, 128}, 0x11, 16},
	quant.IQ4_NL: {[]int{0}, [2]int{2, 18}, 0x11, 16},
	quant.IQ4_XS: {[]int{0}, [2]int{8, 136}, 0x11, 16},
	quant.MXFP4:  {[]int{0}, [2]int{1, 17}, 0x11, 16},
}

// Weights returns a random matrix of rows × k weights in format f, in the layout of a GGUF
// file. Blocks hold random bytes, so that every sub-block has its own scale. The scales of
// blocks make weights about 1. Those that are float16 are sometimes negative. For Canceling
// and Constant, all quants of a block are equal.
func (r *Fixture) Weights(f quant.Format, d Distribution, rows, k int) []byte {
	r.T.Helper()
	bytes, err := f.RowBytes(k)
	if err != nil {
		r.Fatalf("weights: %v", err)
	}
	out := make([]byte, rows*bytes)
	l, block := blockLayouts[f]
	if !block {
		if d == NearOverflow || d == Subnormal && f == quant.F16 {
			d = Gaussian // the vector is large instead, since float16 has no larger or smaller range
		}
		if err := f.Encode(out, r.Vector(d, rows*k)); err != nil {
			r.Fatalf("weights: %v", err)
		}
		return out
	}
	for at := 0; at < len(out); at += f.BlockBytes() {
		r.block(f, l, d, out[at:at+f.BlockBytes()])
	}
	if d == Constant {
		for at := f.BlockBytes(); at < len(out); at += f.BlockBytes() {
			copy(out[at:], out[:f.BlockBytes()])
		}
	}
	return out
}

// block fills one block.
func (r *Fixture) block(f quant.Format, l blockLayout, d Distribution, b []byte) {
	for i := range b {
		b[i] = byte(r.rand.Uint32())
	}
	if d == Canceling || d == Constant {
		same := l.repeat * byte(r.rand.IntN(l.most))
		for i := l.quants[0]; i < l.quants[1]; i++ {
			b[i] = same
		}
	}
	for _, at := range l.scales {
		putScale(f, b[at:], 1)
	}
	size := rootMeanSquare(f, b)
	if size == 0 {
		size = 1
	}
	for i, at := range l.scales {
		s := math.Exp(r.rand.NormFloat64()/2) / size
		switch {
		case d == Outliers && r.rand.IntN(100) == 0:
			s *= 30
		case d == Subnormal:
			s = float64(1+r.rand.IntN(1023)) * 0x1p-24
		}
		if d != SameSign && i == 0 && r.rand.IntN(4) == 0 {
			s = -s
		}
		putScale(f, b[at:], s)
	}
}

// putScale stores a scale of a block. In MXFP4, it is the power of two that is not above |x|.
func putScale(f quant.Format, b []byte, x float64) {
	if f == quant.MXFP4 {
		b[0] = byte(128 + math.Ilogb(x))
		return
	}
	binary.LittleEndian.PutUint16(b, float16.ToF16(float32(x)))
}

func rootMeanSquare(f quant.Format, b []byte) float64 {
	w := make([]float64, f.BlockLen())
	quant.Decode(f, w, b)
	sum := 0.0
	for _, x := range w {
		sum += float64(x * x)
	}
	return math.Sqrt(sum / float64(len(w)))
}
