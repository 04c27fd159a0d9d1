package driver

import (
	"errors"
	"strings"
)

// Sentinels for errors.Is. An error of a driver is an *Error that wraps one of them or none.
var (
	ErrNoDriver    = errors.New("no GPU driver")         // the library of the driver is missing or unusable
	ErrNoDevice    = errors.New("no such device")        // the ordinal is too large
	ErrOutOfMemory = errors.New("out of device memory")  // nothing was allocated
	ErrPTXRejected = errors.New("PTX rejected")          // by the compiler; its log is in the error
	ErrDeviceLost  = errors.New("device lost")           // a fault has destroyed the context
	ErrUnsupported = errors.New("unsupported by device") // the driver or the device lacks the operation
	ErrInterrupted = errors.New("interrupted")           // see Interruptible
	ErrInvalid     = errors.New("invalid use of device") // wrong arguments, wrong order or a closed object
)

// Error is an error of a driver.
type Error struct {
	Op     string // the call, such as "cuLaunchKernel"
	Code   int    // the driver's number; 0 if the call did not reach the driver
	Name   string // the driver's name of Code, such as "CUDA_ERROR_INVALID_VALUE"
	Detail string // arguments and logs; may be ""
	Kind   error  // one of the sentinels, or nil
}

// Error returns the call, the name of the code, the kind and the detail.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Name != "" {
		b.WriteString(": " + e.Name)
	}
	if e.Kind != nil {
		b.WriteString(" (" + e.Kind.Error() + ")")
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	return b.String()
}

// Unwrap returns Kind.
func (e *Error) Unwrap() error { return e.Kind }
