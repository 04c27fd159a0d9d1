package faulty

import (
	"fmt"
	"strings"

	"github.com/lockstep-go/lockstep/driver"
)

// Call is a method that can fail, of any of the driver's types.
type Call uint8

// The calls. Device.Err is none of them: it reports a failure and has none itself.
const (
	Any Call = iota // in a Plan: whatever the call
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

// result is a CUresult with the driver's name for it and what it means to callers, as
// in the CUDA driver API's reference, "Data types used by CUDA driver".
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

// byKind are the results that stand for a kind on a call that has no result of that
// kind of its own.
var byKind = []result{invalidValue, outOfMemory, invalidPTX, launchFailed, notSupported}

// calls say how each is named and refused where a plan leaves open how.
var calls = [...]struct {
	name    string
	refusal result
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

// Calls lists every call but Any.
func Calls() []Call {
	list := make([]Call, 0, len(calls)-1)
	for c := Any + 1; int(c) < len(calls); c++ {
		list = append(list, c)
	}
	return list
}

// String is the type and the method, such as "Device.Alloc".
func (c Call) String() string { return calls[c].name }

// Closes says whether the call gives something back.
func (c Call) Closes() bool { return strings.HasSuffix(calls[c].name, ".Close") }

// refusal is the error of a call of this number. A kind that is nil is what a driver
// refuses such a call with most often.
func (c Call) refusal(kind error, number int) *driver.Error {
	r := calls[c].refusal
	if kind != nil && kind != r.kind {
		r = result{kind: kind}
		for _, known := range byKind {
			if known.kind == kind {
				r = known
			}
		}
	}
	return &driver.Error{Op: "faulty." + c.String(), Code: r.code, Name: r.name, Kind: r.kind,
		Detail: fmt.Sprintf("planned for call %d", number)}
}
