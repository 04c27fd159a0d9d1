package product

import (
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Chosen returns the kernels of every format that multiply by one token, four, 16 and many on an H200, and by many
// on a GPU without wgmma: without an epilogue, and as feed-forward networks have it. Two kernels per format are of
// experts, with one token and 64 per expert.
func Chosen() (streams []Stream, tiles []Tile) {
	const sms, shared, rows, k = 132, 227 << 10, 28672, 4096
	hopper, ampere := ptx.Target{Version: 88, SM: 90, Arch: true}, ptx.Target{Version: 80, SM: 80}
	for _, f := range Formats() {
		gated := Epilogue{Norm: true, Gated: true, Activation: elementwise.SiLU}
		for _, e := range []Epilogue{{}, gated} {
			for _, tokens := range []int{1, 4} {
				if s, ok := StreamFor(f, e, tokens, k, hopper, shared); ok {
					streams = append(streams, s)
				}
			}
			for _, tokens := range []int{16, 1 << 10} {
				tiles = append(tiles, TileFor(f, e, tokens, rows, hopper, sms, shared))
			}
		}
		tiles = append(tiles, TileFor(f, Epilogue{}, 1<<10, rows, ampere, sms, shared))
		if s, ok := StreamFor(f, gated, 1, k, hopper, shared); ok {
			s.Experts = true
			streams = append(streams, s)
		}
		t := TileFor(f, gated, 64, rows, hopper, sms, shared)
		t.Experts = true
		tiles = append(tiles, t)
	}
	return streams, tiles
}

// Specs returns the kernels of Chosen, those that round activations for them, and Embed of every format.
func Specs() []kernel.Spec {
	var list []kernel.Spec
	seen := map[string]bool{}
	add := func(s kernel.Spec) {
		if !seen[s.Name()] {
			seen[s.Name()] = true
			list = append(list, s)
		}
	}
	streams, tiles := Chosen()
	for _, s := range streams {
		add(s.Kernel())
	}
	for _, t := range tiles {
		add(t.Round())
		add(t.Kernel())
	}
	for _, f := range Formats() {
		add(Embed(f))
	}
	return list
}
