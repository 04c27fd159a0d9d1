package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// fake is a libcuda in Go with the C calling convention. It runs queued work as late as possible,
// when a call waits for it, and records violations of the driver's rules.
type fake struct {
	mu             sync.Mutex
	current        map[int]uintptr // by OS thread
	calls          map[entry]int
	failures       map[entry]code // results of later calls
	broken         code           // result of every call that needs a context
	info, warnings string         // info log and error log for an accepted text
	linkerInfo     string         // of the info log of the linker alone
	local          int32          // bytes of local memory of each kernel
	misuse         []string

	next     uintptr            // the next handle or device address
	live     map[uintptr]any    // by handle
	memory   map[uintptr][]byte // by device address
	pinned   map[unsafe.Pointer][]byte
	retains  int
	work     []fakeNode             // queued work of all streams, in order
	done     int                    // number of nodes that have run
	captures map[uintptr]*fakeGraph // captures in progress, by stream
}

type (
	fakeModule struct{ entries string }
	fakeKernel struct {
		name   string
		module uintptr
		shared int32
	}
	fakeStream struct{}
	fakeEvent  struct{ at int } // value of done when it completes, -1 if never recorded
	fakeGraph  struct {
		nodes  []fakeNode
		thread int // thread that began the capture
	}
	fakeExec struct{ fakeGraph }
	fakeLink struct {
		values *fakeJITValues
		image  []byte
	}
	fakeNode struct {
		kind   string
		module uintptr        // module of the launched kernel, 0 if none
		host   unsafe.Pointer // pinned memory of a copy, nil if none
		run    func() code
	}
	// fakeJITValues is the memory layout of jitOptions.values.
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
	fakeShared  = 100 << 10 // maximum dynamic shared memory per CTA
	fakeStrict  = 49152     // maximum without cuFuncSetAttribute
	fakeWindow  = 1 << 52   // device address minus host address of pinned memory
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

// newFake replaces the fake that the callbacks use. Callbacks are never freed, so there is one set.
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

// open opens the fake's device. The test closes it.
func (f *fake) open(t testing.TB, o options) *Device {
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

// contextFree lists the functions that need no current context.
var contextFree = map[entry]bool{
	cuInit: true, cuDriverGetVersion: true, cuGetErrorName: true, cuGetErrorString: true, cuDeviceGetCount: true,
	cuDeviceGet: true, cuDeviceGetName: true, cuDeviceGetUUID: true, cuDeviceTotalMem: true, cuDeviceGetAttribute: true,
	cuDevicePrimaryCtxRetain: true, cuDevicePrimaryCtxRelease: true,
	cuCtxGetCurrent: true, cuCtxSetCurrent: true,
}

// guarded wraps a function: it counts calls, checks the rules and injects failures.
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

// left describes the objects that were not freed.
func (f *fake) left() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	kinds := map[string]int{}
	for _, v := range f.live {
		if _, kernel := v.(*fakeKernel); !kernel { // a function is freed with its module
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

// at returns memory by its device address, or nil if it is not allocated.
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

// finish runs queued work until done reaches the number.
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

// queue adds a node to the queue, or to the stream's capture.
func (f *fake) queue(stream uintptr, node fakeNode) uintptr {
	g := f.captures[stream]
	if g == nil {
		f.work = append(f.work, node)
		return 0
	}
	if g.thread != syscall.Gettid() {
		f.misuse = append(f.misuse, node.kind+" from another thread than the capture")
	}
	g.nodes = append(g.nodes, node)
	return 0
}

var fakeName = []byte("CUDA_ERROR_FAKE\x00")

// fakeFunctions are the exported functions. They run with the fake's lock held.
var fakeFunctions = map[entry]any{
	cuInit:             func(flags uintptr) uintptr { return 0 },
	cuDriverGetVersion: func(v *int32) uintptr { *v = fakeDriver; return 0 },
	cuGetErrorName:     func(c uintptr, s *unsafe.Pointer) uintptr { *s = unsafe.Pointer(&fakeName[0]); return 0 },
	cuGetErrorString:   func(c uintptr, s *unsafe.Pointer) uintptr { return 1 },
	cuDeviceGetCount:   func(n *int32) uintptr { *n = 2; return 0 },
	cuDeviceGet:        func(d *int32, ordinal uintptr) uintptr { *d = 7 + int32(ordinal); return 0 },
	cuDeviceGetName: func(p *byte, n, d uintptr) uintptr {
		copy(unsafe.Slice(p, n), "Fake GPU\x00")
		return 0
	},
	cuDeviceGetUUID:      func(p *[16]byte, d uintptr) uintptr { p[15] = 0xab; return 0 },
	cuDeviceTotalMem:     func(n *uintptr, d uintptr) uintptr { *n = 8 << 30; return 0 },
	cuDeviceGetAttribute: fakeAttribute,
	cuDevicePrimaryCtxRetain: func(c *uintptr, d uintptr) uintptr {
		*c = fakeContext
		theFake.retains++
		return 0
	},
	cuDevicePrimaryCtxRelease: func(d uintptr) uintptr {
		if theFake.retains--; theFake.retains == 0 && theFake.broken != success {
			clear(theFake.live) // a lost context frees its objects
			clear(theFake.memory)
			clear(theFake.pinned)
		}
		return 0
	},
	cuCtxGetCurrent:  func(c *uintptr) uintptr { *c = theFake.current[syscall.Gettid()]; return 0 },
	cuCtxSetCurrent:  func(c uintptr) uintptr { theFake.current[syscall.Gettid()] = c; return 0 },
	cuCtxSynchronize: func() uintptr { return 0 },

	cuMemGetInfo: func(free, total *uintptr) uintptr { *free, *total = 1<<30, 8<<30; return 0 },
	cuMemAlloc: func(p *uintptr, n uintptr) uintptr {
		if n > 8<<30 {
			return 2
		}
		f := theFake
		f.next += 1<<12 + n&^255
		f.memory[f.next] = make([]byte, n)
		*p = f.next
		return 0
	},
	cuMemFree: func(p uintptr) uintptr {
		if theFake.memory[p] == nil {
			theFake.misuse = append(theFake.misuse, "freed memory that is not allocated")
		}
		theFake.finishAll()
		delete(theFake.memory, p)
		return 0
	},
	cuMemHostAlloc: func(p *unsafe.Pointer, n, flags uintptr) uintptr {
		if flags != hostPortable|hostMapped {
			theFake.misuse = append(theFake.misuse, "pinned memory without the flags portable and mapped")
		}
		mem := make([]byte, n)
		*p = unsafe.Pointer(&mem[0])
		theFake.pinned[*p] = mem
		return 0
	},
	cuMemHostGetDevicePointer: func(a *uintptr, p unsafe.Pointer, flags uintptr) uintptr {
		if theFake.pinned[p] == nil || flags != 0 {
			return 1
		}
		*a = uintptr(p) + fakeWindow
		return 0
	},
	cuMemFreeHost: func(p unsafe.Pointer) uintptr {
		if theFake.pinned[p] == nil {
			theFake.misuse = append(theFake.misuse, "freed host memory that is not pinned")
		}
		if slices.ContainsFunc(theFake.work, func(n fakeNode) bool { return n.host == p }) {
			theFake.misuse = append(theFake.misuse, "freed pinned memory that a copy is using")
		}
		delete(theFake.pinned, p)
		return 0
	},
	cuMemcpyHtoDAsync: func(dst uintptr, src unsafe.Pointer, n, s uintptr) uintptr {
		host := unsafe.Slice((*byte)(src), n)
		return fakeMove("write", src, s, dst, n, func(mem []byte) { copy(mem, host) })
	},
	cuMemcpyDtoHAsync: func(dst unsafe.Pointer, src, n, s uintptr) uintptr {
		host := unsafe.Slice((*byte)(dst), n)
		return fakeMove("read", dst, s, src, n, func(mem []byte) { copy(host, mem) })
	},
	cuMemcpyDtoDAsync: func(dst, src, n, s uintptr) uintptr {
		return fakeMove("copy", nil, s, dst, n, func(mem []byte) { copy(mem, theFake.at(src, n)) })
	},
	cuMemsetD8Async: func(dst, v, n, s uintptr) uintptr {
		return fakeMove("fill", nil, s, dst, n, func(mem []byte) { copy(mem, bytes.Repeat([]byte{byte(v)}, int(n))) })
	},

	cuLibraryLoadData: fakeLoad,
	cuLibraryGetModule: func(p *uintptr, library uintptr) uintptr {
		*p = library
		return 0
	},
	cuLibraryUnload: func(m uintptr) uintptr {
		if theFake.launchesFrom(m) {
			theFake.misuse = append(theFake.misuse, "unloaded a module before a graph that launches from it")
		}
		return remove[*fakeModule](theFake, m)
	},
	cuLinkCreate: func(n uintptr, keys *[5]int32, values *fakeJITValues, state *uintptr) uintptr {
		checkOptions(n, keys, values)
		*state = theFake.add(&fakeLink{values: values})
		return 0
	},
	cuLinkAddData: func(state, kind uintptr, data *byte, size uintptr, name *byte, n, keys, values uintptr) uintptr {
		l := theFake.live[state].(*fakeLink)
		if kind != jitInputPTX || *(*byte)(unsafe.Add(unsafe.Pointer(data), size-1)) != 0 {
			theFake.misuse = append(theFake.misuse, "the text to link is not NUL-terminated PTX")
		}
		image, c := fakeCompile(cString(data), l.values)
		l.image = image
		appendLog(l.values.info, l.values.infoSize, theFake.linkerInfo)
		return uintptr(c)
	},
	cuLinkComplete: func(state uintptr, image *unsafe.Pointer, size *uintptr) uintptr {
		l := theFake.live[state].(*fakeLink)
		*image, *size = unsafe.Pointer(&l.image[0]), uintptr(len(l.image))
		return 0
	},
	cuLinkDestroy: func(state uintptr) uintptr { return remove[*fakeLink](theFake, state) },

	cuModuleGetFunction: func(p *uintptr, m uintptr, name *byte) uintptr {
		module := theFake.live[m].(*fakeModule)
		if !slices.Contains(strings.Fields(module.entries), cString(name)) {
			return 500
		}
		*p = theFake.add(&fakeKernel{cString(name), m, fakeStrict})
		return 0
	},
	cuFuncGetAttribute: fakeFuncAttribute,
	cuFuncSetAttribute: func(k, a, v uintptr) uintptr {
		if a != attributeMaxDynamicShared || v > fakeShared {
			return 1
		}
		theFake.live[k].(*fakeKernel).shared = int32(v)
		return 0
	},
	cuFuncGetParamInfo: func(k, i uintptr, offset, size *uintptr) uintptr {
		layout := [][2]uintptr{{0, 8}, {8, 4}, {12, 4}}
		if int(i) >= len(layout) {
			return 1
		}
		*offset, *size = layout[i][0], layout[i][1]
		return 0
	},
	cuLaunchKernel: fakeLaunch,
	cuLaunchKernelEx: func(c *launchConfig, k uintptr, params unsafe.Pointer, extra *fakeExtra) uintptr {
		if a := c.attributes; c.count != 1 || a.id != overlapAttribute || a.value[0] != 1 {
			theFake.misuse = append(theFake.misuse, "a launch with unexpected attributes")
		}
		g, b := c.grid, c.block
		return fakeLaunch(k, uintptr(g.X), uintptr(g.Y), uintptr(g.Z), uintptr(b.X), uintptr(b.Y), uintptr(b.Z), uintptr(c.shared), c.stream, params, extra)
	},

	cuStreamCreate: func(p *uintptr, flags uintptr) uintptr {
		if flags != streamNonBlocking {
			theFake.misuse = append(theFake.misuse, "a stream that waits for the default stream")
		}
		*p = theFake.add(&fakeStream{})
		return 0
	},
	cuStreamDestroy:      func(s uintptr) uintptr { return remove[*fakeStream](theFake, s) },
	cuStreamSynchronize:  func(s uintptr) uintptr { return theFake.finishAll() },
	cuStreamBeginCapture: fakeBeginCapture,
	cuStreamEndCapture:   fakeEndCapture,
	cuEventCreate:        func(p *uintptr, flags uintptr) uintptr { *p = theFake.add(&fakeEvent{-1}); return 0 },
	cuEventDestroy:       func(e uintptr) uintptr { return remove[*fakeEvent](theFake, e) },
	cuEventRecord: func(e, s uintptr) uintptr {
		theFake.live[e].(*fakeEvent).at = theFake.done + len(theFake.work)
		return 0
	},
	cuEventSynchronize: func(e uintptr) uintptr { return theFake.finish(theFake.live[e].(*fakeEvent).at) },
	cuEventElapsedTime: func(ms *float32, from, to uintptr) uintptr {
		if a, b := theFake.live[from].(*fakeEvent).at, theFake.live[to].(*fakeEvent).at; a < 0 || b < a {
			return 400
		}
		*ms = 1.5
		return 0
	},
	cuGraphInstantiate: func(p *uintptr, g, flags uintptr) uintptr {
		*p = theFake.add(&fakeExec{*theFake.live[g].(*fakeGraph)})
		return 0
	},
	cuGraphLaunch:      fakeGraphLaunch,
	cuGraphDestroy:     func(g uintptr) uintptr { return remove[*fakeGraph](theFake, g) },
	cuGraphExecDestroy: func(x uintptr) uintptr { return remove[*fakeExec](theFake, x) },
}

// fakeMove queues work on device memory, which must be allocated now.
func fakeMove(kind string, host unsafe.Pointer, stream, address, n uintptr, work func(mem []byte)) uintptr {
	if theFake.at(address, n) == nil {
		return 1
	}
	return theFake.queue(stream, fakeNode{kind: kind, host: host, run: func() code {
		work(theFake.at(address, n))
		return success
	}})
}

func fakeAttribute(v *int32, a, device uintptr) uintptr {
	values := map[deviceAttribute]int32{
		attributeSMs: 108, attributeL2: 40 << 20, attributeMajor: 8, attributeMinor: 6, attributeSharedPerCTA: fakeShared,
	}
	value, ok := values[deviceAttribute(a)]
	if !ok || device < 7 {
		return 1
	}
	*v = value
	return 0
}

func fakeFuncAttribute(v *int32, a, k uintptr) uintptr {
	values := map[uintptr]int32{
		attributeMaxThreads: 512, attributeMaxDynamicShared: theFake.live[k].(*fakeKernel).shared, attributeLocal: theFake.local,
	}
	*v = values[a]
	return 0
}

func checkOptions(n uintptr, keys *[5]int32, values *fakeJITValues) {
	if want := [5]int32{jitInfoLog, jitInfoLogSize, jitErrorLog, jitErrorLogSize, jitLogVerbose}; n != 5 || *keys != want || values.verbose != 1 {
		theFake.misuse = append(theFake.misuse, fmt.Sprintf("options %v of %d, verbose %d", keys, n, values.verbose))
	}
}

// appendLog adds to a log what fits.
func appendLog(log unsafe.Pointer, size uintptr, text string) {
	mem := unsafe.Slice((*byte)(log), size)
	used := bytes.IndexByte(mem, 0)
	if used >= 0 {
		copy(mem[used:], text)
	}
}

var entryPattern = regexp.MustCompile(`\.entry (\w+)`)

// fakeCompile returns an image that lists the entries, or an error log. It writes the fake's logs.
func fakeCompile(text string, o *fakeJITValues) ([]byte, code) {
	if strings.Contains(text, "%nowhere") {
		appendLog(o.errs, o.errSize, "ptxas: line 36: unknown symbol %nowhere")
		return nil, 218
	}
	appendLog(o.info, o.infoSize, theFake.info)
	appendLog(o.errs, o.errSize, theFake.warnings)
	image := []byte("CUBIN")
	for _, m := range entryPattern.FindAllStringSubmatch(text, -1) {
		image = append(image, " "+m[1]...)
	}
	return append(image, 0), success
}

// fakeLoad is cuLibraryLoadData. Text has options; machine code has none.
func fakeLoad(m *uintptr, image *byte, keys *[5]int32, values *fakeJITValues, n, libraryKeys, libraryValues, libraryOptions uintptr) uintptr {
	code := cString(image)
	if n > 0 {
		checkOptions(n, keys, values)
		compiled, c := fakeCompile(code, values)
		if c != success {
			return uintptr(c)
		}
		code = cString(&compiled[0])
	}
	names, ok := strings.CutPrefix(code, "CUBIN")
	if !ok || libraryOptions != 0 {
		return 200
	}
	*m = theFake.add(&fakeModule{names})
	return 0
}

// fakeExtra is the extra array of cuLaunchKernel.
type fakeExtra struct {
	pointerTag uintptr
	params     unsafe.Pointer
	sizeTag    uintptr
	size       *uintptr
	end        uintptr
}

// fakeLaunch runs every kernel as count_up. It reads the parameters before it returns.
func fakeLaunch(k, gx, gy, gz, bx, by, bz, shared, s uintptr, params unsafe.Pointer, extra *fakeExtra) uintptr {
	f := theFake
	kernel := f.live[k].(*fakeKernel)
	if _, ok := f.live[s].(*fakeStream); !ok || params != nil || extra == nil ||
		extra.pointerTag != 1 || extra.sizeTag != 2 || extra.end != 0 || *extra.size != 16 {
		f.misuse = append(f.misuse, fmt.Sprintf("launch of %s with %+v", kernel.name, extra))
		return 1
	}
	if shared > uintptr(kernel.shared) {
		return 1
	}
	p := unsafe.Slice((*byte)(extra.params), 16)
	out := uintptr(binary.LittleEndian.Uint64(p))
	n, first := binary.LittleEndian.Uint32(p[8:]), binary.LittleEndian.Uint32(p[12:])
	return f.queue(s, fakeNode{kind: "kernel", module: kernel.module, run: func() code {
		mem := f.at(out, 4*uintptr(n))
		if mem == nil {
			return 700
		}
		for i := range n {
			binary.LittleEndian.PutUint32(mem[4*i:], first+i)
		}
		return success
	}})
}

func fakeBeginCapture(s, mode uintptr) uintptr {
	if theFake.captures[s] != nil || mode != captureThreadLocal {
		return 900
	}
	theFake.captures[s] = &fakeGraph{thread: syscall.Gettid()}
	return 0
}

func fakeEndCapture(s uintptr, g *uintptr) uintptr {
	captured := theFake.captures[s]
	if captured == nil {
		return 903
	}
	if captured.thread != syscall.Gettid() {
		return 908
	}
	*g = theFake.add(captured)
	delete(theFake.captures, s)
	return 0
}

func fakeGraphLaunch(x, s uintptr) uintptr {
	theFake.work = append(theFake.work, theFake.live[x].(*fakeExec).nodes...)
	return 0
}

// launchesFrom reports whether a live graph launches a kernel of the module.
func (f *fake) launchesFrom(module uintptr) bool {
	from := func(n fakeNode) bool { return n.module == module }
	for _, v := range f.live {
		switch v := v.(type) {
		case *fakeExec:
			if slices.ContainsFunc(v.nodes, from) {
				return true
			}
		}
	}
	return false
}
