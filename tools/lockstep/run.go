package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/synth"
)

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

type cli struct {
	Version kong.VersionFlag `help:"Print the version and exit."`
	Verbose bool             `short:"v" help:"Say why a GPU is not there: each place where its driver was looked for."`

	Generate   generateCmd   `cmd:"" help:"Continue a text."`
	Logits     logitsCmd     `cmd:"" help:"Write the logits after each of some tokens to a .npy file."`
	Tokenize   tokenizeCmd   `cmd:"" help:"Turn text into token ids."`
	Inspect    inspectCmd    `cmd:"" help:"Show what is in a GGUF file."`
	Quantize   quantizeCmd   `cmd:"" help:"Convert a model to another block format."`
	Perplexity perplexityCmd `cmd:"" help:"Measure how well a model predicts a text."`
	Plan       planCmd       `cmd:"" help:"Show what running a model would take of a device, and which kernels."`
	Synth      synthCmd      `cmd:"" help:"Make a model of a real shape with random weights."`
	PTX        ptxCmd        `cmd:"" name:"ptx" help:"Show the kernels as PTX."`
	Bench      benchCmd      `cmd:"" help:"Measure on this machine."`
	Diff       diffCmd       `cmd:"" help:"Compare a GPU with the reference, operation by operation."`
	Golden     goldenCmd     `cmd:"" help:"Compute the golden logits again and compare them."`
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// usagef makes a usageError that begins with the flag's or argument's name.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// outputError is an error of standard output.
type outputError struct{ err error }

func (o *outputError) Error() string { return "standard output: " + o.err.Error() }
func (o *outputError) Unwrap() error { return o.err }

// env is what a command works with.
type env struct {
	ctx  context.Context
	in   io.Reader
	out  io.Writer
	errw io.Writer

	verbose bool
}

func (e *env) Write(p []byte) (int, error) {
	n, err := e.out.Write(p)
	if err != nil {
		err = &outputError{err}
	}
	return n, err
}

// stdout writes to standard output.
func (e *env) stdout(format string, args ...any) error {
	_, err := fmt.Fprintf(e, format, args...)
	return err
}

// note writes a line for people to standard error, where a failure to write
// cannot be told to anybody.
func (e *env) note(format string, args ...any) { fmt.Fprintf(e.errw, format+"\n", args...) }

// textOf is a text argument or, without it or for "-", standard input. The newline
// that ends a line typed or echoed is not part of the text.
func textOf(e *env, arg *string) (string, error) {
	if arg != nil && *arg != "-" {
		return *arg, nil
	}
	text, err := readText(e.in)
	if err != nil {
		return "", fmt.Errorf("standard input: %w", err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

// maxText is the longest text that a command reads at once, in bytes.
const maxText = 256 << 20

// readText reads all of a text, which may have no end.
func readText(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("longer than %s", size(maxText))
	}
	return text, err
}

// interruptible ends a Read when ctx does: a terminal that nobody types at would
// hold it for ever.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i interruptible) Read(p []byte) (int, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	buf := make([]byte, len(p)) // p is the caller's again as soon as Read returns
	go func() {
		n, err := i.r.Read(buf)
		done <- result{buf[:n], err}
	}()
	select {
	case r := <-done:
		return copy(p, r.data), r.err
	case <-i.ctx.Done():
		return 0, i.ctx.Err()
	}
}

// path is a file's name on the command line; an empty one is a mistake, such as a
// variable that is not set.
type path string

func (p *path) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("the name is empty")
	}
	*p = path(text)
	return nil
}

// checkArgs refuses what the parser of the command line would change silently.
func checkArgs(args []string) error {
	for i, a := range args {
		if !utf8.ValidString(a) {
			return usagef("argument %d: %q is not valid UTF-8", i+1, a)
		}
	}
	return nil
}

// helpShown is what kong's exit after printing help or version panics with.
type helpShown struct{}

// run is the whole command: it returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) (status int) {
	e := &env{ctx: ctx, in: interruptible{ctx, in}, out: out, errw: errw}
	defer func() {
		switch r := recover(); r.(type) {
		case nil:
		case helpShown:
			status = exitOK
		default:
			panic(r)
		}
	}()
	var c cli
	parser := kong.Must(&c, append(values(),
		kong.Name("lockstep"),
		kong.Description("Runs transformer language models from GGUF files, on any machine."),
		kong.Vars{
			"version":   version(),
			"presets":   strings.Join(synth.Presets(), ", "),
			"formats":   strings.Join(requant.Names(), ", "),
			"encodable": strings.Join(requant.Encodable(), ", "),
		},
		kong.Writers(e, errw),
		kong.Exit(func(int) { panic(helpShown{}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)...)
	if err := checkArgs(args); err != nil {
		return e.report(err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return e.report(usageError{err})
	}
	e.verbose = c.Verbose
	return e.report(parsed.Run(e))
}

// report prints an error on one line and returns the exit status.
func (e *env) report(err error) int {
	var usage usageError
	var output *outputError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &output) && errors.Is(err, syscall.EPIPE):
		return exitOK // the reader has seen enough
	case errors.As(err, &usage):
		e.note("lockstep: %s (see lockstep --help)", oneLine(err))
		return exitUsage
	case errors.Is(err, context.Canceled) && e.ctx.Err() != nil:
		e.note("lockstep: interrupted")
		return exitError
	}
	e.note("lockstep: %s%s", oneLine(err), e.hint(err))
	e.places(err)
	return exitError
}

func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	line := strings.Join(lines, "; ")
	if strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return line
	}
	return strings.Trim(strconv.Quote(line), `"`) // what a file is called must not steer the terminal
}

// version is the module's version, or the commit that the binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = s.Value
		}
	}
	return strings.TrimSpace("lockstep " + v)
}
