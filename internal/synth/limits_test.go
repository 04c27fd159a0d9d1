package synth

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

// Gigabytes of layers are refused before they are made, exactly where package
// model would refuse the file.
func TestMaxLayers(t *testing.T) {
	r, err := requant.ParseRecipe("q8_0")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{MaxLayers, MaxLayers + 1} {
		spec := tiny.New("llama", 1)
		spec.Set(".block_count", uint32(n))
		_, err := model.Load(spec.File()) // it has fewer layers, an error in any case
		refused := strings.Contains(fmt.Sprint(err), "block_count")
		if want := n > MaxLayers; refused != want {
			t.Errorf("%d layers: package model's error is %v", n, err)
		}
		if _, err := NewPlan(small(presets[0]), r, n); (err != nil) != refused {
			t.Errorf("%d layers: error %v, and package model refuses: %v", n, err, refused)
		}
	}
}

// Bits that must not depend on the processor: this sum is the same everywhere.
func TestRopeFactorBits(t *testing.T) {
	h := fnv.New64a()
	for _, f := range (llama3Scale{8, 1, 4, 8192}).factors(128, 500000) {
		fmt.Fprintf(h, "%08x", math.Float32bits(f))
	}
	if got, want := h.Sum64(), uint64(0x8717e022b7ae0add); got != want {
		t.Errorf("sum %#x, want %#x", got, want)
	}
}
