package ptxgen

import (
	"fmt"
	"math"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// bound is a field of a launch's arguments and the values that it may have.
type bound struct {
	field           string
	value, low, top int
}

// maxSize is the largest number of rows or columns that kernels count in 32 bits.
const maxSize = math.MaxInt32

// checkBounds holds each field to its bounds.
func checkBounds(k *ptx.Kernel, bounds ...bound) error {
	for _, f := range bounds {
		if f.value < f.low || f.value > f.top {
			return argumentError(k, f.field, "%d is not within %d and %d", f.value, f.low, f.top)
		}
	}
	return nil
}

// pointer is an address that must be given.
type pointer struct {
	field   string
	address Address
}

// checkPointers holds addresses to be there.
func checkPointers(k *ptx.Kernel, list ...pointer) error {
	for _, p := range list {
		if p.address == 0 {
			return argumentError(k, p.field, "no address")
		}
	}
	return nil
}

// argumentError says what is wrong with an argument.
func argumentError(k *ptx.Kernel, field, format string, args ...any) error {
	return fmt.Errorf("ptxgen: %s: %s: %s", k.Name, field, fmt.Sprintf(format, args...))
}

// orElse is n, or the alternative where n is 0.
func orElse(n, alternative int) int {
	if n == 0 {
		return alternative
	}
	return n
}

// formatSuffix tells kernels apart by a format that is not F32.
func formatSuffix(f quant.Format) string {
	if f == quant.F32 {
		return ""
	}
	return "_" + formatName(f)
}

// formatName is a format in a kernel's name.
func formatName(f quant.Format) string { return strings.ToLower(f.String()) }
