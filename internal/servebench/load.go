package servebench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
)

// Load describes requests and the times at which they are sent. Equal loads make equal
// requests.
type Load struct {
	// Rate selects an open loop: requests arrive at this mean rate per second, as a Poisson
	// process, and wait for no answer. +Inf sends all at once.
	Rate float64
	// Concurrency selects a closed loop: this many requests are in flight. Each answer is
	// followed by the next request. 0: open loop.
	Concurrency int
	// Requests is the number of requests. 0: all of Trace.
	Requests int

	// Prompt and Output are the lengths of prompts and answers.
	Prompt, Output Lengths

	// Prefixes is the number of distinct prefixes of PrefixTokens tokens. Each prompt begins
	// with a random one of them, in addition to its own length. 0: none.
	Prefixes, PrefixTokens int

	// Trace, if not nil, replaces Rate, Prompt and Output. A closed loop ignores its arrival times.
	Trace []Request

	Seed uint64
}

// Request is a planned request.
type Request struct {
	Arrival float64 // in an open loop: seconds after the start
	Prompt  string  // "": random content of PromptTokens tokens
	// PromptTokens is the length of the prompt behind its prefix; 0 if Prompt is given.
	PromptTokens int
	OutputTokens int

	prefix int // number of the shared prefix
}

// Streams of random numbers. Each property of a load has its own, so that it does not change
// another.
const (
	arrivalStream = iota
	promptStream
	outputStream
	prefixStream
	contentStreams           // one per request
	prefixStreams  = 1 << 32 // one per prefix
)

func (l Load) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(l.Seed, stream)) }

// plan returns the requests in order of arrival.
func (l Load) plan() []Request {
	var list []Request
	if l.Trace != nil {
		list = slices.Clone(l.Trace)
		if l.Requests > 0 {
			list = list[:min(l.Requests, len(list))]
		}
	} else {
		list = make([]Request, l.Requests)
		arrivals, prompts, outputs := l.random(arrivalStream), l.random(promptStream), l.random(outputStream)
		now := 0.0
		for i := range list {
			now += arrivals.ExpFloat64() / l.Rate
			list[i] = Request{Arrival: now, PromptTokens: l.Prompt.draw(prompts), OutputTokens: l.Output.draw(outputs)}
		}
	}
	if l.Prefixes > 0 {
		prefixes := l.random(prefixStream)
		for i := range list {
			list[i].prefix = prefixes.IntN(l.Prefixes)
		}
	}
	return list
}

// ReadTrace parses a trace: one JSON object per line with "arrival" in seconds after the
// start, "output_tokens", and either "prompt", a text, or "prompt_tokens", the length of a
// random prompt. The result is in order of arrival. Errors name the line.
func ReadTrace(text []byte) ([]Request, error) {
	var list []Request
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		r, err := parseTrace(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return nil, errors.New("no requests")
	}
	slices.SortStableFunc(list, func(a, b Request) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return list, nil
}

func parseTrace(line []byte) (Request, error) {
	var t struct {
		Arrival      *float64 `json:"arrival"`
		Prompt       string   `json:"prompt"`
		PromptTokens int      `json:"prompt_tokens"`
		OutputTokens int      `json:"output_tokens"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return Request{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Request{}, errors.New("text after the object")
	}
	switch {
	case t.Arrival == nil:
		return Request{}, errors.New("arrival: the field is missing")
	case !(*t.Arrival >= 0 && *t.Arrival <= maxArrival):
		return Request{}, fmt.Errorf("arrival: %v, want 0 to %v s", *t.Arrival, maxArrival)
	case t.OutputTokens < 1 || t.OutputTokens > MaxTokens:
		return Request{}, fmt.Errorf("output_tokens: %d, want 1 to %d", t.OutputTokens, MaxTokens)
	case t.Prompt != "" && t.PromptTokens != 0:
		return Request{}, errors.New("prompt_tokens: excludes prompt")
	case t.Prompt == "" && (t.PromptTokens < 1 || t.PromptTokens > MaxTokens):
		return Request{}, fmt.Errorf("prompt_tokens: %d, want 1 to %d, or a prompt", t.PromptTokens, MaxTokens)
	}
	return Request{Arrival: *t.Arrival, Prompt: t.Prompt, PromptTokens: t.PromptTokens, OutputTokens: t.OutputTokens}, nil
}

// maxArrival is the latest arrival in a trace, in seconds. Later ones would not fit a
// time.Duration.
const maxArrival = math.MaxInt32
