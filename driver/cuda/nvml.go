package cuda

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-go/lockstep/driver"
)

// nvml is a loaded NVML, the driver's library for management: those of its functions
// that are in use. Tests put functions of their own in their place.
type nvml struct {
	init     func() nvmlCode
	shutdown func() nvmlCode
	byUUID   func(uuid string, handle *uintptr) nvmlCode
	energy   func(handle uintptr, millijoules *uint64) nvmlCode // since the driver was loaded
	text     func(c nvmlCode) string

	// Those of a library that lacks them give nvmlNoFunction.
	clock       func(handle, domain uintptr, megahertz *uint32) nvmlCode
	power       func(handle uintptr, milliwatts *uint32) nvmlCode
	temperature func(handle, sensor uintptr, celsius *uint32) nvmlCode
	slowed      func(handle uintptr, reasons *uint64) nvmlCode
}

// The names that the library exports.
const (
	nvmlInit     = "nvmlInit_v2"
	nvmlShutdown = "nvmlShutdown"
	nvmlByUUID   = "nvmlDeviceGetHandleByUUID"
	nvmlEnergy   = "nvmlDeviceGetTotalEnergyConsumption"
	nvmlText     = "nvmlErrorString"
)

// nvmlFinder looks wherever libcuda is looked for: a driver brings both.
func nvmlFinder() finder {
	f := systemFinder()
	places, beside := f.paths, strings.NewReplacer("libcuda.so", "libnvidia-ml.so", "nvcuda.dll", "nvml.dll")
	f.paths = func() []string {
		var paths []string
		for _, p := range places() {
			paths = append(paths, beside.Replace(p))
		}
		return paths
	}
	return f
}

// findNVML loads the first library that has every function but those that libraries may
// lack. The error is a MissingError, which is ErrNoNVML.
func (f finder) findNVML() (*nvml, error) {
	var tried []string
	for _, path := range f.paths() {
		l, err := f.loadNVML(path)
		if err == nil {
			return l, nil
		}
		tried = append(tried, fmt.Sprintf("%s: %s", path, strings.TrimPrefix(err.Error(), path+": ")))
	}
	return nil, &MissingError{ErrNoNVML, tried}
}

func (f finder) loadNVML(path string) (*nvml, error) {
	library, err := f.open(path)
	if err != nil {
		return nil, err
	}
	at := map[string]uintptr{}
	for _, name := range []string{nvmlInit, nvmlShutdown, nvmlByUUID, nvmlEnergy, nvmlText} {
		address, err := f.symbol(library, name)
		if err != nil || address == 0 {
			return nil, fmt.Errorf("it exports no %s", name)
		}
		at[name] = address
	}
	l := &nvml{
		init:     func() nvmlCode { return nvmlCall(at[nvmlInit]) },
		shutdown: func() nvmlCode { return nvmlCall(at[nvmlShutdown]) },
		byUUID: func(uuid string, handle *uintptr) nvmlCode {
			text := append([]byte(uuid), 0)
			return nvmlCall(at[nvmlByUUID], uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(handle)))
		},
		energy: func(handle uintptr, millijoules *uint64) nvmlCode {
			return nvmlCall(at[nvmlEnergy], handle, uintptr(unsafe.Pointer(millijoules)))
		},
		text: func(c nvmlCode) string {
			constant, _, _ := purego.SyscallN(at[nvmlText], uintptr(c))
			return cString(*(**byte)(unsafe.Pointer(&constant)))
		},
	}
	f.loadCondition(library, l)
	return l, nil
}

// nvmlCall calls a function that returns an nvmlReturn_t, a C enum: the upper half of
// the register is noise. A library that lacks the function is refused as if it said so.
//
//go:uintptrescapes
func nvmlCall(at uintptr, args ...uintptr) nvmlCode {
	if at == 0 {
		return nvmlNoFunction
	}
	r, _, _ := purego.SyscallN(at, args...)
	return nvmlCode(int32(r))
}

// nvmlCode is an nvmlReturn_t; the numbers are those of the NVML API's reference,
// "Device Enums".
type nvmlCode int32

const (
	nvmlSuccess    nvmlCode = 0
	nvmlNoFunction nvmlCode = 13
)

// nvmlCodes are the refusals that mean something to callers. The others have the
// library's text.
var nvmlCodes = map[nvmlCode]struct {
	name string
	kind error
}{
	1:              {"NVML_ERROR_UNINITIALIZED", driver.ErrInvalid},
	2:              {"NVML_ERROR_INVALID_ARGUMENT", driver.ErrInvalid},
	3:              {"NVML_ERROR_NOT_SUPPORTED", driver.ErrUnsupported},
	4:              {"NVML_ERROR_NO_PERMISSION", driver.ErrUnsupported},
	6:              {"NVML_ERROR_NOT_FOUND", driver.ErrNoDevice},
	9:              {"NVML_ERROR_DRIVER_NOT_LOADED", driver.ErrNoDriver},
	12:             {"NVML_ERROR_LIBRARY_NOT_FOUND", ErrNoNVML},
	nvmlNoFunction: {"NVML_ERROR_FUNCTION_NOT_FOUND", driver.ErrUnsupported},
	15:             {"NVML_ERROR_GPU_IS_LOST", driver.ErrDeviceLost},
	16:             {"NVML_ERROR_RESET_REQUIRED", driver.ErrDeviceLost},
	18:             {"NVML_ERROR_LIB_RM_VERSION_MISMATCH", driver.ErrNoDriver},
	999:            {"NVML_ERROR_UNKNOWN", nil},
}

// refusal is nil for success, else a *driver.Error.
func (n *nvml) refusal(function string, c nvmlCode) error {
	if c == nvmlSuccess {
		return nil
	}
	known := nvmlCodes[c]
	if known.name == "" {
		known.name = fmt.Sprintf("nvmlReturn_t %d", c)
	}
	return &driver.Error{Op: function, Code: int(c), Name: known.name, Detail: n.text(c), Kind: known.kind}
}
