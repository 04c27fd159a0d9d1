//go:build !windows

package main

import "os"

// enableEscapes does nothing: terminals interpret escape sequences.
func enableEscapes(*os.File) (restore func() error, err error) {
	return func() error { return nil }, nil
}
