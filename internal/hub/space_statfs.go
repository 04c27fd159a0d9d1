//go:build darwin || linux

package hub

import "syscall"

// freeSpace returns how many bytes this user may still write to the disk of a folder.
func freeSpace(dir string) (bytes int64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
