package ptxgen_test

import (
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// launcher makes a launch of some kernel, with arguments of its own.
func launcher[A any](s interface {
	ptxgen.Spec
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
	goodNorm    = ptxgen.NormArgs{X: 16, Weight: 32, Y: 16, Tokens: 3, Heads: 5, Width: 64, XStride: 400}
	goodElement = ptxgen.ElementwiseArgs{X: 16, Y: 16, Rows: 3, Width: 100}
	goodNarrow  = ptxgen.NarrowArgs{X: 16, Y: 32, Scale: 64, Rows: 2, Width: 33}
	goodSoftmax = ptxgen.SoftmaxArgs{X: 16, Y: 16, Rows: 2, Width: 33}
	goodRope    = ptxgen.RopeAppendArgs{
		Q: 16, K: 32, V: 48, Freq: 64, Positions: 16, Table: 16, KCache: 16, VCache: 16,
		Tokens: 2, Heads: 4, KVHeads: 2, HeadDim: 64, Rot: 64, MaxPages: 1,
	}
	goodArgmax  = ptxgen.ArgmaxArgs{Logits: 16, Best: 16, Token: 16, Rows: 2, Vocab: 5000}
	goodTopK    = ptxgen.TopKArgs{Values: 16, OutValues: 16, OutIndices: 16, Rows: 2, N: 5000, K: 40}
	goodRouter  = ptxgen.RouterArgs{Logits: 16, Weights: 16, Chosen: 16, Tokens: 5, Experts: 60, K: 4}
	goodCombine = ptxgen.CombineArgs{Weights: 16, Out: 16, Y: 16, Tokens: 3, K: 2, Width: 1025}
	goodPlain   = ptxgen.ReadPlainArgs{In: 16, Out: 16, Bytes: 160, CTAs: 2}
	goodBulk    = ptxgen.ReadBulkArgs{In: 16, Out: 16, Chunks: 3, CTAs: 2}
	goodRate    = ptxgen.MatrixRateArgs{Out: 16, Rounds: 3, CTAs: 2}
	goodGroup   = ptxgen.GroupArgs{Chosen: 16, Offsets: 16, Order: 16, Tokens: 3, K: 2, Experts: 8}
)

// A launch takes what its rows ask for, whole CTAs of it.
func TestElementLaunches(t *testing.T) {
	for _, c := range []struct {
		name    string
		launch  func(*testing.T) (ptx.Launch, error)
		grid    [3]uint32
		threads uint32
	}{
		{"a CTA a row", launcher(ptxgen.Norm{}, goodNorm, nil), [3]uint32{15, 1, 1}, 32},
		{"a warp a row", launcher(ptxgen.Norm{PerWarp: true}, goodNorm, nil), [3]uint32{4, 1, 1}, 128},
		{"a wide row", launcher(ptxgen.Norm{}, goodNorm, func(a *ptxgen.NormArgs) { a.Heads, a.Width, a.XStride = 1, 28672, 0 }), [3]uint32{3, 1, 1}, 1024},
		{"rows as one", launcher(ptxgen.Elementwise{}, goodElement, nil), [3]uint32{1, 1, 1}, 256},
		{"rows with a bias", launcher(ptxgen.Elementwise{}, goodElement, func(a *ptxgen.ElementwiseArgs) { a.Bias = 16 }), [3]uint32{3, 1, 1}, 256},
		{"halves", launcher(ptxgen.Narrow{To: quant.F16}, goodNarrow, nil), [3]uint32{2, 1, 1}, 32},
		{"softmax", launcher(ptxgen.Softmax{}, goodSoftmax, nil), [3]uint32{2, 1, 1}, 32},
		{"few tokens, a warp a head", launcher(ptxgen.RopeAppend{Cache: quant.F16}, goodRope, nil), [3]uint32{2, 1, 1}, 256},
		{"many tokens", launcher(ptxgen.RopeAppend{Cache: quant.F16}, goodRope, func(a *ptxgen.RopeAppendArgs) { a.Tokens, a.Heads = 100, 64 }), [3]uint32{100, 1, 1}, 256},
		{"few tokens, many heads", launcher(ptxgen.RopeAppend{Cache: quant.F16}, goodRope, func(a *ptxgen.RopeAppendArgs) { a.Heads = 64 }), [3]uint32{2, 9, 1}, 256},
		{"argmax", launcher(ptxgen.Argmax{}, goodArgmax, nil), [3]uint32{3, 2, 1}, 256},
		{"argmax of 300000", launcher(ptxgen.Argmax{}, goodArgmax, func(a *ptxgen.ArgmaxArgs) { a.Vocab = 300000 }), [3]uint32{147, 2, 1}, 256},
		{"argmax, merged", launcher(ptxgen.Argmax{Merge: true}, goodArgmax, nil), [3]uint32{2, 1, 1}, 256},
		{"top-k", launcher(ptxgen.TopK{}, goodTopK, nil), [3]uint32{2, 2, 1}, 256},
		{"router", launcher(ptxgen.Router{}, goodRouter, nil), [3]uint32{2, 1, 1}, 128},
		{"combine", launcher(ptxgen.Combine{}, goodCombine, nil), [3]uint32{6, 1, 1}, 256},
		{"group", launcher(ptxgen.Group{}, goodGroup, nil), [3]uint32{8, 1, 1}, 512},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := c.launch(t)
			if err != nil {
				t.Fatal(err)
			}
			if l.Grid != c.grid || l.Block != [3]uint32{c.threads, 1, 1} {
				t.Errorf("a grid of %v CTAs of %v, want %v of %d", l.Grid, l.Block, c.grid, c.threads)
			}
		})
	}
}

// A launch whose arguments cannot be meant is refused, with the field's name.
func TestElementLaunchErrors(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name   string
		launch func(*testing.T) (ptx.Launch, error)
		field  string
	}{
		{"norm without rows", launcher(ptxgen.Norm{}, goodNorm, func(a *ptxgen.NormArgs) { a.Tokens = 0 }), "Tokens"},
		{"norm of fewer than no heads", launcher(ptxgen.Norm{}, goodNorm, func(a *ptxgen.NormArgs) { a.Heads = -1 }), "Heads"},
		{"norm with an eps that is no number", launcher(ptxgen.Norm{}, goodNorm, func(a *ptxgen.NormArgs) { a.Eps = float32(math.NaN()) }), "Eps"},
		{"norm without a weight", launcher(ptxgen.Norm{}, goodNorm, func(a *ptxgen.NormArgs) { a.Weight = 0 }), "Weight"},
		{"norm of rows that overlap", launcher(ptxgen.Norm{}, goodNorm, func(a *ptxgen.NormArgs) { a.XStride = 319 }), "XStride"},
		{"a misaligned address", launcher(ptxgen.Norm{}, goodNorm, func(a *ptxgen.NormArgs) { a.X = 18 }), "parameter x"},
		{"an unknown activation", launcher(ptxgen.Elementwise{}, goodElement, func(a *ptxgen.ElementwiseArgs) { a.Activation = 3 }), "Activation"},
		{"a negative cap", launcher(ptxgen.Elementwise{}, goodElement, func(a *ptxgen.ElementwiseArgs) { a.Cap = -1 }), "Cap"},
		{"an infinite cap", launcher(ptxgen.Elementwise{}, goodElement, func(a *ptxgen.ElementwiseArgs) { a.Cap = inf }), "Cap"},
		{"halves without a scale", launcher(ptxgen.Narrow{To: quant.F16}, goodNarrow, func(a *ptxgen.NarrowArgs) { a.Scale = 0 }), "Scale"},
		{"a negative scale", launcher(ptxgen.Softmax{}, goodSoftmax, func(a *ptxgen.SoftmaxArgs) { a.Scale = -1 }), "Scale"},
		{"an infinite scale", launcher(ptxgen.Softmax{}, goodSoftmax, func(a *ptxgen.SoftmaxArgs) { a.Scale = inf }), "Scale"},
		{"softmax with an infinite cap", launcher(ptxgen.Softmax{}, goodSoftmax, func(a *ptxgen.SoftmaxArgs) { a.Cap = inf }), "Cap"},
		{"an odd head", launcher(ptxgen.RopeAppend{}, goodRope, func(a *ptxgen.RopeAppendArgs) { a.HeadDim = 65 }), "HeadDim"},
		{"more rotated than there is", launcher(ptxgen.RopeAppend{}, goodRope, func(a *ptxgen.RopeAppendArgs) { a.Rot = 66 }), "Rot"},
		{"an append without pages", launcher(ptxgen.RopeAppend{}, goodRope, func(a *ptxgen.RopeAppendArgs) { a.MaxPages = 0 }), "MaxPages"},
		{"fewer than no pages", launcher(ptxgen.RopeAppend{}, goodRope, func(a *ptxgen.RopeAppendArgs) { a.KVHeads, a.MaxPages = 0, -1 }), "MaxPages"},
		{"an append without a cache", launcher(ptxgen.RopeAppend{}, goodRope, func(a *ptxgen.RopeAppendArgs) { a.VCache = 0 }), "VCache"},
		{"no heads at all", launcher(ptxgen.RopeAppend{}, goodRope, func(a *ptxgen.RopeAppendArgs) { a.Heads, a.KVHeads = 0, 0 }), "Heads + KVHeads"},
		{"an empty vocabulary", launcher(ptxgen.Argmax{}, goodArgmax, func(a *ptxgen.ArgmaxArgs) { a.Vocab = 0 }), "Vocab"},
		{"none of top-k", launcher(ptxgen.TopK{}, goodTopK, func(a *ptxgen.TopKArgs) { a.K = 0 }), "K"},
		{"top-k of nothing", launcher(ptxgen.TopK{}, goodTopK, func(a *ptxgen.TopKArgs) { a.N = 0 }), "N"},
		{"top-k of more rows than are counted", launcher(ptxgen.TopK{}, goodTopK, func(a *ptxgen.TopKArgs) { a.Rows, a.N, a.K = 65535, 1<<21, 256 }), "Rows"},
		{"too many of top-k", launcher(ptxgen.TopK{}, goodTopK, func(a *ptxgen.TopKArgs) { a.K = 257 }), "K"},
		{"top-k merged without indices", launcher(ptxgen.TopK{Merge: true}, goodTopK, nil), "Indices"},
		{"more experts than lanes hold", launcher(ptxgen.Router{}, goodRouter, func(a *ptxgen.RouterArgs) { a.Experts = 513 }), "Experts"},
		{"more choices than experts", launcher(ptxgen.Router{}, goodRouter, func(a *ptxgen.RouterArgs) { a.Experts = 3 }), "K"},
		{"combine without experts' results", launcher(ptxgen.Combine{}, goodCombine, func(a *ptxgen.CombineArgs) { a.Out = 0 }), "Out"},
		{"reads of part of a unit", launcher(ptxgen.ReadPlain{}, goodPlain, func(a *ptxgen.ReadPlainArgs) { a.Bytes = 24 }), "Bytes"},
		{"reads by more CTAs than are counted", launcher(ptxgen.ReadPlain{}, goodPlain, func(a *ptxgen.ReadPlainArgs) { a.CTAs = 1 << 24 }), "CTAs"},
		{"reads without memory", launcher(ptxgen.ReadPlain{}, goodPlain, func(a *ptxgen.ReadPlainArgs) { a.In = 0 }), "In"},
		{"bulk reads by no CTA", launcher(ptxgen.ReadBulk{}, goodBulk, func(a *ptxgen.ReadBulkArgs) { a.CTAs = 0 }), "CTAs"},
		{"bulk reads of too much", launcher(ptxgen.ReadBulk{}, goodBulk, func(a *ptxgen.ReadBulkArgs) { a.Chunks = math.MaxInt32 }), "Chunks"},
		{"fewer than no products", launcher(ptxgen.MatrixRate{}, goodRate, func(a *ptxgen.MatrixRateArgs) { a.Rounds = -1 }), "Rounds"},
		{"products for nobody", launcher(ptxgen.MatrixRate{}, goodRate, func(a *ptxgen.MatrixRateArgs) { a.Out = 0 }), "Out"},
		{"group without choices", launcher(ptxgen.Group{}, goodGroup, func(a *ptxgen.GroupArgs) { a.K = 0 }), "K"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.launch(t)
			if err == nil || !strings.Contains(err.Error(), c.field+":") {
				t.Errorf("error %v, want one about %s", err, c.field)
			}
		})
	}
}

// A generator that is asked for what it cannot make says so.
func TestElementBuildErrors(t *testing.T) {
	for _, s := range []ptxgen.Spec{
		ptxgen.Norm{To: quant.Q4_0}, ptxgen.Narrow{To: quant.F32}, ptxgen.RopeAppend{Cache: quant.Q8_0}, ptxgen.RopeAppend{Page: 48},
	} {
		if k, err := s.Build(); err == nil {
			t.Errorf("%s was built", k.Name)
		}
	}
}
