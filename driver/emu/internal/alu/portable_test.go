package alu

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"
)

// The results must have the same bits on every machine. A fingerprint differs if the compiler fuses
// operations, as it may on arm64 or with GOAMD64=v3, or if a library function has another
// implementation.
func TestSameBitsEverywhere(t *testing.T) {
	for _, c := range []struct {
		name string
		want uint64
		draw func(rng *rand.Rand) uint32
	}{
		{"fma", 0xb189042187a0ebf2, func(rng *rand.Rand) uint32 {
			return math.Float32bits(FMA32(anyFloat32(rng, 100, 150), anyFloat32(rng, 100, 150), anyFloat32(rng, 100, 150)))
		}},
		{"fma f16", 0xbc65fc640a450daf, func(rng *rand.Rand) uint32 { return F16x2(FMAF16, rng.Uint32(), rng.Uint32(), rng.Uint32()) }},
		{"fma bf16", 0xa241f387bdbaac1c, func(rng *rand.Rand) uint32 { return F16x2(FMABF16, rng.Uint32(), rng.Uint32(), rng.Uint32()) }},
		{"approximate", 0x2e47a30602a8c334, func(rng *rand.Rand) uint32 { return mixApprox(Approx{}, rng) }},
		{"perturbed", 0x51e2cea9ebf08a6b, func(rng *rand.Rand) uint32 { return mixApprox(Approx{1, true}, rng) }},
		{"mma Hopper", 0x9d66b20692aae69, func(rng *rand.Rand) uint32 { return mixMMA(Hopper, rng) }},
		{"mma Ampere", 0x4b5145290a4d6221, func(rng *rand.Rand) uint32 { return mixMMA(Ampere, rng) }},
		{"mma exact", 0x4541f5e9ff3451e, func(rng *rand.Rand) uint32 { return mixMMA(Exact, rng) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(41, 42))
			h := fnv.New64a()
			for range 2000 {
				h.Write(binary.LittleEndian.AppendUint32(nil, c.draw(rng)))
			}
			if got := h.Sum64(); got != c.want {
				t.Errorf("fingerprint %#x, want %#x", got, c.want)
			}
		})
	}
}

// mixApprox combines a result of every approximate operation into a word.
func mixApprox(p Approx, rng *rand.Rand) uint32 {
	var mix uint32
	for _, f := range []func(Approx, float32) float32{Approx.Ex2, Approx.Lg2, Approx.Rcp, Approx.Rsqrt, Approx.Tanh, Approx.Sqrt} {
		mix = mix*31 + math.Float32bits(f(p, abs(anyFloat32(rng, 110, 132))))
	}
	return mix
}

// mixMMA combines the results of one mma into a word.
func mixMMA(m Accumulate, rng *rand.Rand) uint32 {
	d := wildWarp(rng, rng.Uint32()&1 != 0).multiply(m)
	var mix uint32
	for _, row := range d {
		for _, v := range row {
			mix = mix*31 + math.Float32bits(v)
		}
	}
	return mix
}
