package cuda

import (
	"bytes"
	"errors"
	"runtime"
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
	jitLogVerbose   = 12

	jitInputPTX = 1
)

const logBytes = 16 << 10

// jitOptions are the options of one compilation. The driver takes two arrays, of
// option numbers and of values; a value that fits a pointer stands in the array
// itself, where its type suggests a pointer to it. The driver keeps the arrays and
// writes to the logs until the compilation has ended, so the whole is pinned.
type jitOptions struct {
	keys   [5]int32
	values [5]uintptr
	info   [logBytes]byte
	errors [logBytes]byte
	pin    runtime.Pinner
}

func newJITOptions(verbose bool) *jitOptions {
	o := new(jitOptions)
	o.pin.Pin(o)
	o.keys = [5]int32{jitInfoLog, jitInfoLogSize, jitErrorLog, jitErrorLogSize, jitLogVerbose}
	o.values = [5]uintptr{uintptr(unsafe.Pointer(&o.info)), logBytes, uintptr(unsafe.Pointer(&o.errors)), logBytes, 0}
	if verbose {
		o.values[4] = 1
	}
	return o
}

func (o *jitOptions) release() { o.pin.Unpin() }

// log is what the compiler wrote, errors first.
func (o *jitOptions) log() string {
	return strings.TrimSpace(logText(o.errors[:]) + "\n" + logText(o.info[:]))
}

// logText ends at the first NUL, because the driver pads and does not always say
// how much it wrote.
func logText(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.TrimSpace(string(b))
}

// compiled is what became of a text.
type compiled struct {
	module uintptr
	log    string
	cubin  []byte // nil if the driver did not give it out
}

// compileCached compiles by way of the linker, which hands out the machine code
// that the cache keeps.
func (d *Device) compileCached(ptx []byte) (compiled, error) {
	cubin, log, err := d.link(ptx)
	if err != nil {
		if errors.Is(err, driver.ErrUnsupported) {
			return d.compile(ptx)
		}
		return compiled{}, err
	}
	module, err := d.loadCubin(cubin)
	return compiled{module, log, cubin}, err
}

// link turns PTX text into machine code, in a locked section.
func (d *Device) link(ptx []byte) (cubin []byte, log string, err error) {
	o := newJITOptions(d.options.Verbose)
	defer o.release()
	var state uintptr
	err = d.call(cuLinkCreate, uintptr(len(o.keys)), uintptr(unsafe.Pointer(&o.keys)),
		uintptr(unsafe.Pointer(&o.values)), uintptr(unsafe.Pointer(&state)))
	if err != nil {
		return nil, "", err
	}
	defer func() { d.lib.call(cuLinkDestroy, state) }()
	text, name := append(bytes.Clone(ptx), 0), []byte("module.ptx\x00")
	c := d.lib.call(cuLinkAddData, state, jitInputPTX, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)),
		uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
	if c != success {
		return nil, "", d.rejection(cuLinkAddData, c, o, ptx)
	}
	var image *byte
	var size uintptr
	c = d.lib.call(cuLinkComplete, state, uintptr(unsafe.Pointer(&image)), uintptr(unsafe.Pointer(&size)))
	if c != success {
		return nil, "", d.rejection(cuLinkComplete, c, o, ptx)
	}
	return bytes.Clone(unsafe.Slice(image, size)), o.log(), nil
}

// compile has the driver compile and load in one, in a locked section.
func (d *Device) compile(ptx []byte) (compiled, error) {
	o := newJITOptions(d.options.Verbose)
	defer o.release()
	text := append(bytes.Clone(ptx), 0)
	var m compiled
	c := d.lib.call(cuModuleLoadDataEx, uintptr(unsafe.Pointer(&m.module)), uintptr(unsafe.Pointer(&text[0])),
		uintptr(len(o.keys)), uintptr(unsafe.Pointer(&o.keys)), uintptr(unsafe.Pointer(&o.values)))
	if c != success {
		return compiled{}, d.rejection(cuModuleLoadDataEx, c, o, ptx)
	}
	m.log = o.log()
	return m, nil
}

// loadCubin loads machine code, in a locked section.
func (d *Device) loadCubin(cubin []byte) (uintptr, error) {
	if len(cubin) == 0 {
		return 0, &driver.Error{Op: "Load", Kind: driver.ErrPTXRejected, Detail: "no machine code"}
	}
	var module uintptr
	err := d.call(cuModuleLoadData, uintptr(unsafe.Pointer(&module)), uintptr(unsafe.Pointer(&cubin[0])))
	return module, err
}

// rejection is a failed compilation as an error. The text is kept only where the
// compiler objects to the text.
func (d *Device) rejection(e entry, c code, o *jitOptions, ptx []byte) error {
	detail := o.log()
	if kinds[c].kind == driver.ErrPTXRejected || detail != "" {
		detail = join(detail, keep(ptx))
	}
	err := d.check(e, c, detail)
	if refused, ok := err.(*driver.Error); ok && refused.Kind == nil {
		if logText(o.errors[:]) != "" {
			refused.Kind = driver.ErrPTXRejected
		}
	}
	return err
}
