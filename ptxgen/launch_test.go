package ptxgen_test

import (
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/altup"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/deltanet"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/peak"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/ptxgen/sample"
	"github.com/lockstep-go/lockstep/quant"
)

// launcher returns a function that launches a kernel with changed arguments.
func launcher[A any](s interface {
	kernel.Spec
	Launch(*ptx.Kernel, A) (ptx.Launch, error)
}, a A, change func(*A)) func(*testing.T) (ptx.Launch, error) {
	return func(t *testing.T) (ptx.Launch, error) {
		if change != nil {
			change(&a)
		}
		return s.Launch(build(t, s), a)
	}
}

var (
	goodNorm  = norm.RowsArgs{X: 16, Weight: 32, Y: 16, Tokens: 3, Heads: 5, Width: 64, XStride: 400}
	goodFused = elementwise.FusedArgs{X: 16, Y: 16, Rows: 3, Width: 100}
	goodRope  = rope.AppendArgs{
		Q: 16, Key: 32, Value: 48, Freq: 64, Positions: 16, Table: 16, KCache: 16, VCache: 16,
		Tokens: 2, Heads: 4, KVHeads: 2, HeadDim: 64, Rot: 64, MaxPages: 1,
	}
	goodArgmax = sample.ArgmaxArgs{Logits: 16, Best: 16, Rows: 2, Vocab: 5000}
	goodMerge  = sample.ArgmaxMergeArgs{Best: 16, Token: 16, Rows: 2, Vocab: 5000}
	goodSample = sample.Args{
		Logits: 16, Params: 16, Counts: 16, Biases: 16, Scratch: 256, Token: 16, Results: 16, Positions: 16, Lengths: 16, Rows: 2, Vocab: 5000, MaxBiases: 3,
	}
	goodRoute    = moe.RouteArgs{Logits: 16, Weights: 16, Chosen: 16, Tokens: 5, Experts: 60, K: 4}
	goodNormed   = moe.CombineNormedArgs{Out: 16, Shared: 16, ExpertNorm: 16, SharedNorm: 16, Weight: 16, Residual: 16, Mixed: 16, Y: 16, Tokens: 3, K: 2, Width: 1025}
	goodCombine  = moe.CombineArgs{Weights: 16, Out: 16, Y: 16, Tokens: 3, K: 2, Width: 1025}
	goodRead     = peak.ReadArgs{In: 16, Out: 16, Bytes: 160, CTAs: 2}
	goodBulkRead = peak.BulkReadArgs{In: 16, Out: 16, Chunks: 3, CTAs: 2}
	goodMMA      = peak.MMAArgs{Out: 16, Iterations: 3, CTAs: 2}
	goodWGMMA    = peak.WGMMAArgs{A: 16, B: 16, Out: 16, Iterations: 3, CTAs: 2}
	goodEmbed    = product.EmbedArgs{W: 16, Out: 16, Count: 3, Rows: 5, K: 1280}
	goodProduct  = product.Args{X: 16, W: 16, Y: 16, Tokens: 65, Rows: 129, K: 512, CTAs: 100}
	netShape     = deltanet.Shape{KeyHeads: 3, ValueHeads: 12, Dim: 128, Taps: 4, Tiled: true}
	netBatch     = deltanet.Batch{Starts: 16, Sequence: 16, Positions: 16, StateIndex: 16, States: 16, Stride: 300000, Tokens: 7, Sequences: 2}
	goodInputs   = deltanet.InputsArgs{
		X: 16, Alpha: 16, Beta: 16, XStride: 2304, W: 16, A: 16, Bias: 16, Y: 16, Gates: 16, Eps: 1e-6, Shape: netShape, Batch: netBatch,
	}
	goodGated    = deltanet.GatedNormArgs{Y: 16, Z: 16, ZStride: 1536, Weight: 16, Eps: 1e-6, Tokens: 7, Shape: netShape}
	goodRecur    = deltanet.RecurArgs{X: 16, Gates: 16, Y: 16, Inputs: 16, InputsStride: 2304, Shape: netShape, Batch: netBatch}
	goodStreams  = altup.Args{X: 16, Stride: 3 * 1025, M: 16, W: 16, Tokens: 3, Width: 1025, Y: 16, Scale: 16, Scaled: 16}
	goodScaleTo  = altup.ScaleToArgs{X: 16, Like: 16, Y: 16, Rows: 3, Width: 1025}
	goodSparsify = norm.SparsifyArgs{X: 16, Rows: 3, Width: 1025, Sparsity: 1}
	goodGroup    = moe.GroupArgs{Chosen: 16, Offsets: 16, Order: 16, Tokens: 3, K: 2, Experts: 8}
)

// goodBeside multiplies by goodProducts.
var goodBeside = product.Beside(
	product.Tile{Format: quant.Q4_K, Tokens: 64, Warps: 8, RingX: 2}, product.Tile{Format: quant.Q6_K, Tokens: 64, Warps: 8, RingX: 2, XSumLayouts: 1},
)

func goodProducts() []product.Args {
	more := goodProduct
	more.Rows = 500
	return []product.Args{goodProduct, more}
}

// A launch has as many CTAs and threads as its arguments need.
func TestLaunchShapes(t *testing.T) {
	for _, c := range []struct {
		name    string
		launch  func(*testing.T) (ptx.Launch, error)
		grid    [3]uint32
		threads uint32
	}{
		{"norm: one CTA per row", launcher(norm.Rows(norm.RMS, quant.F32), goodNorm, nil), [3]uint32{15, 1, 1}, 32},
		{"norm: a row of 1024 threads", launcher(norm.Rows(norm.RMS, quant.F32), goodNorm, func(a *norm.RowsArgs) { a.Heads, a.Width, a.XStride = 1, 28672, 0 }), [3]uint32{3, 1, 1}, 1024},
		{"elementwise: contiguous rows as one", launcher(elementwise.Fused(), goodFused, nil), [3]uint32{1, 1, 1}, 256},
		{"elementwise: rows with a bias", launcher(elementwise.Fused(), goodFused, func(a *elementwise.FusedArgs) { a.Bias = 16 }), [3]uint32{3, 1, 1}, 256},
		{"rope: few tokens", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, nil), [3]uint32{2, 1, 1}, 256},
		{"rope: many tokens", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.Tokens, a.Heads = 100, 64 }), [3]uint32{100, 1, 1}, 256},
		{"rope: few tokens with many heads", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.Heads = 64 }), [3]uint32{2, 9, 1}, 256},
		{"argmax", launcher(sample.Argmax(), goodArgmax, nil), [3]uint32{3, 2, 1}, 256},
		{"argmax of 300000", launcher(sample.Argmax(), goodArgmax, func(a *sample.ArgmaxArgs) { a.Vocab = 300000 }), [3]uint32{147, 2, 1}, 256},
		{"argmax merge", launcher(sample.ArgmaxMerge(), goodMerge, nil), [3]uint32{2, 1, 1}, 256},
		{"sample: a CTA per slice and row", launcher(sample.Kernels()[0], goodSample, nil), [3]uint32{3, 2, 1}, 256},
		{"sample: a CTA per row", launcher(sample.Kernels()[4], goodSample, nil), [3]uint32{2, 1, 1}, 512},
		{"router", launcher(moe.Route(false), goodRoute, nil), [3]uint32{2, 1, 1}, 128},
		{"combine and norm", launcher(moe.CombineNormed(), goodNormed, nil), [3]uint32{3, 1, 1}, 288},
		{"combine", launcher(moe.Combine(), goodCombine, nil), [3]uint32{6, 1, 1}, 256},
		{"group", launcher(moe.Group(), goodGroup, nil), [3]uint32{8, 1, 1}, 512},
		{"altup: two CTAs per token", launcher(altup.Predict(4), goodStreams, nil), [3]uint32{6, 1, 1}, 256},
		{"altup: a CTA per row", launcher(altup.ScaleTo(), goodScaleTo, nil), [3]uint32{3, 1, 1}, 96},
		{"sparsify", launcher(norm.Sparsify(), goodSparsify, nil), [3]uint32{3, 1, 1}, 96},
		{"deltanet: 18 heads of 7 tokens, and gates", launcher(deltanet.Inputs(128), goodInputs, nil), [3]uint32{36, 1, 1}, 128},
		{"deltanet: 18 heads of 43 tokens, and 516 gates", launcher(deltanet.Inputs(128), goodInputs, func(a *deltanet.InputsArgs) { a.Batch.Tokens = 43 }), [3]uint32{220, 1, 1}, 128},
		{"deltanet: norms of 12 heads of 7 tokens", launcher(deltanet.GatedNorm(), goodGated, nil), [3]uint32{21, 1, 1}, 128},
		{"deltanet: 12 heads and the windows of 2 sequences", launcher(deltanet.Recur(128), goodRecur, nil), [3]uint32{132, 1, 1}, 128},
		{"product by mma.sync: a CTA per tile", launcher(product.Tile{Format: quant.Q4_K, Tokens: 64, Warps: 8, RingX: 2}.Kernel(), goodProduct, nil), [3]uint32{4, 1, 1}, 256},
		{"products side by side: the second has more tiles", launcher(goodBeside, goodProducts(), nil), [3]uint32{12, 1, 1}, 256},
		{"products side by side: fewer CTAs than tiles", launcher(goodBeside, goodProducts(), func(a *[]product.Args) { (*a)[0].CTAs, (*a)[1].CTAs = 5, 5 }), [3]uint32{5, 1, 1}, 256},
		{"products side by side: fewer CTAs than products", launcher(goodBeside, goodProducts(), func(a *[]product.Args) { (*a)[0].CTAs, (*a)[1].CTAs = 1, 1 }), [3]uint32{2, 1, 1}, 256},
		{"embed: a warp per segment", launcher(product.Embed(quant.Q4_K), goodEmbed, nil), [3]uint32{3, 2, 1}, 128},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := c.launch(t)
			if err != nil {
				t.Fatal(err)
			}
			if l.Grid != c.grid || l.Block != [3]uint32{c.threads, 1, 1} {
				t.Errorf("grid %v of CTAs of %v threads, want %v of %d", l.Grid, l.Block, c.grid, c.threads)
			}
		})
	}
}

// A launch with an invalid argument returns an error that names the field.
func TestLaunchErrors(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name   string
		launch func(*testing.T) (ptx.Launch, error)
		field  string
	}{
		{"norm without rows", launcher(norm.Rows(norm.RMS, quant.F32), goodNorm, func(a *norm.RowsArgs) { a.Tokens = 0 }), "Tokens"},
		{"norm of -1 heads", launcher(norm.Rows(norm.RMS, quant.F32), goodNorm, func(a *norm.RowsArgs) { a.Heads = -1 }), "Heads"},
		{"norm with a NaN eps", launcher(norm.Rows(norm.RMS, quant.F32), goodNorm, func(a *norm.RowsArgs) { a.Eps = float32(math.NaN()) }), "Eps"},
		{"norm without a weight", launcher(norm.Rows(norm.RMS, quant.F32), goodNorm, func(a *norm.RowsArgs) { a.Weight = 0 }), "Weight"},
		{"norm of overlapping rows", launcher(norm.Rows(norm.RMS, quant.F32), goodNorm, func(a *norm.RowsArgs) { a.XStride = 319 }), "XStride"},
		{"a misaligned address", launcher(norm.Rows(norm.RMS, quant.F32), goodNorm, func(a *norm.RowsArgs) { a.X = 18 }), "parameter x"},
		{"an unknown activation", launcher(elementwise.Fused(), goodFused, func(a *elementwise.FusedArgs) { a.Activation = 5 }), "Activation"},
		{"a negative cap", launcher(elementwise.Fused(), goodFused, func(a *elementwise.FusedArgs) { a.Cap = -1 }), "Cap"},
		{"an infinite cap", launcher(elementwise.Fused(), goodFused, func(a *elementwise.FusedArgs) { a.Cap = inf }), "Cap"},
		{"rope of an odd head dim", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.HeadDim = 65 }), "HeadDim"},
		{"rope of more elements than a head has", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.Rot = 66 }), "Rot"},
		{"rope: append without pages", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.MaxPages = 0 }), "MaxPages"},
		{"rope: -1 pages", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.KVHeads, a.MaxPages = 0, -1 }), "MaxPages"},
		{"rope: append without a cache", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.VCache = 0 }), "VCache"},
		{"rope: query factors for blocks of 0", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.QScales = 1 << 20 }), "QScaleBlock"},
		{"rope: a negative offset", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.QScales, a.QScaleBlock, a.QScaleOffset = 1<<20, 1, -1 }), "QScaleOffset"},
		{"rope without heads", launcher(rope.Append(quant.F16, attention.PageTokens), goodRope, func(a *rope.AppendArgs) { a.Heads, a.KVHeads = 0, 0 }), "Heads + KVHeads"},
		{"argmax of an empty vocabulary", launcher(sample.Argmax(), goodArgmax, func(a *sample.ArgmaxArgs) { a.Vocab = 0 }), "Vocab"},
		{"sample of no rows", launcher(sample.Kernels()[4], goodSample, func(a *sample.Args) { a.Rows = 0 }), "Rows"},
		{"sample of a vocabulary of 2^19", launcher(sample.Kernels()[4], goodSample, func(a *sample.Args) { a.Vocab = 1 << 19 }), "Vocab"},
		{"sample of overlapping rows", launcher(sample.Kernels()[0], goodSample, func(a *sample.Args) { a.Stride = 4999 }), "Stride"},
		{"sample without a list of biases", launcher(sample.Kernels()[0], goodSample, func(a *sample.Args) { a.Biases = 0 }), "Biases"},
		{"sample without counts", launcher(sample.Kernels()[0], goodSample, func(a *sample.Args) { a.Counts = 0 }), "Counts"},
		{"sample without results", launcher(sample.Kernels()[1], goodSample, func(a *sample.Args) { a.Results = 0 }), "Results"},
		{"sample with misaligned scratch memory", launcher(sample.Kernels()[1], goodSample, func(a *sample.Args) { a.Scratch = 264 }), "parameter sums"},
		{"router of 513 experts", launcher(moe.Route(false), goodRoute, func(a *moe.RouteArgs) { a.Experts = 513 }), "Experts"},
		{"router with K above the number of experts", launcher(moe.Route(false), goodRoute, func(a *moe.RouteArgs) { a.Experts = 3 }), "K"},
		{"router with rows that overlap", launcher(moe.Route(true), goodRoute, func(a *moe.RouteArgs) { a.Stride = 59 }), "Stride"},
		{"router without a logit of the shared expert", launcher(moe.Route(true), goodRoute, func(a *moe.RouteArgs) { a.Shared = 16 }), "Stride"},
		{"router with a negative scale", launcher(moe.Route(true), goodRoute, func(a *moe.RouteArgs) { a.Scale = -1 }), "Scale"},
		{"combine with weights of no shared expert", launcher(moe.Combine(), goodCombine, func(a *moe.CombineArgs) { a.SharedWeights = 16 }), "SharedWeights"},
		{"combine and norm without a norm of experts", launcher(moe.CombineNormed(), goodNormed, func(a *moe.CombineNormedArgs) { a.ExpertNorm = 0 }), "ExpertNorm"},
		{"combine and norm no experts", launcher(moe.CombineNormed(), goodNormed, func(a *moe.CombineNormedArgs) { a.K = 0 }), "K"},
		{"combine and norm no rows", launcher(moe.CombineNormed(), goodNormed, func(a *moe.CombineNormedArgs) { a.Tokens = 0 }), "Tokens"},
		{"combine without results of experts", launcher(moe.Combine(), goodCombine, func(a *moe.CombineArgs) { a.Out = 0 }), "Out"},
		{"read of 24 bytes", launcher(peak.Read(), goodRead, func(a *peak.ReadArgs) { a.Bytes = 24 }), "Bytes"},
		{"read by too many CTAs", launcher(peak.Read(), goodRead, func(a *peak.ReadArgs) { a.CTAs = 1 << 24 }), "CTAs"},
		{"read without an input", launcher(peak.Read(), goodRead, func(a *peak.ReadArgs) { a.In = 0 }), "In"},
		{"bulk read by no CTA", launcher(peak.BulkRead(), goodBulkRead, func(a *peak.BulkReadArgs) { a.CTAs = 0 }), "CTAs"},
		{"bulk read of too many chunks", launcher(peak.BulkRead(), goodBulkRead, func(a *peak.BulkReadArgs) { a.Chunks = math.MaxInt32 }), "Chunks"},
		{"mma with -1 iterations", launcher(peak.MMA(), goodMMA, func(a *peak.MMAArgs) { a.Iterations = -1 }), "Iterations"},
		{"mma without an output", launcher(peak.MMA(), goodMMA, func(a *peak.MMAArgs) { a.Out = 0 }), "Out"},
		{"wgmma by too many CTAs", launcher(peak.WGMMA(), goodWGMMA, func(a *peak.WGMMAArgs) { a.CTAs = 1 << 17 }), "CTAs"},
		{"wgmma with -1 iterations", launcher(peak.WGMMA(), goodWGMMA, func(a *peak.WGMMAArgs) { a.Iterations = -1 }), "Iterations"},
		{"wgmma without B", launcher(peak.WGMMA(), goodWGMMA, func(a *peak.WGMMAArgs) { a.B = 0 }), "B"},
		{"products side by side of one matrix", launcher(goodBeside, goodProducts()[:1], nil), "Args"},
		{"products side by side in different grids", launcher(goodBeside, goodProducts(), func(a *[]product.Args) { (*a)[1].CTAs = 5 }), "CTAs"},
		{"products side by side of experts", launcher(goodBeside, goodProducts(), func(a *[]product.Args) { (*a)[1].Experts = 16 }), "Experts"},
		{"products side by side, one without rows", launcher(goodBeside, goodProducts(), func(a *[]product.Args) { (*a)[1].Rows = 0 }), "Rows"},
		{"embed no tokens", launcher(product.Embed(quant.Q8_0), goodEmbed, func(a *product.EmbedArgs) { a.Count = 0 }), "Count"},
		{"embed without a matrix", launcher(product.Embed(quant.Q8_0), goodEmbed, func(a *product.EmbedArgs) { a.W = 0 }), "W"},
		{"embed without an output", launcher(product.Embed(quant.Q8_0), goodEmbed, func(a *product.EmbedArgs) { a.Out = 0 }), "Out"},
		{"embed of a matrix without rows", launcher(product.Embed(quant.Q8_0), goodEmbed, func(a *product.EmbedArgs) { a.Rows = 0 }), "Rows"},
		{"embed a part of a block", launcher(product.Embed(quant.Q4_K), goodEmbed, func(a *product.EmbedArgs) { a.K = 128 }), "K"},
		{"embed no weights", launcher(product.Embed(quant.F16), goodEmbed, func(a *product.EmbedArgs) { a.K = 0 }), "K"},
		{"deltanet: uneven heads", launcher(deltanet.Recur(128), goodRecur, func(a *deltanet.RecurArgs) { a.Shape.ValueHeads = 13 }), "ValueHeads"},
		{"deltanet: other heads than the kernel", launcher(deltanet.Recur(64), goodRecur, nil), "Dim"},
		{"deltanet: states at odd distances", launcher(deltanet.Recur(128), goodRecur, func(a *deltanet.RecurArgs) { a.Batch.Stride++ }), "Stride"},
		{"deltanet: norms of no tokens", launcher(deltanet.GatedNorm(), goodGated, func(a *deltanet.GatedNormArgs) { a.Tokens = 0 }), "Tokens"},
		{"deltanet: gates that overlap", launcher(deltanet.GatedNorm(), goodGated, func(a *deltanet.GatedNormArgs) { a.ZStride = 1535 }), "ZStride"},
		{"deltanet: norms without weights", launcher(deltanet.GatedNorm(), goodGated, func(a *deltanet.GatedNormArgs) { a.Weight = 0 }), "Weight"},
		{"deltanet: states that overlap", launcher(deltanet.Recur(128), goodRecur, func(a *deltanet.RecurArgs) { a.Batch.Stride = 1000 }), "Stride"},
		{"deltanet: windows of inputs that overlap", launcher(deltanet.Recur(128), goodRecur, func(a *deltanet.RecurArgs) { a.InputsStride = 2303 }), "InputsStride"},
		{"deltanet: no sequences", launcher(deltanet.Recur(128), goodRecur, func(a *deltanet.RecurArgs) { a.Batch.Sequences = 0 }), "Sequences"},
		{"deltanet: no taps", launcher(deltanet.Recur(128), goodRecur, func(a *deltanet.RecurArgs) { a.Shape.Taps = 0 }), "Taps"},
		{"deltanet: no key heads", launcher(deltanet.Inputs(128), goodInputs, func(a *deltanet.InputsArgs) { a.Shape.KeyHeads = 0 }), "KeyHeads"},
		{"deltanet: other heads than the convolution", launcher(deltanet.Inputs(64), goodInputs, nil), "Dim"},
		{"deltanet: inputs that overlap", launcher(deltanet.Inputs(128), goodInputs, func(a *deltanet.InputsArgs) { a.XStride = 2303 }), "XStride"},
		{"deltanet: no eps", launcher(deltanet.Inputs(128), goodInputs, func(a *deltanet.InputsArgs) { a.Eps = 0 }), "Eps"},
		{"deltanet: tokens of no sequences", launcher(deltanet.Inputs(128), goodInputs, func(a *deltanet.InputsArgs) { a.Batch.Sequence = 0 }), "Sequence"},
		{"deltanet: inputs of no tokens", launcher(deltanet.Inputs(128), goodInputs, func(a *deltanet.InputsArgs) { a.Batch.Tokens = 0 }), "Tokens"},
		{"deltanet: inputs without gates", launcher(deltanet.Inputs(128), goodInputs, func(a *deltanet.InputsArgs) { a.Gates = 0 }), "Gates"},
		{"altup: streams that overlap", launcher(altup.Predict(4), goodStreams, func(a *altup.Args) { a.Stride-- }), "Stride"},
		{"altup: no tokens", launcher(altup.Predict(4), goodStreams, func(a *altup.Args) { a.Tokens = 0 }), "Tokens"},
		{"altup: no coefficients", launcher(altup.Correct(4), goodStreams, func(a *altup.Args) { a.M = 0 }), "M"},
		{"altup: no result of the layer", launcher(altup.Correct(4), goodStreams, func(a *altup.Args) { a.Y = 0 }), "Y"},
		{"altup: nowhere to write the scaled stream", launcher(altup.Correct(4), goodStreams, func(a *altup.Args) { a.Scaled = 0 }), "Scaled"},
		{"altup: rows without a length", launcher(altup.ScaleTo(), goodScaleTo, func(a *altup.ScaleToArgs) { a.Like = 0 }), "Like"},
		{"altup: empty rows", launcher(altup.ScaleTo(), goodScaleTo, func(a *altup.ScaleToArgs) { a.Width = 0 }), "Width"},
		{"sparsify rows of one element", launcher(norm.Sparsify(), goodSparsify, func(a *norm.SparsifyArgs) { a.Width = 1 }), "Width"},
		{"sparsify with infinite sparsity", launcher(norm.Sparsify(), goodSparsify, func(a *norm.SparsifyArgs) { a.Sparsity = inf }), "Sparsity"},
		{"sparsify nothing", launcher(norm.Sparsify(), goodSparsify, func(a *norm.SparsifyArgs) { a.X = 0 }), "X"},
		{"group of no choices", launcher(moe.Group(), goodGroup, func(a *moe.GroupArgs) { a.K = 0 }), "K"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.launch(t)
			if err == nil || !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("error %v, want one about %s", err, c.field)
			}
		})
	}
}

// Build returns an error if a kernel cannot be generated.
func TestBuildErrors(t *testing.T) {
	for _, s := range []kernel.Spec{
		norm.Rows(norm.RMS, quant.Q4_0), rope.Append(quant.Q8_0, 64), rope.Append(quant.F16, 48), rope.Append(quant.F16, 0), deltanet.Recur(40),
	} {
		if k, err := s.Build(); err == nil {
			t.Errorf("%s was built", k.Name)
		}
	}
}
