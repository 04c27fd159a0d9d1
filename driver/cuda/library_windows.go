package cuda

import (
	"fmt"
	"syscall"
	"unsafe"
)

// systemFinder loads nvcuda.dll from the system directory by its full path. Windows would also look
// for a bare name in the program's directory and in the current directory, where anyone may put a
// file.
func systemFinder() finder {
	return finder{
		paths: func() []string {
			dir, err := systemDirectory()
			if err != nil {
				return nil
			}
			return []string{dir + `\nvcuda.dll`}
		},
		open: func(path string) (uintptr, error) {
			h, err := syscall.LoadLibrary(path)
			return uintptr(h), err
		},
		symbol: func(handle uintptr, name string) (uintptr, error) {
			return syscall.GetProcAddress(syscall.Handle(handle), name)
		},
	}
}

func systemDirectory() (string, error) {
	var buf [syscall.MAX_PATH + 1]uint16
	proc := syscall.NewLazyDLL("kernel32.dll").NewProc("GetSystemDirectoryW")
	if err := proc.Find(); err != nil {
		return "", err
	}
	n, _, err := proc.Call(uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
	if n == 0 || n > uintptr(len(buf)) {
		return "", fmt.Errorf("GetSystemDirectoryW: %w", err)
	}
	return syscall.UTF16ToString(buf[:n]), nil
}
