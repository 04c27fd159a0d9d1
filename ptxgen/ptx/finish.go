package ptx

// KernelOption is an option of Finish.
type KernelOption func(*Kernel)

// MaxThreads sets .maxntid: the maximum number of threads per CTA, 1 to 1024. It is required.
func MaxThreads(n int) KernelOption { return func(k *Kernel) { k.MaxThreads = n } }

// MinCTAs sets .minnctapersm: the assembler limits registers so that n CTAs fit one SM.
func MinCTAs(n int) KernelOption { return func(k *Kernel) { k.MinCTAs = n } }

// Finish verifies the kernel and returns it. The error is the first failure, with the source
// line that caused it.
func (b *Builder) Finish(options ...KernelOption) (*Kernel, error) {
	k := &Kernel{Name: b.name, Params: b.params, Dynamic: b.dynamic, source: b}
	for _, o := range options {
		o(k)
	}
	if k.MaxThreads < 1 || k.MaxThreads > 1024 {
		b.fail("a CTA of %d threads", k.MaxThreads)
	}
	dynamic := 1 // alignment of the dynamic shared memory, which follows all other arrays
	for _, s := range b.shared {
		if s.name == dynamicName {
			dynamic = s.align
			continue
		}
		k.Static = alignUp(k.Static, s.align) + s.bytes
	}
	k.Static = alignUp(k.Static, dynamic)
	if k.Static > 48<<10 {
		b.fail("%d bytes of static shared memory, at most 48 KiB", k.Static)
	}
	if b.err != nil {
		return nil, b.err
	}
	b.emit("ret", 0)
	coalesce(b)
	if err := verify(b, k); err != nil {
		return nil, err
	}
	return k, nil
}

func alignUp(n, align int) int { return (n + align - 1) / align * align }

// each calls f for every instruction, including nested ones.
func each(list []node, f func(*inst)) {
	for _, n := range list {
		switch n := n.(type) {
		case *inst:
			f(n)
		case *branch:
			each(n.then, f)
			each(n.alt, f)
		case *loop:
			each(n.head, f)
			each(n.body, f)
		}
	}
}

// coalesce replaces "op t, …; mov v, t" by "op v, …" if t has no other use.
func coalesce(b *Builder) {
	uses := map[operand]int{}
	count := func(o operand) { uses[o]++ }
	each(b.body, func(in *inst) {
		for _, a := range in.reads() {
			count(a)
		}
	})
	countPreds(b.body, count)
	b.body = coalesceList(b, b.body, uses)
}

func countPreds(list []node, count func(operand)) {
	for _, n := range list {
		switch n := n.(type) {
		case *branch:
			count(n.pred)
			countPreds(n.then, count)
			countPreds(n.alt, count)
		case *loop:
			count(n.pred)
			countPreds(n.head, count)
			countPreds(n.body, count)
		}
	}
}

func coalesceList(b *Builder, list []node, uses map[operand]int) []node {
	var out []node
	for _, n := range list {
		switch n := n.(type) {
		case *branch:
			n.then, n.alt = coalesceList(b, n.then, uses), coalesceList(b, n.alt, uses)
		case *loop:
			n.head, n.body = coalesceList(b, n.head, uses), coalesceList(b, n.body, uses)
		case *inst:
			if isMove(n) && !b.vars[n.args[1].ops[0]] && uses[n.args[1].ops[0]] == 1 && retarget(out, n) {
				continue
			}
		}
		out = append(out, n)
	}
	return out
}

func isMove(n *inst) bool {
	return len(n.op) > 4 && n.op[:4] == "mov." && len(n.args) == 2 &&
		n.args[0].kind == single && n.args[1].kind == single && n.args[1].ops[0].kind == register &&
		n.args[0].ops[0].class == n.args[1].ops[0].class
}

// retarget searches back for the instruction that writes the moved register and lets it write
// the variable instead. It gives up if another instruction between uses the variable.
func retarget(out []node, move *inst) bool {
	variable, temp := move.args[0].ops[0], move.args[1].ops[0]
	for i := len(out) - 1; i >= 0 && i >= len(out)-16; i-- {
		in, ok := out[i].(*inst)
		if !ok {
			if _, remark := out[i].(*remark); remark {
				continue
			}
			return false
		}
		for _, w := range in.writes() {
			if w != temp {
				continue
			}
			if !sameGuard(in.guard, move.guard) {
				return false
			}
			in.replaceWrite(temp, variable)
			return true
		}
		if in.asynchronous() {
			return false
		}
		for _, o := range append(in.reads(), in.writes()...) {
			if o == variable {
				return false
			}
		}
		if in.guard != nil && in.guard.pred == variable {
			return false
		}
	}
	return false
}

func sameGuard(a, b *guard) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// reads returns the registers that the instruction reads, including its guard.
func (in *inst) reads() []operand {
	var list []operand
	for i, a := range in.args {
		if i < in.dsts && !in.readsDst {
			continue
		}
		for _, o := range a.ops {
			if o.kind == register {
				list = append(list, o)
			}
		}
	}
	if in.guard != nil {
		list = append(list, in.guard.pred)
	}
	return list
}

// writes returns the registers that the instruction writes.
func (in *inst) writes() []operand {
	var list []operand
	for _, a := range in.args[:in.dsts] {
		list = append(list, a.ops...)
	}
	return list
}

func (in *inst) replaceWrite(old, new operand) {
	for i, a := range in.args[:in.dsts] {
		ops := append([]operand(nil), a.ops...)
		for j, o := range ops {
			if o == old {
				ops[j] = new
			}
		}
		in.args[i].ops = ops
	}
}
