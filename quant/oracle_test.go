package quant_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/npy"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

// oracleDir holds a model per format, and one matrix of each as llama.cpp decoded it.
const oracleDir = "../golden/quant"

// sample is a matrix as blocks and as floats.
type sample struct {
	format quant.Format
	blocks []byte
	values []float32
}

// oracles reads all samples.
func oracles(t *testing.T) map[string]sample {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(oracleDir, "*.attn_v.npy"))
	if err != nil || len(paths) < 14 {
		t.Fatalf("%d samples in %s, want 14 formats (%v)", len(paths), oracleDir, err)
	}
	all := map[string]sample{}
	for _, path := range paths {
		stem, _ := strings.CutSuffix(path, ".attn_v.npy")
		all[filepath.Base(stem)] = readSample(t, stem)
	}
	return all
}

func readSample(t *testing.T, stem string) sample {
	t.Helper()
	model, err := gguf.Open(stem + ".gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	tensor, ok := model.Tensor("blk.0.attn_v.weight")
	if !ok {
		t.Fatalf("%s has no such matrix", stem)
	}
	file, err := os.Open(stem + ".attn_v.npy")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	shape, values, err := npy.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(shape) != 2 || shape[0] != tensor.Dims[1] || shape[1] != tensor.Dims[0] {
		t.Fatalf("%s: rows and columns %v, want the reverse of %v", stem, shape, tensor.Dims)
	}
	return sample{tensor.Format, append([]byte(nil), tensor.Data...), values}
}

// withoutOracle lists the formats without data of another implementation in golden/quant.
var withoutOracle = []quant.Format{quant.F32, quant.MXFP4}

func TestDecodeMatchesOracle(t *testing.T) {
	seen := map[quant.Format]bool{}
	for name, s := range oracles(t) {
		t.Run(name, func(t *testing.T) {
			seen[s.format] = true
			checkBits(t, s)
		})
	}
	for _, f := range quant.Formats() {
		if seen[f] == slices.Contains(withoutOracle, f) {
			t.Errorf("%v: sample %v", f, seen[f])
		}
	}
}

// checkBits decodes a sample to float32 and float64 and compares the bits.
func checkBits(t *testing.T, s sample) {
	t.Helper()
	narrow, wide := make([]float32, len(s.values)), make([]float64, len(s.values))
	quant.Decode(s.format, narrow, s.blocks)
	quant.Decode(s.format, wide, s.blocks)
	for i, want := range s.values {
		if math.Float32bits(narrow[i]) != math.Float32bits(want) {
			t.Fatalf("%v: weight %d is %v, want %v", s.format, i, narrow[i], want)
		}
		if math.Float64bits(wide[i]) != math.Float64bits(float64(want)) {
			t.Fatalf("%v: weight %d is %v as float64, want %v", s.format, i, wide[i], want)
		}
	}
}

// For the formats that this package can encode, its error must not exceed llama.cpp's for
// the same weights, which the float16 file holds nearly exactly.
func TestEncodeComparesWithOracle(t *testing.T) {
	all := oracles(t)
	source, ok := all["f16"]
	if !ok {
		t.Fatal("no sample in float16")
	}
	for name, s := range all {
		if s.format.BlockLen() == 1 || !s.format.CanEncode() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			blocks, values := make([]byte, len(s.blocks)), make([]float32, len(s.values))
			if err := s.format.Encode(blocks, source.values); err != nil {
				t.Fatal(err)
			}
			quant.Decode(s.format, values, blocks)
			ours, theirs := rms(source.values, values), rms(source.values, s.values)
			t.Logf("error %.4g, the other engine's %.4g", ours, theirs)
			if !(ours <= theirs) {
				t.Errorf("error %.4g, the other engine's %.4g", ours, theirs)
			}
		})
	}
}

// rms returns ‖x − y‖/‖x‖.
func rms(x, y []float32) float64 {
	var diff, norm float64
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		diff += d * d
		norm += float64(x[i]) * float64(x[i])
	}
	return math.Sqrt(diff / norm)
}

func floatBytes(x []float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}
