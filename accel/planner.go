package accel

import (
	"fmt"
	"iter"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// step is a launch with its arguments.
type step struct {
	Launch
	launch driver.Launch
	shows  []view // what there is to see after it
}

// view is a result that a tap is shown: width numbers of each row, or the keys or values
// that the cache of a layer holds.
type view struct {
	op     string
	at     ptxgen.Address // f32
	width  int
	stride int            // elements between rows
	cache  ptxgen.Address // instead: a layer's keys or values
}

// pass says what a run over the model computes. Passes that are equal have the same
// steps, whose arguments in memory change, but not the launches.
type pass struct {
	rows  int  // a power of two, of the kernels of decoding; any number, of a prompt
	fast  bool // tensor cores and tiled attention, for a chunk of one prompt
	long  bool // rotates by the factors for long contexts
	pages int  // that the attention of decoding goes over, at most; a power of two or all
	head  bool // logits and the greedy token of every row
}

// planner makes the steps of a pass. Its first failure stays.
type planner struct {
	*shape
	*buffers
	w       *weights
	kv      *pool
	kernels *kernelcache.Cache // nil: steps are planned, but cannot be launched

	pass
	in       rowInputs
	narrowed narrowed // what b.narrow holds
	digited  digited  // what b.digits holds
	layer    int
	steps    []step
	err      error
}

// spec is a kernel that is launched with arguments A.
type spec[A any] interface {
	ptxgen.Spec
	Launch(k *ptx.Kernel, args A) (ptx.Launch, error)
}

// add adds a step.
func add[A any](b *planner, op string, s spec[A], args A) {
	if b.err != nil {
		return
	}
	k, err := kernelOf(s)
	if err != nil {
		b.fail(op, err)
		return
	}
	l, err := s.Launch(k, args)
	if err != nil {
		b.fail(op, err)
		return
	}
	st := step{Launch: Launch{b.layer, op, k.Name, l.Grid, l.Block, l.Shared}}
	if b.kernels != nil {
		if st.launch, err = b.kernels.Launch(l); err != nil {
			b.fail(op, err)
			return
		}
	}
	b.steps = append(b.steps, st)
}

func (b *planner) fail(op string, err error) {
	if b.err == nil {
		b.err = fmt.Errorf("accel: layer %d, %s: %w", b.layer, op, err)
	}
}

// show lets taps see something after the last step.
func (b *planner) show(v view) {
	if n := len(b.steps); n > 0 {
		if v.stride == 0 {
			v.stride = v.width
		}
		b.steps[n-1].shows = append(b.steps[n-1].shows, v)
	}
}

// plan makes the steps of the pass.
func (b *planner) plan() ([]step, error) {
	for range b.parts() {
	}
	return b.steps, b.err
}

// parts makes the steps of the pass part by part: the embedding, each layer, the logits. It
// stops after a failure. Whoever ranges over them may take out the steps that are there.
func (b *planner) parts() iter.Seq[int] {
	return func(yield func(int) bool) {
		b.embed()
		for i := range b.w.layers {
			if b.err != nil || !yield(i) {
				return
			}
			b.layer = i
			b.block(&b.w.layers[i], i)
		}
		b.layer = -1
		if b.pass.head {
			b.logitsOf(b.x, b.rows(), b.in)
		}
		if b.err == nil {
			yield(len(b.w.layers))
		}
	}
}

func (b *planner) rows() int { return b.pass.rows }

// block is a layer.
func (b *planner) block(l *layer, i int) {
	b.project(l)
	if b.cfg.ParallelFFN { // it reads x before attention is added
		b.networkIn(l, l.attnNorm)
	}
	b.attend(l, i)
	b.into("O", product{w: &l.o, x: b.attention, y: b.x, residual: true}, l.attnPost)
	if !b.cfg.ParallelFFN {
		b.networkIn(l, l.ffnNorm)
	}
	b.networkOut(l)
	b.show(view{op: "layer", at: b.x, width: b.cfg.Hidden})
}

// embed is the row of the embedding for each token, plus the row of its position where
// positions are learned.
func (b *planner) embed() {
	b.layer = -1
	e := &b.w.embedding
	args := ptxgen.EmbedArgs{W: e.at, Tokens: b.in.tokens, Out: b.x, Count: b.rows(), K: e.k, Scale: b.cfg.EmbedScale}
	if p := &b.w.position; !p.empty() {
		add(b, "positions", ptxgen.Embed{Format: p.format}, ptxgen.EmbedArgs{W: p.at, Tokens: b.in.positions, Out: b.x, Count: b.rows(), K: p.k})
		args.Residual = b.x
	}
	add(b, "embed", ptxgen.Embed{Format: e.format}, args)
	b.show(view{op: "embed", at: b.x, width: b.cfg.Hidden})
}

// into adds a product to its y, by way of a norm where the model has one.
func (b *planner) into(op string, p product, post norm) {
	defer func() { b.narrowed, b.digited = narrowed{}, digited{} }() // which may have been made of y
	if post.kind == ptxgen.NoNorm {
		b.product(op, p)
		return
	}
	to := p.y
	p.y, p.residual = b.out, false
	b.product(op, p)
	b.normed(op+" norm", b.out, post, to)
}

// normed adds norm(x) to y.
func (b *planner) normed(op string, x ptxgen.Address, n norm, y ptxgen.Address) {
	add(b, op, ptxgen.Norm{Layer: n.kind == ptxgen.LayerNorm}, ptxgen.NormArgs{
		X: x, Weight: n.weight, Bias: n.bias, Residual: y, Y: y, Tokens: b.rows(), Width: b.cfg.Hidden, Eps: b.cfg.NormEps,
	})
}

// logitsOf is the end of the model for some rows of x: logits and greedy tokens, which
// the next step may go on with.
func (b *planner) logitsOf(x ptxgen.Address, rows int, in rowInputs) {
	c := b.cfg
	b.gemv("logits", product{
		w: b.w.output, x: x, norm: b.w.norm, y: b.logits, cap: float32(c.OutputSoftcap), rows: rows,
	})
	b.show(view{op: "logits", at: b.logits, width: c.Vocab})
	best := ptxgen.ArgmaxArgs{
		Logits: b.logits, Best: b.best, Token: in.choices, Rows: rows, Vocab: c.Vocab,
		Next: in.tokens, Positions: in.positions, Lengths: in.lengths,
	}
	add(b, "argmax", ptxgen.Argmax{}, best)
	add(b, "argmax", ptxgen.Argmax{Merge: true}, best)
}
