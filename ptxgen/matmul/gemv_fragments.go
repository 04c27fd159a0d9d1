package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// loadQuants loads the quants of a unit and of those that come with it: a lane receives
// the words of row lane/4 and of the row 8 further on, of the pieces of one unit or of
// those that share them.
func (k *integerBlock) loadQuants(unit int) {
	if k.Format == quant.Q8_0 {
		k.loadBytes(unit)
		return
	}
	for i, pl := range k.d.planes {
		if !pl.quants() {
			break
		}
		const atOnce = 2 // pieces
		if unit%(atOnce*pl.units) != 0 {
			continue
		}
		pieces := min(atOnce, k.d.units/pl.units)
		at := k.weights.At(k.lane, 16).Plus(k.d.start(i, k.d.units) + 256*unit/pl.units)
		for j, w := range ptx.LoadMatrices[ptx.F16x2](at, 2*pieces, false) {
			for u := range pl.units {
				k.words[unit+j/2*pl.units+u][j%2].words[i] = w.Bits()
			}
		}
	}
}

// loadBytes is loadQuants where two planes have a quad each, so that four words, in the
// order in which a fragment has them, are those of one unit: the lower 16 lanes name rows of
// the first plane, the upper ones of the second.
func (k *integerBlock) loadBytes(unit int) {
	at := k.weights.AtBytes(k.bytesAt).Aligned(16).Plus(256 * unit)
	for i, w := range ptx.LoadMatrices[ptx.F16x2](at, 4, false) {
		k.words[unit][i%2].words[i/2] = w.Bits()
	}
}

// fragments are the rows' quants of a unit as bytes, some times a power of two; of two
// fragments they are the sum.
func (k *integerBlock) fragments(unit int) [][4]ptx.U32 {
	k.loadQuants(unit)
	var a [2][4]ptx.U32
	for i := range a[0] {
		w, quad := k.words[unit][i%2], i/2
		switch {
		case k.inParts():
			a[0][i], a[1][i] = levelParts(w, quad)
		case k.inPlace():
			a[0][i] = k.quadInPlace(w, unit, quad)
		default:
			a[0][i] = k.register(unit, i)
		}
	}
	if k.inParts() {
		return a[:]
	}
	return a[:1]
}

// inParts reports whether quants are multiplied as sums of two: those that a table gives.
func (s Gemv) inParts() bool { return s.Format == quant.IQ4_NL || s.Format == quant.IQ4_XS }

// register is register i of a unit's fragment as GemvBatch takes it of any format: neither in
// parts nor in place, which would take more products or more sums.
func (k *integerBlock) register(unit, i int) ptx.U32 {
	quad, w := i/2, k.words[unit][i%2]
	if k.d.nibbles() {
		return moved(w.words[0], 4*quad, 4).AndN(each(15 << 4))
	}
	bytes, clean := k.d.quants(w, unit, quad)
	if !clean {
		bytes = bytes.AndN(each(k.d.top))
	}
	return bytes
}

// quantLogs is log2 of how much larger than quants the sums of a block are, of the first and
// the second half of units where they have sums of their own.
func (s Gemv) quantLogs() [2]int {
	switch s.Format {
	case quant.Q2_K:
		return [2]int{4, 6}
	case quant.Q3_K:
		return [2]int{3, 5}
	}
	log := decoderOf(s.Format).quantLog()
	return [2]int{log, log}
}

// quantLog is log2 of how much larger than quants the bytes of register are.
func (d *decoder) quantLog() int {
	if d.nibbles() {
		return 4
	}
	return 0
}

// nibbles reports whether quants are signed numbers of four bits, which in the upper half
// of a byte are one of eight.
func (d *decoder) nibbles() bool { return d.signed && d.top == 15 }
