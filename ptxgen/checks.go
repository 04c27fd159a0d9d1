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

// checkK holds a row of weights to whole blocks, not too many.
func checkK(k *ptx.Kernel, format quant.Format, weights int) error {
	if n := format.BlockLen(); weights < 1 || weights%n != 0 {
		return argumentError(k, "K", "%d weights are no whole blocks of %v, which have %d", weights, format, n)
	}
	return checkBounds(k, bound{"K", weights, 1, 1 << 24})
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

// number is a field that must be finite and not negative.
type number struct {
	field string
	value float32
}

// checkNumbers holds fields to be finite and not negative.
func checkNumbers(k *ptx.Kernel, list ...number) error {
	for _, f := range list {
		if !(f.value >= 0) || math.IsInf(float64(f.value), 0) {
			return argumentError(k, f.field, "%v is not finite or is negative", f.value)
		}
	}
	return nil
}

// firstError is the first of the errors that is one.
func firstError(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
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

// ceilDiv is a / b, rounded up.
func ceilDiv(a, b int) int { return (a + b - 1) / b }

// formatSuffix tells kernels apart by a format that is not F32.
func formatSuffix(f quant.Format) string {
	if f == quant.F32 {
		return ""
	}
	return "_" + formatName(f)
}

// formatName is a format in a kernel's name.
func formatName(f quant.Format) string { return strings.ToLower(f.String()) }
