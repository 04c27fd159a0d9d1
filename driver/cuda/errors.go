package cuda

import "github.com/lockstep-go/lockstep/driver"

// code is a CUresult. Numbers and meanings are from the CUDA driver API reference, "Data types used
// by CUDA driver".
type code int32

const (
	success      code = 0
	invalidValue code = 1
	outOfMemory  code = 2
	noDevice     code = 100

	// entryMissing is not a CUresult: the library does not export the function.
	entryMissing code = -1
)

// kinds maps codes to sentinels. A sticky code means that the context is lost: the driver returns it
// from every later call of the context.
var kinds = map[code]struct {
	kind   error
	sticky bool
}{
	entryMissing: {kind: driver.ErrUnsupported},
	invalidValue: {kind: driver.ErrInvalid},
	outOfMemory:  {kind: driver.ErrOutOfMemory},
	34:           {kind: driver.ErrNoDriver}, // STUB_LIBRARY
	noDevice:     {kind: driver.ErrNoDevice},
	101:          {kind: driver.ErrNoDevice},    // INVALID_DEVICE
	200:          {kind: driver.ErrPTXRejected}, // INVALID_IMAGE
	201:          {kind: driver.ErrInvalid},     // INVALID_CONTEXT
	209:          {kind: driver.ErrPTXRejected}, // NO_BINARY_FOR_GPU
	218:          {kind: driver.ErrPTXRejected}, // INVALID_PTX
	221:          {kind: driver.ErrUnsupported}, // JIT_COMPILER_NOT_FOUND
	222:          {kind: driver.ErrPTXRejected}, // UNSUPPORTED_PTX_VERSION
	223:          {kind: driver.ErrUnsupported}, // JIT_COMPILATION_DISABLED
	300:          {kind: driver.ErrPTXRejected}, // INVALID_SOURCE
	400:          {kind: driver.ErrInvalid},     // INVALID_HANDLE
	500:          {kind: driver.ErrInvalid},     // NOT_FOUND
	600:          {kind: driver.ErrInvalid},     // NOT_READY
	701:          {kind: driver.ErrInvalid},     // LAUNCH_OUT_OF_RESOURCES
	801:          {kind: driver.ErrUnsupported}, // NOT_SUPPORTED
	803:          {kind: driver.ErrNoDriver},    // SYSTEM_DRIVER_MISMATCH
	804:          {kind: driver.ErrNoDriver},    // COMPAT_NOT_SUPPORTED_ON_DEVICE
	900:          {kind: driver.ErrInvalid},     // STREAM_CAPTURE_UNSUPPORTED
	901:          {kind: driver.ErrInvalid},     // STREAM_CAPTURE_INVALIDATED
	902:          {kind: driver.ErrInvalid},     // STREAM_CAPTURE_MERGE
	903:          {kind: driver.ErrInvalid},     // STREAM_CAPTURE_UNMATCHED
	904:          {kind: driver.ErrInvalid},     // STREAM_CAPTURE_UNJOINED
	905:          {kind: driver.ErrInvalid},     // STREAM_CAPTURE_ISOLATION
	906:          {kind: driver.ErrInvalid},     // STREAM_CAPTURE_IMPLICIT
	907:          {kind: driver.ErrInvalid},     // CAPTURED_EVENT
	908:          {kind: driver.ErrInvalid},     // STREAM_CAPTURE_WRONG_THREAD

	214: {driver.ErrDeviceLost, true}, // ECC_UNCORRECTABLE
	220: {driver.ErrDeviceLost, true}, // NVLINK_UNCORRECTABLE
	226: {driver.ErrDeviceLost, true}, // CONTAINED
	700: {driver.ErrDeviceLost, true}, // ILLEGAL_ADDRESS
	702: {driver.ErrDeviceLost, true}, // LAUNCH_TIMEOUT
	709: {driver.ErrDeviceLost, true}, // CONTEXT_IS_DESTROYED
	710: {driver.ErrDeviceLost, true}, // ASSERT
	714: {driver.ErrDeviceLost, true}, // HARDWARE_STACK_ERROR
	715: {driver.ErrDeviceLost, true}, // ILLEGAL_INSTRUCTION
	716: {driver.ErrDeviceLost, true}, // MISALIGNED_ADDRESS
	717: {driver.ErrDeviceLost, true}, // INVALID_ADDRESS_SPACE
	718: {driver.ErrDeviceLost, true}, // INVALID_PC
	719: {driver.ErrDeviceLost, true}, // LAUNCH_FAILED
	721: {driver.ErrDeviceLost, true}, // TENSOR_MEMORY_LEAK
}

// invalid returns an ErrInvalid for a call that does not reach the driver.
func invalid(op, detail string) error {
	return &driver.Error{Op: op, Detail: detail, Kind: driver.ErrInvalid}
}
