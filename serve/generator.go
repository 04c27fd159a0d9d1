package serve

import (
	"context"
	"iter"
	"math"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/generate/constraint"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// generator is the backend over a generate.Generator.
type generator struct {
	g          *generate.Generator
	model      *model.Model
	structures *structures
}

func newGenerator(g *generate.Generator) *generator {
	m := g.Model()
	return &generator{g, m, newStructures(func() (*constraint.Vocabulary, error) { return newVocabulary(m) })}
}

func (b *generator) info() info {
	i := info{context: b.g.Capacity(), vocab: b.model.Config.Vocab}
	i.chat = b.model.Tokenizer != nil && b.model.Tokenizer.ChatTemplate(false) != ""
	if b.model.File != nil {
		if v, ok := b.model.File.Value("general.name"); ok {
			i.name, _ = v.Any().(string)
		}
	}
	return i
}

func (b *generator) tokenize(text string, bos, special bool) ([]int, error) {
	t, err := b.model.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	if !bos {
		return t.Encode(text, special), nil
	}
	tokens, _ := t.Prompt(text, special, math.MaxInt)
	return tokens, nil
}

func (b *generator) detokenize(tokens []int) (string, error) {
	t, err := b.model.NeedTokenizer()
	if err != nil {
		return "", err
	}
	return t.Decode(tokens), nil
}

func (b *generator) bytes(token int) []byte {
	if b.model.Tokenizer == nil {
		return nil
	}
	return b.model.Tokenizer.Bytes(token)
}

func (b *generator) render(c *conversation) (rendered, error) {
	t, err := b.model.NeedTokenizer()
	if err != nil {
		return rendered{}, err
	}
	return renderChat(t, c, b.model.Config.Context)
}

func (b *generator) compile(ctx context.Context, p *params) error {
	if p.structure == nil {
		return nil
	}
	c, err := b.structures.compile(ctx, p.structure)
	if err != nil {
		return err
	}
	p.structure.masks = c.Masks
	return nil
}

func (b *generator) generate(ctx context.Context, prompt []int, p *params, out *outcome) iter.Seq2[token, error] {
	return func(yield func(token, error) bool) {
		var stats generate.Stats
		g := generate.Params{
			Sampling: sampling.Params{
				Temperature: p.temperature, TopK: p.topK, TopP: p.topP, MinP: p.minP,
				RepeatPenalty: p.repetition, PresencePenalty: p.presence, FrequencyPenalty: p.frequency,
				Bias: p.bias, Seed: p.seed, Choice: uint32(p.choice), LogProb: p.logprobs, TopLogProbs: p.topLogprobs,
			},
			MaxTokens: p.maxTokens, MinTokens: p.minTokens, Stop: p.stop, StopTokens: p.stopTokens, IgnoreEOS: p.ignoreEOS, Stats: &stats,
		}
		if p.structure != nil {
			g.Mask = p.structure.mask
		}
		for t, err := range b.g.Tokens(ctx, prompt, g) {
			if !yield(token{t.ID, t.Text, t.LogProb, t.Top}, err) {
				return
			}
		}
		*out = outcome{finish: finishReason(stats.Finish), tokens: stats.GeneratedTokens, cached: stats.ReusedTokens}
	}
}

// finishReason is OpenAI's word.
func finishReason(f generate.FinishReason) string {
	if f == generate.FinishStopToken || f == generate.FinishStopString {
		return "stop"
	}
	return "length"
}

func (b *generator) embed(ctx context.Context, tokens []int) ([]float32, error) {
	return b.g.Embed(ctx, tokens)
}

func (b *generator) load() generate.Load { return b.g.Load() }
