package cuda

import (
	"bytes"
	"fmt"
	"os"

	"github.com/lockstep-go/lockstep/driver"
)

// checkSource refuses a text that no driver of this version can take, before the
// driver sees it: its own message would be "unexpected character" or a bare number.
func checkSource(ptx []byte, newest int) error {
	for i, b := range ptx {
		if b == 0 || b > 0x7f {
			line := 1 + bytes.Count(ptx[:i], []byte("\n"))
			return rejected(fmt.Sprintf("byte %#02x at offset %d, line %d, is not ASCII text", b, i, line))
		}
	}
	if v, ok := sourceVersion(ptx); ok && newest > 0 && v > newest {
		return rejected(fmt.Sprintf("the text is .version %d.%d and the driver takes up to %d.%d",
			v/10, v%10, newest/10, newest%10))
	}
	return nil
}

func rejected(detail string) error {
	return &driver.Error{Op: "Load", Kind: driver.ErrPTXRejected, Detail: detail}
}

// sourceVersion reads the .version directive, which must be the first. A text
// without one is left for the driver to complain about.
func sourceVersion(ptx []byte) (int, bool) {
	var major, minor int
	n, err := fmt.Sscanf(string(firstDirective(ptx)), ".version %d.%d", &major, &minor)
	return 10*major + minor, err == nil && n == 2 && minor < 10
}

// firstDirective is the text up to the end of the first line that says something.
func firstDirective(text []byte) []byte {
	for {
		text = bytes.TrimLeft(text, " \t\r\n\f\v")
		end := []byte("\n")
		switch {
		case bytes.HasPrefix(text, []byte("//")):
		case bytes.HasPrefix(text, []byte("/*")):
			end = []byte("*/")
		default:
			line, _, _ := bytes.Cut(text, end)
			return line
		}
		_, rest, found := bytes.Cut(text[2:], end)
		if !found {
			return nil
		}
		text = rest
	}
}

// keep writes a rejected text where its author can look at the lines that the log
// speaks of, and says where.
func keep(ptx []byte) string {
	f, err := os.CreateTemp("", "rejected-*.ptx")
	if err != nil {
		return "the text could not be kept: " + err.Error()
	}
	_, err = f.Write(ptx)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "the text could not be kept: " + err.Error()
	}
	return "the text is in " + f.Name()
}
