//go:build !unix

package cuda

import "io/fs"

// writableByOthers is false: permission bits say nothing here, and what a user's own
// directories inherit keeps others out.
func writableByOthers(fs.FileInfo) bool { return false }
