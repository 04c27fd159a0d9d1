// Package ptxgen generates the kernels of a transformer as PTX.
//
// A family of kernels is a struct of what its generator is asked for: a GEMV of
// some format, an attention of some head dim. Build makes the kernel, Launch makes
// a launch of it from named arguments. Nothing here touches a device.
//
// Results never depend on scheduling: there are no floating-point atomics, and the
// order of additions is fixed by the shape of one row, never by the batch.
package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// Spec is one kernel: what its generator is asked for.
type Spec interface {
	// Name is unique, and the name of the kernel's entry.
	Name() string
	// Build generates the kernel.
	Build() (*ptx.Kernel, error)
}

// begin starts a kernel that overlaps with its neighbors as far as any can: its launch
// is over with when those before it have ended, and the next kernel's when it ends itself.
func begin(s Spec) *ptx.Builder {
	b := ptx.New(s.Name())
	b.LaunchDependents()
	b.WaitForPrior()
	return b
}

// Address is an address in device memory; 0 where an argument is left out.
type Address = uint64

// given reports whether an address was not left out.
func given(b *ptx.Builder, p ptx.Global) ptx.Pred { return p.Address().Ne(b.U64(0)) }

// families lists the reachable kernels of each family.
var families = []func() []Spec{
	limitSpecs,
	gemvSpecs, gemvBatchSpecs, gemvWideSpecs, embedSpecs,
	gemmSpecs,
	attentionSpecs,
	normSpecs, elementwiseSpecs, narrowSpecs, softmaxSpecs, ropeSpecs, argmaxSpecs, topKSpecs, routerSpecs, expertSpecs,
}

// Reachable lists every kernel that an engine may ask for, in a fixed order.
func Reachable() []Spec {
	var all []Spec
	for _, f := range families {
		all = append(all, f()...)
	}
	return all
}
