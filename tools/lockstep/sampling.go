package main

import (
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/generate"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// samplingFlags are the flags of generate.Params.
type samplingFlags struct {
	Temperature   float64  `default:"0.7" help:"Sampling temperature; 0: always the most likely token (${default})." placeholder:"T"`
	TopK          int      `default:"40" help:"Sample from the K most likely tokens; 0: all (${default})." placeholder:"K"`
	TopP          float64  `default:"0.95" help:"Sample from the most likely tokens whose probabilities add up to P; 0: all (${default})." placeholder:"P"`
	MinP          float64  `default:"0.05" help:"Exclude tokens less than P times as likely as the most likely one; 0: none (${default})." placeholder:"P"`
	RepeatPenalty float64  `default:"1" help:"Penalty for tokens of the text: divide their positive logits by R, multiply negative ones; 1: none (${default})." placeholder:"R"`
	Seed          uint64   `default:"1" help:"Seed of the sampler. The same command prints the same text; with --device cpu, on every machine (${default})." placeholder:"S"`
	Stop          []string `sep:"none" help:"Stop before the text S; may be repeated." placeholder:"S"`
}

// params converts the flags and --max-tokens, which may be nil.
func (c *samplingFlags) params(maxTokens *int) (generate.Params, error) {
	p := generate.Params{
		Sampling: sampling.Params{
			Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP, MinP: c.MinP,
			RepeatPenalty: c.RepeatPenalty, Seed: c.Seed,
		},
		Stop: c.Stop,
	}
	if maxTokens != nil {
		p.MaxTokens = *maxTokens
	}
	for _, f := range []struct {
		flag  string
		value float64
		ok    bool
		want  string
	}{
		{"--max-tokens", float64(p.MaxTokens), p.MaxTokens >= 0, "0 or more"},
		{"--temperature", c.Temperature, c.Temperature >= 0 && c.Temperature <= 1e6, "0 to 1000000"},
		{"--top-k", float64(c.TopK), c.TopK >= 0, "0 or more"},
		{"--top-p", c.TopP, c.TopP >= 0 && c.TopP <= 1, "0 to 1"},
		{"--min-p", c.MinP, c.MinP >= 0 && c.MinP <= 1, "0 to 1"},
		{"--repeat-penalty", c.RepeatPenalty, c.RepeatPenalty >= 0.01 && c.RepeatPenalty <= 100, "0.01 to 100"},
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
