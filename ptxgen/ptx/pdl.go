package ptx

import (
	"slices"
	"strings"
)

// Programmatic dependent launch lets a kernel start while earlier kernels of its stream still
// run (PTX ISA, griddepcontrol). Targets below sm_90 do not have these instructions. A text for
// such a target omits both, and the kernel starts when the earlier kernels have ended.

// LaunchDependents emits griddepcontrol.launch_dependents: the next kernel may start after every
// CTA has executed it or ended.
func (b *Builder) LaunchDependents() { b.emit("griddepcontrol.launch_dependents", 0).optional = true }

// WaitForPrior emits griddepcontrol.wait: it waits until the earlier kernels have ended and their
// writes are visible. Before it, a kernel may read data that no kernel writes, such as weights.
// It must not write global memory or end, which Finish checks.
func (b *Builder) WaitForPrior() { b.emit(waitForPrior, 0).optional = true }

const waitForPrior = "griddepcontrol.wait"

// Overlaps reports whether the kernel, printed for that target, contains griddepcontrol.wait,
// so that it can be launched with programmatic dependent launch.
func (k *Kernel) Overlaps(t Target) bool {
	t, err := k.resolve(t)
	return err == nil && t.has(waitForPrior) && firstWait(k.source.body) >= 0
}

// has reports whether a target has an instruction.
func (t Target) has(op string) bool {
	r, ok := longest(requirements, op)
	return ok && t.SM >= r.sm && t.Version >= r.version && (t.Arch || !r.arch)
}

// firstWait returns the index of the first node that executes WaitForPrior on every path through it, or -1.
func firstWait(list []node) int {
	return slices.IndexFunc(list, func(n node) bool {
		switch n := n.(type) {
		case *inst:
			return n.op == waitForPrior
		case *branch:
			return firstWait(n.then) >= 0 && firstWait(n.alt) >= 0
		}
		return false
	})
}

// waits checks that a kernel with WaitForPrior executes it on every path, before it writes
// global memory and before it ends.
func (v *verifier) waits(body []node) {
	if firstWait(body) >= 0 {
		v.beforeWait(body)
		return
	}
	each(body, func(in *inst) {
		if in.op == waitForPrior {
			v.fail(in.pc, "the kernel waits for earlier kernels on some paths only")
		}
	})
}

// beforeWait checks what a list executes before its first WaitForPrior.
func (v *verifier) beforeWait(list []node) {
	first := firstWait(list)
	each(list[:first], func(in *inst) {
		// If a grid ended without waiting, the next one could start before the earlier ones end.
		if writesGlobal(in.op) || in.op == "ret" {
			v.fail(in.pc, "%s before the kernel waits for earlier kernels", in)
		}
	})
	if n, ok := list[first].(*branch); ok {
		v.beforeWait(n.then)
		v.beforeWait(n.alt)
	}
}

// writesGlobal reports whether an instruction writes global memory.
func writesGlobal(op string) bool {
	writes := strings.HasPrefix(op, "st.") || strings.HasPrefix(op, "atom.") || strings.HasPrefix(op, "red.")
	return writes && !strings.Contains(op, ".shared")
}
