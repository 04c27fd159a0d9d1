package cuda

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-go/lockstep/driver"
)

// library is a loaded libcuda.
type library struct {
	path    string
	at      [entryCount]uintptr // addresses of the functions, 0 if not exported
	version int                 // as in cuDriverGetVersion
	build   string              // tells drivers of one CUDA version apart; "" if unknown
}

// call calls a function. A pointer that is converted to uintptr in the argument list stays alive
// and in place until call returns. The directive ensures it, so every wrapper with ...uintptr
// needs the directive, too.
//
//go:uintptrescapes
func (l *library) call(e entry, args ...uintptr) code {
	if l.at[e] == 0 {
		return entryMissing
	}
	r, _, _ := purego.SyscallN(l.at[e], args...)
	return code(int32(r)) // a CUresult is a C int: the upper half of the register is undefined
}

// error returns nil for success, else a *driver.Error.
func (l *library) error(e entry, c code, detail string) error {
	if c == success {
		return nil
	}
	return l.failure(e, c, detail)
}

func (l *library) failure(e entry, c code, detail string) *driver.Error {
	err := &driver.Error{Op: e.String(), Code: int(c), Detail: detail, Kind: kinds[c].kind}
	if c == entryMissing {
		err.Code = 0
		err.Detail = join(detail, fmt.Sprintf("driver %s (%s) has no %s", versionString(l.version), l.path, e))
		return err
	}
	err.Name = l.text(cuGetErrorName, c)
	if err.Name == "" {
		err.Name = fmt.Sprintf("CUresult %d", c)
	}
	err.Detail = join(l.text(cuGetErrorString, c), detail)
	return err
}

// text returns the name or the description of a code.
func (l *library) text(e entry, c code) string {
	var p *byte
	if l.call(e, uintptr(c), uintptr(unsafe.Pointer(&p))) != success {
		return ""
	}
	return cString(p)
}

// cString copies a NUL-terminated string.
func cString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// join joins the non-empty parts with ": ".
func join(parts ...string) string {
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	return strings.Join(list, ": ")
}

// versionString formats a version of cuDriverGetVersion: 12040 is 12.4.
func versionString(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// finder opens shared libraries. Tests replace its functions.
type finder struct {
	paths  func() []string // where libcuda may be, most likely first
	open   func(path string) (handle uintptr, err error)
	symbol func(handle uintptr, name string) (address uintptr, err error)
}

// find returns the first libcuda that loads and initializes. On WSL a distribution's own driver
// can fail to initialize for lack of a device, while the driver of Windows works. If no libcuda
// initializes, the error is that of the first one that loaded. If none loaded, it is a *LibraryError.
func (f finder) find() (*library, error) {
	var tried []string
	var initErr error // of the first library that loaded
	for _, path := range f.paths() {
		l, err := f.load(path)
		if err == nil {
			return l, nil
		}
		if initErr == nil && !errors.Is(err, driver.ErrNoDriver) {
			initErr = err
		}
		tried = append(tried, attempt(path, err))
	}
	if initErr != nil {
		return nil, initErr
	}
	return nil, &LibraryError{driver.ErrNoDriver, tried}
}

// attempt describes a failed attempt to load a library.
func attempt(path string, err error) string {
	return path + ": " + strings.TrimPrefix(err.Error(), path+": ")
}

// load opens one library, looks up its functions and initializes the driver.
func (f finder) load(path string) (*library, error) {
	handle, err := f.open(path)
	if err != nil {
		return nil, unusable{err.Error()}
	}
	l := &library{path: path, build: driverBuild()}
	for e := range entryCount {
		address, err := f.symbol(handle, e.String())
		if err != nil || address == 0 {
			if !entries[e].optional {
				return nil, unusable{"it exports no " + e.String()}
			}
			address = 0
		}
		l.at[e] = address
	}
	if c := l.call(cuInit, 0); c != success {
		return nil, l.error(cuInit, c, path)
	}
	var version int32
	if c := l.call(cuDriverGetVersion, uintptr(unsafe.Pointer(&version))); c != success {
		return nil, l.error(cuDriverGetVersion, c, path)
	}
	l.version = int(version)
	return l, nil
}

// driverBuild returns the first line of Linux's description of the kernel module. Drivers of one
// CUDA version have different compilers. Other systems, including WSL, have no such file.
func driverBuild() string {
	text, _ := os.ReadFile("/proc/driver/nvidia/version")
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// unusable is the reason why a library cannot be used.
type unusable struct{ reason string }

func (e unusable) Error() string { return e.reason }
func (e unusable) Unwrap() error { return driver.ErrNoDriver }

// LibraryError means that a library of the driver could not be loaded from any path.
type LibraryError struct {
	Kind  error    // the sentinel: driver.ErrNoDriver, or nvml.ErrNoLibrary from Meter
	Tried []string // each path with the reason; empty if NVIDIA has no driver for the system
}

// Error returns the first path with its reason, and the number of paths.
func (e *LibraryError) Error() string {
	switch n := len(e.Tried); n {
	case 0:
		return fmt.Sprintf("cuda: %v: there is none for this operating system", e.Kind)
	case 1:
		return fmt.Sprintf("cuda: %v: %s", e.Kind, e.Tried[0])
	default:
		return fmt.Sprintf("cuda: %v: tried %d places, first %s", e.Kind, n, e.Tried[0])
	}
}

// Unwrap returns Kind.
func (e *LibraryError) Unwrap() error { return e.Kind }

// loader loads libcuda once. It does not remember a failure: the driver may be installed, or its
// device node may appear, while a server runs.
type loader struct {
	finder finder
	mu     sync.Mutex
	loaded *library
}

var system = loader{finder: systemFinder()}

func (l *loader) get() (*library, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded != nil {
		return l.loaded, nil
	}
	found, err := l.finder.find()
	if err != nil {
		return nil, err
	}
	l.loaded = found
	return found, nil
}
