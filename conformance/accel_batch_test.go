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

// neighbor is a sequence of a batch with its logits.
type neighbor struct {
	s         model.Session
	want, got []float32 // alone; in the batch
}

// newNeighbors opens sequences with prompts of different lengths. Each computes its logits
// alone and is then truncated to its prompt.
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
			t.Errorf("sequence %d differs from its result alone in logit %d", i, firstDifference(v.want, v.got))
		}
	}
}

// TestAccelNeighbors steps 4, 1, 3 and 4 sequences at a time and demands the bits that each
// computes alone.
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
		t.Errorf("waiting sequences did not share a step: %+v", s)
	}
}

// TestAccelLargeBatch queues 20 sequences while the device is busy, so that they run in one
// step: more tokens than a GEMV kernel takes, and enough for wgmma kernels. Each must
// compute the same bits as alone.
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

// checkLargeBatch demands that the step of all sequences launches a kernel with this name
// prefix.
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
			if took.Tokens >= sessions && strings.HasPrefix(s.Kernel, kernel) {
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
		t.Errorf("the largest step has %d sequences; launched %s: %v", s.LargestBatch, kernel, seen.Load())
	}
}
