package ptxgen_test

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

func TestAttentionRefusesSpecs(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec ptxgen.Spec
		want string // part of the error
	}{
		{"quantized cache", ptxgen.AttentionDecode{KV: quant.Q8_0, HeadDim: 64}, "KV: Q8_0"},
		{"odd head dim", ptxgen.AttentionDecode{KV: quant.F16, HeadDim: 68}, "HeadDim: 68"},
		{"large head dim", ptxgen.AttentionDecode{KV: quant.F16, HeadDim: 264}, "HeadDim: 264"},
		{"page of 48", ptxgen.AttentionDecode{KV: quant.F16, HeadDim: 64, Page: 48}, "Page: 48"},
		{"a page beyond a CTA", ptxgen.AttentionDecode{KV: quant.F32, HeadDim: 256, Page: 256}, "more than 512 threads"},
		{"combine", ptxgen.AttentionCombine{HeadDim: 4}, "HeadDim: 4"},
		{"flash: quantized cache", ptxgen.FlashAttention{KV: quant.Q4_0, HeadDim: 64}, "KV: Q4_0"},
		{"flash: tile of 48", ptxgen.FlashAttention{KV: quant.F16, HeadDim: 64, BlockQ: 48}, "BlockQ: 48"},
		{"flash: block beyond the page", ptxgen.FlashAttention{KV: quant.F16, HeadDim: 64, Page: 32, BlockK: 64}, "BlockK: 64"},
		{"flash: block of fewer rows than copied at once", ptxgen.FlashAttention{KV: quant.F16, HeadDim: 256, BlockQ: 128, BlockK: 16}, "BlockK: 16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.spec.Build(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

var goodKV = ptxgen.PagedKV{K: 256, V: 256, Table: 256, Lengths: 256, KVHeads: 2, MaxPages: 9}

func goodDecode() ptxgen.AttentionDecodeArgs {
	return ptxgen.AttentionDecodeArgs{Q: 256, Scratch: 256, PagedKV: goodKV, Scoring: ptxgen.Scoring{Scale: 1}, Sequences: 3, Heads: 8, QStride: 512}
}

func goodFlash() ptxgen.FlashAttentionArgs {
	return ptxgen.FlashAttentionArgs{Q: 256, Out: 256, Starts: 256, PagedKV: goodKV, Scoring: ptxgen.Scoring{Scale: 1},
		Sequences: 3, Heads: 8, QStride: 512, OutStride: 512, MaxQueries: 300}
}

func TestAttentionLaunch(t *testing.T) {
	decode, flash := ptxgen.AttentionDecode{KV: quant.F16, HeadDim: 64}, ptxgen.FlashAttention{KV: quant.F16, HeadDim: 64}
	kd, kf := build(t, decode), build(t, flash)
	l, err := decode.Launch(kd, goodDecode())
	if err != nil || l.Grid != [3]uint32{9, 2, 3} {
		t.Errorf("decode: grid %v, error %v", l.Grid, err)
	}
	for _, tt := range []struct {
		name   string
		change func(*ptxgen.AttentionDecodeArgs)
		want   uint32 // CTAs a KV head of a sequence
	}{
		{"as many as run at a time", func(a *ptxgen.AttentionDecodeArgs) { a.SMs, a.Sequences, a.MaxPages = 132, 1, 2048 }, 528},
		{"fewer pages", func(a *ptxgen.AttentionDecodeArgs) { a.SMs, a.Pages = 132, 3 }, 3},
		{"an equal part for each sequence", func(a *ptxgen.AttentionDecodeArgs) { a.SMs, a.Sequences, a.MaxPages = 33, 4, 128 }, 33},
		{"no more than so many pages each", func(a *ptxgen.AttentionDecodeArgs) { a.SMs, a.Sequences, a.MaxPages = 33, 40, 129 }, 17},
		{"what a window spans", func(a *ptxgen.AttentionDecodeArgs) { a.Window, a.MaxPages = 66, 100 }, 3},
		{"a window of whole pages", func(a *ptxgen.AttentionDecodeArgs) { a.Window, a.MaxPages = 65, 100 }, 2},
		{"a window of a position", func(a *ptxgen.AttentionDecodeArgs) { a.Window = 1 }, 1},
	} {
		a := goodDecode()
		tt.change(&a)
		if l, err := decode.Launch(kd, a); err != nil || l.Grid != [3]uint32{tt.want, 2, uint32(a.Sequences)} {
			t.Errorf("%s: grid %v, error %v, want %d CTAs", tt.name, l.Grid, err, tt.want)
		}
	}
	l, err = flash.Launch(kf, goodFlash())
	if err != nil || l.Grid != [3]uint32{8, 3, 3} {
		t.Errorf("flash: grid %v, error %v", l.Grid, err)
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
		spoil      func(*ptxgen.AttentionDecodeArgs)
	}{
		{"no sequences", "Sequences: 0", func(a *ptxgen.AttentionDecodeArgs) { a.Sequences = 0 }},
		{"heads that KV heads do not divide", "KVHeads: 3 do not divide 8", func(a *ptxgen.AttentionDecodeArgs) { a.KVHeads = 3 }},
		{"no pages", "MaxPages: 0", func(a *ptxgen.AttentionDecodeArgs) { a.MaxPages = 0 }},
		{"more pages than positions are counted", "MaxPages: 67108864", func(a *ptxgen.AttentionDecodeArgs) { a.MaxPages = 1 << 26 }},
		{"more rows than are counted", "QStride: 1073741824", func(a *ptxgen.AttentionDecodeArgs) { a.QStride = 1 << 30 }},
		{"fewer than no SMs", "SMs: -1", func(a *ptxgen.AttentionDecodeArgs) { a.SMs = -1 }},
		{"little shared memory", "Shared: 4096 bytes", func(a *ptxgen.AttentionDecodeArgs) { a.Shared = 4096 }},
		{"fewer than no fresh positions", "Fresh: -1", func(a *ptxgen.AttentionDecodeArgs) { a.Fresh = -1 }},
		{"more pages than there are", "Pages: 10", func(a *ptxgen.AttentionDecodeArgs) { a.Pages = 10 }},
		{"scale 0", "Scale: 0", func(a *ptxgen.AttentionDecodeArgs) { a.Scale = 0 }},
		{"negative softcap", "Softcap: -1", func(a *ptxgen.AttentionDecodeArgs) { a.Softcap = -1 }},
		{"negative window", "Window: -1", func(a *ptxgen.AttentionDecodeArgs) { a.Window = -1 }},
		{"rows that overlap", "QStride: 508", func(a *ptxgen.AttentionDecodeArgs) { a.QStride = 508 }},
		{"unaligned rows", "QStride: 514", func(a *ptxgen.AttentionDecodeArgs) { a.QStride = 514 }},
		{"no scratch", "Scratch: no address", func(a *ptxgen.AttentionDecodeArgs) { a.Scratch = 0 }},
		{"no table", "Table: no address", func(a *ptxgen.AttentionDecodeArgs) { a.Table = 0 }},
	} {
		a := goodDecode()
		tt.spoil(&a)
		refuse("decode/"+tt.name, tt.want, func() (ptx.Launch, error) { return decode.Launch(kd, a) })
	}
	for _, tt := range []struct {
		name, want string
		spoil      func(*ptxgen.FlashAttentionArgs)
	}{
		{"no queries", "MaxQueries: 0", func(a *ptxgen.FlashAttentionArgs) { a.MaxQueries = 0 }},
		{"more pages than positions are counted", "MaxPages: 67108864", func(a *ptxgen.FlashAttentionArgs) { a.MaxPages = 1 << 26 }},
		{"output rows that overlap", "OutStride: 256", func(a *ptxgen.FlashAttentionArgs) { a.OutStride = 256 }},
		{"no starts", "Starts: no address", func(a *ptxgen.FlashAttentionArgs) { a.Starts = 0 }},
	} {
		a := goodFlash()
		tt.spoil(&a)
		refuse("flash/"+tt.name, tt.want, func() (ptx.Launch, error) { return flash.Launch(kf, a) })
	}
}

func TestAttentionCombineLaunchErrors(t *testing.T) {
	good := ptxgen.AttentionCombineArgs{Scratch: 256, Lengths: 256, Out: 256, Sequences: 3, Heads: 8, OutStride: 512, MaxPages: 9}
	for field, change := range map[string]func(*ptxgen.AttentionCombineArgs){
		"Sequences": func(a *ptxgen.AttentionCombineArgs) { a.Sequences = 0 },
		"MaxPages":  func(a *ptxgen.AttentionCombineArgs) { a.MaxPages = 1 << 26 },
		"Page":      func(a *ptxgen.AttentionCombineArgs) { a.Page = 48 },
		"OutStride": func(a *ptxgen.AttentionCombineArgs) { a.OutStride = 1 << 30 },
		"Scratch":   func(a *ptxgen.AttentionCombineArgs) { a.Scratch = 0 },
	} {
		if _, err := launcher(ptxgen.AttentionCombine{HeadDim: 64}, good, change)(t); err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("error %v, want one about %s", err, field)
		}
	}
}

func TestAttentionScratch(t *testing.T) {
	got := ptxgen.AttentionDecode{KV: quant.F16, HeadDim: 64}.ScratchBytes(1, 3, 5)
	if want := int64(8*15 + 8 + 4*15*64); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}
