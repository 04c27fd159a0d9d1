//go:build !unix

package cuda

import "io/fs"

// This system has no permission bits, and the inherited permissions of a user's own directories
// exclude other users.

func writableByOthers(fs.FileInfo) bool    { return false }
func replaceableByOthers(fs.FileInfo) bool { return false }
