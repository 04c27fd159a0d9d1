package cuda

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unsafe"
)

func fakeAttribute(v *int32, a, device uintptr) uintptr {
	values := map[attribute]int32{
		16: 108, 38: 40 << 20, computeMajor: 8, computeMinor: 6, 97: fakeShared,
	}
	value, ok := values[attribute(a)]
	if !ok || device < 7 {
		return 1
	}
	*v = value
	return 0
}

func fakeFuncAttribute(v *int32, a, k uintptr) uintptr {
	values := map[uintptr]int32{
		attributeMaxThreads: 512, attributeMaxDynamicShared: theFake.live[k].(*fakeKernel).shared,
	}
	*v = values[a]
	return 0
}

func checkOptions(n uintptr, keys *[5]int32) {
	if want := [5]int32{3, 4, 5, 6, 12}; n != 5 || *keys != want {
		theFake.misuse = append(theFake.misuse, fmt.Sprintf("options %v of %d", keys, n))
	}
}

var entryPattern = regexp.MustCompile(`\.entry (\w+)`)

// fakeCompile makes an image that lists the entries, and logs like the compiler.
func fakeCompile(text string, o *fakeJITValues) ([]byte, code) {
	if strings.Contains(text, "%nowhere") {
		copy(unsafe.Slice((*byte)(o.errs), o.errSize), "ptxas: line 36: unknown symbol %nowhere\x00")
		return nil, 218
	}
	if o.verbose != 0 {
		copy(unsafe.Slice((*byte)(o.info), o.infoSize), "ptxas info: used 24 registers\x00")
	}
	image := []byte("CUBIN")
	for _, m := range entryPattern.FindAllStringSubmatch(text, -1) {
		image = append(image, " "+m[1]...)
	}
	return append(image, 0), success
}

func fakeLoad(m *uintptr, image *byte) uintptr {
	names, ok := strings.CutPrefix(cString(image), "CUBIN")
	if !ok {
		return 200
	}
	*m = theFake.add(&fakeModule{names})
	return 0
}

func fakeLoadEx(m *uintptr, text *byte, n uintptr, keys *[5]int32, values *fakeJITValues) uintptr {
	checkOptions(n, keys)
	image, c := fakeCompile(cString(text), values)
	if c != success {
		return uintptr(c)
	}
	return fakeLoad(m, &image[0])
}

// fakeExtra is the extra array of a launch.
type fakeExtra struct {
	pointerTag uintptr
	params     unsafe.Pointer
	sizeTag    uintptr
	size       *uintptr
	end        uintptr
}

// fakeLaunch knows one kernel, count_up, and reads its parameters at once.
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

// launchesFrom says whether a graph still has a kernel of the module.
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
