package plan

import (
	"fmt"
	"iter"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Shape is the shape of a forward pass. Passes of one shape have the same launches, and differ
// only in the contents of device memory. So one CUDA graph serves all decode steps of a shape.
type Shape struct {
	Tokens   int  // a power of two in a decode step, any number in a prompt chunk
	Prefill  bool // a chunk of one prompt, with tensor cores and tiled attention
	LongRope bool // RoPE with the factors for long contexts
	Pages    int  // pages that the attention of a decode step covers: Layout.PagesFor
	Logits   bool // computes logits and the greedy token of every slot
}

// Command is a kernel launch and the results that can be read after it.
type Command struct {
	Layer       int    // -1 outside the layers
	Op          string // the operation, such as attention
	Kernel      string // the kernel's entry name
	Grid, Block [3]uint32
	Shared      uint32        // bytes of dynamic shared memory
	Launch      driver.Launch // zero if the plan has no kernels loaded
	Views       []View
}

// View is a result of a forward pass. It is either a matrix at At, f32 [tokens, Width], whose
// rows are Stride elements apart, or the keys or values of a layer in the KV cache.
type View struct {
	Op            string
	At            ptx.Address
	Width, Stride int
	Cache         ptx.Address // kv.Layer.K or V; if it is set, At, Width and Stride are 0
}

// planner makes the commands of one forward pass. After its first error, err, it makes no
// more.
type planner struct {
	layout  *Layout
	model   *model.Config
	buf     *Buffers
	kernels *kernelcache.Cache // nil: commands cannot be launched

	shape     Shape
	in        inputs
	cast      castKey      // what buf.cast holds
	quantized quantizedKey // what buf.quantized holds
	layer     int
	commands  []Command
	err       error
}

func (l *Layout) planner(s Shape, loaded *kernelcache.Cache) *planner {
	p := &planner{layout: l, model: l.model, buf: &l.Buffers, kernels: loaded, shape: s, in: l.stepInputs(), layer: -1}
	if s.Prefill {
		p.in = l.chunkInputs(s.Tokens)
	}
	return p
}

// Segments returns the commands of a forward pass in segments: the embedding, each layer,
// the logits. A segment is valid until the next one. If loaded is nil, no kernels are loaded
// and the commands cannot be launched. The last element is the error, if any.
func (l *Layout) Segments(s Shape, loaded *kernelcache.Cache) iter.Seq2[[]Command, error] {
	return func(yield func([]Command, error) bool) {
		p := l.planner(s, loaded)
		flush := func() bool {
			if p.err != nil {
				yield(nil, p.err)
				return false
			}
			more := yield(p.commands, nil)
			p.commands = p.commands[:0]
			return more
		}
		p.embed()
		for i := range l.weights.layers {
			if !flush() {
				return
			}
			p.layer = i
			p.transformerBlock(&l.weights.layers[i])
		}
		p.layer = -1
		if s.Logits {
			p.logits(p.buf.x)
		}
		flush()
	}
}

// Commands returns all commands of a forward pass.
func (l *Layout) Commands(s Shape, loaded *kernelcache.Cache) (list []Command, err error) {
	for segment, err := range l.Segments(s, loaded) {
		if err != nil {
			return nil, err
		}
		list = append(list, segment...)
	}
	return list, nil
}

// PromptLogits returns the commands that compute logits and greedy tokens for tokens first to
// first+tokens-1 of the latest prompt chunk. tokens is at most LogitRows.
func (l *Layout) PromptLogits(first, tokens int, loaded *kernelcache.Cache) ([]Command, error) {
	p := l.planner(Shape{Tokens: tokens}, loaded)
	p.in = inputs{chosen: p.buf.PromptTokens}
	p.logits(p.buf.x + ptx.Address(4*first*l.model.Hidden))
	return p.commands, p.err
}

// spec is a kernel that is launched with arguments A.
type spec[A any] interface {
	kernel.Spec
	Launch(k *ptx.Kernel, args A) (ptx.Launch, error)
}

// add adds a command.
func add[A any](p *planner, op string, s spec[A], args A) {
	if p.err != nil {
		return
	}
	k, err := kernelOf(s)
	if err != nil {
		p.fail(op, err)
		return
	}
	l, err := s.Launch(k, args)
	if err != nil {
		p.fail(op, err)
		return
	}
	c := Command{Layer: p.layer, Op: op, Kernel: k.Name, Grid: l.Grid, Block: l.Block, Shared: l.Shared}
	if p.kernels != nil {
		if c.Launch, err = p.kernels.Launch(l); err != nil {
			p.fail(op, err)
			return
		}
	}
	p.commands = append(p.commands, c)
}

func (p *planner) fail(op string, err error) {
	if p.err == nil {
		p.err = fmt.Errorf("layer %d, %s: %w", p.layer, op, err)
	}
}

// addView adds a view to the last command.
func (p *planner) addView(v View) {
	if n := len(p.commands); n > 0 {
		if v.Stride == 0 {
			v.Stride = v.Width
		}
		p.commands[n-1].Views = append(p.commands[n-1].Views, v)
	}
}
