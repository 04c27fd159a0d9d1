package generate

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/model"
)

var (
	nan    = float32(math.NaN())
	inf    = float32(math.Inf(1))
	negInf = float32(math.Inf(-1))
)

// scripted returns an engine without a vocabulary of texts whose logits are a function of the
// prompt and the generated tokens.
func scripted(vocab int, logits func(history []int) []float32) *fakeEngine {
	return &fakeEngine{model: &model.Model{Config: model.Config{Vocab: vocab, Context: 1 << 20}}, script: logits}
}

// always returns an engine that gives the same logits for each position.
func always(logits []float32) *fakeEngine {
	return scripted(len(logits), func([]int) []float32 { return logits })
}

// choices returns the set of tokens that are chosen after a prompt. Without a prompt these
// are the tokens of many draws in one generation.
func choices(t *testing.T, p Params, logits []float32, prompt []int) []int {
	t.Helper()
	p.MaxTokens = 1
	if prompt == nil {
		prompt, p.MaxTokens = []int{0}, 1000
	}
	got := collect(Tokens(t.Context(), always(logits), prompt, p))
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	slices.Sort(got.IDs)
	return slices.Compact(got.IDs)
}

func TestChoices(t *testing.T) {
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	four := []float32{ln(0.1), ln(0.4), ln(0.2), ln(0.3)}
	equal := []float32{1, 1, 1, 1}
	tests := []struct {
		name, reason string
		p            Params
		logits       []float32
		prompt       []int // that penalties see; nil: not important
		want         []int
	}{
		{"temperature 0", "greedy", Params{}, four, nil, []int{1}},
		{"temperature 0 with filters", "greedy", Params{TopK: 3, TopP: 0.9, MinP: 0.1}, four, nil, []int{1}},
		{"all", "every token has its chance", Params{Temperature: 1}, four, nil, []int{0, 1, 2, 3}},
		{"tiny temperature", "only the best is left", Params{Temperature: math.SmallestNonzeroFloat64}, four, nil, []int{1}},
		{"tiny temperature and a tie", "all of the best are left", Params{Temperature: math.SmallestNonzeroFloat64}, []float32{1, 2, 2}, nil, []int{1, 2}},
		{"huge temperature", "every token has its chance", Params{Temperature: math.MaxFloat64}, []float32{-50, 50, 0}, nil, []int{0, 1, 2}},

		{"greedy tie", "the lowest id wins", Params{}, []float32{1, 2, 2}, nil, []int{1}},
		{"greedy tie on the host", "the lowest id wins", Params{LogitBias: map[int]float32{0: 0}}, []float32{1, 2, 2}, nil, []int{1}},
		{"top-k 1", "greedy at any temperature", Params{Temperature: 9, TopK: 1}, four, nil, []int{1}},
		{"top-k 1 tie", "the lowest id wins", Params{Temperature: 9, TopK: 1}, []float32{1, 2, 2}, nil, []int{1}},
		{"top-k 2", "the two best", Params{Temperature: 1, TopK: 2}, four, nil, []int{1, 3}},
		{"top-k of all but one", "all but the worst", Params{Temperature: 1, TopK: 3}, four, nil, []int{1, 2, 3}},
		{"top-k of the vocabulary", "all", Params{Temperature: 1, TopK: 4}, four, nil, []int{0, 1, 2, 3}},
		{"top-k beyond the vocabulary", "all", Params{Temperature: 1, TopK: 99}, four, nil, []int{0, 1, 2, 3}},
		{"top-k tie", "the lower ids are kept", Params{Temperature: 1, TopK: 2}, equal, nil, []int{0, 1}},
		{"top-k tie at the limit", "the better ones and the lowest id of the others", Params{Temperature: 1, TopK: 3}, []float32{1, 2, 1, 2, 1}, nil, []int{0, 1, 3}},
		{"top-k with tokens that cannot be chosen", "they do not count", Params{Temperature: 1, TopK: 2}, []float32{nan, 1, negInf, 1, 1}, nil, []int{1, 3}},
		{"top-k of what can be chosen", "all of it", Params{Temperature: 1, TopK: 3}, []float32{nan, 1, negInf, 1, 1}, nil, []int{1, 3, 4}},

		{"top-p", "the fewest that reach p", Params{Temperature: 1, TopP: 0.65}, four, nil, []int{1, 3}},
		{"top-p reached exactly by one", "the first is enough", Params{Temperature: 1, TopP: 0.25}, equal, nil, []int{0}},
		{"top-p reached exactly by two", "no third token", Params{Temperature: 1, TopP: 0.5}, equal, nil, []int{0, 1}},
		{"top-p reached exactly by three", "no fourth token", Params{Temperature: 1, TopP: 0.75}, equal, nil, []int{0, 1, 2}},
		{"top-p just above two", "a third token is needed", Params{Temperature: 1, TopP: math.Nextafter(0.5, 1)}, equal, nil, []int{0, 1, 2}},
		{"top-p just below two", "two tokens are needed", Params{Temperature: 1, TopP: math.Nextafter(0.5, 0)}, equal, nil, []int{0, 1}},
		{"top-p tiny", "at least one is left", Params{Temperature: 1, TopP: math.SmallestNonzeroFloat64}, four, nil, []int{1}},
		{"top-p 0", "no restriction", Params{Temperature: 1e3}, []float32{0, -50}, nil, []int{0, 1}},
		{"top-p 1", "no restriction, even for a probability that rounds away", Params{Temperature: 1e3, TopP: 1}, []float32{0, -50}, nil, []int{0, 1}},
		{"top-p before temperature", "a hot draw does not widen it", Params{Temperature: 1e3, TopP: 0.65}, four, nil, []int{1, 3}},
		{"top-k before top-p", "p is of what is left", Params{Temperature: 1, TopK: 2, TopP: 0.55}, four, nil, []int{1}},
		{"top-p before min-p", "p is of all", Params{Temperature: 1, TopP: 0.75, MinP: 0.49}, four, nil, []int{1, 2, 3}},

		{"min-p", "half as likely as the best", Params{Temperature: 1, MinP: 0.49}, four, nil, []int{1, 2, 3}},
		{"min-p just above", "half as likely is not enough", Params{Temperature: 1, MinP: 0.51}, four, nil, []int{1, 3}},
		{"min-p 0", "no restriction", Params{Temperature: 1e3}, []float32{0, -50}, nil, []int{0, 1}},
		{"min-p 1", "only the best", Params{Temperature: 1, MinP: 1}, four, nil, []int{1}},
		{"min-p 1 and a tie", "as likely as the best is enough", Params{Temperature: 1, MinP: 1}, []float32{2, 1, 2}, nil, []int{0, 2}},
		{"min-p before temperature", "a hot draw does not widen it", Params{Temperature: 1e3, MinP: 0.49}, four, nil, []int{1, 2, 3}},

		{"bias", "bias comes before greed", Params{LogitBias: map[int]float32{0: 5}}, four, nil, []int{0}},
		{"ban", "a banned token is never drawn", Params{Temperature: 1, LogitBias: map[int]float32{1: negInf}}, four, nil, []int{0, 2, 3}},
		{"ban of +Inf", "banned too", Params{Temperature: 1, LogitBias: map[int]float32{0: negInf}}, []float32{inf, 1, 1}, nil, []int{1, 2}},
		{"NaN logit", "never drawn", Params{Temperature: 1}, []float32{nan, 1, 1, nan}, nil, []int{1, 2}},
		{"+Inf logit", "the only ones with a chance", Params{Temperature: 1}, []float32{inf, 1, inf, 9}, nil, []int{0, 2}},
		{"+Inf and top-p", "no NaN in the sums", Params{Temperature: 1, TopP: 0.9, MinP: 0.1}, []float32{inf, 1, inf, 9}, nil, []int{0, 2}},

		{"repeat positive", "a positive logit is divided", Params{RepeatPenalty: 3}, []float32{2, 1}, []int{0}, []int{1}},
		{"repeat negative", "a negative logit is multiplied", Params{RepeatPenalty: 3}, []float32{-1, -2}, []int{0}, []int{1}},
		{"repeat 1", "no penalty", Params{RepeatPenalty: 1}, []float32{2, 1}, []int{0}, []int{0}},
		{"repeat below 1", "what was said is favored", Params{RepeatPenalty: 0.5}, []float32{2, 1.5}, []int{1}, []int{1}},
		{"repeat twice", "once, however often it occurs", Params{RepeatPenalty: 2}, []float32{3, 1}, []int{0, 0}, []int{0}},
		{"repeat before presence", "divided, then subtracted", Params{RepeatPenalty: 2, PresencePenalty: 1}, []float32{4, 1.2}, []int{0}, []int{1}},
		{"repeat before frequency", "divided, then subtracted", Params{RepeatPenalty: 2, FrequencyPenalty: 1}, []float32{4, 1.2}, []int{0}, []int{1}},
		{"presence", "once, however often it occurs", Params{PresencePenalty: 0.5}, []float32{2, 1}, []int{0, 0, 0}, []int{0}},
		{"presence enough", "subtracted", Params{PresencePenalty: 1.5}, []float32{2, 1}, []int{0}, []int{1}},
		{"frequency", "once for each time", Params{FrequencyPenalty: 0.5}, []float32{2, 1}, []int{0, 0, 0}, []int{1}},
		{"frequency not enough", "once for each time", Params{FrequencyPenalty: 0.4}, []float32{2, 1}, []int{0, 0}, []int{0}},
		{"negative presence", "what was said is favored", Params{PresencePenalty: -2}, []float32{2, 1}, []int{1}, []int{1}},
		{"negative frequency", "what was said is favored", Params{FrequencyPenalty: -0.6}, []float32{2, 1}, []int{1, 1}, []int{1}},
		{"bias before penalty", "the penalty sees the biased logit",
			Params{LogitBias: map[int]float32{0: 10}, RepeatPenalty: 100}, []float32{-9, 0.5}, []int{0}, []int{1}},
		{"penalty before top-k", "the best of the penalized", Params{Temperature: 1, TopK: 2, PresencePenalty: 9}, []float32{3, 2, 1}, []int{0}, []int{1}},

		{"window 0", "all tokens count", Params{PresencePenalty: 9}, []float32{3, 2, 1}, []int{0, 1, 1, 1, 1}, []int{2}},
		{"window of the whole text", "its first token counts", Params{PresencePenalty: 9, RepeatLast: 2}, []float32{3, 2, 1}, []int{0, 1}, []int{2}},
		{"window beyond the text", "its first token counts", Params{PresencePenalty: 9, RepeatLast: 3}, []float32{3, 2, 1}, []int{0, 1}, []int{2}},
		{"window's first token, presence", "it counts", Params{PresencePenalty: 9, RepeatLast: 2}, []float32{3, 2, 1}, []int{2, 0, 1}, []int{2}},
		{"window's first token, repeat", "it counts", Params{RepeatPenalty: 9, RepeatLast: 2}, []float32{3, 2, 1}, []int{2, 0, 1}, []int{2}},
		{"window's first token, frequency", "it counts", Params{FrequencyPenalty: 0.6, RepeatLast: 2}, []float32{3, 2}, []int{1, 0, 0}, []int{1}},
		{"before the window, presence", "it does not count", Params{PresencePenalty: 9, RepeatLast: 2}, []float32{3, 2, 1}, []int{0, 1, 2}, []int{0}},
		{"before the window, repeat", "it does not count", Params{RepeatPenalty: 9, RepeatLast: 2}, []float32{3, 2, 1}, []int{0, 1, 2}, []int{0}},
		{"before the window, frequency", "it does not count", Params{FrequencyPenalty: 0.6, RepeatLast: 2}, []float32{3, 2}, []int{0, 0, 1}, []int{0}},
		{"window 1", "only the last token counts", Params{PresencePenalty: 9, RepeatLast: 1}, []float32{3, 2, 1}, []int{1, 0}, []int{1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := gocmp.Diff(tt.want, choices(t, tt.p, tt.logits, tt.prompt)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// TestPenaltyWindowSlides: with a prohibitive penalty on the last n tokens, the best n+1
// tokens take turns.
func TestPenaltyWindowSlides(t *testing.T) {
	e := always([]float32{4, 3, 2, 1, 0})
	for n, want := range map[int][]int{
		1: {0, 1, 0, 1, 0, 1, 0, 1, 0, 1},
		2: {0, 1, 2, 0, 1, 2, 0, 1, 2, 0},
		3: {0, 1, 2, 3, 0, 1, 2, 3, 0, 1},
	} {
		got := collect(Tokens(t.Context(), e, []int{4}, Params{MaxTokens: 10, PresencePenalty: 1000, RepeatLast: n}))
		if diff := gocmp.Diff(want, got.IDs); diff != "" || got.Err != nil {
			t.Errorf("RepeatLast %d: error %v (-want +got):\n%s", n, got.Err, diff)
		}
	}
}

// TestTopKOfMany compares the tokens that top-k leaves with the first k of a sorted list.
func TestTopKOfMany(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for n := 2; n <= 20; n++ {
		logits, ids := make([]float32, n), make([]int, n)
		for i := range ids {
			ids[i], logits[i] = i, float32(random.IntN(6))
		}
		slices.SortStableFunc(ids, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
		for k := 2; k <= n; k += 1 + n/5 {
			want := slices.Sorted(slices.Values(ids[:k]))
			if got := choices(t, Params{Temperature: 1000, TopK: k}, logits, nil); !slices.Equal(got, want) {
				t.Errorf("top %d of %v: %v, want %v", k, logits, got, want)
			}
		}
	}
}

// TestTopPAlmostOne: rounding must not make p unreachable.
func TestTopPAlmostOne(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		logits := make([]float32, 300)
		for i := range logits {
			logits[i] = 10 * random.Float32()
		}
		choices(t, Params{Temperature: 1, TopP: math.Nextafter(1, 0)}, logits, []int{0})
	}
}

func TestNoChoice(t *testing.T) {
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
			tt.p.MaxTokens = 1
			if got := collect(Tokens(t.Context(), always(tt.logits), []int{0}, tt.p)); !errors.Is(got.Err, ErrNoChoice) || len(got.IDs) > 0 {
				t.Errorf("%s: tokens %v, error %v, want ErrNoChoice", tt.reason, got.IDs, got.Err)
			}
		})
	}
}

// TestWrongEngine: wrong output of an engine must give an error and no panic.
func TestWrongEngine(t *testing.T) {
	const vocab = 3
	for _, tt := range []struct {
		name   string
		p      Params
		logits []float32
		text   string
	}{
		{"too few logits", Params{Temperature: 1}, []float32{1, 2}, "2 logits for a vocabulary of 3"},
		{"too many logits", Params{Temperature: 1}, []float32{1, 2, 3, 4}, "4 logits for a vocabulary of 3"},
		{"a greedy choice outside the vocabulary", Params{}, []float32{1, 2, 3, 4}, "token outside the vocabulary: 3, want 0 to 2"},
	} {
		tt.p.MaxTokens = 1
		e := scripted(vocab, func([]int) []float32 { return tt.logits })
		if got := collect(Tokens(t.Context(), e, []int{0}, tt.p)); got.Err == nil || !strings.Contains(got.Err.Error(), tt.text) {
			t.Errorf("%s: tokens %v, error %v, want %q", tt.name, got.IDs, got.Err, tt.text)
		}
	}
}

// TestDistribution: draws must follow the probabilities of the tokens that are left, in one
// generation and over the seeds.
func TestDistribution(t *testing.T) {
	probs := []float64{0.05, 0.5, 0.15, 0.3}
	logits := make([]float32, len(probs))
	for i, p := range probs {
		logits[i] = float32(2 * math.Log(p)) // temperature 2 undoes the factor
	}
	// All tokens, and the two that are left if the others together have little probability.
	all, two := probs, []float64{0, 0.5 / 0.8, 0, 0.3 / 0.8}
	for _, tt := range []struct {
		name string
		p    Params
		want []float64
	}{
		{"plain", Params{Temperature: 2}, all},
		{"weak filters", Params{Temperature: 2, TopK: 4, TopP: 0.9999999, MinP: 1e-9}, all},
		{"top-k", Params{Temperature: 2, TopK: 2}, two},
		{"top-p", Params{Temperature: 2, TopP: 0.9}, two},
		{"min-p", Params{Temperature: 2, MinP: 0.2}, two},
		{"bias", Params{Temperature: 2, LogitBias: map[int]float32{0: negInf, 2: negInf}}, two},
	} {
		e := always(logits)
		check := func(t *testing.T, ids []int) {
			counts := make([]int, len(probs))
			for _, id := range ids {
				counts[id]++
			}
			for i, p := range tt.want {
				// A correct sampler deviates by five standard deviations with one seed in a million.
				n := float64(len(ids))
				if got, slack := float64(counts[i])/n, 5*math.Sqrt(p*(1-p)/n); !(math.Abs(got-p) <= slack) {
					t.Errorf("token %d drawn with frequency %.4f, want %.4f ± %.4f", i, got, p, slack)
				}
			}
		}
		t.Run(tt.name+"/one generation", func(t *testing.T) {
			p := tt.p
			p.Seed, p.MaxTokens = 5, 20000
			got := collect(Tokens(t.Context(), e, []int{0}, p))
			if got.Err != nil || len(got.IDs) != p.MaxTokens {
				t.Fatalf("%d tokens, error %v", len(got.IDs), got.Err)
			}
			check(t, got.IDs)
		})
		t.Run(tt.name+"/many seeds", func(t *testing.T) {
			p := tt.p
			p.MaxTokens = 1
			var ids []int
			for p.Seed = range 3000 {
				got := collect(Tokens(t.Context(), e, []int{0}, p))
				if got.Err != nil {
					t.Fatal(got.Err)
				}
				ids = append(ids, got.IDs...)
			}
			check(t, ids)
		})
	}
}

// TestPinnedDraws compares with recorded draws, which are the same on every machine.
func TestPinnedDraws(t *testing.T) {
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
			tt.p.MaxTokens = len(tt.want)
			got := collect(Tokens(t.Context(), always(logits), []int{0}, tt.p))
			if diff := gocmp.Diff(tt.want, got.IDs); diff != "" || got.Err != nil {
				t.Errorf("error %v, draws (-want +got):\n%s", got.Err, diff)
			}
		})
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
