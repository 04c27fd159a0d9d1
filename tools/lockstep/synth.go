package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
)

type synthCmd struct {
	Preset string  `required:"" help:"Shape of the model: ${presets}." placeholder:"P"`
	Quant  string  `required:"" help:"Block format of the weights: ${formats}." placeholder:"T"`
	Out    outPath `required:"" help:"GGUF file to write." placeholder:"F"`
	Layers int     `help:"Number of layers, instead of the model's own." placeholder:"N"`
	Seed   uint64  `default:"1" help:"Seed of the random weights (${default})." placeholder:"S"`

	Tokenizer modelFile `help:"GGUF file, or a name that lockstep models lists, of the vocabulary and the chat template, instead of a byte-level vocabulary." placeholder:"F"`
}

func (c *synthCmd) Help() string {
	return "The file has the tensor shapes and metadata of the named model, random weights, and a byte-level vocabulary. " +
		"The file of --tokenizer needs no tensors. If it has fewer tokens than the model, the other tokens are unused."
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
	plan, err = synth.NewPlan(preset, recipe, c.Layers)
	if err != nil || c.Tokenizer.file == "" {
		return plan, err
	}
	if err := setTokenizer(&plan, string(c.Tokenizer.file)); err != nil {
		return plan, fmt.Errorf("--tokenizer: %s: %w", c.Tokenizer, err)
	}
	return plan, nil
}

// setTokenizer gives the planned model the vocabulary of a file. It refuses a vocabulary that
// package tokenizer does not support, because lockstep could run the model on token ids only.
func setTokenizer(plan *synth.Plan, file string) error {
	f, err := gguf.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	tok, err := model.LoadTokenizer(f)
	if err == nil && tok == nil {
		err = model.ErrNoTokenizer
	}
	if err != nil {
		return err
	}
	return plan.SetTokenizer(f)
}

func (c *synthCmd) Run(e *env) error {
	plan, err := c.plan()
	if err != nil {
		return err
	}
	if err := e.checkOutputs([]output{{flag: "--out", file: c.Out, model: true}}, c.Tokenizer.file); err != nil {
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
