package accel

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/accel/internal/memory"
	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/quant"
)

// MemoryPlan is the device memory of an engine, in bytes unless noted.
type MemoryPlan struct {
	Device      string // its name
	Weights     int64  // packed matrices, norms and biases
	KVCache     int64  // keys and values
	States      int64  // recurrent states of sequences
	Activations int64  // of the batch, and the logits
	Workspace   int64  // scratch memory of kernels
	Tables      int64  // RoPE frequencies, page tables and the inputs of a step
	Pages       int    // pages of the KV cache
	PageBytes   int64  // of one page, in all layers
	KV          quant.Format
	Chunk       int   // maximum number of prompt tokens per forward pass
	Free        int64 // free memory of the device
	Reserve     int64 // part of Free that is left to the driver, for kernels and graphs
}

// 1/reserveDivisor of the free memory is left to the driver, for kernels and graphs.
const reserveDivisor = 32

// PlanMemory returns the memory of an engine of m on a device with the given properties and
// free bytes, without using the device. If the engine does not fit, PlanMemory returns the
// plan and an error that wraps driver.ErrOutOfMemory. A GPU that is too old is
// ErrComputeCapability, and a model without kernels model.ErrUnsupported.
func PlanMemory(m *model.Model, props driver.Properties, free int64, o Options) (MemoryPlan, error) {
	s, err := newSetup(m, props, free, o)
	if err != nil {
		return MemoryPlan{}, err
	}
	return s.plan, s.plan.fits()
}

// setup is the plan of an engine that is not open yet.
type setup struct {
	options Options // with the defaults filled in
	layout  *plan.Layout
	plan    MemoryPlan
}

// newSetup checks the model, the device and the options, and plans the memory.
func newSetup(m *model.Model, props driver.Properties, free int64, o Options) (setup, error) {
	if err := supported(m, props); err != nil {
		return setup{}, err
	}
	o, err := o.withDefaults(&m.Config)
	if err != nil {
		return setup{}, err
	}
	l, err := plan.NewLayout(m, props, plan.Config{
		Sequences: o.MaxSequences, Chunk: o.Chunk, KVPages: o.KVPages, KV: o.KV.Format(quant.F16),
		Views: o.Tap != nil, Budget: free - free/reserveDivisor,
	})
	if err != nil {
		return setup{}, refused(err)
	}
	setTokenAddress(l, l.Memory.Placeholders())
	if err := l.Check(); err != nil {
		return setup{}, refused(err)
	}
	return setup{o, l, newPlan(l, props, free, o)}, nil
}

// refused wraps the error of a kernel that cannot compute the model.
func refused(err error) error { return fmt.Errorf("accel: %w: %w", model.ErrUnsupported, err) }

func newPlan(l *plan.Layout, props driver.Properties, free int64, o Options) MemoryPlan {
	bytes := l.Memory.Bytes()
	return MemoryPlan{
		Device:  props.Name,
		Weights: bytes[memory.Weights], KVCache: bytes[memory.KVCache], States: bytes[memory.States], Activations: bytes[memory.Activations],
		Workspace: bytes[memory.Workspace], Tables: bytes[memory.Tables],
		Pages: l.Pages, PageBytes: l.KV.PageBytes(), KV: o.KV.Format(quant.F16),
		Chunk: o.Chunk, Free: free, Reserve: free / reserveDivisor,
	}
}

// Positions returns the number of positions that the KV cache holds.
func (p MemoryPlan) Positions() int { return p.Pages * attention.PageTokens }

// Need returns the device memory of the engine.
func (p MemoryPlan) Need() int64 {
	return p.Weights + p.KVCache + p.States + p.Activations + p.Workspace + p.Tables
}

func (p MemoryPlan) fits() error {
	if p.Need() <= p.Free-p.Reserve {
		return nil
	}
	return fmt.Errorf("accel: %w: need %d bytes (weights %d, KV cache %d, states %d, activations %d, workspace %d, tables %d) of %d free, %d of them reserved",
		driver.ErrOutOfMemory, p.Need(), p.Weights, p.KVCache, p.States, p.Activations, p.Workspace, p.Tables, p.Free, p.Reserve)
}

// String returns a table of the memory by use.
func (p MemoryPlan) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n int64, note string) {
		fmt.Fprintf(w, "%s\t%.1f MiB\t  %s\n", name, float64(n)/(1<<20), note)
	}
	row("weights", p.Weights, "")
	row("KV cache", p.KVCache, fmt.Sprintf("%d pages of %d positions, %v", p.Pages, attention.PageTokens, p.KV))
	if p.States > 0 {
		row("states", p.States, "of sequences, and their copies")
	}
	row("activations", p.Activations, "")
	row("workspace", p.Workspace, "")
	row("tables", p.Tables, "")
	row("total", p.Need(), "")
	row("free", p.Free, fmt.Sprintf("%.1f MiB of it stay free", float64(p.Reserve)/(1<<20)))
	w.Flush()
	return out.String()
}
