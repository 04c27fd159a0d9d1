package main

import (
	"fmt"
	"io"

	"github.com/lockstep-go/lockstep/internal/npy"
	"github.com/lockstep-go/lockstep/model"
)

type logitsCmd struct {
	modelFlag
	deviceFlag
	Tokens []int   `required:"" help:"Token ids, separated by commas." placeholder:"1,2,3"`
	Out    outPath `required:"" help:"File to write: float32 [positions, vocabulary]." placeholder:"F.npy"`
}

// logitsAtOnce is the number of positions between two updates of the progress line.
const logitsAtOnce = 16

func (c *logitsCmd) Run(e *env) error {
	if len(c.Tokens) == 0 {
		return usagef("--tokens: want one token id or more")
	}
	out := output{flag: "--out", file: c.Out}
	if err := e.checkOutputs([]output{out}, c.Model); err != nil {
		return err
	}
	m, err := c.open()
	if err != nil {
		return err
	}
	defer m.Close()
	vocab := m.Config.Vocab
	if err := model.CheckTokens(c.Tokens, vocab); err != nil {
		return fmt.Errorf("--tokens: %w", err)
	}
	if n, limit := len(c.Tokens), m.Config.Context; n > limit {
		return fmt.Errorf("--tokens: %w", model.CheckCapacity(n, limit))
	}
	runner, err := c.engine(e, m, c.name(), len(c.Tokens), nil)
	if err != nil {
		return err
	}
	defer runner.Close()
	data, err := allLogits(e, runner.Engine(), c.Tokens)
	if err != nil {
		return err
	}
	return out.write(func(w io.Writer) error {
		return npy.Write(w, []int{len(c.Tokens), vocab}, data)
	})
}

// allLogits returns the logits after each token, [len(tokens), vocabulary].
func allLogits(e *env, eng model.Engine, tokens []int) ([]float32, error) {
	s, err := eng.NewSession(len(tokens))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	p := e.progress("logits", int64(len(tokens)))
	defer p.end()
	var data []float32
	for len(tokens) > 0 {
		n := min(logitsAtOnce, len(tokens))
		if n == len(tokens)-1 {
			n++ // a single token would be a decode step, which a GPU may round differently
		}
		out, err := s.Forward(e.ctx, tokens[:n], model.WantAll)
		if err != nil {
			return nil, err
		}
		data = append(data, out.Logits...)
		tokens = tokens[n:]
		p.add(n)
	}
	return data, e.ctx.Err()
}
