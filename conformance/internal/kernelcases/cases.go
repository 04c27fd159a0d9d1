// Package kernelcases lists the cases of all kernel families: inputs, launches and
// references.
package kernelcases

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/quant"
)

// Widths returns the row lengths to test for a format: one weight, around a warp, around a
// block of 256, and of models.
func Widths(f quant.Format) []int {
	var list []int
	for _, k := range []int{1, 31, 32, 33, 255, 256, 257, 2880, 4096, 11008, 14336, 28672} {
		if k%f.BlockLen() == 0 {
			list = append(list, k)
		}
	}
	return list
}

// WidthReason describes a row length.
func WidthReason(k int) string {
	switch {
	case k == 1:
		return "a row of one weight"
	case k < 34:
		return "around the 32 lanes of a warp"
	case k < 258:
		return "around a block of 256"
	}
	return fmt.Sprintf("a row of %d, as models have", k)
}

// kernelFamilies lists the cases of each kernel family.
var kernelFamilies = []func() []harness.Case{
	streamCases, tileCases, mmaCases, besideCases, chosenCases, roundCases, embedCases,
	attentionCases, combineCases, deltaNetCases,
	normCases, sparsifyCases, altUpCases, scaleToCases, elementwiseCases, ropeCases, argmaxCases, sampleCases, routerCases, expertCases, combineNormedCases, composedCases,
	peakCases,
}

// All lists all kernel cases in a fixed order. It panics if a case is incomplete or if two
// have the same ID.
func All() []harness.Case {
	var all []harness.Case
	for _, family := range kernelFamilies {
		all = append(all, family()...)
	}
	seen := map[string]bool{}
	for _, c := range all {
		if c.Operation == "" || c.Name == "" || c.Reason == "" || c.Run == nil || seen[c.ID()] {
			panic(fmt.Sprintf("kernelcases: case %q (%s) is incomplete or its ID is not unique", c.ID(), c.Reason))
		}
		seen[c.ID()] = true
	}
	return all
}

// Select returns the cases whose ID matches pattern, without long cases unless long is set.
// It returns an error if there are none.
func Select(all []harness.Case, pattern string, long bool) ([]harness.Case, error) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("kernelcases: pattern %q: %w", pattern, err)
	}
	selected := slices.DeleteFunc(slices.Clone(all), func(c harness.Case) bool {
		return c.Long && !long || !match.MatchString(c.ID())
	})
	if len(selected) == 0 {
		return nil, fmt.Errorf("kernelcases: pattern %q: no case matches", pattern)
	}
	return selected, nil
}
