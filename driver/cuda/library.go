package cuda

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-go/lockstep/driver"
)

// library is a loaded libcuda: one address a function, 0 where it has none.
type library struct {
	path    string
	at      [entryCount]uintptr
	version int    // cuDriverGetVersion
	build   string // what else tells drivers of one version apart, "" if nothing does
}

// call calls a function. A pointer converted to uintptr in the argument list stays
// alive and in place until call returns; the directive is what makes it so, and
// every wrapper with ...uintptr must carry it too.
//
//go:uintptrescapes
func (l *library) call(e entry, args ...uintptr) code {
	if l.at[e] == 0 {
		return entryMissing
	}
	r, _, _ := purego.SyscallN(l.at[e], args...)
	return code(int32(r)) // a CUresult is a C int: the upper half of the register is noise
}

// error is nil for success, else the refusal in words.
func (l *library) error(e entry, c code, detail string) error {
	if c == success {
		return nil
	}
	return l.refusal(e, c, detail)
}

func (l *library) refusal(e entry, c code, detail string) *driver.Error {
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

// text asks the driver for one of its constant strings about a code.
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

// join puts the parts that say something behind one another.
func join(parts ...string) string {
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, p)
		}
	}
	return strings.Join(said, ": ")
}

// versionString writes cuDriverGetVersion's number as NVIDIA does: 12040 is 12.4.
func versionString(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// finder is how a libcuda is found. Tests put another one in its place.
type finder struct {
	paths  func() []string
	open   func(path string) (uintptr, error)
	symbol func(handle uintptr, name string) (uintptr, error)
	build  func() string // library.build; nil where there is no way to tell
}

// find loads the first library that works. The error is a MissingError, which is
// ErrNoDriver, unless a driver was there and refused to start: then it is the first
// refusal. (WSL may have a distribution's driver, which finds no
// device, before Windows' own.)
func (f finder) find() (*library, error) {
	var tried []string
	var refusal error
	for _, path := range f.paths() {
		l, err := f.load(path)
		if err == nil {
			return l, nil
		}
		if refusal == nil && !errors.Is(err, driver.ErrNoDriver) {
			refusal = err
		}
		tried = append(tried, fmt.Sprintf("%s: %s", path, strings.TrimPrefix(err.Error(), path+": ")))
	}
	if refusal != nil {
		return nil, refusal
	}
	return nil, &MissingError{driver.ErrNoDriver, tried}
}

// load opens one library, binds its functions and starts the driver.
func (f finder) load(path string) (*library, error) {
	handle, err := f.open(path)
	if err != nil {
		return nil, noDriver{err.Error()}
	}
	l := &library{path: path}
	for e := range entryCount {
		address, err := f.symbol(handle, e.String())
		if err != nil || address == 0 {
			if !entries[e].optional {
				return nil, noDriver{"it exports no " + e.String()}
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
	if f.build != nil {
		l.build = f.build()
	}
	return l, nil
}

// noDriver is a reason why a library does not do.
type noDriver struct{ reason string }

func (e noDriver) Error() string { return e.reason }
func (e noDriver) Unwrap() error { return driver.ErrNoDriver }
