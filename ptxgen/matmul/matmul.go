// Package matmul holds the kernels that multiply by matrices of weights, the packed layout
// of these matrices, and the lookup of embeddings.
package matmul

import (
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// begin starts a kernel that overlaps with its neighbors as far as any can.
func begin(name string) *ptx.Builder {
	b := ptx.New(name)
	device.Overlap(b)
	return b
}

// checkK checks that a row holds whole blocks of the format.
func checkK(format quant.Format, weights int) host.Check {
	n := format.BlockLen()
	if weights < 1 || weights%n != 0 {
		return host.Refuse(true, "K", "%d weights are no whole blocks of %v, which have %d", weights, format, n)
	}
	return host.Bound("K", weights, 1, 1<<24)
}

// Specs returns the kernels that an engine may ask for, in a fixed order.
func Specs() []kernel.Spec {
	return slices.Concat(gemvSpecs(), gemvBatchSpecs(), gemvWideSpecs(), embedSpecs(), gemmSpecs())
}

func embedSpecs() []kernel.Spec {
	var list []kernel.Spec
	for _, f := range Formats() {
		list = append(list, Embed(f))
	}
	return list
}
