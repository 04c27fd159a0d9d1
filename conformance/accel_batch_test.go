package conformance

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// neighbor is a sequence that steps beside others, and what it has given.
type neighbor struct {
	s         model.Session
	want, got []float32 // alone, among others
}

// newNeighbors are sequences of prompts of different lengths, each of which has given
// what it gives alone for the first tokens and then gone back to its prompt.
func newNeighbors(t testing.TB, e *accel.Engine, tokens []int, steps []int) []*neighbor {
	t.Helper()
	var list []*neighbor
	for i, n := range steps {
		v := &neighbor{s: openSession(t, e)}
		t.Cleanup(func() { v.s.Close() })
		prompt := testTokens(e.Model().Config.Vocab, 3+i%5*7+i)
		v.want = promptThenSteps(t, v.s, prompt, tokens[:n])
		if err := v.s.Truncate(len(prompt)); err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

func checkSameAsAlone(t testing.TB, list []*neighbor) {
	t.Helper()
	for i, v := range list {
		if hashLogits(v.got) != hashLogits(v.want) {
			t.Errorf("sequence %d parts from what it gives alone in logit %d", i, firstDifference(v.want, v.got))
		}
	}
}

// TestAccelNeighbors lets sequences step together, of which 4, 1, 3 and again 4 go on
// at a time, and wants the bits that each has alone.
func TestAccelNeighbors(t *testing.T) {
	parallelUnlessGPU(t)
	arch, each := "qwen3moe", 5
	if testing.Short() {
		arch, each = "llama", 1
	}
	m := tinyModel(t, arch)
	e := accelEngine(t, m, smallDevice, accel.Options{MaxSequences: 4})
	tokens := testTokens(m.Config.Vocab, 4*each)
	list := newNeighbors(t, e, tokens, []int{4 * each, 3 * each, 3 * each, 2 * each})
	for _, active := range []int{4, 1, 3, 4} {
		var wg sync.WaitGroup
		for _, v := range list[:active] {
			wg.Go(func() {
				done := len(v.got) / m.Config.Vocab
				v.got = append(v.got, stepLogits(t, v.s, tokens[done:done+each])...)
			})
		}
		wg.Wait()
	}
	checkSameAsAlone(t, list)
	if s := e.Stats(); s.Steps == s.StepTokens && !testing.Short() {
		t.Errorf("sequences that wait together did not step together: %+v", s)
	}
}

// TestAccelManyRows lets 20 sequences wait while the device is busy, so that they step
// together: more rows than a product takes columns, and enough for products of warpgroups.
// Each must get what it gets alone.
func TestAccelLargeBatch(t *testing.T) {
	parallelUnlessGPU(t)
	for _, c := range []struct {
		name, kernel string
		model        func(t *testing.T) *model.Model
	}{
		{"experts", "gemv_", func(t *testing.T) *model.Model { return tinyModel(t, "qwen3moe") }},
		{"warpgroups", "gemv_wide_gated_q4_k", func(t *testing.T) *model.Model {
			skipIfShort(t)
			return goldenModel(t, "quant/q4_k.gguf")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { checkLargeBatch(t, c.model(t), c.kernel) })
	}
}

// checkManyRows wants some kernel whose name begins as given in the step of all.
func checkLargeBatch(t *testing.T, m *model.Model, kernel string) {
	const sessions = 20
	busy, begun := make(chan struct{}), make(chan struct{}, 1)
	var hold, seen atomic.Bool
	e := accelEngine(t, m, smallDevice, accel.Options{MaxSequences: 64, KVPages: 64, Timer: func(took accel.Timing) {
		if hold.CompareAndSwap(true, false) {
			begun <- struct{}{}
			<-busy
		}
		for _, s := range took.Launches {
			if took.Slots >= sessions && strings.HasPrefix(s.Kernel, kernel) {
				seen.Store(true)
			}
		}
	}})
	counts := slices.Repeat([]int{1}, sessions+1)
	tokens := []int{29}
	list := newNeighbors(t, e, tokens, counts)
	var wg sync.WaitGroup
	step := func(v *neighbor) { wg.Go(func() { v.got = stepLogits(t, v.s, tokens) }) }
	hold.Store(true)
	step(list[sessions])
	<-begun
	for _, v := range list[:sessions] {
		step(v)
	}
	for e.Waiting() < sessions {
		time.Sleep(time.Millisecond)
	}
	close(busy)
	wg.Wait()
	checkSameAsAlone(t, list)
	if s := e.Stats(); s.LargestBatch != sessions || !seen.Load() {
		t.Errorf("the largest step has %d rows; with a kernel %s: %v", s.LargestBatch, kernel, seen.Load())
	}
}
