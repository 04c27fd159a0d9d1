// Command lockstep runs language models from GGUF files, and makes, converts, measures and
// inspects such files.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// Without SIGPIPE, a write to a closed pipe returns an error.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(interruptible(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
