package synth

import (
	"encoding/binary"
	"hash/fnv"
)

// random is the SplitMix64 generator of Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators" (2014): fast, and seekable, so that each piece
// of a tensor can be made on any core.
type random uint64

const gamma = 0x9e3779b97f4a7c15

// stream begins a generator for one piece of one tensor.
func stream(seed uint64, tensor string, piece int) random {
	h := fnv.New64a()
	h.Write([]byte(tensor))
	base := random(seed)
	base = random(base.next() ^ h.Sum64())
	base = random(base.next() + uint64(piece)*0xd1342543de82ef95) // an odd number: pieces start far apart
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

// normal is nearly normal with mean 0 and variance 1: the sum of four uniform
// numbers of 16 bits. Whole numbers make it the same on every machine.
func (r *random) normal() float64 {
	w := r.next()
	sum := int64(w&0xffff) + int64(w>>16&0xffff) + int64(w>>32&0xffff) + int64(w>>48)
	const mean = 4 * 0xffff / 2
	const std = 37837.22 // √(4·(2³²−1)/12)
	return float64(sum-mean) / std
}
