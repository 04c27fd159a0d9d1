//go:build !unix

package cuda

import "io/fs"

// writableByOthers returns false: this system has no permission bits, and the inherited permissions
// of a user's own directories exclude other users.
func writableByOthers(fs.FileInfo) bool { return false }
