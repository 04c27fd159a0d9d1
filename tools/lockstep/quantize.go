package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/model/gguf"
)

type quantizeCmd struct {
	In   modelFile `required:"" help:"GGUF file to read, or the first part of a split model, or a name that lockstep models lists." placeholder:"F"`
	Out  outPath   `required:"" help:"GGUF file to write." placeholder:"G"`
	Type string    `required:"" help:"Block format of the weights: ${encodable}." placeholder:"T"`
}

func (c *quantizeCmd) Help() string {
	return "Vectors, and matrices whose rows are not a multiple of the block length, keep their format. All metadata is kept. The output is one file, also if the input has several parts."
}

func (c *quantizeCmd) Run(e *env) error {
	r, err := requant.ParseRecipe(c.Type)
	if err != nil || !r.CanEncode() {
		return usagef("--type: %q, choose one of %s", c.Type, strings.Join(requant.Encodable(), ", "))
	}
	f, err := gguf.Open(string(c.In.file))
	if err != nil {
		return fmt.Errorf("--in: %w", err)
	}
	defer f.Close()
	if err := e.checkOutputs([]output{{flag: "--out", file: c.Out, model: true}}, c.In.file); err != nil {
		return err
	}
	var p *progress
	w, kept, err := requant.Convert(e.ctx, f, r, func(n int) { p.add(n) })
	if err != nil {
		return fmt.Errorf("--in: %s: %w", c.In, err)
	}
	p = e.progressBytes("quantize", w.Size())
	err = w.WriteFile(string(c.Out))
	p.end()
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	for _, line := range summary(kept) {
		e.note("not converted: %s", line)
	}
	return e.stdout("%s: %s, %d of %d tensors in %s; the input has %s\n",
		c.Out, size(w.Size()), len(f.Tensors())-len(kept), len(f.Tensors()), r, size(f.Size()))
}

// summary counts the tensors that were not converted, by reason.
func summary(kept []requant.Unconverted) []string {
	count := map[string]int{}
	var reasons []string
	for _, k := range kept {
		if count[k.Reason]++; !slices.Contains(reasons, k.Reason) {
			reasons = append(reasons, k.Reason)
		}
	}
	var lines []string
	for _, reason := range reasons {
		lines = append(lines, fmt.Sprintf("%d tensors (%s)", count[reason], reason))
	}
	return lines
}
