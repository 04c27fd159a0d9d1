// Package cuda runs PTX on an NVIDIA GPU through libcuda, the library of the NVIDIA driver, without
// cgo and without the CUDA toolkit. It implements the interface of package driver.
//
//	dev, err := cuda.Open(0)
//	mod, err := dev.Load(ptx)      // compiled once, then read from the cache on disk
//	f, err := mod.Function("gemv")
//	s, err := dev.NewStream()
//	err = s.Launch(driver.Launch{Function: f, Grid: …, Block: …, Params: …})
//
// # The library
//
// The library is loaded when a device is opened. A program that links this package runs on a machine
// without a GPU. The table in entries.go lists the functions with the names that the library exports.
// They include version suffixes, because a name without its suffix selects an old ABI. A driver that
// lacks an optional function can be opened; a call that needs the function is driver.ErrUnsupported.
//
// # Calls
//
// purego.SyscallN calls a function by its address. purego.RegisterFunc would be simpler, but it uses
// reflection and allocates for each call, and a token takes hundreds of launches. SyscallN takes
// integers, which do not keep memory alive, so three rules apply:
//
//   - A wrapper whose integers may be converted pointers carries go:uintptrescapes.
//   - A call that must not allocate passes no pointers except into a scratch, which is on the heap
//     and does not move.
//   - The driver never accesses memory of the caller: parameters are copied to the scratch, and
//     copies of ordinary slices go through pinned staging memory of the stream.
//
// # Threads
//
// The current context belongs to the OS thread, and a goroutine can change threads between two calls.
// So each method is one locked section (context.go): lock the OS thread, make the device's context
// current, make the calls, restore the previous context, unlock the thread. Other users of the driver
// in the process see no difference. A dedicated thread would cost a thread switch per call, which is
// slower than a launch. Launch takes several kernels to pay for the section once.
//
// A capture is one section from begin to end, because a thread-local capture must stay on one thread.
// Thread-local means that other goroutines may allocate and load modules meanwhile.
//
// # Parameters
//
// The parameters of a kernel are one packed buffer, as PTX declares them, not an array of pointers. If
// the driver reports the size of a kernel's parameters (CUDA 12.4), a launch with another size is
// refused before the driver reads past the buffer.
//
// # Faults
//
// A fault in a kernel destroys the context and everything in it. The first call that returns the fault
// marks the device lost. From then on each call returns that error without calling the driver, until
// the device is closed. Reopening the device in the same process may fail; a new process works. Launches
// that are known to cause faults, such as an empty grid or a function of a closed module, are refused
// before they reach the driver.
//
// # Compiled modules
//
// The driver compiles PTX for the device, which takes milliseconds to seconds. Its own cache is small
// and shared with every other program. So Load obtains the machine code from the driver's linker and
// stores it on disk, keyed by a hash of the text, the driver and the device. A damaged file is compiled
// again, and a directory that cannot be used only costs time. If the compiler rejects a text, the error
// has its log and names a file with the text.
//
// The linker compiles a text as one of several. That can make a kernel slow: setmaxnreg is ignored, and
// the slow path of a division becomes a call, around which registers spill and wgmma is serialized. If the
// text has setmaxnreg, or the compiler's log shows such a kernel, Load compiles the text without the linker.
// Then the driver's own cache stores the machine code, and the cache on disk only remembers not to link.
//
// Goroutines can Load at the same time. Modules are CUlibraries, since cuModuleLoadDataEx compiles one text
// after another.
//
// # Slow kernels
//
// The compiler may spill registers, serialize wgmma or ignore setmaxnreg. The kernel then gives the
// same results, slowly, so a program must not fail. Load parses the compiler's log, which the cache on
// disk keeps, and Function reads how much local memory the kernel uses.
// [Device.SlowKernels] lists the kernels. The conformance suite fails if there is one, and the command
// prints them.
package cuda
