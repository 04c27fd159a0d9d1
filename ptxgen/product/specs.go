package product

import (
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// The GPUs and shapes for which kernels are chosen: an H200, and a GPU without wgmma that is otherwise the same.
const (
	chosenSMs    = 132
	chosenShared = 227 << 10
	chosenK      = 4096
)

var hopper, ampere = ptx.Target{Version: 88, SM: 90, Arch: true}, ptx.Target{Version: 80, SM: 80}

// Chosen returns the kernels of every format that multiply by one token, four, 16 and many on an H200: without an epilogue,
// and as feed-forward networks have it. Others multiply few rows by 64 and 384 tokens, and by many tokens on a GPU without wgmma.
// Two kernels per format are of experts, with one token and 64 per expert.
func Chosen() (streams []Stream, tiles []Tile) {
	const sms, shared, rows, fewRows, k = chosenSMs, chosenShared, 28672, 4096, chosenK
	addTile := func(f quant.Format, like Tile, tokens, rows int, target ptx.Target) {
		if t := tileFor(f, like, tokens, rows, target, sms, shared); !slices.Contains(tiles, t) {
			tiles = append(tiles, t)
		}
	}
	for _, f := range Formats() {
		gated := Epilogue{Norm: true, Gated: true, Activation: elementwise.SiLU}
		for _, e := range []Epilogue{{}, gated} {
			for _, tokens := range []int{1, 4} {
				if s, ok := StreamFor(f, e, tokens, k, hopper, shared); ok {
					streams = append(streams, s)
				}
			}
			for _, tokens := range []int{16, 1 << 10} {
				addTile(f, Tile{Epilogue: e}, tokens, rows, hopper)
			}
		}
		for _, tokens := range []int{64, 384} {
			addTile(f, Tile{}, tokens, fewRows, hopper)
		}
		addTile(f, Tile{}, 1<<10, rows, ampere)
		if s, ok := StreamFor(f, gated, 1, k, hopper, shared); ok {
			s.Experts = true
			streams = append(streams, s)
		}
		addTile(f, Tile{Experts: true, Epilogue: gated}, 64, rows, hopper)
	}
	return streams, tiles
}

// ChosenBeside returns the products of Beside by which files of Q4_K_M multiply Q, K and V in layers where V is Q6_K: by one
// token, four, 16 and many on an H200, and by many on a GPU without wgmma.
func ChosenBeside() (streams [][]Stream, tiles [][]Tile) {
	const rows = 4096 + 2*1024
	formats, e := []quant.Format{quant.Q4_K, quant.Q6_K}, Epilogue{Norm: true}
	for _, tokens := range []int{1, 4} {
		var list []Stream
		for _, f := range formats {
			s, _ := StreamFor(f, e, tokens, chosenK, hopper, chosenShared)
			list = append(list, s)
		}
		streams = append(streams, list)
	}
	for _, c := range []struct {
		tokens int
		target ptx.Target
	}{{16, hopper}, {1 << 11, hopper}, {1 << 10, ampere}} {
		list := TilesFor(formats, Tile{Epilogue: e}, c.tokens, rows, c.target, chosenSMs, chosenShared)
		tiles = append(tiles, list)
	}
	return streams, tiles
}

// Specs returns the kernels of Chosen and ChosenBeside, those that round activations for them, and Embed of every format.
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
	besideStreams, besideTiles := ChosenBeside()
	for _, s := range besideStreams {
		add(Beside(s...))
	}
	for _, t := range besideTiles {
		add(t[0].Round())
		add(Beside(t...))
	}
	for _, f := range Formats() {
		add(Embed(f))
	}
	return list
}
