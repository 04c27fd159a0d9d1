package ptx

// node is an *inst, *branch, *loop or *remark.
type node any

type inst struct {
	op       string
	args     []arg
	dsts     int // args[:dsts] are written
	guard    *guard
	optional bool    // omitted for targets that do not have it
	readsDst bool    // reads args[:dsts], too
	pc       uintptr // of the kernel's source line
}

type guard struct {
	pred operand
	not  bool
}

type branch struct {
	pred      operand
	then, alt []node
	pc        uintptr
}

// loop repeats "cond; if !pred leave; body". If bottom is set, it is "do body while
// pred".
type loop struct {
	cond, body []node
	pred       operand
	bottom     bool
	noUnroll   bool
	pc         uintptr
}

type remark struct{ text string }

// nested returns the lists of nodes inside a node.
func nested(n node) [][]node {
	switch n := n.(type) {
	case *branch:
		return [][]node{n.then, n.alt}
	case *loop:
		return [][]node{n.cond, n.body}
	}
	return nil
}

// each calls f for every instruction, including nested ones.
func each(list []node, f func(*inst)) {
	for _, n := range list {
		if in, ok := n.(*inst); ok {
			f(in)
		}
		for _, inner := range nested(n) {
			each(inner, f)
		}
	}
}

// eachList calls f for the list and every nested one.
func eachList(list []node, f func([]node)) {
	f(list)
	for _, n := range list {
		for _, inner := range nested(n) {
			eachList(inner, f)
		}
	}
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
