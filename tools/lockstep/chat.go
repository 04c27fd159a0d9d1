package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/generate/answer"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

type chatCmd struct {
	modelFlag
	deviceFlag
	samplingFlags
	MaxTokens *int   `short:"n" help:"Maximum number of tokens per answer (default: what fits into the context)." placeholder:"N"`
	System    string `help:"System message." placeholder:"TEXT"`
}

// chatCommands is the text of /help.
const chatCommands = `/system TEXT  set the system message; without TEXT: remove it
/reset        forget the messages, but not the system message
/help         show this text
/quit         leave`

func (c *chatCmd) Help() string {
	return "In a terminal, lines have a history and can be edited. Ctrl-C stops an answer; at the prompt it leaves, as Ctrl-D does. " +
		"If standard input or output is no terminal, each line of standard input is a message, and the first error ends the command. " +
		"Reasoning is shown dimmed, in a terminal only. A line that begins with / is a command:\n\n  " + strings.ReplaceAll(chatCommands, "\n", "\n  ")
}

func (c *chatCmd) Run(e *env) (err error) {
	params, err := c.params(c.MaxTokens)
	if err != nil {
		return err
	}
	if c.MaxTokens == nil {
		params.MaxTokens = -1
	}
	m, err := c.open()
	if err != nil {
		return err
	}
	defer m.Close()
	tok, err := m.NeedTokenizer()
	if err == nil && tok.ChatTemplate(false) == "" {
		err = fmt.Errorf("%w: generate continues a text without one", tokenizer.ErrNoChatTemplate)
	}
	if err != nil {
		return fmt.Errorf("chat: %s: %w", c.name(), err)
	}
	runner, err := c.run(e, m, c.name(), lockstep.Options{Accel: accel.Options{MaxSequences: 1}})
	if err != nil {
		return err
	}
	defer runner.Close()
	t := &talk{
		env: e, tokenizer: tok, params: params,
		style: answer.StyleOf(tok.ChatTemplate(false)), system: c.System,
	}
	if err := t.open(runner.Engine(), promptOptions(runner)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.generator.Close()) }()
	in, out, ok := e.terminal()
	if !ok {
		return t.lines(bufio.NewReader(e.in))
	}
	edit, err := openEditor(e.ctx, in, out)
	if err != nil {
		e.note("this terminal cannot edit lines: %s", oneLine(err))
		return t.lines(bufio.NewReader(e.in))
	}
	defer func() { err = errors.Join(err, edit.close()) }()
	return t.interactive(edit)
}

// talk is a conversation with a model.
type talk struct {
	env           *env
	tokenizer     *tokenizer.Tokenizer
	generator     *generate.Generator
	params        generate.Params // MaxTokens is negative if only the context limits an answer
	style         answer.Style
	showReasoning bool // dimmed, by escape sequences

	system   string
	messages []tokenizer.Message // without system

	progress atomic.Pointer[progress] // of the last prompt
}

// open makes the generator, which the caller closes.
func (t *talk) open(engine model.Engine, o generate.Options) (err error) {
	begin := func(rows []model.Row) { t.progress.Load().prompted(rows) }
	t.generator, err = generate.New(observed{engine, begin, func([]model.Row, time.Duration) {}}, o)
	return err
}

// errQuit ends a conversation.
var errQuit = errors.New("quit")

// lines answers each line of a text. It stops at the first error.
func (t *talk) lines(r *bufio.Reader) error {
	for n := 1; ; n++ {
		line, err := readLine(r)
		last := err == io.EOF
		if err == nil || last {
			err = t.handle(t.env.ctx, strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"))
		}
		switch {
		case err == errQuit || err == nil && last:
			return nil
		case err != nil:
			return fmt.Errorf("standard input: line %d: %w", n, err)
		}
	}
}

// interactive answers what a user types until they leave. An error does not end the
// conversation.
func (t *talk) interactive(edit *editor) error {
	terminal := *t.env
	terminal.out, terminal.errw = edit.term, edit.term
	if terminal.screen != nil {
		terminal.screen = edit.out
	}
	t.env, t.showReasoning = &terminal, true
	t.env.note("/help lists the commands")
	for {
		line, err := edit.readLine()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		ctx, end := edit.interruptible(t.env.ctx)
		err = t.handle(ctx, line)
		stopped := ctx.Err() != nil
		end()
		var output *outputError
		switch {
		case err == errQuit:
			return nil
		case t.env.ctx.Err() != nil:
			return t.env.ctx.Err()
		case errors.As(err, &output):
			return err
		case err != nil && !stopped:
			t.env.note("%s", oneLine(err))
		}
	}
}

// handle runs a command or answers a message. It ignores an empty line.
func (t *talk) handle(ctx context.Context, line string) error {
	if strings.TrimSpace(line) == "" {
		return nil
	}
	if !strings.HasPrefix(line, "/") {
		return t.answer(ctx, line)
	}
	command, text, _ := strings.Cut(line, " ")
	text = strings.TrimSpace(text)
	if text != "" && slices.Contains([]string{"/reset", "/help", "/quit"}, command) {
		return fmt.Errorf("%s: it takes no text: %q", command, text)
	}
	switch command {
	case "/system":
		t.system = text
	case "/reset":
		t.messages = nil
	case "/help":
		t.env.note(chatCommands)
	case "/quit":
		return errQuit
	default:
		return fmt.Errorf("no such command: %q: /help lists them; to send the line as a message, begin it with a space", command)
	}
	return nil
}

// answer prints the answer to a message. Both become part of the conversation, also if ctx ends after
// some tokens. After another error, neither does.
func (t *talk) answer(ctx context.Context, message string) error {
	messages := append(slices.Clip(t.messages), tokenizer.Message{Role: "user", Content: message})
	text, prompt, err := t.prompt(messages)
	if err != nil {
		return err
	}
	p := t.params
	if left := t.generator.Capacity() - len(prompt); p.MaxTokens > left {
		p.MaxTokens = left
	}
	var stats generate.Stats
	p.Stats = &stats
	parser := t.style.NewParser(text, nil)
	out := answerWriter{line: lineWriter{env: t.env}, showReasoning: t.showReasoning}
	shown := t.env.progress("prompt", int64(len(prompt)))
	defer shown.end()
	t.progress.Store(shown)
	for token, err := range t.generator.Tokens(ctx, prompt, p) {
		shown.end()
		if err == nil {
			err = out.print(parser.Next(t.tokenizer.Control(token.ID), token.Text))
		}
		if err != nil {
			err = errors.Join(err, out.print(parser.End()), out.end())
			if ctx.Err() != nil && stats.GeneratedTokens > 0 {
				t.messages = append(messages, out.message())
			}
			return err
		}
	}
	if err := errors.Join(out.print(parser.End()), out.end()); err != nil {
		return err
	}
	t.messages = append(messages, out.message())
	if stats.Finish == generate.FinishLength {
		t.env.note("the answer is cut after %d tokens", stats.GeneratedTokens)
	}
	return nil
}

// prompt renders messages after the system message. It leaves room for a token.
func (t *talk) prompt(messages []tokenizer.Message) (text string, prompt []int, err error) {
	if t.system != "" {
		messages = append([]tokenizer.Message{{Role: "system", Content: t.system}}, messages...)
	}
	rendered, err := t.tokenizer.Render(tokenizer.Conversation{Messages: messages, Now: time.Now()})
	if err != nil {
		return "", nil, err
	}
	limit := t.generator.Capacity() - 1
	prompt, ok := t.tokenizer.PromptText(rendered, limit)
	if !ok {
		return "", nil, fmt.Errorf("%w: the conversation has more than %d tokens: /reset begins another", model.ErrContextLimit, limit)
	}
	return rendered.String(), prompt, nil
}

// Escape sequences of ECMA-48 (SGR).
const (
	dim    = "\x1b[2m"
	normal = "\x1b[0m"
)

// answerWriter prints an answer as it comes, and keeps it.
type answerWriter struct {
	line          lineWriter
	showReasoning bool // dimmed
	dimmed        bool
	deltas        []answer.Delta
}

func (w *answerWriter) print(deltas []answer.Delta) error {
	w.deltas = append(w.deltas, deltas...)
	for _, d := range deltas {
		text := d.Text
		switch {
		case d.Text == "" || d.Kind == answer.Reasoning && !w.showReasoning:
			continue
		case d.Kind == answer.Reasoning && !w.dimmed:
			text = dim + text
		case d.Kind != answer.Reasoning && w.dimmed:
			text = normal + "\n\n" + text
		}
		w.dimmed = d.Kind == answer.Reasoning
		if err := w.line.print(text); err != nil {
			return err
		}
	}
	return nil
}

// end completes the last line.
func (w *answerWriter) end() error {
	if w.dimmed {
		w.dimmed = false
		if err := w.line.print(normal); err != nil {
			return err
		}
	}
	return w.line.end()
}

func (w *answerWriter) message() tokenizer.Message {
	a := answer.Collect(w.deltas)
	return tokenizer.Message{Role: "assistant", Content: a.Content, Reasoning: a.Reasoning}
}
