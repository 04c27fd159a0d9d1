package conformance

import (
	"fmt"
	"regexp"
	"slices"
)

// KernelCase is one case of the kernel suite: a kernel of ptxgen on inputs of one
// shape and distribution, held to a reference in float64. A case that compares
// nothing is a failure.
type KernelCase struct {
	Operation string // what it computes: "gemv", "attention decode"
	Format    string // what of: a quant.Format's name, usually
	Name      string // unique within the operation
	Reason    string // why it is asked for, or which bug it finds
	Long      bool   // too large for the emulator in a default run
	Run       func(r *KernelRig)
}

// ID names the case in manifests and on command lines.
func (c KernelCase) ID() string { return c.Operation + "/" + c.Name }

// kernelFamilies lists the cases of each family of kernels.
var kernelFamilies = []func() []KernelCase{
	gemvCases, batchCases, productCases, smallCases, embedCases,
	gemmCases,
	attentionCases, mergeCases,
	normCases, elementwiseCases, narrowCases, softmaxCases, ropeCases, argmaxCases, topKCases, routerCases, expertCases, composedCases,
	limitCases,
}

// Kernels lists every case of the kernel suite, in a fixed order. It panics if two
// have one name, or if one is incomplete.
func Kernels() []KernelCase {
	var all []KernelCase
	for _, family := range kernelFamilies {
		all = append(all, family()...)
	}
	seen := map[string]bool{}
	for _, c := range all {
		if c.Operation == "" || c.Name == "" || c.Reason == "" || c.Run == nil || seen[c.ID()] {
			panic(fmt.Sprintf("conformance: kernel case %q (%s) is incomplete or there twice", c.ID(), c.Reason))
		}
		seen[c.ID()] = true
	}
	return all
}

// SelectKernels keeps the cases whose ID matches pattern, "" all, without the long
// ones unless asked for.
func SelectKernels(all []KernelCase, pattern string, long bool) ([]KernelCase, error) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("conformance: kernels %q: %w", pattern, err)
	}
	return slices.DeleteFunc(slices.Clone(all), func(c KernelCase) bool {
		return c.Long && !long || !match.MatchString(c.ID())
	}), nil
}
