package ptx

import "strings"

// Programmatic dependent launch (PTX ISA, griddepcontrol): a kernel that waits by itself
// for those before it can be launched to begin while they still run. Targets before sm_90
// have no such instructions; in a text for one of them both are left out, and the
// kernel begins when those before it have ended.

// LaunchDependents lets the kernel after this one begin, if it is launched to overlap,
// once every CTA of this one has said so or ended.
func (b *Builder) LaunchDependents() { b.overlap("griddepcontrol.launch_dependents") }

// WaitForPrior waits until the kernels before this one have ended and what they wrote is
// seen. Before it a kernel may read what no kernel writes, such as weights, and may write
// nothing; Finish holds it to the latter.
func (b *Builder) WaitForPrior() { b.overlap(waitForPrior) }

const waitForPrior = "griddepcontrol.wait"

func (b *Builder) overlap(op string) {
	in := b.emit(op, 0)
	in.effect, in.spare = true, true
}

// Overlaps reports whether the kernel, printed for that target, waits by itself for
// those before it.
func (k *Kernel) Overlaps(t Target) bool {
	t, err := k.reach(t)
	return err == nil && t.has(waitForPrior) && firstWait(k.source.body) >= 0
}

// has reports whether a target knows an instruction.
func (t Target) has(op string) bool {
	f, ok := formOf(op)
	return ok && t.SM >= f.sm && t.Version >= f.version && (t.Arch || !f.arch)
}

// firstWait is where WaitForPrior stands among the outermost nodes, -1 if nowhere.
func firstWait(list []node) int {
	for i, n := range list {
		if in, ok := n.(*inst); ok && in.op == waitForPrior {
			return i
		}
	}
	return -1
}

// waits checks where a kernel waits for those before it: on every path, before it writes and
// before it ends. It may do so sooner on some.
func (v *verifier) waits(body []node) {
	first := firstWait(body)
	if first < 0 {
		each(body, func(in *inst) {
			if in.op == waitForPrior {
				v.fail(in.pc, "the kernel waits for those before it on some paths only")
			}
		})
		return
	}
	each(body[:first], func(in *inst) {
		// A grid that ends without waiting would let the next one begin before those before it.
		if writesGlobal(in.op) || in.op == "ret" {
			v.fail(in.pc, "%s before the kernel waits for those before it", in)
		}
	})
}

// writesGlobal reports whether an instruction writes global memory.
func writesGlobal(op string) bool {
	for _, prefix := range []string{"st.", "atom.", "red."} {
		if strings.HasPrefix(op, prefix) {
			return !strings.Contains(op, ".shared")
		}
	}
	return false
}
