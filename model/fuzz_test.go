package model

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

// headerOf returns a file up to its tensor data, and the length of the tensor data.
func headerOf(spec *tiny.Model) (header []byte, rest int) {
	f := spec.File()
	data := spec.Bytes()
	start := int64(len(data))
	for _, t := range f.Tensors() {
		start = min(start, t.Offset)
	}
	return data[:start], len(data) - int(start)
}

// bases returns the models whose headers are mutated: one of each architecture, and one
// with every optional key and tensor.
func bases() []*tiny.Model {
	var all []*tiny.Model
	for _, arch := range Architectures() {
		all = append(all, tiny.New(arch, 1))
	}
	rich := tiny.New("phi3", 1)
	rich.AddVocab(true)
	rich.Set(".rope.scaling.type", "longrope")
	rich.Set(".rope.scaling.original_context_length", uint32(16))
	rich.Set(".attention.head_count", []uint32{4, 4})
	rich.Add("rope_factors_short.weight", tiny.HeadDim/2)
	rich.Add("rope_factors_long.weight", tiny.HeadDim/2)
	rich.Reformat("output_norm.weight", quant.BF16)
	return append(all, rich)
}

// loadBounded loads data that may be a model. It fails the test if Load panics, is slow,
// or takes much more memory than the file has bytes.
func loadBounded(t *testing.T, data []byte) *Model {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	var m *Model
	f, err := gguf.Parse(data)
	if err == nil {
		m, err = Load(f)
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	if limit := uint64(64<<20 + 4*len(data)); after.TotalAlloc-before.TotalAlloc > limit {
		t.Errorf("%d bytes of file took %d bytes of memory", len(data), after.TotalAlloc-before.TotalAlloc)
	}
	if took > 2*time.Second {
		t.Errorf("%d bytes of file took %v", len(data), took)
	}
	if (m == nil) != (err != nil) {
		t.Errorf("model %v, error %v", m, err)
	}
	return m
}

// TestHeaderBitFlips flips each bit of a header: the result is a model or an error.
func TestHeaderBitFlips(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	for _, arch := range []string{"llama", "qwen3moe"} {
		spec := tiny.New(arch, 1)
		header, rest := headerOf(spec)
		data := append(slices.Clone(header), make([]byte, rest)...)
		if loadBounded(t, data) == nil {
			t.Fatal("the file without flips is refused")
		}
		loaded := 0
		for bit := 0; bit < 8*len(header); bit += step {
			data[bit/8] ^= 1 << (bit % 8)
			if loadBounded(t, data) != nil {
				loaded++
			}
			data[bit/8] ^= 1 << (bit % 8)
		}
		// Flips in names, and in numbers that nothing else confirms, still load.
		if total := 8 * len(header) / step; loaded == 0 || loaded > total/4 {
			t.Errorf("%s: %d of %d flips are loaded", arch, loaded, total)
		}
	}
}

// FuzzLoad loads random headers, followed by zeros as tensor data.
func FuzzLoad(f *testing.F) {
	room := 0
	for _, spec := range bases() {
		header, rest := headerOf(spec)
		room = max(room, rest)
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		m := loadBounded(t, append(slices.Clip(header), make([]byte, room)...))
		if m == nil {
			return
		}
		c := m.Config
		for _, n := range []int{c.Layers, c.Hidden, c.Heads, c.KVHeads, c.HeadDim, c.ValueDim, c.Vocab, c.Context} {
			if n < 1 {
				t.Fatalf("loaded with a size of %d: %+v", n, c)
			}
		}
		if c.Heads%c.KVHeads != 0 || c.Rope.Dim%2 != 0 || c.Rope.Dim > c.HeadDim || !(c.NormEps > 0) || len(m.Weights.Layers) != c.Layers {
			t.Fatalf("loaded as %+v", c)
		}
	})
}
