package main

import (
	"fmt"
	"io"
	"math"

	"github.com/lockstep-go/lockstep/internal/npy"
	"github.com/lockstep-go/lockstep/model"
)

type logitsCmd struct {
	modelFlag
	deviceFlag
	Tokens []int   `required:"" help:"Token ids, separated by commas." placeholder:"1,2,3"`
	Out    outPath `required:"" help:"File to write: float32 [positions, vocabulary]." placeholder:"F.npy"`
}

func (c *logitsCmd) Help() string {
	return "If a logit is NaN or infinite, the file is written too, and the exit status is 1."
}

// logitsAtOnce is the number of positions between two updates of the progress line.
const logitsAtOnce = 16

func (c *logitsCmd) Run(e *env) error {
	if len(c.Tokens) == 0 {
		return usagef("--tokens: want one token id or more")
	}
	out := output{flag: "--out", file: c.Out}
	if err := e.checkOutputs([]output{out}, c.Model.file); err != nil {
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
	err = out.write(func(w io.Writer) error {
		return npy.Write(w, []int{len(c.Tokens), vocab}, data)
	})
	if err != nil {
		return err
	}
	if err := checkFinite(data, vocab); err != nil {
		return fmt.Errorf("%s: %w; %s has them", c.name(), err, c.Out)
	}
	return nil
}

// checkFinite returns an error if logits [positions, vocab] have NaN or infinities, as those of
// a damaged model do. The error describes the first such row.
func checkFinite(logits []float32, vocab int) error {
	bad, first := 0, ""
	for i := 0; i*vocab < len(logits); i++ {
		nan, inf := 0, 0
		for _, x := range logits[i*vocab : (i+1)*vocab] {
			switch x := float64(x); {
			case math.IsNaN(x):
				nan++
			case math.IsInf(x, 0):
				inf++
			}
		}
		if nan+inf == 0 {
			continue
		}
		if bad++; bad > 1 {
			continue
		}
		first = fmt.Sprintf("row %d has %d NaN and %d infinite of %d", i, nan, inf, vocab)
		if nan == vocab {
			first = fmt.Sprintf("row %d is all NaN", i)
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d rows of logits are not finite: %s", bad, len(logits)/vocab, first)
}

// allLogits returns the logits after each token, [len(tokens), vocabulary].
func allLogits(e *env, eng model.Engine, tokens []int) ([]float32, error) {
	s, err := eng.NewSequence(len(tokens))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	p := e.progress("logits", int64(len(tokens)))
	defer p.end()
	var data []float32
	for len(tokens) > 0 {
		n := min(logitsAtOnce, len(tokens))
		out, err := model.Forward(e.ctx, eng, model.Row{Sequence: s, Tokens: tokens[:n], Prompt: true, Want: model.WantAll})
		if err != nil {
			return nil, err
		}
		data = append(data, out.Logits...)
		tokens = tokens[n:]
		p.add(n)
	}
	return data, e.ctx.Err()
}
