// Package driver is the interface between the accelerator and a device that runs PTX:
// libcuda on a GPU (driver/cuda) or the emulator on any machine (driver/emu).
//
// All methods are safe for concurrent use, except that Close must not run concurrently
// with other calls on the same object. Closing a device frees every object made from it.
// Any other call on a closed object returns ErrInvalid; closing it again does nothing.
package driver

import "time"

// Address is an address in device memory, in bytes. A kernel receives it for a pointer
// parameter as eight bytes, little-endian. Address 0 is never mapped.
type Address uint64

// Dim3 is the extent of a grid in CTAs, or of a CTA in threads. Each component is at
// least 1.
type Dim3 struct{ X, Y, Z uint32 }

// Device is one device with its primary context.
type Device interface {
	Properties() Properties
	// Memory returns the free and the total device memory in bytes.
	Memory() (free, total int64, err error)
	// Alloc allocates device memory at a multiple of 256 bytes. The contents are
	// undefined. If there is too little memory, the error is ErrOutOfMemory.
	Alloc(bytes int64) (Buffer, error)
	// AllocPinned allocates page-locked host memory. Kernels can access it by its
	// Address. The contents are undefined.
	AllocPinned(bytes int) (Pinned, error)
	// Load compiles a module from PTX text, which is ASCII without a terminating NUL. If
	// the compiler rejects the text, the error is ErrPTXRejected with the compiler's log.
	Load(ptx []byte) (Module, error)
	// NewStream creates a stream that is not ordered with any other stream.
	NewStream() (Stream, error)
	// NewEvent creates an event that records time.
	NewEvent() (Event, error)
	// Err returns nil, or ErrDeviceLost with its cause after a fault has destroyed the
	// context. Every later call then returns this error. Only reopening the device helps.
	Err() error
	Close() error
}

// Properties describes a device. A field is 0 if the device does not report it.
type Properties struct {
	Name              string
	DriverVersion     int // as in cuDriverGetVersion: 12040 is CUDA 12.4
	ComputeCapability int // 10*major + minor: 90 is sm_90
	PTXVersion        int // newest .version that Load accepts, 10*major + minor: 74 is 7.4
	SMs               int // streaming multiprocessors
	SharedPerCTA      int // bytes of shared memory per CTA, including what needs an opt-in
	L2                int // bytes
	Memory            int64
}

// Buffer is device memory.
type Buffer interface {
	Address() Address
	Close() error
}

// Pinned is page-locked host memory.
type Pinned interface {
	// Bytes returns the memory itself, which is valid until Close.
	Bytes() []byte
	// Address returns the device address of the memory. The host sees the writes of a
	// kernel after it has waited for the stream, or for an event recorded after the
	// kernel. Kernels must not read what the host wrote directly: use WriteAsync.
	Address() Address
	Close() error
}

// Module is compiled PTX. It must stay open while its functions, and graphs that launch
// them, are in use.
type Module interface {
	// Function returns the kernel with the given name.
	Function(name string) (Function, error)
	Close() error
}

// Function is a kernel.
type Function interface {
	Name() string
}

// Launch is one launch of a kernel.
type Launch struct {
	Function Function
	Grid     Dim3
	Block    Dim3
	Shared   uint32 // bytes of dynamic shared memory, up to Properties.SharedPerCTA
	// Params holds the kernel's parameters in the order of the entry, each aligned to its
	// size. The slice may be reused as soon as Stream.Launch returns.
	Params []byte
	// Overlaps permits programmatic dependent launch: the device may start the kernel while
	// earlier kernels of the stream still run. The kernel must execute griddepcontrol.wait
	// before it writes global memory, and before it reads what they write. At least one warp must execute it. A
	// device without this feature runs kernels in order.
	Overlaps bool
}

// Stream is a queue of work that runs in order. The error of queued work may be returned by
// any later call.
type Stream interface {
	// Launch queues kernels in order. It stops at the first kernel that is refused.
	Launch(launches ...Launch) error
	// Write copies src to the device. src may be reused as soon as Write returns.
	Write(dst Address, src []byte) error
	// Read copies from the device to dst and waits for the copy.
	Read(dst []byte, src Address) error
	// WriteAsync queues a copy of src[offset:offset+bytes] to the device. The pinned memory
	// must not change until the copy has run.
	WriteAsync(dst Address, src Pinned, offset, bytes int) error
	// ReadAsync queues a copy from the device to dst[offset:offset+bytes]. The pinned memory
	// is undefined until the copy has run.
	ReadAsync(dst Pinned, offset int, src Address, bytes int) error
	// Copy queues a copy within the device. The ranges must not overlap.
	Copy(dst, src Address, bytes int64) error
	// Fill queues a write of value to every byte of the range.
	Fill(dst Address, value byte, bytes int64) error
	// Record queues the event: it completes when all earlier work of the stream has run.
	Record(Event) error
	// Synchronize waits for all queued work.
	Synchronize() error
	// Capture calls record, which queues work on this stream from its own goroutine, and
	// returns that work as a graph instead of running it. Launch, WriteAsync, ReadAsync, Copy
	// and Fill can be captured. Any other call fails the capture. After a failed capture the
	// stream can be used as before.
	Capture(record func() error) (Graph, error)
	Close() error
}

// Interruptible is a Stream that can stop a kernel while it runs, such as the emulator's. A GPU
// runs queued work to its end.
type Interruptible interface {
	// InterruptIf makes the stream call stop from time to time while its kernels run, also
	// concurrently. Once stop returns true, the running kernel ends where it is, and queued
	// kernels are dropped. Launch, or the next wait on this stream, returns ErrInterrupted. The
	// memory that these kernels write is undefined, but the device is not lost. With nil the
	// stream never stops.
	InterruptIf(stop func() bool)
}

// Graph is captured work that can run any number of times, a CUgraphExec of CUDA.
type Graph interface {
	// Launch queues one run. The run starts after all earlier work of the stream has ended,
	// even if its first kernel permits overlap.
	Launch(Stream) error
	Close() error
}

// Event is a point in a stream's work.
type Event interface {
	// Synchronize waits until the event, as last recorded, has completed. It returns at once
	// if the event was never recorded.
	Synchronize() error
	// Since returns the time from an earlier event to this one. Both must have completed.
	Since(earlier Event) (time.Duration, error)
	Close() error
}
