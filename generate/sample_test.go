package generate

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/model"
)

var (
	nan    = float32(math.NaN())
	inf    = float32(math.Inf(1))
	negInf = float32(math.Inf(-1))
)

// choices returns the set of tokens in many draws.
func choices(t *testing.T, p Params, logits []float32, history []int) []int {
	t.Helper()
	s := newSampler(p, len(logits))
	seen := map[int]bool{}
	for range 2000 {
		id, err := s.next(model.Output{Greedy: model.Argmax(logits), Logits: logits}, history)
		if err != nil {
			t.Fatal(err)
		}
		seen[id] = true
	}
	var ids []int
	for id := range seen {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func TestSamplerChoices(t *testing.T) {
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	four := []float32{ln(0.1), ln(0.4), ln(0.2), ln(0.3)}
	tests := []struct {
		name, reason string
		p            Params
		logits       []float32
		history      []int
		want         []int
	}{
		{"temperature 0", "greedy", Params{}, four, nil, []int{1}},
		{"top-k 1", "greedy at any temperature", Params{Temperature: 9, TopK: 1}, four, nil, []int{1}},
		{"all", "every token has its chance", Params{Temperature: 1}, four, nil, []int{0, 1, 2, 3}},
		{"tiny temperature", "only the best is left", Params{Temperature: 1e-300}, four, nil, []int{1}},
		{"huge temperature", "every token has its chance", Params{Temperature: 1e300}, four, nil, []int{0, 1, 2, 3}},
		{"top-k", "the k best", Params{Temperature: 1, TopK: 2}, four, nil, []int{1, 3}},
		{"top-k beyond", "more than there are is all", Params{Temperature: 1, TopK: 99}, four, nil, []int{0, 1, 2, 3}},
		{"top-k tie", "the lower id is kept", Params{Temperature: 1, TopK: 2}, []float32{1, 1, 1, 1}, nil, []int{0, 1}},
		{"top-p", "the fewest that reach p", Params{Temperature: 1, TopP: 0.65}, four, nil, []int{1, 3}},
		{"top-p tiny", "at least one is left", Params{Temperature: 1, TopP: 1e-300}, four, nil, []int{1}},
		{"top-p 1", "no restriction", Params{Temperature: 1, TopP: 1}, four, nil, []int{0, 1, 2, 3}},
		{"top-p before temperature", "a hot draw does not widen it", Params{Temperature: 1e3, TopP: 0.65}, four, nil, []int{1, 3}},
		{"top-k before top-p", "p is of what is left", Params{Temperature: 1, TopK: 2, TopP: 0.55}, four, nil, []int{1}},
		{"min-p", "half as likely as the best", Params{Temperature: 1, MinP: 0.49}, four, nil, []int{1, 2, 3}},
		{"min-p 1", "only the best", Params{Temperature: 1, MinP: 1}, four, nil, []int{1}},
		{"bias", "bias comes before greed", Params{LogitBias: map[int]float32{0: 5}}, four, nil, []int{0}},
		{"ban", "a banned token is never drawn", Params{Temperature: 1, LogitBias: map[int]float32{1: negInf}}, four, nil, []int{0, 2, 3}},
		{"NaN logit", "never drawn", Params{Temperature: 1}, []float32{nan, 1, 1, nan}, nil, []int{1, 2}},
		{"+Inf logit", "the only ones with a chance", Params{Temperature: 1}, []float32{inf, 1, inf, 9}, nil, []int{0, 2}},
		{"+Inf and top-p", "no NaN in the sums", Params{Temperature: 1, TopP: 0.9, MinP: 0.1}, []float32{inf, 1, inf, 9}, nil, []int{0, 2}},
		{"repeat positive", "a positive logit is divided", Params{RepeatPenalty: 3}, []float32{2, 1}, []int{0}, []int{1}},
		{"repeat negative", "a negative logit is multiplied", Params{RepeatPenalty: 3}, []float32{-1, -2}, []int{0}, []int{1}},
		{"repeat 1", "no penalty", Params{RepeatPenalty: 1}, []float32{2, 1}, []int{0}, []int{0}},
		{"presence", "once, however often it occurs", Params{PresencePenalty: 0.5}, []float32{2, 1}, []int{0, 0, 0}, []int{0}},
		{"presence enough", "subtracted", Params{PresencePenalty: 1.5}, []float32{2, 1}, []int{0}, []int{1}},
		{"frequency", "once for each time", Params{FrequencyPenalty: 0.5}, []float32{2, 1}, []int{0, 0, 0}, []int{1}},
		{"negative presence", "what was said is favored", Params{PresencePenalty: -2}, []float32{2, 1}, []int{1}, []int{1}},
		{"window", "only the last tokens count", Params{PresencePenalty: 9, RepeatLast: 2}, []float32{3, 2, 1}, []int{0, 1, 2}, []int{0}},
		{"window 0", "all tokens count", Params{PresencePenalty: 9}, []float32{3, 2, 1}, []int{0, 1}, []int{2}},
		{"bias before penalty", "the penalty sees the biased logit",
			Params{LogitBias: map[int]float32{0: 10}, RepeatPenalty: 100}, []float32{-9, 0.5}, []int{0}, []int{1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.p.check(len(tt.logits)); err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(tt.want, choices(t, tt.p, tt.logits, tt.history)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

func TestSamplerNoChoice(t *testing.T) {
	tests := []struct {
		name, reason string
		p            Params
		logits       []float32
	}{
		{"greedy NaN", "the engine found nothing", Params{}, []float32{nan, nan}},
		{"host NaN", "nothing here either", Params{LogitBias: map[int]float32{0: 0}}, []float32{nan, nan}},
		{"drawn NaN", "no candidates", Params{Temperature: 1}, []float32{nan, nan}},
		{"drawn -Inf", "no candidates", Params{Temperature: 1, TopK: 2, TopP: 0.5, MinP: 0.1}, []float32{negInf, negInf}},
		{"all banned", "bias can leave nothing", Params{LogitBias: map[int]float32{0: negInf, 1: negInf}}, []float32{1, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSampler(tt.p, len(tt.logits))
			if id, err := s.next(model.Output{Greedy: model.Argmax(tt.logits), Logits: tt.logits}, nil); !errors.Is(err, ErrNoChoice) {
				t.Errorf("%s: token %d, error %v, want ErrNoChoice", tt.reason, id, err)
			}
		})
	}
}

// Wrong output of an engine must give an error and no panic.
func TestSamplerWrongEngine(t *testing.T) {
	if _, err := newSampler(Params{Temperature: 1}, 3).next(model.Output{Logits: []float32{1}}, nil); err == nil {
		t.Error("too few logits gave no error")
	}
	if _, err := newSampler(Params{}, 3).next(model.Output{Greedy: 3}, nil); !errors.Is(err, model.ErrBadToken) {
		t.Errorf("a choice outside the vocabulary gave %v", err)
	}
}

// Draws must follow the probabilities, with and without the filters that sort the
// candidates.
func TestSamplerDistribution(t *testing.T) {
	probs := []float64{0.05, 0.5, 0.15, 0.3}
	logits := make([]float32, len(probs))
	for i, p := range probs {
		logits[i] = float32(2 * math.Log(p)) // temperature 2 undoes the factor
	}
	for name, p := range map[string]Params{
		"plain":    {Temperature: 2, Seed: 5},
		"filtered": {Temperature: 2, TopK: 4, TopP: 0.9999999, MinP: 1e-9, Seed: 5},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 40000
			s := newSampler(p, len(logits))
			counts := make([]int, len(probs))
			for range n {
				id, err := s.next(model.Output{Logits: logits}, nil)
				if err != nil {
					t.Fatal(err)
				}
				counts[id]++
			}
			for i, p := range probs {
				// A correct sampler deviates by five standard deviations with one seed in a million.
				if got, slack := float64(counts[i])/n, 5*math.Sqrt(p*(1-p)/n); !(math.Abs(got-p) <= slack) {
					t.Errorf("token %d drawn with frequency %.4f, want %.4f ± %.4f", i, got, p, slack)
				}
			}
		})
	}
}

// TestSamplerPinned compares with recorded draws, which are the same on every machine.
func TestSamplerPinned(t *testing.T) {
	logits := make([]float32, 1000)
	for i := range logits {
		logits[i] = float32(i*7919%1000) / 100
	}
	tests := []struct {
		name string
		p    Params
		want []int
	}{
		{"plain", Params{Temperature: 0.8, Seed: 1}, []int{433, 568, 421, 642, 137, 865, 14, 112}},
		{"filtered", Params{Temperature: 1.2, TopK: 50, TopP: 0.9, MinP: 0.05, Seed: 2}, []int{309, 556, 136, 531, 605, 309, 284, 25}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSampler(tt.p, len(logits))
			var got []int
			for range 8 {
				id, err := s.next(model.Output{Logits: logits}, nil)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, id)
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("draws (-want +got):\n%s", diff)
			}
		})
	}
}

// Popping all of a ranking must sort it.
func TestRankingSorts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for n := range 40 {
		r := make(ranking, n)
		for i := range r {
			r[i] = candidate{id: i, logit: float64(random.IntN(10))}
		}
		want := slices.Clone(r)
		slices.SortFunc(want, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
		})
		r.heapify()
		for _, w := range want {
			if got := r.pop(); got != w {
				t.Fatalf("of %d: popped %v, want %v", n, got, w)
			}
		}
	}
}

func BenchmarkSampler(b *testing.B) {
	const vocab = 128256
	random := rand.New(rand.NewPCG(1, 1))
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = 20*random.Float32() - 10
	}
	for name, p := range map[string]Params{
		"biased":    {LogitBias: map[int]float32{0: 0}},
		"top-k":     {Temperature: 0.8, TopK: 40, TopP: 0.95},
		"plain":     {Temperature: 0.8},
		"penalties": {RepeatPenalty: 1.1, RepeatLast: 64},
	} {
		b.Run(name, func(b *testing.B) {
			s := newSampler(p, vocab)
			history := make([]int, 100)
			for b.Loop() {
				if _, err := s.next(model.Output{Logits: logits}, history); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
