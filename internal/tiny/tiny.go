// Package tiny generates GGUF models of each architecture with a few thousand random
// weights. Tests can modify them before writing.
package tiny

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

// The sizes of all models.
const (
	Layers  = 2
	Hidden  = 32
	Heads   = 4
	HeadDim = 8
	FFN     = 48 // of dense layers and of each expert
	Context = 96
	Experts = 4
	Used    = 2

	SharedFFN  = 2 * FFN
	LayerInput = 8
	Streams    = 4
	LaurelRank = 64

	// Of Gated DeltaNets.
	KeyHeads   = 2
	ValueHeads = 4
	StateDim   = 16
	Taps       = 3
)

// Model is a model file under construction.
type Model struct {
	Arch    string
	seed    uint64
	keys    []string
	values  map[string]any
	tensors []tensor
}

type tensor struct {
	name   string
	usual  string // the name before Rename, which its weights depend on
	format quant.Format
	dims   []int
}

// Architectures returns the names that New accepts, sorted.
func Architectures() []string { return slices.Sorted(maps.Keys(shapes)) }

// New returns a model without a vocabulary. Equal seeds give equal weights on every
// machine. New panics on an unknown architecture.
func New(arch string, seed uint64) *Model {
	s, ok := shapes[arch]
	if !ok {
		panic(fmt.Sprintf("tiny: no architecture %q", arch))
	}
	m := &Model{Arch: arch, seed: seed, values: map[string]any{}}
	m.Set("general.architecture", arch)
	m.Set("general.name", "tiny")
	m.Set("tokenizer.ggml.model", "no_vocab")
	s.setKeys(m)
	s.addTensors(m)
	return m
}

// Set sets a key to a value, as gguf.Writer.Set does. A key that begins with a dot is
// prefixed with the architecture.
func (m *Model) Set(key string, value any) {
	key = m.full(key)
	if _, ok := m.values[key]; !ok {
		m.keys = append(m.keys, key)
	}
	m.values[key] = value
}

// Has reports whether a key is set.
func (m *Model) Has(key string) bool {
	_, ok := m.values[m.full(key)]
	return ok
}

// Delete removes a key.
func (m *Model) Delete(key string) {
	key = m.full(key)
	delete(m.values, key)
	m.keys = slices.DeleteFunc(m.keys, func(k string) bool { return k == key })
}

func (m *Model) full(key string) string {
	if strings.HasPrefix(key, ".") {
		return m.Arch + key
	}
	return key
}

// Add appends a tensor of random F32 weights. dims is in the order of gguf.Tensor.Dims.
func (m *Model) Add(name string, dims ...int) {
	m.tensors = append(m.tensors, tensor{name: name, usual: name, format: quant.F32, dims: dims})
}

// Drop removes a tensor. It panics if the model lacks the tensor.
func (m *Model) Drop(name string) {
	i := m.find(name)
	m.tensors = slices.Delete(m.tensors, i, i+1)
}

// Rename changes the names of keys, with the architecture, and of tensors. What a replacer does not change, stays.
func (m *Model) Rename(keys, tensors *strings.Replacer) {
	values := map[string]any{}
	for i, key := range m.keys {
		m.keys[i] = keys.Replace(key)
		values[m.keys[i]] = m.values[key]
	}
	m.values = values
	for i, t := range m.tensors {
		m.tensors[i].name = tensors.Replace(t.name)
	}
}

// OneLayer removes all layers but the first.
func (m *Model) OneLayer() {
	m.Set(".block_count", uint32(1))
	m.tensors = slices.DeleteFunc(m.tensors, func(t tensor) bool {
		return strings.HasPrefix(t.name, "blk.") && !strings.HasPrefix(t.name, "blk.0.")
	})
}

// Reshape changes the dimensions of a tensor.
func (m *Model) Reshape(name string, dims ...int) { m.tensors[m.find(name)].dims = dims }

// Reformat changes the format of a tensor. Unless it is F32, all its bytes become 0.
func (m *Model) Reformat(name string, f quant.Format) { m.tensors[m.find(name)].format = f }

func (m *Model) find(name string) int {
	i := slices.IndexFunc(m.tensors, func(t tensor) bool { return t.name == name })
	if i < 0 {
		panic(fmt.Sprintf("tiny: no tensor %q in %s", name, m.Arch))
	}
	return i
}

// Bytes returns the file. It panics if the model cannot be written as GGUF.
func (m *Model) Bytes() []byte {
	w := gguf.NewWriter()
	for _, k := range m.keys {
		must(w.Set(k, m.values[k]))
	}
	for i, t := range m.tensors {
		must(w.Add(gguf.TensorInfo{Name: t.name, Format: t.format, Dims: t.dims, Write: func(dst io.Writer) error {
			_, err := dst.Write(t.data(rand.NewPCG(m.seed, uint64(i))))
			return err
		}}))
	}
	var buf bytes.Buffer
	_, err := w.WriteTo(&buf)
	must(err)
	return buf.Bytes()
}

// File returns the parsed file.
func (m *Model) File() *gguf.File {
	f, err := gguf.Parse(m.Bytes())
	must(err)
	return f
}

func must(err error) {
	if err != nil {
		panic("tiny: " + err.Error())
	}
}

// data returns the bytes of a tensor. Random weights are scaled to keep activations near 1.
func (t tensor) data(random *rand.PCG) []byte {
	n := 1
	for _, d := range t.dims {
		n *= d
	}
	if t.format != quant.F32 {
		return make([]byte, n/t.format.BlockLen()*t.format.BlockBytes())
	}
	middle, spread := 0.0, math.Sqrt(3/float64(t.dims[0]))
	switch {
	case strings.Contains(t.usual, "norm.weight"), strings.Contains(t.usual, "norm_"), strings.Contains(t.usual, "scale"):
		middle, spread = 1, 0.2
	case strings.HasPrefix(t.usual, "rope_f"):
		middle, spread = 2, 1
	case strings.HasSuffix(t.usual, "ssm_a"):
		middle, spread = -0.5, 0.4
	case strings.HasSuffix(t.usual, ".bias"):
		spread = 0.2
	case strings.HasSuffix(t.usual, "embd.weight"):
		spread = 1
	}
	b := make([]byte, 0, 4*n)
	for range n {
		u := float64(random.Uint64()>>11)/(1<<52) - 1 // in [-1, 1)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(middle+float64(spread*u))))
	}
	return b
}
