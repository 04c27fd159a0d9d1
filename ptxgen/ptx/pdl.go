package ptx

import "strings"

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

// firstWait returns the index of the first WaitForPrior at the top level, or -1.
func firstWait(list []node) int {
	for i, n := range list {
		if in, ok := n.(*inst); ok && in.op == waitForPrior {
			return i
		}
	}
	return -1
}

// waits checks that a kernel with WaitForPrior executes it on every path, before it writes
// global memory and before it ends.
func (v *verifier) waits(body []node) {
	first := firstWait(body)
	if first < 0 {
		each(body, func(in *inst) {
			if in.op == waitForPrior {
				v.fail(in.pc, "the kernel waits for earlier kernels on some paths only")
			}
		})
		return
	}
	each(body[:first], func(in *inst) {
		// If a grid ended without waiting, the next one could start before the earlier ones end.
		if writesGlobal(in.op) || in.op == "ret" {
			v.fail(in.pc, "%s before the kernel waits for earlier kernels", in)
		}
	})
}

// writesGlobal reports whether an instruction writes global memory.
func writesGlobal(op string) bool {
	return (strings.HasPrefix(op, "st.") || strings.HasPrefix(op, "atom.")) && !strings.Contains(op, ".shared")
}
