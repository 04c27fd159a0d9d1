// Package cuda runs PTX on an NVIDIA GPU through the driver's own library, libcuda,
// with no cgo and no CUDA toolkit. It implements the seam in package driver.
//
//	dev, err := cuda.Open(0)
//	mod, err := dev.Load(ptx)      // compiled once, then from the cache on disk
//	f, err := mod.Function("gemv")
//	s, err := dev.NewStream()
//	err = s.Launch(driver.Launch{Function: f, Grid: …, Block: …, Params: …})
//
// # The library
//
// The library is looked for when a device is opened or counted, never before: a
// program that links this package runs on a machine without a GPU until it asks for
// one. The functions in use stand in one table (entries.go) with the names that the
// library exports, suffixes included, because a bare name binds the form that old
// programs expect. A driver too old for an optional one opens all the same; what
// needs it is driver.ErrUnsupported.
//
// # Calls
//
// Functions are called by address through purego.SyscallN. The convenient other way,
// RegisterFunc, builds each call by reflection: several times slower, with
// allocations, and a token takes hundreds of launches. SyscallN takes numbers, and a
// number does not keep memory alive. Three rules make that safe. A wrapper that lets
// pointers pass as numbers carries go:uintptrescapes. What must not allocate passes
// no pointers but into a scratch, which is on the heap, where Go moves nothing. And
// the driver never reads or writes a caller's memory: parameters are copied to the
// scratch, and copies of ordinary slices go through pinned memory of the stream's own.
//
// # Threads
//
// The driver's current context belongs to the OS thread, and a goroutine may change
// threads between any two calls. So each method is one locked section (section.go):
// stay on this thread, make the device's context current, do the calls, put back
// what was current, let go. Other users of the driver in the process see no
// difference. Handing the calls to one thread that keeps the context would cost a
// switch of threads a call, which is more than a launch takes. Launch takes many
// kernels, so that the section's few calls are paid once.
//
// A capture is one section from begin to end, because the driver wants all of a
// thread-local capture on one thread. Thread-local means that other goroutines may
// allocate and load meanwhile; waiting for the whole device during a capture is what
// the driver still refuses, and it fails the capture.
//
// # Parameters
//
// A kernel's parameters go to the driver as one packed buffer, the form that PTX
// itself declares, and not as an array of pointers to values. The launch that comes
// with a kernel can lay it out once, and where the driver tells (12.4) its size is
// held against the kernel's before the driver reads past its end.
//
// # Faults
//
// A fault in a kernel takes the context, and everything in it. The first call that
// finds out marks the device lost; from then on each call fails with that cause,
// without a call to the driver, until the device is closed. Whether the process can
// open it again is the driver's affair; a new process can. What is known to make
// such faults or worse, an empty grid, parameters that are not there, a closed
// module's function, is refused before the driver sees it.
//
// # Compiled modules
//
// The driver compiles PTX for the device, which takes from milliseconds to seconds,
// and keeps the result in a cache of its own that is small and shared with every
// other program. The linker interface hands out the machine code, so Load keeps it
// on disk, under a hash of the text, the driver and the device. A file that is not
// whole is compiled anew; a directory that cannot be used costs time and is counted
// in Stats, nothing else. On rejection the compiler's log is in the error, with the
// name of a file that holds the text its line numbers mean.
//
// # Energy
//
// libcuda does not tell it; NVML does, the driver's library for management, which
// Device.Meter looks for when it is asked. Its table (nvml.go) is apart from
// libcuda's: the two know a device by its UUID, and nothing but a Meter needs it.
package cuda
