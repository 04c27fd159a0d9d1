package accel

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// Plan is the device memory of an engine, in bytes unless noted.
type Plan struct {
	Device      string
	Weights     int64 // packed matrices, norms and biases
	KVCache     int64 // keys and values
	Activations int64 // the hidden state of the batch, and the logits
	Workspace   int64 // scratch memory of kernels
	Tables      int64 // RoPE frequencies, page tables and the inputs of a step
	Pages       int   // pages of the KV cache
	PageBytes   int64 // of one page, in all layers
	KV          quant.Format
	Sequences   int   // most sequences in one step
	Chunk       int   // most tokens of a prompt in one forward pass
	Free        int64 // free memory of the device
	Reserve     int64 // part of Free that is left to the driver, for kernels and graphs
}

// Positions returns the number of positions that the KV cache holds.
func (p Plan) Positions() int { return p.Pages * page }

// Need returns the device memory of the engine.
func (p Plan) Need() int64 { return p.Weights + p.KVCache + p.Activations + p.Workspace + p.Tables }

// String returns a table of the memory by use.
func (p Plan) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n int64, note string) {
		fmt.Fprintf(w, "%s\t%.1f MiB\t  %s\n", name, float64(n)/(1<<20), note)
	}
	row("weights", p.Weights, "")
	row("KV cache", p.KVCache, fmt.Sprintf("%d pages of %d positions, %v", p.Pages, page, p.KV))
	row("activations", p.Activations, "")
	row("workspace", p.Workspace, "")
	row("tables", p.Tables, "")
	row("total", p.Need(), "")
	row("free", p.Free, fmt.Sprintf("%.1f MiB of it stay free", float64(p.Reserve)/(1<<20)))
	w.Flush()
	return out.String()
}

// PlanFor returns the memory of an engine of m on a device with the given properties and
// free bytes, without using the device. If the engine does not fit, PlanFor returns the
// plan and an error that wraps driver.ErrOutOfMemory. A GPU that is too old is
// ErrComputeCapability, and a model without kernels model.ErrUnsupported.
func PlanFor(m *model.Model, props driver.Properties, free int64, o Options) (Plan, error) {
	l, err := newLayout(m, props, free, o)
	if err != nil {
		return Plan{}, err
	}
	return l.plan, l.fits()
}

// layout is an engine's memory as it will be.
type layout struct {
	inventory
	shape
	plan    Plan
	weights *weights
	buffers *buffers
	pool    *pool
}

// reserveShare is the part of free memory that is left to the driver.
const reserveShare = 32

func newLayout(m *model.Model, props driver.Properties, free int64, o Options) (*layout, error) {
	if err := supported(m, props); err != nil {
		return nil, err
	}
	o, err := o.withDefaults(&m.Config)
	if err != nil {
		return nil, err
	}
	l := new(layout)
	l.weights = newWeights(m, &l.inventory)
	l.shape = newShape(m, l.weights, props, o)
	workspace, digits, err := l.workspace()
	if err != nil {
		return nil, err
	}
	l.buffers = newBuffers(&l.shape, workspace, digits, &l.inventory)
	l.pool = newPool(&l.shape)
	l.plan = Plan{
		Device: props.Name, PageBytes: l.pool.pageBytes(), Free: free, Reserve: free / reserveShare,
		KV: l.kvFormat, Sequences: o.MaxSequences, Chunk: o.Chunk,
	}
	l.pool.resize(l.pages(), &l.inventory)
	l.plan.Pages = l.pool.pages
	l.sum()
	return l, nil
}

// sum adds up the inventory into the plan.
func (l *layout) sum() {
	p := &l.plan
	b := l.inventory.bytes()
	p.Weights, p.KVCache, p.Activations, p.Workspace, p.Tables = b[weightMemory], b[cacheMemory], b[activationMemory], b[workspaceMemory], b[tableMemory]
}

// pages is how many the cache has: as asked for, or what the memory leaves up to a whole
// context for each sequence.
func (l *layout) pages() int {
	if l.o.KVPages > 0 {
		return l.o.KVPages
	}
	l.sum()
	// Each layer's keys, and values, are rounded up.
	left := l.plan.Free - l.plan.Reserve - l.plan.Need() - 2*pageAlign*int64(l.cfg.Layers)
	return int(max(1, min(left/l.plan.PageBytes, int64(l.o.MaxSequences)*int64(l.maxPages))))
}

func (l *layout) fits() error {
	p := l.plan
	if p.Need() <= p.Free-p.Reserve {
		return nil
	}
	return fmt.Errorf("accel: %w: need %d bytes (weights %d, KV cache %d, activations %d, workspace %d, tables %d) of %d free, %d of them reserved",
		driver.ErrOutOfMemory, p.Need(), p.Weights, p.KVCache, p.Activations, p.Workspace, p.Tables, p.Free, p.Reserve)
}

// workspace is what the largest product of any pass needs, and the digits of its rows: the
// kernels are asked for each shape of weights and each number of rows.
func (l *layout) workspace() (largest, digits int64, err error) {
	b := &planner{shape: &l.shape, buffers: new(buffers), w: l.weights}
	ask := func(p product) {
		if err != nil || p.w.empty() {
			return
		}
		var n, d int64
		n, d, err = b.gemvWorkspace(p)
		largest, digits = max(largest, n), max(digits, d)
	}
	for rows := 1; rows <= l.headRows; rows *= 2 {
		b.pass.rows = rows
		for i := range l.weights.layers {
			y := &l.weights.layers[i]
			for _, w := range y.matrices() {
				ask(product{w: w})
			}
			if !y.gate.empty() && y.gate.format == y.up.format {
				ask(product{w: &y.gate, up: &y.up})
			}
		}
		ask(product{w: l.weights.output})
	}
	return largest, digits, err
}

// hostBytes is the pinned memory that an engine reads through: a few rows of logits, and
// at least one page.
func (l *layout) hostBytes() int {
	const most = 32 << 20
	return max(4*l.cfg.Vocab, l.pool.bytes, min(4*l.cfg.Vocab*l.headRows, most))
}

// tileBytes is the most that 16 rows of a matrix take.
func (l *layout) tileBytes() (most int) {
	ask := func(m *matrix) {
		if !m.empty() {
			most = max(most, ptxgen.Packing{Format: m.format, K: m.k}.Bytes(tileRows))
		}
	}
	for _, m := range []*matrix{&l.weights.embedding, &l.weights.position, l.weights.output} {
		ask(m)
	}
	for i := range l.weights.layers {
		for _, m := range l.weights.layers[i].matrices() {
			ask(m)
		}
	}
	return most
}
