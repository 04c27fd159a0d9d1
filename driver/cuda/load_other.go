//go:build !linux && !windows

package cuda

// systemFinder finds nothing: NVIDIA makes no driver for this system.
func systemFinder() finder {
	return finder{paths: func() []string { return nil }}
}
