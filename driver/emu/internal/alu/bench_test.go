package alu

import (
	"math"
	"math/rand/v2"
	"testing"
)

var (
	sink32  float32
	sinkMMA [32][4]float32
	sinkS8  [32][4]int32
)

func BenchmarkFMA32(b *testing.B) {
	var in [3 * 1024]float32
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range in {
		in[i] = float32(rng.NormFloat64())
	}
	for i := 0; b.Loop(); i++ {
		k := i & 1023
		sink32 = FMA32(in[k], in[1024+k], in[2048+k])
	}
}

func BenchmarkMMA16816(b *testing.B) {
	for _, m := range []struct {
		name string
		Accumulate
	}{{"Hopper", Hopper}, {"Ampere", Ampere}, {"Exact", Exact}} {
		b.Run(m.name, func(b *testing.B) {
			w := normalWarp(rand.New(rand.NewPCG(1, 2)), false)
			for b.Loop() {
				m.MMA16816(&sinkMMA, &w.a, &w.b, &w.c, false)
			}
		})
	}
}

func BenchmarkMMA16832S8(b *testing.B) {
	w := normalWarp(rand.New(rand.NewPCG(1, 2)), false)
	for b.Loop() {
		MMA16832S8(&sinkS8, &w.a, &w.b, &sinkS8, false)
	}
}

func BenchmarkApprox(b *testing.B) {
	for _, p := range []Approx{{}, {Perturb: true}} {
		for _, op := range approxOps {
			name := op.name
			if p.Perturb {
				name += ", perturbed"
			}
			b.Run(name, func(b *testing.B) {
				x := float32(1)
				for b.Loop() {
					sink32 = op.f(p, x)
					x = math.Float32frombits(math.Float32bits(x)&0x3FFFFFFF + 12345)
				}
			})
		}
	}
}

func BenchmarkWGMMA16(b *testing.B) {
	w := normalWarp(rand.New(rand.NewPCG(1, 2)), false)
	rows := WGMMARows(&w.a)
	columns := make([][32]byte, 256)
	for i := range columns {
		columns[i] = rows[i%16]
	}
	d := make([][32]uint32, len(columns)/2)
	for b.Loop() {
		Hopper.WGMMA16(d, &rows, columns, false)
	}
}
