package attention_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/ptxgen/rope"
	"github.com/lockstep-go/lockstep/quant"
)

func TestBuildErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec kernel.Spec
		want string // part of the error
	}{
		{"quantized cache", attention.Decode(attention.Shape{KV: quant.Q8_0, HeadDim: 64}), "cache of Q8_0"},
		{"odd head dim", attention.Decode(attention.Shape{KV: quant.F16, HeadDim: 68}), "head dim 68"},
		{"large head dim", attention.Decode(attention.Shape{KV: quant.F16, HeadDim: 264}), "head dim 264"},
		{"larger head dim", attention.Prefill(attention.Shape{KV: quant.F16, HeadDim: 544}), "head dim 544"},
		{"page of 48", attention.Decode(attention.Shape{KV: quant.F16, HeadDim: 64, Page: 48}), "page of 48"},
		{"combine", attention.Combine(4), "head dim 4"},
		{"prefill: quantized cache", attention.Prefill(attention.Shape{KV: quant.Q4_0, HeadDim: 64}), "cache of Q4_0"},
		{"prefill: BlockQ of 48", attention.Prefill(attention.Shape{KV: quant.F16, HeadDim: 64, BlockQ: 48}), "BlockQ: 48"},
		{"prefill: BlockK above the page", attention.Prefill(attention.Shape{KV: quant.F16, HeadDim: 64, Page: 32, BlockK: 64}), "BlockK: 64"},
		{"prefill: BlockK below the rows of a copy", attention.Prefill(attention.Shape{KV: quant.F16, HeadDim: 256, BlockQ: 128, BlockK: 16}), "BlockK: 16"},
		{"wgmma: F32 cache", attention.PrefillWGMMA(attention.Shape{KV: quant.F32, HeadDim: 64}), "cache of F32"},
		{"wgmma: head dim of 72", attention.PrefillWGMMA(attention.Shape{KV: quant.F16, HeadDim: 72}), "head dim 72"},
		{"wgmma: BlockQ of 64", attention.PrefillWGMMA(attention.Shape{KV: quant.F16, HeadDim: 64, BlockQ: 64}), "BlockQ: 64"},
		{"wgmma: BlockQ of 192 with too few registers", attention.PrefillWGMMA(attention.Shape{KV: quant.F16, HeadDim: 256, BlockQ: 192}), "BlockQ: 192"},
		{"wgmma: BlockK above the page", attention.PrefillWGMMA(attention.Shape{KV: quant.F16, HeadDim: 64, Page: 32, BlockK: 64}), "BlockK: 64"},
		{"wgmma: too much shared memory", attention.PrefillWGMMA(attention.Shape{KV: quant.F16, HeadDim: 256, BlockK: 64}), "262144 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.spec.Build(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

var goodKV = attention.PagedKV{K: 256, V: 256, Table: 256, Lengths: 256, KVHeads: 2, MaxPages: 9}

func goodDecode() attention.DecodeArgs {
	return attention.DecodeArgs{Q: 256, Scratch: 256, Out: 256, KV: goodKV, Scoring: attention.Scoring{Scale: 1},
		Sequences: 3, Heads: 8, QStride: 512, OutStride: 512}
}

func goodPrefill() attention.PrefillArgs {
	return attention.PrefillArgs{Q: 256, Out: 256, Starts: 256, KV: goodKV, Scoring: attention.Scoring{Scale: 1},
		Sequences: 3, Heads: 8, QStride: 512, OutStride: 512, MaxQueries: 300}
}

func TestLaunch(t *testing.T) {
	shape := attention.Shape{KV: quant.F16, HeadDim: 64}
	decode, prefill := attention.Decode(shape), attention.Prefill(shape)
	decodeKernel, prefillKernel := build(t, decode), build(t, prefill)
	l, err := decode.Launch(decodeKernel, goodDecode())
	if err != nil || l.Grid != [3]uint32{5, 2, 3} {
		t.Errorf("decode: grid %v, error %v", l.Grid, err)
	}
	for _, tt := range []struct {
		name   string
		change func(*attention.DecodeArgs)
		want   uint32 // CTAs for the splits of a sequence
		parts  uint32 // for the query heads of a KV head
	}{
		{"as many as run at a time", func(a *attention.DecodeArgs) { a.SMs, a.Sequences, a.KV.MaxPages = 132, 1, 2048 }, 264, 1},
		{"two splits", func(a *attention.DecodeArgs) { a.SMs, a.Pages = 132, 3 }, 2, 1},
		{"one split", func(a *attention.DecodeArgs) { a.SMs, a.Pages = 132, 2 }, 1, 1},
		{"an equal part for each sequence", func(a *attention.DecodeArgs) { a.SMs, a.Sequences, a.KV.MaxPages = 33, 4, 128 }, 16, 1},
		{"at most 4096 keys each", func(a *attention.DecodeArgs) { a.SMs, a.Sequences, a.KV.MaxPages = 33, 140, 129 }, 3, 1},
		{"one if the sequences fill the GPU", func(a *attention.DecodeArgs) { a.SMs, a.Sequences, a.KV.MaxPages = 33, 67, 64 }, 1, 1},
		{"a window", func(a *attention.DecodeArgs) { a.Scoring.Window, a.KV.MaxPages = 130, 100 }, 3, 1},
		{"a window that begins with a split", func(a *attention.DecodeArgs) { a.Scoring.Window, a.KV.MaxPages = 129, 100 }, 2, 1},
		{"chunks of whole splits", func(a *attention.DecodeArgs) { a.Scoring.Window, a.Scoring.Chunks, a.KV.MaxPages = 512, true, 100 }, 4, 1},
		{"chunks within a split", func(a *attention.DecodeArgs) { a.Scoring.Window, a.Scoring.Chunks = 16, true }, 1, 1},
		{"a window of one position", func(a *attention.DecodeArgs) { a.Scoring.Window = 1 }, 1, 1},
		{"at most eight heads per CTA", func(a *attention.DecodeArgs) { a.Heads, a.Pages, a.QStride, a.OutStride = 24, 1, 1536, 1536 }, 1, 2},
	} {
		a := goodDecode()
		tt.change(&a)
		if l, err := decode.Launch(decodeKernel, a); err != nil || l.Grid != [3]uint32{tt.want, 2 * tt.parts, uint32(a.Sequences)} {
			t.Errorf("%s: grid %v, error %v, want %d CTAs and %d parts", tt.name, l.Grid, err, tt.want, tt.parts)
		}
		if _, needed := a.Combine(shape); needed != (tt.want > 1) {
			t.Errorf("%s: Combine needed: %v, with %d CTAs", tt.name, needed, tt.want)
		}
	}
	for _, tt := range []struct {
		sms, shared int
		alone       bool
	}{{8, 200 << 10, true}, {7, 200 << 10, false}, {8, 0, false}} {
		a := goodDecode()
		a.Sequences, a.Pages, a.SMs, a.Shared = 1, 2, tt.sms, tt.shared
		l, err := decode.Launch(decodeKernel, a)
		if alone := l.Shared > 100<<10; err != nil || alone != tt.alone {
			t.Errorf("2 CTAs on %d SMs, at most %d bytes: %d bytes, error %v, want one CTA per SM: %v", tt.sms, tt.shared, l.Shared, err, tt.alone)
		}
	}
	l, err = prefill.Launch(prefillKernel, goodPrefill())
	if err != nil || l.Grid != [3]uint32{8, 3, 3} {
		t.Errorf("prefill: grid %v, error %v", l.Grid, err)
	}
	large := attention.PrefillWGMMA(attention.Shape{KV: quant.F16, HeadDim: 64, BlockQ: 192})
	l, err = large.Launch(build(t, large), goodPrefill())
	if err != nil || l.Grid != [3]uint32{8, 2, 3} || l.Block != [3]uint32{512, 1, 1} {
		t.Errorf("wgmma: grid %v of %v threads, error %v", l.Grid, l.Block, err)
	}
	refuse := func(name, want string, launch func() (ptx.Launch, error)) {
		t.Run(name, func(t *testing.T) {
			if _, err := launch(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		})
	}
	for _, tt := range []struct {
		name, want string
		spoil      func(*attention.DecodeArgs)
	}{
		{"no sequences", "Sequences: 0", func(a *attention.DecodeArgs) { a.Sequences = 0 }},
		{"heads no multiple of KV heads", "KVHeads: 3 do not divide 8", func(a *attention.DecodeArgs) { a.KV.KVHeads = 3 }},
		{"no pages", "MaxPages: 0", func(a *attention.DecodeArgs) { a.KV.MaxPages = 0 }},
		{"positions above 32 bits", "MaxPages: 67108864", func(a *attention.DecodeArgs) { a.KV.MaxPages = 1 << 26 }},
		{"rows above 32 bits", "QStride: 1073741824", func(a *attention.DecodeArgs) { a.QStride = 1 << 30 }},
		{"-1 SMs", "SMs: -1", func(a *attention.DecodeArgs) { a.SMs = -1 }},
		{"little shared memory", "Shared: 4096 bytes", func(a *attention.DecodeArgs) { a.Shared = 4096 }},
		{"-1 fresh positions", "Fresh: -1", func(a *attention.DecodeArgs) { a.Fresh = -1 }},
		{"more pages than MaxPages", "Pages: 10", func(a *attention.DecodeArgs) { a.Pages = 10 }},
		{"scale 0", "Scale: 0", func(a *attention.DecodeArgs) { a.Scoring.Scale = 0 }},
		{"negative softcap", "Softcap: -1", func(a *attention.DecodeArgs) { a.Scoring.Softcap = -1 }},
		{"chunks of no power of two", "Window: chunks of 48", func(a *attention.DecodeArgs) { a.Scoring.Window, a.Scoring.Chunks = 48, true }},
		{"chunks of no size", "Chunks: there is no Window", func(a *attention.DecodeArgs) { a.Scoring.Chunks = true }},
		{"negative window", "Window: -1", func(a *attention.DecodeArgs) { a.Scoring.Window = -1 }},
		{"overlapping rows", "QStride: 508", func(a *attention.DecodeArgs) { a.QStride = 508 }},
		{"unaligned rows", "QStride: 514", func(a *attention.DecodeArgs) { a.QStride = 514 }},
		{"no scratch", "Scratch: no address", func(a *attention.DecodeArgs) { a.Scratch = 0 }},
		{"no output", "Out: no address", func(a *attention.DecodeArgs) { a.Out = 0 }},
		{"overlapping outputs", "OutStride: 508", func(a *attention.DecodeArgs) { a.OutStride = 508 }},
		{"no table", "Table: no address", func(a *attention.DecodeArgs) { a.KV.Table = 0 }},
	} {
		a := goodDecode()
		tt.spoil(&a)
		refuse("decode/"+tt.name, tt.want, func() (ptx.Launch, error) { return decode.Launch(decodeKernel, a) })
	}
	for _, tt := range []struct {
		name, want string
		spoil      func(*attention.PrefillArgs)
	}{
		{"no queries", "MaxQueries: 0", func(a *attention.PrefillArgs) { a.MaxQueries = 0 }},
		{"positions above 32 bits", "MaxPages: 67108864", func(a *attention.PrefillArgs) { a.KV.MaxPages = 1 << 26 }},
		{"overlapping output rows", "OutStride: 256", func(a *attention.PrefillArgs) { a.OutStride = 256 }},
		{"no starts", "Starts: no address", func(a *attention.PrefillArgs) { a.Starts = 0 }},
	} {
		a := goodPrefill()
		tt.spoil(&a)
		refuse("prefill/"+tt.name, tt.want, func() (ptx.Launch, error) { return prefill.Launch(prefillKernel, a) })
	}
}

func TestPrefillFor(t *testing.T) {
	hopper := ptx.Target{Version: 84, SM: 90, Arch: true}
	for _, tt := range []struct {
		name    string
		shape   attention.Shape
		queries int
		target  ptx.Target
		want    string
	}{
		{"many tiles", attention.Shape{KV: quant.F16, HeadDim: 64}, 192 * 33, hopper, "flash_wgmma_f16_d64_q192"},
		{"one tile too few", attention.Shape{KV: quant.F16, HeadDim: 64}, 192*33 - 1, hopper, "flash_wgmma_f16_d64"},
		{"a large head", attention.Shape{KV: quant.BF16, HeadDim: 128}, 192 * 33, hopper, "flash_wgmma_bf16_d128"},
		{"head dim of 72", attention.Shape{KV: quant.F16, HeadDim: 72}, 192 * 33, hopper, "flash_attention_f16_d72"},
		{"another device", attention.Shape{KV: quant.F16, HeadDim: 128}, 192 * 33, ptx.Target{Version: 84, SM: 89}, "flash_attention_f16_d128_p64_q64_k64"},
		{"an A100", attention.Shape{KV: quant.F16, HeadDim: 128}, 192 * 33, ptx.Target{Version: 84, SM: 80}, "flash_attention_f16_d128"},
		{"a driver of CUDA 12.0", attention.Shape{KV: quant.F16, HeadDim: 128}, 192 * 33, ptx.Target{Version: 80, SM: 90}, "flash_wgmma_f16_d128"},
		{"an old driver", attention.Shape{KV: quant.F16, HeadDim: 128}, 192 * 33, ptx.Target{Version: 78, SM: 90}, "flash_attention_f16_d128"},
	} {
		a := goodPrefill()
		a.MaxQueries = tt.queries
		if got := attention.PrefillFor(tt.shape, a, tt.target, 132).Name(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestCombineLaunchErrors(t *testing.T) {
	good := attention.CombineArgs{Scratch: 256, Lengths: 256, Out: 256, Scoring: attention.Scoring{Scale: 1}, Sequences: 3, Heads: 8, OutStride: 512, MaxSplits: 9, SplitKeys: 256}
	for field, change := range map[string]func(*attention.CombineArgs){
		"Sequences": func(a *attention.CombineArgs) { a.Sequences = 0 },
		"MaxSplits": func(a *attention.CombineArgs) { a.MaxSplits = 1 << 26 },
		"SplitKeys": func(a *attention.CombineArgs) { a.SplitKeys = 48 },
		"OutStride": func(a *attention.CombineArgs) { a.OutStride = 1 << 30 },
		"Scratch":   func(a *attention.CombineArgs) { a.Scratch = 0 },
	} {
		a := good
		change(&a)
		s := attention.Combine(64)
		if _, err := s.Launch(build(t, s), a); err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("error %v, want one about %s", err, field)
		}
	}
}

func TestScratchBytes(t *testing.T) {
	for dim, rows := range map[int]int64{64: 9, 160: 15} { // a split is two pages, or one
		got := attention.Shape{KV: quant.F16, HeadDim: dim}.ScratchBytes(1, 3, 5)
		if want := (8*rows+15)/16*16 + 4*rows*int64(dim); got != want {
			t.Errorf("head dim %d: %d bytes, want %d", dim, got, want)
		}
	}
}

func build(t *testing.T, s kernel.Spec) *ptx.Kernel {
	t.Helper()
	k, err := s.Build()
	if err != nil {
		t.Fatalf("%s: %v", s.Name(), err)
	}
	return k
}

// Shared memory admits as many CTAs of a decode step per SM of 228 KB as registers do, for four query heads per KV head.
func TestDecodeResidency(t *testing.T) {
	const perSM, reserved, threads = 228 << 10, 1 << 10, 512
	for _, dim := range []int{64, 128} {
		s := attention.Decode(attention.Shape{KV: quant.F16, HeadDim: dim, Append: true})
		k := build(t, s)
		a := goodDecode()
		a.QStride, a.OutStride = 8*dim, 8*dim
		a.Append = rope.AppendArgs{
			Q: a.Q, Key: 256, Value: 256, Positions: 256, Lengths: a.KV.Lengths, Table: a.KV.Table, KCache: a.KV.K, VCache: a.KV.V, QStride: a.QStride,
			Tokens: a.Sequences, Heads: a.Heads, KVHeads: a.KV.KVHeads, HeadDim: dim, MaxPages: a.KV.MaxPages,
		}
		l, err := s.Launch(k, a)
		if err != nil {
			t.Fatal(err)
		}
		if ctas := threads / int(l.Block[0]); ctas*(int(l.Shared)+k.Static+reserved) > perSM {
			t.Errorf("head dim %d: %d bytes of shared memory: not %d CTAs per SM", dim, int(l.Shared)+k.Static, ctas)
		}
	}
}
