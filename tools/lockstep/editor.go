package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// terminal returns standard input and output if both are terminals.
func (e *env) terminal() (in, out *os.File, ok bool) {
	s, _ := e.in.(stdin)
	if !isTerminal(s.r) || !isTerminal(e.out) {
		return nil, nil, false
	}
	return s.r.(*os.File), e.out.(*os.File), true
}

const (
	prompt     = "> "
	promptMore = "… " // after lines that were pasted
)

// editor reads lines from a terminal, with a history. Between lines, what is written to term
// goes to the terminal.
type editor struct {
	term  *term.Terminal
	out   io.Writer // the terminal itself
	keys  *keyboard
	size  func() (width, height int, err error)
	reset func() error // restores the mode of the terminal
}

// openEditor puts a terminal into raw mode. It stays in this mode until close, or until ctx
// is done. Without it Ctrl-C would be a signal, which ends the process.
func openEditor(ctx context.Context, in, out *os.File) (*editor, error) {
	restore, err := enableEscapes(out)
	if err != nil {
		return nil, err
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, errors.Join(err, restore())
	}
	e := newEditor(ctx, in, out)
	e.size = func() (int, int, error) { return term.GetSize(int(out.Fd())) }
	e.reset = sync.OnceValue(func() error {
		e.term.SetBracketedPasteMode(false)
		return errors.Join(term.Restore(int(in.Fd()), state), restore())
	})
	context.AfterFunc(ctx, func() { e.reset() })
	e.term.SetBracketedPasteMode(true)
	return e, nil
}

// newEditor returns an editor of a terminal in raw mode. It reads ahead from in until an error.
func newEditor(ctx context.Context, in io.Reader, out io.Writer) *editor {
	keys := &keyboard{ctx: ctx, more: make(chan struct{}, 1)}
	go keys.pump(in)
	return &editor{
		term: term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{keys, out}, prompt),
		out:   out,
		keys:  keys,
		size:  func() (int, int, error) { return 80, 24, nil },
		reset: func() error { return nil },
	}
}

func (e *editor) close() error { return e.reset() }

// readLine returns the next line, or io.EOF after Ctrl-C or Ctrl-D. Pasted lines are one line
// until the user ends it.
func (e *editor) readLine() (string, error) {
	if width, height, err := e.size(); err == nil && width > 0 {
		e.term.SetSize(width, height)
	}
	defer e.term.SetPrompt(prompt)
	var lines []string
	for {
		line, err := e.term.ReadLine()
		if err == io.EOF {
			io.WriteString(e.out, "\r\n") // leave the line of the prompt
		}
		if err != nil && err != term.ErrPasteIndicator {
			return "", err
		}
		lines = append(lines, line)
		if err == nil {
			return strings.Join(lines, "\n"), nil
		}
		e.term.SetPrompt(promptMore)
	}
}

// interruptible returns a context that the next Ctrl-C cancels, until end is called.
func (e *editor) interruptible(ctx context.Context) (answering context.Context, end func()) {
	answering, cancel := context.WithCancel(ctx)
	e.keys.onInterrupt(cancel)
	return answering, func() {
		e.keys.onInterrupt(nil)
		cancel()
	}
}

const ctrlC = 3

// keyboard reads ahead what is typed, so that Ctrl-C takes effect while nothing is read.
type keyboard struct {
	ctx  context.Context
	more chan struct{} // has an element if typed or err may have changed

	mu        sync.Mutex
	typed     []byte
	err       error  // of the last read; follows typed
	interrupt func() // if not nil, Ctrl-C calls it once instead of being read
}

func (k *keyboard) onInterrupt(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.interrupt = f
}

// pump reads r until an error.
func (k *keyboard) pump(r io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		k.received(buf[:n], err)
		if err != nil {
			return
		}
	}
}

func (k *keyboard) received(typed []byte, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at := bytes.IndexByte(typed, ctrlC); at >= 0 && k.interrupt != nil {
		k.interrupt()
		k.interrupt = nil
		k.typed, typed = nil, typed[at+1:] // what was typed before Ctrl-C is void
	}
	k.typed = append(k.typed, typed...)
	k.err = err
	select {
	case k.more <- struct{}{}:
	default:
	}
}

// Read implements io.Reader. It returns when the context is done.
func (k *keyboard) Read(p []byte) (int, error) {
	for {
		k.mu.Lock()
		n, err := copy(p, k.typed), k.err
		k.typed = k.typed[n:]
		k.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-k.more:
		case <-k.ctx.Done():
			return 0, k.ctx.Err()
		}
	}
}
