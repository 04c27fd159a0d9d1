package sample

import (
	"cmp"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Kernels returns the kernels that choose a token for each row of logits, as package
// model/sampling defines. An engine launches them in this order, with the same arguments:
//
//	sample_adjust  bias, penalties and mask; the first candidate of each slice of a row
//	sample_weigh   sums of weights; with TopK or TopP, a histogram
//	sample_bound   with TopK or TopP, the bins of the last candidates that stay
//	sample_gather  with TopK or TopP, a list of the candidates in these bins
//	sample_draw    the token
//
// Rows may differ in all parameters, which the kernels read from memory. For a row that does not
// need a kernel it returns at once. All sums are of integers, so the order of atomic additions
// does not show.
func Kernels() []kernel.Typed[Args] {
	return []kernel.Typed[Args]{adjustKernel(), weighKernel(), boundKernel(), gatherKernel(), drawKernel()}
}

// Args are the arguments of a launch of one of Kernels. A state is a sequence's place in Params,
// Counts, Biases and Masks. An optional address is 0 if it is absent.
type Args struct {
	Logits ptx.Address // f32 [Rows, Vocab]
	States ptx.Address // optional u32 [Rows]: the state of each row, if its length is not 0; absent: row r has state r
	Params ptx.Address // u32 [states, ParamWords]
	// Counts is u32 [states, Vocab]: how often a token occurs in the generated text, and
	// InPrompt. It is used for states with penalties: sample_draw counts the token that it chooses.
	Counts ptx.Address
	Biases ptx.Address // u32 [states, MaxBiases, 2]: different token ids, and the bits of their float32 biases
	Masks  ptx.Address // optional u32 [states, ceil(Vocab/32)]: bit id%32 of word id/32 permits a token; needed for the flag Masked

	Scratch ptx.Address // ScratchBytes(Rows, Vocab)

	// Token is u32 [Rows, 2], double-buffered: row r writes Token[r][Lengths[r]&1], so that a
	// step never overwrites the token of the previous step. NoIndex: there is no candidate.
	Token ptx.Address
	// Results is u32 [Rows, 2, ResultWords], double-buffered in the same way. It is written for
	// states with log-probabilities.
	Results ptx.Address
	Next    ptx.Address // optional u32 [Rows]: the input token of the next step. NoIndex is not written to it.
	// Lengths holds the number of positions of each sequence in this step, Positions those of the
	// input tokens: u32 [Rows] each. Lengths[r] is the position of the chosen token. sample_draw
	// sets Positions[r] to Lengths[r], then adds 1 to Lengths[r]. A row of length 0 is left alone.
	Positions, Lengths ptx.Address

	Rows      int
	Vocab     int // less than 2^19
	Stride    int // elements from row to row of Logits; 0: Vocab
	MaxBiases int
}

// ParamWords is the number of words of a state in Args.Params:
//
//	0       flags: 1 not greedy, 2 penalties, 4 log-probabilities, Masked
//	1       TopK; 0: all
//	2       the number of most likely tokens in Results, at most 20; 0 without log-probabilities
//	3       the number of biases
//	4 to 7  with penalties: float32 RepeatPenalty (1: none), its inverse, PresencePenalty, FrequencyPenalty
//	8, 9    float64 log2(e) / Temperature
//	10, 11  u64 ceil(TopP * 2^64); 0: all
//	12, 13  u64 ceil(MinP * 2^44), the smallest weight
//	14, 15  u64 Seed
//	16      Choice, a word of the generator's counter
//
// The lower half of 64 bits comes first. Params.Words of package model/sampling returns these
// words, without Masked.
const ParamWords = 20

// The flags in word 0 of a state's parameters.
const (
	samples = 1 << iota
	penalizes
	logProbs
	// Masked is the flag of a state with a mask.
	Masked
)

// InPrompt marks a count of a token that occurs in the prompt.
const InPrompt = 1 << 31

const maxTop = 20

// ResultWords is the number of words of a row in Args.Results, all of the unmodified logits:
//
//	0     the bits of the chosen token's logit; 0: no token
//	1     the bits of the largest logit; all 1 if each is NaN or -Inf
//	2, 3  the sum of the weights at temperature 1, the lower half first
//	4 …   id and bits of the logit, for each of the most likely tokens; NoIndex: there are fewer
const ResultWords = 4 + 2*maxTop

const (
	sliceThreads  = 256
	slice         = 8 * sliceThreads // logits per CTA
	maxSlices     = sliceThreads     // a thread per slice in each kernel
	maxVocab      = maxSlices*slice - 1
	bins          = 1024 // of a row's histogram
	maxCandidates = 4096
)

// scratch are the parts of Args.Scratch.
type scratch struct {
	Sums       ptx.Global `align:"16"` // u64 [Rows, slices, 2]: weights that stay; weights of the unmodified logits
	Best       ptx.Global `align:"16"` // u32 [Rows, slices, 4]: key and id of the first candidate, key of the largest unmodified logit, unused
	BinSums    ptx.Global `align:"8"`  // u64 [Rows, bins]
	BinCounts  ptx.Global // u32 [Rows, bins]
	Bounds     ptx.Global `align:"16"` // u32 [Rows, boundWords]
	Candidates ptx.Global `align:"8"`  // u32 [Rows, maxCandidates, 2]: keys and ids
	Tops       ptx.Global `align:"8"`  // u32 [Rows, slices, maxTop, 2]: keys and ids of the largest unmodified logits
	Keys       ptx.Global `align:"16"` // u32 [Rows, slices, slice]; 0: no candidate
}

// sizes returns the sizes of the parts in bytes per row, in the order of the fields.
func (scratch) sizes(vocab int) [8]int {
	n := Slices(vocab)
	return [8]int{16 * n, 16 * n, 8 * bins, 4 * bins, 4 * boundWords, 8 * maxCandidates, 8 * maxTop * n, 4 * slice * n}
}

// ScratchBytes returns the size of Args.Scratch.
func ScratchBytes(rows, vocab int) int64 {
	total := 0
	for _, n := range (scratch{}).sizes(vocab) {
		total += n
	}
	return int64(rows) * int64(total)
}

// scratchAt returns the addresses of the parts.
func scratchAt(at ptx.Address, rows, vocab int) *scratch {
	var s scratch
	parts := [...]*ptx.Global{&s.Sums, &s.Best, &s.BinSums, &s.BinCounts, &s.Bounds, &s.Candidates, &s.Tops, &s.Keys}
	for i, n := range s.sizes(vocab) {
		*parts[i] = ptx.Addr(at)
		at += ptx.Address(rows * n)
	}
	return &s
}

type sampleParams struct {
	Logits, States                   ptx.Global
	Params                           ptx.Global `align:"16"`
	Counts                           ptx.Global
	Biases                           ptx.Global `align:"8"`
	Masks, Token                     ptx.Global
	Results                          ptx.Global `align:"8"`
	Next, Positions, Lengths         ptx.Global
	Vocab, Slices, Stride, MaxBiases ptx.U32
}

// stage makes a kernel of threads per CTA. Its grid has one CTA per slice and row, or per row.
func stage(name string, threads int, perSlice bool, build func(*row)) kernel.Typed[Args] {
	return kernel.New(name, func(b *ptx.Builder) (*ptx.Kernel, error) {
		build(newRow(b, threads, perSlice))
		return b.Finish(ptx.MaxThreads(threads))
	}, func(k *ptx.Kernel, a Args) (ptx.Launch, error) {
		a.Stride = cmp.Or(a.Stride, a.Vocab)
		checks := []host.Check{
			host.Bound("Rows", a.Rows, 1, 65535), host.Bound("Vocab", a.Vocab, 1, maxVocab), host.Bound("Stride", a.Stride, a.Vocab, host.MaxSize),
			host.Bound("MaxBiases", a.MaxBiases, 0, host.MaxSize),
			host.NonNil("Logits", a.Logits), host.NonNil("Params", a.Params), host.NonNil("Counts", a.Counts), host.NonNil("Scratch", a.Scratch),
			host.NonNil("Token", a.Token), host.NonNil("Results", a.Results), host.NonNil("Positions", a.Positions), host.NonNil("Lengths", a.Lengths),
		}
		if a.MaxBiases > 0 {
			checks = append(checks, host.NonNil("Biases", a.Biases))
		}
		if err := host.Valid(k, checks...); err != nil {
			return ptx.Launch{}, err
		}
		grid := [3]uint32{uint32(a.Rows), 1, 1}
		if perSlice {
			grid = [3]uint32{uint32(Slices(a.Vocab)), uint32(a.Rows), 1}
		}
		return k.Launch(grid, threads, 0, &sampleParams{
			Logits: ptx.Addr(a.Logits), States: ptx.Addr(a.States), Params: ptx.Addr(a.Params), Counts: ptx.Addr(a.Counts), Biases: ptx.Addr(a.Biases),
			Masks: ptx.Addr(a.Masks), Token: ptx.Addr(a.Token), Results: ptx.Addr(a.Results), Next: ptx.Addr(a.Next), Positions: ptx.Addr(a.Positions),
			Lengths: ptx.Addr(a.Lengths), Vocab: ptx.Uint(a.Vocab), Slices: ptx.Uint(Slices(a.Vocab)), Stride: ptx.Uint(a.Stride), MaxBiases: ptx.Uint(a.MaxBiases),
		}, scratchAt(a.Scratch, a.Rows, a.Vocab))
	})
}
