package faultinject

import (
	"fmt"
	"strings"

	"github.com/lockstep-go/lockstep/driver"
)

// Call is a method of the driver interface that returns an error.
type Call uint8

// Device.Err is not a Call: it reports a failure and cannot fail itself.
const (
	Any Call = iota // in a Plan: every call
	DeviceMemory
	DeviceAlloc
	DeviceAllocPinned
	DeviceLoad
	DeviceNewStream
	DeviceNewEvent
	DeviceClose
	BufferClose
	PinnedClose
	ModuleFunction
	ModuleClose
	StreamLaunch
	StreamWrite
	StreamRead
	StreamWriteAsync
	StreamReadAsync
	StreamCopy
	StreamFill
	StreamRecord
	StreamSynchronize
	// StreamCapture fails before record runs, StreamEndCapture and StreamInstantiate after
	// it has succeeded.
	StreamCapture
	StreamEndCapture
	StreamInstantiate
	StreamClose
	GraphClose
	GraphLaunch
	EventSynchronize
	EventSince
	EventClose
)

// result is a CUresult, its name and its sentinel. The numbers are from the CUDA driver API
// reference, "Data types used by CUDA driver".
type result struct {
	code int
	name string
	kind error
}

var (
	invalidValue   = result{1, "CUDA_ERROR_INVALID_VALUE", driver.ErrInvalid}
	outOfMemory    = result{2, "CUDA_ERROR_OUT_OF_MEMORY", driver.ErrOutOfMemory}
	invalidPTX     = result{218, "CUDA_ERROR_INVALID_PTX", driver.ErrPTXRejected}
	notFound       = result{500, "CUDA_ERROR_NOT_FOUND", driver.ErrInvalid}
	outOfResources = result{701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", driver.ErrInvalid}
	launchFailed   = result{719, "CUDA_ERROR_LAUNCH_FAILED", driver.ErrDeviceLost}
	notSupported   = result{801, "CUDA_ERROR_NOT_SUPPORTED", driver.ErrUnsupported}
	notCapturable  = result{900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", driver.ErrInvalid}
	captureInvalid = result{901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", driver.ErrInvalid}
	unknown        = result{999, "CUDA_ERROR_UNKNOWN", nil}
)

// byKind holds the result for each sentinel, for calls that usually fail with another one.
var byKind = []result{invalidValue, outOfMemory, invalidPTX, launchFailed, notSupported}

// calls holds the name and the usual failure of each call.
var calls = [...]struct {
	name  string
	usual result
}{
	Any:               {"any call", unknown},
	DeviceMemory:      {"Device.Memory", unknown},
	DeviceAlloc:       {"Device.Alloc", outOfMemory},
	DeviceAllocPinned: {"Device.AllocPinned", outOfMemory},
	DeviceLoad:        {"Device.Load", invalidPTX},
	DeviceNewStream:   {"Device.NewStream", outOfMemory},
	DeviceNewEvent:    {"Device.NewEvent", outOfMemory},
	DeviceClose:       {"Device.Close", unknown},
	BufferClose:       {"Buffer.Close", unknown},
	PinnedClose:       {"Pinned.Close", unknown},
	ModuleFunction:    {"Module.Function", notFound},
	ModuleClose:       {"Module.Close", unknown},
	StreamLaunch:      {"Stream.Launch", outOfResources},
	StreamWrite:       {"Stream.Write", unknown},
	StreamRead:        {"Stream.Read", unknown},
	StreamWriteAsync:  {"Stream.WriteAsync", unknown},
	StreamReadAsync:   {"Stream.ReadAsync", unknown},
	StreamCopy:        {"Stream.Copy", unknown},
	StreamFill:        {"Stream.Fill", unknown},
	StreamRecord:      {"Stream.Record", unknown},
	StreamSynchronize: {"Stream.Synchronize", unknown},
	StreamCapture:     {"Stream.Capture", notCapturable},
	StreamEndCapture:  {"Stream.EndCapture", captureInvalid},
	StreamInstantiate: {"Stream.Instantiate", outOfMemory},
	StreamClose:       {"Stream.Close", unknown},
	GraphClose:        {"Graph.Close", unknown},
	GraphLaunch:       {"Graph.Launch", outOfResources},
	EventSynchronize:  {"Event.Synchronize", unknown},
	EventSince:        {"Event.Since", unknown},
	EventClose:        {"Event.Close", unknown},
}

// Calls returns every call except Any.
func Calls() []Call {
	list := make([]Call, 0, len(calls)-1)
	for c := Any + 1; int(c) < len(calls); c++ {
		list = append(list, c)
	}
	return list
}

// String returns the type and the method, such as "Device.Alloc".
func (c Call) String() string { return calls[c].name }

// Closes reports whether the call is a Close.
func (c Call) Closes() bool { return strings.HasSuffix(calls[c].name, ".Close") }

// failure returns the error of the call with the given number. A nil kind selects the usual
// failure of the call.
func (c Call) failure(kind error, number int) *driver.Error {
	r := calls[c].usual
	if kind != nil && kind != r.kind {
		r = result{kind: kind}
		for _, known := range byKind {
			if known.kind == kind {
				r = known
			}
		}
	}
	return &driver.Error{Op: "faultinject." + c.String(), Code: r.code, Name: r.name, Kind: r.kind,
		Detail: fmt.Sprintf("planned for call %d", number)}
}
