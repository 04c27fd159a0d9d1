// Command lockstep runs language models from GGUF files, and makes, converts, measures and
// inspects such files.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// Without SIGPIPE, a write to a closed pipe returns an error.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second interrupt ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
