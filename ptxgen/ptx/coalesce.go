package ptx

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
			countPreds(n.cond, count)
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
			n.cond, n.body = coalesceList(b, n.cond, uses), coalesceList(b, n.body, uses)
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
