package gguf

import (
	"io"

	"github.com/lockstep-go/lockstep/internal/atomicfile"
)

// WriteFile writes the file to path: under a temporary name in the same directory
// first, renamed when all of it is on the disk. On an error nothing is left behind,
// and a file that was at path before stays as it was; its permissions stay in any
// case.
func (w *Writer) WriteFile(path string) error {
	err := atomicfile.Write(path, func(dst io.Writer) error {
		_, err := w.writeTo(dst)
		return err
	})
	if err != nil {
		return inFile(path, withoutPath(err))
	}
	return nil
}
