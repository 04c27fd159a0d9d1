package generate

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

var (
	long = flag.Bool("long", false, "run random loads for a minute")
	seed = flag.Uint64("seed", 0, "run one random load, with this seed")
)

var (
	nan    = float32(math.NaN())
	negInf = float32(math.Inf(-1))
)

var errPlanted = errors.New("planted")

// job is a random request.
type job struct {
	prompt []int
	p      Params
	embed  bool
	leave  int // break after so many tokens; 0: never
	cancel int // cancel at the nth row after the start; 0: never
}

func randomJob(random *rand.Rand, stems [][]int) job {
	var j job
	if random.IntN(3) > 0 {
		stem := stems[random.IntN(len(stems))]
		j.prompt = slices.Clone(stem[:1+random.IntN(len(stem))])
	}
	for range 1 + random.IntN(4) {
		j.prompt = append(j.prompt, random.IntN(tiny.Vocab-2))
	}
	one := func(n int) bool { return random.IntN(n) == 0 }
	j.p = Params{MaxTokens: random.IntN(24), IgnoreEOS: one(2)}
	if one(10) {
		j.p.MaxTokens = -1
	}
	if one(2) {
		j.p.Sampling = sampling.Params{Temperature: 2 * random.Float64(), Seed: random.Uint64(), Choice: uint32(random.IntN(3))}
	}
	if one(4) {
		j.p.Sampling.PresencePenalty = 3
	}
	if one(4) {
		j.p.Stop = []string{string(rune('a' + random.IntN(26))), "the"}
	}
	if one(4) {
		j.p.StopTokens = []int{random.IntN(tiny.Vocab), random.IntN(tiny.Vocab), random.IntN(tiny.Vocab)}
	}
	if j.p.MaxTokens > 0 && one(4) {
		j.p.MinTokens = random.IntN(j.p.MaxTokens + 1)
	}
	if one(5) {
		key := random.Uint64()
		j.p.Mask = func() func([]int) ([]uint32, error) {
			calls := 0
			return func(generated []int) ([]uint32, error) {
				if calls++; calls != len(generated)+1 {
					return nil, fmt.Errorf("call %d has %d tokens", calls, len(generated))
				}
				bits := rand.New(rand.NewPCG(key, uint64(len(generated))))
				mask := make([]uint32, sampling.MaskLen(tiny.Vocab))
				for i := range mask {
					mask[i] = bits.Uint32()
				}
				return mask, nil
			}
		}
	}
	if one(5) {
		key := random.Uint64()
		j.p.Logits = func(generated []int, logits []float32) {
			noise := rand.New(rand.NewPCG(key, uint64(len(generated))))
			for i := range logits {
				logits[i] += noise.Float32()
			}
		}
	}
	j.embed = one(10)
	if one(8) {
		j.leave = 1 + random.IntN(8)
	}
	if one(8) {
		j.cancel = 1 + random.IntN(60)
	}
	return j
}

// answer is what a job gives.
type answer struct {
	IDs       []int
	Texts     []string
	Finish    FinishReason
	Embedding []float32
	err       error
}

func (j job) run(ctx context.Context, g *Generator) (a answer) {
	if j.embed {
		a.Embedding, a.err = g.Embed(ctx, j.prompt)
		return a
	}
	var stats Stats
	j.p.Stats = &stats
	for t, err := range g.Tokens(ctx, j.prompt, j.p) {
		if a.err = err; err != nil {
			break
		}
		a.IDs, a.Texts = append(a.IDs, t.ID), append(a.Texts, t.Text)
		if len(a.IDs) == j.leave {
			break
		}
	}
	a.Finish = stats.Finish
	return a
}

// check compares an answer under load with that of the same request alone. An answer that
// was cut short is the beginning of the other.
func (j job) check(t *testing.T, load, alone answer) {
	t.Helper()
	cut := load.err != nil || load.Finish == FinishBreak
	if load.err != nil && !errors.Is(load.err, errPlanted) && !errors.Is(load.err, context.Canceled) {
		t.Errorf("error %v", load.err)
	}
	if n := len(load.IDs); cut {
		if n > 0 && load.IDs[n-1] == NoToken { // text that was held back
			n--
		}
		if n > len(alone.IDs) {
			t.Fatalf("%d tokens, alone %d", n, len(alone.IDs))
		}
		load = answer{IDs: load.IDs[:n], Texts: load.Texts[:n]}
		alone = answer{IDs: alone.IDs[:n], Texts: alone.Texts[:n]}
	}
	if diff := cmp.Diff(alone, load, cmpopts.IgnoreFields(answer{}, "err"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-alone +load):\n%s", diff)
	}
}

// A random load of generations and embeddings that are canceled, left and preempted, on an
// engine that fails now and then, gives the answers of the same requests alone and leaves
// nothing behind.
func TestRandomLoad(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	if *seed != 0 {
		seeds = []uint64{*seed}
	}
	var total Load
	dropped := 0
	for begin := time.Now(); len(seeds) > 0 && !t.Failed(); seeds = seeds[1:] {
		l, r := randomLoad(t, seeds[0], 60)
		dropped += r
		total.Preemptions += l.Preemptions
		total.FailedSteps += l.FailedSteps
		total.Prefix.Hits += l.Prefix.Hits
		total.Prefix.Evictions += l.Prefix.Evictions
		if *long && *seed == 0 && time.Since(begin) < time.Minute {
			seeds = append(seeds, uint64(time.Now().UnixNano()))
		}
	}
	t.Logf("%+v, %d rows computed again", total, dropped)
	if *seed == 0 && (total.Preemptions == 0 || total.FailedSteps == 0 || total.Prefix.Hits == 0 || total.Prefix.Evictions == 0 || dropped == 0) {
		t.Error("the loads did not reach everything")
	}
}

func randomLoad(t *testing.T, seed uint64, requests int) (l Load, dropped int) {
	goroutines := runtime.NumGoroutine()
	random := rand.New(rand.NewPCG(seed, 1))
	e := newFake(t)
	e.limits = model.Limits{Sequences: 1 + random.IntN(8), PromptTokens: 1 + random.IntN(30), PageTokens: 1 + random.IntN(6), Async: random.IntN(4) > 0}
	e.limits.Pages = (40 + random.IntN(80)) / e.limits.PageTokens
	o := Options{PrefixTokens: random.IntN(200) - 20}
	calls := []int{0, 4000, 400}[random.IntN(3)] // of the engine per failure; 0: none

	var stems [][]int
	for range 4 {
		stem := make([]int, 1+random.IntN(20))
		for i := range stem {
			stem[i] = random.IntN(tiny.Vocab - 2)
		}
		stems = append(stems, stem)
	}
	jobs := make([]job, requests)
	for i := range jobs {
		jobs[i] = randomJob(random, stems)
	}

	// What happens is decided at the rows of steps, so that a load can be repeated.
	var mu sync.Mutex
	var wg sync.WaitGroup
	g, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	answers := make([]answer, requests)
	next, row := 0, 0
	cancels := map[int]context.CancelFunc{}
	start := func() {
		if next == requests {
			return
		}
		i := next
		next++
		ctx, cancel := context.WithCancel(context.Background())
		if at := jobs[i].cancel; at > 0 {
			cancels[row+at] = cancel
		}
		wg.Go(func() {
			defer cancel()
			answers[i] = jobs[i].run(ctx, g)
		})
	}
	e.before = func(op string, _ []int) error {
		mu.Lock()
		defer mu.Unlock()
		if op == "row" {
			if row++; random.IntN(8) == 0 {
				start()
			}
			if cancel := cancels[row]; cancel != nil {
				cancel()
			}
		}
		if op != "close" && calls > 0 && random.IntN(calls) == 0 {
			return fmt.Errorf("%s: %w", op, errPlanted)
		}
		return nil
	}
	for {
		mu.Lock()
		for range 1 + random.IntN(3) {
			start()
		}
		over := next == requests
		mu.Unlock()
		wg.Wait()
		if over {
			break
		}
	}
	l = g.Load()
	e.idle(t, g)
	for begin := time.Now(); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			t.Errorf("seed %d: %d goroutines, %d before", seed, runtime.NumGoroutine(), goroutines)
			break
		}
	}

	quiet := newFake(t)
	alone, err := New(quiet, Options{Capacity: positions(e), PrefixTokens: -1})
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range jobs {
		j.leave = 0
		want := j.run(context.Background(), alone)
		if errors.Is(want.err, model.ErrContextLimit) && errors.Is(answers[i].err, model.ErrContextLimit) {
			continue
		}
		if want.err != nil {
			t.Errorf("seed %d, request %d alone: %v", seed, i, want.err)
		}
		jobs[i].check(t, answers[i], want)
		if t.Failed() {
			t.Fatalf("seed %d, request %d: %+v", seed, i, j)
		}
	}
	quiet.idle(t, alone)
	return l, e.dropped
}
