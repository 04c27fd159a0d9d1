package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// enableEscapes lets a console interpret escape sequences, which it otherwise prints. restore
// resets its mode.
func enableEscapes(out *os.File) (restore func() error, err error) {
	console := windows.Handle(out.Fd())
	var mode uint32
	if err := windows.GetConsoleMode(console, &mode); err != nil {
		return nil, err
	}
	if err := windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING); err != nil {
		return nil, err
	}
	return func() error { return windows.SetConsoleMode(console, mode) }, nil
}
