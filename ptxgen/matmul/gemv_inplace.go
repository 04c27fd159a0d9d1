package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// inPlace reports whether quants are multiplied where they lie in a byte, which saves
// shifting them: those of two bits, and most of three. Each quad of a unit is then a
// power of two larger, and the two must not meet in a sum before joinHalves levels them.
func (s Gemv) inPlace() bool { return s.Format == quant.Q2_K || s.Format == quant.Q3_K }

// lowInPlace reports whether a unit's quants of either half are lower in their bytes than
// those of the other units, which have the same place all: as many bits as raised says.
func (k *integerBlock) lowInPlace(unit int) bool {
	if k.Format == quant.Q2_K {
		return unit%2 == 0
	}
	return unit%4 == 0
}

// raised is log2 of how much larger the quants of other units are than those of lowInPlace.
func (s Gemv) raised() int {
	if s.Format == quant.Q2_K {
		return 4
	}
	return 3
}

// quadInPlace is a quad of a fragment.
func (k *integerBlock) quadInPlace(w quantWords, unit, quad int) ptx.U32 {
	if k.Format == quant.Q2_K {
		return w.words[0].AndN(each(3 << (4*(unit%2) + 2*quad)))
	}
	return tripleInPlace(w, unit, quad)
}

// tripleInPlace is triple where the quants lie, but for those that take a shift to be
// where the others are: the first quad in bit 0 or 3, the second in bit 2 or 5.
func tripleInPlace(w quantWords, unit, quad int) ptx.U32 {
	pair, odd := unit%4/2, unit%2
	own, third := w.words[pair], w.words[2]
	switch {
	case quad == 0 && unit%4 == 0:
		return own.AndN(each(7))
	case quad == 0:
		return moved(own, 3*odd, 3).AndN(each(7 << 3))
	case odd == 0:
		return third.AndN(each(7 << (2 + 3*pair)))
	}
	return w.orMasked(own.AndN(each(6<<5)), third.ShlN(5-pair), each(1<<5))
}

// levelled adds up the sums over units that are low in their bytes and over the others.
func (k *integerBlock) levelled(low, high [4]ptx.S32) (total [4]ptx.S32) {
	for i := range total {
		total[i] = low[i].Mad(k.raise.S32(), high[i])
	}
	return total
}
