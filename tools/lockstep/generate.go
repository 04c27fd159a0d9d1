package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

type generateCmd struct {
	modelFlag
	deviceFlag
	samplingFlags
	MaxTokens *int    `short:"n" help:"Maximum number of tokens to generate (default: 128, or what fits into the context)." placeholder:"N"`
	Chat      bool    `help:"Render the prompt as the user's message with the model's chat template. Special tokens in the prompt are ordinary text."`
	System    *string `help:"With --chat: the system message before it." placeholder:"TEXT"`
	NoEcho    bool    `help:"Do not print the prompt before the text."`
	JSON      bool    `name:"json" help:"Print one JSON object at the end, without the prompt: text, finish_reason, prompt_tokens, generated_tokens, and both speeds in tokens/s."`
	Trace     bool    `help:"Print timings to standard error: time to the first token, each step, and on a GPU each kernel."`
	Prompt    *string `arg:"" optional:"" help:"Text to continue (default or -: standard input)."`
}

// defaultMaxTokens is the default of --max-tokens.
const defaultMaxTokens = 128

func (c *generateCmd) Run(e *env) error {
	params, err := c.params(c.MaxTokens)
	if err != nil {
		return err
	}
	if c.System != nil && !c.Chat {
		return usagef("--system: it needs --chat")
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
	echo := prompt
	var tokens []int
	if c.Chat || c.NoEcho || c.JSON {
		echo = "" // with --chat, do not print the rendered template
	}
	if c.Chat {
		var messages []tokenizer.Message
		if c.System != nil {
			messages = append(messages, tokenizer.Message{Role: "system", Content: *c.System})
		}
		messages = append(messages, tokenizer.Message{Role: "user", Content: prompt})
		tokens, err = m.Chat(tokenizer.Conversation{Messages: messages, Now: time.Now()}, m.Config.Context)
		if err != nil && !errors.Is(err, model.ErrContextLimit) {
			return fmt.Errorf("--chat: %s: %w", c.name(), err)
		}
	} else {
		tokens, err = m.Prompt(prompt, false, m.Config.Context)
	}
	if err != nil {
		return fmt.Errorf("prompt: %s: %w", c.name(), err)
	}
	if err := c.fit(&params, len(tokens), m.Config.Context); err != nil {
		return err
	}
	var t *trace
	var timer func(accel.Timing)
	if c.Trace {
		t = &trace{emulated: c.Device == lockstep.Emulator}
		timer = t.timed
	}
	runner, err := c.engine(e, m, c.name(), len(tokens)+params.MaxTokens, timer)
	if err != nil {
		return err
	}
	defer runner.Close()
	return stream(e, runner.Engine(), promptOptions(runner), echo, tokens, params, t, c.JSON)
}

// promptOptions are those of a generator that shows the progress of prompts. On the CPU few
// tokens take long, so there are few between two updates.
func promptOptions(m *lockstep.Model) (o generate.Options) {
	if device, _ := m.Device(); device == lockstep.CPU {
		o.PromptTokens = 16
	}
	return o
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

// stream shows the progress of the prompt, prints echo and the generated text as it comes, and
// then the speed. It prints echo only with the first token: the progress line of the prompt
// would overwrite it. After an error it ends the line. If object is true, it prints a JSON
// object at the end instead of echo and text.
func stream(e *env, eng model.Engine, o generate.Options, echo string, prompt []int, p generate.Params, t *trace, object bool) (err error) {
	shown := e.progress("prompt", int64(len(prompt)))
	defer shown.end()
	begin := func(rows []model.Row) {
		t.pass(rows)
		shown.prompted(rows)
	}
	g, err := generate.New(observed{eng, begin, t.passed}, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	var stats generate.Stats
	p.Stats = &stats
	out := &lineWriter{env: e}
	var text strings.Builder
	for tok, err := range g.Tokens(e.ctx, prompt, p) {
		shown.end()
		switch {
		case err != nil:
		case object:
			text.WriteString(tok.Text)
		default:
			err = out.print(echo + tok.Text)
			echo = ""
		}
		if err != nil {
			return errors.Join(err, out.end())
		}
	}
	if object {
		err = e.printGenerated(text.String(), stats)
	} else {
		err = errors.Join(out.print(echo), out.end())
	}
	if err != nil {
		return err
	}
	e.note("prompt: %d tokens, %.1f tokens/s; generated: %d tokens, %.1f tokens/s",
		stats.PromptTokens, stats.PrefillRate(), stats.GeneratedTokens, stats.DecodeRate())
	t.print(e, stats)
	return nil
}

// generated is the output of generate --json.
type generated struct {
	Text            string  `json:"text"`
	FinishReason    string  `json:"finish_reason"` // as in OpenAI's API: length or stop
	PromptTokens    int     `json:"prompt_tokens"`
	GeneratedTokens int     `json:"generated_tokens"`
	PromptRate      float64 `json:"prompt_tokens_per_second"`
	GeneratedRate   float64 `json:"generated_tokens_per_second"`
}

func (e *env) printGenerated(text string, s generate.Stats) error {
	reason := "stop"
	if s.Finish == generate.FinishLength || s.Finish == generate.FinishNone {
		reason = "length"
	}
	to := json.NewEncoder(e)
	to.SetEscapeHTML(false)
	return to.Encode(generated{text, reason, s.PromptTokens, s.GeneratedTokens, s.PrefillRate(), s.DecodeRate()})
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
