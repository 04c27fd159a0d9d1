// Package servebench measures servers of language models with an OpenAI-compatible API. It
// sends requests by a plan, reads their event streams, and reports latencies, throughput
// and errors.
package servebench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the options of Run.
type Options struct {
	Target Target
	Load   Load
	Limits Limits
	// Vocab makes prompts of random token ids below it. 0: prompts are words, and their
	// length is exact if the server has /tokenize.
	Vocab  int
	Warmup int // requests before the measurement, one after the other

	Note func(text string) // called before the measurement
	Done func()            // called by several goroutines after each measured request
}

// Run measures a server. If ctx is canceled, it returns the report of the requests so far
// and the error of ctx. Failed requests are no error of Run.
func Run(ctx context.Context, o Options) (Report, error) {
	rep, err := run(ctx, o)
	if ctx.Err() != nil {
		err = ctx.Err() // requests return the cause
	}
	return rep, err
}

func run(ctx context.Context, o Options) (Report, error) {
	if _, err := json.Marshal(o.Target.Extra); err != nil {
		return Report{}, err
	}
	if o.Target.Client == nil {
		o.Target.Client = newClient(max(o.Load.Concurrency, 1024))
		defer o.Target.Client.CloseIdleConnections()
	}
	if o.Target.Model == "" {
		name, err := o.Target.firstModel(ctx)
		if err != nil {
			return Report{}, err
		}
		o.Target.Model = name
	}
	r := runner{options: o, prompts: prompts{load: o.Load, plan: o.Load.plan(), vocab: o.Vocab}}
	content, err := r.fit(ctx)
	if err != nil {
		return Report{}, err
	}
	if err := r.warmUp(ctx); err != nil {
		return Report{}, err
	}
	r.send(ctx)
	return r.report(content), nil
}

// runner sends the requests of a plan.
type runner struct {
	options Options
	prompts prompts
	begin   time.Time
	results []*result // [requests]; nil: not sent

	inFlight, peak atomic.Int64
}

// result is a request that was sent.
type result struct {
	answer answer
	due    time.Time // when it was to be sent
	err    error
}

// fit makes the prompts as long as planned. It returns a description of them for the report.
func (r *runner) fit(ctx context.Context) (content string, err error) {
	if r.options.Vocab > 0 {
		return fmt.Sprintf("random token ids below %d", r.options.Vocab), nil
	}
	err = r.prompts.fit(ctx, r.options.Target.count)
	switch {
	case err == nil:
		return "words counted by /tokenize", nil
	case !errors.Is(err, errStatus) && !errors.Is(err, errNoTokens):
		return "", err
	}
	r.options.Note(fmt.Sprintf("the server does not count tokens, so prompts have one word per token: %v", err))
	return "one word per token", nil
}

// warmUp sends requests of the same lengths and other content.
func (r *runner) warmUp(ctx context.Context) error {
	if r.options.Warmup == 0 {
		return nil
	}
	o := r.options
	o.Load.Seed = ^o.Load.Seed
	o.Load.Requests, o.Load.Concurrency = r.options.Warmup, 1
	o.Done = func() {}
	w := runner{options: o, prompts: prompts{load: o.Load, plan: o.Load.plan(), vocab: o.Vocab}}
	w.send(ctx)
	for _, res := range w.results {
		if res != nil && res.err != nil {
			return fmt.Errorf("request before the measurement: %w", res.err)
		}
	}
	return nil
}

// send sends all requests and waits for their answers.
func (r *runner) send(ctx context.Context) {
	r.results = make([]*result, len(r.prompts.plan))
	jobs := r.jobs(ctx)
	r.begin = time.Now()
	if r.options.Load.Concurrency > 0 {
		r.closedLoop(ctx, jobs)
	} else {
		r.openLoop(ctx, jobs)
	}
}

// job is a request to send.
type job struct {
	i    int
	body []byte
}

// bodiesAhead is the number of bodies that are made before they are needed, so that making
// them does not delay requests.
const bodiesAhead = 1024

// jobs returns the requests in order. The first bodies are ready when it returns.
func (r *runner) jobs(ctx context.Context) <-chan job {
	jobs := make(chan job, bodiesAhead)
	n := len(r.prompts.plan)
	body := func(i int) job { return job{i, r.options.Target.body(r.prompts.of(i), r.prompts.plan[i].OutputTokens)} }
	for i := range min(n, bodiesAhead) {
		jobs <- body(i)
	}
	go func() {
		defer close(jobs)
		for i := bodiesAhead; i < n; i++ {
			select {
			case jobs <- body(i):
			case <-ctx.Done():
				return
			}
		}
	}()
	return jobs
}

// openLoop sends each request when it is due.
func (r *runner) openLoop(ctx context.Context, jobs <-chan job) {
	var answers sync.WaitGroup
	defer answers.Wait()
	for j := range jobs {
		due := r.begin.Add(time.Duration(r.prompts.plan[j.i].Arrival * float64(time.Second)))
		if !sleepUntil(ctx, due) {
			return
		}
		answers.Go(func() { r.do(ctx, j, due) })
	}
}

// sleepUntil returns false if ctx is done before t.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// closedLoop keeps Concurrency requests in flight.
func (r *runner) closedLoop(ctx context.Context, jobs <-chan job) {
	var clients sync.WaitGroup
	for range min(r.options.Load.Concurrency, len(r.prompts.plan)) {
		clients.Go(func() {
			for j := range jobs {
				if ctx.Err() != nil {
					return
				}
				r.do(ctx, j, time.Now())
			}
		})
	}
	clients.Wait()
}

// do sends a request and stores its result.
func (r *runner) do(ctx context.Context, j job, due time.Time) {
	n := r.inFlight.Add(1)
	for peak := r.peak.Load(); n > peak && !r.peak.CompareAndSwap(peak, n); peak = r.peak.Load() {
	}
	a, err := r.options.Target.send(ctx, j.body)
	r.inFlight.Add(-1)
	r.results[j.i] = &result{a, due, err}
	r.options.Done()
}
