package cuda

import (
	"fmt"
	"unsafe"

	"github.com/lockstep-go/lockstep/driver"
)

// Launch queues kernels in order, in one locked section and without allocating.
func (s *stream) Launch(launches ...driver.Launch) error {
	if err := s.res.use("Launch"); err != nil {
		return err
	}
	sc, err := s.res.dev.enter()
	if err != nil {
		return err
	}
	for i := range launches {
		if err = s.launch(sc, &launches[i]); err != nil {
			break
		}
	}
	s.res.dev.leave(sc)
	return err
}

// launch queues one kernel, in a locked section. It passes the parameters as one packed buffer. An
// array of pointers, the alternative, would need an address per parameter.
func (s *stream) launch(sc *scratch, l *driver.Launch) error {
	f, err := s.checkLaunch(l)
	if err != nil {
		return err
	}
	if err := f.allowShared(l.Shared); err != nil {
		return err
	}
	var extra uintptr
	if len(l.Params) > 0 {
		// The caller's slice may be on a stack that moves, so the driver reads a copy.
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&sc.params)), maxParams), l.Params)
		sc.size = uintptr(len(l.Params))
		extra = uintptr(unsafe.Pointer(&sc.extra))
	}
	e, c := s.callLaunch(sc, f, l, extra)
	if c != success {
		return s.res.dev.check(e, c, describe(f, l))
	}
	return nil
}

// callLaunch calls cuLaunchKernelEx for a launch that permits overlap, if the driver has it, else
// cuLaunchKernel.
func (s *stream) callLaunch(sc *scratch, f *function, l *driver.Launch, extra uintptr) (entry, code) {
	lib := s.res.dev.lib
	if l.Overlaps && lib.at[cuLaunchKernelEx] != 0 {
		c := &sc.config
		c.grid, c.block, c.shared, c.stream = l.Grid, l.Block, l.Shared, s.res.handle
		return cuLaunchKernelEx, sc.call(lib, cuLaunchKernelEx, uintptr(unsafe.Pointer(c)), f.handle, 0, extra)
	}
	return cuLaunchKernel, sc.call(lib, cuLaunchKernel, f.handle,
		uintptr(l.Grid.X), uintptr(l.Grid.Y), uintptr(l.Grid.Z),
		uintptr(l.Block.X), uintptr(l.Block.Y), uintptr(l.Block.Z),
		uintptr(l.Shared), s.res.handle, 0, extra)
}

// checkLaunch refuses launches that would crash the driver or fail without an explanation.
func (s *stream) checkLaunch(l *driver.Launch) (*function, error) {
	f, ok := l.Function.(*function)
	if !ok || f == nil {
		return nil, invalid("Launch", fmt.Sprintf("the function is a %T", l.Function))
	}
	if f.module.res.dev != s.res.dev {
		return nil, invalid("Launch", f.name+" was loaded on another device")
	}
	if err := f.module.res.use("Launch"); err != nil {
		return nil, err
	}
	g, b := l.Grid, l.Block
	threads := uint64(b.X) * uint64(b.Y)
	switch {
	case g.X == 0 || g.Y == 0 || g.Z == 0 || b.X == 0 || b.Y == 0 || b.Z == 0:
		return nil, invalid("Launch", describe(f, l)+": an extent of 0")
	case threads > uint64(f.maxThreads) || threads*uint64(b.Z) > uint64(f.maxThreads):
		return nil, invalid("Launch", describe(f, l)+fmt.Sprintf(": the kernel takes at most %d threads per CTA", f.maxThreads))
	case len(l.Params) > maxParams:
		return nil, invalid("Launch", describe(f, l)+fmt.Sprintf(": %d bytes of parameters, the limit is %d", len(l.Params), maxParams))
	case !f.takes(len(l.Params)):
		return nil, invalid("Launch", describe(f, l)+fmt.Sprintf(": %d bytes of parameters, the kernel has %d", len(l.Params), f.params))
	}
	return f, nil
}

// takes reports whether the parameters may have this many bytes. Padding to a multiple of 8 is
// allowed, because packing often leaves it.
func (f *function) takes(bytes int) bool {
	return f.params < 0 || bytes >= f.params && bytes <= (f.params+7)&^7
}

func describe(f *function, l *driver.Launch) string {
	return fmt.Sprintf("%s, grid %d×%d×%d, block %d×%d×%d, %d bytes of dynamic shared memory", f.name,
		l.Grid.X, l.Grid.Y, l.Grid.Z, l.Block.X, l.Block.Y, l.Block.Z, l.Shared)
}
