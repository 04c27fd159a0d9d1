package driver

import (
	"errors"
	"strings"
)

// What can go wrong, for errors.Is.
var (
	ErrNoDriver    = errors.New("no GPU driver")         // the library is not there or cannot be used
	ErrNoDevice    = errors.New("no such device")        // fewer devices than asked for
	ErrOutOfMemory = errors.New("out of device memory")  //
	ErrPTXRejected = errors.New("PTX rejected")          // by the driver's compiler; the log is in the error
	ErrDeviceLost  = errors.New("device lost")           // a fault took the context
	ErrUnsupported = errors.New("unsupported by device") // an operation that this driver or device does not have
	ErrInvalid     = errors.New("invalid use of device") // wrong arguments, wrong order, a closed object
)

// Error is a refusal by a driver.
type Error struct {
	Op     string // the call, such as "cuLaunchKernel"
	Code   int    // the driver's number
	Name   string // the driver's name for it, such as "CUDA_ERROR_INVALID_VALUE"
	Detail string // what it was about, and any log; may be ""
	Kind   error  // one of the sentinels above, or nil
}

// Error names the call, the driver's name for the failure and the detail.
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

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Kind }
