// Package sampling defines how a token is chosen from logits. The definition does not depend on
// the machine: this package and the kernels of ptxgen/sample choose the same tokens, and their
// log-probabilities have the same bits.
//
// # Adjusted logits
//
// The logits are float32. So are Bias, RepeatPenalty, PresencePenalty and FrequencyPenalty,
// rounded to nearest. Each operation of this section rounds to float32. For each token:
//
//  1. x = logit
//  2. If the token has a Bias: x = x + bias.
//  3. If RepeatPenalty is not 0 or 1 and the token occurs in the prompt or the generated text:
//     x = x * (1 / RepeatPenalty) if x > 0, else x = x * RepeatPenalty.
//  4. If the token occurs n > 0 times in the generated text:
//     x = x - n * FrequencyPenalty, then x = x - PresencePenalty.
//
// A token is a candidate if the mask permits it and x is neither NaN nor -Inf. Candidates are
// ordered by x, the largest first, then by id, the lowest first; -0 equals 0. Without a candidate
// the choice is -1. If Temperature is 0 or TopK is 1, the choice is the first candidate.
//
// # Weights
//
// A weight is an unnormalized probability, an integer that is at most 2^44. The sum over any
// vocabulary below 2^19 tokens fits 64 bits and does not depend on the order of additions. With
// max the largest x, and each operation rounded to float64:
//
//	scale  = log2(e) / Temperature, at most the largest float64
//	y      = (x - max) * scale, or 0 if x = max
//	k      = y rounded to an integer, ties to even
//	f      = y - k
//	p      = (1 + c1*f) + (c2 + c3*f)*f² + ((c4 + c5*f) + (c6 + c7*f)*f²)*f⁴
//	weight = floor(p * 2^(44+k)), or 0 if y < -64
//
// where f² = f*f, f⁴ = f²*f², no product is fused with a sum, and c1 to c7 are the constants of
// weight.go. p is 2^f with a relative error below 2^-33. If a candidate is +Inf, those below +Inf
// have weight 0.
//
// # Candidates that stay
//
//  1. TopK keeps the first TopK candidates.
//  2. TopP keeps the fewest of the first candidates whose weights add up to ceil(P * W / 2^64).
//     W is the sum of the weights so far, P = ceil(TopP * 2^64).
//  3. MinP keeps the candidates whose weight is at least ceil(MinP * 2^44).
//
// # The draw
//
// W is the sum of the remaining weights, u a random integer of 64 bits. The choice is the first
// candidate in the order of ids at which the sum of weights exceeds floor(u * W / 2^64).
//
// u consists of the first two words of Philox4x32-10, the lower one first. The key is Seed, the
// counter is (position, 0, Choice, 0). position is the index that the chosen token will have in
// its sequence. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11.
//
// # Log-probabilities
//
// They are of the unmodified logits l, without the NaN and -Inf among them. W is the sum of their
// weights at temperature 1, max their largest:
//
//	log p(l) = float32((l - max) - ln(W * 2^-44))
//
// with l - max = 0 if l = max. The logarithm is that of internal/portable. All operations are in
// float64.
package sampling

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/internal/portable"
)

// Params select the token after a sequence. The zero value is greedy: the largest logit wins,
// the lowest id on a tie.
//
// They apply in this order: Bias, penalties, mask, Temperature, TopK, TopP, MinP, the draw.
type Params struct {
	// Temperature divides the logits. 0 is greedy.
	Temperature float64
	TopK        int     // draw among the k most likely tokens; 0: all; 1: greedy
	TopP        float64 // draw among the fewest tokens whose probabilities add up to TopP; 0 or 1: all
	MinP        float64 // draw among tokens with at least MinP times the largest probability; 0: all

	// RepeatPenalty divides the positive logits and multiplies the other logits of tokens that
	// occur in the prompt or in the generated text. 0 or 1: none.
	RepeatPenalty    float64
	PresencePenalty  float64 // subtracted from the logits of generated tokens
	FrequencyPenalty float64 // subtracted once for each occurrence of a generated token

	// Bias is added to the logits of token ids first of all; -Inf bans a token.
	Bias map[int]float32

	// Seed and Choice select the random numbers. Choice numbers the completions of one request.
	Seed   uint64
	Choice uint32

	// LogProb asks for the log-probability of the chosen token, TopLogProbs for those of the
	// most likely tokens, at most MaxTopLogProbs. Both are of the unmodified logits.
	LogProb     bool
	TopLogProbs int
}

// MaxTopLogProbs is the largest Params.TopLogProbs.
const MaxTopLogProbs = 20

// MaxVocab is the largest number of tokens of a vocabulary.
const MaxVocab = 1<<19 - 1

// NoToken stands for a token id where there is none.
const NoToken = -1

// MaskLen returns the number of elements of a mask of the tokens of a vocabulary: bit id%32 of element id/32 is that of id.
func MaskLen(vocab int) int { return (vocab + 31) / 32 }

// Choice is a chosen token.
type Choice struct {
	Token   int       // NoToken if every logit is NaN or -Inf
	LogProb float32   // of Token, if Params.LogProb asks for it
	Top     []LogProb // the most likely tokens, if Params.TopLogProbs asks for them
}

// LogProb is a token with its log-probability.
type LogProb struct {
	Token   int
	LogProb float32
}

// Check returns an error that names the first field that is impossible with a vocabulary of
// vocab tokens.
func (p *Params) Check(vocab int) error {
	if vocab < 1 || vocab > MaxVocab {
		return fmt.Errorf("sampling: a vocabulary of %d tokens, want 1 to %d", vocab, MaxVocab)
	}
	for _, f := range []struct {
		name   string
		value  float64
		lo, hi float64
	}{
		{"Temperature", p.Temperature, 0, math.MaxFloat64},
		{"TopK", float64(p.TopK), 0, math.MaxInt32},
		{"TopP", p.TopP, 0, 1},
		{"MinP", p.MinP, 0, 1},
		{"RepeatPenalty", p.RepeatPenalty, 0, math.MaxFloat32},
		{"PresencePenalty", p.PresencePenalty, -math.MaxFloat32, math.MaxFloat32},
		{"FrequencyPenalty", p.FrequencyPenalty, -math.MaxFloat32, math.MaxFloat32},
		{"TopLogProbs", float64(p.TopLogProbs), 0, MaxTopLogProbs},
	} {
		if !(f.value >= f.lo && f.value <= f.hi) { // true for NaN too
			return fmt.Errorf("sampling: %s: %v, want %v to %v", f.name, f.value, f.lo, f.hi)
		}
	}
	if c := p.constants(); c.repeat == 0 || math.IsInf(float64(c.inverse), 0) {
		return fmt.Errorf("sampling: RepeatPenalty: %v is too small", p.RepeatPenalty)
	}
	for id, b := range p.Bias {
		if id < 0 || id >= vocab {
			return fmt.Errorf("sampling: Bias: token %d, want 0 to %d", id, vocab-1)
		}
		if b != b || math.IsInf(float64(b), 1) {
			return fmt.Errorf("sampling: Bias: token %d: %v", id, b)
		}
	}
	return nil
}

// Greedy reports whether the choice is the first candidate, without a draw.
func (p *Params) Greedy() bool { return p.Temperature == 0 || p.TopK == 1 }

// Penalizes reports whether the choice depends on the tokens before it.
func (p *Params) Penalizes() bool {
	return p.repeats() || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

func (p *Params) repeats() bool { return p.RepeatPenalty != 0 && p.RepeatPenalty != 1 }

// constants are the parameters in the form that the definition uses.
type constants struct {
	repeat, inverse     float32 // RepeatPenalty, or 1 if it is 0, and its inverse
	presence, frequency float32

	scale     float64
	topP      uint64 // ceil(TopP * 2^64); 0: all
	minWeight uint64 // ceil(MinP * 2^44)
}

func (p *Params) constants() constants {
	c := constants{repeat: 1, inverse: 1, presence: float32(p.PresencePenalty), frequency: float32(p.FrequencyPenalty), scale: 1}
	if p.repeats() {
		c.repeat = float32(p.RepeatPenalty)
		c.inverse = 1 / c.repeat
	}
	if p.Temperature > 0 {
		c.scale = min(math.Log2E/p.Temperature, math.MaxFloat64)
	}
	if p.TopP > 0 && p.TopP < 1 {
		c.topP = uint64(math.Ceil(p.TopP * 0x1p64))
	}
	c.minWeight = uint64(math.Ceil(p.MinP * 0x1p44))
	return c
}

// Words returns the parameters in the layout that package ptxgen/sample documents. Bias and the mask
// are not part of it.
func (p *Params) Words() [20]uint32 {
	c, flags := p.constants(), uint32(0)
	for bit, set := range []bool{!p.Greedy(), p.Penalizes(), p.LogProb || p.TopLogProbs > 0} {
		if set {
			flags |= 1 << bit
		}
	}
	w := [20]uint32{
		flags, uint32(p.TopK), uint32(p.TopLogProbs), uint32(len(p.Bias)),
		math.Float32bits(c.repeat), math.Float32bits(c.inverse), math.Float32bits(c.presence), math.Float32bits(c.frequency),
	}
	w[16] = p.Choice
	for i, x := range []uint64{math.Float64bits(c.scale), c.topP, c.minWeight, p.Seed} {
		w[8+2*i], w[9+2*i] = uint32(x), uint32(x>>32)
	}
	return w
}

// LogProbOf returns the log-probability of a logit; that of NaN is -Inf. most is the largest logit, sum
// the sum of the weights of all logits at temperature 1.
func LogProbOf(logit, most float32, sum uint64) float32 {
	if logit != logit {
		return float32(math.Inf(-1))
	}
	return float32(difference(logit, most) - portable.Log(float64(sum)*0x1p-44))
}
