package float16

import (
	"math"
	"testing"
)

func TestFromF16(t *testing.T) {
	for h := range 1 << 16 {
		got, want := FromF16(uint16(h)), halfSpec(h)
		if !same(got, want) {
			t.Fatalf("%#04x is %v, want %v", h, got, want)
		}
		if want != want && math.Float32bits(got) != uint32(h>>15<<31|0xff<<23|h&0x3ff<<13) {
			t.Fatalf("%#04x becomes %#08x: another NaN", h, math.Float32bits(got))
		}
	}
}

func TestFromBF16(t *testing.T) {
	for b := range 1 << 16 {
		sign, exponent, fraction := 1-2*(b>>15), b>>7&255, b&127
		want := math.Ldexp(float64(128+fraction), exponent-134)
		switch {
		case exponent == 255 && fraction != 0:
			want = math.NaN()
		case exponent == 255:
			want = math.Inf(1)
		case exponent == 0:
			want = math.Ldexp(float64(fraction), -133)
		}
		if got := FromBF16(uint16(b)); !same(got, float32(math.Copysign(want, float64(sign)))) {
			t.Fatalf("%#04x is %v, want %v·%v", b, got, sign, want)
		}
	}
}

var formats = []struct {
	name     string
	to       func(float32) uint16
	from     func(uint16) float32
	round    func(float32) float32
	infinity int    // larger bits are NaN
	quiet    uint16 // the bit of a quiet NaN
}{
	{"F16", ToF16, FromF16, RoundF16, 0x7c00, 0x200},
	{"BF16", ToBF16, FromBF16, RoundBF16, 0x7f80, 0x40},
}

// Every 16-bit value converts to float32 and back; a signaling NaN becomes quiet.
func TestRoundExact(t *testing.T) {
	for _, tt := range formats {
		t.Run(tt.name, func(t *testing.T) {
			for h := range 1 << 16 {
				want := uint16(h)
				if h&0x7fff > tt.infinity {
					want |= tt.quiet
				}
				if got := tt.to(tt.from(uint16(h))); got != want {
					t.Fatalf("%#04x becomes %#04x, want %#04x", h, got, want)
				}
			}
		})
	}
}

// Values between two neighbors round to the nearer one, and the middle rounds to even.
// The neighbor above the largest finite value is the next power of two.
func TestRoundRounds(t *testing.T) {
	for _, tt := range formats {
		t.Run(tt.name, func(t *testing.T) {
			for h := range tt.infinity {
				lo := float64(tt.from(uint16(h)))
				hi := float64(tt.from(uint16(h + 1)))
				if h+1 == tt.infinity {
					hi = 2*lo - float64(tt.from(uint16(h-1)))
				}
				middle := float32((lo + hi) / 2)
				if float64(middle) != (lo+hi)/2 {
					t.Fatalf("the middle of %v and %v is no float32", lo, hi)
				}
				below, above := math.Nextafter32(middle, 0), math.Nextafter32(middle, float32(math.Inf(1)))
				for _, sign := range []uint16{0, 0x8000} {
					for x, want := range map[float32]int{below: h, middle: h + h&1, above: h + 1} {
						x = float32(math.Copysign(float64(x), 0.5-float64(sign)))
						if got := tt.to(x); got != uint16(want)|sign {
							t.Fatalf("%v becomes %#04x, want %#04x", x, got, uint16(want)|sign)
						}
						if got := tt.round(x); !same(got, tt.from(uint16(want)|sign)) {
							t.Fatalf("%v is rounded to %v, want %v", x, got, tt.from(uint16(want)|sign))
						}
					}
				}
			}
		})
	}
}

func TestRoundSpecial(t *testing.T) {
	tests := []struct {
		name, reason string
		bits         uint32
		f16, bf16    uint16
	}{
		{"smallest float32", "far below half the smallest half", 1, 0, 0},
		{"smallest negative", "zero keeps its sign", 0x80000001, 0x8000, 0x8000},
		{"largest float32", "beyond both", 0x7f7fffff, 0x7c00, 0x7f80},
		{"infinity", "stays", 0x7f800000, 0x7c00, 0x7f80},
		{"negative infinity", "keeps its sign", 0xff800000, 0xfc00, 0xff80},
		{"NaN of low bits only", "must not become an infinity", 0x7f800001, 0x7e00, 0x7fc0},
		{"NaN of all bits", "must not become −0 by a carry", 0x7fffffff, 0x7fff, 0x7fff},
		{"negative NaN", "keeps its sign", 0xffc00000, 0xfe00, 0xffc0},
		{"65519.996", "the last that is no infinity", 0x477fefff, 0x7bff, 0x4780},
		{"65520", "the first that is", 0x477ff000, 0x7c00, 0x4780},
		{"2⁻²⁵", "half the smallest half ties to zero", 0x33000000, 0, 0x3300},
		{"above 2⁻²⁵", "and is rounded up past it", 0x33000001, 1, 0x3300},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := math.Float32frombits(tt.bits)
			if h, b := ToF16(x), ToBF16(x); h != tt.f16 || b != tt.bf16 {
				t.Errorf("%s: %#04x and %#04x, want %#04x and %#04x", tt.reason, h, b, tt.f16, tt.bf16)
			}
		})
	}
}

// halfSpec is the definition of binary16.
func halfSpec(bits int) float32 {
	sign, exponent, fraction := 1-2*(bits>>15), bits>>10&31, bits&1023
	want := math.Ldexp(float64(1024+fraction), exponent-25)
	switch {
	case exponent == 31 && fraction != 0:
		want = math.NaN()
	case exponent == 31:
		want = math.Inf(1)
	case exponent == 0:
		want = math.Ldexp(float64(fraction), -24)
	}
	return float32(math.Copysign(want, float64(sign)))
}

// same reports equal bits, or two NaNs.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}
