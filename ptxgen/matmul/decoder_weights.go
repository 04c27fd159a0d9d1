package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// Quants become floats without a conversion: an integer below 2^24 in the bits of a
// float32 is that integer times 2^-149, a subnormal number or one of the first
// binade, and multiplication takes it at full speed. So one mask turns a quant into
// a factor, and the power of two is put into what it is multiplied by.

// fieldShift is the bit at which byte b of four begins. A shift costs as much as a mask,
// so three of the four stay where they are, below bit 24.
var fieldShift = [4]int{0, 8, 16, 0}

// weights gives the 32 weights, equal to quant.Decode's in every bit (a NaN may have
// another payload).
func (u unit) weights() []ptx.F32 {
	var w []ptx.F32
	quad := u.quads()
	for j := range unitLen / 4 {
		four := quad(j)
		w = append(w, four[:]...)
	}
	return w
}

// quads gives what emits weights 4j to 4j+3.
func (u unit) quads() func(j int) [4]ptx.F32 {
	if !u.d.quantized() {
		return func(j int) [4]ptx.F32 { return u.d.single(u, j) }
	}
	s := u.d.scales(u)
	var scaled [2][4]ptx.F32 // by sub-block and byte: the scale over the byte's unit
	for i, scale := range s.scale {
		for b, shift := range fieldShift {
			scaled[i][b] = scale.MulN(powerOfTwo(49 - shift))
		}
	}
	bytes := u.bytes()
	return func(j int) (w [4]ptx.F32) {
		part := j * 4 * len(s.scale) / unitLen
		word, clean := bytes(j)
		for b, shift := range fieldShift {
			// quant - center, times 2^(shift-49): exact, and so is its product with the
			// scale, which has at most 17 bits to the quant's 7.
			v := u.field(word, b, clean).FMA(u.b.F32(0x1p100), u.b.F32(-float32(u.d.center)*powerOfTwo(shift-49)))
			if s.min == nil {
				w[b] = v.Mul(scaled[part][b])
			} else {
				w[b] = v.FMA(scaled[part][b], s.min[part].Neg())
			}
		}
		return w
	}
}

// field is byte b of a word of quants as a number, times 2^(fieldShift[b]-149).
func (u unit) field(word ptx.U32, b int, clean bool) ptx.F32 {
	if b < 3 {
		return word.AndN(u.d.top << fieldShift[b]).AsF32()
	}
	last := word.ShrN(24)
	if !clean {
		last = last.AndN(u.d.top)
	}
	return last.AsF32()
}

// quad gives the quants of a quad, of words that are shifted for the unit or not.
func (u unit) quad(w quantWords, quad int) (ptx.U32, bool) {
	if u.d.quantsOf != nil {
		return u.d.quantsOf(w, u.index, quad)
	}
	return u.d.quants(w, 0, quad)
}

// bytes gives what emits quants 4j to 4j+3 as the bytes of a word, of which the bits of
// top count; clean says that there are no others. A piece that units share is shifted
// so that this unit's quants are where the first one's would be.
func (u unit) bytes() func(j int) (word ptx.U32, clean bool) {
	const words = 4
	pieces := make([][]ptx.U32, words)
	for i, pl := range u.d.planes {
		if !pl.quants() {
			break
		}
		for t, w := range u.raw[i] {
			if pl.units > 1 && u.d.quantsOf == nil {
				w = w.Shr(u.index.RemN(pl.units).MulN(8 / pl.units))
			}
			pieces[t] = append(pieces[t], w)
		}
	}
	return func(j int) (ptx.U32, bool) {
		w, clean := u.quad(quantWords{u.b, pieces[j%words]}, j/words)
		if !u.d.signed {
			return w, clean
		}
		sign := u.b.U32(each((u.d.top + 1) / 2))
		if clean {
			return w.Xor(sign), true
		}
		return w.Lop3(u.b.U32(each(u.d.top)), sign, ptx.LopX&ptx.LopY^ptx.LopZ), true
	}
}
