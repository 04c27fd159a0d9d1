package accel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

// TestPlanReserve demands that a cache that takes all memory, and a cache of given size, leave
// the reserve to the driver. A context that is longer than the cache takes no memory.
func TestPlanReserve(t *testing.T) {
	m, free := tinyModel(t), int64(256<<20)
	dev, err := emu.Open(emu.Options{SMs: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, context := range []int{1 << 20, 1 << 30} { // so that memory bounds the cache
		m.Config.Context = context
		p, err := accel.PlanMemory(m, dev.Properties(), free, accel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		unused := p.Free - p.Need()
		if p.Reserve < free/64 || unused < p.Reserve {
			t.Errorf("context %d: the plan leaves %d of %d bytes free, and reserves %d", context, unused, p.Free, p.Reserve)
		}
		const rounding = 16 << 20 // allocations are rounded up to pages of the GPU
		if unused > p.Reserve+rounding {
			t.Errorf("context %d: the plan leaves %d of %d bytes free, but reserves only %d", context, unused, p.Free, p.Reserve)
		}
		more := p.Pages + int((unused-p.Reserve/2)/p.PageBytes)
		if _, err := accel.PlanMemory(m, dev.Properties(), free, accel.Options{KVPages: more}); !errors.Is(err, driver.ErrOutOfMemory) {
			t.Errorf("context %d: %d pages, which take half of the reserve: error %v, want %v", context, more, err, driver.ErrOutOfMemory)
		}
	}
}

// sizes are the sizes of a model of one layer.
type sizes struct {
	arch                          string
	hidden, heads, kvHeads        int
	headDim, rotated, ffn         int
	vocab, context, experts, used int
}

// model returns a model of random weights.
func (z sizes) model(t *testing.T) *model.Model {
	t.Helper()
	m := tiny.New(z.arch, 1)
	m.OneLayer()
	for key, n := range map[string]int{
		".embedding_length": z.hidden, ".attention.head_count": z.heads, ".attention.head_count_kv": z.kvHeads,
		".attention.key_length": z.headDim, ".attention.value_length": z.headDim, ".rope.dimension_count": z.rotated,
		".feed_forward_length": z.ffn, ".vocab_size": z.vocab, ".context_length": z.context,
	} {
		m.Set(key, uint32(n))
	}
	m.Reshape("token_embd.weight", z.hidden, z.vocab)
	m.Reshape("output.weight", z.hidden, z.vocab)
	m.Reshape("output_norm.weight", z.hidden)
	layer := map[string][]int{
		"attn_norm": {z.hidden}, "ffn_norm": {z.hidden}, "attn_output": {z.heads * z.headDim, z.hidden},
		"attn_q": {z.hidden, z.heads * z.headDim}, "attn_k": {z.hidden, z.kvHeads * z.headDim}, "attn_v": {z.hidden, z.kvHeads * z.headDim},
	}
	if z.arch == "qwen3moe" {
		m.Set(".expert_count", uint32(z.experts))
		m.Set(".expert_used_count", uint32(z.used))
		m.Set(".expert_feed_forward_length", uint32(z.ffn))
		layer["attn_q_norm"], layer["attn_k_norm"], layer["ffn_gate_inp"] = []int{z.headDim}, []int{z.headDim}, []int{z.hidden, z.experts}
		layer["ffn_gate_exps"], layer["ffn_up_exps"], layer["ffn_down_exps"] = []int{z.hidden, z.ffn, z.experts}, []int{z.hidden, z.ffn, z.experts}, []int{z.ffn, z.hidden, z.experts}
	} else {
		layer["ffn_gate"], layer["ffn_up"], layer["ffn_down"] = []int{z.hidden, z.ffn}, []int{z.hidden, z.ffn}, []int{z.ffn, z.hidden}
	}
	for name, dims := range layer {
		m.Reshape("blk.0."+name+".weight", dims...)
	}
	loaded, err := model.Load(m.File())
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// TestQKVIsOneLaunch plans steps and prompts of a model in which V has another format than Q and K in some layers.
func TestQKVIsOneLaunch(t *testing.T) {
	m := narrowModel(t, 4)
	for capability, kilobytes := range map[int]int{80: 163, 90: 227} {
		props := driver.Properties{ComputeCapability: capability, PTXVersion: 83, SMs: 132, SharedPerCTA: kilobytes << 10, Memory: 1 << 30}
		for _, tokens := range []int{1, 4, 16, 512} {
			list, err := accel.LaunchesFor(m, props, accel.Options{KVPages: 16, MaxSequences: 16}, tokens, 512, tokens > 16)
			if err != nil {
				t.Fatal(err)
			}
			launches, mixed := map[string]int{}, 0
			for _, l := range list {
				launches[l.Op]++
				if strings.Contains(l.Kernel, "q4_k") && strings.Contains(l.Kernel, "q6_k") {
					mixed++
				}
			}
			if launches["QKV"] != 4 || launches["QKV round"] > 4 || mixed == 0 || mixed == 4 {
				t.Errorf("sm_%d, %d tokens: %d launches, %d of two formats, and %d to round", capability, tokens, launches["QKV"], mixed, launches["QKV round"])
			}
		}
	}
}

// TestLaunchesOfChunks lists a prompt chunk that an engine launches, and refuses a larger one.
func TestLaunchesOfChunks(t *testing.T) {
	m := narrowModel(t, 1)
	props := driver.Properties{ComputeCapability: 90, PTXVersion: 84, SMs: 132, SharedPerCTA: 227 << 10, Memory: 1 << 30}
	for tokens, ok := range map[int]bool{16: true, 17: false} {
		if _, err := accel.LaunchesFor(m, props, accel.Options{KVPages: 4, MaxSequences: 64, Chunk: 16}, tokens, 64, true); (err == nil) != ok {
			t.Errorf("%d tokens: error %v", tokens, err)
		}
	}
}

// TestExpertsAreGrouped plans steps of a mixture for devices with more and more shared memory, without wgmma. Stream
// needs room for whole rows of activations, so on some devices a Tile multiplies by down alone. Its slots must be sorted.
func TestExpertsAreGrouped(t *testing.T) {
	m := sizes{
		arch: "qwen3moe", hidden: 32, heads: 2, kvHeads: 1, headDim: 8, rotated: 8, ffn: 8192, vocab: 16, context: 64, experts: 4, used: 2,
	}.model(t)
	mixed := 0
	for kilobytes := 16; kilobytes <= 64; kilobytes++ {
		props := driver.Properties{ComputeCapability: 100, PTXVersion: 86, SMs: 4, SharedPerCTA: kilobytes << 10, Memory: 1 << 30}
		list, err := accel.LaunchesFor(m, props, accel.Options{KVPages: 1, MaxSequences: 1, Chunk: 1}, 1, 1, false)
		if err != nil {
			continue // some kernel needs more shared memory
		}
		streams, tiles, grouped := 0, 0, false
		for _, l := range list {
			switch {
			case l.Kernel == "moe_group":
				grouped = true
			case strings.HasPrefix(l.Kernel, "product_stream_") && strings.Contains(l.Kernel, "_experts"):
				streams++
			case strings.HasPrefix(l.Kernel, "product_tile_") && strings.Contains(l.Kernel, "_experts"):
				tiles++
			}
		}
		if grouped != (tiles > 0) {
			t.Errorf("%d KiB: %d kernels of Tile, grouped: %v", kilobytes, tiles, grouped)
		}
		if streams > 0 && tiles > 0 {
			mixed++
		}
	}
	if mixed == 0 {
		t.Error("no device has experts of both Stream and Tile")
	}
}

// TestExtremes plans models with extreme sizes. Either PlanMemory and New refuse a model with the
// same error, which names the parameter, its value and the limit, or a prompt and a step run.
func TestExtremes(t *testing.T) {
	var cache emu.Cache
	for _, c := range []struct {
		name    string
		set     func(z *sizes, o *accel.Options, d *emu.Options)
		refused []any // what the error names; nil: the model runs
	}{
		{"sizes of tests", func(z *sizes, o *accel.Options, d *emu.Options) {}, nil},
		{"128 heads per KV head", func(z *sizes, o *accel.Options, d *emu.Options) { z.heads, z.kvHeads = 128, 1 }, nil},
		{"8 heads per KV head of 256", func(z *sizes, o *accel.Options, d *emu.Options) { z.heads, z.kvHeads, z.headDim = 8, 1, 256 }, nil},
		{"128 heads per KV head of 256", func(z *sizes, o *accel.Options, d *emu.Options) { z.heads, z.kvHeads, z.headDim = 128, 1, 256 }, nil},
		{"7 heads", func(z *sizes, o *accel.Options, d *emu.Options) { z.heads, z.kvHeads = 7, 7 }, nil},
		{"one head of 8", func(z *sizes, o *accel.Options, d *emu.Options) { z.heads, z.kvHeads = 1, 1 }, nil},
		{"head dim 4", func(z *sizes, o *accel.Options, d *emu.Options) { z.headDim = 4 }, []any{"head dim", 4, 8}},
		{"head dim 12", func(z *sizes, o *accel.Options, d *emu.Options) { z.headDim = 12 }, []any{"head dim", 12, 8}},
		{"head dim 80", func(z *sizes, o *accel.Options, d *emu.Options) { z.headDim = 80 }, nil},
		{"head dim 128 on sm_86", func(z *sizes, o *accel.Options, d *emu.Options) { z.headDim, d.ComputeCapability = 128, 86 }, nil},
		{"head dim 256 on sm_86", func(z *sizes, o *accel.Options, d *emu.Options) { z.headDim, d.ComputeCapability = 256, 86 }, nil},
		{"head dim 256 in bf16", func(z *sizes, o *accel.Options, d *emu.Options) { z.headDim, o.KV = 256, model.KVBF16 }, nil},
		{"head dim 512 on sm_86", func(z *sizes, o *accel.Options, d *emu.Options) { z.headDim, d.ComputeCapability = 512, 86 }, nil},
		{"head dim 136", func(z *sizes, o *accel.Options, d *emu.Options) { z.headDim = 136 }, []any{"head dim", 136, 128}},
		{"head dim 544", func(z *sizes, o *accel.Options, d *emu.Options) { z.headDim = 544 }, []any{"head dim", 544, 512}},
		{"2 dimensions rotated", func(z *sizes, o *accel.Options, d *emu.Options) { z.rotated = 2 }, nil},
		{"6 dimensions rotated", func(z *sizes, o *accel.Options, d *emu.Options) { z.rotated = 6 }, nil},
		{"one expert", func(z *sizes, o *accel.Options, d *emu.Options) { z.arch, z.experts, z.used = "qwen3moe", 1, 1 }, nil},
		{"32 of 64 experts", func(z *sizes, o *accel.Options, d *emu.Options) { z.arch, z.experts, z.used = "qwen3moe", 64, 32 }, nil},
		{"33 experts used", func(z *sizes, o *accel.Options, d *emu.Options) { z.arch, z.experts, z.used = "qwen3moe", 64, 33 }, []any{"router", "experts used 33", 32}},
		{"vocabulary of 2", func(z *sizes, o *accel.Options, d *emu.Options) { z.vocab = 2 }, nil},
		{"vocabulary of 997", func(z *sizes, o *accel.Options, d *emu.Options) { z.vocab = 997 }, nil},
		{"hidden size 1", func(z *sizes, o *accel.Options, d *emu.Options) { z.hidden = 1 }, nil},
		{"hidden size 37", func(z *sizes, o *accel.Options, d *emu.Options) { z.hidden = 37 }, nil},
		{"feed-forward of 1", func(z *sizes, o *accel.Options, d *emu.Options) { z.ffn = 1 }, nil},
		{"feed-forward of 499", func(z *sizes, o *accel.Options, d *emu.Options) { z.ffn = 499 }, nil},
		{"context of 4", func(z *sizes, o *accel.Options, d *emu.Options) { z.context = 4 }, nil},
		{"context of 1048576", func(z *sizes, o *accel.Options, d *emu.Options) { z.context, o.KVPages = 1<<20, 1 }, nil},
		{"64 sequences", func(z *sizes, o *accel.Options, d *emu.Options) { o.MaxSequences = 64 }, nil},
		{"a chunk per token", func(z *sizes, o *accel.Options, d *emu.Options) { o.Chunk = 1 }, nil},
		{"chunks of 65536", func(z *sizes, o *accel.Options, d *emu.Options) { z.context, o.Chunk = 1<<16, 1<<16 }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			z := sizes{"llama", 8, 2, 1, 8, 0, 8, 16, 80, 4, 2}
			o, device := accel.Options{MaxSequences: 2, KVPages: 2}, emu.Options{SMs: 4, IgnoreRaces: true, Cache: &cache}
			c.set(&z, &o, &device)
			if z.rotated == 0 {
				z.rotated = z.headDim
			}
			m := z.model(t)
			dev, err := emu.Open(device)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			free, _, _ := dev.Memory()
			_, planned := accel.PlanMemory(m, dev.Properties(), free, o)
			e, err := accel.New(t.Context(), m, dev, o)
			if fmt.Sprint(planned) != fmt.Sprint(err) {
				t.Fatalf("PlanMemory returns the error %v, New %v", planned, err)
			}
			if c.refused != nil {
				if !errors.Is(err, model.ErrUnsupported) {
					t.Fatalf("error %v, want %v", err, model.ErrUnsupported)
				}
				for _, part := range c.refused {
					if !strings.Contains(err.Error(), fmt.Sprint(part)) {
						t.Errorf("the error does not name %v: %v", part, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			s := newSequence(t, e)
			for _, row := range []model.Row{{Tokens: []int{1, 0, 1}, Prompt: true}, {Tokens: []int{1}}} {
				row.Sequence, row.Want = s, model.WantLogits
				if _, err := model.Forward(t.Context(), e, row); err != nil {
					t.Errorf("%d tokens: %v", len(row.Tokens), err)
				}
			}
			for _, want := range []model.Want{model.WantHidden, model.WantAll} {
				if _, err := model.Forward(t.Context(), e, model.Row{Sequence: s, Tokens: []int{1}, Want: want}); err != nil && !errors.Is(err, model.ErrContextLimit) {
					t.Errorf("want %d: %v", want, err)
				}
			}
		})
	}
}
