package cuda

import (
	"os"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// systemFinder asks the dynamic linker first, so that LD_LIBRARY_PATH and ld.so's
// cache decide, and then looks where distributions, container runtimes and WSL put
// the library without telling the linker.
func systemFinder() finder {
	return finder{
		paths: func() []string {
			paths := []string{"libcuda.so.1", "libcuda.so"}
			for _, dir := range libraryDirs() {
				paths = append(paths, dir+"/libcuda.so.1")
			}
			return paths
		},
		open: func(path string) (uintptr, error) {
			return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
		},
		symbol: purego.Dlsym,
		build: func() string {
			// One CUDA version has many drivers, whose compilers differ. WSL has no such file.
			text, _ := os.ReadFile("/proc/driver/nvidia/version")
			line, _, _ := strings.Cut(string(text), "\n")
			return line
		},
	}
}

func libraryDirs() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	var dirs []string
	if triplet != "" {
		dirs = append(dirs, "/usr/lib/"+triplet, "/usr/lib/"+triplet+"/nvidia/current")
	}
	return append(dirs, "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib",
		"/usr/local/cuda/compat", "/usr/lib/wsl/lib")
}
