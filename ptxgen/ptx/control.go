package ptx

// If emits a branch: threads with p execute then.
func (b *Builder) If(p Pred, then func()) { b.IfElse(p, then, nil) }

// IfElse emits a branch: threads with p execute then, the others alt.
func (b *Builder) IfElse(p Pred, then, alt func()) {
	n := &branch{pred: p.op, pc: callerPC()}
	b.noGuard("a branch")
	b.into(&n.then, then)
	b.into(&n.alt, alt)
	*b.block = append(*b.block, n)
}

// When predicates the instructions of body with p, without a branch. The body must be
// straight-line code. A variable that it Sets keeps its value in threads without p.
func (b *Builder) When(p Pred, body func()) { b.guarded(&guard{pred: p.op}, body) }

// Unless is When with the inverted predicate.
func (b *Builder) Unless(p Pred, body func()) { b.guarded(&guard{pred: p.op, not: true}, body) }

func (b *Builder) guarded(g *guard, body func()) {
	b.noGuard("a predicated section")
	b.guard = g
	body()
	b.guard = nil
}

func (b *Builder) noGuard(what string) {
	if b.guard != nil {
		b.fail("%s inside a predicated section", what)
	}
}

// into redirects to list what f emits.
func (b *Builder) into(list *[]node, f func()) {
	if f == nil {
		return
	}
	outer := b.block
	b.block = list
	f()
	b.block = outer
}

// LoopOption is an option of For or While.
type LoopOption func(*loop)

// NoUnroll emits .pragma "nounroll" for the loop.
func NoUnroll(l *loop) { l.noUnroll = true }

// For emits a loop over i = start, start+step, … while i < end, unsigned. end is read in each
// iteration. i + step must not overflow.
func (b *Builder) For(start, end, step U32, body func(i U32), options ...LoopOption) {
	i := Var(start)
	n := &loop{bottom: true, pc: callerPC()}
	for _, o := range options {
		o(n)
	}
	b.noGuard("a loop")
	b.into(&n.body, func() {
		body(i)
		Set(i, i.Add(step))
		n.pred = i.Lt(end).op
	})
	if start.op.kind == immediate && end.op.kind == immediate {
		if uint32(start.op.n) < uint32(end.op.n) {
			*b.block = append(*b.block, n)
		}
		return
	}
	b.If(start.Lt(end), func() { *b.block = append(*b.block, n) })
}

// While emits a loop that evaluates cond before each iteration of body.
func (b *Builder) While(cond func() Pred, body func(), options ...LoopOption) {
	n := &loop{pc: callerPC()}
	for _, o := range options {
		o(n)
	}
	b.noGuard("a loop")
	b.into(&n.cond, func() { n.pred = cond().op })
	b.into(&n.body, body)
	*b.block = append(*b.block, n)
}

// ReturnIf emits a predicated ret. Threads that have returned do not take part in later barriers
// and warp operations.
func (b *Builder) ReturnIf(p Pred) {
	b.noGuard("a return")
	in := b.emit("ret", 0)
	in.guard = &guard{pred: p.op}
}
