package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/model"
)

type diffCmd struct {
	modelFlag
	Device    lockstep.Device `enum:"gpu,emu" default:"gpu" help:"What is compared with the reference: gpu, an NVIDIA GPU; emu, an emulated GPU (${default})." placeholder:"gpu|emu"`
	KV        model.KVFormat  `name:"kv" default:"f16" help:"Format of the keys and values in the cache (${default})." placeholder:"f16|bf16|f32"`
	Prefill   string          `enum:"exact,f16" default:"exact" help:"Kernels that compute the tokens: exact, those of decode steps; f16, those of prompts, which multiply in 16 bits (${default})." placeholder:"exact|f16"`
	Prompt    *string         `xor:"tokens" help:"Text to compute." placeholder:"TEXT"`
	Tokens    []int           `xor:"tokens" help:"Token ids to compute, separated by commas." placeholder:"1,2,3"`
	Reference path            `help:"GGUF file that the reference computes instead of the model, such as what it was converted from." placeholder:"F"`
	HTML      path            `name:"html" help:"Write a page with the error by layer as a drawing." placeholder:"F.html"`
	JSON      path            `name:"json" help:"Write the figures as JSON." placeholder:"F.json"`
}

func (c *diffCmd) Help() string {
	return "Both compute the same tokens, without --prompt and --tokens some 64 that are spread over the vocabulary. Compared is " +
		"what every operation of every layer gives at every position, and the logits. The first operation, layer, position and " +
		"element that leaves its bound is named, and the status is 1. The reference rounds to 16 bits what the device does, and " +
		"computes once more without, as the bound of an operation behind such roundings is what they do to it. That takes time " +
		"on large models."
}

// diffTokens is how many tokens are compared when none are named.
const diffTokens = 64

func (c *diffCmd) Run(e *env) error {
	if err := c.check(); err != nil {
		return err
	}
	m, err := c.open()
	if err != nil {
		return err
	}
	defer m.Close()
	of := m
	if c.Reference != "" {
		if of, err = c.reference(m); err != nil {
			return fmt.Errorf("--reference: %w", err)
		}
		defer of.Close()
	}
	tokens, err := c.tokens(m)
	if err != nil {
		return err
	}
	dev, err := openFlag(c.Device)
	if err != nil {
		return err
	}
	s := layerdiff.Subject{
		Model: c.name(), Reference: string(c.Reference), Device: dev.Properties().Name, KV: c.KV.String(), Prefill: c.Prefill, Tokens: len(tokens),
	}
	report, err := c.compare(e, m, of, dev, tokens)
	if err = errors.Join(err, dev.Close()); err != nil {
		return err
	}
	if err := c.show(e, report, s); err != nil {
		return err
	}
	return c.judge(e, report, m)
}

// judge is the error that something left its bound.
func (c *diffCmd) judge(e *env, r *layerdiff.Report, m *model.Model) error {
	err := r.Err()
	if err == nil {
		return nil
	}
	if m.Config.Experts > 0 && c.numerics(m).Rounds() {
		e.note("where a router's scores are nearly equal, rounding to 16 bits chooses another expert: --prefill exact --kv f32 tells that from a fault")
	}
	return fmt.Errorf("%s: out of bounds: %w", c.name(), err)
}

func (c *diffCmd) check() error {
	if c.Tokens != nil && len(c.Tokens) == 0 {
		return usagef("--tokens: want one token id or more")
	}
	for _, f := range []struct {
		flag string
		file path
	}{{"--html", c.HTML}, {"--json", c.JSON}} {
		if f.file == "" {
			continue
		}
		if err := checkOutput(f.flag, string(f.file), string(c.Model), string(c.Reference)); err != nil {
			return err
		}
	}
	return nil
}

// reference opens the model of --reference, which must have the shape of the other.
func (c *diffCmd) reference(m *model.Model) (*model.Model, error) {
	of, err := model.Open(string(c.Reference))
	if err != nil {
		return nil, err
	}
	if err := sameShape(m.Config, of.Config); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.Reference, err), of.Close())
	}
	return of, nil
}

// tokens are those that the flags name, checked.
func (c *diffCmd) tokens(m *model.Model) ([]int, error) {
	flag, tokens := "--tokens", c.Tokens
	switch {
	case c.Prompt != nil:
		tok, err := m.NeedTokenizer()
		if err != nil {
			return nil, fmt.Errorf("--prompt: %s: %w", c.name(), err)
		}
		flag, tokens = "--prompt", tok.Prompt(*c.Prompt, false)
		if len(tokens) == 0 {
			return nil, fmt.Errorf("--prompt: %w", model.ErrEmptyPrompt)
		}
	case len(tokens) == 0:
		tokens = spreadTokens(min(diffTokens, m.Config.Context), m.Config.Vocab)
	}
	if err := model.CheckTokens(tokens, m.Config.Vocab); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if limit := m.Config.Context; len(tokens) > limit {
		return nil, fmt.Errorf("%s: %s: %w", flag, c.name(), &model.ContextError{Need: len(tokens), Limit: limit})
	}
	return tokens, nil
}

// spreadTokens are n tokens all over a vocabulary: by the golden ratio, which leaves no
// large gap and repeats none soon.
func spreadTokens(n, vocab int) []int {
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = i * max(1, vocab*618/1000) % vocab
	}
	return tokens
}

// sameShape says in what two models cannot be compared layer by layer.
func sameShape(a, b model.Config) error {
	for _, f := range []struct {
		what string
		a, b int
	}{
		{"layers", a.Layers, b.Layers}, {"hidden elements", a.Hidden, b.Hidden}, {"heads", a.Heads, b.Heads},
		{"key-value heads", a.KVHeads, b.KVHeads}, {"elements of a head", a.HeadDim, b.HeadDim},
		{"tokens in the vocabulary", a.Vocab, b.Vocab}, {"positions of context", a.Context, b.Context},
	} {
		if f.a != f.b {
			return fmt.Errorf("%d %s, not %d as in the model", f.b, f.what, f.a)
		}
	}
	return nil
}

// show prints a report and writes the files.
func (c *diffCmd) show(e *env, r *layerdiff.Report, s layerdiff.Subject) error {
	if err := e.stdout("%s on %s: %d tokens, cache %s, prefill %s\n", s.Model, s.Device, s.Tokens, s.KV, s.Prefill); err != nil {
		return err
	}
	if err := r.WriteText(e); err != nil {
		return err
	}
	if c.HTML != "" {
		var page bytes.Buffer
		if err := r.WriteHTML(&page, s); err != nil {
			return err
		}
		if err := writeFile(string(c.HTML), page.Bytes()); err != nil {
			return err
		}
	}
	if c.JSON == "" {
		return nil
	}
	text, err := r.JSON(s)
	if err != nil {
		return err
	}
	return writeFile(string(c.JSON), text)
}
