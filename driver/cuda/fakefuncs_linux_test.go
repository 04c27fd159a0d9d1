package cuda

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"unsafe"
)

var fakeName = []byte("CUDA_ERROR_FAKE\x00")

// fakeFunctions are what the fake exports. They run under its lock.
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
			clear(theFake.live) // a context takes what it holds with it
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
			theFake.misuse = append(theFake.misuse, "pinned memory that not every context copies, or no kernel writes")
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

	cuModuleLoadData:   fakeLoad,
	cuModuleLoadDataEx: fakeLoadEx,
	cuModuleUnload: func(m uintptr) uintptr {
		if theFake.launchesFrom(m) {
			theFake.misuse = append(theFake.misuse, "unloaded a module before a graph that launches from it")
		}
		return remove[*fakeModule](theFake, m)
	},
	cuLinkCreate: func(n uintptr, keys *[5]int32, values *fakeJITValues, state *uintptr) uintptr {
		checkOptions(n, keys)
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
			theFake.misuse = append(theFake.misuse, "a launch with other attributes than that it overlaps")
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

// fakeMove queues work on device memory, which must be there when it is queued.
func fakeMove(kind string, host unsafe.Pointer, stream, address, n uintptr, work func(mem []byte)) uintptr {
	if theFake.at(address, n) == nil {
		return 1
	}
	return theFake.queue(stream, fakeNode{kind: kind, host: host, run: func() code {
		work(theFake.at(address, n))
		return success
	}})
}
