// Package host holds host code that several kernels use: checks of launch arguments, sizes
// and names.
package host

import (
	"fmt"
	"math"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// MaxSize is the largest number of rows or columns, and the largest stride in elements.
// Kernels count these in 32 bits.
const MaxSize = math.MaxInt32

// Check is the result of checking one field of launch arguments. An empty Problem means that
// the field is valid.
type Check struct{ Field, Problem string }

// Valid returns an error for the first check with a Problem, or nil.
func Valid(k *ptx.Kernel, checks ...Check) error {
	for _, c := range checks {
		if c.Problem != "" {
			return Errorf(k, c.Field, "%s", c.Problem)
		}
	}
	return nil
}

// Errorf returns an error about a field of launch arguments.
func Errorf(k *ptx.Kernel, field, format string, args ...any) error {
	return fmt.Errorf("ptxgen: launch %s: %s: %s", k.Name, field, fmt.Sprintf(format, args...))
}

// Bound checks that least <= value <= most.
func Bound(field string, value, least, most int) Check {
	if value < least || value > most {
		return Check{field, fmt.Sprintf("%d is not within %d and %d", value, least, most)}
	}
	return Check{}
}

// NonNil checks that an address is not 0.
func NonNil(field string, address ptx.Address) Check {
	if address == 0 {
		return Check{field, "no address"}
	}
	return Check{}
}

// NonNegative checks that x is finite and not negative.
func NonNegative(field string, x float32) Check {
	if !(x >= 0) || math.IsInf(float64(x), 0) {
		return Check{field, fmt.Sprintf("%v is not finite or is negative", x)}
	}
	return Check{}
}

// Refuse returns the problem if refused is true.
func Refuse(refused bool, field, format string, args ...any) Check {
	if refused {
		return Check{field, fmt.Sprintf(format, args...)}
	}
	return Check{}
}

// CeilDiv returns a / b, rounded up.
func CeilDiv(a, b int) int { return (a + b - 1) / b }

// formatNames caches the results of FormatName, because engines call it for each launch.
var formatNames = func() map[quant.Format]string {
	names := map[quant.Format]string{}
	for _, f := range quant.Formats() {
		names[f] = strings.ToLower(f.String())
	}
	return names
}()

// FormatName returns a format as kernel names spell it, such as q4_k.
func FormatName(f quant.Format) string {
	if name, ok := formatNames[f]; ok {
		return name
	}
	return strings.ToLower(f.String())
}
