package serve

import (
	"context"
	"iter"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/generate/constraint"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// backend is what a Server needs of a model. Many goroutines may call its methods.
//
// Errors are *apiError, or wrap a sentinel that asAPIError knows. Others get status 500.
type backend interface {
	info() info
	// tokenize encodes text. With bos it adds the tokens that the vocabulary puts around a prompt.
	// With special the text of a special token becomes that token.
	tokenize(text string, bos, special bool) ([]int, error)
	// detokenize decodes tokens, which must be in the vocabulary.
	detokenize(tokens []int) (string, error)
	// bytes returns the bytes that a token decodes to.
	bytes(token int) []byte
	// render converts a conversation to the prompt of the assistant's next message.
	render(c *conversation) (rendered, error)
	// compile sets the masks of the structure, if there is one. It returns early if ctx ends.
	compile(ctx context.Context, p *params) error
	// generate continues a prompt, and fills out if it ends without an error. The last element may
	// be an error.
	generate(ctx context.Context, prompt []int, p *params, out *outcome) iter.Seq2[token, error]
	// embed returns the embedding of tokens: [width], of length 1.
	embed(ctx context.Context, tokens []int) ([]float32, error)
	load() generate.Load
}

// info are the constants of a model.
type info struct {
	name    string // general.name of the file, "" if absent
	context int    // positions of a sequence
	chat    bool   // there is a chat template
	vocab   int
}

// params are the sampling parameters and stop rules of a request, or OpenAI's defaults.
type params struct {
	maxTokens   int // negative: until the context is full
	minTokens   int
	temperature float64
	topK        int // 0: all
	topP, minP  float64
	presence    float64
	frequency   float64
	repetition  float64
	bias        map[int]float32
	seed        uint64
	choice      int // index among the completions of a prompt
	stop        []string
	stopTokens  []int
	ignoreEOS   bool
	logprobs    bool
	topLogprobs int
	structure   *structure // nil: any text
}

// structure restricts the text.
type structure struct {
	source constraint.Structure
	param  string // the field of the request that asks for it
	// masks is a generate.Params.Mask. backend.compile sets it.
	masks func() func(generated []int) ([]uint32, error)
}

// token is a generated token, or text without a token if id is negative.
type token struct {
	id      int
	text    string // whole UTF-8 characters; may be empty
	logprob float32
	top     []sampling.LogProb // most likely first
}

// outcome is how a generation ended.
type outcome struct {
	finish string // OpenAI's finish_reason: stop or length
	tokens int    // generated; one that only completes a stop string counts, but is never yielded
	cached int    // tokens of the prompt that were not computed
}

// rendered is a conversation as a prompt.
type rendered struct {
	tokens    []int
	newParser func() answerParser // for each completion; nil: all text is content

	structure *structure // of the answer; nil: that of the request, if any
}

// answerParser separates the text of an answer into content, reasoning and tool calls.
type answerParser interface {
	next(t token) []part
	end() []part
}

// part is a piece of an answer. One of its fields is set.
type part struct {
	content, reasoning string
	call               *callPart
}

// callPart begins or continues a tool call. Only its beginning has an id and a name.
type callPart struct {
	index     int
	id, name  string
	arguments string
}
