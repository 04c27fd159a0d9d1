package main

import (
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/synth"
)

type synthCmd struct {
	Preset string  `required:"" help:"Shape of the model: ${presets}." placeholder:"P"`
	Quant  string  `required:"" help:"Block format of the weights: ${formats}." placeholder:"T"`
	Out    outPath `required:"" help:"GGUF file to write." placeholder:"F"`
	Layers int     `help:"Number of layers, instead of the model's own." placeholder:"N"`
	Seed   uint64  `default:"1" help:"Seed of the random weights (${default})." placeholder:"S"`
}

func (c *synthCmd) Help() string {
	return "The file has the tensor shapes and metadata of the named model, random weights, and a byte-level vocabulary."
}

// plan validates the flags and returns the layout of the file.
func (c *synthCmd) plan() (plan synth.Plan, err error) {
	preset, err := synth.Find(c.Preset)
	if err != nil {
		return plan, usagef("--preset: %w", err)
	}
	if c.Quant == "" {
		return plan, usagef("--quant: --preset needs a block format: %s", strings.Join(synth.Recipes(), ", "))
	}
	recipe, err := requant.ParseRecipe(c.Quant)
	if err != nil {
		return plan, usagef("--quant: %w", err)
	}
	if c.Layers < 0 || c.Layers > synth.MaxLayers {
		return plan, usagef("--layers: %d, want 1 to %d", c.Layers, synth.MaxLayers)
	}
	return synth.NewPlan(preset, recipe, c.Layers)
}

func (c *synthCmd) Run(e *env) error {
	plan, err := c.plan()
	if err != nil {
		return err
	}
	if err := e.checkOutputs([]output{{flag: "--out", file: c.Out, model: true}}); err != nil {
		return err
	}
	p := e.progressBytes("synth", plan.Bytes())
	w, err := plan.Writer(e.ctx, c.Seed, p.add)
	if err != nil {
		return err
	}
	begin := time.Now()
	err = w.WriteFile(string(c.Out))
	p.end()
	if err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	return e.stdout("%s: %s in %.1f s (%.2f GB/s); %d bytes of weights per token\n",
		c.Out, size(w.Size()), took, float64(w.Size())/took/1e9, plan.BytesPerToken())
}
