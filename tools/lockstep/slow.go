package main

import (
	"runtime"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// slowWeights is the size of weights, in bytes, above which the CPU's speed is worth a note.
const slowWeights = 32 << 20

// noteSlow warns of a model that takes the CPU long.
func (e *env) noteSlow(m *model.Model) {
	weights, elements := 0, 0
	for _, t := range m.File.Tensors() {
		weights += len(t.Data)
		elements += t.Elements()
	}
	if weights <= slowWeights {
		return
	}
	took := stepSeconds(stepWeights(m), func(f quant.Format) float64 { return dotRate(f, 20*time.Millisecond) })
	e.note("slow: the CPU computes in float64: about %.2g tokens/s with a short context (%d million parameters, %s)", 1/took, (elements+500_000)/1_000_000, size(int64(weights)))
}

// stepWeights counts, per format, the weights in the products of a step of one sequence.
func stepWeights(m *model.Model) map[quant.Format]int {
	count := map[quant.Format]int{}
	add := func(matrices ...model.Matrix) {
		for _, w := range matrices {
			if w.Rows > 0 {
				count[w.Format] += w.Rows * w.Cols
			}
		}
	}
	for i := range m.Weights.Layers {
		l := &m.Weights.Layers[i]
		for _, y := range l.Linears() {
			add(y.W)
		}
		for _, x := range l.Experts[:min(len(l.Experts), m.Config.ExpertsUsed)] {
			add(x.Gate.W, x.Up.W, x.Down.W)
		}
	}
	add(m.Weights.Output.W, m.Weights.InputProjection)
	add(m.Weights.StreamIn...)
	add(m.Weights.StreamOut...)
	return count
}

// stepSeconds estimates the time of a step in seconds: that of its products. rate gives the
// weights per second of a format.
func stepSeconds(weights map[quant.Format]int, rate func(quant.Format) float64) float64 {
	seconds := 0.0
	for f, n := range weights {
		seconds += float64(n) / rate(f)
	}
	return seconds
}

// dotRate measures for the given time how many weights of a format per second all cores
// decode and multiply. The weights are zeros, and in a cache.
func dotRate(f quant.Format, long time.Duration) float64 {
	const segment = 1024 // whole blocks of each format
	src := make([]byte, segment/f.BlockLen()*f.BlockBytes())
	x := make([]float64, segment)
	rates := make([]float64, runtime.GOMAXPROCS(0))
	var cores sync.WaitGroup
	for core := range rates {
		cores.Go(func() {
			scratch := make([]float64, segment)
			begin := time.Now()
			for n := segment; ; n += segment {
				quant.Dot(f, src, x, scratch)
				if took := time.Since(begin); took >= long {
					rates[core] = float64(n) / took.Seconds()
					return
				}
			}
		})
	}
	cores.Wait()
	total := 0.0
	for _, r := range rates {
		total += r
	}
	return total
}
