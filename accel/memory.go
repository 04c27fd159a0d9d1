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

// Plan is how much device memory an engine takes, and for what. It is made before any
// of it is taken.
type Plan struct {
	Device    string
	Bytes     [classes]int64 // by Class
	Pages     int            // of the KV cache
	PageBytes int64          // of one page, in all layers
	KV        quant.Format
	Sequences int   // that step together
	Chunk     int   // positions of a prompt that are computed together
	Free      int64 // what the device has
	Reserve   int64 // of that, what is left to the driver, for kernels and graphs
}

// Positions is how many positions the KV cache has room for.
func (p Plan) Positions() int { return p.Pages * page }

// Need is the sum.
func (p Plan) Need() (n int64) {
	for _, b := range p.Bytes {
		n += b
	}
	return n
}

// String is a table for people.
func (p Plan) String() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for c, n := range p.Bytes {
		note := ""
		if Class(c) == KVCache {
			note = fmt.Sprintf("%d pages of %d positions, %v", p.Pages, page, p.KV)
		}
		fmt.Fprintf(w, "%v\t%s\t  %s\n", Class(c), mebibytes(n), note)
	}
	fmt.Fprintf(w, "together\t%s\t\n", mebibytes(p.Need()))
	fmt.Fprintf(w, "free\t%s\t  of which %s stay free\n", mebibytes(p.Free), mebibytes(p.Reserve))
	w.Flush()
	return out.String()
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// MemoryError says that an engine does not fit. errors.Is(err, driver.ErrOutOfMemory)
// holds.
type MemoryError struct{ Plan Plan }

func (e *MemoryError) Error() string {
	p := e.Plan
	var parts []string
	for c, n := range p.Bytes {
		parts = append(parts, fmt.Sprintf("%v %d", Class(c), n))
	}
	return fmt.Sprintf("%v: %d bytes are needed (%s) and %d are free, of which %d must stay free",
		driver.ErrOutOfMemory, p.Need(), strings.Join(parts, ", "), p.Free, p.Reserve)
}

// Unwrap gives driver.ErrOutOfMemory.
func (e *MemoryError) Unwrap() error { return driver.ErrOutOfMemory }

// PlanFor says what an engine of a model would take of a device with so many bytes
// free, without touching it. Where it does not fit, the error is a *MemoryError.
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
	if err := supported(m); err != nil {
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
	l.plan.Pages, l.plan.Bytes = l.pool.pages, l.inventory.bytes()
	return l, nil
}

// pages is how many the cache has: as asked for, or what the memory leaves up to a whole
// context for each sequence.
func (l *layout) pages() int {
	if l.o.KVPages > 0 {
		return l.o.KVPages
	}
	l.plan.Bytes = l.inventory.bytes()
	// Each layer's keys, and values, are rounded up.
	left := l.plan.Free - l.plan.Reserve - l.plan.Need() - 2*pageAlign*int64(l.cfg.Layers)
	return int(max(1, min(left/l.plan.PageBytes, int64(l.o.MaxSequences)*int64(l.maxPages))))
}

func (l *layout) fits() error {
	if l.plan.Need() > l.plan.Free-l.plan.Reserve {
		return fmt.Errorf("accel: %w", &MemoryError{l.plan})
	}
	return nil
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
