package conformance

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/modules"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Launch runs a launch in each world, and again as often as the suite repeats. It
// demands that guards and inputs stay as they are and that a repetition gives the
// same bits. The arguments are what a Spec's Launch returns.
func (r *KernelRig) Launch(l ptx.Launch, err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("launch: %v", err)
	}
	f, err := r.suite.function(l.Kernel)
	if err != nil {
		r.Fatalf("%s: %v", l.Kernel.Name, err)
	}
	r.result.Kernels[l.Kernel.Name] = true
	launch := modules.Launch(l, f, modules.Target(r.suite.device.Properties()))
	launch.Overlaps = launch.Overlaps && !r.suite.alone
	before := make([][][]byte, len(r.buffers))
	for i, m := range r.buffers {
		before[i] = slices.Clone(m.worlds)
	}
	for w := range r.suite.worlds {
		after := r.runIn(w, launch, before)
		for i, m := range r.buffers {
			m.worlds[w] = after[i]
			if !m.input && w == 0 {
				r.result.bits = r.result.bits*0x100000001b3 ^ maphash.Bytes(bitsSeed, after[i])
			}
		}
	}
	for n := range r.suite.Repeats {
		w := n % r.suite.worlds
		for i, again := range r.runIn(w, launch, before) {
			if at := firstByte(r.buffers[i].worlds[w], again); at >= 0 {
				r.Fatalf("%s: %s: byte %d is not the same when launched again", l.Kernel.Name, r.buffers[i].name, at-r.buffers[i].guard)
			}
		}
	}
}

// bitsSeed makes results' bits comparable within a process.
var bitsSeed = maphash.MakeSeed()

// runIn runs a launch on what the buffers held before it, in one world, and returns
// what they hold after it.
func (r *KernelRig) runIn(world int, launch driver.Launch, before [][][]byte) [][]byte {
	r.Helper()
	name := launch.Function.Name()
	for i, m := range r.buffers {
		if err := r.suite.stream.Write(m.buffer.Address(), before[i][world]); err != nil {
			r.Fatalf("%s: writing %s: %v", name, m.name, err)
		}
	}
	if r.suite.enter != nil {
		r.suite.enter(r.suite.device, world)
	}
	if err := r.suite.stream.Launch(launch); err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	if err := r.suite.stream.Synchronize(); err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	after := make([][]byte, len(r.buffers))
	for i, m := range r.buffers {
		image := make([]byte, len(before[i][world]))
		if err := r.suite.stream.Read(image, m.buffer.Address()); err != nil {
			r.Fatalf("%s: reading %s: %v", name, m.name, err)
		}
		m.inspect(name, before[i][world], image)
		if m.input {
			image = before[i][world]
		}
		after[i] = image
	}
	return after
}

// inspect holds a buffer after a launch to what it was before.
func (m *Mem) inspect(kernel string, before, after []byte) {
	m.r.Helper()
	end := len(after) - m.guard
	switch {
	case bytes.Equal(before, after):
	case !bytes.Equal(before[:m.guard], after[:m.guard]):
		at := firstByte(before[:m.guard], after[:m.guard])
		m.r.Errorf("%s: wrote %d bytes before %s", kernel, m.guard-at, m.name)
	case !bytes.Equal(before[end:], after[end:]):
		m.r.Errorf("%s: wrote beyond %s, %d bytes after its end", kernel, m.name, firstByte(before[end:], after[end:]))
	case m.input:
		m.r.Errorf("%s: changed its input %s at byte %d", kernel, m.name, firstByte(before, after)-m.guard)
	}
}
