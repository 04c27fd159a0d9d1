package ptx

import (
	"fmt"
	"slices"
)

// part is a part of a kernel that is being built: see Beside.
type part struct {
	suffix string // of the names of parameters
	block  U32    // index of the CTA in the part
	ctas   U32    // of the part
}

// partParams has the number of CTAs of a part. It precedes the part's own parameters.
type partParams struct{ Grid U32 }

func partSuffix(number int) string { return fmt.Sprintf("_%d", number) }

// Beside fuses kernels horizontally: in one grid, the first CTAs in x run the first part, the next ones the second, and
// so on. LaunchBeside makes its launches.
//
// A part is built like a kernel. In part i, BlockX and GridX count its own CTAs, and its parameter x is printed
// as x_i. A CTA runs one part, so the parts use the same shared memory. A CTA
// has as many threads and as much dynamic shared memory as the part that needs most.
func (b *Builder) Beside(parts ...func()) {
	if len(b.body) > 0 || len(parts) < 2 {
		b.fail("Beside wants several parts and no code before them")
		return
	}
	b.beside(b.BlockX(), 0, parts)
	b.part = nil
}

// beside emits the parts from number first on. block is the index of the CTA among theirs.
func (b *Builder) beside(block U32, first int, parts []func()) {
	b.part = &part{suffix: partSuffix(first), block: block}
	var p partParams
	Declare(b, &p)
	b.part.ctas = p.Grid
	if len(parts) == 1 {
		b.overlay(parts[0])
		return
	}
	b.IfElse(block.Lt(p.Grid), func() { b.overlay(parts[0]) }, func() { b.beside(block.Sub(p.Grid), first+1, parts[1:]) })
}

// overlay emits a part. It uses the shared memory of the parts before again.
func (b *Builder) overlay(emit func()) {
	shared, dynamic := b.shared, b.dynamic
	b.shared, b.dynamic = nil, 0
	emit()
	for _, s := range b.shared {
		i := slices.IndexFunc(shared, func(other sharedVar) bool { return other.name == s.name })
		if i < 0 {
			shared = append(shared, s)
			continue
		}
		shared[i].bytes, shared[i].align = max(shared[i].bytes, s.bytes), max(shared[i].align, s.align)
	}
	b.shared, b.dynamic = shared, max(dynamic, b.dynamic)
}

// Part is what a launch passes to a part of a kernel.
type Part struct {
	CTAs    int   // at least 1
	Shared  int   // bytes of dynamic shared memory
	Threads int   // per CTA
	Params  []any // pointers to structs, as for Launch
}

// LaunchBeside makes a launch of a kernel that Beside built.
func (k *Kernel) LaunchBeside(parts ...Part) (Launch, error) {
	var p packer
	ctas, threads, shared := 0, 0, 0
	for i, part := range parts {
		ctas, threads, shared = ctas+part.CTAs, max(threads, part.Threads), max(shared, part.Shared)
		if part.CTAs < 1 {
			return Launch{}, fmt.Errorf("ptx: launch %s: %d CTAs for part %d", k.Name, part.CTAs, i)
		}
		p.add(k, partSuffix(i), append([]any{&partParams{Uint(part.CTAs)}}, part.Params...))
	}
	return k.launch([3]uint32{uint32(ctas), 1, 1}, threads, shared, p)
}
