package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/lockstep-go/lockstep"
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

type diffCmd struct {
	modelFlag
	Device    lockstep.Device `enum:"gpu,emu" default:"gpu" help:"Device to compare with the reference: gpu, an NVIDIA GPU; emu, an emulated GPU (${default})." placeholder:"gpu|emu"`
	KV        model.KVFormat  `name:"kv" default:"f16" help:"Format of the KV cache (${default})." placeholder:"f16|bf16"`
	Steps     bool            `help:"Compute the tokens one by one, as generated tokens, instead of as a prompt."`
	Prompt    *string         `xor:"tokens" help:"Text to compute." placeholder:"TEXT"`
	Tokens    []int           `xor:"tokens" help:"Token ids to compute, separated by commas." placeholder:"1,2,3"`
	Reference modelFile       `help:"Model for the reference, such as the unquantized original (default: the model)." placeholder:"F"`
	HTML      outPath         `name:"html" help:"Also write an HTML page with a chart of the error by layer." placeholder:"F.html"`
	JSON      outPath         `name:"json" help:"Also write the results as JSON." placeholder:"F.json"`
}

func (c *diffCmd) Help() string {
	return "Both compute the same tokens; the default is 64 tokens spread over the vocabulary. At every position, diff compares the " +
		"result of each operation of each layer, and the logits. If an element is out of bounds, diff names the first one and exits " +
		"with status 1. The reference rounds to 16 bits where the device does, and computes each operation from the device's " +
		"results of those before. So an error shows where it arises. With --reference, it computes from its own results instead, and " +
		"once more without rounding: twice the effect of rounding on an operation is that operation's bound. The reference takes long on " +
		"large models."
}

// diffTokens is the default number of tokens.
const diffTokens = 64

func (c *diffCmd) Run(e *env) error {
	if err := c.check(e); err != nil {
		return err
	}
	m, err := c.open()
	if err != nil {
		return err
	}
	defer m.Close()
	refModel := m
	if c.Reference.file != "" {
		if refModel, err = c.reference(m); err != nil {
			return fmt.Errorf("--reference: %w", err)
		}
		defer refModel.Close()
	}
	tokens, err := c.tokens(m)
	if err != nil {
		return err
	}
	dev, err := e.openFlag(c.Device)
	if err != nil {
		return err
	}
	s := layerdiff.Subject{
		Model: c.name(), Reference: c.Reference.String(), Device: dev.Properties().Name, KV: c.KV.String(), Steps: c.Steps, Tokens: len(tokens),
	}
	report, err := c.compare(e, m, refModel, dev, tokens)
	if err = errors.Join(err, dev.Close()); err != nil {
		return err
	}
	if err := c.show(e, report, s); err != nil {
		return err
	}
	return c.verdict(e, report, m)
}

// verdict returns an error if something is out of bounds.
func (c *diffCmd) verdict(e *env, r *layerdiff.Report, m *model.Model) error {
	err := r.Err()
	if err == nil {
		return nil
	}
	if m.Config.Experts > 0 {
		e.note("rounding to 16 bits can select other experts where router scores are nearly equal")
	}
	return fmt.Errorf("%s: out of bounds: %w", c.name(), err)
}

func (c *diffCmd) check(e *env) error {
	if c.Tokens != nil && len(c.Tokens) == 0 {
		return usagef("--tokens: want at least one token id")
	}
	if err := checkKV(c.Device, c.KV); err != nil {
		return err
	}
	return e.checkOutputs(c.outputs(), c.Model.file, c.Reference.file)
}

// outputs returns the page and the JSON file.
func (c *diffCmd) outputs() []output {
	return []output{{flag: "--html", file: c.HTML}, {flag: "--json", file: c.JSON}}
}

// reference opens the model of --reference, which must have the shape of m.
func (c *diffCmd) reference(m *model.Model) (*model.Model, error) {
	other, err := model.Open(string(c.Reference.file))
	if err != nil {
		return nil, err
	}
	if err := sameShape(m.Config, other.Config); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.Reference, err), other.Close())
	}
	return other, nil
}

// tokens returns the tokens of the flags, or the default ones.
func (c *diffCmd) tokens(m *model.Model) ([]int, error) {
	flag, tokens := "--tokens", c.Tokens
	switch {
	case c.Prompt != nil:
		var err error
		if tokens, err = m.Prompt(*c.Prompt, false, m.Config.Context); err != nil {
			return nil, fmt.Errorf("--prompt: %s: %w", c.name(), err)
		}
		flag = "--prompt"
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
		return nil, fmt.Errorf("%s: %s: %w", flag, c.name(), model.CheckCapacity(len(tokens), limit))
	}
	return tokens, nil
}

// spreadTokens returns n tokens spread over the vocabulary. Multiples of the golden ratio
// leave no large gaps and few repetitions.
func spreadTokens(n, vocab int) []int {
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = i * max(1, vocab*618/1000) % vocab
	}
	return tokens
}

// sameShape returns an error if two models cannot be compared layer by layer.
func sameShape(a, b model.Config) error {
	for _, f := range []struct {
		what string
		a, b int
	}{
		{"layers", a.Layers, b.Layers}, {"hidden elements", a.Hidden, b.Hidden}, {"heads", a.Heads, b.Heads},
		{"key-value heads", a.KVHeads, b.KVHeads}, {"elements per head", a.HeadDim, b.HeadDim},
		{"tokens in the vocabulary", a.Vocab, b.Vocab}, {"positions of context", a.Context, b.Context},
	} {
		if f.a != f.b {
			return fmt.Errorf("has %d %s, the model %d", f.b, f.what, f.a)
		}
	}
	return nil
}

// show prints the report and writes the files.
func (c *diffCmd) show(e *env, r *layerdiff.Report, s layerdiff.Subject) error {
	how := "as a prompt"
	if s.Steps {
		how = "one by one"
	}
	if err := e.stdout("%s on %s: %d tokens %s, cache %s\n", s.Model, s.Device, s.Tokens, how, s.KV); err != nil {
		return err
	}
	if err := r.WriteText(e); err != nil {
		return err
	}
	out := c.outputs()
	err := out[0].write(func(w io.Writer) error { return r.WriteHTML(w, s) })
	return errors.Join(err, out[1].write(func(w io.Writer) error {
		text, err := r.JSON(s)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}))
}

// compare runs the accelerator on m and the reference on refModel, and compares the traces.
func (c *diffCmd) compare(e *env, m, refModel *model.Model, dev driver.Device, tokens []int) (*layerdiff.Report, error) {
	got, err := c.onDevice(e, m, dev, tokens)
	if err != nil {
		return nil, fmt.Errorf("--device %s: %s: %w", c.Device, c.name(), err)
	}
	n := c.numerics()
	want, effects, err := c.onCPU(e, refModel, n, tokens, got)
	if err != nil {
		return nil, fmt.Errorf("%s: the reference: %w", cmp.Or(c.Reference.String(), c.name()), err)
	}
	report, err := layerdiff.Compare(want, got, n, effects)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name(), err)
	}
	return report, nil
}

// numerics returns the formats that the device rounds to.
func (c *diffCmd) numerics() layerdiff.Numerics {
	return layerdiff.Numerics{KV: c.KV.Format(quant.F16), Input: quant.F16, Followed: c.Reference.file == ""}
}

// onCPU traces the reference, rounded as the device rounds. Without --reference, it follows the device's trace. With it, the effect
// of that rounding on each operation is measured, too.
func (c *diffCmd) onCPU(e *env, m *model.Model, n layerdiff.Numerics, tokens []int, device *layerdiff.Trace) (*layerdiff.Trace, map[layerdiff.Op]float64, error) {
	followed := layerdiff.NewTrace()
	if n.Followed {
		followed = device
	}
	want, err := refTrace(e, m, accelnumerics.Of(c.KV, m.Config.HeadDim), tokens, followed)
	if err != nil {
		return nil, nil, err
	}
	want.Round(n.KV, "key", "value") // the device's tap reads them from the cache
	if n.Followed {
		return want, nil, nil
	}
	exact, err := refTrace(e, m, ref.Numerics{}, tokens, followed)
	if err != nil {
		return nil, nil, err
	}
	effects, err := layerdiff.Effects(exact, want)
	return want, effects, err
}

// refTrace traces the reference, which follows another trace, or an empty one.
func refTrace(e *env, m *model.Model, n ref.Numerics, tokens []int, followed *layerdiff.Trace) (*layerdiff.Trace, error) {
	t := layerdiff.NewTrace()
	eng, err := ref.New(m, ref.Options{Numerics: n, Tap: t.Follow(followed)})
	if err != nil {
		return nil, err
	}
	_, err = allLogits(e, eng, tokens)
	return t, err
}

// onDevice traces the accelerator.
func (c *diffCmd) onDevice(e *env, m *model.Model, dev driver.Device, tokens []int) (t *layerdiff.Trace, err error) {
	t = layerdiff.NewTrace()
	o := deviceFlag{KV: c.KV}.accelOptions(len(tokens))
	o.Tap = t.AddFloats
	eng, err := accel.New(e.ctx, m, dev, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	s, err := eng.NewSequence(len(tokens))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if !c.Steps {
		_, err = model.Forward(e.ctx, eng, model.Row{Sequence: s, Tokens: tokens, Prompt: true, Want: model.WantAll})
		return t, err
	}
	for i := range tokens {
		if _, err := model.Forward(e.ctx, eng, model.Row{Sequence: s, Tokens: tokens[i:][:1], Want: model.WantAll}); err != nil {
			return t, err
		}
	}
	return t, nil
}
