package emu

import "math"

// The functions below make form.vec from the computation of one lane. The most frequent
// instructions have their own loop instead, because a call per lane costs more than the work.

func unaryU64(f func(a uint64) uint64) func(d, a, b, c *vec) {
	return func(d, a, _, _ *vec) {
		for l := range d {
			d[l] = f(a[l])
		}
	}
}

func binaryU64(f func(a, b uint64) uint64) func(d, a, b, c *vec) {
	return func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = f(a[l], b[l])
		}
	}
}

func unaryU32(f func(a uint32) uint32) func(d, a, b, c *vec) {
	return func(d, a, _, _ *vec) {
		for l := range d {
			d[l] = uint64(f(uint32(a[l])))
		}
	}
}

func binaryU32(f func(a, b uint32) uint32) func(d, a, b, c *vec) {
	return func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = uint64(f(uint32(a[l]), uint32(b[l])))
		}
	}
}

func ternaryU32(f func(a, b, c uint32) uint32) func(d, a, b, c *vec) {
	return func(d, a, b, c *vec) {
		for l := range d {
			d[l] = uint64(f(uint32(a[l]), uint32(b[l]), uint32(c[l])))
		}
	}
}

func unaryF32(f func(a float32) float32) func(d, a, b, c *vec) {
	return func(d, a, _, _ *vec) {
		for l := range d {
			d[l] = bits32(f(float32Of(a[l])))
		}
	}
}

func binaryF32(f func(a, b float32) float32) func(d, a, b, c *vec) {
	return func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = bits32(f(float32Of(a[l]), float32Of(b[l])))
		}
	}
}

func ternaryF64(f func(a, b, c float64) float64) func(d, a, b, c *vec) {
	return func(d, a, b, c *vec) {
		for l := range d {
			d[l] = canonical64(f(math.Float64frombits(a[l]), math.Float64frombits(b[l]), math.Float64frombits(c[l])))
		}
	}
}

// float32Of reads a register as a float32.
func float32Of(v uint64) float32 { return math.Float32frombits(uint32(v)) }

// bits32 returns the bits of a float32 as a register value.
func bits32(f float32) uint64 { return uint64(math.Float32bits(f)) }

// canonical64 returns the bits of a float64, or of the canonical NaN.
func canonical64(f float64) uint64 {
	if f != f {
		return 0x7fffffffffffffff
	}
	return math.Float64bits(f)
}
