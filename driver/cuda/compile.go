package cuda

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

// Numbers of CUjit_option and CUjitInputType.
const (
	jitInfoLog      = 3
	jitInfoLogSize  = 4
	jitErrorLog     = 5
	jitErrorLogSize = 6
	jitLogVerbose   = 12 // the info log has the figures of each kernel

	jitInputPTX = 1
)

const logBytes = 16 << 10

// jitOptions are the options of one compilation: an array of option numbers and an array of values.
// A value that fits a pointer is stored in the array itself. The driver keeps the arrays and writes
// the logs until the compilation has ended, so the struct is pinned.
type jitOptions struct {
	keys   [5]int32
	values [5]uintptr
	info   [logBytes]byte
	errors [logBytes]byte
	pin    runtime.Pinner
}

func newJITOptions() *jitOptions {
	o := new(jitOptions)
	o.pin.Pin(o)
	o.keys = [5]int32{jitInfoLog, jitInfoLogSize, jitErrorLog, jitErrorLogSize, jitLogVerbose}
	o.values = [5]uintptr{uintptr(unsafe.Pointer(&o.info)), logBytes, uintptr(unsafe.Pointer(&o.errors)), logBytes, 1}
	return o
}

func (o *jitOptions) release() { o.pin.Unpin() }

// log returns the info log and the error log. The latter may have warnings.
func (o *jitOptions) log() string { return logText(&o.info) + "\n" + logText(&o.errors) }

// logText returns the text of a log, which ends at the first NUL: the driver pads it and does not
// always report its length.
func logText(log *[logBytes]byte) string {
	text, _, _ := bytes.Cut(log[:], []byte{0})
	return strings.TrimSpace(string(text))
}

// image is compiled PTX.
type image struct {
	log   string // of the compiler; without NUL
	cubin []byte // empty if the text must be compiled without the linker
}

// encode returns the image as the cache stores it.
func (i image) encode() []byte { return slices.Concat([]byte(i.log), []byte{0}, i.cubin) }

func decodeImage(stored []byte) image {
	log, cubin, _ := bytes.Cut(stored, []byte{0})
	return image{string(log), cubin}
}

// link compiles PTX text to machine code with the driver's linker, in a locked section. The linker
// returns the machine code, so that the cache can store it; cuLibraryLoadData does not. The error is
// driver.ErrUnsupported if there is no linker.
func (d *Device) link(ptx []byte) (image, error) {
	o := newJITOptions()
	defer o.release()
	var state uintptr
	err := d.call(cuLinkCreate, uintptr(len(o.keys)), uintptr(unsafe.Pointer(&o.keys)),
		uintptr(unsafe.Pointer(&o.values)), uintptr(unsafe.Pointer(&state)))
	if err != nil {
		return image{}, err
	}
	defer func() { d.lib.call(cuLinkDestroy, state) }()
	text, name := append(bytes.Clone(ptx), 0), []byte("module.ptx\x00")
	c := d.lib.call(cuLinkAddData, state, jitInputPTX, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)),
		uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
	if c != success {
		return image{}, d.compileError(cuLinkAddData, c, o, ptx)
	}
	var cubin *byte
	var size uintptr
	c = d.lib.call(cuLinkComplete, state, uintptr(unsafe.Pointer(&cubin)), uintptr(unsafe.Pointer(&size)))
	if c != success {
		return image{}, d.compileError(cuLinkComplete, c, o, ptx)
	}
	return image{o.log(), bytes.Clone(unsafe.Slice(cubin, size))}, nil
}

// slowIfLinked reports whether the linker would make a kernel slow: it ignores setmaxnreg.
func slowIfLinked(ptx []byte) bool { return bytes.Contains(ptx, []byte("setmaxnreg")) }

// loaded is a CUlibrary and its CUmodule in the device's context.
type loaded struct{ library, module uintptr }

// compile compiles and loads PTX text, in a locked section. It returns the compiler's log beside the library.
func (d *Device) compile(ptx []byte) (l loaded, log string, err error) {
	o := newJITOptions()
	defer o.release()
	l, e, c := d.loadLibrary(append(bytes.Clone(ptx), 0), o)
	if c != success {
		return loaded{}, "", d.compileError(e, c, o, ptx)
	}
	return l, o.log(), nil
}

// loadCubin loads machine code, in a locked section.
func (d *Device) loadCubin(cubin []byte) (loaded, error) {
	if len(cubin) == 0 {
		return loaded{}, &driver.Error{Op: "Load", Kind: driver.ErrPTXRejected, Detail: "no machine code"}
	}
	l, e, c := d.loadLibrary(cubin, nil)
	return l, d.check(e, c, "")
}

// loadLibrary loads PTX text that ends with NUL, or machine code. Threads compile at the same time, which
// cuModuleLoadDataEx does not allow. If c is not success, e has returned it.
func (d *Device) loadLibrary(image []byte, o *jitOptions) (l loaded, e entry, c code) {
	var keys, values, n uintptr
	if o != nil {
		keys, values, n = uintptr(unsafe.Pointer(&o.keys)), uintptr(unsafe.Pointer(&o.values)), uintptr(len(o.keys))
	}
	e = cuLibraryLoadData
	c = d.lib.call(e, uintptr(unsafe.Pointer(&l.library)), uintptr(unsafe.Pointer(&image[0])), keys, values, n, 0, 0, 0)
	if c != success {
		return loaded{}, e, c
	}
	e = cuLibraryGetModule
	if c = d.lib.call(e, uintptr(unsafe.Pointer(&l.module)), l.library); c != success {
		d.lib.call(cuLibraryUnload, l.library)
		return loaded{}, e, c
	}
	return l, e, c
}

// compileError converts the code of a failed compilation to an error. If the compiler rejects the
// text or logs errors, the error has its log and names a file with the text.
func (d *Device) compileError(e entry, c code, o *jitOptions, ptx []byte) error {
	log := logText(&o.errors)
	detail := log
	if kinds[c].kind == driver.ErrPTXRejected || log != "" {
		detail = join(log, saveRejected(ptx))
	}
	err := d.check(e, c, detail)
	if refused, ok := err.(*driver.Error); ok && refused.Kind == nil && log != "" {
		refused.Kind = driver.ErrPTXRejected
	}
	return err
}

// saveRejected writes rejected PTX to a temporary file, because the compiler's log refers to its
// lines. It returns a sentence that names the file.
func saveRejected(ptx []byte) string {
	f, err := os.CreateTemp("", "rejected-*.ptx")
	if err != nil {
		return "the text could not be saved: " + err.Error()
	}
	_, err = f.Write(ptx)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "the text could not be saved: " + err.Error()
	}
	return "the text is in " + f.Name()
}

// checkSource rejects a text that is not ASCII or is too new for the driver. The driver itself reports
// these as "unexpected character" or as a bare number.
func checkSource(ptx []byte, newest int) error {
	for i, b := range ptx {
		if b == 0 || b > 0x7f {
			line := 1 + bytes.Count(ptx[:i], []byte("\n"))
			return rejected(fmt.Sprintf("byte %#02x at offset %d, line %d, is not ASCII text", b, i, line))
		}
	}
	if v, ok := sourceVersion(ptx); ok && newest > 0 && v > newest {
		return rejected(fmt.Sprintf("the text is .version %d.%d and the driver takes up to %d.%d",
			v/10, v%10, newest/10, newest%10))
	}
	return nil
}

func rejected(detail string) error {
	return &driver.Error{Op: "Load", Kind: driver.ErrPTXRejected, Detail: detail}
}

// sourceVersion parses the .version directive, which must come first. It does not report a missing
// one: the driver does.
func sourceVersion(ptx []byte) (int, bool) {
	var major, minor int
	n, err := fmt.Sscanf(string(firstDirective(ptx)), ".version %d.%d", &major, &minor)
	return 10*major + minor, err == nil && n == 2 && minor < 10
}

// firstDirective returns the first line that is not a comment or empty.
func firstDirective(text []byte) []byte {
	for {
		text = bytes.TrimLeft(text, " \t\r\n\f\v")
		end := []byte("\n")
		switch {
		case bytes.HasPrefix(text, []byte("//")):
		case bytes.HasPrefix(text, []byte("/*")):
			end = []byte("*/")
		default:
			line, _, _ := bytes.Cut(text, end)
			return line
		}
		_, rest, found := bytes.Cut(text[2:], end)
		if !found {
			return nil
		}
		text = rest
	}
}
