package plan

import (
	"github.com/lockstep-go/lockstep/accel/internal/memory"
	"github.com/lockstep-go/lockstep/accel/internal/upload"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
)

// Buffers are the device addresses of activations and of the inputs of a forward pass.
// T is Layout.MaxTokens, R is Layout.LogitRows, S is Layout.Slots, P is Layout.MaxPages.
type Buffers struct {
	x         ptx.Address // f32 [T, hidden]: the residual stream; with AltUp the first, see planner.stream
	qkv       ptx.Address // f32 [T, widths.qkv]
	rotated   ptx.Address // f32 [T, widths.rotated]: queries after RoPE, for their view alone
	attention ptx.Address // f32 [T, widths.attention]
	gate, up  ptx.Address // f32 [T, widths.ffn] each
	out       ptx.Address // f32 [T, widths.out]: a product before its norm or the sum over experts, or a LayerNorm before a product
	rounded   ptx.Address // operands of products: see product.Tile.Round

	routerLogits  ptx.Address // f32 [T, widths.router]
	expertWeights ptx.Address // f32 [T, experts used]
	sharedWeights ptx.Address // f32 [T]: weight of the shared expert
	shared        ptx.Address // f32 [T, hidden]: result of the shared expert
	mixed         ptx.Address // f32 [T, hidden]: scratch memory of moe.CombineNormed
	experts       ptx.Address // u32 [T, experts used]
	expertOffsets ptx.Address // u32 [experts+1]: where the slots of an expert begin in expertOrder
	expertOrder   ptx.Address // u32 [T·experts used]: slots sorted by expert
	expertRoutes  ptx.Address // see product.RoundArgs

	inputs ptx.Address // f32 [T, layers·layer input]: inputs of all layers

	// Of AltUp.
	sum          ptx.Address // f32 [T, hidden]: see planner.sum
	coefficients ptx.Address // f32 [T, streams]

	Logits ptx.Address // f32 [R, vocab]
	argmax ptx.Address // scratch memory of Argmax

	partial ptx.Address // scratch memory of attention.Decode

	// Of Gated DeltaNets.
	convolved  ptx.Address // f32 [T, channels]: results of the convolution
	decays     ptx.Address // f32 [T, value heads, 2]: see deltanet.Inputs
	states     ptx.Address // f32 [Layout.States, state]
	StepStates ptx.Address // u32 [S]: the state of each slot, or deltanet.NoState

	sequences  ptx.Address // u32 [S+1]: 0, 1, …
	StepTables ptx.Address // u32 [S, P]: page tables
	StepInput  ptx.Address // u32 [3, S]: tokens, positions, lengths
	Chunk      ptx.Address // u32: page tables, then Layout.ChunkList

	// Of sample.Kernels. A sampling state is the parameters of a sequence with the counts of its
	// tokens. The last, Layout.GreedyState, has the zero parameters and counts no tokens.
	SampleParams  ptx.Address // u32 [S+1, sample.ParamWords]
	SampleBiases  ptx.Address // u32 [S, MaxBiases, 2]
	SampleCounts  ptx.Address // u32 [S, vocab]
	SampleMasks   ptx.Address // u32 [S, ceil(vocab/32)]
	SampleInput   ptx.Address // u32 [S]: the state of each slot
	ChooseInput   ptx.Address // u32 [2, S]: positions and lengths of the states for Layout.Choose
	SavedLogits   ptx.Address // f32 [S, vocab]: logits from which Layout.Choose chooses, by state
	sampleScratch ptx.Address

	// StepTokens is u32 [R, 2] in pinned memory, where decode steps write their tokens.
	// StepResults is u32 [R, 2, sample.ResultWords] there. The engine sets both once it has that
	// memory.
	StepTokens, StepResults ptx.Address
}

// MaxBiases is the number of biases that a sampling state has room for.
const MaxBiases = 1024

// MaskLen is the number of elements of a mask.
func (l *Layout) MaskLen() int { return ceilDiv(l.model.Vocab, 32) }

// GreedyState is the sampling state of slots that need no other.
func (l *Layout) GreedyState() int { return l.Slots }

// addBuffers adds the buffers to the memory list, but not those of addPaged.
func (l *Layout) addBuffers() {
	b, c := &l.Buffers, l.model
	tokens, logitRows := int64(l.MaxTokens), int64(l.LogitRows)
	for _, r := range []struct {
		to    *ptx.Address
		name  string
		rows  int64
		width int // elements of 4 bytes
	}{
		{&b.qkv, "QKV", tokens, l.widths.qkv},
		{&b.rotated, "rotated queries", tokens, l.widths.rotated},
		{&b.attention, "attention", tokens, l.widths.attention},
		{&b.convolved, "convolution", tokens, c.DeltaNet.Channels()},
		{&b.decays, "decays", tokens, 2 * c.DeltaNet.ValueHeads},
		{&b.gate, "gate", tokens, l.widths.ffn},
		{&b.up, "up", tokens, l.widths.ffn},
		{&b.out, "out", tokens, l.widths.out},
		{&b.inputs, "layer inputs", tokens, c.Layers * c.LayerInput},
		{&b.routerLogits, "router logits", tokens, l.widths.router},
		{&b.expertWeights, "expert weights", tokens, c.ExpertsUsed},
		{&b.experts, "experts", tokens, c.ExpertsUsed},
		{&b.Logits, "logits", logitRows, c.Vocab},
		{&b.SavedLogits, "saved logits", int64(l.Slots), c.Vocab},
		{&b.argmax, "argmax", logitRows, 2 * sample.Slices(c.Vocab)},
	} {
		l.Memory.Add(memory.Activations, r.name, r.rows*int64(4*r.width), r.to)
	}
	l.Memory.Add(memory.Activations, "hidden state", int64(4*max(c.Streams, 1))*int64(l.streamStride()), &b.x)
	if c.Streams > 0 {
		l.Memory.Add(memory.Activations, "layer", 4*tokens*int64(c.Hidden), &b.sum)
		l.Memory.Add(memory.Activations, "stream coefficients", 4*tokens*int64(c.Streams), &b.coefficients)
	}
	rounded, routes := l.roundedBytes()
	l.Memory.Add(memory.Activations, "rounded activations", rounded, &b.rounded)
	l.Memory.Add(memory.Activations, "expert routes", routes, &b.expertRoutes)
	l.Memory.Add(memory.Workspace, "sampling", sample.ScratchBytes(l.Slots, c.Vocab), &b.sampleScratch)
	l.Memory.Add(memory.Tables, "sampling counts", int64(4*l.Slots)*int64(c.Vocab), &b.SampleCounts)
	l.Memory.Add(memory.Tables, "sampling biases", int64(8*MaxBiases*l.Slots), &b.SampleBiases)
	l.Memory.Add(memory.Tables, "sampling masks", int64(4*l.Slots*l.MaskLen()), &b.SampleMasks)
	l.Memory.Add(memory.Tables, "sampling inputs", int64(4*l.Slots), &b.SampleInput)
	l.Memory.Add(memory.Tables, "choice inputs", int64(4*2*l.Slots), &b.ChooseInput)
	l.Memory.AddFilled(memory.Tables, "sampling parameters", int64(4*sample.ParamWords*(l.Slots+1)), &b.SampleParams, func(u *upload.Uploader, at driver.Address) error {
		return upload.Values(u, at, make([]uint32, sample.ParamWords*(l.Slots+1)))
	})
	l.Memory.AddFilled(memory.Tables, "sequences", int64(4*(l.Slots+1)), &b.sequences, func(u *upload.Uploader, at driver.Address) error {
		list := make([]uint32, l.Slots+1)
		for i := range list {
			list[i] = uint32(i)
		}
		return upload.Values(u, at, list)
	})
	l.Memory.Add(memory.Tables, "step inputs", int64(4*3*l.Slots), &b.StepInput)
	if states := l.States(); states > 0 {
		l.Memory.Add(memory.States, "states", int64(states)*int64(l.StateBytes()), &b.states)
		l.Memory.Add(memory.Tables, "states of slots", int64(4*l.Slots), &b.StepStates)
	}
	if c.Experts > 0 {
		l.Memory.Add(memory.Activations, "expert offsets", int64(4*(c.Experts+1)), &b.expertOffsets)
		l.Memory.Add(memory.Activations, "expert order", int64(4*l.MaxTokens*c.ExpertsUsed), &b.expertOrder)
	}
	if l.weights.normedMixture() {
		l.Memory.Add(memory.Activations, "mixture", 4*tokens*int64(c.Hidden), &b.mixed)
	}
	if c.SharedFFN > 0 {
		l.Memory.Add(memory.Activations, "shared expert", 4*tokens*int64(c.Hidden), &b.shared)
		l.Memory.Add(memory.Activations, "shared expert weights", 4*tokens, &b.sharedWeights)
	}
}

// addPaged adds the buffers that grow with MaxPages.
func (l *Layout) addPaged() {
	b, c := &l.Buffers, l.model
	l.Memory.Add(memory.Workspace, "attention", attention.Shape{KV: l.config.KV, HeadDim: c.HeadDim}.ScratchBytes(l.Slots, c.Heads, l.MaxPages), &b.partial)
	l.Memory.Add(memory.Tables, "page tables", int64(4*l.Slots*l.MaxPages), &b.StepTables)
	l.Memory.Add(memory.Tables, "prompt chunk", int64(4*l.ChunkInputLen()), &b.Chunk)
}

// inputs are the device addresses of what a forward pass reads, and of the tokens that it writes.
// An absent address is 0.
type inputs struct {
	tokens, positions ptx.Address // u32 [tokens]
	sequences         ptx.Address // u32 [tokens]: the sequence of each token
	lengths           ptx.Address // u32 [sequences]: positions after the forward pass; the length 0 marks an inactive slot
	tables            ptx.Address // u32 [sequences, P]: page tables
	starts            ptx.Address // u32 [sequences+1]: see attention.PrefillArgs; slot r of a decode step has token r
	recurrent         ptx.Address // u32 [sequences]: the states of Gated DeltaNets

	chosen  ptx.Address // u32 [R, 2]: the tokens that are chosen
	states  ptx.Address // u32 [R]: the sampling state of each row; absent: row r has state r
	masks   ptx.Address // u32 [S, ceil(vocab/32)]
	results ptx.Address // u32 [R, 2, sample.ResultWords]
}

// stepInputs are the inputs of a decode step. Each slot has its own length and page table.
func (l *Layout) stepInputs() inputs {
	b := &l.Buffers
	array := func(i int) ptx.Address { return b.StepInput + ptx.Address(4*i*l.Slots) }
	return inputs{
		tokens: array(0), positions: array(1), lengths: array(2), tables: b.StepTables, sequences: b.sequences, starts: b.sequences, recurrent: b.StepStates,
		chosen: b.StepTokens, states: b.SampleInput, results: b.StepResults,
	}
}

// ChunkInputLen is the number of values of Buffers.Chunk:
//
//	page tables  [S, P]
//	list         ChunkList
func (l *Layout) ChunkInputLen() int { return l.Slots*l.MaxPages + l.chunkListLen(l.MaxTokens) }

// ChunkPart is the tokens of one sequence in a prompt chunk.
type ChunkPart struct {
	First  int // position of the first token
	Tokens []int
	State  uint32 // of Gated DeltaNets
}

// ChunkTableAt returns the address of the page table of a sequence of a prompt chunk.
func (l *Layout) ChunkTableAt(sequence int) ptx.Address {
	return l.Buffers.Chunk + ptx.Address(4*sequence*l.MaxPages)
}

// ChunkListAt returns the address of ChunkList.
func (l *Layout) ChunkListAt() ptx.Address { return l.ChunkTableAt(l.Slots) }

func (l *Layout) chunkListLen(tokens int) int { return 3*l.Slots + 1 + 3*tokens }

// ChunkList appends the inputs of a prompt chunk of at most S sequences, except their page tables, to
// a list:
//
//	lengths    [S]       positions of each sequence after the chunk; 0 if there is none
//	starts     [S+1]     see attention.PrefillArgs
//	states     [S]       of Gated DeltaNets
//	tokens     [tokens]
//	positions  [tokens]
//	sequences  [tokens]
func (l *Layout) ChunkList(to []uint32, parts []ChunkPart) []uint32 {
	for _, p := range parts {
		to = append(to, uint32(p.First+len(p.Tokens)))
	}
	to = append(to, make([]uint32, l.Slots-len(parts))...)
	start := 0
	for i := range l.Slots + 1 {
		to = append(to, uint32(start))
		if i < len(parts) {
			start += len(parts[i].Tokens)
		}
	}
	for _, p := range parts {
		to = append(to, p.State)
	}
	to = append(to, make([]uint32, l.Slots-len(parts))...)
	for _, p := range parts {
		for _, t := range p.Tokens {
			to = append(to, uint32(t))
		}
	}
	for _, p := range parts {
		for i := range p.Tokens {
			to = append(to, uint32(p.First+i))
		}
	}
	for i, p := range parts {
		for range p.Tokens {
			to = append(to, uint32(i))
		}
	}
	return to
}

// chunkInputs are the inputs of a prompt chunk.
func (l *Layout) chunkInputs(tokens int) inputs {
	list := func(i int) ptx.Address { return l.ChunkListAt() + ptx.Address(4*i) }
	arrays := 3*l.Slots + 1
	return inputs{
		tables: l.ChunkTableAt(0), lengths: list(0), starts: list(l.Slots), recurrent: list(2*l.Slots + 1),
		tokens: list(arrays), positions: list(arrays + tokens), sequences: list(arrays + 2*tokens),
	}
}
