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
	MaxTokens     *int     `help:"Maximum number of tokens to generate (default: 128, or what fits into the context)." placeholder:"N"`
	Temperature   float64  `default:"0.7" help:"Sampling temperature; 0: always the most likely token (${default})." placeholder:"T"`
	TopK          int      `default:"40" help:"Sample from the K most likely tokens; 0: all (${default})." placeholder:"K"`
	TopP          float64  `default:"0.95" help:"Sample from the most likely tokens whose probabilities add up to P; 0: all (${default})." placeholder:"P"`
	MinP          float64  `default:"0.05" help:"Exclude tokens less than P times as likely as the most likely one; 0: none (${default})." placeholder:"P"`
	RepeatPenalty float64  `default:"1.1" help:"Penalty for the last 64 tokens: divide their positive logits by R, multiply negative ones; 1: none (${default})." placeholder:"R"`
	Seed          uint64   `default:"1" help:"Seed of the sampler. The same command prints the same text; with --device cpu, on every machine (${default})." placeholder:"S"`
	Stop          []string `sep:"none" help:"Stop before the text S; may be repeated." placeholder:"S"`
	Chat          bool     `help:"Render the prompt as the user's message with the model's chat template. Special tokens in the prompt count as such."`
	Trace         bool     `help:"Print timings to standard error: time to the first token, each step, and on a GPU each kernel."`
	Prompt        *string  `arg:"" optional:"" help:"Text to continue (default or -: standard input)."`
}

// repeatLast is the number of tokens that the repetition penalty covers.
const repeatLast = 64

// defaultMaxTokens is the default of --max-tokens.
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
	if _, err := m.NeedTokenizer(); err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	echo, flag := prompt, "prompt"
	var tokens []int
	if c.Chat {
		echo, flag = "", "--chat" // do not print the rendered template
		messages := []tokenizer.Message{{Role: "user", Content: prompt}}
		tokens, err = m.Chat(tokenizer.Conversation{Messages: messages, Now: time.Now()}, m.Config.Context)
	} else {
		tokens, err = m.Prompt(prompt, params.ParseSpecial, m.Config.Context)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", flag, c.name(), err)
	}
	if err := c.fit(&params, len(tokens), m.Config.Context); err != nil {
		return err
	}
	var t *trace
	var timer func(accel.Timing)
	if c.Trace {
		t = &trace{emulated: c.Device == lockstep.Emulator}
		timer = t.kernels
	}
	runner, err := c.engine(e, m, c.name(), len(tokens)+params.MaxTokens, timer)
	if err != nil {
		return err
	}
	defer runner.Close()
	eng := runner.Engine()
	if device, _ := runner.Device(); device == lockstep.CPU {
		eng = e.withProgress(eng)
	}
	return stream(e, t.watch(eng), echo, tokens, params, t)
}

// fit sets the default of MaxTokens, and returns an error if the prompt of n tokens and
// MaxTokens more exceed the context of limit tokens.
func (c *generateCmd) fit(p *generate.Params, n, limit int) error {
	flag := "--max-tokens"
	if c.MaxTokens == nil {
		flag, p.MaxTokens = "prompt", max(1, min(defaultMaxTokens, limit-n))
	}
	if p.MaxTokens > limit-n {
		return fmt.Errorf("%s: %s: %w", flag, c.name(), model.CheckCapacity(n+min(p.MaxTokens, math.MaxInt-n), limit))
	}
	return nil
}

// params returns the sampling parameters of the flags.
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

// stream prints echo and the generated text as it comes, and then the speed. It prints echo
// only with the first token: the progress line of the prompt would overwrite it. After an
// error it ends the line.
func stream(e *env, eng model.Engine, echo string, prompt []int, p generate.Params, t *trace) error {
	var stats generate.Stats
	p.Stats = &stats
	out := &lineWriter{env: e}
	for tok, err := range generate.Tokens(e.ctx, eng, prompt, p) {
		if err == nil {
			err = out.print(echo + tok.Text)
			echo = ""
		}
		if err != nil {
			return errors.Join(err, out.end())
		}
	}
	if err := errors.Join(out.print(echo), out.end()); err != nil {
		return err
	}
	e.note("prompt: %d tokens, %.1f tokens/s; generated: %d tokens, %.1f tokens/s",
		stats.PromptTokens, stats.PrefillRate(), stats.GeneratedTokens, stats.DecodeRate())
	t.print(e, stats)
	return nil
}

// lineWriter prints text and tracks whether the last line is complete.
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

// end completes the last line.
func (l *lineWriter) end() error {
	if !l.open || l.err != nil {
		return nil
	}
	return l.print("\n")
}
