// Package driver is the seam between the accelerator and a device that runs PTX:
// libcuda on a GPU (driver/cuda) or the emulator on any machine (driver/emu).
//
// Everything here is safe for concurrent use, except that a Close must not race
// with other calls on the same object. A device that is closed frees what was made
// of it; using that afterwards is an error, not a crash.
package driver

import "time"

// Address is an address in device memory, in bytes. It is what a kernel receives
// for a pointer parameter (eight bytes, little-endian). Zero is never mapped.
type Address uint64

// Dim3 is the extent of a grid (in CTAs) or of a CTA (in threads). Every component
// is at least 1.
type Dim3 struct{ X, Y, Z uint32 }

// Device is one device with its primary context.
type Device interface {
	Properties() Properties
	// Memory says how many bytes of device memory are free and how many there are.
	Memory() (free, total int64, err error)
	// Alloc takes device memory whose address is a multiple of 256. Its contents
	// are undefined. It fails with ErrOutOfMemory, having taken nothing.
	Alloc(bytes int64) (Buffer, error)
	// AllocPinned takes host memory that copies may use without a staging buffer, and
	// kernels by its address. Its contents are undefined.
	AllocPinned(bytes int) (Pinned, error)
	// Load compiles a module of PTX text: ASCII, no terminating NUL. A text that
	// the device refuses is ErrPTXRejected with the compiler's log.
	Load(ptx []byte) (Module, error)
	// NewStream makes a stream that does not wait for any other.
	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// EnablePeer lets kernels of this device address the memory of another one of
	// the same driver. ErrUnsupported if they are not connected.
	EnablePeer(peer Device) error
	// Synchronize waits for all work of the device.
	Synchronize() error
	// Err is nil, or ErrDeviceLost with its cause once a fault took the context: from
	// then on every call fails with it, until the device is closed and opened again.
	Err() error
	Close() error
}

// Properties describe a device; a field is 0 where the device does not tell.
type Properties struct {
	Name              string
	DriverVersion     int // as cuDriverGetVersion gives it: 12040 is CUDA 12.4
	ComputeCapability int // major×10 + minor: 90 is sm_90
	PTXVersion        int // the newest .version that Load takes, major×10 + minor: 74 is 7.4
	SMs               int
	WarpSize          int
	MaxThreadsPerCTA  int
	MaxThreadsPerSM   int
	RegistersPerSM    int
	SharedPerCTA      int // bytes of shared memory that a CTA may have after opting in
	SharedPerSM       int // bytes
	L2                int // bytes
	Memory            int64
	MemoryClockKHz    int
	MemoryBusBits     int
	ClockKHz          int
}

// Buffer is device memory.
type Buffer interface {
	Address() Address
	Bytes() int64
	Close() error
}

// Pinned is page-locked host memory.
type Pinned interface {
	// Bytes is the memory itself. It must not be used after Close.
	Bytes() []byte
	// Address is where kernels of the device find it. The host sees what a kernel writes
	// there once it has waited for the stream, or for an event behind the kernel; until then
	// those bytes are undefined. Kernels read of it only what kernels and copies wrote: the
	// host's own writes reach the device by WriteAsync.
	Address() Address
	Close() error
}

// Module is compiled PTX. It must outlive its functions, and those the graphs that
// launch them.
type Module interface {
	// Function finds an entry by name.
	Function(name string) (Function, error)
	// Log is what the compiler had to say, "" if nothing.
	Log() string
	Close() error
}

// Function is a kernel.
type Function interface {
	Name() string
	Attributes() (Attributes, error)
	// Occupancy is how many CTAs of so many threads and bytes of dynamic shared
	// memory one SM holds at once: 0 if such a CTA is too large.
	Occupancy(threads int, dynamicShared uint32) (int, error)
	// PreferShared hints at the share of an SM's L1 memory that serves as shared memory, in
	// percent of the maximum carve-out. The device may ignore it.
	PreferShared(percent int)
}

// Attributes are what the compiler made of a kernel; -1 where the device does not tell.
type Attributes struct {
	Registers     int // a thread
	LocalBytes    int // a thread: spills and indexed arrays
	StaticShared  int // bytes a CTA
	MaxThreads    int // a CTA
	PTXVersion    int // of the virtual architecture that it was compiled from: 80 for sm_80
	BinaryVersion int // of the architecture that it was compiled for: 90 for sm_90
}

// Launch is one launch of a kernel.
type Launch struct {
	Function Function
	Grid     Dim3
	Block    Dim3
	Shared   uint32 // bytes of dynamic shared memory; more than 48 KiB needs no further call
	// Params holds the kernel's parameters one after the other, each at a multiple
	// of its size, as the entry declares them. It is read before Launch returns.
	Params []byte
	// Overlaps says that the kernel waits by itself for those before it in the stream
	// (griddepcontrol.wait), so that a device may begin it while they still run. A device
	// that does not is right, too.
	Overlaps bool
}

// Stream is a queue of work that runs in order. Errors of the work itself may come
// from any later call.
type Stream interface {
	// Launch queues kernels in order, in one locked section and without allocating.
	// It stops at the first that is refused.
	Launch(launches ...Launch) error
	// Write copies src to the device; src may be changed once Write returns.
	Write(dst Address, src []byte) error
	// Read copies from the device and waits for it: dst is complete on return.
	Read(dst []byte, src Address) error
	// WriteAsync queues a copy of bytes src[offset:offset+bytes]. The pinned memory
	// must stay as it is until the stream has come so far.
	WriteAsync(dst Address, src Pinned, offset, bytes int) error
	// ReadAsync queues a copy into dst[offset:offset+bytes], which is undefined until
	// the stream has come so far.
	ReadAsync(dst Pinned, offset int, src Address, bytes int) error
	// Copy queues a copy within the device; the ranges do not overlap.
	Copy(dst, src Address, bytes int64) error
	// Fill queues setting every byte to value.
	Fill(dst Address, value byte, bytes int64) error
	// Record lets the event happen when the stream has come so far.
	Record(Event) error
	// Wait holds back what is queued later until the event, as last recorded, has happened.
	Wait(Event) error
	Synchronize() error
	// Capture runs record, which must queue work on this stream alone and from its
	// own goroutine, and returns that work instead of running it. Launch, WriteAsync,
	// ReadAsync, Copy and Fill can be captured; anything else fails the capture. A
	// failed capture leaves the stream as it was.
	Capture(record func() error) (Graph, error)
	Close() error
}

// Graph is captured work.
type Graph interface {
	// Instantiate makes it ready to run.
	Instantiate() (Executable, error)
	// Nodes is the number of operations captured.
	Nodes() (int, error)
	Close() error
}

// Executable is a graph that can run, again and again.
type Executable interface {
	// Launch queues one run. It begins when all before it in the stream has ended, even
	// with a kernel that overlaps.
	Launch(Stream) error
	// Update takes over the parameters of a graph of the same shape. ErrUnsupported
	// if the shape differs: instantiate anew.
	Update(Graph) error
	Close() error
}

// Event is a point in a stream's work.
type Event interface {
	Synchronize() error
	// Since is the time from an earlier event to this one; both must have happened.
	Since(earlier Event) (time.Duration, error)
	Close() error
}
