package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/generate/answer"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/tokenizer"
	"github.com/lockstep-go/lockstep/ref"
)

// dialogue is a chat template that shows each message, so that generate can be given the
// same prompt.
const dialogue = `{% for m in messages %}{{ m.role }}: "{{ m.content }}" {% endfor %}said`

// TestChatLines: each line gets the answer that generate gives to the whole conversation.
func TestChatLines(t *testing.T) {
	path := withTemplate(t, dialogue)
	greedy := []string{"--device", "cpu", "--temperature", "0", "-n", "6"}
	reply := func(prompt string) string {
		r := succeed(t, "", append([]string{"generate", "--no-echo", prompt}, greedy...)...)
		return strings.TrimSuffix(r.out, "\n")
	}
	first := reply(`user: "Hello" said`)
	second := reply(`user: "Hello" assistant: "` + first + `" user: "Why?" said`)
	alone := reply(`user: "Why?" said`)
	brief := reply(`system: "Be brief" user: "Why?" said`)
	if second == alone || brief == alone {
		t.Fatalf("answers %q, %q and %q do not show what the prompt was", second, alone, brief)
	}
	tests := []struct {
		name, reason string
		flags        []string
		stdin        string
		want         []string
	}{
		{"nothing", "no message", nil, "", nil},
		{"a message", "one answer", nil, "Hello\n", []string{first}},
		{"last line without an end", "it is a message", nil, "Hello", []string{first}},
		{"Windows lines", "the line ending is not part of the message", nil, "Hello\r\nWhy?\r\n", []string{first, second}},
		{"empty lines", "they are no messages", nil, "\n  \nHello\n\nWhy?\n", []string{first, second}},
		{"/reset", "it forgets the messages", nil, "Hello\n/reset\nWhy?\n", []string{first, alone}},
		{"/system", "it precedes the messages", nil, "/system  Be brief \nWhy?\n", []string{brief}},
		{"/reset after /system", "the system message stays", nil, "/system Be brief\nWhy?\n/reset\nWhy?\n", []string{brief, brief}},
		{"/system alone", "it removes the message", nil, "/system Be brief\n/system\nWhy?\n", []string{alone}},
		{"--system", "the flag is the command", []string{"--system", "Be brief"}, "Why?\n", []string{brief}},
		{"/quit", "the rest is not read", nil, "Hello\n/quit\nWhy?\n", []string{first}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := succeed(t, tt.stdin, append(append([]string{"chat", "-m", path}, greedy...), tt.flags...)...)
			want := ""
			for _, line := range tt.want {
				want += line + "\n"
			}
			if r.out != want {
				t.Errorf("%s: %q, want %q", tt.reason, r.out, want)
			}
			if strings.Count(r.err, "the answer is cut after 6 tokens\n") != len(tt.want) {
				t.Errorf("standard error %q", r.err)
			}
		})
	}
	if r := succeed(t, "/help\n", "chat", "-m", path); !strings.Contains(r.err, "/system TEXT") || r.out != "" {
		t.Errorf("/help: %q, standard error %q", r.out, r.err)
	}
	help := succeed(t, "", "chat", "--help").out
	for line := range strings.Lines(chatCommands) {
		if !strings.Contains(help, "\n    "+strings.TrimSpace(line)+"\n") {
			t.Errorf("--help has no line of its own for %q:\n%s", line, help)
		}
	}
}

func TestChatErrors(t *testing.T) {
	path := withTemplate(t, dialogue)
	strict := withTemplate(t, `{{ raise_exception("be polite") }}`)
	tests := []struct {
		name, model, stdin string
		want               []string
	}{
		{"no template", tinyModel, "Hello\n", []string{"chat: ", tinyModel, "no chat template"}},
		{"no vocabulary", silentModel, "Hello\n", []string{"chat: ", silentModel, "no vocabulary"}},
		{"unknown command", path, "\n/frob now\n", []string{"line 2", `"/frob"`, "/help"}},
		{"text after a command", path, "/reset now\n", []string{"line 1: /reset", `"now"`}},
		{"template that refuses", strict, "Hello\n", []string{"line 1", "be polite"}},
		{"long message", path, strings.Repeat("war and peace ", 600), []string{"line 1", "context limit", "1023", "/reset"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, runCommand(t, tt.stdin, "chat", "--device", "cpu", "-m", tt.model), exitError, tt.want...)
		})
	}
}

// screen is a terminal that a test types into and reads.
type screen struct {
	t    *testing.T
	keys *io.PipeWriter

	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// wait waits until the screen has a text, and returns what was before it and clears both.
func (s *screen) wait(text string) string {
	s.t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		before, after, ok := strings.Cut(s.text.String(), text)
		if ok {
			s.text.Reset()
			s.text.WriteString(after)
		}
		s.mu.Unlock()
		if ok {
			return before
		}
		select {
		case <-s.more:
		case <-timeout:
			s.t.Fatalf("no %q on the screen: %q", text, before)
		}
	}
}

func (s *screen) typed(keys string) { io.WriteString(s.keys, keys) }

// newTalk returns a conversation with the embedded model, without an environment. Each pass of a
// prompt has four tokens and begins after a delay.
func newTalk(t *testing.T, maxTokens int, delay time.Duration) *talk {
	t.Helper()
	m, err := model.Open(withTemplate(t, dialogue))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	engine, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	tok, err := m.NeedTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	c := &talk{tokenizer: tok, params: generate.Params{MaxTokens: maxTokens, IgnoreEOS: true}}
	if err := c.open(delayed{engine, delay}, generate.Options{PromptTokens: 4}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.generator.Close() })
	return c
}

// talking runs an interactive conversation. done returns its error.
func talking(t *testing.T, maxTokens int) (s *screen, done func() error) {
	t.Helper()
	c := newTalk(t, maxTokens, 0)
	c.env = &env{ctx: t.Context()}
	in, keys := io.Pipe()
	t.Cleanup(func() { keys.Close() })
	s = &screen{t: t, keys: keys, more: make(chan struct{}, 1)}
	result := make(chan error, 1)
	edit := newEditor(t.Context(), in, s)
	go func() { result <- c.interactive(edit) }()
	return s, func() error {
		t.Helper()
		select {
		case err := <-result:
			return err
		case <-time.After(20 * time.Second):
			t.Fatal("the conversation does not end")
			return nil
		}
	}
}

// TestChatInTerminal: lines are edited and have a history; an error does not end the
// conversation; each way to leave does.
func TestChatInTerminal(t *testing.T) {
	s, done := talking(t, 4)
	s.wait("/help lists the commands\r\n> ")
	s.typed("Hellp\x7fo\r") // backspace
	s.wait("\r\n")
	first := s.wait("\r\nthe answer is cut after 4 tokens\r\n> ")
	if first == "" {
		t.Error("no answer")
	}
	s.typed("/frob\r")
	s.wait("no such command")
	s.wait("> ")
	s.typed("/reset\r")
	s.wait("> ")
	s.typed("\x1b[A\x1b[A\x1b[A\r") // three lines up: Hello
	s.wait("\r\n")
	if again := s.wait("\r\nthe answer is cut"); again != first {
		t.Errorf("the answer is %q, then %q", first, again)
	}
	s.wait("> ")
	s.typed("\x1b[200~/reset\rtwo\x1b[201~\r") // pasted: a message of two lines
	s.wait("… two\r\n")
	s.wait(`no such command: "/reset\ntwo"`)
	s.wait("> ")
	s.typed("\x04")
	if err := done(); err != nil {
		t.Error(err)
	}

	for name, keys := range map[string]string{"/quit": "/quit\r", "Ctrl-C": "half a line\x03"} {
		s, done := talking(t, 4)
		s.wait("> ")
		s.typed(keys)
		if err := done(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChatInterrupted: Ctrl-C ends an answer, which remains in the conversation, and a second
// one the conversation.
func TestChatInterrupted(t *testing.T) {
	s, done := talking(t, 900)
	s.wait("> ")
	s.typed("Hello\r")
	s.wait("\r\n")
	s.wait(" ") // the answer has begun
	s.typed("typed too ")
	s.typed("early\x03")
	s.wait("\r\n> ")
	s.typed("And?\r")
	if before := s.wait("And?\r\n"); before != "" {
		t.Errorf("before the second message the line has %q", before)
	}
	s.wait(" ")
	s.typed("\x03\x03")
	if err := done(); err != nil {
		t.Error(err)
	}
	if text := s.text.String(); strings.Contains(text, "cut after") {
		t.Errorf("%q", text)
	}
}

// TestChatEndsBySignal: a context that is done ends a conversation that waits for a line.
func TestChatEndsBySignal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, keys := io.Pipe()
	defer keys.Close()
	s := &screen{t: t, more: make(chan struct{}, 1)}
	c := &talk{env: &env{ctx: ctx}}
	result := make(chan error, 1)
	go func() { result <- c.interactive(newEditor(ctx, in, s)) }()
	s.wait("> ")
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestChatRemembers: an interrupted answer is part of the conversation; after an error the
// message is not.
func TestChatRemembers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out strings.Builder
	w := writerFunc(func(p []byte) (int, error) {
		cancel()
		return out.Write(p)
	})
	c := newTalk(t, -1, 0)
	c.env = &env{out: w, errw: io.Discard}
	if err := c.answer(ctx, "Hello"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	want := []tokenizer.Message{{Role: "user", Content: "Hello"}, {Role: "assistant", Content: strings.TrimSuffix(out.String(), "\n")}}
	if len(c.messages) != 2 || c.messages[0].Content != want[0].Content || c.messages[1].Content != want[1].Content || want[1].Content == "" {
		t.Errorf("messages %+v, want %+v", c.messages, want)
	}
	if err := c.answer(t.Context(), strings.Repeat("war and peace ", 600)); !errors.Is(err, model.ErrContextLimit) || len(c.messages) != 2 {
		t.Errorf("error %v, messages %+v", err, c.messages)
	}
}

// delayed is an engine whose passes of prompts begin late.
type delayed struct {
	model.Engine
	delay time.Duration
}

func (d delayed) Step(ctx context.Context, rows []model.Row) (model.Pass, error) {
	if rows[0].Prompt {
		time.Sleep(d.delay)
	}
	return d.Engine.Step(ctx, rows)
}

// TestChatPromptProgress: a terminal shows the progress of each prompt until its answer begins. The
// second prompt begins with the first, which takes no time again.
func TestChatPromptProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTalk(t, 1, 2*showAfter)
		var screen, out bytes.Buffer
		c.env = &env{out: &out, errw: io.Discard, screen: &screen}
		for _, tt := range []struct{ message, begin, later string }{
			{"Hello, dear Prince", "\rprompt   0%, 0 of 13\r", "4 of 13, 5s left\r"},
			{"Are you there?", "\rprompt  42%, 12 of 28\r", "16 of 28, 6s left\r"},
		} {
			screen.Reset()
			if err := c.answer(t.Context(), tt.message); err != nil {
				t.Fatal(err)
			}
			shown := screen.String()
			if !strings.HasPrefix(shown, tt.begin) || !strings.Contains(shown, tt.later) || !strings.HasSuffix(shown, " \r") {
				t.Errorf("shown %q, want %q, later %q, and then nothing", shown, tt.begin, tt.later)
			}
		}
	})
}

func TestAnswerWriter(t *testing.T) {
	think, say := answer.Reasoning, answer.Content
	tests := []struct {
		name          string
		shown         bool
		deltas        []answer.Delta
		want, content string
	}{
		{"content", true, []answer.Delta{{Kind: say, Text: "a"}, {Kind: say, Text: "b"}}, "ab\n", "ab"},
		{"reasoning", true, []answer.Delta{{Kind: think, Text: "a"}, {Kind: think, Text: "b"}, {Kind: say, Text: "c"}}, dim + "ab" + normal + "\n\nc\n", "c"},
		{"reasoning alone", true, []answer.Delta{{Kind: think, Text: "a"}}, dim + "a" + normal + "\n", ""},
		{"reasoning not shown", false, []answer.Delta{{Kind: think, Text: "a"}, {Kind: say, Text: "c"}}, "c\n", "c"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			w := answerWriter{line: lineWriter{env: &env{out: &out}}, showReasoning: tt.shown}
			for _, d := range tt.deltas {
				if err := w.print([]answer.Delta{d}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.end(); err != nil || out.String() != tt.want {
				t.Errorf("error %v, output %q, want %q", err, out.String(), tt.want)
			}
			if got := w.message(); got.Content != tt.content || (got.Reasoning == "") != (tt.name == "content") {
				t.Errorf("message %+v", got)
			}
		})
	}
}
