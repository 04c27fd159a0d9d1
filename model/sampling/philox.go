package sampling

import "math/bits"

// Philox4x32-10: the multipliers of a round, and the increments of the key between rounds.
const (
	philoxM0, philoxM1 = 0xD2511F53, 0xCD9E8D57
	philoxW0, philoxW1 = 0x9E3779B9, 0xBB67AE85
	philoxRounds       = 10
)

// philox returns the four words of Philox4x32-10.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range philoxRounds {
		hi0, lo0 := mul32(philoxM0, counter[0])
		hi1, lo1 := mul32(philoxM1, counter[2])
		counter = [4]uint32{hi1 ^ counter[1] ^ key[0], lo1, hi0 ^ counter[3] ^ key[1], lo0}
		key[0] += philoxW0
		key[1] += philoxW1
	}
	return counter
}

func mul32(x, y uint32) (hi, lo uint32) {
	p := uint64(x) * uint64(y)
	return uint32(p >> 32), uint32(p)
}

// random returns the random number of a position.
func (p *Params) random(position int) uint64 {
	words := philox([4]uint32{uint32(position), 0, p.Choice, 0}, [2]uint32{uint32(p.Seed), uint32(p.Seed >> 32)})
	return uint64(words[0]) | uint64(words[1])<<32
}

// high64 returns floor(x * y / 2^64).
func high64(x, y uint64) uint64 {
	hi, _ := bits.Mul64(x, y)
	return hi
}

// ceil64 returns ceil(x * y / 2^64).
func ceil64(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	if lo != 0 {
		hi++
	}
	return hi
}
