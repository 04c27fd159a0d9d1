// Package nvml reads the energy and the condition of a GPU from NVML, the management library of the
// NVIDIA driver. Package driver/cuda loads the library: see cuda.Device.Meter.
package nvml

import (
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/driver"
)

// ErrNoLibrary means that NVML could not be loaded.
var ErrNoLibrary = errors.New("no NVML")

// Names of the functions that a library exports.
const (
	Init            = "nvmlInit_v2"
	Shutdown        = "nvmlShutdown"
	HandleByUUID    = "nvmlDeviceGetHandleByUUID"
	TotalEnergy     = "nvmlDeviceGetTotalEnergyConsumption"
	ErrorString     = "nvmlErrorString"
	ClockInfo       = "nvmlDeviceGetClockInfo"
	PowerUsage      = "nvmlDeviceGetPowerUsage"
	Temperature     = "nvmlDeviceGetTemperature"
	EventReasons    = "nvmlDeviceGetCurrentClocksEventReasons"
	ThrottleReasons = "nvmlDeviceGetCurrentClocksThrottleReasons" // EventReasons before driver 535
)

// Library holds the functions of a loaded NVML.
type Library struct {
	Init         func() Code
	Shutdown     func() Code
	HandleByUUID func(uuid string, handle *uintptr) Code
	TotalEnergy  func(handle uintptr, millijoules *uint64) Code // since the driver was loaded
	ErrorString  func(c Code) string

	// A library that lacks one of these returns FunctionNotFound.
	ClockInfo    func(handle, clock uintptr, megahertz *uint32) Code
	PowerUsage   func(handle uintptr, milliwatts *uint32) Code
	Temperature  func(handle, sensor uintptr, celsius *uint32) Code
	EventReasons func(handle uintptr, reasons *uint64) Code
}

// Code is an nvmlReturn_t. The numbers are from the NVML API reference, "Device Enums".
type Code int32

const (
	Success          Code = 0  // NVML_SUCCESS
	FunctionNotFound Code = 13 // NVML_ERROR_FUNCTION_NOT_FOUND
)

// codes holds the names and sentinels of errors that callers distinguish.
var codes = map[Code]struct {
	name string
	kind error
}{
	1:                {"NVML_ERROR_UNINITIALIZED", driver.ErrInvalid},
	2:                {"NVML_ERROR_INVALID_ARGUMENT", driver.ErrInvalid},
	3:                {"NVML_ERROR_NOT_SUPPORTED", driver.ErrUnsupported},
	4:                {"NVML_ERROR_NO_PERMISSION", driver.ErrUnsupported},
	6:                {"NVML_ERROR_NOT_FOUND", driver.ErrNoDevice},
	9:                {"NVML_ERROR_DRIVER_NOT_LOADED", driver.ErrNoDriver},
	12:               {"NVML_ERROR_LIBRARY_NOT_FOUND", ErrNoLibrary},
	FunctionNotFound: {"NVML_ERROR_FUNCTION_NOT_FOUND", driver.ErrUnsupported},
	15:               {"NVML_ERROR_GPU_IS_LOST", driver.ErrDeviceLost},
	16:               {"NVML_ERROR_RESET_REQUIRED", driver.ErrDeviceLost},
	18:               {"NVML_ERROR_LIB_RM_VERSION_MISMATCH", driver.ErrNoDriver},
	999:              {"NVML_ERROR_UNKNOWN", nil},
}

// error returns nil for Success, else a *driver.Error.
func (l *Library) error(function string, c Code) error {
	if c == Success {
		return nil
	}
	known := codes[c]
	if known.name == "" {
		known.name = fmt.Sprintf("nvmlReturn_t %d", c)
	}
	return &driver.Error{Op: function, Code: int(c), Name: known.name, Detail: l.ErrorString(c), Kind: known.kind}
}
