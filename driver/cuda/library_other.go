//go:build !linux && !windows

package cuda

// systemFinder has no paths: NVIDIA has no driver for this system.
func systemFinder() finder {
	return finder{paths: func() []string { return nil }}
}
