package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/internal/perplexity"
)

type perplexityCmd struct {
	modelFlag
	deviceFlag
	Text    path `required:"" help:"Text file to predict." placeholder:"T"`
	Context int  `default:"512" help:"Window length in tokens, at most the context of the model (${default})." placeholder:"N"`
	JSON    bool `name:"json" help:"Print JSON."`
}

func (c *perplexityCmd) Help() string {
	return "The text is cut into windows of --context tokens without overlap. Each begins with the BOS token, if the vocabulary has one. " +
		"Every token is predicted from the tokens before it in its window."
}

func (c *perplexityCmd) Run(e *env) error {
	if c.Context < 2 {
		return usagef("--context: %d, want 2 or more", c.Context)
	}
	text, err := readTextFile(string(c.Text))
	if err != nil {
		return fmt.Errorf("--text: %w", err)
	}
	m, err := c.open()
	if err != nil {
		return err
	}
	defer m.Close()
	total, window := 0, min(c.Context, m.Config.Context)
	if tok := m.Tokenizer; tok != nil {
		total = len(tok.Encode(string(text), false))
	}
	runner, err := c.engine(e, m, c.name(), window, nil)
	if err != nil {
		return err
	}
	defer runner.Close()
	p := e.progress("tokens", int64(total))
	r, err := perplexity.Measure(e.ctx, runner.Engine(), string(text), perplexity.Options{
		Window:   window,
		Progress: p.add,
	})
	p.end()
	if errors.Is(err, perplexity.ErrTooShort) {
		return fmt.Errorf("--text: %s: %w", c.Text, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	if err := c.print(e, r); err != nil {
		return err
	}
	if x := r.Perplexity(); math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("%s: the perplexity is %g: logits are not finite", c.name(), x)
	}
	return nil
}

func (c *perplexityCmd) print(e *env, r perplexity.Result) error {
	margin := r.Perplexity() * r.StdErr()
	if !c.JSON {
		return e.stdout("perplexity %.4f ± %.4f, %.5f ± %.5f nats/token, %.5f bits/byte, %d tokens, %d bytes, %d windows\n",
			r.Perplexity(), margin, r.Nats(), r.StdErr(), r.BitsPerByte(), r.Tokens, r.Bytes, r.Windows)
	}
	text, err := json.Marshal(map[string]any{
		"perplexity": finite(r.Perplexity()), "perplexity_stderr": finite(margin),
		"nats_per_token": finite(r.Nats()), "nats_stderr": finite(r.StdErr()), "bits_per_byte": finite(r.BitsPerByte()),
		"tokens": r.Tokens, "bytes": r.Bytes, "windows": r.Windows,
	})
	if err != nil {
		return err
	}
	return e.stdout("%s\n", text)
}
