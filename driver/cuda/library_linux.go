package cuda

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// systemFinder asks the dynamic linker first, which follows LD_LIBRARY_PATH and the cache of
// ld.so. Then it tries the directories where distributions, container runtimes and WSL install the
// library without telling the linker.
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
