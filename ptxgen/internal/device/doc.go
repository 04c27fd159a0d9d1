// Package device emits code that several kernels contain: rows, sums, reductions over
// threads, elementary functions and the statistics of norms.
package device

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// Overlap lets the next kernel of a stream start while this one runs (programmatic dependent
// launch), and waits for the kernels before it. Code after it sees their results.
func Overlap(b *ptx.Builder) {
	b.LaunchDependents()
	b.WaitForPrior()
}

// NonNil reports whether an optional address parameter is not 0.
func NonNil(b *ptx.Builder, p ptx.Global) ptx.Pred { return p.Address().Ne(b.U64(0)) }
