package cuda

import (
	"errors"
	"fmt"
)

// ErrNoNVML means that the driver's library for management is not there.
var ErrNoNVML = errors.New("no NVML")

// MissingError says that none of a library's places had one that does.
type MissingError struct {
	Kind  error    // driver.ErrNoDriver or ErrNoNVML
	Tried []string // each place with its reason; none where NVIDIA makes no driver for the system
}

// Error gives the first place, which is where the library should be, and how many there
// are.
func (e *MissingError) Error() string {
	switch n := len(e.Tried); n {
	case 0:
		return fmt.Sprintf("cuda: %v: there is none for this operating system", e.Kind)
	case 1:
		return fmt.Sprintf("cuda: %v: %s", e.Kind, e.Tried[0])
	default:
		return fmt.Sprintf("cuda: %v: tried %d places, first %s", e.Kind, n, e.Tried[0])
	}
}

// Unwrap gives the kind.
func (e *MissingError) Unwrap() error { return e.Kind }
