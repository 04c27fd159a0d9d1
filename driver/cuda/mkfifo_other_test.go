//go:build !unix

package cuda

import "errors"

func mkfifo(string) error { return errors.ErrUnsupported }
