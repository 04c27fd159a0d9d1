package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

type generateCmd struct {
	modelFlag
	deviceFlag
	MaxTokens     *int     `help:"Most tokens to generate (default: 128, or as many as the context holds)." placeholder:"N"`
	Temperature   float64  `default:"0.7" help:"Spread of the choice; 0 always takes the likeliest token (${default})." placeholder:"T"`
	TopK          int      `default:"40" help:"Choose among the K likeliest tokens; 0: all (${default})." placeholder:"K"`
	TopP          float64  `default:"0.95" help:"Choose among the likeliest tokens that together reach probability P; 0: all (${default})." placeholder:"P"`
	MinP          float64  `default:"0.05" help:"Leave out tokens less than P times as likely as the likeliest; 0: none (${default})." placeholder:"P"`
	RepeatPenalty float64  `default:"1.1" help:"Divide the logits of the last 64 tokens by R; 1: no penalty (${default})." placeholder:"R"`
	Seed          uint64   `default:"1" help:"Start of the random choices: the same command prints the same text, with --device cpu on every machine (${default})." placeholder:"S"`
	Stop          []string `sep:"none" help:"End the text before S; may be repeated." placeholder:"S"`
	Chat          bool     `help:"Put the prompt into the model's chat template as the user's message; special tokens in it are taken for what they are."`
	Trace         bool     `help:"Say at the end, on standard error, where the time went: to the first token, for each step, and on a GPU in each operation."`
	Prompt        *string  `arg:"" optional:"" help:"Text to continue; without it or with -, standard input."`
}

// repeatLast is how far back the repetition penalty looks.
const repeatLast = 64

// defaultMaxTokens is the length of a text that nobody asked a length for.
const defaultMaxTokens = 128

func (c *generateCmd) Run(e *env) error {
	params, err := c.params()
	if err != nil {
		return err
	}
	prompt, err := textOf(e, c.Prompt)
	if err != nil {
		return err
	}
	m, err := c.open()
	if err != nil {
		return err
	}
	defer m.Close()
	tok, err := m.NeedTokenizer()
	if err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	shown := prompt
	if c.Chat {
		shown = "" // the template is for the model, not for the reader
		prompt, err = tok.Chat(time.Now(), []tokenizer.Message{{Role: "user", Content: prompt}}, true)
		if err != nil {
			return fmt.Errorf("--chat: %s: %w", c.name(), err)
		}
		params.ParseSpecial = true
	}
	n := len(tok.Prompt(prompt, params.ParseSpecial))
	if err := c.fit(&params, n, m.Config.Context); err != nil {
		return err
	}
	var t *trace
	var timer func(accel.Timing)
	if c.Trace {
		t = &trace{emulated: c.Device == lockstep.Emulator}
		timer = t.kernels
	}
	computer, err := c.engine(e, m, c.name(), n+params.MaxTokens, timer)
	if err != nil {
		return err
	}
	defer computer.Close()
	eng := computer.Engine()
	if device, _ := computer.Device(); device == lockstep.CPU {
		eng = e.inPieces(eng) // shows the progress of a prompt, which a GPU computes as a whole
	}
	return stream(e, t.watch(eng), shown, prompt, params, t)
}

// fit refuses, before anything is printed, a prompt of n tokens that the context
// cannot hold with what is to follow, and chooses a length that it can when none was
// asked for.
func (c *generateCmd) fit(p *generate.Params, n, limit int) error {
	blame := "--max-tokens"
	if c.MaxTokens == nil {
		blame, p.MaxTokens = "prompt", max(1, min(defaultMaxTokens, limit-n))
	}
	if p.MaxTokens > limit-n {
		return fmt.Errorf("%s: %s: %w", blame, c.name(), &model.ContextError{Need: n + min(p.MaxTokens, math.MaxInt-n), Limit: limit})
	}
	return nil
}

// params checks the flags.
func (c *generateCmd) params() (generate.Params, error) {
	p := generate.Params{
		Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP, MinP: c.MinP,
		RepeatPenalty: c.RepeatPenalty, RepeatLast: repeatLast,
		Seed: c.Seed, Stop: c.Stop,
	}
	if c.MaxTokens != nil {
		p.MaxTokens = *c.MaxTokens
	}
	for _, f := range []struct {
		flag  string
		value float64
		ok    bool
		want  string
	}{
		{"--max-tokens", float64(p.MaxTokens), p.MaxTokens >= 0, "0 or more"},
		{"--temperature", p.Temperature, p.Temperature >= 0 && p.Temperature <= 1e6, "0 to 1000000"},
		{"--top-k", float64(p.TopK), p.TopK >= 0, "0 or more"},
		{"--top-p", p.TopP, p.TopP >= 0 && p.TopP <= 1, "0 to 1"},
		{"--min-p", p.MinP, p.MinP >= 0 && p.MinP <= 1, "0 to 1"},
		{"--repeat-penalty", p.RepeatPenalty, p.RepeatPenalty >= 0.01 && p.RepeatPenalty <= 100, "0.01 to 100"},
	} {
		if !f.ok {
			return p, usagef("%s: %v, want %s", f.flag, f.value, f.want)
		}
	}
	for _, s := range p.Stop {
		if s == "" || !utf8.ValidString(s) {
			return p, usagef("--stop: %q, want text in UTF-8", s)
		}
	}
	return p, nil
}

// stream prints what was shown to the model and what it generates, as it does,
// and at the end its speed. Nothing is printed while the prompt is computed: its
// progress bar would write over the line. What was printed before an error stands,
// on a line of its own.
func stream(e *env, eng model.Engine, shown, prompt string, p generate.Params, t *trace) error {
	var stats generate.Stats
	p.Stats = &stats
	out := &lineWriter{env: e}
	for tok, err := range generate.Text(e.ctx, eng, prompt, p) {
		if err == nil {
			err = out.print(shown + tok.Text)
			shown = ""
		}
		if err != nil {
			return errors.Join(err, out.end())
		}
	}
	if err := errors.Join(out.print(shown), out.end()); err != nil {
		return err
	}
	e.note("prompt: %d tokens, %.1f tokens/s; generated: %d tokens, %.1f tokens/s",
		stats.PromptTokens, stats.PrefillRate(), stats.GeneratedTokens, stats.DecodeRate())
	t.print(e, stats)
	return nil
}

// lineWriter knows whether the line that it prints has ended.
type lineWriter struct {
	env  *env
	open bool
	err  error
}

func (l *lineWriter) print(text string) error {
	if text == "" {
		return nil
	}
	l.open = !strings.HasSuffix(text, "\n")
	l.err = l.env.stdout("%s", text)
	return l.err
}

// end ends the last line.
func (l *lineWriter) end() error {
	if !l.open || l.err != nil {
		return nil
	}
	return l.print("\n")
}
