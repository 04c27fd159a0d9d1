package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lockstep-go/lockstep/internal/servebench"
)

type benchServeCmd struct {
	URL     string `name:"url" required:"" help:"Base URL of the server." placeholder:"http://HOST:PORT"`
	Model   string `help:"Name of the model in requests (default: the first that the server lists)." placeholder:"NAME"`
	Chat    bool   `help:"Use /v1/chat/completions instead of /v1/completions."`
	KeyFile path   `name:"api-key-file" help:"File of API keys, one per line; requests have the first (default: none)." placeholder:"F"`

	Rate        float64 `help:"Open loop: mean arrivals per second, as a Poisson process that waits for no answer; inf: all at once." placeholder:"R"`
	Concurrency int     `help:"Closed loop: number of requests in flight." placeholder:"N"`
	Trace       path    `help:"Requests of a file of JSON lines with arrival (s), prompt_tokens or prompt, and output_tokens." placeholder:"F"`
	Requests    int     `help:"Number of requests (default: 200, or all of --trace)." placeholder:"N"`
	Warmup      int     `default:"0" help:"Requests before the measurement, one after the other (${default})." placeholder:"N"`

	PromptTokens servebench.Lengths `default:"256" help:"Length of prompts: N, A..B (uniform) or lognormal:MEDIAN:SIGMA[:MAX] (${default})." placeholder:"L"`
	OutputTokens servebench.Lengths `default:"128" help:"Length of answers, like --prompt-tokens (${default})." placeholder:"L"`
	Prefixes     int                `default:"0" help:"Number of distinct prefixes, one of which begins each prompt (${default})." placeholder:"K"`
	PrefixTokens int                `default:"256" help:"Length of each prefix, in addition to --prompt-tokens (${default})." placeholder:"N"`
	Vocab        int                `default:"0" help:"Prompts are random token ids below N; 0: words (${default})." placeholder:"N"`
	Seed         uint64             `default:"1" help:"Seed of the load: equal seeds make equal requests (${default})." placeholder:"S"`

	Temperature float64  `default:"0" help:"Sampling temperature (${default})." placeholder:"T"`
	TopK        int      `help:"Sample from the K most likely tokens (default: the server's)." placeholder:"K"`
	TopP        float64  `help:"Sample from the most likely tokens of total probability P (default: the server's)." placeholder:"P"`
	Extra       jsonDict `help:"JSON object of more request fields, such as {\"min_p\": 0.1}; null removes a field." placeholder:"JSON"`

	Timeout   time.Duration `default:"10m" help:"Time limit of a request (${default})." placeholder:"T"`
	TTFTLimit time.Duration `name:"ttft-limit" help:"Goodput: largest time to first token of a good request." placeholder:"T"`
	GapLimit  time.Duration `help:"Goodput: largest time between two tokens of a good request." placeholder:"T"`

	JSON outPath `name:"json" help:"Also write the results as JSON." placeholder:"F"`
	Plot outPath `help:"Draw the latencies as SVG." placeholder:"F.svg"`
}

// jsonDict is a JSON object on the command line.
type jsonDict map[string]any

func (d *jsonDict) UnmarshalText(text []byte) error {
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil || m == nil {
		return fmt.Errorf("%q, want a JSON object", text)
	}
	*d = m
	return nil
}

func (c *benchServeCmd) Help() string {
	return "Works with any server that has OpenAI's API, such as lockstep, llama.cpp or vLLM. Answers are streamed and have exactly " +
		"the requested length if the server knows ignore_eos. The length of prompts is exact with --vocab, or if the server has /tokenize. " +
		"The time between tokens is that between events of the stream. The time to first token begins when the request is sent."
}

func (c *benchServeCmd) Run(e *env) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	if err := e.checkOutputs(c.outputs(), c.Trace, c.KeyFile); err != nil {
		return err
	}
	if c.KeyFile != "" {
		keys, err := readKeys(string(c.KeyFile))
		if err != nil {
			return fmt.Errorf("--api-key-file: %w", err)
		}
		o.Target.Key = keys[0]
	}
	if c.Trace != "" {
		if o.Load.Trace, err = readTrace(string(c.Trace)); err != nil {
			return fmt.Errorf("--trace: %w", err)
		}
	}
	total := o.Load.Requests
	if total == 0 {
		total = len(o.Load.Trace)
	}
	p := e.progress("requests", int64(total))
	o.Note = func(text string) { e.note("%s", printable(text)) }
	o.Done = func() { p.add(1) }
	rep, err := servebench.Run(e.ctx, o)
	p.end()
	if rep.Sent == 0 {
		if err != nil && e.ctx.Err() == nil {
			err = fmt.Errorf("--url: %w", err)
		}
		return err
	}
	err = errors.Join(err, e.printServeBench(&rep))
	if e.ctx.Err() != nil {
		return err // without files: requests are missing
	}
	return errors.Join(err, c.write(&rep), noSuccess(&rep))
}

// outputs returns the JSON file and the chart.
func (c *benchServeCmd) outputs() []output {
	return []output{{flag: "--json", file: c.JSON}, {flag: "--plot", file: c.Plot}}
}

func (c *benchServeCmd) write(rep *servebench.Report) error {
	out := c.outputs()
	return errors.Join(out[0].writeJSON(rep), out[1].write(rep.Plot))
}

// noSuccess returns an error if all requests failed.
func noSuccess(rep *servebench.Report) error {
	if rep.Succeeded > 0 || len(rep.Failures) == 0 {
		return nil
	}
	return fmt.Errorf("no request succeeded: %s: %s", rep.Failures[0].Kind, rep.Failures[0].First)
}

func readTrace(name string) ([]servebench.Request, error) {
	text, err := readTextFile(name)
	if err != nil {
		return nil, err
	}
	list, err := servebench.ReadTrace(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}

// Limits of flags. More requests would not fit the memory of the generator.
const (
	maxRequests = 1 << 24
	maxVocab    = 1 << 24
	leastRate   = 1e-3
)

// check validates the flags.
func (c *benchServeCmd) check() error {
	ways := 0
	for _, given := range []bool{c.Rate != 0, c.Concurrency != 0, c.Trace != ""} {
		if given {
			ways++
		}
	}
	for _, f := range []struct {
		flag        string
		value       int
		least, most int
	}{
		{"--concurrency", c.Concurrency, 0, maxRequests}, {"--requests", c.Requests, 0, maxRequests}, {"--warmup", c.Warmup, 0, maxRequests},
		{"--prefixes", c.Prefixes, 0, maxRequests}, {"--prefix-tokens", c.PrefixTokens, 1, servebench.MaxTokens},
		{"--vocab", c.Vocab, 0, maxVocab}, {"--top-k", c.TopK, 0, math.MaxInt32},
	} {
		if f.value < f.least || f.value > f.most {
			return usagef("%s: %d, want %d to %d", f.flag, f.value, f.least, f.most)
		}
	}
	for _, f := range []struct {
		flag  string
		value time.Duration
	}{{"--ttft-limit", c.TTFTLimit}, {"--gap-limit", c.GapLimit}} {
		if f.value < 0 {
			return usagef("%s: %v, want 0 or more", f.flag, f.value)
		}
	}
	switch {
	case c.Rate != 0 && !(c.Rate >= leastRate):
		return usagef("--rate: %v, want %v or more", c.Rate, leastRate)
	case !(c.Temperature >= 0 && c.Temperature <= math.MaxFloat32):
		return usagef("--temperature: %v, want 0 or more", c.Temperature)
	case !(c.TopP >= 0 && c.TopP <= 1):
		return usagef("--top-p: %v, want 0 to 1", c.TopP)
	case c.Timeout <= 0:
		return usagef("--timeout: %v, want more than 0", c.Timeout)
	case ways == 0:
		return usagef("--rate: want --rate, --concurrency or --trace")
	case c.Rate != 0 && ways > 1:
		return usagef("--rate: excludes --concurrency and --trace")
	case c.Chat && c.Vocab > 0:
		return usagef("--vocab: excludes --chat, whose messages are text")
	}
	return nil
}

// options checks the flags and returns the options of the benchmark without the trace.
func (c *benchServeCmd) options() (o servebench.Options, err error) {
	if err := c.check(); err != nil {
		return o, err
	}
	url, err := servebench.ParseURL(c.URL)
	if err != nil {
		return o, usagef("--url: %w", err)
	}
	requests := c.Requests
	if requests == 0 && c.Trace == "" {
		requests = 200
	}
	extra := map[string]any{"temperature": c.Temperature}
	if c.TopK > 0 {
		extra["top_k"] = c.TopK
	}
	if c.TopP > 0 {
		extra["top_p"] = c.TopP
	}
	for k, v := range c.Extra {
		extra[k] = v
	}
	return servebench.Options{
		Target: servebench.Target{URL: url, Model: c.Model, Chat: c.Chat, Extra: extra, Timeout: c.Timeout},
		Load: servebench.Load{
			Rate: c.Rate, Concurrency: c.Concurrency, Requests: requests, Prompt: c.PromptTokens, Output: c.OutputTokens,
			Prefixes: c.Prefixes, PrefixTokens: c.PrefixTokens, Seed: c.Seed,
		},
		Limits: servebench.Limits{FirstToken: c.TTFTLimit, Gap: c.GapLimit},
		Vocab:  c.Vocab, Warmup: c.Warmup,
	}, nil
}

// printServeBench prints the report as a table.
func (e *env) printServeBench(rep *servebench.Report) error {
	lines := []string{
		fmt.Sprintf("%s%s, model %s", rep.URL, rep.Endpoint, printable(rep.Model)),
		loadLine(rep.Load),
		countLine(rep),
		fmt.Sprintf("%s requests/s, %s output tokens/s, %s tokens/s with prompts; at most %d requests in flight",
			rateText(rep.RequestRate), rateText(rep.OutputRate), rateText(rep.TotalRate), rep.Peak),
	}
	if g := rep.Goodput; g != nil {
		lines = append(lines, fmt.Sprintf("goodput %s requests/s: %d requests (%.1f%%) within %s",
			rateText(g.Rate), g.Requests, 100*g.Share, strings.Join(limitTexts(g), " and ")))
	}
	if err := e.stdout("%s\n", strings.Join(lines, "\n")); err != nil {
		return err
	}
	if rep.Succeeded > 0 {
		if err := e.printLatencies(rep); err != nil {
			return err
		}
	}
	if notes := serveNotes(rep); len(notes) > 0 {
		return e.stdout("\n%s\n", strings.Join(notes, "\n"))
	}
	return nil
}

// printLatencies prints the distributions of latencies.
func (e *env) printLatencies(rep *servebench.Report) error {
	w := tabwriter.NewWriter(e, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nms\tmean\tp50\tp90\tp99\tmax\tvalues\t")
	for _, d := range []struct {
		name string
		servebench.Distribution
	}{
		{"time to first token", rep.FirstToken}, {"time between tokens", rep.Gap},
		{"time per output token", rep.PerToken}, {"end to end", rep.EndToEnd},
	} {
		if d.Count > 0 {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t\n", d.name,
				rateText(1e3*d.Mean), rateText(1e3*d.P50), rateText(1e3*d.P90), rateText(1e3*d.P99), rateText(1e3*d.Max), d.Count)
		}
	}
	return w.Flush()
}

// loadLine describes the load in one line.
func loadLine(l servebench.Description) string {
	text := "open loop, " + l.Arrivals
	switch {
	case l.Concurrency > 0:
		text = fmt.Sprintf("closed loop, %d requests in flight", l.Concurrency)
	case l.Rate > 0:
		text += fmt.Sprintf(", %v requests/s", l.Rate)
	}
	if l.Prompt != "" {
		text += fmt.Sprintf("; prompts of %s tokens, answers of %s", l.Prompt, l.Output)
	}
	if l.Prefixes > 0 {
		text += fmt.Sprintf("; %d prefixes of %d tokens", l.Prefixes, l.PrefixTokens)
	}
	return fmt.Sprintf("%s; %s; seed %d", text, l.Content, l.Seed)
}

// countLine tells how the requests ended.
func countLine(rep *servebench.Report) string {
	failed := 0
	for _, f := range rep.Failures {
		failed += f.Count
	}
	text := fmt.Sprintf("%d of %d requests sent in %.4g s: %d succeeded, %d failed", rep.Sent, rep.Load.Requests, rep.Seconds, rep.Succeeded, failed)
	if rep.Canceled > 0 {
		text += fmt.Sprintf(", %d interrupted", rep.Canceled)
	}
	return text + fmt.Sprintf("; %d prompt tokens, %d output tokens", rep.PromptTokens, rep.OutputTokens)
}

func limitTexts(g *servebench.Goodput) (list []string) {
	if g.FirstTokenLimit > 0 {
		list = append(list, fmt.Sprintf("%g s to the first token", g.FirstTokenLimit))
	}
	if g.GapLimit > 0 {
		list = append(list, fmt.Sprintf("%g s between tokens", g.GapLimit))
	}
	return list
}

// serveNotes tells what failed and why results may mislead.
func serveNotes(rep *servebench.Report) (notes []string) {
	for _, f := range rep.Failures {
		notes = append(notes, fmt.Sprintf("%d × %s: %s", f.Count, f.Kind, printable(f.First)))
	}
	if rep.FellBehind() {
		notes = append(notes, fmt.Sprintf("the generator fell behind: requests were sent late by %s ms (p99) and %s ms (max)", rateText(1e3*rep.Lag.P99), rateText(1e3*rep.Lag.Max)))
	}
	if rep.Short > 0 {
		notes = append(notes, fmt.Sprintf("answers with fewer tokens than requested: %d", rep.Short))
	}
	if rep.Uncounted > 0 {
		notes = append(notes, fmt.Sprintf("answers without usage: %d; their events count as tokens, their prompts as none", rep.Uncounted))
	}
	return notes
}
