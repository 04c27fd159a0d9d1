package accel_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/model"
)

// Example continues a text and prints how it was computed. Package generate does it for many
// texts at once.
func Example() {
	ctx := context.Background()
	m := must(golden.Model()) // or model.Open("file.gguf")
	defer m.Close()
	dev := must(emu.Open(emu.Options{SMs: 4, IgnoreRaces: true})) // or cuda.Open(0)
	defer dev.Close()
	eng := must(accel.New(ctx, m, dev, accel.Options{}))
	defer eng.Close()
	seq := must(eng.NewSequence(0))
	defer seq.Close()
	prompt := must(m.Prompt("Well, Prince,", false, m.Config.Context))
	row := model.Row{Sequence: seq, Tokens: prompt, Prompt: true, Want: model.WantToken}
	pass := must(eng.Step(ctx, []model.Row{row}))
	decoder := m.Tokenizer.NewDecoder(prompt...)
	for range 4 {
		next := must(eng.Step(ctx, []model.Row{{Sequence: seq, Want: model.WantToken}})) // queued before the token is known
		fmt.Print(decoder.Next(must(pass.Wait())[0].Token))
		pass = next
	}
	s := eng.Stats()
	fmt.Printf("\n%d prompt of %d tokens, %d steps: %d runs of %d graph\n", s.Chunks, s.ChunkTokens, s.DecodeSteps, s.GraphLaunches, s.Captures)
	// Output:
	//  I have been told
	// 1 prompt of 5 tokens, 4 steps: 4 runs of 1 graph
}

// ExamplePlanMemory prints the memory of an engine before it is allocated.
func ExamplePlanMemory() {
	m := must(golden.Model())
	defer m.Close()
	dev := must(emu.Open(emu.Options{}))
	defer dev.Close()
	for _, free := range []int64{1 << 30, 8 << 20} {
		p, err := accel.PlanMemory(m, dev.Properties(), free, accel.Options{KV: model.KVBF16, KVPages: 4})
		fmt.Printf("%d positions, %d KiB for keys and values; fits into %d MiB: %v\n",
			p.Positions(), p.KVCache>>10, free>>20, !errors.Is(err, driver.ErrOutOfMemory))
	}
	// Output:
	// 256 positions, 768 KiB for keys and values; fits into 1024 MiB: true
	// 256 positions, 768 KiB for keys and values; fits into 8 MiB: false
}

// ExampleOptions_timer measures the kernels of a single step.
func ExampleOptions_timer() {
	m := must(golden.Model())
	defer m.Close()
	dev := must(emu.Open(emu.Options{SMs: 4, IgnoreRaces: true}))
	defer dev.Close()
	eng := must(accel.New(context.Background(), m, dev, accel.Options{Timer: func(t accel.Timing) {
		launches, took := map[string]int{}, map[string]time.Duration{}
		for i, s := range t.Launches {
			launches[s.Op]++
			took[s.Op] += t.Durations[i]
		}
		fmt.Printf("attention: %d launches, logits: %d, which takes longer: %v\n", launches["attention"], launches["logits"], took["logits"] > took["attention"])
	}}))
	defer eng.Close()
	s := must(eng.NewSequence(0))
	defer s.Close()
	must(eng.Step(context.Background(), []model.Row{{Sequence: s, Tokens: []int{1}, Want: model.WantToken}}))
	// Output:
	// attention: 6 launches, logits: 1, which takes longer: true
}

// ExampleLaunchesFor lists the launches of the first layer.
func ExampleLaunchesFor() {
	m := must(golden.Model())
	defer m.Close()
	dev := must(emu.Open(emu.Options{}))
	defer dev.Close()
	for _, s := range must(accel.LaunchesFor(m, dev.Properties(), accel.Options{}, 1, 100, false)) {
		if s.Layer == 0 {
			fmt.Println(s.Op+":", s.Kernel)
		}
	}
	// Output:
	// QKV: product_stream_q8_0_1_w20_r2x2_c1_norm
	// attention: attention_decode_append_f16_d32
	// O: product_stream_q8_0_1_w20_r2x2_c1
	// feed-forward: product_stream_q8_0_1_w20_r2x2_c1_norm_silu_gated
	// down: product_stream_q8_0_1_w20_r2x2_c1
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
