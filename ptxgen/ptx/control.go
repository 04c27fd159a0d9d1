package ptx

// If runs then where p holds.
func (b *Builder) If(p Pred, then func()) { b.IfElse(p, then, nil) }

// IfElse runs then where p holds, otherwise alt.
func (b *Builder) IfElse(p Pred, then, alt func()) {
	n := &branch{pred: p.op, pc: author()}
	b.noGuard("a branch")
	b.into(&n.then, then)
	b.into(&n.alt, alt)
	*b.block = append(*b.block, n)
}

// When predicates the instructions of body with p instead of branching around
// them. The body must be straight-line code. A variable Set inside keeps its value
// where p is false.
func (b *Builder) When(p Pred, body func()) { b.guarded(&guard{pred: p.op}, body) }

// Unless is When with the predicate turned round.
func (b *Builder) Unless(p Pred, body func()) { b.guarded(&guard{pred: p.op, not: true}, body) }

func (b *Builder) guarded(g *guard, body func()) {
	b.noGuard("a predicated part")
	b.guard = g
	body()
	b.guard = nil
}

func (b *Builder) noGuard(what string) {
	if b.guard != nil {
		b.fail("%s inside a predicated part", what)
	}
}

// into collects what f emits in list.
func (b *Builder) into(list *[]node, f func()) {
	if f == nil {
		return
	}
	outer := b.block
	b.block = list
	f()
	b.block = outer
}

// LoopOption changes how a loop is compiled.
type LoopOption func(*loop)

// NoUnroll asks the assembler to leave the loop rolled.
func NoUnroll(l *loop) { l.noUnroll = true }

// For runs body with i = start, start+step, ... while i < end, all unsigned. The
// end is read once, before the loop; i + step must not overflow.
func (b *Builder) For(start, end, step U32, body func(i U32), options ...LoopOption) {
	i := Var(start)
	n := &loop{bottom: true, pc: author()}
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

// While computes cond and runs body as long as it holds.
func (b *Builder) While(cond func() Pred, body func(), options ...LoopOption) {
	n := &loop{pc: author()}
	for _, o := range options {
		o(n)
	}
	b.noGuard("a loop")
	b.into(&n.head, func() { n.pred = cond().op })
	b.into(&n.body, body)
	*b.block = append(*b.block, n)
}

// ReturnIf ends the thread where p holds. Barriers and warp operations that follow
// must not count on it.
func (b *Builder) ReturnIf(p Pred) {
	b.noGuard("a return")
	in := b.emit("ret", 0)
	in.guard, in.effect = &guard{pred: p.op}, true
}

// Return ends the thread.
func (b *Builder) Return() { b.effect("ret", 0) }
