package cuda

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// fake is a libcuda in Go, behind the same C calling convention. It runs what is
// queued as late as it may, when somebody waits for it, and holds its callers to the
// rules that the real one punishes.
type fake struct {
	mu       sync.Mutex
	current  map[int]uintptr // by OS thread
	calls    map[entry]int
	failures map[entry]code // what the next calls of an entry answer
	broken   code           // what every call that needs a context answers
	misuse   []string

	next     uintptr            // the next handle or device address
	live     map[uintptr]any    // by handle
	memory   map[uintptr][]byte // by device address
	pinned   map[unsafe.Pointer][]byte
	retains  int
	work     []fakeNode             // queued, of all streams in one order
	done     int                    // how many were run before those
	captures map[uintptr]*fakeGraph // under way, by stream
}

type (
	fakeModule struct{ entries string }
	fakeKernel struct {
		name   string
		module uintptr
		shared int32
	}
	fakeStream struct{}
	fakeEvent  struct{ at int } // how much must have run by then, -1 if never recorded
	fakeGraph  struct {
		nodes  []fakeNode
		thread int // that began the capture
	}
	fakeExec struct{ fakeGraph }
	fakeLink struct {
		values *fakeJITValues
		image  []byte
	}
	fakeNode struct {
		kind   string
		module uintptr        // whose kernel it launches, 0 if none
		host   unsafe.Pointer // pinned memory that it moves, nil if none
		run    func() code
	}
	// fakeJITValues is how the option values of jitOptions lie in memory.
	fakeJITValues struct {
		info     unsafe.Pointer
		infoSize uintptr
		errs     unsafe.Pointer
		errSize  uintptr
		verbose  uintptr
	}
)

const (
	fakeContext = 0xc0de
	fakeDriver  = 12040
	fakeShared  = 100 << 10 // dynamic shared memory that a CTA may have
	fakeStrict  = 49152     // and without asking
	fakeWindow  = 1 << 52   // between where the host and where kernels see pinned memory
)

var (
	theFake     *fake
	fakeEntries = sync.OnceValue(func() (at [entryCount]uintptr) {
		for e, f := range fakeFunctions {
			at[e] = purego.NewCallback(guarded(e, f))
		}
		return at
	})
)

// newFake puts a fresh fake behind the one set of callbacks, which are never freed.
func newFake(t testing.TB) *fake {
	f := &fake{
		current: map[int]uintptr{}, calls: map[entry]int{}, failures: map[entry]code{}, next: 1 << 40,
		live: map[uintptr]any{}, memory: map[uintptr][]byte{}, pinned: map[unsafe.Pointer][]byte{},
		captures: map[uintptr]*fakeGraph{},
	}
	theFake = f
	t.Cleanup(func() {
		for _, m := range f.misuse {
			t.Errorf("misuse of the driver: %s", m)
		}
	})
	return f
}

func init() {
	openFake = func(t testing.TB) opener {
		f := newFake(t)
		return f.open
	}
}

func (f *fake) finder() finder {
	return finder{
		paths:  func() []string { return []string{"fake"} },
		open:   func(string) (uintptr, error) { return 1, nil },
		symbol: func(_ uintptr, name string) (uintptr, error) { return fakeSymbol(name) },
	}
}

func fakeSymbol(name string) (uintptr, error) {
	for e := range entryCount {
		if e.String() == name {
			return fakeEntries()[e], nil
		}
	}
	return 0, fmt.Errorf("no symbol %s", name)
}

// open opens the fake's device and closes it with the test.
func (f *fake) open(t testing.TB, o Options) *Device {
	t.Helper()
	lib := must(f.finder().find())(t)
	d := must(lib.open(0, o))(t)
	t.Cleanup(func() {
		d.Close()
		if left := f.left(); f.retains == 0 && left != "" {
			t.Errorf("not freed: %s", left)
		}
	})
	return d
}

// contextFree are the functions that need no current context.
var contextFree = map[entry]bool{
	cuInit: true, cuDriverGetVersion: true, cuGetErrorName: true, cuGetErrorString: true, cuDeviceGetCount: true,
	cuDeviceGet: true, cuDeviceGetName: true, cuDeviceGetUUID: true, cuDeviceTotalMem: true, cuDeviceGetAttribute: true,
	cuDevicePrimaryCtxRetain: true, cuDevicePrimaryCtxRelease: true,
	cuCtxGetCurrent: true, cuCtxSetCurrent: true,
}

// guarded counts a call, holds it to the rules and lets it fail if the test wants so.
func guarded(e entry, function any) any {
	v := reflect.ValueOf(function)
	return reflect.MakeFunc(v.Type(), func(args []reflect.Value) []reflect.Value {
		f := theFake
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls[e]++
		if c := f.before(e); c != success {
			return []reflect.Value{reflect.ValueOf(uintptr(c))}
		}
		return v.Call(args)
	}).Interface()
}

func (f *fake) before(e entry) code {
	if !contextFree[e] {
		if got := f.current[syscall.Gettid()]; got != fakeContext {
			f.misuse = append(f.misuse, fmt.Sprintf("%s with context %#x current", e, got))
			return 201
		}
		if f.broken != success {
			return f.broken
		}
	}
	return f.failures[e]
}

func (f *fake) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		n += c
	}
	return n
}

func (f *fake) count(e entry) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[e]
}

// set changes what the fake does, between calls.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// left describes what was made and not freed.
func (f *fake) left() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	kinds := map[string]int{}
	for _, v := range f.live {
		if _, kernel := v.(*fakeKernel); !kernel { // a function is its module's
			kinds[fmt.Sprintf("%T", v)]++
		}
	}
	if len(f.memory)+len(f.pinned)+f.retains > 0 {
		kinds["memory"], kinds["pinned"], kinds["contexts"] = len(f.memory), len(f.pinned), f.retains
	}
	if len(kinds) == 0 {
		return ""
	}
	var b strings.Builder
	for k := range maps.Keys(kinds) {
		fmt.Fprintf(&b, "%s: %d; ", k, kinds[k])
	}
	return b.String()
}

func (f *fake) add(v any) uintptr {
	f.next += 1 << 12
	f.live[f.next] = v
	return f.next
}

// remove frees a handle of type T, once.
func remove[T any](f *fake, h uintptr) uintptr {
	if _, ok := f.live[h].(T); !ok {
		f.misuse = append(f.misuse, fmt.Sprintf("%#x is freed as %T and is %T", h, *new(T), f.live[h]))
		return 400
	}
	delete(f.live, h)
	return 0
}

// at finds memory by the address that kernels have of it; nil if any is not allocated.
func (f *fake) at(address, bytes uintptr) []byte {
	within := func(base uintptr, mem []byte) bool {
		return address >= base && address+bytes <= base+uintptr(len(mem))
	}
	for base, mem := range f.memory {
		if within(base, mem) {
			return mem[address-base:][:bytes]
		}
	}
	for p, mem := range f.pinned {
		if base := uintptr(p) + fakeWindow; within(base, mem) {
			return mem[address-base:][:bytes]
		}
	}
	return nil
}

// finish runs what was queued, up to a number counted from the start.
func (f *fake) finish(to int) uintptr {
	for len(f.work) > 0 && f.done < to {
		node := f.work[0]
		f.work, f.done = f.work[1:], f.done+1
		if c := node.run(); c != success && f.broken == success {
			f.broken = c
		}
	}
	return uintptr(f.broken)
}

func (f *fake) finishAll() uintptr { return f.finish(f.done + len(f.work)) }

// queue keeps a node until somebody waits, or for the stream's capture.
func (f *fake) queue(stream uintptr, node fakeNode) uintptr {
	g := f.captures[stream]
	if g == nil {
		f.work = append(f.work, node)
		return 0
	}
	if g.thread != syscall.Gettid() {
		f.misuse = append(f.misuse, node.kind+" from another thread than the capture's")
	}
	g.nodes = append(g.nodes, node)
	return 0
}
