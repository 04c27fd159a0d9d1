package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/synth"
)

// Exit statuses.
const (
	exitOK     = 0
	exitError  = 1
	exitUsage  = 2
	exitSignal = 128 // plus the number of the signal
)

// interruptedText is the error of a command that a signal ended.
const interruptedText = "lockstep: interrupted"

type cli struct {
	Version kong.VersionFlag `help:"Print the version and exit."`
	Verbose bool             `short:"v" help:"Tell why no GPU was found: list where the driver library was searched."`

	Generate   generateCmd   `cmd:"" help:"Continue a text."`
	Chat       chatCmd       `cmd:"" help:"Talk to a model in a terminal."`
	Serve      serveCmd      `cmd:"" help:"Serve a model to OpenAI's clients."`
	Logits     logitsCmd     `cmd:"" help:"Write the logits after each token to a .npy file."`
	Tokenize   tokenizeCmd   `cmd:"" help:"Encode text as token ids."`
	Models     modelsCmd     `cmd:"" help:"List the models of other programs on this machine."`
	Pull       pullCmd       `cmd:"" help:"Download a model from Hugging Face."`
	Inspect    inspectCmd    `cmd:"" help:"Show the metadata and tensors of a GGUF file."`
	Quantize   quantizeCmd   `cmd:"" help:"Convert a model to another quantization format."`
	Perplexity perplexityCmd `cmd:"" help:"Measure how well a model predicts a text."`
	Plan       planCmd       `cmd:"" help:"Show the memory that a model needs, and its kernels."`
	Synth      synthCmd      `cmd:"" help:"Make a model with the shape of a real one and random weights."`
	PTX        ptxCmd        `cmd:"" name:"ptx" help:"Show the kernels as PTX."`
	Bench      benchCmd      `cmd:"" help:"Measure models, kernels or servers."`
	Diff       diffCmd       `cmd:"" help:"Compare a GPU with the CPU reference, operation by operation."`
	Golden     goldenCmd     `cmd:"" help:"Compare the golden logits with the reference."`
}

// usageError is an error in the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// usagef returns a usageError. The text begins with the name of the flag or argument.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// outputError is an error of a write to standard output.
type outputError struct{ err error }

func (o *outputError) Error() string { return "standard output: " + o.err.Error() }
func (o *outputError) Unwrap() error { return o.err }

// env is the environment of a command.
type env struct {
	ctx    context.Context
	in     io.Reader
	out    io.Writer
	errw   io.Writer
	screen io.Writer   // a terminal that shows progress; nil: none
	gpus   []gpuDevice // opened by the command

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

// note writes a line to standard error. It ignores write errors, because they could be
// reported nowhere else.
func (e *env) note(format string, args ...any) { fmt.Fprintf(e.errw, format+"\n", args...) }

// textOf returns a text argument or, if it is nil or "-", standard input without its last
// newline.
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

// maxText is the length of the longest text that a command reads, in bytes.
const maxText = 256 << 20

// readText reads a text of at most maxText bytes.
func readText(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("longer than %s", size(maxText))
	}
	return text, err
}

// readTextFile reads a file of at most maxText bytes.
func readTextFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := readText(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// stdin is a reader whose Read returns when ctx is done. A read from a terminal
// would block until someone types.
type stdin struct {
	ctx context.Context
	r   io.Reader
}

func (s stdin) Read(p []byte) (int, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	buf := make([]byte, len(p)) // the goroutine may outlive this call and must not write to p
	go func() {
		n, err := s.r.Read(buf)
		done <- result{buf[:n], err}
	}()
	select {
	case r := <-done:
		return copy(p, r.data), r.err
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

// path is a file name on the command line. It must not be empty, as it is if a shell
// variable is not set.
type path string

func (p *path) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("the name is empty")
	}
	*p = path(text)
	return nil
}

// checkArgs refuses arguments that kong would change silently.
func checkArgs(args []string) error {
	for i, a := range args {
		if !utf8.ValidString(a) {
			return usagef("argument %d: %q is not valid UTF-8", i+1, a)
		}
	}
	return nil
}

// helpShown is the panic value that ends kong.Parse after it printed help or version.
type helpShown struct{}

// run runs the command and returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) (status int) {
	e := &env{ctx: ctx, in: stdin{ctx, in}, out: out, errw: errw}
	if isTerminal(errw) {
		e.screen = errw
	}
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
		kong.Description("Runs language models from GGUF files. Exit status: 0; 1 after an error; 2 after an error in the command line; "+
			"128 plus the number of a signal that ended it, such as 130 after an interrupt. A file to write replaces only a regular file, "+
			"and a GGUF file only if it is one itself."),
		kong.Vars{
			"version":   version(),
			"presets":   strings.Join(synth.Presets(), ", "),
			"formats":   strings.Join(synth.Recipes(), ", "),
			"maxline":   size(maxLine),
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
	if err := findModels(parsed); err != nil {
		return e.report(err)
	}
	err = parsed.Run(e)
	e.noteSlowKernels()
	return e.report(err)
}

// report prints an error on one line and returns the exit status.
func (e *env) report(err error) int {
	var usage usageError
	var output *outputError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &output) && errors.Is(err, syscall.EPIPE):
		return exitOK // the reader closed the pipe, as head does
	case errors.As(err, &usage):
		e.note("lockstep: %s (see lockstep --help)", oneLine(err))
		return exitUsage
	case errors.Is(err, context.Canceled) && e.ctx.Err() != nil:
		e.note(interruptedText)
		return interruptStatus(e.ctx)
	}
	e.note("lockstep: %s%s", oneLine(err), e.hint(err))
	e.noteTried(err)
	return exitError
}

// version returns the module version or the commit of the build.
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
