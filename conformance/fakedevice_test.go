package conformance

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/driver"
)

// fakeDevice runs kernels that are Go functions, right or wrong on purpose, so that
// the rig can be tried on faults that no device would trap.
type fakeDevice struct {
	driver.Device // nil: what is not used panics
	memory        []byte
	free          int // address
	run           func(m fakeMemory, params []byte)
}

func newFakeDevice(run func(fakeMemory, []byte)) *fakeDevice {
	return &fakeDevice{memory: make([]byte, 1<<20), free: 4096, run: run}
}

type (
	fakeMemory   []byte
	fakeBuffer   struct{ at, bytes int }
	fakeModule   struct{ driver.Module }
	fakeFunction struct {
		driver.Function
		name string
	}
	fakeStream struct {
		driver.Stream
		d *fakeDevice
	}
)

func (d *fakeDevice) NewStream() (driver.Stream, error)         { return fakeStream{d: d}, nil }
func (d *fakeDevice) Err() error                                { return nil }
func (d *fakeDevice) Close() error                              { return nil }
func (d *fakeDevice) Load([]byte) (driver.Module, error)        { return fakeModule{}, nil }
func (b fakeBuffer) Address() driver.Address                    { return driver.Address(b.at) }
func (b fakeBuffer) Bytes() int64                               { return int64(b.bytes) }
func (b fakeBuffer) Close() error                               { return nil }
func (m fakeModule) Close() error                               { return nil }
func (f fakeFunction) Name() string                             { return f.name }
func (f fakeFunction) PreferShared(int)                         {}
func (s fakeStream) Synchronize() error                         { return nil }
func (s fakeStream) Close() error                               { return nil }
func (d *fakeDevice) Properties() driver.Properties             { return driver.Properties{Name: "fake"} }
func (m fakeModule) Function(n string) (driver.Function, error) { return fakeFunction{name: n}, nil }

func (d *fakeDevice) Alloc(n int64) (driver.Buffer, error) {
	b := fakeBuffer{d.free, int(n)}
	d.free = (d.free + int(n) + 255) / 256 * 256
	if d.free > len(d.memory) {
		return nil, fmt.Errorf("fake: %w", driver.ErrOutOfMemory)
	}
	return b, nil
}

func (s fakeStream) Write(dst driver.Address, src []byte) error {
	copy(s.d.memory[dst:], src)
	return nil
}

func (s fakeStream) Read(dst []byte, src driver.Address) error {
	copy(dst, s.d.memory[src:])
	return nil
}

func (s fakeStream) Launch(list ...driver.Launch) error {
	for _, l := range list {
		s.d.run(s.d.memory, l.Params)
	}
	return nil
}

func (m fakeMemory) f32(at uint64) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(m[at:]))
}

func (m fakeMemory) setF32(at uint64, x float32) {
	binary.LittleEndian.PutUint32(m[at:], math.Float32bits(x))
}
