package cuda

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-go/lockstep/internal/nvml"
)

// Meter opens a meter of the device's energy, which takes about half a second. It loads NVML, which
// nothing else needs. The error is a *LibraryError if there is no NVML, driver.ErrUnsupported for a
// device without an energy counter, or another *driver.Error.
func (d *Device) Meter() (*nvml.Meter, error) {
	l, err := nvmlFinder().findNVML()
	if err != nil {
		return nil, err
	}
	return l.Open(d.uuid)
}

// nvmlFinder searches where libcuda is searched: a driver installs both.
func nvmlFinder() finder {
	f := systemFinder()
	cudaPaths, toNVML := f.paths, strings.NewReplacer("libcuda.so", "libnvidia-ml.so", "nvcuda.dll", "nvml.dll")
	f.paths = func() []string {
		var paths []string
		for _, p := range cudaPaths() {
			paths = append(paths, toNVML.Replace(p))
		}
		return paths
	}
	return f
}

// findNVML loads the first library that has all required functions.
func (f finder) findNVML() (*nvml.Library, error) {
	var tried []string
	for _, path := range f.paths() {
		l, err := f.loadNVML(path)
		if err == nil {
			return l, nil
		}
		tried = append(tried, attempt(path, err))
	}
	return nil, &LibraryError{nvml.ErrNoLibrary, tried}
}

func (f finder) loadNVML(path string) (*nvml.Library, error) {
	library, err := f.open(path)
	if err != nil {
		return nil, err
	}
	at := map[string]uintptr{} // 0 if not exported
	for _, name := range []string{
		nvml.Init, nvml.Shutdown, nvml.HandleByUUID, nvml.TotalEnergy, nvml.ErrorString,
		nvml.ClockInfo, nvml.PowerUsage, nvml.Temperature, nvml.EventReasons, nvml.ThrottleReasons,
	} {
		if address, err := f.symbol(library, name); err == nil {
			at[name] = address
		}
	}
	for _, name := range []string{nvml.Init, nvml.Shutdown, nvml.HandleByUUID, nvml.TotalEnergy, nvml.ErrorString} {
		if at[name] == 0 {
			return nil, fmt.Errorf("it exports no %s", name)
		}
	}
	reasons := at[nvml.EventReasons]
	if reasons == 0 {
		reasons = at[nvml.ThrottleReasons]
	}
	return &nvml.Library{
		Init:     func() nvml.Code { return nvmlCall(at[nvml.Init]) },
		Shutdown: func() nvml.Code { return nvmlCall(at[nvml.Shutdown]) },
		HandleByUUID: func(uuid string, handle *uintptr) nvml.Code {
			text := append([]byte(uuid), 0)
			return nvmlCall(at[nvml.HandleByUUID], uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(handle)))
		},
		TotalEnergy: func(handle uintptr, millijoules *uint64) nvml.Code {
			return nvmlCall(at[nvml.TotalEnergy], handle, uintptr(unsafe.Pointer(millijoules)))
		},
		ErrorString: func(c nvml.Code) string {
			constant, _, _ := purego.SyscallN(at[nvml.ErrorString], uintptr(c))
			return cString(*(**byte)(unsafe.Pointer(&constant)))
		},
		ClockInfo: func(handle, clock uintptr, megahertz *uint32) nvml.Code {
			return nvmlCall(at[nvml.ClockInfo], handle, clock, uintptr(unsafe.Pointer(megahertz)))
		},
		PowerUsage: func(handle uintptr, milliwatts *uint32) nvml.Code {
			return nvmlCall(at[nvml.PowerUsage], handle, uintptr(unsafe.Pointer(milliwatts)))
		},
		Temperature: func(handle, sensor uintptr, celsius *uint32) nvml.Code {
			return nvmlCall(at[nvml.Temperature], handle, sensor, uintptr(unsafe.Pointer(celsius)))
		},
		EventReasons: func(handle uintptr, bits *uint64) nvml.Code {
			return nvmlCall(reasons, handle, uintptr(unsafe.Pointer(bits)))
		},
	}, nil
}

// nvmlCall calls a function that returns an nvmlReturn_t, a C enum: the upper half of the register is
// undefined. Address 0 stands for a function that the library does not export.
//
//go:uintptrescapes
func nvmlCall(at uintptr, args ...uintptr) nvml.Code {
	if at == 0 {
		return nvml.FunctionNotFound
	}
	r, _, _ := purego.SyscallN(at, args...)
	return nvml.Code(int32(r))
}
