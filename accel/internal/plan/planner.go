package plan

import (
	"fmt"
	"iter"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/internal/sizeclass"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Shape is the shape of a forward pass. Forward passes of one shape have the same launches, and
// differ only in the contents of device memory. So one CUDA graph serves all decode steps of a shape.
type Shape struct {
	Tokens   int  // a size of package sizeclass in a decode step, any number in a prompt chunk
	LongRope bool // RoPE with the factors for long contexts

	// Of a decode step.
	Pages  int  // pages that attention covers: Layout.PagesFor
	Logits bool // computes logits and chooses the token of every slot
	Sample bool // chooses by the sampling states of the slots; else the largest logit

	// Of a prompt chunk, which is computed with tensor cores and tiled attention.
	Sequences int // in the chunk; 0: not a prompt chunk
	Longest   int // the largest number of tokens of one sequence in the chunk
}

// Prompt is the shape of a chunk of one prompt.
func Prompt(tokens int) Shape { return Shape{Tokens: tokens, Sequences: 1, Longest: tokens} }

// Prefill reports whether a shape is a prompt chunk.
func (s Shape) Prefill() bool { return s.Sequences > 0 }

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

// View is a result of a forward pass: an f32 matrix [tokens, Width] at At, whose rows are Stride
// elements apart, or the keys or values of a layer in the KV cache.
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
	list    func(kernel.Spec)  // if it is not nil, it is called for each launch instead of planning it

	shape    Shape
	in       inputs
	normed   activations // what layerNorm wrote to buf.out
	rounded  activations // what buf.rounded holds
	layer    int
	commands []Command
	err      error
}

func (l *Layout) planner(s Shape, loaded *kernelcache.Cache) *planner {
	p := &planner{layout: l, model: l.model, buf: &l.Buffers, kernels: loaded, shape: s, in: l.stepInputs(), layer: -1}
	if s.Prefill() {
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
		p.forward(func() bool {
			if p.err != nil {
				yield(nil, p.err)
				return false
			}
			more := yield(p.commands, nil)
			p.commands = p.commands[:0]
			return more
		})
	}
}

// forward plans a forward pass. It calls flush after each segment, and stops if that returns false.
func (p *planner) forward(flush func() bool) {
	p.embed()
	for i := range p.layout.weights.layers {
		if !flush() {
			return
		}
		p.layer = i
		p.transformerBlock(&p.layout.weights.layers[i])
	}
	p.layer = -1
	if p.model.Streams > 0 {
		p.mergeStreams()
	}
	if p.shape.Logits {
		p.logits(p.buf.x)
	}
	flush()
}

// Commands returns all commands of a forward pass.
func (l *Layout) Commands(s Shape, loaded *kernelcache.Cache) ([]Command, error) {
	var list []Command
	for segment, err := range l.Segments(s, loaded) {
		if err != nil {
			return nil, err
		}
		list = append(list, segment...)
	}
	return list, nil
}

// PromptLogits returns the commands that compute logits and greedy tokens for tokens first to
// first+tokens-1 of the latest prompt chunk. tokens is at most PromptLogitRows. chosen is the address
// of the greedy tokens, u32 [tokens, 2]; token i is in [i][0].
func (l *Layout) PromptLogits(first, tokens int, chosen ptx.Address, loaded *kernelcache.Cache) ([]Command, error) {
	p := l.planner(Shape{Tokens: tokens}, loaded)
	p.promptLogits(first, chosen)
	return p.commands, p.err
}

func (p *planner) promptLogits(first int, chosen ptx.Address) {
	p.in = inputs{chosen: chosen}
	p.logits(p.buf.x + ptx.Address(4*first*p.model.Hidden))
}

// Choose returns the commands that choose tokens from Buffers.SavedLogits by the sampling states 0 to
// states-1. A state with length 0 in Buffers.ChooseInput gets no token. chosen is u32 [states, 2],
// results is u32 [states, 2, sample.ResultWords].
func (l *Layout) Choose(states int, chosen, results ptx.Address, loaded *kernelcache.Cache) ([]Command, error) {
	p := l.planner(Shape{Tokens: states}, loaded)
	p.choose(chosen, results)
	return p.commands, p.err
}

func (p *planner) choose(chosen, results ptx.Address) {
	b := p.buf
	p.in = inputs{chosen: chosen, results: results, masks: b.SampleMasks, positions: b.ChooseInput, lengths: b.ChooseInput + ptx.Address(4*p.layout.Slots)}
	p.sample(b.SavedLogits)
}

// Hidden returns the commands that compute the final norm of the tokens of the latest forward
// pass, and the address of the result, f32 [tokens, hidden].
func (l *Layout) Hidden(tokens int, loaded *kernelcache.Cache) ([]Command, ptx.Address, error) {
	p := l.planner(Shape{Tokens: tokens}, loaded)
	at := p.hidden()
	return p.commands, at, p.err
}

func (p *planner) hidden() ptx.Address {
	n := p.layout.weights.norm
	if n.kind == norm.None {
		return p.buf.x
	}
	add(p, "final norm", norm.Rows(n.kind, quant.F32), norm.RowsArgs{
		X: p.buf.x, Weight: n.weight, Bias: n.bias, Y: p.buf.out, Tokens: p.shape.Tokens, Width: p.model.Hidden, Eps: p.model.NormEps,
	})
	return p.buf.out
}

// Check returns an error if a kernel of some forward pass refuses the model, the device or the
// configuration. It plans passes that launch every kernel at least once, without loading any. The addresses must be
// set, for example by Memory.Placeholders.
func (l *Layout) Check() error {
	for _, pass := range l.passes() {
		p := l.planner(pass.shape, nil)
		pass.plan(p)
		if p.err != nil {
			c := l.model
			return fmt.Errorf("%w (heads %d, KV heads %d, head dim %d, experts %d, experts used %d)", p.err, c.Heads, c.KVHeads, c.HeadDim, c.Experts, c.ExpertsUsed)
		}
	}
	return nil
}

// Kernels returns the kernels of all forward passes, each once. None is built.
func (l *Layout) Kernels() []kernel.Spec { return l.kernelsOf(l.passes()) }

// KernelsFor returns the kernels of forward passes of a shape, and of the logits of a prompt, each once. None is built.
func (l *Layout) KernelsFor(s Shape) []kernel.Spec {
	list := []pass{forwardPass(s)}
	if s.Prefill() {
		list = append(list, l.promptLogitsPass(1))
	}
	return l.kernelsOf(list)
}

func (l *Layout) kernelsOf(list []pass) (specs []kernel.Spec) {
	seen := map[string]bool{}
	for _, pass := range list {
		p := l.planner(pass.shape, nil)
		p.list = func(s kernel.Spec) {
			if name := s.Name(); !seen[name] {
				seen[name] = true
				specs = append(specs, s)
			}
		}
		pass.plan(p)
	}
	return specs
}

// pass is a forward pass, or the logits, the norm or the sampling after one.
type pass struct {
	shape Shape
	plan  func(*planner)
}

func forwardPass(s Shape) pass {
	return pass{s, func(p *planner) { p.forward(func() bool { return p.err == nil }) }}
}

func (l *Layout) promptLogitsPass(rows int) pass {
	return pass{Shape{Tokens: rows}, func(p *planner) { p.promptLogits(0, l.Buffers.StepTokens) }}
}

// passes returns passes that launch every kernel at least once.
func (l *Layout) passes() (list []pass) {
	shape := func(s Shape) { list = append(list, forwardPass(s)) }
	for tokens := 1; tokens <= l.Slots; tokens = sizeclass.Of(tokens + 1) {
		shape(Shape{Tokens: tokens, Pages: l.MaxPages, Logits: true})
	}
	list = append(list, pass{Shape{Tokens: 1}, func(p *planner) { p.hidden() }},
		pass{Shape{Tokens: 1}, func(p *planner) { p.choose(l.Buffers.StepTokens, l.Buffers.StepResults) }})
	for tokens := 1; tokens < l.config.Chunk; tokens = sizeclass.Of(tokens + 1) {
		shape(Prompt(tokens))
	}
	shape(Prompt(l.config.Chunk))
	for rows := range PromptLogitRows {
		list = append(list, l.promptLogitsPass(rows+1))
	}
	return list
}

// Steps returns the shapes of all decode steps that compute logits, each with and without Sample.
func (l *Layout) Steps() (list []Shape) {
	factors := []bool{false}
	if l.model.LongContext > 0 {
		factors = append(factors, true)
	}
	for tokens := 1; tokens <= l.Slots; tokens = sizeclass.Of(tokens + 1) {
		for _, long := range factors {
			for pages := 1; ; pages = min(2*pages, l.MaxPages) {
				s := Shape{Tokens: tokens, LongRope: long, Pages: pages, Logits: true}
				list = append(list, s)
				s.Sample = true
				list = append(list, s)
				if pages == l.MaxPages {
					break
				}
			}
		}
	}
	return list
}

// spec is a kernel that is launched with arguments A.
type spec[A any] interface {
	kernel.Spec
	Launch(k *ptx.Kernel, args A) (ptx.Launch, error)
}

// add plans a launch, checks it against the limits of the device, and appends it as a command.
func add[A any](p *planner, op string, s spec[A], args A) {
	if p.err != nil {
		return
	}
	if p.list != nil {
		p.list(s)
		return
	}
	k, err := Build(s)
	if err != nil {
		p.fail(op, err)
		return
	}
	l, err := s.Launch(k, args)
	if err == nil {
		err = launchable(l, &p.layout.props)
	}
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

// launchable returns an error if a launch exceeds a limit of the device.
func launchable(l ptx.Launch, props *driver.Properties) error {
	k := l.Kernel
	if need, have := k.Static+int(l.Shared), props.SharedPerCTA; have > 0 && need > have {
		return fmt.Errorf("kernel %s takes %d bytes of shared memory per CTA, the device has %d", k.Name, need, have)
	}
	if need, have := k.MinTarget.Version, props.PTXVersion; have > 0 && need > have {
		return fmt.Errorf("kernel %s needs PTX %d.%d, the driver accepts %d.%d", k.Name, need/10, need%10, have/10, have%10)
	}
	return nil
}

func (p *planner) fail(op string, err error) {
	if p.err == nil {
		p.err = fmt.Errorf("layer %d, %s: %w", p.layer, op, err)
	}
}

// addView adds views to the last command.
func (p *planner) addView(views ...View) {
	n := len(p.commands)
	if n == 0 {
		return
	}
	for _, v := range views {
		if v.Stride == 0 {
			v.Stride = v.Width
		}
		p.commands[n-1].Views = append(p.commands[n-1].Views, v)
	}
}
